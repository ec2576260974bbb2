"""What a group's machine answers: records to keep, effects to perform, a reply to give.

`Draft` is how a decision is made without changing anything: each record is applied to a copy of
the state, so that the next step of the same decision sees it. The copy is made only when the first
record comes, so a decision that changes nothing (a heartbeat) costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from penstock.errors import BrokerError


class TimerKind(StrEnum):
    """Why a group wants to be woken."""

    SESSION = "session"  # a member has been silent too long
    JOIN = "join"  # members had their time to join a rebalance
    SYNC = "sync"  # members had their time to ask for their assignment
    REBALANCE = "rebalance"  # a KIP-848 member had its time to give partitions back


class Timer(NamedTuple):
    """A clock of one group; arming it again moves it."""

    kind: TimerKind
    member_id: str = ""


class Arm(NamedTuple):
    timer: Timer
    after_ms: int
    unless_armed: bool = False  # leave a timer that runs as it is


class Disarm(NamedTuple):
    timer: Timer


class JoinedMember(NamedTuple):
    """A member as its leader sees it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinReply(NamedTuple):
    """The answer to JoinGroup."""

    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()
    error: BrokerError | None = None


class SyncReply(NamedTuple):
    """The answer to SyncGroup."""

    assignment: bytes = b""
    protocol_type: str | None = None
    protocol: str | None = None
    error: BrokerError | None = None


class AnswerJoin(NamedTuple):
    """Answer the JoinGroup that this member left parked, if there is one."""

    member_id: str
    reply: JoinReply


class AnswerSync(NamedTuple):
    """Answer the SyncGroup that this member left parked, if there is one."""

    member_id: str
    reply: SyncReply


Effect = Arm | Disarm | AnswerJoin | AnswerSync


class Parked(NamedTuple):
    """Instead of a reply: an effect, of this decision or a later one, will answer this member."""

    member_id: str
    phase: Literal["join", "sync"]


class Decision(NamedTuple):
    """Persist the durable records, apply all of them in order, perform the effects, reply."""

    records: Sequence[Any] = ()
    effects: Sequence[Effect] = ()
    reply: Any = None


class _Machine(Protocol):
    def copy(self: M) -> M: ...

    def apply(self, record: Any) -> None: ...


M = TypeVar("M", bound=_Machine)


class Draft(Generic[M]):
    """A decision being made about `state`, which is not changed."""

    __slots__ = ("_copied", "effects", "now_ms", "records", "state")

    def __init__(self, state: M, now_ms: int) -> None:
        self.state = state
        self.now_ms = now_ms
        self.records: list[Any] = []
        self.effects: list[Effect] = []
        self._copied = False

    def record(self, record: Any) -> None:
        """Decide that `record` happens; the following steps see it happened."""
        if not self._copied:
            self.state = self.state.copy()
            self._copied = True
        self.state.apply(record)
        self.records.append(record)

    def arm(self, kind: TimerKind, after_ms: int, member_id: str = "") -> None:
        self.effects.append(Arm(Timer(kind, member_id), after_ms))

    def disarm(self, kind: TimerKind, member_id: str = "") -> None:
        self.effects.append(Disarm(Timer(kind, member_id)))

    def decided(self, reply: Any = None) -> Decision:
        return Decision(self.records, self.effects, reply)
