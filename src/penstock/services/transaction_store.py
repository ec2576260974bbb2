"""The transactions in memory, and the journal they come back from.

Also what the coordinator needs of the rest of the broker, as protocols: a journal, partitions that
take markers and verifications, and where the offsets of a group are.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Protocol

from penstock.errors import TransactionalIdNotFound
from penstock.machines.producers import ProducerStates
from penstock.machines.transaction_commands import TransactionRecord
from penstock.machines.transactions import Transaction
from penstock.model.records import Record
from penstock.model.transaction_topic import (
    TransactionChanged,
    TransactionForgotten,
    TransactionStatus,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from penstock.services.transaction_markers import MarkerPort


class ReplayedRecords(Protocol):
    """A batch of the journal."""

    @property
    def records(self) -> Sequence[Record]: ...


class StateLog(Protocol):
    """The journal of `__transaction_state`."""

    def partition_for(self, key: str) -> int: ...

    async def append(
        self,
        partition: int,
        records: Sequence[tuple[bytes, bytes | None]],
        *,
        wait: bool = True,
    ) -> None:
        """Returns when the records are durable; without `wait`, when they are written."""

    def replay(self, partition: int) -> AsyncIterator[ReplayedRecords]: ...

    async def partitions_with_data(self) -> list[int]: ...


class OffsetsTopic(Protocol):
    """Where the offsets of a group are."""

    def partition_for(self, key: str) -> int: ...

    async def ensure(self) -> None:
        """Create the topic if need be."""


class HasProducers(Protocol):
    """A partition, as far as transactions know it."""

    @property
    def producers(self) -> ProducerStates: ...


class TransactionPartitions(MarkerPort, Protocol):
    """The partitions of the broker."""

    async def replica(self, topic: str, partition: int) -> HasProducers: ...


class TransactionStore:
    """Transactions by id. `keep` is the only way they change."""

    def __init__(self, journal: StateLog) -> None:
        self._journal = journal
        self._by_id: dict[str, Transaction] = {}
        self._ongoing: dict[str, Transaction] = {}  # those that can run out of time

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Transaction]:
        return iter(self._by_id.values())

    def __repr__(self) -> str:
        return f"<TransactionStore {len(self._by_id)} ids, {len(self._ongoing)} ongoing>"

    def find(self, transactional_id: str) -> Transaction | None:
        return self._by_id.get(transactional_id)

    def ongoing(self) -> list[Transaction]:
        return list(self._ongoing.values())

    def describe(self, transactional_id: str) -> TransactionChanged:
        transaction = self._by_id.get(transactional_id)
        if transaction is None or transaction.state is None:
            raise TransactionalIdNotFound(f"no transactional id {transactional_id!r}")
        return transaction.state

    def listed(self) -> list[tuple[str, TransactionChanged]]:
        return [
            (name, transaction.state)
            for name, transaction in self._by_id.items()
            if transaction.state is not None
        ]

    async def keep(
        self, transaction: Transaction, records: Sequence[TransactionRecord], *, wait: bool
    ) -> None:
        """Make the records durable, then apply them.

        Without `wait` they are only written first. Whatever follows for this transactional id goes
        to the same partition of the journal, so nothing of it can be durable without them.
        """
        name = transaction.transactional_id
        key = encode_key(name)
        rows = [
            (key, None if isinstance(record, TransactionForgotten) else encode_value(record))
            for record in records
        ]
        await self._journal.append(self._journal.partition_for(name), rows, wait=wait)
        for record in records:
            transaction.apply(record)
        self._file(transaction)

    async def replay(self) -> None:
        """Read every partition of the journal that has something in it."""
        for partition in await self._journal.partitions_with_data():
            async for batch in self._journal.replay(partition):
                for record in batch.records:
                    self._replay_record(record)

    def _replay_record(self, record: Record) -> None:
        name = decode_key(record.key) if record.key is not None else None
        if name is None:
            return
        transaction = self._by_id.get(name) or Transaction(name)
        forgotten = record.value is None
        transaction.apply(
            TransactionForgotten() if forgotten else decode_value(record.value or b"")
        )
        self._file(transaction)

    def _file(self, transaction: Transaction) -> None:
        name, state = transaction.transactional_id, transaction.state
        if state is None:
            self._by_id.pop(name, None)
        else:
            self._by_id[name] = transaction
        if state is not None and state.status is TransactionStatus.ONGOING:
            self._ongoing[name] = transaction
        else:
            self._ongoing.pop(name, None)
