"""Counts of what the AMQP door did, for metrics and the console."""

from __future__ import annotations


class AmqpStats:
    """Plain counters that only grow, except `channels`."""

    __slots__ = (
        "acknowledged", "bytes_in", "bytes_out", "channels", "connections_made", "delivered",
        "failed", "published", "refused", "rejected", "requeued", "returned",
    )  # fmt: skip

    def __init__(self) -> None:
        self.connections_made = 0
        self.refused = 0  # over a limit, or not logged in
        self.failed = 0  # ended by the broker for a broken rule
        self.channels = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.published = 0
        self.returned = 0
        self.delivered = 0
        self.acknowledged = 0
        self.requeued = 0
        self.rejected = 0

    def settled(self, verb: str, count: int) -> None:
        if verb == "ack":
            self.acknowledged += count
        elif verb == "requeue":
            self.requeued += count
        else:
            self.rejected += count
