"""From bounds to offsets: which partitions there are, where a query starts and ends.

Offsets travel as Spark's connector writes them, `{"orders":{"0":23}}`. One thing is added: the
first end offset of a stream also carries where the stream began, under `@from` (no topic can have
that name), because Spark asks for the initial offset again when it crashes before the first batch
was committed, and "latest" would by then be somewhere else. Partitions that appear while a query
runs begin at their first record, and that too is written down there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.spark.cluster import EARLIEST, LATEST, Cluster, TopicPartition
from penstock.spark.errors import DataLoss, OptionError
from penstock.spark.fetching import ADVICE
from penstock.spark.options import Bound, Subscription

FROM = "@from"
BEGAN = "@began"  # of queues, in every offset: which copies repeat what this query has read
UNSTARTED = {"@start": "by the options"}  # the initial offset, the same at every call

Positions = dict[TopicPartition, int]


def to_json(positions: Mapping[TopicPartition, int]) -> dict[str, Any]:
    """`{"topic": {"partition": offset}}`, in order."""
    nested: dict[str, Any] = {}
    for (topic, partition), offset in sorted(positions.items()):
        nested.setdefault(topic, {})[str(partition)] = offset
    return nested


def from_json(nested: Mapping[str, Any]) -> Positions:
    """The inverse; what begins with @ is not a topic."""
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, partitions in nested.items()
        if not topic.startswith("@")
        for partition, offset in partitions.items()
    }


def partitions_of(cluster: Cluster, wanted: Subscription) -> list[TopicPartition]:
    """Every partition a subscription means right now."""
    if wanted.strategy == "assign":
        found = cluster.topics({tp.topic for tp in wanted.assigned})
        missing = [str(tp) for tp in wanted.assigned if tp.partition not in found.get(tp.topic, ())]
        if missing:
            raise OptionError(f"assign: there is no {', '.join(missing)}")
        return list(wanted.assigned)
    if wanted.topics:
        found = cluster.topics(wanted.topics)
        missing = [topic for topic in wanted.topics if topic not in found]
        if missing:
            raise OptionError(f"{wanted.strategy}: there is no topic {', '.join(missing)}")
    else:
        # As Spark's connector does: a pattern may match anywhere in a name.
        pattern = re.compile(wanted.pattern)
        found = {
            name: partitions
            for name, partitions in cluster.topics().items()
            if pattern.search(name) and not cluster.is_internal(name)
        }
    return [TopicPartition(t, p) for t, partitions in sorted(found.items()) for p in partitions]


def latest(cluster: Cluster, partitions: Iterable[TopicPartition], isolation: int) -> Positions:
    """The ends: the last stable offsets when only committed records are read."""
    places = cluster.offsets_at(dict.fromkeys(partitions, LATEST), isolation)
    return {tp: place.offset for tp, place in places.items()}


def earliest(cluster: Cluster, partitions: Iterable[TopicPartition]) -> Positions:
    """The first offsets that are still there."""
    places = cluster.offsets_at(dict.fromkeys(partitions, EARLIEST))
    return {tp: place.offset for tp, place in places.items()}


def resolve(
    cluster: Cluster,
    where: Bound,
    partitions: list[TopicPartition],
    *,
    isolation: int,
    when_none_later: str = "error",
    group: str | None = None,
) -> Positions:
    """Exact offsets of a bound. `when_none_later`: what a time after the last record means."""
    if not partitions:
        return {}
    if where.kind == "earliest":
        return earliest(cluster, partitions)
    if where.kind == "latest":
        return latest(cluster, partitions, isolation)
    if where.kind == "group":
        assert group is not None
        return {**earliest(cluster, partitions), **cluster.committed(group, partitions)}
    if where.kind == "timestamp":
        times = dict.fromkeys(partitions, where.timestamp)
        return _by_time(cluster, times, isolation, when_none_later)
    given = dict(where.offsets)
    _check_covered(given, partitions)
    if where.kind == "timestamps":
        return _by_time(cluster, given, isolation, when_none_later)
    special = {tp: offset for tp, offset in given.items() if offset < 0}
    if bad := [offset for offset in special.values() if offset not in (EARLIEST, LATEST)]:
        raise OptionError(f"{bad[0]} is no offset: -2 is the earliest, -1 the latest")
    found = dict(given)
    first = earliest(cluster, [tp for tp, offset in special.items() if offset == EARLIEST])
    last = latest(cluster, [tp for tp, offset in special.items() if offset == LATEST], isolation)
    return {**found, **first, **last}


def _check_covered(given: Mapping[TopicPartition, int], partitions: list[TopicPartition]) -> None:
    if set(given) != set(partitions):
        missing = sorted(str(tp) for tp in set(partitions) - set(given))
        surplus = sorted(str(tp) for tp in set(given) - set(partitions))
        raise OptionError(
            "offsets must be given for exactly the partitions that are read (-1 for latest, -2 "
            f"for earliest): missing {missing}, not read {surplus}"
        )


def _by_time(
    cluster: Cluster, times: Mapping[TopicPartition, int], isolation: int, when_none_later: str
) -> Positions:
    places = cluster.offsets_at(times, isolation)
    late = [tp for tp, place in places.items() if place.offset < 0]
    if late and when_none_later == "error":
        raise OptionError(
            f"no record of {', '.join(map(str, sorted(late)))} is at or after its starting time; "
            "startingOffsetsByTimestampStrategy=latest starts at the end instead"
        )
    ends = latest(cluster, late, isolation) if late else {}
    return {tp: ends.get(tp, place.offset) for tp, place in places.items()}


def check_order(start: Positions, end: Positions) -> None:
    """A batch query that is told to end before it starts is a mistake, never loss."""
    if wrong := [tp for tp in sorted(start) if start[tp] > end[tp]]:
        said = ", ".join(f"{tp} starts at {start[tp]} and ends at {end[tp]}" for tp in wrong)
        raise OptionError(f"the start is after the end: {said}")


def check_loss(start: Positions, first: Positions, end: Positions, fail: bool) -> list[str]:
    """What of the range to read is already gone, as sentences; raises when asked to fail."""
    losses = []
    for tp, offset in sorted(start.items()):
        if tp not in end:
            losses.append(f"{tp} is gone; it was read up to offset {offset}")
        elif end[tp] < offset:
            losses.append(f"{tp} ends at {end[tp]} but was already read up to {offset}")
        elif first.get(tp, offset) > offset:
            losses.append(f"{tp} begins at {first[tp]} now; offsets from {offset} on are gone")
    if losses and fail:
        raise DataLoss(f"{'; '.join(losses)}. {ADVICE}")
    return losses
