"""Sending record batches: as an idempotent producer, or inside one transaction.

Batches of one partition go one after the other, with sequences, so that a repeated request after a
lost answer is recognised by the broker. A producer belongs to one task or one commit and is thrown
away after it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from penstock.spark import protocol
from penstock.spark.cluster import TRANSACTION, Cluster, TopicPartition, each_partition
from penstock.spark.encoding import Encoded, own
from penstock.spark.errors import BrokerRefused

REQUEST_BYTES = 4 << 20
DUPLICATE_SEQUENCE = 46


class Producer:
    """An idempotent producer; with a transactional id, one that writes all or nothing."""

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str | None = None,
        timeout_ms: int = 60_000,
        acks: int = -1,
    ) -> None:
        self._cluster = cluster
        self._acks = acks
        self._transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._sequences: dict[TopicPartition, int] = defaultdict(int)
        self._added: set[TopicPartition] = set()
        # With a transactional id this fences every earlier owner of it and completes what they
        # left open (KIP-98): after it, what is visible of them stays as it is.
        self.id, self.epoch = cluster.patiently("getting a producer id", self._init)

    def __repr__(self) -> str:
        return f"Producer(id={self.id}, epoch={self.epoch}, {self._transactional_id})"

    def _init(self) -> tuple[int, int]:
        request = {"transactional_id": self._transactional_id, "timeout_ms": self._timeout_ms}
        if self._transactional_id is None:
            answer = self._cluster.call_any(protocol.INIT_PRODUCER_ID, request)
        else:
            answer = self._coordinated(protocol.INIT_PRODUCER_ID, request)
        if answer["error"]:
            raise BrokerRefused("getting a producer id", answer["error"])
        return answer["producer_id"], answer["producer_epoch"]

    def _coordinated(self, api: protocol.Api, request: dict[str, Any]) -> dict[str, Any]:
        assert self._transactional_id is not None
        return self._cluster.coordinator(TRANSACTION, self._transactional_id).call(api, request)

    def _identity(self) -> dict[str, Any]:
        return {
            "transactional_id": self._transactional_id,
            "producer_id": self.id,
            "producer_epoch": self.epoch,
        }

    def send(self, batches: Iterable[Encoded]) -> int:
        """Write every batch, in order within its partition; returns how many records."""
        total = 0
        for group in _requests(batches):
            if self._transactional_id is not None:
                self._add_partitions([batch.partition for batch in group])
            owned = []
            for batch in group:
                sequence = self._sequences[batch.partition]
                self._sequences[batch.partition] = (sequence + batch.rows) & 0x7FFFFFFF
                transactional = self._transactional_id is not None
                records = own(batch.records, self.id, self.epoch, sequence, transactional)
                owned.append(batch._replace(records=records))
                total += batch.rows
            self._deliver(owned)
        return total

    def _deliver(self, owned: list[Encoded]) -> None:
        """Each batch once: what was not acknowledged is sent again with the same sequence."""
        waiting = {batch.partition: batch for batch in owned}

        def attempt() -> None:
            by_leader: dict[int, tuple[Any, list[Encoded]]] = {}
            for batch in waiting.values():
                leader = self._cluster.leader(batch.partition)
                by_leader.setdefault(id(leader), (leader, []))[1].append(batch)
            for leader, batches in by_leader.values():
                topics: dict[str, list[dict[str, Any]]] = defaultdict(list)
                for batch in batches:
                    part = {"index": batch.partition.partition, "records": batch.records}
                    topics[batch.partition.topic].append(part)
                request = {
                    "transactional_id": self._transactional_id,
                    "acks": self._acks,
                    "timeout_ms": 30_000,
                    "topics": [{"name": n, "partitions": p} for n, p in topics.items()],
                }
                answer = leader.call(protocol.PRODUCE, request)
                for tp, told in each_partition(answer):
                    if told["error"] in (0, DUPLICATE_SEQUENCE):
                        del waiting[tp]
                    else:
                        raise BrokerRefused(f"writing to {tp}", told["error"])

        self._cluster.patiently("writing", attempt)

    def _add_partitions(self, partitions: list[TopicPartition]) -> None:
        new = sorted(set(partitions) - self._added)
        if not new:
            return
        topics: dict[str, list[int]] = defaultdict(list)
        for topic, partition in new:
            topics[topic].append(partition)
        listed = [{"name": name, "partitions": parts} for name, parts in topics.items()]

        def attempt() -> None:
            answer = self._coordinated(
                protocol.ADD_PARTITIONS_TO_TXN, {**self._identity(), "topics": listed}
            )
            for tp, part in each_partition(answer):
                if part["error"]:
                    raise BrokerRefused(f"adding {tp} to the transaction", part["error"])

        self._cluster.patiently("adding partitions to the transaction", attempt)
        self._added |= set(new)

    def end(self, *, commit: bool) -> None:
        """Make everything visible at once, or nothing. Repeating it does no harm."""

        def attempt() -> None:
            answer = self._coordinated(protocol.END_TXN, {**self._identity(), "commit": commit})
            if answer["error"]:
                raise BrokerRefused("ending the transaction", answer["error"])

        if self._added:
            self._cluster.patiently("ending the transaction", attempt)
            self._added.clear()


def _requests(batches: Iterable[Encoded]) -> Iterator[list[Encoded]]:
    """Groups for one round: at most one batch of a partition, and not too many bytes."""
    group: dict[TopicPartition, Encoded] = {}
    size = 0
    for batch in batches:
        if batch.partition in group or size + len(batch.records) > REQUEST_BYTES:
            if group:
                yield list(group.values())
            group, size = {}, 0
        group[batch.partition] = batch
        size += len(batch.records)
    if group:
        yield list(group.values())
