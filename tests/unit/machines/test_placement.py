"""How big a new topic is, and which requests for partitions and replicas make no sense."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from penstock.errors import (
    BrokerError,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    PolicyViolation,
)
from penstock.machines.placement import (
    Assignment,
    Placement,
    check_more_partitions,
    place_topic,
)

DEFAULT = Placement(4, 1)


def place(
    partitions: int = -1,
    replicas: int = -1,
    assignment: Assignment | None = None,
    brokers: Sequence[int] = (1,),
) -> Placement:
    return place_topic(partitions, replicas, assignment or {}, default=DEFAULT, brokers=brokers)


def test_minus_one_asks_for_the_default() -> None:
    assert place() == (4, 1)
    assert place(partitions=9) == (9, 1)
    assert place(replicas=2, brokers=(1, 2)) == (4, 2)


def test_an_assignment_decides_both() -> None:
    assert place(assignment={1: (1,), 0: (1,)}) == (2, 1)
    assert place(assignment={0: (2, 1)}, brokers=(1, 2)) == (1, 2)


@pytest.mark.parametrize(
    ("error", "arguments"),
    [
        (InvalidPartitions, {"partitions": 0}),
        (InvalidPartitions, {"partitions": -2}),
        (PolicyViolation, {"partitions": 10_001}),
        (InvalidReplicationFactor, {"replicas": 0}),
        (InvalidReplicationFactor, {"replicas": 2}),
        (InvalidRequest, {"assignment": {0: (1,)}, "partitions": 1}),
        (InvalidRequest, {"assignment": {0: (1,)}, "replicas": 1}),
        (InvalidReplicaAssignment, {"assignment": {0: (1,), 2: (1,)}}),
        (InvalidReplicaAssignment, {"assignment": {1: (1,)}}),
        (InvalidReplicaAssignment, {"assignment": {0: ()}}),
        (InvalidReplicaAssignment, {"assignment": {0: (1, 1)}}),
        (InvalidReplicaAssignment, {"assignment": {0: (7,)}}),
        (InvalidReplicaAssignment, {"assignment": {0: (1,), 1: (1, 2)}, "brokers": (1, 2)}),
    ],
)
def test_what_cannot_be_is_refused(error: type[BrokerError], arguments: dict[str, object]) -> None:
    with pytest.raises(error):
        place(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "total", "assignment"),
    [
        (InvalidPartitions, 4, None),
        (InvalidPartitions, 3, None),
        (PolicyViolation, 10_001, None),
        (InvalidReplicaAssignment, 6, [(1,)]),
        (InvalidReplicaAssignment, 5, [(1,), (1,)]),
        (InvalidReplicaAssignment, 5, [(7,)]),
        (InvalidReplicaAssignment, 5, [()]),
        (InvalidReplicaAssignment, 5, [(1, 1)]),
    ],
)
def test_growing_in_ways_that_cannot_be_is_refused(
    error: type[BrokerError], total: int, assignment: list[tuple[int, ...]] | None
) -> None:
    with pytest.raises(error):
        check_more_partitions(DEFAULT, total, assignment, (1,))


def test_growing_with_or_without_an_assignment() -> None:
    check_more_partitions(DEFAULT, 5, None, (1,))
    check_more_partitions(DEFAULT, 6, [(1,), (1,)], (1,))
