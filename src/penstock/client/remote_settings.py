"""From plain keyword arguments to librdkafka's settings."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.client.errors import InvalidArgument
from penstock.client.features import parse_servers

if TYPE_CHECKING:
    from penstock.client.remote_queues import AmqpSettings

_log = logging.getLogger("penstock.librdkafka")


def _note_error(error: Any) -> None:
    _log.info("%s", error)


_AMQP_PORT, _HTTP_PORT = 5672, 8080

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")


class Security(NamedTuple):
    """How to reach the servers and who we are."""

    tls: bool = False
    ca: str | Path | None = None
    certificate: str | Path | None = None
    private_key: str | Path | None = None
    private_key_password: str | None = None
    verify_hostname: bool = True
    username: str | None = None
    password: str | None = None
    sasl_mechanism: str | None = None

    @property
    def uses_tls(self) -> bool:
        return self.tls or self.ca is not None or self.certificate is not None

    @property
    def mechanism(self) -> str | None:
        if self.sasl_mechanism is not None:
            return self.sasl_mechanism.upper()
        return "PLAIN" if self.username is not None else None

    def context(self) -> ssl.SSLContext | None:
        """The same for a socket of our own."""
        if not self.uses_tls:
            return None
        context = ssl.create_default_context(cafile=None if self.ca is None else str(self.ca))
        if not self.verify_hostname:
            context.check_hostname = False
        if self.certificate is not None:
            context.load_cert_chain(
                self.certificate, self.private_key, password=self.private_key_password
            )
        return context

    def settings(self) -> dict[str, Any]:
        """For librdkafka."""
        mechanism = self.mechanism
        if mechanism is not None and mechanism not in MECHANISMS:
            raise InvalidArgument(
                f"sasl_mechanism is one of {', '.join(MECHANISMS)}, not {self.sasl_mechanism!r}"
            )
        if (self.username is None) != (self.password is None):
            raise InvalidArgument("give username and password, or neither")
        for file in (self.ca, self.certificate, self.private_key):
            if file is not None and not Path(file).is_file():
                raise InvalidArgument(f"there is no file {str(file)!r}")
        protocol = ("SASL_" if mechanism else "") + ("SSL" if self.uses_tls else "PLAINTEXT")
        found: dict[str, Any] = {"security.protocol": protocol}
        texts = {
            "ssl.ca.location": self.ca,
            "ssl.certificate.location": self.certificate,
            "ssl.key.location": self.private_key,
            "ssl.key.password": self.private_key_password,
            "sasl.mechanism": mechanism,
            "sasl.username": self.username,
            "sasl.password": self.password,
        }
        found |= {name: str(value) for name, value in texts.items() if value is not None}
        if self.uses_tls and not self.verify_hostname:
            found["ssl.endpoint.identification.algorithm"] = "none"
        return found


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
            **self.security.settings(),
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
