"""Chunks of the log into messages, for the home in this process.

The loop's thread only reads bytes; they become messages in the thread that asked for them. Control
records are left out, and so are the records of aborted transactions, as Kafka's clients do it: a
transaction that was aborted is named with its producer and first offset, and from there on the
producer's batches do not count until its marker.
"""

from __future__ import annotations

from collections.abc import Sequence

from aiokafka.record.default_records import DefaultRecordBatch

from penstock.client.message import Message
from penstock.model.batch import BatchHeader, whole_batches
from penstock.model.ids import TopicPartition
from penstock.model.producer import AbortedTransaction
from penstock.model.records import read_records


class FetchedChunk:
    """Whole batches of one partition. The first may begin before what was asked for."""

    __slots__ = ("aborted", "data", "next_offset", "place")

    def __init__(
        self,
        place: TopicPartition,
        data: bytes | bytearray | memoryview,
        next_offset: int,
        aborted: Sequence[AbortedTransaction],
    ) -> None:
        self.place = place
        self.data = data
        self.next_offset = next_offset
        self.aborted = aborted

    def __repr__(self) -> str:
        return f"<FetchedChunk {self.place} {len(self.data)} bytes up to {self.next_offset}>"

    def messages(self) -> list[Message]:
        found: list[Message] = []
        view = memoryview(self.data)
        topic, partition = self.place
        stored = Message.stored
        begun = _Aborted(self.aborted)
        position = 0
        for header in whole_batches(view):
            batch = view[position : position + header.size]
            position += header.size
            if begun.covers(header) or header.is_control:
                continue
            records = read_records(batch) if header.codec else DefaultRecordBatch(bytes(batch))
            found += [
                stored(topic, partition, r.offset, r.timestamp, r.key, r.value, r.headers)
                for r in records
            ]
        return found


class _Aborted:
    """Which producers are inside a transaction that was aborted, while walking along the log."""

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self._ahead = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        self._inside: set[int] = set()

    def covers(self, header: BatchHeader) -> bool:
        """Whether the batch is of an aborted transaction; its marker ends that."""
        ahead, inside = self._ahead, self._inside
        while ahead and ahead[-1].first_offset <= header.last_offset:
            inside.add(ahead.pop().producer_id)
        if not header.is_transactional or header.producer_id not in inside:
            return False
        if header.is_control:
            inside.discard(header.producer_id)
        return True
