"""Incremental fetch sessions (KIP-227): a consumer names its partitions once, then only changes.

    request (session id, epoch)        meaning
    (0, -1)                            one full fetch, no session
    (0, 0) or (id, 0)                  full fetch, begin a new session (and drop the old one)
    (id, n)                            incremental: changes only; n must be the one expected
    (id, -1)                           full fetch, close the session

A session names its topics either by name or by id, as the request did that began it; one that
comes in the other way is told to begin anew. A session with no partition left ends.

The cache is bounded: some clients ask for a new session with every request (notes in Sarama and
others), so the session that was idle longest goes first. A client whose session is gone is told so
and begins a new one.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from dataclasses import dataclass, field
from uuid import UUID

from penstock.errors import (
    FetchSessionNotFound,
    FetchSessionTopicIdMismatch,
    InvalidFetchSessionEpoch,
)

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
_EPOCH_LIMIT = 0x7FFFFFFF

TopicKey = str | UUID
PartitionKey = tuple[TopicKey, int]


@dataclass(slots=True)
class WantedPartition:
    """What a client wants of one partition, and what it was last told."""

    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    told: tuple[int, int, int] | None = None  # high watermark, last stable and start offset


@dataclass(slots=True)
class FetchSession:
    """The partitions of one consumer, in the order in which they are served."""

    id: int
    epoch: int
    by_id: bool
    partitions: OrderedDict[PartitionKey, WantedPartition] = field(default_factory=OrderedDict)

    def is_news(
        self, key: PartitionKey, error_code: int, bytes_: int, told: tuple[int, int, int]
    ) -> bool:
        """Whether an incremental response must mention this partition; remembers what is told.

        A partition that had data or an error moves to the end, so that it does not starve others.
        """
        wanted = self.partitions.get(key)
        if wanted is None:
            return True
        news = bool(bytes_) or bool(error_code) or wanted.told != told
        wanted.told = None if error_code else told
        if bytes_:
            self.partitions.move_to_end(key)
        return news


class FetchSessions:
    """Every session of this broker, least recently used first."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self,
        session_id: int,
        partitions: OrderedDict[PartitionKey, WantedPartition],
        *,
        by_id: bool = False,
    ) -> FetchSession:
        """A new session over `partitions`, in place of `session_id` if that is one."""
        self._sessions.pop(session_id, None)
        while len(self._sessions) >= self._slots:
            self._sessions.popitem(last=False)
        new_id = 0
        while new_id == 0 or new_id in self._sessions:
            new_id = random.getrandbits(31)
        session = FetchSession(new_id, 1, by_id, partitions)
        self._sessions[new_id] = session
        return session

    def close(self, session_id: int) -> None:
        self._sessions.pop(session_id, None)

    def resume(
        self,
        session_id: int,
        epoch: int,
        changes: OrderedDict[PartitionKey, WantedPartition],
        forgotten: list[PartitionKey],
        *,
        by_id: bool = False,
    ) -> FetchSession | None:
        """The session with the request's changes made, its epoch moved on; None when that ends it.

        What a request both names and forgets is forgotten.
        """
        session = self._sessions.get(session_id)
        if session is None:
            raise FetchSessionNotFound(f"no fetch session {session_id}")
        if session.epoch != epoch:
            raise InvalidFetchSessionEpoch(
                f"fetch session {session_id} is at epoch {session.epoch}, not {epoch}"
            )
        if session.by_id != by_id:
            raise FetchSessionTopicIdMismatch(
                f"fetch session {session_id} names topics by {'id' if session.by_id else 'name'}"
            )
        session.epoch = 1 if epoch == _EPOCH_LIMIT else epoch + 1
        self._sessions.move_to_end(session_id)
        for key, wanted in changes.items():
            known = session.partitions.get(key)
            wanted.told = known.told if known else None
            session.partitions[key] = wanted
        for key in forgotten:
            session.partitions.pop(key, None)
        if not session.partitions:
            del self._sessions[session_id]
            return None
        return session
