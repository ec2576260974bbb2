"""What AMQP clients may ask of the broker."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.options.option import INT_MAX, MIB, integer, long


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class AmqpOptions:
    """AMQP."""

    amqp_frame_max: int = integer(
        131_072, "Largest frame offered to AMQP clients.", minimum=4096, unit="bytes"
    )
    amqp_channel_max: int = integer(
        2047, "Channels that one AMQP connection may have.", minimum=1, maximum=65_535
    )
    amqp_heartbeat_seconds: int = integer(
        60,
        "Heartbeat offered to AMQP clients, who may choose another; 0 offers none.",
        minimum=0,
        maximum=65_535,
        unit="seconds",
    )
    amqp_max_message_bytes: int = integer(
        16 * MIB,
        "Largest body of an AMQP message; a larger one closes its channel before it is read.",
        minimum=1,
        maximum=512 * MIB,
        unit="bytes",
    )
    disk_free_limit_bytes: int = long(
        50 * MIB,
        "When less than this is free on the data's disk, AMQP publishers are held back; 0: never.",
        minimum=0,
        unit="bytes",
        dynamic=True,
    )
    amqp_max_connections: int = integer(INT_MAX, "AMQP connections open at once.", minimum=0)
