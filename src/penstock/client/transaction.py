"""A transaction, for code without an event loop."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, Unpack

from penstock.client.arguments import several
from penstock.client.errors import Conflict, PenstockError, TransactionAborted
from penstock.client.home import Home, TransactionCore
from penstock.client.message import Message, Receipt
from penstock.client.outgoing import Outgoing, wishes_of
from penstock.client.sender import Sender
from penstock.client.serializer import Serializer
from penstock.client.subscription import Subscription
from penstock.client.wishes import PublishWishes
from penstock.model.ids import TopicPartition

_MOST_WAITING = 1_000


class Transaction:
    """Messages and offsets that count together or not at all.

    Leaving the `with` block commits, an exception aborts. Readers see nothing of it before.

    >>> import penstock
    >>> with penstock.open(None) as mq:
    ...     with mq.transaction("billing-1") as tx:
    ...         _ = tx.publish("invoices", "paid")
    ...         _ = tx.publish("mails", "thank you")
    ...     [message.text for message in mq.read("mails", tx.receipts[1].partition)]
    ['thank you']
    """

    def __init__(self, home: Home, sender: Sender, transactional_id: str, timeout: float) -> None:
        self.transactional_id = transactional_id
        self.receipts: list[Receipt] = []
        self._home = home
        self._sender = sender
        self._timeout = timeout
        self._core: TransactionCore | None = None
        self._waiting: list[Outgoing] = []
        self._failure: PenstockError | None = None

    def __repr__(self) -> str:
        return f"<Transaction {self.transactional_id}{'' if self._core else ' not open'}>"

    # --- beginning and ending ---------------------------------------------------------------------

    def begin(self) -> None:
        """Begin it; `with` does so too. Whoever has one open with the same id is fenced.

        >>> tx = mq.transaction("billing-1")
        >>> tx.begin()
        >>> tx.abort()
        """
        if self._core is not None:
            raise Conflict("the transaction is open already: commit or abort it first")
        self._core = self._home.run(self._home.begin(self.transactional_id, self._timeout))

    def commit(self) -> None:
        """Make all of it count; returns when that is safe.

        >>> tx = mq.transaction("billing-1")
        >>> tx.begin()
        >>> _ = tx.publish("invoices", "1")
        >>> tx.commit()
        >>> mq.admin.topic("invoices").message_count >= 1
        True
        """
        core = self._open()
        try:
            self._flush()
            if self._failure is not None:
                raise self._failure
            self._home.run(core.end(commit=True))
        except BaseException:
            self.abort()
            raise
        self._core = None

    def abort(self) -> None:
        """Make none of it count.

        >>> tx = mq.transaction("billing-1")
        >>> tx.begin()
        >>> _ = tx.publish("invoices", "1")
        >>> tx.abort()
        >>> list(mq.read("invoices"))
        []
        """
        core, self._core = self._core, None
        waiting, self._waiting = self._waiting, []
        for outgoing in waiting:
            outgoing.settle(None, TransactionAborted("the transaction was aborted"))
        if core is not None:
            # A transaction that cannot be aborted is fenced already, or times out on the server.
            with contextlib.suppress(PenstockError):
                self._home.run(core.end(commit=False))

    def _open(self) -> TransactionCore:
        if self._core is None:
            raise TransactionAborted("the transaction is not open: it has ended, or not begun")
        return self._core

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._core is None:
            return
        if failure is None:
            self.commit()
        else:
            self.abort()

    # --- what is part of it -----------------------------------------------------------------------

    def publish(
        self,
        topic: str,
        payload: Any,
        *,
        serializer: Serializer | str | None = None,
        **wishes: Unpack[PublishWishes],
    ) -> Receipt:
        """As `Client.publish`, but it counts only when the transaction does.

        >>> with mq.transaction("billing-1") as tx:
        ...     tx.publish("invoices", "1", key="user-1").topic
        'invoices'
        """
        future = self.send(topic, payload, serializer=serializer, **wishes)
        self._flush()
        return future.result()

    def send(
        self,
        topic: str,
        payload: Any,
        *,
        serializer: Serializer | str | None = None,
        **wishes: Unpack[PublishWishes],
    ) -> Future[Receipt]:
        """The same without waiting; the commit does.

        >>> with mq.transaction("billing-1") as tx:
        ...     sent = [tx.send("invoices", str(n)) for n in range(3)]
        >>> [future.result().offset for future in sent]
        [0, 1, 2]
        """
        self._open()
        outgoing = self._sender.prepare(topic, payload, wishes_of(wishes), serializer)
        future: Future[Receipt] = Future()

        def settle(receipt: Receipt | None, failure: PenstockError | None) -> None:
            if receipt is not None:
                self.receipts.append(receipt)
                future.set_result(receipt)
            else:
                self._failure = failure
                future.set_exception(failure)

        watch = self._sender.watch
        outgoing.settle = settle if watch is None else watch.begin(topic, outgoing, settle)
        self._waiting.append(outgoing)
        if len(self._waiting) >= _MOST_WAITING:
            self._flush()
        return future

    def publish_many(
        self,
        topic: str,
        messages: Iterable[Any],
        *,
        serializer: Serializer | str | None = None,
        **wishes: Unpack[PublishWishes],
    ) -> Sequence[Receipt]:
        """As `Client.publish_many`, but it counts only when the transaction does.

        >>> with mq.transaction("billing-1") as tx:
        ...     len(tx.publish_many("invoices", ["1", "2"]))
        2
        """
        futures = [self.send(topic, m, serializer=serializer, **wishes) for m in several(messages)]
        self._flush()
        return [future.result() for future in futures]

    def commit_offsets(
        self,
        subscription: Subscription,
        what: Message | Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """Make the progress of a subscription part of it: consumed and produced, exactly once.

        `what` is as in `Subscription.commit`. The subscription needs `auto_commit=False`.

        >>> with mq.transaction("billing-1") as tx:
        ...     for message in messages.batch(10, timeout=10):
        ...         _ = tx.publish("invoices", message.payload)
        ...     tx.commit_offsets(messages)
        >>> messages.lag()
        {TopicPartition(topic='orders', partition=0): 0}
        """
        core = self._open()
        progress = subscription._pursuit.group_progress(what)
        self._flush()
        self._home.run(core.commit_offsets(progress))
        subscription._pursuit.was_committed(progress.offsets)

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._home.run(self._open().write(waiting))
