"""Offsets of one cluster in the other: where a consumer group goes on after it has moved.

After each pass of a mirror the ends of both sides belong together: these pairs are kept. A group's
offset lies between two of them; the records from the lower pair on are counted on one side and the
same number is skipped on the other. That is exact, with transaction markers and all, as long as
nobody else writes to the copy. Where records have gone meanwhile (retention, compaction) the lower
pair itself is taken: the group may read some records again, and misses none.
"""

from __future__ import annotations

import bisect
import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.spark.pipeline.twins import Twins

MOST = 1000  # pairs of a partition that are kept
READ_WITHIN_S = 60.0
Pairs = dict[str, dict[str, list[list[int]]]]  # topic, partition: [[offset there, here], ...]


class Syncs:
    """The pairs, in a file of the mirror's checkpoint; written whole."""

    def __init__(self, checkpoint: Path) -> None:
        self._path = checkpoint / "penstock-mirror.json"
        try:
            self.pairs: Pairs = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            self.pairs = {}

    def begin(self, twins: Twins, topics: list[str]) -> None:
        """The first pair of what is new: the beginning there, the end here."""
        new = [topic for topic in topics if topic not in self.pairs]
        if not new:
            return
        first = twins.ends(new, of="source", which="earliest")
        last = twins.ends(new, of="target")
        for topic in new:
            ends = zip(first[topic], last[topic], strict=True)
            self.pairs[topic] = {str(p): [[a, b]] for p, (a, b) in enumerate(ends)}
        self._write()

    def add(self, reached: dict[str, dict[str, int]], twins: Twins) -> None:
        """A pass is over: what was read there is all here."""
        ends = twins.ends(list(reached), of="target")
        for topic, parts in reached.items():
            mine = self.pairs.setdefault(topic, {})
            for part, offset in parts.items():
                here = ends[topic][int(part)]
                pairs = mine.setdefault(part, [[0, 0]])
                if offset > pairs[-1][0]:
                    pairs.append([offset, here])
                    if len(pairs) > MOST:
                        del pairs[1 : MOST // 2 : 2]  # older ones stand further apart
        self._write()

    def below(self, topic: str, part: int, offset: int) -> tuple[int, int] | None:
        """The last pair at or below an offset; None when it is older than the mirror."""
        pairs = self.pairs.get(topic, {}).get(str(part), [])
        at = bisect.bisect_right(pairs, offset, key=lambda pair: pair[0]) - 1
        return (pairs[at][0], pairs[at][1]) if at >= 0 else None

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_suffix(".fresh")
        fresh.write_text(json.dumps(self.pairs), encoding="utf-8")
        fresh.replace(self._path)


def translate_groups(
    twins: Twins, syncs: Syncs, pattern: str
) -> tuple[dict[str, int], dict[str, str]]:
    """Commit for every group in the target what it has committed in the source.

    A group is left alone where it has members, and is never set back: it may live there already.
    """
    moved: dict[str, int] = {}
    left: dict[str, str] = {}
    for group, offsets in _committed(twins, pattern).items():
        wanted: dict[tuple[str, int], int] = {}
        for (topic, part), offset in offsets.items():
            here = translated(twins, syncs, topic, part, offset)
            if here is not None:
                wanted[twins.twin(topic), part] = here
        there = _offsets_of(twins.target, group)
        ahead = {tp: at for tp, at in wanted.items() if at > there.get(tp, -1)}
        if not ahead:
            continue
        failure = _commit(twins.target, group, ahead)
        if failure:
            left[group] = failure
        else:
            moved[group] = len(ahead)
    return moved, left


def translated(twins: Twins, syncs: Syncs, topic: str, part: int, offset: int) -> int | None:
    """The offset in the target of the record that this offset means, or of one before it."""
    pair = syncs.below(topic, part, offset)
    if pair is None:
        return None
    low, here = pair
    if low == offset or "compact" in twins.settings(topic).get("cleanup.policy", ""):
        return here
    first = twins.ends([topic], of="source", which="earliest")[topic][part]
    if first > low:
        return here
    newest = syncs.pairs[topic][str(part)][-1]
    count = _count(twins.source_options, topic, part, low, min(offset, newest[0]))
    return _skip(twins.target_options, twins.twin(topic), part, here, count, newest[1])


def _count(options: dict[str, Any], topic: str, part: int, low: int, high: int) -> int:
    """How many committed records lie in [low, high)."""
    return sum(1 for _ in _offsets_between(options, topic, part, low, high))


def _skip(options: dict[str, Any], topic: str, part: int, low: int, count: int, high: int) -> int:
    """The offset behind `count` records from `low` on."""
    at = low
    if count:
        for number, offset in enumerate(_offsets_between(options, topic, part, low, high), 1):
            at = offset + 1
            if number == count:
                break
    return at


def _offsets_between(options: dict[str, Any], topic: str, part: int, low: int, high: int) -> Any:
    """The offsets of the committed records in [low, high)."""
    from confluent_kafka import Consumer, TopicPartition

    if low >= high:
        return
    said = {"group.id": "penstock-mirror", "enable.auto.commit": False,
            "enable.partition.eof": True, "isolation.level": "read_committed"}  # fmt: skip
    consumer = Consumer({**options, **said})
    deadline = time.monotonic() + READ_WITHIN_S
    try:
        consumer.assign([TopicPartition(topic, part, low)])
        while time.monotonic() < deadline:
            for message in consumer.consume(10_000, 0.2):
                offset = message.offset()
                if message.error() is not None or offset is None or offset >= high:
                    return  # the end, or beyond what was asked for
                yield offset
    finally:
        consumer.close()


def _committed(twins: Twins, pattern: str) -> dict[str, dict[tuple[str, int], int]]:
    wanted = re.compile(pattern)
    listed = twins.source.list_consumer_groups(request_timeout=30).result(30)
    names = [g.group_id for g in listed.valid if wanted.fullmatch(g.group_id)]
    topics = re.compile(twins.said.topics)
    return {
        name: {tp: at for tp, at in _offsets_of(twins.source, name).items()
               if topics.fullmatch(tp[0])}
        for name in sorted(names)
    }  # fmt: skip


def _offsets_of(admin: Any, group: str) -> dict[tuple[str, int], int]:
    from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException

    asked = [ConsumerGroupTopicPartitions(group)]
    try:
        answer = admin.list_consumer_group_offsets(asked)[group].result(30)
    except KafkaException:
        return {}
    return {(tp.topic, tp.partition): tp.offset for tp in answer.topic_partitions if tp.offset >= 0}


def _commit(admin: Any, group: str, offsets: dict[tuple[str, int], int]) -> str:
    """Why it was refused; nothing when it was not."""
    from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

    parts = [TopicPartition(topic, part, at) for (topic, part), at in sorted(offsets.items())]
    asked = [ConsumerGroupTopicPartitions(group, parts)]
    try:
        answer = admin.alter_consumer_group_offsets(asked)[group].result(30)
    except KafkaException as failure:
        return str(failure.args[0].str())
    wrong = [tp.error.str() for tp in answer.topic_partitions if tp.error]
    return wrong[0] if wrong else ""
