"""What one partition remembers of the producers that write to it: idempotence and transactions.

A producer numbers its records; the partition takes each number once and in order. A batch that is
sent again is answered with the offset it got the first time. From the open transactions follow the
first unstable offset, and, when a marker ends one, the entry of the transaction index.

The partition calls `check` before it appends a batch and `apply` right after, with no wait in
between; `check_marker` and `apply_marker` are the same pair for the control batch that ends a
transaction. `check` changes nothing. Everything but the verifications under way comes back from a
snapshot plus the batches after it: `restore`, then `apply` and `apply_marker` for each.

    batch                                              answer
    older epoch than the last one seen                 InvalidProducerEpoch
    next sequence of the epoch                         accepted
    one of the five remembered batches                 DuplicateSequence with its offset
    any other sequence of the epoch                    OutOfOrderSequence
    newer epoch                                        accepted when it starts at sequence 0
    unknown producer id                                accepted with any sequence (KIP-360)
    transactional, no transaction open here            only when verified (KIP-890)
    not transactional, transaction open here           InvalidTxnState

It does not talk to the transaction coordinator, and knows what is replicated only through
`advance_high_watermark`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from penstock.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from penstock.machines.producer import NO_OFFSET, ProducerState
from penstock.model.batch import TRANSACTIONAL_FLAG, BatchHeader
from penstock.model.producer import AbortedTransaction, ProducerSnapshotEntry

NO_GUARD = 0
_MOST_VERIFICATIONS = 10_000  # under way in one partition; the oldest go first


class ProducerDescription(NamedTuple):
    """A producer as DescribeProducers shows it; -1 stands for none."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_offset: int


class _Verification:
    """Transactional batches that wait for the coordinator to vouch for them (KIP-890)."""

    __slots__ = ("guard", "lowest_sequence", "started_ms", "starts_at_zero")

    def __init__(self, guard: int, starts_at_zero: bool) -> None:
        self.guard = guard
        self.starts_at_zero = starts_at_zero
        self.lowest_sequence = 1 << 31
        self.started_ms = 0


class ProducerStates:
    """Every producer of one partition."""

    __slots__ = (
        "_guards",
        "_open",
        "_producers",
        "_unreplicated",
        "_verifications",
        "first_unstable_offset",
    )

    def __init__(self) -> None:
        self._producers: dict[int, ProducerState] = {}
        # Both by first offset. Transactions open in the order of the log, so the first key of
        # `_open` is always its smallest.
        self._open: dict[int, int] = {}  # -> producer id
        self._unreplicated: dict[int, int] = {}  # -> offset of the marker
        self._verifications: dict[tuple[int, int], _Verification] = {}  # by producer id and epoch
        self._guards = NO_GUARD
        self.first_unstable_offset: int | None = None  # None: every transaction is decided

    def __len__(self) -> int:
        return len(self._producers)

    def __repr__(self) -> str:
        return f"ProducerStates({len(self._producers)} producers, {len(self._open)} open)"

    def get(self, producer_id: int) -> ProducerState | None:
        """What is remembered of a producer, to look at."""
        return self._producers.get(producer_id)

    # --- data batches -----------------------------------------------------------------------------

    def check(self, header: BatchHeader, *, client: bool = True, guard: int = NO_GUARD) -> None:
        """Whether the batch may be appended now; raises why not.

        Batches without a producer id need no check. `guard` is what `begin_verification` gave.
        `client=False` is for the coordinators of this broker: their batches carry no sequence, and
        any verification under way vouches for them.
        """
        producer_id = header.producer_id
        state = self._producers.get(producer_id)
        transactional = header.attributes & TRANSACTIONAL_FLAG
        if state is None:
            if transactional:
                self._check_verified(None, header, client, guard)
            return
        if (  # the common case: next sequence, no transaction
            header.base_sequence == state.next_sequence
            and header.producer_epoch == state.epoch
            and not transactional
            and state.transaction_offset == NO_OFFSET
        ):
            return
        if header.producer_epoch < state.epoch:
            raise _old_epoch(producer_id, header.producer_epoch, state.epoch)
        if client:
            state.check_duplicate(header)
        if transactional:
            self._check_verified(state, header, client, guard)
        if client:
            state.check_sequence(header)
        if not transactional and state.transaction_offset != NO_OFFSET:
            raise InvalidTxnState(
                f"producer {producer_id} has a transaction open in this partition; everything it "
                "writes must be part of it until it ends"
            )

    def apply(self, header: BatchHeader, now_ms: int) -> None:
        """The data batch is in the log at `header.base_offset`. Also for replay."""
        producer_id = header.producer_id
        state = self._producers.get(producer_id)
        if state is None:
            state = self._producers[producer_id] = ProducerState(header.producer_epoch, now_ms)
        state.append(header, now_ms)
        if header.attributes & TRANSACTIONAL_FLAG and state.transaction_offset == NO_OFFSET:
            state.transaction_offset = header.base_offset
            self._open[header.base_offset] = producer_id
            self._verifications.pop((producer_id, header.producer_epoch), None)
            self._find_first_unstable()

    def incomplete(self, since_offset: int) -> list[int]:
        """Restored producers that wrote at or after `since_offset`, and more than is remembered.

        A snapshot holds one batch of each producer, and a producer may send its last five again.
        """
        return [
            producer_id
            for producer_id, state in self._producers.items()
            if state.is_incomplete and state.batches[-1].last_offset >= since_offset
        ]

    def recall(self, producer_id: int, headers: Iterable[BatchHeader], now_ms: int) -> None:
        """Remember again the batches of a restored producer among `headers`, from the log."""
        state = self._producers.get(producer_id)
        if state is not None:
            state.recall((one for one in headers if one.producer_id == producer_id), now_ms)

    # --- verification (KIP-890) -------------------------------------------------------------------

    def begin_verification(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        now_ms: int,
        *,
        starts_at_zero: bool = False,
    ) -> int:
        """Call before the coordinator is asked; the guard goes with the batch to `check`.

        `NO_GUARD` means that the transaction is already open here and nobody need be asked. A
        marker that arrives between the coordinator's yes and the append takes the guard's worth
        away, so a batch can never slip in behind the end of its transaction. `starts_at_zero` is
        true for clients of transactions v2, whose every transaction has an epoch of its own.
        """
        state = self._producers.get(producer_id)
        if state is not None:
            if epoch < state.epoch:
                raise _old_epoch(producer_id, epoch, state.epoch)
            if state.transaction_offset != NO_OFFSET and epoch == state.epoch:
                return NO_GUARD
        verification = self._verifications.get((producer_id, epoch))
        if verification is None:
            self._guards += 1
            verification = _Verification(self._guards, starts_at_zero)
            self._verifications[producer_id, epoch] = verification
            if len(self._verifications) > _MOST_VERIFICATIONS:
                del self._verifications[next(iter(self._verifications))]
        if 0 <= base_sequence < verification.lowest_sequence:
            verification.lowest_sequence = base_sequence
        verification.started_ms = now_ms
        return verification.guard

    def _check_verified(
        self, state: ProducerState | None, header: BatchHeader, client: bool, guard: int
    ) -> None:
        epoch = header.producer_epoch
        if state is not None and state.transaction_offset != NO_OFFSET and state.epoch == epoch:
            return
        verification = self._verifications.get((header.producer_id, epoch))
        if verification is None or (client and guard != verification.guard):
            raise InvalidTxnState(
                f"the batch of producer {header.producer_id} is in no ongoing transaction"
            )
        if not client:
            return
        if header.base_sequence > verification.lowest_sequence:
            # Several batches wait for the same verification. The first one goes first, or the
            # later batch of an unknown producer would be taken as its first.
            raise OutOfOrderSequence(
                f"sequence {verification.lowest_sequence} of producer {header.producer_id} "
                f"comes before {header.base_sequence}"
            )
        if verification.starts_at_zero and header.base_sequence and not (state and state.batches):
            raise OutOfOrderSequence(
                f"producer {header.producer_id} must start its epoch at sequence 0, "
                f"not {header.base_sequence}"
            )

    # --- markers ----------------------------------------------------------------------------------

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int) -> None:
        """Whether a marker of this producer may be appended; an old one must not end anything."""
        state = self._producers.get(producer_id)
        if state is None:
            return
        if epoch < state.epoch:
            raise _old_epoch(producer_id, epoch, state.epoch)
        if coordinator_epoch < state.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"a marker of coordinator epoch {coordinator_epoch}, "
                f"after one of {state.coordinator_epoch}"
            )

    def apply_marker(
        self, header: BatchHeader, commit: bool, coordinator_epoch: int, now_ms: int
    ) -> AbortedTransaction | None:
        """The marker is in the log. Returns what the transaction index must hold: aborts only.

        A marker for a producer without an open transaction changes only its epochs.
        """
        producer_id = header.producer_id
        # Only its own epoch: what waits under an older one is refused for its epoch from here on.
        self._verifications.pop((producer_id, header.producer_epoch), None)
        state = self._producers.get(producer_id)
        if state is None:
            state = self._producers[producer_id] = ProducerState(header.producer_epoch, now_ms)
        state.advance_epoch(header.producer_epoch)
        state.coordinator_epoch = coordinator_epoch
        state.last_seen_ms = now_ms
        first_offset = state.transaction_offset
        if first_offset == NO_OFFSET:
            return None
        state.transaction_offset = NO_OFFSET
        marker_offset = header.base_offset
        del self._open[first_offset]
        self._unreplicated[first_offset] = marker_offset
        last_stable = next(iter(self._open), marker_offset + 1)
        self._find_first_unstable()
        if commit:
            return None
        return AbortedTransaction(producer_id, first_offset, marker_offset, last_stable)

    def advance_high_watermark(self, high_watermark: int) -> None:
        """Transactions whose marker is below it are decided for good."""
        if not self._unreplicated:
            return
        for first, marker in list(self._unreplicated.items()):
            if marker < high_watermark:
                del self._unreplicated[first]
        self._find_first_unstable()

    def _find_first_unstable(self) -> None:
        first = next(iter(self._open), None)
        if self._unreplicated:
            # A marker that may still be lost has decided nothing yet.
            decided = min(self._unreplicated)
            first = decided if first is None else min(first, decided)
        self.first_unstable_offset = first

    # --- snapshots, expiry, description -----------------------------------------------------------

    def snapshot(self) -> list[ProducerSnapshotEntry]:
        """One entry per producer, for `<offset>.snapshot`."""
        return [state.to_snapshot(producer_id) for producer_id, state in self._producers.items()]

    def restore(self, entries: Iterable[ProducerSnapshotEntry]) -> None:
        """Start from a snapshot; whatever was remembered is dropped."""
        self._producers = {entry[0]: ProducerState.from_snapshot(entry) for entry in entries}
        self._open = dict(
            sorted(
                (state.transaction_offset, producer_id)
                for producer_id, state in self._producers.items()
                if state.transaction_offset != NO_OFFSET
            )
        )
        self._unreplicated.clear()
        self._verifications.clear()
        self._find_first_unstable()

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that have been silent that long; how many.

        Never one with an open transaction: its marker has yet to come.
        """
        silent = [
            producer_id
            for producer_id, state in self._producers.items()
            if state.transaction_offset == NO_OFFSET
            and now_ms - state.last_seen_ms >= expiration_ms
        ]
        for producer_id in silent:
            del self._producers[producer_id]
        for key, verification in list(self._verifications.items()):
            if now_ms - verification.started_ms >= expiration_ms:
                del self._verifications[key]
        return len(silent)

    def describe(self) -> list[ProducerDescription]:
        """Every producer of the partition, for DescribeProducers."""
        return [
            ProducerDescription(
                producer_id,
                state.epoch,
                state.last_sequence,
                state.last_seen_ms,
                state.coordinator_epoch,
                state.transaction_offset,
            )
            for producer_id, state in self._producers.items()
        ]


def _old_epoch(producer_id: int, epoch: int, newer: int) -> InvalidProducerEpoch:
    return InvalidProducerEpoch(
        f"epoch {epoch} of producer {producer_id} is older than {newer}: "
        "a newer instance has taken over"
    )
