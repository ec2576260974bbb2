"""A whole broker for one test: real, in this process, in memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from penstock.client.errors import InvalidArgument
from penstock.client.local import LocalHome, broker_config
from penstock.client.opening import LocalClient, connect
from penstock.client.partitioner import Sticky
from penstock.client.remote import RemoteHome
from penstock.client.sender import PublishOptions
from penstock.client.sync import Client
from penstock.options.option import Address
from penstock.runtime.clock import MovableClock
from penstock.runtime.memory_disk import MemoryDisk
from penstock.testing.faults import Faults
from penstock.testing.proxy import Proxy, listening_socket

# Background work comes round sooner and groups form at once: tests do not wait.
_QUICK = {
    "group_initial_rebalance_delay_ms": 0,
    "group_min_session_timeout_ms": 100,
    "group_consumer_heartbeat_interval_ms": 200,
    "group_consumer_min_heartbeat_interval_ms": 100,
    "group_consumer_min_session_timeout_ms": 1000,
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": 200,
    "offsets_topic_num_partitions": 1,
    "transaction_state_log_num_partitions": 1,
}


class BrokerForTests:
    """A broker with its addresses, an in-process client, a clock and faults.

    >>> with BrokerForTests() as broker:
    ...     _ = broker.client.publish("orders", "hello", ttl=60)
    ...     broker.advance(61)
    ...     with broker.client.subscribe("orders", idle_timeout=0.1) as messages:
    ...         list(messages)
    []
    """

    __test__ = False  # pytest: it is for tests, and is none

    def __init__(self, **options: Any) -> None:
        """`options` are the broker's, as for `penstock.open`."""
        self._disk = MemoryDisk()
        self._clock = MovableClock()
        self._kafka = Proxy(listening_socket())
        self._amqp = Proxy(listening_socket())
        host, port = self._kafka.address
        config = broker_config(
            None,
            "127.0.0.1:0",
            None,
            {**_QUICK, "advertised_kafka": f"{host}:{port}", **options},
            amqp="127.0.0.1:0",
        )
        self._home = LocalHome(config, Sticky(), clock=self._clock, disk=self._disk)
        self._home.run(self._open_doors())
        self.client = LocalClient(self._home, PublishOptions(), "penstock-tests")
        self.faults = Faults(self._home, [self._kafka, self._amqp], self._disk)
        self._connected: list[Client] = []
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<BrokerForTests kafka={self.kafka} amqp={self.amqp}>"

    async def _open_doors(self) -> None:
        addresses = self._home.broker.addresses
        for proxy, door in ((self._kafka, "kafka"), (self._amqp, "amqp")):
            bound = addresses[door]
            assert bound is not None
            await proxy.open(bound)

    @property
    def kafka(self) -> str:
        """Where Kafka clients connect: the bootstrap servers."""
        return "{}:{}".format(*self._kafka.address)

    @property
    def amqp(self) -> str:
        """Where AMQP clients connect, as host:port."""
        return "{}:{}".format(*self._amqp.address)

    @property
    def _http(self) -> str:
        """Opened when it is first asked for: few tests need it, and it takes longest."""
        with self._lock:
            if self._home.addresses["http"] is None:
                self._home.run(self._home.broker.open_http(Address("127.0.0.1", 0)))
            return str(self._home.addresses["http"])

    @property
    def http_url(self) -> str:
        """Where the JSON API, metrics and pages are."""
        return f"http://{self._http}"

    @property
    def amqp_url(self) -> str:
        """The same as a URL, with the user that is always there."""
        return f"amqp://guest:guest@{self.amqp}/"

    def connect(self, **options: Any) -> Client:
        """A client over the network, as `penstock.connect`; closed with the broker.

        `advance` moves its clock, too.

        >>> with BrokerForTests() as broker:
        ...     broker.connect().publish("orders", "a", partition=0).offset
        0
        """
        options = {"amqp": self.amqp, "http": self._http} | options
        client = connect(self.kafka, **options)
        assert isinstance(client._home, RemoteHome)
        client._home.clock = self._clock.now_ms
        with self._lock:
            self._connected.append(client)
        return client

    def advance(self, seconds: float | timedelta) -> None:
        """Let time pass for the broker at once: delays come due, messages expire.

        >>> with BrokerForTests() as broker:
        ...     queue = broker.client.queue("work")
        ...     _ = queue.publish("tomorrow", delay=86_400)
        ...     broker.advance(86_401)
        ...     queue.get(timeout=10).text
        'tomorrow'
        """
        span = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
        if not isinstance(span, int | float) or not span >= 0:
            raise InvalidArgument(f"time passes by seconds, 0 or more, not by {seconds!r}")
        self._home.run(self._advance(round(span * 1000)))

    async def _advance(self, milliseconds: int) -> None:
        self._clock.advance(milliseconds)
        self._home.wake_streams()

    def close(self) -> None:
        """End it, and everything that `connect` gave. A second call does nothing.

        >>> broker = BrokerForTests()
        >>> broker.close()
        """
        with ExitStack() as closing:
            closing.callback(self._home.close)
            if not self._home.is_closed:
                closing.callback(self._home.run, self._close_doors())
            for client in self._connected:
                closing.callback(client.close)

    async def _close_doors(self) -> None:
        await self._kafka.close()
        await self._amqp.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


@contextmanager
def broker(**options: Any) -> Iterator[BrokerForTests]:
    """A fresh broker for as long as the block lasts; for unittest's `enterContext`, too.

    >>> with broker(num_partitions=1) as made:
    ...     made.client.publish("orders", "a").partition
    0
    """
    with BrokerForTests(**options) as made:
        yield made
