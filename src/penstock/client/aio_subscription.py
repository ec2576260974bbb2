"""A subscription, for code with an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Mapping,
    Sequence,
)
from concurrent.futures import Future
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self, TypeVar

from penstock.client.arguments import check_seconds
from penstock.client.errors import Closed, Conflict, InvalidArgument, PenstockError, TimedOut
from penstock.client.home import EARLIEST, LATEST, Change, Home, Polled, Rebalanced, Start
from penstock.client.message import Message
from penstock.client.pursuit import MOST_MESSAGES, Pursuit, SubscribeOptions, chosen, sought
from penstock.client.watch import Watch, Working
from penstock.model.ids import TopicPartition

T = TypeVar("T")

AsyncListener = Callable[
    ["AsyncSubscription", list[TopicPartition]], Awaitable[None] | None
]  # a function or a coroutine function

_ASSIGN_SECONDS = 30.0


class AsyncSubscription(AsyncIterator[Message]):
    """Messages as they come: `async for`, or `get` and `batch`. One task at a time."""

    def __init__(
        self,
        home: Home,
        options: SubscribeOptions,
        *,
        on_assigned: AsyncListener | None = None,
        on_revoked: AsyncListener | None = None,
        on_lost: AsyncListener | None = None,
        watch: Watch | None = None,
    ) -> None:
        self._home = home
        self._watch = watch
        self._working: Working | None = None
        self._options = options
        self._listeners = {
            Change.ASSIGNED: on_assigned,
            Change.REVOKED: on_revoked,
            Change.LOST: on_lost or on_revoked,
        }
        self._loop = asyncio.get_running_loop()
        self._opened: Pursuit | None = None
        self._is_closed = False
        self._errand_lock = threading.Lock()
        self._errands: SimpleQueue[Callable[[], None] | None] | None = None
        # A poll goes on when whoever waits for it is cancelled: what it brings must not be lost.
        self._polling: asyncio.Future[Polled] | None = None

    def __repr__(self) -> str:
        return f"<AsyncSubscription {self._opened!r}>"

    async def _pursuit(self) -> Pursuit:
        if self._is_closed:
            raise Closed("the subscription is closed")
        if self._opened is None:
            stream = await self._home.arun(self._home.stream(self._options.stream))
            stream.listen(self._rebalanced_elsewhere)
            self._opened = Pursuit(self._home, stream, self._options)
        return self._opened

    # --- messages ---------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        """Wait for the next message. Ends when it is closed, or idle for `idle_timeout`."""
        if self._is_closed:
            raise StopAsyncIteration
        message = await self.get(self._options.idle_timeout)
        if message is None:
            raise StopAsyncIteration
        return message

    async def get(self, timeout: float | None = None) -> Message | None:
        """The next message; None when none came within `timeout` seconds, or it is closed.

        Asking for the next one says that the one before is done with.
        """
        if timeout is not None:
            check_seconds(timeout, "timeout")
        self._worked(None)
        pursuit = await self._pursuit()
        pursuit.progress.finish()
        await self._commit_due(pursuit)
        message = pursuit.next()
        deadline = None if timeout is None else time.monotonic() + timeout
        while message is None and not self._is_closed:
            left = None if deadline is None else deadline - time.monotonic()
            if not await self._poll(pursuit, left) and left is not None and left <= 0:
                break
            message = pursuit.next()
        if self._watch is not None and message is not None:
            self._working = self._watch.working(message, self.group)
        return message

    def _worked(self, failure: BaseException | None) -> None:
        working, self._working = self._working, None
        if working is not None:
            working.end(failure)

    async def batch(self, max_messages: int = 500, timeout: float | None = None) -> list[Message]:
        """At least one message, if any comes within `timeout`, and up to `max_messages`."""
        if max_messages < 1:
            raise InvalidArgument(f"max_messages is 1 or more, not {max_messages}")
        first = await self.get(timeout)
        self._worked(None)  # whoever takes many at once handles them in a way of their own
        found = [] if first is None else [first]
        while found and len(found) < max_messages:
            assert self._opened is not None
            message = self._opened.next()
            if message is None:
                break
            found.append(message)
        return found

    async def batches(self, max_messages: int = 500) -> AsyncIterator[list[Message]]:
        """Batch after batch, until it is closed or idle for `idle_timeout`."""
        while found := await self.batch(max_messages, self._options.idle_timeout):
            yield found

    async def _poll(self, pursuit: Pursuit, left: float | None) -> bool:
        wait = pursuit.wait_seconds(left)
        if not pursuit.progress.wants_more:
            await asyncio.sleep(wait)
            return False
        if self._polling is None:
            self._polling = asyncio.ensure_future(
                self._home.arun(pursuit.stream.poll(wait, MOST_MESSAGES))
            )
        try:
            polled = await asyncio.shield(self._polling)
        except Closed:  # by another task, or with its client
            self._is_closed = True
            return False
        finally:
            if self._polling is not None and self._polling.done():
                self._polling = None
        for news in polled.rebalances:
            await self._rebalanced(news)
        pursuit.fetched(polled)
        await self._commit_due(pursuit)
        return bool(polled.chunks or polled.rebalances)

    async def _rebalanced(self, news: Rebalanced) -> None:
        pursuit = self._opened
        assert pursuit is not None
        told = pursuit.rebalanced(news)
        with contextlib.suppress(PenstockError):  # then they are read again, by somebody
            await self._commit(pursuit, told.commit)
        listener = self._listeners.get(news.change)
        try:
            if listener is not None:
                answer = listener(self, list(news.places))
                if inspect.isawaitable(answer):
                    await answer
        finally:
            pursuit.gone(news)

    def _rebalanced_elsewhere(self, news: Rebalanced) -> None:
        """In a thread of the home, which waits until the listener has had its say.

        Meanwhile librdkafka listens only to this thread: a commit from another one would be
        answered when we return, and we return when it is answered. So what the listener asks for
        is done here.
        """
        errands = self._errands = SimpleQueue()
        told = asyncio.run_coroutine_threadsafe(self._rebalanced(news), self._loop)
        told.add_done_callback(lambda _: errands.put(None))
        while (errand := errands.get()) is not None:
            errand()
        with self._errand_lock:
            self._errands = None
        while not errands.empty():  # of another task, which came at the last moment
            if (errand := errands.get()) is not None:
                errand()
        told.result()

    async def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something with the stream, in the thread that may."""
        future: Future[T] = Future()

        def errand() -> None:
            try:
                future.set_result(self._home.run(work))
            except BaseException as failure:
                future.set_exception(failure)

        with self._errand_lock:
            errands = self._errands
            if errands is not None:
                errands.put(errand)
        if errands is None:
            return await self._home.arun(work)
        return await asyncio.wrap_future(future)

    # --- committing -------------------------------------------------------------------------------

    async def commit(self, what: Message | Mapping[TopicPartition, int] | None = None) -> None:
        """Remember for the group how far it is: by default everything handed out so far."""
        pursuit = await self._pursuit()
        await self._commit(pursuit, pursuit.to_commit(what))

    async def _commit(self, pursuit: Pursuit, offsets: Mapping[TopicPartition, int]) -> None:
        if offsets:
            await self._run(pursuit.stream.commit(offsets))
            pursuit.was_committed(offsets)

    async def _commit_due(self, pursuit: Pursuit) -> None:
        with contextlib.suppress(Conflict, Closed):  # the next poll tells
            await self._commit(pursuit, pursuit.due())

    async def committed(self) -> dict[TopicPartition, int]:
        """What the group remembers of the partitions assigned to this subscription."""
        pursuit = await self._pursuit()
        return await self._run(pursuit.stream.committed(self.assignment))

    # --- partitions and positions -----------------------------------------------------------------

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions this subscription reads now."""
        return [] if self._opened is None else self._opened.assignment

    @property
    def group(self) -> str | None:
        return self._options.stream.group

    async def wait_assigned(self, timeout: float = _ASSIGN_SECONDS) -> list[TopicPartition]:
        """Wait until there are partitions to read."""
        pursuit = await self._pursuit()
        deadline = time.monotonic() + timeout
        while not self.assignment:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimedOut(f"no partitions were assigned within {timeout} s")
            await self._poll(pursuit, left)
        return self.assignment

    def positions(self) -> dict[TopicPartition, int]:
        """The offset of the next message of each partition."""
        return {} if self._opened is None else self._opened.positions()

    async def lag(self) -> dict[TopicPartition, int]:
        """How many offsets are still to be read, by partition."""
        pursuit = await self._pursuit()
        positions = pursuit.positions()
        ends = await self._run(pursuit.stream.ends(list(positions)))
        return {place: max(0, ends[place] - at) for place, at in positions.items()}

    async def seek(self, topic: str, partition: int, offset: int) -> None:
        """Read a partition on from `offset`."""
        wanted = sought(topic, partition, offset)
        if not self.assignment:
            await self.wait_assigned()
        await self._seek(wanted)

    async def seek_to_time(self, moment: Start) -> None:
        """Read every partition on from the first message at or after `moment`."""
        places = self.assignment or await self.wait_assigned()
        stream = (await self._pursuit()).stream
        found = {place: await self._run(stream.find(place, moment)) for place in places}
        await self._seek(found)

    async def seek_to_beginning(self) -> None:
        """Read everything again."""
        await self.seek_to_time(EARLIEST)

    async def seek_to_end(self) -> None:
        """Skip what is there already."""
        await self.seek_to_time(LATEST)

    async def replay(self, since: Start = EARLIEST) -> None:
        """Read everything again, or what came since a moment."""
        await self.seek_to_time(since)

    async def _seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        pursuit = await self._pursuit()
        if self._polling is not None:  # what it fetches was asked for before
            await asyncio.wait([self._polling])
            self._polling = None
        await self._run(pursuit.stream.seek(offsets))
        pursuit.moved(offsets)

    async def pause(self, places: Collection[tuple[str, int]] | None = None) -> None:
        """Fetch nothing more, of all partitions or of some."""
        if not self.assignment:
            await self.wait_assigned()
        await self._run((await self._pursuit()).stream.pause(self._places(places)))

    async def resume(self, places: Collection[tuple[str, int]] | None = None) -> None:
        """Fetch again."""
        await self._run((await self._pursuit()).stream.resume(self._places(places)))

    def _places(self, places: Collection[tuple[str, int]] | None) -> Sequence[TopicPartition]:
        return self.assignment if places is None else chosen(places)

    # --- the end ----------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    async def close(self) -> None:
        """Leave the group. With automatic commits, what was handed out counts as done."""
        self._worked(None)
        await self._close(with_current=True)

    async def _close(self, *, with_current: bool) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        pursuit = self._opened
        if pursuit is None or self._home.is_closed:
            return
        pursuit.stream.wake()
        if self._options.auto_commit:
            with contextlib.suppress(PenstockError):
                await self._commit(pursuit, pursuit.uncommitted(with_current=with_current))
        await self._home.arun(pursuit.stream.close())
        if self._polling is not None:
            with contextlib.suppress(PenstockError):
                await self._polling
            self._polling = None

    async def __aenter__(self) -> Self:
        await self._pursuit()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it. After an exception, the message being worked on does not count as done."""
        self._worked(failure)
        await self._close(with_current=failure is None)
