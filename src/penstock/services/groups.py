"""Consumer groups: the verbs that the doors use.

`Groups` is the coordinator of every group of this broker. It turns requests into commands of the
machines and lets the store make the changes durable. `consumers` has the verbs of the KIP-848
protocol, `shares` those of share groups, `offsets` those about offsets.

Call `load` before clients come, `close` when they are gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Collection
from typing import Any

from penstock.errors import (
    BrokerError,
    GroupIdNotFound,
    InvalidGroupId,
    NonEmptyGroup,
    UnknownMember,
)
from penstock.machines.decision import Decision, JoinReply, SyncReply, Timer, TimerKind
from penstock.machines.group_commands import (
    GroupCommand,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Leaver,
    LeaveReply,
    SyncGroup,
)
from penstock.machines.group_state import MemberIdWithdrawn
from penstock.runtime.clock import Clock
from penstock.services.consumer_groups import (
    ConsumerGroupVerbs,
    SettingsOf,
)
from penstock.services.group_config import GroupsConfig
from penstock.services.group_lane import Lane
from penstock.services.group_mirror import GroupMirror, GroupTable
from penstock.services.group_offsets import OffsetVerbs, group_tombstones
from penstock.services.group_store import GroupStore, StateJournal
from penstock.services.group_topics import GroupTopics, TopicSource
from penstock.services.group_views import DescribedGroup, ListedGroup, described, listed
from penstock.services.share_groups import ShareGroupVerbs

__all__ = [
    "Groups",
    "GroupsConfig",
    "Heartbeat",
    "JoinGroup",
    "JoinReply",
    "LeaveGroup",
    "LeaveReply",
    "Leaver",
    "SyncGroup",
    "SyncReply",
    "new_member_id",
]

log = logging.getLogger(__name__)

_TIME_IS_UP = {
    TimerKind.SESSION: "said nothing for too long",
    TimerKind.JOIN: "had their time to join",
    TimerKind.SYNC: "had their time to ask for their partitions",
    TimerKind.REBALANCE: "had its time to give partitions back",
}


class Groups:
    """The coordinator of all groups."""

    def __init__(
        self,
        journal: StateJournal,
        clock: Clock,
        config: GroupsConfig | None = None,
        *,
        topics: TopicSource,
        settings: SettingsOf = lambda group_id: None,
        table: GroupTable | None = None,
        node_id: int = 1,
    ) -> None:
        self._config = config or GroupsConfig()
        self._clock = clock
        self._mirror = GroupMirror(table, node_id)
        self._store = GroupStore(
            journal, clock, fire=self._timer_fired, touched=self._mirror.changed
        )
        self.offsets = OffsetVerbs(self._store, self._config.offsets)
        seen_topics = GroupTopics(topics, self.offsets.forget_topics)
        self.shares = ShareGroupVerbs(
            self._store, self._mirror, seen_topics, self._config.share, settings
        )
        self.consumers = ConsumerGroupVerbs(
            self._store,
            self._mirror,
            seen_topics,
            self._config.classic,
            self._config.consumer,
            settings,
        )
        self._upkeep: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Groups {self._store!r}>"

    # --- start and stop ---------------------------------------------------------------------------

    async def load(self) -> None:
        """Read the journal; members of the groups found have one session to show themselves."""
        await self._store.replay()
        for lane in self._store.existing():
            verbs = self.consumers if lane.share is None else self.shares
            for timer, after_ms, _ in verbs.rearm(lane):
                self._store.timers.arm(lane.group_id, timer, after_ms)
        await self._mirror.start(self._store.existing())
        self._upkeep = asyncio.get_running_loop().create_task(self._expire_now_and_then())

    async def close(self) -> None:
        if self._upkeep is not None:
            self._upkeep.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._upkeep
        await self._store.close()
        await self._mirror.close()

    async def _expire_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self._config.offsets.check_interval_ms / 1000)
            try:
                await self.offsets.expire()
            except BrokerError as failure:
                log.warning("expired offsets were not forgotten: %s", failure)

    # --- what happens elsewhere -------------------------------------------------------------------

    def on_marker(
        self, partition: int, producer_id: int, producer_epoch: int, committed: bool
    ) -> None:
        """A transaction's marker is durable in `partition` of `__consumer_offsets`."""
        self._store.on_marker(partition, producer_id, committed)

    # --- the classic protocol ---------------------------------------------------------------------

    async def join(self, group_id: str, command: JoinGroup) -> JoinReply:
        """Returns when the join phase is over, which may take the rebalance time-out."""
        reply: JoinReply = await self._classic(group_id, command)
        return reply

    async def sync(self, group_id: str, command: SyncGroup) -> SyncReply:
        """Returns when the leader has assigned."""
        reply: SyncReply = await self._classic(group_id, command)
        return reply

    async def heartbeat(self, group_id: str, command: Heartbeat) -> None:
        """Raises `RebalanceInProgress` when the member should join again."""
        refusal = await self._classic(group_id, command)
        if refusal is not None:
            raise refusal

    async def leave(self, group_id: str, command: LeaveGroup) -> LeaveReply:
        reply: LeaveReply = await self._classic(group_id, command)
        return reply

    async def _classic(self, group_id: str, command: GroupCommand) -> Any:
        if not group_id:
            raise InvalidGroupId("a group needs a name")
        if not isinstance(command, JoinGroup) and self._store.find(group_id) is None:
            raise UnknownMember(f"no group {group_id}")
        return await self.consumers.classic(group_id, command)

    def _timer_fired(self, lane: Lane, timer: Timer, now_ms: int) -> Decision:
        is_usual = timer.kind is TimerKind.JOIN  # how a rebalance goes on
        who = f"member {timer.member_id}" if timer.member_id else "members"
        level = logging.DEBUG if is_usual else logging.INFO
        log.log(level, "group %s: %s %s", lane.group_id, who, _TIME_IS_UP[timer.kind])
        if lane.share is not None:
            return self.shares.timer_fired(lane.share, timer, now_ms)
        return self.consumers.timer_fired(lane, timer, now_ms)

    # --- looking ----------------------------------------------------------------------------------

    def list_groups(
        self, *, states: Collection[str] = (), types: Collection[str] = ()
    ) -> list[ListedGroup]:
        """Groups in one of `states` and of one of `types`; names in any case, empty means all."""
        wanted_states = {state.strip().lower() for state in states}
        wanted_types = {group_type.strip().lower() for group_type in types}
        return [
            shown
            for shown in map(listed, self._store.existing())
            if (not wanted_states or shown.state.lower() in wanted_states)
            and (not wanted_types or shown.group_type in wanted_types)
        ]

    def describe(self, group_id: str) -> DescribedGroup:
        """A classic group; `GroupIdNotFound` when there is none of that name."""
        lane = self._store.find(group_id)
        if lane is None:
            raise GroupIdNotFound(f"Group {group_id} not found.")
        if lane.consumer is not None or lane.share is not None:
            raise GroupIdNotFound(f"Group {group_id} is not a classic group.")
        return described(lane)

    # --- forgetting -------------------------------------------------------------------------------

    async def delete(self, group_id: str) -> None:
        """Forget a group that has no members, its offsets, and what it knows of records."""

        def decide(lane: Lane, now_ms: int) -> Decision:
            if not lane.exists:
                raise GroupIdNotFound(f"Group {group_id} not found.")
            if lane.has_members:
                raise NonEmptyGroup(f"group {group_id} has members")
            given = [MemberIdWithdrawn(member_id) for member_id in lane.classic.given_ids]
            return Decision([*given, *lane.offsets.forget_all().records, *group_tombstones(lane)])

        share = self.shares.find(group_id)
        started = {} if share is None else dict(share.started)
        await self._store.change(group_id, decide)
        self.shares.forgotten(group_id, started)


def new_member_id(prefix: str) -> str:
    """An id that no member had before; it starts with what people recognise."""
    return f"{prefix}-{uuid.uuid4()}"
