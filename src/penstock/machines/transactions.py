"""One transactional id: who may write under it, and how its transactions begin and end.

    Empty ──AddPartitions──► Ongoing ──EndTxn──► PrepareCommit ──markers──► CompleteCommit ─┐
      ▲                      ▲    └────────────► PrepareAbort ───markers──► CompleteAbort ──┤
      │                      └──────────────AddPartitions───────────────────────────────────┤
      └──InitProducerId─────────────────────────────────────────────────────────────────────┘

A decision is durable once the Prepare record is: from there the transaction can only end that way,
whatever crashes. `unfinished` tells what a restart has to do again; markers may be written twice.

An epoch belongs to one producer instance. InitProducerId gives the next one; a transaction that
somebody else ends (a successor, the clock) ends under the next epoch too, so its producer is fenced
in every partition by the marker itself. With transactions v2 (KIP-890) every end of a transaction
moves the epoch, and a request that arrives late can never touch a later transaction. When an
epoch cannot be moved any more (32767 is kept for fencing) the producer gets a new id.

The states Dead and PrepareEpochFence of Kafka pass inside one decision here and are never seen.
The machine writes no markers, allocates no ids and knows no time: they come with the commands.
"""

from __future__ import annotations

from penstock.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTxnState,
    ProducerFenced,
    TransactionAbortable,
)
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
    TransactionRecord,
    Verdict,
    VerifyPartitions,
    WriteMarkers,
)
from penstock.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from penstock.model.transaction_topic import (
    TransactionChanged,
    TransactionForgotten,
    TransactionStatus,
)

# The last epoch a producer may have; one more exists, so that it can always be fenced.
LAST_EPOCH = 32766

_EMPTY = TransactionStatus.EMPTY
_ONGOING = TransactionStatus.ONGOING
_PREPARED = (TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT)
_COMPLETE = (TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT)


class Transaction:
    """The state of one transactional id. Only `apply` changes it."""

    __slots__ = ("state", "transactional_id")

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.state: TransactionChanged | None = None  # None: nobody has initialised it

    def __repr__(self) -> str:
        if self.state is None:
            return f"<Transaction {self.transactional_id}>"
        return (
            f"<Transaction {self.transactional_id} {self.state.status.label} "
            f"producer {self.state.producer_id} epoch {self.state.producer_epoch}>"
        )

    def apply(self, record: TransactionRecord) -> None:
        self.state = None if isinstance(record, TransactionForgotten) else record

    # --- questions --------------------------------------------------------------------------------

    @property
    def needs_producer_id(self) -> bool:
        """Whether a command that gives the producer its next epoch must bring a fresh id."""
        return self.state is None or self.state.producer_epoch >= LAST_EPOCH

    @property
    def unfinished(self) -> WriteMarkers | None:
        """The markers of a transaction whose end is decided but not complete."""
        state = self.state
        if state is None or state.status not in _PREPARED:
            return None
        return _markers(state)

    def is_out_of_time(self, now_ms: int) -> bool:
        state = self.state
        return (
            state is not None
            and state.status is _ONGOING
            and state.started_at_ms + state.timeout_ms < now_ms
        )

    def is_idle(self, now_ms: int, expiration_ms: int) -> bool:
        state = self.state
        return (
            state is not None
            and (state.status is _EMPTY or state.status in _COMPLETE)
            and state.updated_at_ms <= now_ms - expiration_ms
        )

    # --- decisions --------------------------------------------------------------------------------

    def decide(self, command: Command, now_ms: int) -> Verdict:
        """What follows from the command; raises the refusal. Changes nothing."""
        match command:
            case InitProducer():
                return self._init(command, now_ms)
            case AddPartitions():
                return self._add(command, now_ms)
            case VerifyPartitions():
                return self._verify(command)
            case EndTransaction(client_version=version) if version >= EPOCH_PER_TRANSACTION:
                return self._end_with_epoch(command, now_ms)
            case EndTransaction():
                return self._end_classic(command, now_ms)
            case AbortIfOutOfTime():
                if self.state is None or not self.is_out_of_time(now_ms):
                    return Verdict()
                fenced = _with_next_epoch(self.state, command.fresh_producer_id)
                return _prepare(fenced, False, now_ms)
            case CompleteTransaction():
                return self._complete(now_ms)
            case ForgetIfIdle():
                idle = self.is_idle(now_ms, command.expiration_ms)
                return Verdict((TransactionForgotten(),) if idle else ())

    def _init(self, command: InitProducer, now_ms: int) -> Verdict:
        state = self.state
        if state is None:
            assert command.fresh_producer_id >= 0, "a new transactional id needs a producer id"
            created = TransactionChanged(
                command.fresh_producer_id,
                0,
                command.timeout_ms,
                _EMPTY,
                updated_at_ms=now_ms,
                previous_producer_id=command.fresh_producer_id,
            )
            return Verdict((created,), reply=_identity(created))
        known = command.producer_id != NO_PRODUCER_ID
        if known:
            self._check_may_resume(state, command)
        if state.status in _PREPARED:
            raise self._completing()
        if state.status is _ONGOING:
            # The predecessor's transaction is aborted under an epoch that nobody is given; the
            # producer asks again and gets the one after it.
            fenced = _with_next_epoch(state, command.fresh_producer_id)
            return _prepare(fenced, False, now_ms)._replace(reply=self._completing())
        if known and command.producer_epoch == state.last_epoch:
            # The answer to the first call was lost. A newer instance would have cleared last_epoch.
            (next_id, next_epoch), last_epoch = _identity(state), state.last_epoch
        else:
            next_id, next_epoch = _next_identity(state, command.fresh_producer_id)
            last_epoch = state.producer_epoch if known else NO_PRODUCER_EPOCH
        begun = TransactionChanged(
            next_id,
            next_epoch,
            command.timeout_ms,
            _EMPTY,
            updated_at_ms=now_ms,
            previous_producer_id=state.producer_id,
            client_version=state.client_version,
            last_epoch=last_epoch,
        )
        return Verdict((begun,), reply=_identity(begun))

    def _check_may_resume(self, state: TransactionChanged, command: InitProducer) -> None:
        """KIP-360: the producer is the current one, or one whose answer was lost (`last_epoch`)."""
        epoch = command.producer_epoch
        if command.producer_id == state.producer_id:
            # Stricter than Kafka, where any old epoch of the id aborts an ongoing transaction.
            repeated = epoch == state.last_epoch and state.status is not _ONGOING
            welcome = epoch == state.producer_epoch or repeated
        else:  # its epochs were used up, and it has not heard of its new id
            rotated = command.producer_id == state.previous_producer_id
            welcome = rotated and epoch == state.last_epoch >= LAST_EPOCH
        if not welcome:
            raise self._fenced(command.producer_id, epoch)

    def _add(self, command: AddPartitions, now_ms: int) -> Verdict:
        state = self._check_producer(command.producer_id, command.producer_epoch)
        if state.status in _PREPARED:
            raise self._completing()
        ongoing = state.status is _ONGOING
        known = dict.fromkeys(state.partitions) if ongoing else {}
        more = [partition for partition in command.partitions if partition not in known]
        if ongoing and not more:
            return Verdict()
        grown = state._replace(
            status=_ONGOING,
            partitions=tuple(dict.fromkeys([*known, *more])),
            updated_at_ms=now_ms,
            started_at_ms=state.started_at_ms if ongoing else now_ms,
            previous_producer_id=state.producer_id,
            client_version=command.client_version,
        )
        return Verdict((grown,))

    def _verify(self, command: VerifyPartitions) -> Verdict:
        state = self._check_producer(command.producer_id, command.producer_epoch)
        if state.status in _PREPARED:
            raise self._completing()
        held = state.partitions if state.status is _ONGOING else ()
        return Verdict(
            reply={
                partition: None
                if partition in held
                else TransactionAbortable(f"{partition} is not part of the ongoing transaction")
                for partition in command.partitions
            }
        )

    def _end_classic(self, command: EndTransaction, now_ms: int) -> Verdict:
        state = self._check_producer(command.producer_id, command.producer_epoch)
        if state.status is _ONGOING:
            classic = state._replace(client_version=CLASSIC)
            return _prepare(classic, command.commit, now_ms)
        if state.status not in (_prepared(command.commit), _completed(command.commit)):
            raise self._wrong_state(command)
        if state.status in _PREPARED:
            raise self._completing()
        return Verdict(reply=_identity(state))

    def _end_with_epoch(self, command: EndTransaction, now_ms: int) -> Verdict:
        """Transactions v2: the same epoch means the next transaction, the one before a repeat."""
        state = self.state
        if state is None:
            raise self._unknown_producer(command.producer_id)
        repeated = _is_repeated_end(state, command)
        same_id = command.producer_id == state.producer_id
        if not same_id and not (repeated and state.status in _COMPLETE):
            raise self._unknown_producer(command.producer_id)
        current = command.producer_epoch == state.producer_epoch and state.status not in _PREPARED
        if not (current or (repeated and state.status in (*_PREPARED, *_COMPLETE))):
            raise self._fenced(command.producer_id, command.producer_epoch)
        if state.status is _ONGOING:
            moved = _with_next_epoch(state, command.fresh_producer_id)
            return _prepare(moved, command.commit, now_ms)
        if repeated:
            if state.status not in (_prepared(command.commit), _completed(command.commit)):
                raise self._wrong_state(command)
            if state.status in _PREPARED:
                raise self._completing()
            return Verdict(reply=_identity(state))
        if command.commit:
            raise self._wrong_state(command)
        # An abort of nothing: the producer may have sent records that never arrived, and the next
        # epoch makes sure that they never will.
        moved = _with_next_epoch(state, command.fresh_producer_id)
        return _prepare(moved._replace(started_at_ms=now_ms), False, now_ms)

    def _complete(self, now_ms: int) -> Verdict:
        state = self.state
        if state is None or state.status not in _PREPARED:
            return Verdict()
        completed = _completion(state, now_ms)
        return Verdict((completed,), reply=_identity(completed))

    # --- refusals ---------------------------------------------------------------------------------

    def _check_producer(self, producer_id: int, epoch: int) -> TransactionChanged:
        if self.state is None or producer_id != self.state.producer_id:
            raise self._unknown_producer(producer_id)
        if epoch != self.state.producer_epoch:
            raise self._fenced(producer_id, epoch)
        return self.state

    def _unknown_producer(self, producer_id: int) -> InvalidProducerIdMapping:
        return InvalidProducerIdMapping(
            f"producer {producer_id} does not belong to transactional id {self.transactional_id!r}"
        )

    def _fenced(self, producer_id: int, epoch: int) -> ProducerFenced:
        return ProducerFenced(
            f"epoch {epoch} of producer {producer_id} is not the current one of transactional id "
            f"{self.transactional_id!r}: a newer instance has taken over"
        )

    def _completing(self) -> ConcurrentTransactions:
        return ConcurrentTransactions(
            f"the last transaction of {self.transactional_id!r} is still being completed"
        )

    def _wrong_state(self, command: EndTransaction) -> InvalidTxnState:
        assert self.state is not None
        verb = "commit" if command.commit else "abort"
        return InvalidTxnState(
            f"cannot {verb} a transaction of {self.transactional_id!r}: "
            f"it is {self.state.status.label}"
        )


def _identity(state: TransactionChanged) -> ProducerIdentity:
    return ProducerIdentity(state.producer_id, state.producer_epoch)


def _markers(state: TransactionChanged) -> WriteMarkers:
    commit = state.status is TransactionStatus.PREPARE_COMMIT
    return WriteMarkers(state.producer_id, state.producer_epoch, commit, state.partitions)


def _prepared(commit: bool) -> TransactionStatus:
    return _PREPARED[0] if commit else _PREPARED[1]


def _completed(commit: bool) -> TransactionStatus:
    return _COMPLETE[0] if commit else _COMPLETE[1]


def _next_identity(state: TransactionChanged, fresh_producer_id: int) -> tuple[int, int]:
    if state.producer_epoch < LAST_EPOCH:
        return state.producer_id, state.producer_epoch + 1
    assert fresh_producer_id >= 0, "the epochs are used up, and no fresh producer id was brought"
    return fresh_producer_id, 0


def _with_next_epoch(state: TransactionChanged, fresh_producer_id: int) -> TransactionChanged:
    """The transaction ends under the next epoch, which fences whoever writes under this one."""
    next_id, _ = _next_identity(state, fresh_producer_id)
    return state._replace(
        producer_epoch=state.producer_epoch + 1,
        last_epoch=state.producer_epoch,
        next_producer_id=NO_PRODUCER_ID if next_id == state.producer_id else next_id,
        client_version=EPOCH_PER_TRANSACTION,
    )


def _prepare(state: TransactionChanged, commit: bool, now_ms: int) -> Verdict:
    """Decide how the transaction ends; who the producer will be then is already known."""
    prepared = state._replace(
        status=_prepared(commit), updated_at_ms=now_ms, previous_producer_id=state.producer_id
    )
    identity = _identity(_completion(prepared, now_ms))
    return Verdict((prepared,), (_markers(prepared),), identity)


def _completion(state: TransactionChanged, now_ms: int) -> TransactionChanged:
    completed = state._replace(
        status=_completed(state.status is TransactionStatus.PREPARE_COMMIT),
        partitions=(),
        updated_at_ms=now_ms,
        previous_producer_id=state.producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )
    if state.next_producer_id != NO_PRODUCER_ID:
        completed = completed._replace(producer_id=state.next_producer_id, producer_epoch=0)
    return completed


def _is_repeated_end(state: TransactionChanged, command: EndTransaction) -> bool:
    """Whether the epoch is the one the last transaction had before its end moved it on."""
    if state.client_version < EPOCH_PER_TRANSACTION:
        return False
    if command.producer_id == state.producer_id:
        return command.producer_epoch + 1 == state.producer_epoch
    return (  # the end of that transaction used up the epochs
        command.producer_id == state.previous_producer_id
        and command.producer_epoch == LAST_EPOCH
        and state.producer_epoch == 0
    )
