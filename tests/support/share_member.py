"""A member of a share group, made of raw requests: nothing is retried, nothing is hidden."""

from __future__ import annotations

import uuid
from typing import Any

from kio.schema.errors import ErrorCode as E

from support.waiting import eventually
from support.wire import Wire, topic_id

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


class Member:
    """A member of a share group, made of requests."""

    def __init__(self, wire: Wire, group: str, topic: str, version: int = 2) -> None:
        self.wire, self.group, self.topic, self.version = wire, group, topic, version
        self.id = str(uuid.uuid4())
        self.topic_id = topic_id(wire, topic)
        self.epoch = 0

    def heartbeat(self, epoch: int = 0, topics: list[str] | None = None) -> Any:
        return self.wire.call(
            "share_group_heartbeat",
            1,
            {
                "group_id": self.group,
                "member_id": self.id,
                "member_epoch": epoch,
                "subscribed_topic_names": topics,
            },
        )

    def join(self) -> None:
        def joined() -> bool:
            answer = self.heartbeat(0, [self.topic])
            assert answer.error_code is E.none, answer
            return answer.assignment is not None and bool(answer.assignment.topic_partitions)

        eventually(joined)

    def fetch(self, epoch: int | None = None, said: Any = (), **more: Any) -> Any:
        """The whole response; the session's epoch moves on when all is well."""
        partition = {"partition_index": 0, "acknowledgement_batches": _said(said)}
        answer = self.wire.call(
            "share_fetch",
            self.version,
            {
                "group_id": self.group,
                "member_id": self.id,
                "share_session_epoch": self.epoch if epoch is None else epoch,
                "max_wait": 500,
                "min_bytes": 1,
                "max_records": 500,
                "batch_size": 500,
                "topics": [{"topic_id": self.topic_id, "partitions": [partition]}],
                "forgotten_topics_data": [],
                **more,
            },
        )
        if answer.error_code is E.none:
            self.epoch += 1
        return answer

    def take(self, **more: Any) -> list[tuple[int, int, int]]:
        """Acquired ranges: first, last, delivery count."""

        def some() -> list[tuple[int, int, int]]:
            return acquired(self.fetch(**more))

        return eventually(some)

    def acknowledge(self, *said: Any, epoch: int | None = None, **more: Any) -> Any:
        partition = {"partition_index": 0, "acknowledgement_batches": _said(said)}
        answer = self.wire.call(
            "share_acknowledge",
            self.version,
            {
                "group_id": self.group,
                "member_id": self.id,
                "share_session_epoch": self.epoch if epoch is None else epoch,
                "topics": [{"topic_id": self.topic_id, "partitions": [partition]}],
                **more,
            },
        )
        if answer.error_code is E.none:
            self.epoch += 1
        return answer

    def outcome(self, *said: Any, **more: Any) -> E:
        """What became of acknowledgements of the one partition."""
        answer = self.acknowledge(*said, **more)
        assert answer.error_code is E.none, answer
        return E(answer.responses[0].partitions[0].error_code)


def _said(said: Any) -> list[dict[str, Any]]:
    return [
        {
            "first_offset": first,
            "last_offset": last,
            "acknowledge_types": kinds if isinstance(kinds, list) else [kinds],
        }
        for first, last, kinds in said
    ]


def acquired(answer: Any) -> list[tuple[int, int, int]]:
    assert answer.error_code is E.none, answer
    return [
        (each.first_offset, each.last_offset, each.delivery_count)
        for topic in answer.responses
        for partition in topic.partitions
        for each in partition.acquired_records
    ]
