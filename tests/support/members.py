"""A member of a consumer group in a thread of its own (confluent-kafka), and what it saw.

It polls, remembers every record, commits synchronously before it gives partitions up, and keeps
the assignments it was told, so that tests can join, leave and fail members while records flow.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from support.clients.confluent import consumer
from support.waiting import eventually

Place = tuple[str, int]


class Member:
    def __init__(self, bootstrap: str, group: str, topics: Sequence[str], **options: Any) -> None:
        if options.get("group_protocol") != "consumer":
            options = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 300, **options}
        self.consumer = consumer(bootstrap, group, **options)
        self.seen: list[tuple[str, int, int]] = []
        self.owned: set[Place] = set()
        self.assigned: list[set[Place]] = []
        self.revoked: list[set[Place]] = []
        self.lost: list[set[Place]] = []
        self.errors: list[KafkaError] = []
        self._cooperative = options.get("partition_assignment_strategy") == "cooperative-sticky"
        self._incremental = self._cooperative or options.get("group_protocol") == "consumer"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(list(topics),), daemon=True)
        self._thread.start()

    def __enter__(self) -> Member:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def _run(self, topics: list[str]) -> None:
        self.consumer.subscribe(
            topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )
        while not self._stop.is_set():
            message = self.consumer.poll(0.1)
            if message is None:
                continue
            if message.error():
                self.errors.append(message.error())
                continue
            self.seen.append((message.topic(), message.partition(), message.offset()))
        self._commit()
        self.consumer.close()

    def _commit(self) -> None:
        try:
            self.consumer.commit(asynchronous=False)
        except KafkaException as failed:
            if failed.args[0].name() != "_NO_OFFSET":
                self.errors.append(failed.args[0])

    def _on_assign(self, _: Any, partitions: list[TopicPartition]) -> None:
        places = {(one.topic, one.partition) for one in partitions}
        self.assigned.append(places)
        self.owned = self.owned | places if self._incremental else places

    def _on_revoke(self, _: Any, partitions: list[TopicPartition]) -> None:
        self._commit()
        places = {(one.topic, one.partition) for one in partitions}
        self.revoked.append(places)
        self.owned -= places

    def _on_lost(self, _: Any, partitions: list[TopicPartition]) -> None:
        places = {(one.topic, one.partition) for one in partitions}
        self.lost.append(places)
        self.owned -= places

    def leave(self) -> None:
        """Commit, leave the group and wait until that is done."""
        self._stop.set()
        self._thread.join(20)
        assert not self._thread.is_alive(), "the member did not close"


def settled(members: Sequence[Member], topic: str, partitions: int, *, within: float = 20) -> None:
    """Wait until the members own every partition of the topic once, and nobody owns nothing."""

    def shared() -> bool:
        owned = [place for member in members for place in sorted(member.owned)]
        everything = [(topic, number) for number in range(partitions)]
        complete = sorted(one for one in owned if one[0] == topic) == everything
        return complete and (len(members) > partitions or all(one.owned for one in members))

    eventually(shared, within=within, what=f"{[member.owned for member in members]}")
