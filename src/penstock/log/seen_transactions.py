"""What a walk through the log learns of transactions: whose batches count, which markers are spent.

The list of aborted transactions comes from the transaction indexes. A transaction's marker has to
stay as long as batches of it may still be read; once a walk from the beginning of the log meets the
marker without having met a batch of it, nobody needs the marker any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from penstock.model.batch import BatchHeader
from penstock.model.producer import AbortedTransaction
from penstock.model.records import ABORT, COMMIT, read_marker
from penstock.runtime.disk import Buffer

assert (ABORT, COMMIT) == (0, 1)


class SeenTransactions:
    """Follows a walk through the log, batch by batch, in order."""

    __slots__ = ("_aborted", "_coming", "_committed", "_observed", "kept")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = deque(sorted(aborted, key=lambda entry: entry.first_offset))
        self._aborted: dict[int, AbortedTransaction] = {}
        self._observed: set[int] = set()  # producers whose aborted transaction had a batch
        self._committed: set[int] = set()  # producers whose other transaction had a batch
        self.kept: list[AbortedTransaction] = []  # for the index of the segment being written

    def __repr__(self) -> str:
        return f"SeenTransactions({len(self._aborted)} aborted under way)"

    def meet_data(self, header: BatchHeader) -> bool:
        """A batch of records comes; True when it belongs to an aborted transaction."""
        self._begin(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._observed.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def meet_marker(self, header: BatchHeader, batch: Buffer) -> bool:
        """A control batch comes; True when no batch of its transaction is left."""
        self._begin(header.last_offset)
        if not header.record_count:
            return True
        producer_id = header.producer_id
        committed, _ = read_marker(batch)
        if committed:
            spent = producer_id not in self._committed
            self._committed.discard(producer_id)
            return spent
        entry = self._aborted.pop(producer_id, None)
        if producer_id in self._observed:
            self._observed.discard(producer_id)
            if entry is not None:
                self.kept.append(entry)
            return False
        return True

    def _begin(self, offset: int) -> None:
        while self._coming and self._coming[0].first_offset <= offset:
            entry = self._coming.popleft()
            self._aborted[entry.producer_id] = entry
