"""The library for code with an event loop: the same calls, awaited."""

from __future__ import annotations

import asyncio
import re
import warnings
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Sequence
from types import TracebackType
from typing import Any, Generic, NoReturn, Self, TypeVar, Unpack

from penstock.client.aio_admin import AsyncAdmin
from penstock.client.aio_queue_calls import AsyncQueueCalls
from penstock.client.aio_subscription import AsyncListener, AsyncSubscription
from penstock.client.aio_transaction import AsyncTransaction
from penstock.client.arguments import check_whole
from penstock.client.errors import Conflict, InvalidArgument, PenstockError
from penstock.client.filter import Filter
from penstock.client.home import EARLIEST, Start
from penstock.client.message import Message, Receipt
from penstock.client.opening import LocalClient
from penstock.client.outgoing import wishes_of
from penstock.client.pursuit import check_options, checked_place
from penstock.client.serializer import Serializer
from penstock.client.sync import Client
from penstock.client.wishes import PublishWishes

A = TypeVar("A", bound="AsyncClient")


class AsyncClient(AsyncQueueCalls):
    """A broker: publish, subscribe, read, queues, transactions, administration.

    It belongs to the event loop in which it was opened.
    """

    def __init__(self, client: Client) -> None:
        self._client = client  # for what is done in a thread
        self._home = client._home
        self._sender = client._sender
        self._mail = Mailbox(asyncio.get_running_loop())
        self.admin = AsyncAdmin(self._home)
        self._open_queues()

    def __repr__(self) -> str:
        return f"<AsyncClient {self._home!r}>"

    # --- publishing -------------------------------------------------------------------------------

    async def publish(
        self,
        topic: str,
        payload: Any,
        *,
        serializer: Serializer | str | None = None,
        **wishes: Unpack[PublishWishes],
    ) -> Receipt:
        """Publish one message and wait until it is safe."""
        return await (await self.send(topic, payload, serializer=serializer, **wishes))

    async def send(
        self,
        topic: str,
        payload: Any,
        *,
        serializer: Serializer | str | None = None,
        **wishes: Unpack[PublishWishes],
    ) -> asyncio.Future[Receipt]:
        """Publish without waiting for the receipt: `await` the future for it, or do not.

        What this itself waits for is room (backpressure).
        """
        sender, loop = self._sender, self._mail.loop
        if asyncio.get_running_loop() is not loop:
            raise Conflict("the client was opened in another event loop: open one in this loop")
        outgoing = sender.prepare(topic, payload, wishes_of(wishes), serializer)
        future = loop.create_future()

        def settle(receipt: Receipt | None, failure: PenstockError | None) -> None:
            self._mail.put(future, receipt, failure)

        if sender.is_duplicate(outgoing, settle):
            return future
        size = outgoing.size
        try:
            has_room = await self._take_room(size)
        except BaseException:
            sender.forget(outgoing)
            raise
        if has_room:
            sender.launch(outgoing, size, settle)
        else:
            sender.forget(outgoing)
            future.set_result(Receipt(topic, -1, -1, message_id=outgoing.message_id, dropped=True))
        return future

    async def _take_room(self, size: int) -> bool:
        room = self._sender.room
        while not room.try_take(size):
            if room.policy == "drop":
                return False
            if room.policy == "raise":
                raise room.full()
            await self._room_changes()
        return True

    async def _room_changes(self) -> None:
        changed, loop = asyncio.Event(), self._mail.loop

        def tell() -> None:
            loop.call_soon_threadsafe(changed.set)

        self._sender.room.when_changed(tell)
        await changed.wait()

    async def publish_many(
        self,
        topic: str,
        messages: Iterable[Any],
        *,
        serializer: Serializer | str | None = None,
        key_of: Callable[[Any], str | bytes | None] | None = None,
        **wishes: Unpack[PublishWishes],
    ) -> Sequence[Receipt]:
        """Publish many messages and wait until all are safe: the fastest way there is.

        They are taken out of `messages` in a thread, so that the loop goes on meanwhile.
        """
        return await asyncio.to_thread(
            self._client.publish_many,
            topic,
            messages,
            serializer=serializer,
            key_of=key_of,
            **wishes,
        )

    async def send_ordered(
        self,
        topic: str,
        key: str | bytes,
        messages: Iterable[Any],
        *,
        serializer: Serializer | str | None = None,
    ) -> Sequence[Receipt]:
        """Publish messages that must stay in order: one key, one partition, one after the other."""
        if key is None:
            raise InvalidArgument("messages stay in order by their key: give one")
        return await self.publish_many(topic, messages, serializer=serializer, key=key)

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until everything that was sent is safe, or has failed."""
        await asyncio.to_thread(self._client.flush, timeout)

    # --- reading ----------------------------------------------------------------------------------

    def subscribe(
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
        on_assigned: AsyncListener | None = None,
        on_revoked: AsyncListener | None = None,
        on_lost: AsyncListener | None = None,
    ) -> AsyncSubscription:
        """Read topics as a stream, as `Client.subscribe`; listeners may be coroutine functions."""
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
            client_id=self._client._client_id,
        )
        return AsyncSubscription(
            self._home,
            options,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            on_lost=on_lost,
            watch=self._sender.watch,
        )

    async def read(
        self,
        topic: str,
        partition: int = 0,
        offset: int | Start = EARLIEST,
        *,
        limit: int | None = None,
    ) -> AsyncIterator[Message]:
        """The messages of one partition from an offset on, up to where it ends now; no group."""
        home, place = self._home, checked_place(topic, partition, offset)
        check_whole(0 if limit is None else limit, "limit")
        at = offset if isinstance(offset, int) else await home.arun(home.find(place, offset))
        end: int | None = None
        while limit is None or limit > 0:
            chunks, now_end = await home.arun(home.read(place, at))
            end = now_end if end is None else end
            for chunk in chunks:
                for message in chunk.messages():
                    if message.offset < at:
                        continue
                    if message.offset >= end or limit == 0:
                        return
                    yield message
                    limit = None if limit is None else limit - 1
                at = chunk.next_offset
            if not chunks or at >= end:
                return

    # --- transactions -----------------------------------------------------------------------------

    def transaction(self, transactional_id: str, *, timeout: float = 60.0) -> AsyncTransaction:
        """A transaction to be begun, by `async with` or `begin()`."""
        return AsyncTransaction(self._home, self._sender, transactional_id, timeout)

    # --- the end ----------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        return self._home.is_closed

    async def close(self) -> None:
        """Stop the workers, wait for what is on its way, and stop. A second call does nothing."""
        if not self._home.is_closed:
            await self._close_queues()
        await asyncio.to_thread(self._home.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


class AsyncLocalClient(AsyncClient):
    """A client whose broker is in this process; it knows the addresses of the broker's doors."""

    _client: LocalClient

    @property
    def kafka(self) -> str | None:
        """Where Kafka clients can connect, None when that door is closed."""
        return self._client.kafka

    @property
    def amqp(self) -> str | None:
        """Where AMQP clients can connect, None when that door is closed."""
        return self._client.amqp

    @property
    def http(self) -> str | None:
        """Where health, metrics and the JSON API are, None when that door is closed."""
        return self._client.http


class Mailbox:
    """Receipts from the home's thread to the loop, with one wake-up for all that came meanwhile."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._waiting: deque[
            tuple[asyncio.Future[Receipt], Receipt | None, PenstockError | None]
        ] = deque()
        self._is_awake = False

    def put(
        self,
        future: asyncio.Future[Receipt],
        receipt: Receipt | None,
        failure: PenstockError | None,
    ) -> None:
        self._waiting.append((future, receipt, failure))
        if not self._is_awake:
            self._is_awake = True
            try:
                self.loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:  # the loop was closed before its client
                warnings.warn("the event loop was closed before the client", stacklevel=2)

    def _deliver(self) -> None:
        self._is_awake = False
        while self._waiting:
            future, receipt, failure = self._waiting.popleft()
            if future.done():
                continue
            if receipt is not None:
                future.set_result(receipt)
            elif failure is not None:
                future.set_exception(failure)


class Opening(Generic[A]):
    """What `open` and `connect` give: `await` it, or use it with `async with`."""

    def __init__(self, make: Callable[[], Client], kind: Callable[[Any], A]) -> None:
        self._make = make
        self._kind = kind
        self._client: A | None = None

    def __getattr__(self, name: str) -> NoReturn:
        words = f"there is no {name!r} yet: await this, or use it with `async with`"
        raise AttributeError(words, name=name, obj=self)

    async def _open(self) -> A:
        self._client = self._kind(await asyncio.to_thread(self._make))
        return self._client

    def __await__(self) -> Generator[Any, None, A]:
        return self._open().__await__()

    async def __aenter__(self) -> A:
        return await self._open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._client is not None:
            await self._client.close()
