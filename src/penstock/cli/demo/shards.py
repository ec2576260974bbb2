"""Independent brokers, each with a share of the keys: the model of sharding, in this process.

A key's hash says which broker has it. Nobody has a copy: when a broker is away, its keys wait and
all others go on. Each broker keeps its data in a directory and finds it again when it comes back,
and its groups go on where they were.
"""

from __future__ import annotations

import threading
from collections import deque
from pathlib import Path

import penstock
from penstock.cli.demo.crowd import Crowd

TOPIC = "orders"
GROUP = "billing"
PARTITIONS = 2
READERS = 2


class Shard:
    """One broker: its data, the threads of its group, and what waits while it is away."""

    def __init__(self, name: str, data: Path) -> None:
        self.name = name
        self.stored = 0
        self.processed: list[int] = []
        self.waiting: deque[int] = deque()
        self._data = data
        self._client: penstock.LocalClient | None = None
        self._readers = Crowd()
        self._streams: list[penstock.Subscription] = []
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Shard {self.name} {self.stored} stored, {len(self.processed)} processed>"

    @property
    def is_alive(self) -> bool:
        return self._client is not None

    def start(self) -> None:
        """Open the data, or open it again, and let the readers go on where they were."""
        client = penstock.open(self._data, group_initial_rebalance_delay_ms=0)
        if TOPIC not in client.admin.topics():
            client.admin.create_topic(TOPIC, partitions=PARTITIONS)
        self._readers = Crowd()
        self._streams = [client.subscribe(TOPIC, group=GROUP) for _ in range(READERS)]
        for stream in self._streams:
            self._readers.start(lambda m=stream: self._process(m), 0.0)  # type: ignore[misc]
        with self._lock:
            self._client = client

    def _process(self, messages: penstock.Subscription) -> bool:
        for message in messages.batch(timeout=0.1):
            self.processed.append(int(message.text))
        return True

    def stop(self) -> None:
        """It is away from now on, whoever is in the middle of something."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            self._readers.stop()
            for stream in self._streams:
                stream.commit()
                stream.close()
            client.close()

    def send(self, number: int) -> bool:
        """Publish an order, or remember it for when the broker is back."""
        with self._lock:
            if self._client is None:
                self.waiting.append(number)
                return False
            self._client.publish(TOPIC, str(number), key=str(number))
            self.stored += 1
            return True

    def send_waiting(self) -> None:
        while self.waiting and self.is_alive:
            if not self.send(self.waiting.popleft()):
                return


class Shards:
    """All brokers."""

    def __init__(self, names: list[str], directory: Path) -> None:
        self.shards = [Shard(name, directory / name) for name in names]
        for shard in self.shards:
            shard.start()

    def of(self, key: str) -> Shard:
        """The broker that has a key, for ever."""
        return self.shards[penstock.partition_of_key(key.encode(), len(self.shards))]

    def close(self) -> None:
        for shard in self.shards:
            shard.stop()
