"""The transaction coordinator: what producers ask of it, made durable and carried out.

Each transactional id is a `Transaction` machine. A command is decided when it is its turn, its
records are appended to `__transaction_state`, applied when they are durable, and only then
answered. Once the end of a transaction is durable, a task of its own writes the markers and records
the completion; if that is interrupted, `load` takes it up again.

A client that asks for something while that task runs waits for it a little instead of being sent
away to ask again. So does EndTxn itself: when it is answered, readers of committed records see the
transaction. Both give up after `patience_ms`; nothing but comfort depends on it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from penstock.config import BrokerConfig
from penstock.errors import (
    BrokerError,
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionTimeout,
    InvalidTxnState,
    NotEnoughReplicas,
    ProducerFenced,
    StorageError,
    TransactionAbortable,
)
from penstock.machines.producers import NO_GUARD
from penstock.machines.transaction_commands import (
    CLASSIC,
    EPOCH_PER_TRANSACTION,
    AbortIfOutOfTime,
    AddPartitions,
    Command,
    CompleteTransaction,
    EndTransaction,
    ForgetIfIdle,
    InitProducer,
    ProducerIdentity,
    Verdict,
    Verification,
    VerifyPartitions,
)
from penstock.machines.transactions import Transaction
from penstock.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, TopicPartition
from penstock.model.topic import OFFSETS_TOPIC
from penstock.model.transaction_topic import TransactionChanged
from penstock.runtime.clock import Clock
from penstock.runtime.turns import Turns
from penstock.services.producer_ids import ProducerIds
from penstock.services.transaction_markers import TransactionMarkers
from penstock.services.transaction_store import (
    OffsetsTopic,
    StateLog,
    TransactionPartitions,
    TransactionStore,
)

__all__ = ["CLASSIC", "EPOCH_PER_TRANSACTION", "TransactionLimits", "Transactions"]

log = logging.getLogger(__name__)

_PAUSE_SECONDS = 1.0  # before a completion that could not be written is tried again


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLimits:
    """Bounds of transactions, by Kafka's `transaction.*` settings."""

    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 604_800_000
    verify_partitions: bool = True  # KIP-890
    patience_ms: int = 5_000  # how long a client is kept waiting for markers

    @classmethod
    def of(cls, config: BrokerConfig) -> TransactionLimits:
        return cls(
            max_timeout_ms=config.transaction_max_timeout_ms,
            id_expiration_ms=config.transactional_id_expiration_ms,
            verify_partitions=config.transaction_partition_verification_enable,
        )


class Transactions:
    """Every transactional id of this broker."""

    def __init__(
        self,
        journal: StateLog,
        partitions: TransactionPartitions,
        offsets: OffsetsTopic,
        producer_ids: ProducerIds,
        clock: Clock,
        *,
        coordinator_epoch: int = 0,
        limits: TransactionLimits | None = None,
    ) -> None:
        self.limits = limits or TransactionLimits()  # replaced when options change
        self._store = TransactionStore(journal)
        self._partitions = partitions
        self._offsets = offsets
        self._markers = TransactionMarkers(partitions, coordinator_epoch)
        self._producer_ids = producer_ids
        self._clock = clock
        self._turns = Turns()
        self._completions: dict[str, asyncio.Task[ProducerIdentity]] = {}

    def __repr__(self) -> str:
        return f"<Transactions {len(self._store)} ids, {len(self._completions)} completing>"

    async def load(self) -> None:
        """Read the journal, and go on completing what a crash interrupted.

        Groups must have been loaded: the markers of their offsets reach them from here on.
        """
        await self._store.replay()
        for transaction in list(self._store):
            if transaction.unfinished is not None:
                self._begin_completion(transaction)

    async def close(self) -> None:
        """Stop. What is not complete is completed after the next start."""
        tasks = list(self._completions.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- what producers ask -----------------------------------------------------------------------

    async def init_producer_id(
        self,
        transactional_id: str | None,
        timeout_ms: int,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
    ) -> ProducerIdentity:
        """An identity for a producer; without a transactional id, one that is merely idempotent."""
        if transactional_id is None:
            return ProducerIdentity(await self._producer_ids.allocate(), 0)
        _check_id(transactional_id)
        if not 0 < timeout_ms <= self.limits.max_timeout_ms:
            raise InvalidTransactionTimeout(
                f"a transaction may take 1 to {self.limits.max_timeout_ms} ms "
                f"(transaction.max.timeout.ms), not {timeout_ms}"
            )
        command = InitProducer(timeout_ms, producer_id, producer_epoch)
        verdict = await self._ask_patiently(transactional_id, command)
        return cast(ProducerIdentity, verdict.reply)

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        *,
        client_version: int = CLASSIC,
    ) -> None:
        """Make partitions part of the transaction; the first ones begin it."""
        _check_id(transactional_id)
        command = AddPartitions(producer_id, producer_epoch, tuple(partitions), client_version)
        await self._ask_patiently(transactional_id, command)

    async def add_offsets(
        self, transactional_id: str, producer_id: int, producer_epoch: int, group_id: str
    ) -> None:
        """Make the offsets of a group part of the transaction."""
        place = self._offsets_partition(group_id)
        await self.add_partitions(transactional_id, producer_id, producer_epoch, [place])

    async def verify_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
    ) -> Verification:
        """Which of the partitions are part of the ongoing transaction."""
        _check_id(transactional_id)
        command = VerifyPartitions(producer_id, producer_epoch, tuple(partitions))
        verdict = await self._ask_patiently(transactional_id, command)
        return cast(Verification, verdict.reply)

    async def end(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool,
        client_version: int = CLASSIC,
    ) -> ProducerIdentity:
        """Commit or abort; returns who the producer is from now on."""
        _check_id(transactional_id)
        command = EndTransaction(producer_id, producer_epoch, commit, client_version)
        verdict, completion = await self._ask(transactional_id, command)
        if isinstance(verdict.reply, BrokerError):
            # A repeat of the request that decided it. It waits for that very transaction and is
            # never decided again: in the classic protocol it would look like the end of the next.
            if completion is None or not await self._finished(completion):
                raise verdict.reply
            return completion.result()
        if verdict.effects and completion is not None:
            await self._finished(completion)
        return cast(ProducerIdentity, verdict.reply)

    # --- what partitions ask before they take a transactional batch (KIP-890) ---------------------

    async def admit(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        add: bool,
        abortable: bool = False,
    ) -> dict[TopicPartition, BrokerError | None]:
        """May a batch of this producer's transaction be written to these partitions?

        With `add` (transactions v2) they become part of the transaction. `abortable` tells that
        the client knows `TransactionAbortable`.
        """
        who = (transactional_id, producer_id, producer_epoch)
        try:
            if add:
                await self.add_partitions(*who, partitions, client_version=EPOCH_PER_TRANSACTION)
                return dict.fromkeys(partitions)
            if not self.limits.verify_partitions:
                return dict.fromkeys(partitions)
            found = await self.verify_partitions(*who, partitions)
        except BrokerError as refusal:
            found = dict.fromkeys(partitions, refusal)
        return {place: _for_partition(found[place], add, abortable) for place in partitions}

    async def admit_offsets(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        group_id: str,
        *,
        add: bool,
        abortable: bool = False,
    ) -> None:
        """The same for a commit of offsets, which goes to a partition of `__consumer_offsets`."""
        await self._offsets.ensure()
        place = self._offsets_partition(group_id)
        replica = await self._partitions.replica(*place)
        guard = replica.producers.begin_verification(
            producer_id, producer_epoch, NO_SEQUENCE, self._clock.now_ms()
        )
        if guard == NO_GUARD:
            return
        who = (transactional_id, producer_id, producer_epoch)
        refusal = (await self.admit(*who, [place], add=add, abortable=abortable))[place]
        if refusal is not None:
            raise refusal

    def _offsets_partition(self, group_id: str) -> TopicPartition:
        return TopicPartition(OFFSETS_TOPIC, self._offsets.partition_for(group_id))

    # --- what people ask --------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> TransactionChanged:
        _check_id(transactional_id)
        return self._store.describe(transactional_id)

    def list(self) -> list[tuple[str, TransactionChanged]]:
        """Every transactional id with its state."""
        return self._store.listed()

    # --- time -------------------------------------------------------------------------------------

    async def abort_out_of_time(self) -> None:
        """Abort every transaction that has been open for longer than its producer wanted."""
        now_ms = self._clock.now_ms()
        for transaction in self._store.ongoing():
            if transaction.is_out_of_time(now_ms):
                log.info("aborting %r: out of time", transaction)
                await self._ask(transaction.transactional_id, AbortIfOutOfTime())

    async def forget_idle(self) -> None:
        """Forget every transactional id that has been idle for long."""
        now_ms = self._clock.now_ms()
        expiration_ms = self.limits.id_expiration_ms
        for transaction in list(self._store):
            if transaction.is_idle(now_ms, expiration_ms):
                await self._ask(transaction.transactional_id, ForgetIfIdle(expiration_ms))

    # --- deciding, keeping, carrying out ----------------------------------------------------------

    async def _ask(
        self, transactional_id: str, command: Command
    ) -> tuple[Verdict, asyncio.Task[ProducerIdentity] | None]:
        return await self._turns.take(transactional_id, self._carry_out(transactional_id, command))

    async def _ask_patiently(self, transactional_id: str, command: Command) -> Verdict:
        """Ask again when a transaction that is in the way has been completed."""
        deadline = self._clock.monotonic() + self.limits.patience_ms / 1000
        while True:
            verdict, completion = await self._ask(transactional_id, command)
            if not isinstance(verdict.reply, BrokerError):
                return verdict
            patience = deadline - self._clock.monotonic()
            if completion is None or not await self._finished(completion, patience):
                raise verdict.reply

    async def _carry_out(
        self, transactional_id: str, command: Command
    ) -> tuple[Verdict, asyncio.Task[ProducerIdentity] | None]:
        """One turn. Also returns the completion under way, which a busy verdict waits for."""
        transaction = self._store.find(transactional_id)
        if transaction is None:
            if not isinstance(command, InitProducer):
                raise InvalidProducerIdMapping(f"no transactional id {transactional_id!r}")
            transaction = Transaction(transactional_id)
        if transaction.needs_producer_id and isinstance(
            command, InitProducer | EndTransaction | AbortIfOutOfTime
        ):
            command = command._replace(fresh_producer_id=await self._producer_ids.allocate())
        try:
            verdict = transaction.decide(command, self._clock.now_ms())
        except ConcurrentTransactions as busy:
            return Verdict(reply=busy), self._completions.get(transactional_id)
        if verdict.records:
            # A completion that is lost in a crash is only done again: the markers are safe.
            wait = not isinstance(command, CompleteTransaction)
            try:
                await self._store.keep(transaction, verdict.records, wait=wait)
            except StorageError as failure:
                # Clients know what to do with a coordinator that is not there: ask again.
                raise CoordinatorNotAvailable(f"the transaction was not kept: {failure}") from None
        if verdict.effects:
            self._begin_completion(transaction)
        return verdict, self._completions.get(transactional_id)

    def _begin_completion(self, transaction: Transaction) -> None:
        name = transaction.transactional_id
        assert name not in self._completions, "a transaction is completed once at a time"
        task = asyncio.create_task(self._complete(transaction), name=f"complete {name}")
        self._completions[name] = task
        task.add_done_callback(lambda done: self._completed(name, done))

    async def _complete(self, transaction: Transaction) -> ProducerIdentity:
        markers = transaction.unfinished
        assert markers is not None
        await self._markers.write(markers)
        while True:
            try:
                verdict, _ = await self._ask(transaction.transactional_id, CompleteTransaction())
                return cast(ProducerIdentity, verdict.reply)
            except CoordinatorNotAvailable as failure:
                log.warning("%r is not complete yet: %s", transaction, failure)
            await asyncio.sleep(_PAUSE_SECONDS)

    def _completed(self, transactional_id: str, task: asyncio.Task[ProducerIdentity]) -> None:
        del self._completions[transactional_id]
        if not task.cancelled() and (failure := task.exception()) is not None:
            log.error("%s could not be completed", transactional_id, exc_info=failure)

    async def _finished(
        self, completion: asyncio.Task[ProducerIdentity], patience: float | None = None
    ) -> bool:
        """Wait for a completion, but not for ever; whether it was successful."""
        if patience is None:
            patience = self.limits.patience_ms / 1000
        await asyncio.wait({completion}, timeout=max(patience, 0))
        return completion.done() and not completion.cancelled() and not completion.exception()


def _check_id(transactional_id: str) -> None:
    if not transactional_id:
        raise InvalidRequest("a transactional id cannot be empty")


def _for_partition(refusal: BrokerError | None, add: bool, abortable: bool) -> BrokerError | None:
    """The coordinator's refusal as the writer of a batch knows it."""
    match refusal:
        case ProducerFenced():
            return InvalidProducerEpoch(str(refusal))
        case TransactionAbortable() if not abortable:
            return InvalidTxnState(str(refusal))
        case ConcurrentTransactions() | CoordinatorNotAvailable() if not add:
            return NotEnoughReplicas(str(refusal))  # what every client tries again
        case _:
            return refusal
