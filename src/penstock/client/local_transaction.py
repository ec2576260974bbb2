"""Transactions of the home in this process: the coordinator is asked directly.

Each transactional id is one producer, which begins one transaction after the other; the end of one
gives it a new epoch for the next (KIP-890). Whoever begins while another with the same id is open
takes over: the older one is fenced and can only find that out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.client.encode import Producer, encode_batches
from penstock.client.errors import (
    Fenced,
    InvalidArgument,
    PenstockError,
    TransactionAborted,
    in_our_words,
    of_broker_error,
)
from penstock.client.home import GroupProgress
from penstock.client.local_stream import LocalStream
from penstock.client.local_writer import LocalWriter
from penstock.client.message import Receipt
from penstock.client.outgoing import Outgoing
from penstock.errors import BrokerError
from penstock.model.ids import TopicPartition
from penstock.runtime.clock import Clock
from penstock.services.groups import Groups
from penstock.services.partitions import Partitions
from penstock.services.replica import NO_GUARD, Replica
from penstock.services.transactions import EPOCH_PER_TRANSACTION, Transactions


@dataclass(slots=True)
class Coordination:
    """The services that a transaction needs."""

    transactions: Transactions
    partitions: Partitions
    groups: Groups
    clock: Clock
    writer: LocalWriter


@dataclass(slots=True)
class _Identity:
    """Who a transactional id is just now, and whether a transaction of it is open."""

    producer_id: int
    epoch: int
    owner: LocalTransaction | None = field(default=None, repr=False)


class LocalTransactions:
    """The transactional ids of this home."""

    def __init__(self, services: Coordination) -> None:
        self._services = services
        self._identities: dict[str, _Identity] = {}

    async def begin(self, transactional_id: str, timeout: float) -> LocalTransaction:
        if not isinstance(transactional_id, str) or not transactional_id:
            raise InvalidArgument("a transaction needs an id, a text: who has it takes over")
        identity = self._identities.get(transactional_id)
        if identity is None or identity.owner is not None:
            with in_our_words():
                fresh = await self._services.transactions.init_producer_id(
                    transactional_id, round(timeout * 1000)
                )
            identity = _Identity(fresh.producer_id, fresh.producer_epoch)
            self._identities[transactional_id] = identity
        return LocalTransaction(transactional_id, identity, self._services)


class LocalTransaction:
    """One transaction that has begun."""

    def __init__(self, transactional_id: str, identity: _Identity, services: Coordination) -> None:
        self.transactional_id = transactional_id
        self._identity = identity
        self._services = services
        self._sequences: dict[TopicPartition, int] = {}
        self._has_begun = False  # in the coordinator's eyes: something is part of it
        self._turn = asyncio.Lock()
        self._broken: PenstockError | None = None
        identity.owner = self

    def __repr__(self) -> str:
        return f"<LocalTransaction {self.transactional_id} {self._identity}>"

    @property
    def _who(self) -> tuple[str, int, int]:
        return (self.transactional_id, self._identity.producer_id, self._identity.epoch)

    async def write(self, outgoings: Sequence[Outgoing]) -> None:
        async with self._turn:
            groups: dict[TopicPartition, list[Outgoing]] = {}
            for outgoing in outgoings:
                try:
                    with in_our_words():
                        topic = await self._services.writer.ensure(outgoing.topic)
                    partition = self._services.writer.choose(
                        topic, outgoing.partition, outgoing.key
                    )
                except PenstockError as failure:
                    outgoing.settle(None, failure)
                else:
                    place = TopicPartition(outgoing.topic, partition)
                    groups.setdefault(place, []).append(outgoing)
            await asyncio.gather(*[self._write(*item) for item in groups.items()])

    async def _write(self, place: TopicPartition, group: Sequence[Outgoing]) -> None:
        try:
            if self._broken is not None:
                raise self._broken
            replica = await self._services.partitions.replica(*place)
            offsets = await self._append(replica, place, group)
        except (BrokerError, PenstockError) as failure:
            refusal = of_broker_error(failure) if isinstance(failure, BrokerError) else failure
            if isinstance(refusal, Fenced | TransactionAborted):
                self._broken = refusal
            for outgoing in group:
                outgoing.settle(None, refusal)
            return
        now_ms = self._services.clock.now_ms()
        for outgoing, offset in zip(group, offsets, strict=True):
            at_ms = outgoing.timestamp_ms if outgoing.timestamp_ms >= 0 else now_ms
            outgoing.settle(Receipt(*place, offset, at_ms, outgoing.message_id), None)

    async def _append(
        self, replica: Replica, place: TopicPartition, group: Sequence[Outgoing]
    ) -> list[int]:
        now_ms = self._services.clock.now_ms()
        _, producer_id, epoch = self._who
        sequence = self._sequences.get(place, 0)
        offsets: list[int] = []
        end_offset = 0
        for data, count in encode_batches(
            [(o.key, o.value, o.headers, o.timestamp_ms, 0) for o in group],
            now_ms,
            max_bytes=replica.settings.max_message_bytes,
            producer=Producer(producer_id, epoch, True),
            sequence=sequence,
        ):
            guard = replica.producers.begin_verification(
                producer_id, epoch, sequence, now_ms, starts_at_zero=True
            )
            if guard != NO_GUARD:
                await self._admit(place)
            appended = replica.append(memoryview(data), now_ms, guard=guard)
            sequence = self._sequences[place] = sequence + count
            offsets += range(appended.base_offset, appended.base_offset + count)
            end_offset = appended.end_offset
        await replica.safe(end_offset)
        return offsets

    async def _admit(self, place: TopicPartition) -> None:
        self._has_begun = True
        verdicts = await self._services.transactions.admit(
            *self._who, [place], add=True, abortable=True
        )
        refusal = verdicts[place]
        if refusal is not None:
            raise refusal

    async def commit_offsets(self, progress: GroupProgress) -> None:
        stream = progress.stream
        if not isinstance(stream, LocalStream):
            raise InvalidArgument("offsets are committed by the home they were read from")
        member = stream.require_member()
        await self._commit_offsets(member.group, progress.offsets, stream)

    async def _commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int], stream: LocalStream
    ) -> None:
        async with self._turn:
            self._has_begun = True
            with in_our_words():
                await self._services.transactions.admit_offsets(
                    *self._who, group, add=True, abortable=True
                )
                answers = await self._services.groups.offsets.commit_in_transaction(
                    stream.require_member().as_commit(offsets),
                    producer_id=self._identity.producer_id,
                    producer_epoch=self._identity.epoch,
                )
                for _, refusal in answers:
                    if refusal is not None:
                        raise refusal

    async def end(self, *, commit: bool) -> None:
        async with self._turn:
            identity = self._identity
            if identity.owner is not self:
                raise TransactionAborted("the transaction has ended already")
            if commit and self._broken is not None:
                raise self._broken
            if self._has_begun:
                # Should this fail, the id is taken anew next time: `begin` sees an owner.
                with in_our_words():
                    after = await self._services.transactions.end(
                        *self._who, commit=commit, client_version=EPOCH_PER_TRANSACTION
                    )
                identity.producer_id, identity.epoch = after.producer_id, after.producer_epoch
            identity.owner = None
