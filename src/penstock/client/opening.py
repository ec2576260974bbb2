"""The two ways in: `open` for a broker in this process, `connect` for one elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.client.errors import InvalidArgument
from penstock.client.home import Home
from penstock.client.partitioner import Partitioner, PartitionFunction, find_partitioner
from penstock.client.sender import PublishOptions
from penstock.client.serializer import Serializer
from penstock.client.sync import Client
from penstock.client.watch import watch_of

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider
    from prometheus_client import CollectorRegistry

    from penstock.client.local import LocalHome

C = TypeVar("C", bound=Client)


class LocalClient(Client):
    """A client whose broker is in this process; it knows the addresses of the broker's doors."""

    _home: LocalHome

    @property
    def kafka(self) -> str | None:
        """Where Kafka clients can connect, None when that door is closed."""
        return self._home.addresses["kafka"]

    @property
    def amqp(self) -> str | None:
        """Where AMQP clients can connect, None when that door is closed."""
        return self._home.addresses["amqp"]

    @property
    def http(self) -> str | None:
        """Where health, metrics and the JSON API are, None when that door is closed."""
        return self._home.addresses["http"]


def open(
    path: str | Path | None = None,
    *,
    kafka: str | None = None,
    amqp: str | None = None,
    http: str | None = None,
    serializer: Serializer | str | None = None,
    partitioner: Partitioner | PartitionFunction | str = "sticky",
    backpressure: str = "block",
    max_pending_messages: int = 100_000,
    max_pending_bytes: int = 64 * 1024 * 1024,
    deduplication_window: float = 120.0,
    tracing: bool | TracerProvider | None = None,
    metrics: bool | CollectorRegistry = False,
    client_id: str = "penstock",
    **options: Any,
) -> LocalClient:
    """Open a broker inside this process: durable in a directory, or in memory with None.

    `kafka="127.0.0.1:0"`, `amqp=...` and `http=...` open doors for others. Every option of the
    broker can be given by name, with underscores: `num_partitions=1`, `durability="os"`.

    `tracing` makes OpenTelemetry's spans (by default where its SDK is loaded; True, or a provider
    of yours), `metrics` counts for Prometheus (True, or a registry of yours).

    >>> import penstock
    >>> with penstock.open(None, num_partitions=1) as mq:
    ...     mq.publish("orders", "hello").partition
    0
    """
    from penstock.client.local import LocalHome, broker_config

    home = LocalHome(
        broker_config(path, kafka, http, options, amqp=amqp), find_partitioner(partitioner)
    )
    publishing = PublishOptions(
        serializer,
        backpressure,
        max_pending_messages,
        max_pending_bytes,
        deduplication_window,
        watch_of(tracing, metrics, client_id),
    )
    return _client(LocalClient, home, publishing, client_id)


def connect(  # tidy: long, because it is the list of what a connection can be
    servers: str | Sequence[str] = "127.0.0.1:9092",
    *,
    amqp: str | None = None,
    http: str | None = None,
    vhost: str = "/",
    tls: bool = False,
    ca: str | Path | None = None,
    certificate: str | Path | None = None,
    private_key: str | Path | None = None,
    private_key_password: str | None = None,
    verify_hostname: bool = True,
    username: str | None = None,
    password: str | None = None,
    sasl_mechanism: str | None = None,
    timeout: float = 30.0,
    linger: float = 0.002,
    compression: str = "none",
    settings: Mapping[str, Any] | None = None,
    serializer: Serializer | str | None = None,
    partitioner: Partitioner | PartitionFunction | str = "sticky",
    backpressure: str = "block",
    max_pending_messages: int = 100_000,
    max_pending_bytes: int = 64 * 1024 * 1024,
    deduplication_window: float = 120.0,
    tracing: bool | TracerProvider | None = None,
    metrics: bool | CollectorRegistry = False,
    client_id: str = "penstock",
) -> Client:
    """Connect to a broker: Penstock, Apache Kafka or another that speaks Kafka's protocol.

    Streams go through Kafka's protocol, queues through AMQP (`amqp`, by default port 5672 of the
    first server), and what AMQP cannot ask through HTTP (`http`, port 8080).

    `ca`, `certificate` and `private_key` are PEM files; naming one turns TLS on. `username` and
    `password` log in by SASL (PLAIN unless said otherwise). `timeout` is how long a call waits for
    the server, `linger` how long a message waits for company. `settings` go to librdkafka as they
    are, for what is not here.

    >>> import penstock
    >>> with penstock.open(None, kafka="127.0.0.1:0") as broker:
    ...     with penstock.connect(broker.kafka) as mq:
    ...         mq.publish("orders", "hello", partition=0).offset
    0
    """
    from penstock.client.remote import RemoteHome
    from penstock.client.remote_settings import RemoteSettings
    from penstock.client.security import Security

    security = Security(
        tls,
        ca,
        certificate,
        private_key,
        private_key_password,
        verify_hostname,
        username,
        password,
        sasl_mechanism,
    )
    home = RemoteHome(
        RemoteSettings(
            _one_text(servers),
            client_id,
            security,
            timeout,
            linger,
            compression,
            settings or {},
            amqp,
            http,
            vhost,
        ),
        find_partitioner(partitioner),
    )
    publishing = PublishOptions(
        serializer,
        backpressure,
        max_pending_messages,
        max_pending_bytes,
        deduplication_window,
        watch_of(tracing, metrics, client_id),
    )
    return _client(Client, home, publishing, client_id)


def _one_text(servers: object) -> str:
    """One address or several, as one text."""
    several: list[Any] = [servers]
    if isinstance(servers, Iterable) and not isinstance(servers, str):
        several = list(servers)
    texts = [each for each in several if isinstance(each, str)]
    if not texts or len(texts) < len(several):
        raise InvalidArgument(f"servers are addresses like 127.0.0.1:9092, not {servers!r}")
    return ",".join(texts)


def _client(kind: type[C], home: Home, options: PublishOptions, client_id: str) -> C:
    """A client of a home, which is closed again when the options are wrong."""
    try:
        return kind(home, options, client_id)
    except BaseException:
        home.close()
        raise
