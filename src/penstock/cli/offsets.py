"""Asking a broker where partitions begin and end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from penstock.cli.connection import TIMEOUT_S, broker_errors, result_of

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


def log_ends(
    admin: AdminClient, bootstrap: str, partitions: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], tuple[int, int]]:
    """(first offset, next offset) of each partition."""
    from confluent_kafka.admin import OffsetSpec

    wanted = list(partitions)
    starts = look_up(admin, bootstrap, wanted, OffsetSpec.earliest())
    ends = look_up(admin, bootstrap, wanted, OffsetSpec.latest())
    return {place: (starts[place], ends[place]) for place in wanted}


def look_up(
    admin: AdminClient, bootstrap: str, partitions: Iterable[tuple[str, int]], spec: Any
) -> dict[tuple[str, int], int]:
    """The offset that `spec` (earliest, latest, a time) means in each partition; -1 if none."""
    from confluent_kafka import TopicPartition

    wanted = {TopicPartition(topic, number): spec for topic, number in partitions}
    if not wanted:
        return {}
    with broker_errors(bootstrap):
        futures = admin.list_offsets(wanted, request_timeout=TIMEOUT_S)
    found = {}
    for place, future in futures.items():
        what = f"cannot ask for the offsets of {place.topic}-{place.partition}"
        found[place.topic, place.partition] = int(result_of(future, bootstrap, what).offset)
    return found
