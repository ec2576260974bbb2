"""Share sessions (KIP-932): a member names the partitions it reads once, then only changes.

    epoch of the request        meaning
    0                           begin a session, in place of the member's old one (ShareFetch)
    n                           the next request of the session; n must be the one expected
    -1                          the last request: the session closes and lets go of its records

A session belongs to one member of one group and to the connection that began it. There are only so
many: a member for which there is no room is told so.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

from penstock.errors import (
    InvalidShareSessionEpoch,
    ShareSessionLimitReached,
    ShareSessionNotFound,
)

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_EPOCH_LIMIT = 0x7FFFFFFF

SessionKey = tuple[str, str]  # group id, member id
PartitionKey = tuple[UUID, int]


@dataclass(slots=True, eq=False)
class ShareSession:
    """The partitions of one member, in the order in which they are served."""

    key: SessionKey
    epoch: int = 1
    partitions: OrderedDict[PartitionKey, None] = field(default_factory=OrderedDict)

    def change(self, added: Iterable[PartitionKey], forgotten: Iterable[PartitionKey]) -> None:
        for key in added:
            self.partitions.setdefault(key)
        for key in forgotten:
            self.partitions.pop(key, None)


class ShareSessions:
    """Every share session of this broker."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._sessions: dict[SessionKey, ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, key: SessionKey) -> ShareSession:
        self._sessions.pop(key, None)
        if len(self._sessions) >= self._slots:
            raise ShareSessionLimitReached(f"there are {self._slots} share sessions already")
        session = self._sessions[key] = ShareSession(key)
        return session

    def resume(self, key: SessionKey, epoch: int) -> ShareSession:
        """The session, its epoch moved on; for the final epoch, the session, removed."""
        session = self._sessions.get(key)
        if session is None:
            raise ShareSessionNotFound(f"member {key[1]} of group {key[0]} has no share session")
        if epoch == FINAL_EPOCH:
            del self._sessions[key]
            return session
        if session.epoch != epoch:
            raise InvalidShareSessionEpoch(
                f"the share session of {key[1]} is at epoch {session.epoch}, not {epoch}"
            )
        session.epoch = 1 if epoch == _EPOCH_LIMIT else epoch + 1
        return session

    def close(self, session: ShareSession) -> bool:
        """End a session whose connection is gone; whether it was still there."""
        if self._sessions.get(session.key) is session:
            del self._sessions[session.key]
            return True
        return False
