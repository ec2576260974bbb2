"""The library as most people meet it: the `Client` that `open` and `connect` give."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from functools import partial
from types import TracebackType
from typing import Any, Self, Unpack

from penstock.client.admin import Admin
from penstock.client.arguments import check_seconds, check_text, check_whole, several
from penstock.client.delivery import Delivery
from penstock.client.errors import InvalidArgument, PenstockError, TimedOut
from penstock.client.filter import Filter
from penstock.client.home import EARLIEST, Home, Start
from penstock.client.message import Message, Receipt
from penstock.client.outgoing import wishes_of
from penstock.client.pursuit import check_options, checked_place
from penstock.client.queue_calls import QueueCalls
from penstock.client.receipts import Receipts, WrittenBatch
from penstock.client.sender import Callback, PublishOptions, Sender, call_back
from penstock.client.serializer import Serializer
from penstock.client.subscription import Listener, Subscription
from penstock.client.transaction import Transaction
from penstock.client.wishes import PublishWishes


class Client(QueueCalls):
    """A broker: publish, subscribe, read, queues, transactions, administration.

    Any number of threads may use one client. Close it, or use it in a `with` block.
    """

    def __init__(self, home: Home, options: PublishOptions, client_id: str) -> None:
        self._home = home
        self._sender = Sender(home, options)
        self._client_id = client_id
        self.admin = Admin(home)
        self._open_queues()

    def __repr__(self) -> str:
        return f"<Client {self._home!r}>"

    # --- publishing -------------------------------------------------------------------------------

    def publish(
        self,
        topic: str,
        payload: Any,
        *,
        serializer: Serializer | str | None = None,
        timeout: float | None = None,
        **wishes: Unpack[PublishWishes],
    ) -> Receipt:
        """Publish one message and wait until it is safe.

        `payload` is bytes, text, or what the serializer takes; None is a tombstone. `key` decides
        the partition; `ttl` and `delay` are seconds; a `message_id` that was used within the
        deduplication window is not published again.

        >>> import penstock
        >>> with penstock.open(None) as mq:
        ...     mq.publish("orders", {"id": 7}, serializer="json", key="user-1").offset
        0
        """
        self._home.check_may_wait()
        check_seconds(timeout, "timeout")
        future = self.send(topic, payload, serializer=serializer, timeout=timeout, **wishes)
        try:
            return future.result(timeout)
        except TimeoutError:
            if future.done():
                raise
            raise TimedOut(f"the message was not acknowledged within {timeout} s") from None

    def send(
        self,
        topic: str,
        payload: Any,
        *,
        serializer: Serializer | str | None = None,
        on_delivery: Callback | None = None,
        timeout: float | None = None,
        **wishes: Unpack[PublishWishes],
    ) -> Future[Receipt]:
        """Publish without waiting: the future has the receipt when the message is safe.

        `on_delivery(receipt, error)` is called then too, on a thread of the library: be quick, and
        do not call back into the client. `timeout` is how long to wait for room (backpressure).

        >>> futures = [mq.send("orders", str(n)) for n in range(3)]
        >>> [future.result().offset for future in futures]
        [3, 4, 5]
        """
        sender = self._sender
        if on_delivery is not None and not callable(on_delivery):
            raise InvalidArgument(f"on_delivery is a function, and {on_delivery!r} is none")
        outgoing = sender.prepare(topic, payload, wishes_of(wishes), serializer)
        delivery = Delivery(None if on_delivery is None else partial(call_back, on_delivery))
        if sender.is_duplicate(outgoing, delivery):
            return delivery
        size = outgoing.size
        try:
            has_room = sender.room.take(size, timeout=timeout)
        except BaseException:
            sender.forget(outgoing)
            raise
        if has_room:
            sender.launch(outgoing, size, delivery)
        else:
            sender.forget(outgoing)
            delivery(Receipt(topic, -1, -1, message_id=outgoing.message_id, dropped=True), None)
        return delivery

    def publish_many(
        self,
        topic: str,
        messages: Iterable[Any],
        *,
        serializer: Serializer | str | None = None,
        key_of: Callable[[Any], str | bytes | None] | None = None,
        **wishes: Unpack[PublishWishes],
    ) -> Sequence[Receipt]:
        """Publish many messages and wait until all are safe: the fastest way there is.

        Each is a payload, or a `Message` with wishes of its own; `key_of` takes the key of a
        payload. If one fails, the call raises; others may have been published.

        >>> import penstock
        >>> with penstock.open(None) as mq:
        ...     len(mq.publish_many("numbers", [str(n) for n in range(1000)]))
        1000
        """
        check_text(topic, "a topic")
        messages = several(messages)
        if "message_id" in wishes:
            items = list(messages)
            if len(items) > 1:
                raise TypeError("a message_id is one message's: give Message objects with ids")
            messages = items
        self._home.check_may_wait()
        flights = _Flights()
        wanted = wishes_of(wishes)
        sender, count = self._sender, [0]
        told = nullcontext(()) if sender.watch is None else sender.watch.many(topic, count)
        with told as headers:
            for rows, size in sender.rows(messages, wanted, serializer, key_of, headers):
                sender.room.take(size, len(rows))
                flights.launch(sender, topic, rows, size, count[0])
                count[0] += len(rows)
            return Receipts(flights.land())

    def send_ordered(
        self,
        topic: str,
        key: str | bytes,
        messages: Iterable[Any],
        *,
        serializer: Serializer | str | None = None,
    ) -> Sequence[Receipt]:
        """Publish messages that must stay in order: one key, one partition, one after the other.

        >>> [r.offset for r in mq.send_ordered("orders", "user-1", ["paid", "sent"])]
        [3, 4]
        """
        if key is None:
            raise InvalidArgument("messages stay in order by their key: give one")
        return self.publish_many(topic, messages, serializer=serializer, key=key)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything that was sent is safe, or has failed.

        >>> for n in range(100):
        ...     _ = mq.send("orders", str(n))
        >>> mq.flush(timeout=10)
        """
        if not self._sender.room.wait_empty(timeout):
            left = self._sender.room.messages
            raise TimedOut(f"{left} messages are not acknowledged yet, after {timeout} s")

    # --- reading ----------------------------------------------------------------------------------

    def subscribe(  # tidy: long, because it is the list of what a subscription can be
        self,
        topics: str | Sequence[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        group: str | None = None,
        start: Start = EARLIEST,
        auto_commit: bool = True,
        auto_commit_interval: float = 1.0,
        filter: str | Filter | None = None,
        include_expired: bool = False,
        isolation: str = "read_committed",
        instance_id: str | None = None,
        max_poll_interval: float = 300.0,
        idle_timeout: float | None = None,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> Subscription:
        """Read topics as a stream.

        With a `group`, its members share the partitions and it remembers how far it is; without,
        the subscription reads everything by itself. `start` is where to begin when nothing is
        remembered: "earliest", "latest" or a moment. `filter` is an expression
        (docs/library/streams.md); messages that are expired are left out, those that are not due
        yet come when they are.

        >>> with mq.subscribe("orders", filter='key == "user-1"', idle_timeout=0.1) as messages:
        ...     [message.text for message in messages]
        ['a']
        """
        options = check_options(
            topics,
            pattern=pattern,
            group=group,
            start=start,
            auto_commit=auto_commit,
            auto_commit_interval=auto_commit_interval,
            wanted=filter,
            keep_expired=include_expired,
            isolation=isolation,
            instance_id=instance_id,
            max_poll_interval=max_poll_interval,
            idle_timeout=idle_timeout,
            client_id=self._client_id,
        )
        return Subscription(
            self._home,
            options,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            on_lost=on_lost,
            watch=self._sender.watch,
        )

    def read(
        self,
        topic: str,
        partition: int = 0,
        offset: int | Start = EARLIEST,
        *,
        limit: int | None = None,
    ) -> Iterator[Message]:
        """The messages of one partition from an offset on, up to where it ends now; no group.

        >>> import penstock
        >>> with penstock.open(None) as mq:
        ...     _ = mq.publish("log", "a", partition=0), mq.publish("log", "b", partition=0)
        ...     [message.text for message in mq.read("log", 0, offset=1)]
        ['b']
        """
        place = checked_place(topic, partition, offset)
        check_whole(0 if limit is None else limit, "limit")
        at = offset if isinstance(offset, int) else self._home.run(self._home.find(place, offset))
        end: int | None = None
        while limit is None or limit > 0:
            chunks, now_end = self._home.run(self._home.read(place, at))
            end = now_end if end is None else end
            if not chunks:
                return
            for chunk in chunks:
                for message in chunk.messages():
                    if message.offset < at:
                        continue
                    if message.offset >= end or limit == 0:
                        return
                    yield message
                    limit = None if limit is None else limit - 1
                at = chunk.next_offset
            if at >= end:
                return

    # --- transactions -----------------------------------------------------------------------------

    def transaction(self, transactional_id: str, *, timeout: float = 60.0) -> Transaction:
        """A transaction to be begun, by `with` or `begin()`.

        The id names who is writing: whoever begins with the same id fences the one before. It is
        aborted when it takes longer than `timeout` seconds.

        >>> with mq.transaction("billing-1") as tx:
        ...     _ = tx.publish("invoices", "1"), tx.publish("mails", "1")
        """
        return Transaction(self._home, self._sender, transactional_id, timeout)

    # --- the end ----------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        return self._home.is_closed

    def close(self) -> None:
        """Stop the workers, wait for what is on its way, and stop. A second call does nothing.

        >>> mq.close()
        >>> mq.is_closed
        True
        """
        if not self._home.is_closed:
            self._close_queues()
        self._home.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        home = getattr(self, "_home", None)
        if home is not None and not home.is_closed:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2, source=self)
            home.close_soon()


class _Flights:
    """Parts of a `publish_many` on their way."""

    def __init__(self) -> None:
        self._futures: list[Future[list[WrittenBatch]]] = []

    def launch(self, sender: Sender, topic: str, rows: Sequence[Any], size: int, base: int) -> None:
        future: Future[list[WrittenBatch]] = Future()

        def done(written: Sequence[WrittenBatch] | None, failure: PenstockError | None) -> None:
            sender.room.give_back(size, len(rows))
            if written is None:
                future.set_exception(failure)
            else:
                future.set_result([_shifted(batch, base) for batch in written])

        try:
            sender.home.write(topic, rows, done)
        except BaseException:
            sender.room.give_back(size, len(rows))
            raise
        self._futures.append(future)

    def land(self) -> list[WrittenBatch]:
        return [batch for future in self._futures for batch in future.result()]


def _shifted(batch: WrittenBatch, base: int) -> WrittenBatch:
    if not base:
        return batch
    indexes = batch.indexes
    if isinstance(indexes, range):
        return batch._replace(indexes=range(indexes.start + base, indexes.stop + base))
    return batch._replace(indexes=[index + base for index in indexes])
