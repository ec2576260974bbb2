"""From plain keyword arguments to librdkafka's settings."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.client.errors import InvalidArgument
from penstock.client.features import parse_servers
from penstock.client.security import Security

if TYPE_CHECKING:
    from penstock.client.remote_queues import AmqpSettings

_log = logging.getLogger("penstock.librdkafka")


def _note_error(error: Any) -> None:
    _log.info("%s", error)


_AMQP_PORT, _HTTP_PORT = 5672, 8080


class RemoteSettings(NamedTuple):
    """Everything a client of librdkafka is made with."""

    servers: str
    client_id: str
    security: Security
    timeout: float
    linger: float
    compression: str
    more: Mapping[str, Any]
    amqp: str | None = None
    http: str | None = None
    vhost: str = "/"
    log_in: bool = True  # False where Kafka's door has no logins: they are for the other doors

    def check(self) -> None:
        """Raise for what cannot be right, before anything is connected."""
        self.security.check()
        if "security.protocol" in self.more:
            raise InvalidArgument(
                "settings cannot hold security.protocol, which follows from tls, ca, certificate, "
                "username and sasl_mechanism: give those"
            )

    def queues(self) -> AmqpSettings:
        """Where queues are: by default at the first server's host, at the usual ports."""
        from penstock.client.remote_queues import AmqpSettings

        host = parse_servers(self.servers)[0][0]
        security = self.security
        return AmqpSettings(
            (host, _AMQP_PORT) if self.amqp is None else parse_servers(self.amqp)[0],
            (host, _HTTP_PORT) if self.http is None else parse_servers(self.http)[0],
            security.username or "guest",
            security.password or "guest",
            self.vhost,
            security.context(),
            self.timeout,
        )

    def common(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.servers,
            "client.id": self.client_id,
            "topic.metadata.refresh.interval.ms": 5_000,
            # Else, when a lone broker restarts, librdkafka throws its handle away and may wait for
            # it for ever (seen with 2.16 in send_offsets_to_transaction).
            "metadata.recovery.strategy": "none",
            "reconnect.backoff.max.ms": 1_000,  # a broker that is back is found soon
            # What goes wrong comes back with each call; its log goes where logs go.
            "logger": _log,
            # Without it, a producer that was fenced raises out of whichever call runs just then.
            "error_cb": _note_error,
            **self.security.settings(log_in=self.log_in),
            **self.more,
        }

    @property
    def new_groups(self) -> bool:
        """Whether groups may be of the new kind (KIP-848): unless the settings say otherwise."""
        return bool(self.more.get("group.protocol", "consumer") == "consumer")

    def producer(self, *, idempotent: bool = True) -> dict[str, Any]:
        return {
            "acks": "all",
            "enable.idempotence": idempotent,
            "partitioner": "murmur2_random",
            "linger.ms": self.linger * 1000,
            "compression.type": self.compression,
            "message.timeout.ms": max(1, round(self.timeout * 1000)),
            # Our own backpressure counts; librdkafka's must not come first.
            "queue.buffering.max.messages": 10_000_000,
            "queue.buffering.max.kbytes": 2_097_151,
            "message.max.bytes": 100 * 1024 * 1024,
            **self.common(),
        }

    def consumer(self, group: str, *, new_groups: bool) -> dict[str, Any]:
        protocol: dict[str, Any] = (
            {"group.protocol": "consumer"}
            if new_groups
            else {"partition.assignment.strategy": "cooperative-sticky"}
        )
        return {
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 100,
            "fetch.error.backoff.ms": 50,
            **protocol,
            **self.common(),
        }
