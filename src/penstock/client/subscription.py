"""A subscription, for code without an event loop."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self

from penstock.client.arguments import check_seconds
from penstock.client.errors import Closed, Conflict, InvalidArgument, PenstockError, TimedOut
from penstock.client.home import EARLIEST, LATEST, Change, Home, Rebalanced, Start
from penstock.client.message import Message
from penstock.client.pursuit import MOST_MESSAGES, Pursuit, SubscribeOptions, chosen, sought
from penstock.client.watch import Watch, Working
from penstock.model.ids import TopicPartition

Listener = Callable[["Subscription", list[TopicPartition]], None]

ASSIGN_SECONDS = 30.0


class Subscription(Iterator[Message]):
    """Messages as they come: iterate over it, or ask with `get` and `batch`.

    It belongs to one thread at a time; only `close` may come from another. To share the work among
    threads, subscribe once in each, with the same group.

    >>> import penstock
    >>> with penstock.open(None) as mq:
    ...     _ = mq.publish("greetings", "hello")
    ...     with mq.subscribe("greetings", group="readers") as messages:
    ...         print(next(messages).text)
    hello
    """

    def __init__(
        self,
        home: Home,
        options: SubscribeOptions,
        *,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
        watch: Watch | None = None,
    ) -> None:
        self._home = home
        self._watch = watch
        self._working: Working | None = None
        self._listeners = {
            Change.ASSIGNED: on_assigned,
            Change.REVOKED: on_revoked,
            Change.LOST: on_lost or on_revoked,
        }
        self._pursuit = Pursuit(home, home.run(home.stream(options.stream)), options)
        self._stream = self._pursuit.stream
        self._stream.listen(self._rebalanced)
        self._reader = threading.get_ident()
        self._closing = threading.Lock()
        self._must_resume = False

    def __repr__(self) -> str:
        return f"<Subscription {self._pursuit!r}>"

    # --- messages ---------------------------------------------------------------------------------

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        """Wait for the next message. Ends when it is closed, or idle for `idle_timeout`."""
        if self._pursuit.is_closed:
            raise StopIteration
        message = self.get(self._pursuit.options.idle_timeout)
        if message is None:
            raise StopIteration
        return message

    def get(self, timeout: float | None = None) -> Message | None:
        """The next message; None when none came within `timeout` seconds, or it is closed.

        Asking for the next one says that the one before is done with.

        >>> messages.get(timeout=10).text
        'a'
        """
        pursuit = self._pursuit
        if pursuit.is_closed:
            raise Closed("the subscription is closed")
        if timeout is not None:
            check_seconds(timeout, "timeout")
        self._finish()
        message = pursuit.next() or self._wait(timeout)
        if self._watch is not None and message is not None:
            self._working = self._watch.working(message, self.group)
        return message

    def _wait(self, timeout: float | None) -> Message | None:
        pursuit = self._pursuit
        message: Message | None = None
        deadline = None if timeout is None else time.monotonic() + timeout
        while message is None and not pursuit.is_closed:
            left = None if deadline is None else deadline - time.monotonic()
            if not self._poll(left) and left is not None and left <= 0:
                break
            message = pursuit.next()
        return message

    def batch(self, max_messages: int = 500, timeout: float | None = None) -> list[Message]:
        """At least one message, if any comes within `timeout`, and up to `max_messages`.

        What is there is given at once; it does not wait for a batch to fill.

        >>> [message.text for message in messages.batch(10, timeout=10)]
        ['a', 'b', 'c']
        """
        if max_messages < 1:
            raise InvalidArgument(f"max_messages is 1 or more, not {max_messages}")
        first = self.get(timeout)
        self._worked(None)  # whoever takes many at once handles them in a way of their own
        found = [] if first is None else [first]
        while found and len(found) < max_messages:
            message = self._pursuit.next()
            if message is None:
                break
            found.append(message)
        return found

    def batches(self, max_messages: int = 500) -> Iterator[list[Message]]:
        """Batch after batch, until it is closed or idle for `idle_timeout`.

        >>> with mq.subscribe("orders", idle_timeout=0.1) as messages:
        ...     [len(batch) for batch in messages.batches(2)]
        [2, 1]
        """
        while found := self.batch(max_messages, self._pursuit.options.idle_timeout):
            yield found

    def _finish(self) -> None:
        """What was handed out before is done with."""
        self._worked(None)
        self._reader = threading.get_ident()
        pursuit = self._pursuit
        pursuit.progress.finish()
        self._commit_due()

    def _worked(self, failure: BaseException | None) -> None:
        working, self._working = self._working, None
        if working is not None:
            working.end(failure)

    def _poll(self, left: float | None) -> bool:
        """One turn of waiting; False when nothing came."""
        pursuit = self._pursuit
        wait = pursuit.wait_seconds(left)
        if not pursuit.progress.wants_more:
            time.sleep(wait)
            return False
        if self._must_resume:
            self._home.run(self._stream.seek(pursuit.progress.fetched()))
            self._must_resume = False
        try:
            polled = self._home.run(self._stream.poll(wait, MOST_MESSAGES))
        except Closed:  # by another thread, or with its client
            pursuit.is_closed = True
            return False
        except PenstockError:
            raise
        except BaseException:  # Ctrl-C: what was just being fetched did not arrive
            self._must_resume = True
            raise
        for news in polled.rebalances:
            self._rebalanced(news)
        pursuit.fetched(polled)
        self._commit_due()
        return bool(polled.chunks or polled.rebalances)

    def _rebalanced(self, news: Rebalanced) -> None:
        told = self._pursuit.rebalanced(news)
        if told.commit:
            with contextlib.suppress(PenstockError):  # then they are read again, by somebody
                self._commit(told.commit)
        listener = self._listeners.get(news.change)
        try:
            if listener is not None:
                listener(self, list(news.places))
        finally:
            self._pursuit.gone(news)

    # --- committing -------------------------------------------------------------------------------

    def commit(self, what: Message | Mapping[TopicPartition, int] | None = None) -> None:
        """Remember for the group how far it is; returns when that is safe.

        Without an argument: everything handed out so far. With a message: up to and including it.
        With offsets by (topic, partition): these, each the offset to go on with.

        >>> message = messages.get(timeout=10)
        >>> messages.commit(message)
        """
        self._commit(self._pursuit.to_commit(what))

    def _commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        if offsets:
            self._home.run(self._stream.commit(offsets))
            self._pursuit.was_committed(offsets)

    def _commit_due(self) -> None:
        """Commit by itself, when it is time. Whoever is not in the group any more learns that from
        the next poll: what it did not commit is read again, by somebody."""
        with contextlib.suppress(Conflict, Closed):
            self._commit(self._pursuit.due())

    def committed(self) -> dict[TopicPartition, int]:
        """What the group remembers of the partitions assigned to this subscription.

        >>> message = messages.get(timeout=10)
        >>> messages.commit()
        >>> messages.committed()
        {TopicPartition(topic='orders', partition=0): 1}
        """
        return self._home.run(self._stream.committed(self.assignment))

    # --- partitions and positions -----------------------------------------------------------------

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions this subscription reads now."""
        return self._pursuit.assignment

    @property
    def group(self) -> str | None:
        return self._pursuit.options.stream.group

    def wait_assigned(self, timeout: float = ASSIGN_SECONDS) -> list[TopicPartition]:
        """Wait until there are partitions to read.

        >>> messages.wait_assigned()
        [TopicPartition(topic='orders', partition=0)]
        """
        deadline = time.monotonic() + timeout
        while not self.assignment:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimedOut(f"no partitions were assigned within {timeout} s")
            self._poll(left)
        return self.assignment

    def positions(self) -> dict[TopicPartition, int]:
        """The offset of the next message of each partition.

        >>> message = messages.get(timeout=10)
        >>> messages.positions()
        {TopicPartition(topic='orders', partition=0): 1}
        """
        return self._pursuit.positions()

    def lag(self) -> dict[TopicPartition, int]:
        """How many offsets are still to be read, by partition.

        >>> message = messages.get(timeout=10)
        >>> sum(messages.lag().values())
        2
        """
        positions = self.positions()
        ends = self._home.run(self._stream.ends(list(positions)))
        return {place: max(0, ends[place] - at) for place, at in positions.items()}

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Read a partition on from `offset`.

        >>> messages.seek("orders", 0, 2)
        >>> messages.get(timeout=10).text
        'c'
        """
        wanted = sought(topic, partition, offset)
        if not self.assignment:
            self.wait_assigned()
        self._seek(wanted)

    def seek_to_time(self, moment: Start) -> None:
        """Read every partition on from the first message at or after `moment`.

        >>> import datetime
        >>> messages.seek_to_time(datetime.datetime(2000, 1, 1))
        >>> messages.get(timeout=10).text
        'a'
        """
        places = self.assignment or self.wait_assigned()
        found = {place: self._home.run(self._stream.find(place, moment)) for place in places}
        self._seek(found)

    def seek_to_beginning(self) -> None:
        """Read everything again.

        >>> done = messages.batch(3, timeout=10)
        >>> messages.seek_to_beginning()
        >>> messages.get(timeout=10).text
        'a'
        """
        self.seek_to_time(EARLIEST)

    def seek_to_end(self) -> None:
        """Skip what is there already.

        >>> messages.seek_to_end()
        >>> messages.get(timeout=0.01) is None
        True
        """
        self.seek_to_time(LATEST)

    def replay(self, since: Start = EARLIEST) -> None:
        """Read everything again, or what came since a moment.

        >>> done = messages.batch(3, timeout=10)
        >>> messages.replay()
        >>> messages.get(timeout=10).text
        'a'
        """
        self.seek_to_time(since)

    def _seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._home.run(self._stream.seek(offsets))
        self._pursuit.moved(offsets)

    def pause(self, places: Collection[tuple[str, int]] | None = None) -> None:
        """Fetch nothing more, of all partitions or of some; what is here is still handed out.

        >>> messages.pause()
        >>> messages.get(timeout=0.01) is None
        True
        """
        if not self.assignment:
            self.wait_assigned()
        self._home.run(self._stream.pause(self._places(places)))

    def resume(self, places: Collection[tuple[str, int]] | None = None) -> None:
        """Fetch again.

        >>> messages.pause()
        >>> messages.resume()
        >>> messages.get(timeout=10).text
        'a'
        """
        self._home.run(self._stream.resume(self._places(places)))

    def _places(self, places: Collection[tuple[str, int]] | None) -> Sequence[TopicPartition]:
        return self.assignment if places is None else chosen(places)

    # --- the end ----------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        return self._pursuit.is_closed

    def close(self) -> None:
        """Leave the group. With automatic commits, what was handed out counts as done.

        From another thread than the reader's, what that one is working on does not.

        >>> messages.close()
        >>> messages.is_closed
        True
        """
        if threading.get_ident() == self._reader:
            self._worked(None)
        self._close(with_current=threading.get_ident() == self._reader)

    def _close(self, *, with_current: bool) -> None:
        with self._closing:
            if self._pursuit.is_closed:
                return
            self._pursuit.is_closed = True
            self._stream.wake()
            if self._home.is_closed:
                return
            if self._pursuit.options.auto_commit:
                with contextlib.suppress(PenstockError):
                    self._commit(self._pursuit.uncommitted(with_current=with_current))
            self._home.run(self._stream.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it. After an exception, the message being worked on does not count as done."""
        self._worked(failure)
        self._close(with_current=failure is None)
