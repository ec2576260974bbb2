"""A transaction, for code with an event loop."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

from penstock.client.aio_subscription import AsyncSubscription
from penstock.client.errors import Conflict, PenstockError, TransactionAborted
from penstock.client.home import Home, TransactionCore
from penstock.client.message import Message, Receipt
from penstock.client.outgoing import Outgoing, wishes_of
from penstock.client.sender import Sender
from penstock.client.serializer import Serializer
from penstock.client.wishes import PublishWishes
from penstock.model.ids import TopicPartition


class AsyncTransaction:
    """Messages and offsets that count together or not at all.

    Leaving the `async with` block commits, an exception aborts.
    """

    def __init__(self, home: Home, sender: Sender, transactional_id: str, timeout: float) -> None:
        self.transactional_id = transactional_id
        self.receipts: list[Receipt] = []
        self._home = home
        self._sender = sender
        self._timeout = timeout
        self._core: TransactionCore | None = None
        self._failure: PenstockError | None = None

    def __repr__(self) -> str:
        return f"<AsyncTransaction {self.transactional_id}{'' if self._core else ' not open'}>"

    async def begin(self) -> None:
        """Begin it; `async with` does so too. Whoever has one open with the same id is fenced."""
        if self._core is not None:
            raise Conflict("the transaction is open already: commit or abort it first")
        self._core = await self._home.arun(self._home.begin(self.transactional_id, self._timeout))

    async def commit(self) -> None:
        """Make all of it count; returns when that is safe."""
        core = self._open()
        try:
            if self._failure is not None:
                raise self._failure
            await self._home.arun(core.end(commit=True))
        except BaseException:
            await self.abort()
            raise
        self._core = None

    async def abort(self) -> None:
        """Make none of it count."""
        core, self._core = self._core, None
        if core is not None:
            with contextlib.suppress(PenstockError):  # fenced already, or it times out there
                await self._home.arun(core.end(commit=False))

    def _open(self) -> TransactionCore:
        if self._core is None:
            raise TransactionAborted("the transaction is not open: it has ended, or not begun")
        return self._core

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._core is None:
            return
        if failure is None:
            await self.commit()
        else:
            await self.abort()

    # --- what is part of it -----------------------------------------------------------------------

    async def publish(
        self,
        topic: str,
        payload: Any,
        *,
        serializer: Serializer | str | None = None,
        **wishes: Unpack[PublishWishes],
    ) -> Receipt:
        """As `AsyncClient.publish`, but it counts only when the transaction does."""
        [receipt] = await self.publish_many(topic, [payload], serializer=serializer, **wishes)
        return receipt

    async def publish_many(
        self,
        topic: str,
        messages: Iterable[Any],
        *,
        serializer: Serializer | str | None = None,
        **wishes: Unpack[PublishWishes],
    ) -> Sequence[Receipt]:
        """As `AsyncClient.publish_many`, but it counts only when the transaction does."""
        core = self._open()
        outgoings = [
            self._sender.prepare(topic, message, wishes_of(wishes), serializer)
            for message in messages
        ]
        found: dict[int, Receipt | PenstockError] = {}
        watch = self._sender.watch
        for index, outgoing in enumerate(outgoings):
            _note(outgoing, index, found)
            if watch is not None:
                outgoing.settle = watch.begin(topic, outgoing, outgoing.settle)
        await self._home.arun(core.write(outgoings))
        receipts: list[Receipt] = []
        for index in range(len(outgoings)):
            outcome = found[index]
            if isinstance(outcome, PenstockError):
                self._failure = outcome
                raise outcome
            receipts.append(outcome)
        self.receipts += receipts
        return receipts

    async def commit_offsets(
        self,
        subscription: AsyncSubscription,
        what: Message | Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """Make the progress of a subscription part of it: consumed and produced, exactly once."""
        core = self._open()
        pursuit = await subscription._pursuit()
        progress = pursuit.group_progress(what)
        await self._home.arun(core.commit_offsets(progress))
        pursuit.was_committed(progress.offsets)


def _note(outgoing: Outgoing, index: int, found: dict[int, Receipt | PenstockError]) -> None:
    def settle(receipt: Receipt | None, failure: PenstockError | None) -> None:
        found[index] = receipt if receipt is not None else failure or PenstockError("lost")

    outgoing.settle = settle
