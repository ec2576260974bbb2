"""One group inside the service: its machine, its offsets, its parked requests, its turn.

A lane exists for as long as anything of the group does. Changes that must reach the disk hold
`lock`; everything between two awaits needs no lock, because the broker has one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

from penstock.errors import RebalanceInProgress
from penstock.machines.consumer_group import ConsumerGroup
from penstock.machines.decision import JoinReply, Parked, SyncReply
from penstock.machines.group_state import Group, GroupState
from penstock.machines.offsets import GroupOffsets, OffsetStaged, TransactionEnded
from penstock.machines.share_group import ShareGroup
from penstock.model import consumer_group_records as modern
from penstock.model.offsets_topic import GroupStored, OffsetCommitted
from penstock.model.share_group_records import SHARE_GROUP_RECORDS, ShareGroupRecord

GroupType = Literal["classic", "consumer", "share"]
_CONSUMER_RECORDS = (
    modern.GroupEpochBumped,
    modern.SubscribedTopicsChanged,
    modern.MemberSubscribed,
    modern.TargetEpochReached,
    modern.TargetAssigned,
    modern.MemberReconciled,
    modern.RegexResolved,
)
DURABLE = (OffsetCommitted, OffsetStaged, GroupStored, *_CONSUMER_RECORDS, *SHARE_GROUP_RECORDS)


class Lane:
    """Everything the service keeps of one group."""

    __slots__ = (
        "classic",
        "commits",
        "consumer",
        "created_at_ms",
        "flushing",
        "group_id",
        "last_heartbeat_ms",
        "lock",
        "offsets",
        "parked",
        "partition",
        "share",
        "topics_version",
        "users",
    )

    def __init__(self, group_id: str, partition: int, now_ms: int) -> None:
        self.group_id = group_id
        self.partition = partition  # of the journal
        self.classic = Group(group_id)
        self.consumer: ConsumerGroup | None = None  # set when the group is a KIP-848 one
        self.share: ShareGroup | None = None  # set when the group is a share group
        self.offsets = GroupOffsets(group_id)
        self.lock = asyncio.Lock()
        self.users = 0  # who hold or await the lane; it is not dropped under them
        self.parked: dict[tuple[str, str], asyncio.Future[Any]] = {}
        self.commits: list[tuple[Any, asyncio.Future[Any]]] = []  # waiting for the next append
        self.flushing = False
        self.created_at_ms = now_ms
        self.last_heartbeat_ms = -1
        self.topics_version = -1  # of the topics the KIP-848 target was last computed from

    def __repr__(self) -> str:
        return f"<Lane {self.share or self.consumer or self.classic!r} {self.offsets!r}>"

    # --- questions --------------------------------------------------------------------------------

    @property
    def exists(self) -> bool:
        """Whether clients see a group here: one with members, a record, or offsets."""
        if self.consumer is not None or self.share is not None:
            return True
        return not self.classic.is_gone or bool(self.offsets)

    @property
    def is_idle(self) -> bool:
        """Nothing is known and nobody is waiting: the lane may be dropped."""
        return not (self.exists or self.users or self.commits or self.flushing)

    @property
    def group_type(self) -> GroupType:
        if self.share is not None:
            return "share"
        return "classic" if self.consumer is None else "consumer"

    @property
    def state(self) -> str:
        if not self.exists:
            return GroupState.DEAD
        if self.share is not None:
            return self.share.state
        return self.classic.state if self.consumer is None else self.consumer.state

    @property
    def has_members(self) -> bool:
        if self.share is not None:
            return bool(self.share.members)
        if self.consumer is not None:
            return bool(self.consumer.members)
        return bool(self.classic.members)

    # --- change -----------------------------------------------------------------------------------

    def apply(self, record: Any, position: int) -> None:
        """Let a record change whichever machine it belongs to."""
        match record:
            case OffsetCommitted() | OffsetStaged() | TransactionEnded():
                self.offsets.apply(record, position)
            case GroupStored(_, value):
                if value is not None:
                    self.consumer = None
                self.classic.apply(record)
            case _ if isinstance(record, _CONSUMER_RECORDS):
                self._apply_modern(record)
            case _ if isinstance(record, SHARE_GROUP_RECORDS):
                self._apply_share(record)
            case _:
                self.classic.apply(record)

    def _apply_modern(self, record: modern.ConsumerGroupRecord) -> None:
        if self.consumer is None:
            # A tombstone of a group that has become something else since changes nothing.
            if record[-1] is None:
                return
            self.consumer = ConsumerGroup(self.group_id)
            self.classic = Group(self.group_id)
        self.consumer.apply(record)
        if self.consumer.is_gone:
            self.consumer = None

    def _apply_share(self, record: ShareGroupRecord) -> None:
        if self.share is None:
            if record[-1] is None:
                return
            self.share = ShareGroup(self.group_id)
        self.share.apply(record)
        if self.share.is_gone:
            self.share = None

    def apply_all(self, records: Sequence[Any], position: int) -> None:
        for record in records:
            self.apply(record, position)

    # --- parked requests --------------------------------------------------------------------------

    def park(self, parked: Parked) -> asyncio.Future[Any]:
        """A future that an effect will resolve. An older request of the same member is let go."""
        key = (parked.phase, parked.member_id)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        again = RebalanceInProgress("this member asked again on another connection")
        if parked.phase == "join":
            self.answer("join", parked.member_id, JoinReply(parked.member_id, error=again))
        else:
            self.answer("sync", parked.member_id, SyncReply(error=again))
        self.parked[key] = future
        return future

    def answer(self, phase: str, member_id: str, reply: JoinReply | SyncReply) -> None:
        future = self.parked.pop((phase, member_id), None)
        if future is not None and not future.done():
            future.set_result(reply)
