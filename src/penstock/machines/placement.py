"""Where the partitions of a topic go: which requests for partitions and replicas make sense.

Pure checks over the list of brokers. On one node every partition lives on that node, so placing is
only refusing what cannot be: more replicas than brokers, a manual assignment that skips a partition
or names a stranger. The refusals and their order are Kafka's, because clients show them to people.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    PolicyViolation,
)

USE_DEFAULT = -1
# Kafka refuses a request for more partitions than this; nobody creates so many on purpose.
MAX_PARTITIONS = 10_000

Assignment = Mapping[int, Sequence[int]]  # partition: its brokers, the preferred leader first


class Placement(NamedTuple):
    """How many partitions a new topic has, and how many replicas each."""

    partition_count: int
    replication_factor: int


def place_topic(
    partitions: int,
    replication_factor: int,
    assignment: Assignment,
    *,
    default: Placement,
    brokers: Sequence[int],
) -> Placement:
    """The size of a new topic, from a request in which -1 asks for the default."""
    if assignment:
        return _place_by_hand(partitions, replication_factor, assignment, brokers)
    if replication_factor != USE_DEFAULT and replication_factor <= 0:
        raise InvalidReplicationFactor(
            "Replication factor must be larger than 0, or -1 to use the default value."
        )
    if partitions != USE_DEFAULT and partitions <= 0:
        raise InvalidPartitions(
            f"Number of partitions must be larger than 0, or -1 to use the default value; "
            f"it was {partitions}."
        )
    count = default.partition_count if partitions == USE_DEFAULT else partitions
    replicas = (
        default.replication_factor if replication_factor == USE_DEFAULT else replication_factor
    )
    if replicas > len(brokers):
        raise InvalidReplicationFactor(
            f"The replication factor {replicas} cannot be reached: there "
            f"{'is only 1 broker' if len(brokers) == 1 else f'are only {len(brokers)} brokers'}."
        )
    _check_count(count)
    return Placement(count, replicas)


def check_more_partitions(
    current: Placement,
    total: int,
    assignments: Sequence[Sequence[int]] | None,
    brokers: Sequence[int],
) -> None:
    """Raise unless a topic may grow to `total` partitions; `assignments` places the new ones."""
    if total == current.partition_count:
        raise InvalidPartitions(f"Topic already has {total} partition(s).")
    if total < current.partition_count:
        raise InvalidPartitions(
            f"The topic currently has {current.partition_count} partition(s); {total} would not be "
            "an increase."
        )
    _check_count(total)
    if assignments is None:
        return
    added = total - current.partition_count
    if len(assignments) != added:
        raise InvalidReplicaAssignment(
            f"Attempted to add {added} additional partition(s), but only {len(assignments)} "
            "assignment(s) were specified."
            if len(assignments) < added
            else f"{len(assignments)} assignments were given for {added} new partition(s)."
        )
    for partition, replicas in enumerate(assignments, current.partition_count):
        check_replicas(partition, replicas, brokers)
        if len(replicas) != current.replication_factor:
            raise InvalidReplicaAssignment(
                f"Partition {partition} is assigned {len(replicas)} replica(s), but the topic's "
                f"replication factor is {current.replication_factor}."
            )


def _place_by_hand(
    partitions: int, replication_factor: int, assignment: Assignment, brokers: Sequence[int]
) -> Placement:
    if replication_factor != USE_DEFAULT:
        raise InvalidRequest(
            "A manual partition assignment was specified, but replication factor was not set to -1."
        )
    if partitions != USE_DEFAULT:
        raise InvalidRequest(
            "A manual partition assignment was specified, but numPartitions was not set to -1."
        )
    if sorted(assignment) != list(range(len(assignment))):
        raise InvalidReplicaAssignment(
            "partitions should be a consecutive 0-based integer sequence"
        )
    _check_count(len(assignment))
    factor = len(assignment[0])
    for partition in range(len(assignment)):
        replicas = assignment[partition]
        check_replicas(partition, replicas, brokers)
        if len(replicas) != factor:
            raise InvalidReplicaAssignment(
                f"Partition {partition} has {len(replicas)} replicas, which differs from the "
                f"{factor} of partition 0."
            )
    return Placement(len(assignment), factor)


def check_replicas(partition: int, replicas: Sequence[int], brokers: Sequence[int]) -> None:
    """Raise InvalidReplicaAssignment unless a partition may live on exactly these brokers."""
    if not replicas:
        raise InvalidReplicaAssignment(f"Partition {partition} was assigned no replicas.")
    if len(set(replicas)) != len(replicas):
        raise InvalidReplicaAssignment(
            f"Partition {partition} was assigned the same broker twice: {list(replicas)}."
        )
    strangers = [broker for broker in replicas if broker not in brokers]
    if strangers:
        raise InvalidReplicaAssignment(
            f"Partition {partition} was assigned to broker {strangers[0]}, which is not registered."
        )


def _check_count(count: int) -> None:
    if count > MAX_PARTITIONS:
        raise PolicyViolation(
            f"A topic may have at most {MAX_PARTITIONS} partitions; {count} were asked for."
        )
