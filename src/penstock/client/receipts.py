"""The receipts of many messages, kept as the batches they went in.

A million messages have a million receipts, but few people look at them: they are made when
somebody does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, overload

from penstock.client.message import NO_TIMESTAMP, Receipt


class WrittenBatch(NamedTuple):
    """Messages that lie one after the other; `indexes` is their places in what was published."""

    topic: str
    partition: int
    base_offset: int
    indexes: Sequence[int]
    timestamp_ms: int = NO_TIMESTAMP


class Receipts(Sequence[Receipt]):
    """One receipt per message, in the order in which they were given.

    >>> receipts = Receipts([WrittenBatch("t", 0, 40, range(0, 2)), WrittenBatch("t", 1, 7, [2])])
    >>> len(receipts), receipts[1].offset, receipts[2].partition
    (3, 41, 1)
    """

    def __init__(
        self, batches: Iterable[WrittenBatch], message_ids: Sequence[str | None] | None = None
    ) -> None:
        self._batches = list(batches)
        self._message_ids = message_ids
        self._count = sum(len(batch.indexes) for batch in self._batches)
        self._made: list[Receipt] | None = None

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"<Receipts of {self._count} messages>"

    @overload
    def __getitem__(self, index: int) -> Receipt: ...

    @overload
    def __getitem__(self, index: slice) -> list[Receipt]: ...

    def __getitem__(self, index: int | slice) -> Receipt | list[Receipt]:
        if self._made is None:
            self._made = self._make()
        return self._made[index]

    def _make(self) -> list[Receipt]:
        by_index: dict[int, Receipt] = {}
        ids = self._message_ids
        for topic, partition, base_offset, indexes, timestamp_ms in self._batches:
            for delta, index in enumerate(indexes):
                message_id = None if ids is None else ids[index]
                by_index[index] = Receipt(
                    topic, partition, base_offset + delta, timestamp_ms, message_id
                )
        return [by_index[index] for index in sorted(by_index)]
