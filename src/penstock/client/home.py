"""What the library needs of a home, which is a broker in this process or connections to one.

Everything that may take time is a coroutine. The in-process home has an event loop on a thread of
its own and hands them over to it; the network home's coroutines never suspend, they block, and are
run where they are called (sync) or in a thread (async). So the faces know two ways to wait, `run`
and `arun`, and nothing of what is behind them.

`enqueue` and `write` are the way of messages and plain calls from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, TypeVar

from penstock.client.errors import InvalidArgument, PenstockError
from penstock.client.message import Moment, moment_ms
from penstock.client.outgoing import Outgoing, Row
from penstock.client.partitioner import Partitioner
from penstock.client.progress import Chunk
from penstock.client.queue_home import QueueHome
from penstock.client.receipts import WrittenBatch
from penstock.client.views import ClusterInfo, GroupInfo, TopicInfo
from penstock.model.ids import TopicPartition

T = TypeVar("T")

EARLIEST = "earliest"
LATEST = "latest"
Start = str | Moment  # "earliest", "latest", or a moment

WhenWritten = Callable[[Sequence[WrittenBatch] | None, PenstockError | None], None]


def start_timestamp(start: Start) -> int | None:
    """The moment that a start means, None for "earliest" and "latest"."""
    if start in (EARLIEST, LATEST):
        return None
    if isinstance(start, str):
        raise InvalidArgument(f'start is "earliest", "latest" or a moment, not {start!r}')
    return moment_ms(start, "start")


class Change(StrEnum):
    """What a rebalance did to a subscription."""

    ASSIGNED = "assigned"
    REVOKED = "revoked"  # they are still ours until this has been dealt with: commit now
    LOST = "lost"  # they are somebody else's already
    RESET = "reset"  # the next offset was not there any more; no matter of the group


class Rebalanced(NamedTuple):
    """Partitions came or go. `positions` has where to read those that came from."""

    change: Change
    places: tuple[TopicPartition, ...]
    positions: Mapping[TopicPartition, int]


class Polled(NamedTuple):
    """What one poll of a stream brought; rebalances come before chunks."""

    rebalances: Sequence[Rebalanced] = ()
    chunks: Sequence[Chunk] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """How to read topics."""

    topics: tuple[str, ...]
    pattern: str | None
    group: str | None
    start: Start
    read_committed: bool
    instance_id: str | None
    max_poll_interval: float
    client_id: str


class Stream(Protocol):
    """Topics being read, alone or as a member of a group. One caller at a time, but for `wake`."""

    async def poll(self, timeout: float, max_messages: int) -> Polled:
        """What is there, waiting for it if nothing is. The rebalances before are dealt with."""

    def listen(self, listener: Callable[[Rebalanced], None]) -> None:
        """Where rebalances go that cannot wait for `poll` to return."""

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Remember offsets for the group."""

    async def committed(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """What the group remembers; partitions without are left out."""

    async def seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Read on from there."""

    async def find(self, place: TopicPartition, start: Start) -> int:
        """The offset that a start means in a partition."""

    async def pause(self, places: Collection[TopicPartition]) -> None:
        """Fetch nothing of these until `resume`."""

    async def resume(self, places: Collection[TopicPartition]) -> None:
        """Fetch them again."""

    async def ends(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the partitions end for this reader."""

    def wake(self) -> None:
        """Let a poll that waits return, from any thread."""

    async def close(self) -> None:
        """Leave the group."""


class GroupProgress(NamedTuple):
    """Offsets of a stream's group, to be committed in a transaction."""

    stream: Stream
    offsets: Mapping[TopicPartition, int]


class TransactionCore(Protocol):
    """One transaction that has begun."""

    async def write(self, outgoings: Sequence[Outgoing]) -> None:
        """Write messages in it; each is settled when it is written."""

    async def commit_offsets(self, progress: GroupProgress) -> None:
        """Make offsets part of it."""

    async def end(self, *, commit: bool) -> None:
        """Commit or abort; returns when that is safe."""


class Home(Protocol):
    """A broker, here or elsewhere."""

    partitioner: Partitioner

    def run(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Do it and wait for it, from a thread without an event loop."""

    async def arun(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it and wait for it, from somebody's event loop."""

    def check_may_wait(self) -> None:
        """Raise if this thread is one that others wait for: it would wait for itself."""

    def now_ms(self) -> int:
        """What time it is."""

    # --- publishing, from any thread --------------------------------------------------------------

    def enqueue(self, outgoing: Outgoing) -> None:
        """Send one message; it is settled later."""

    def write(self, topic: str, rows: Sequence[Row], done: WhenWritten) -> None:
        """Send many messages to a topic; `done` is called once, with all of them or a failure.

        It may take a while, for all of them are put into batches before it returns.
        """

    # --- reading ----------------------------------------------------------------------------------

    async def stream(self, options: StreamOptions) -> Stream:
        """Read topics."""

    async def find(self, place: TopicPartition, start: Start) -> int:
        """The offset that a start means in a partition."""

    async def read(self, place: TopicPartition, offset: int) -> tuple[Sequence[Chunk], int]:
        """Some of what is committed in a partition, from `offset` on, and where that ends."""

    # --- queues -----------------------------------------------------------------------------------

    @property
    def queues(self) -> QueueHome:
        """Its queues and exchanges; `NotSupported` where there are none."""

    # --- transactions -----------------------------------------------------------------------------

    async def begin(self, transactional_id: str, timeout: float) -> TransactionCore:
        """Begin one; whoever has begun one with that id before is fenced."""

    # --- administration ---------------------------------------------------------------------------

    async def create_topic(
        self,
        name: str,
        partitions: int | None,
        replication_factor: int | None,
        config: Mapping[str, str],
    ) -> None: ...

    async def delete_topic(self, name: str) -> None: ...

    async def add_partitions(self, name: str, total: int) -> None: ...

    async def alter_topic(self, name: str, config: Mapping[str, str | None]) -> None: ...

    async def topic_config(self, name: str) -> dict[str, str]: ...

    async def topic_names(self) -> list[str]: ...

    async def topic(self, name: str) -> TopicInfo: ...

    async def delete_records(self, place: TopicPartition, before: int) -> None: ...

    async def group_names(self) -> list[str]: ...

    async def group(self, name: str) -> GroupInfo: ...

    async def set_group_offsets(self, name: str, offsets: Mapping[TopicPartition, int]) -> None: ...

    async def delete_group(self, name: str) -> None: ...

    async def cluster(self) -> ClusterInfo: ...

    # --- the end ----------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""

    def close(self) -> None:
        """Wait for what is on its way, and stop. From any thread; a second call does nothing."""
