"""Share groups (KIP-932): who their members are, and which partitions they have begun to read.

The records themselves are given out and acknowledged elsewhere (`share_partitions.py`); here is the
coordinator's half, which lives in `__consumer_offsets` beside the other kinds of groups.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace

from penstock.errors import (
    GroupIdNotFound,
    GroupSubscribedToTopic,
    InvalidGroupId,
    NonEmptyGroup,
    UnsupportedVersion,
)
from penstock.machines import share_group_heartbeat
from penstock.machines.consumer_group_heartbeat import HeartbeatReply
from penstock.machines.decision import Arm, Decision, Timer, TimerKind
from penstock.machines.share_group import ShareGroup
from penstock.machines.share_group_heartbeat import ASSIGNOR, ShareGroupLimits, ShareHeartbeat
from penstock.model.group_config import GroupSettings
from penstock.model.group_record import Assignment
from penstock.model.share_group_records import (
    SharePartitionsStarted,
    StartedTopic,
    StartedTopics,
)
from penstock.model.topic import Topic
from penstock.services.group_config import ShareGroupsConfig
from penstock.services.group_lane import Lane
from penstock.services.group_mirror import GroupMirror
from penstock.services.group_store import GroupStore
from penstock.services.group_topics import GroupTopics
from penstock.services.group_views import AssignedTopic, DescribedShareGroup, DescribedSharer

__all__ = ["ShareGroup", "ShareGroupVerbs", "ShareHeartbeat"]

SettingsOf = Callable[[str], GroupSettings | None]  # by group id


class ShareGroupVerbs:
    """What can be done with share groups, their records apart."""

    def __init__(
        self,
        store: GroupStore,
        mirror: GroupMirror,
        topics: GroupTopics,
        config: ShareGroupsConfig,
        settings: SettingsOf,
    ) -> None:
        self._store = store
        self._mirror = mirror
        self._topics = topics
        self._config = config
        self._settings = settings
        self.on_deleted: list[Callable[[str, StartedTopics], None]] = []

    def __repr__(self) -> str:
        return f"<ShareGroupVerbs {self._store!r}>"

    # --- members ----------------------------------------------------------------------------------

    async def heartbeat(self, group_id: str, command: ShareHeartbeat) -> HeartbeatReply:
        """One step of a member: it joins, changes or leaves."""
        if not group_id:
            raise InvalidGroupId("a group needs a name")
        if not self._config.enabled:
            raise UnsupportedVersion("group.coordinator.rebalance.protocols leaves out share")
        version = self._topics.version

        def decide(lane: Lane, now_ms: int) -> Decision:
            share_group_heartbeat.check_request(command)
            group = self._share(lane, join=command.member_epoch == 0)
            self._mirror.heard_from(lane, now_ms)
            changed = lane.topics_version != self._topics.version
            return share_group_heartbeat.decide(
                group,
                command,
                self._limits(group_id),
                self._topics,
                now_ms,
                topics_changed=changed,
            )

        reply: HeartbeatReply = await self._store.change(group_id, decide)
        lane = self._store.find(group_id)
        if lane is not None and command.member_epoch >= 0:
            lane.topics_version = version
        return reply

    def _share(self, lane: Lane, *, join: bool) -> ShareGroup:
        if lane.share is not None:
            return lane.share
        if lane.exists:
            raise GroupIdNotFound(f"Group {lane.group_id} is not a share group.")
        if not join:
            raise GroupIdNotFound(f"Group {lane.group_id} not found.")
        return ShareGroup(lane.group_id)

    def _limits(self, group_id: str) -> ShareGroupLimits:
        own = self._settings(group_id)
        if own is None:
            return self._config.limits
        return replace(
            self._config.limits,
            session_timeout_ms=own.share_session_timeout_ms,
            heartbeat_interval_ms=own.share_heartbeat_interval_ms,
        )

    def timer_fired(self, group: ShareGroup, timer: Timer, now_ms: int) -> Decision:
        return share_group_heartbeat.timer_fired(group, timer, now_ms)

    def rearm(self, lane: Lane) -> list[Arm]:
        """The timers of a group that was just read from the journal."""
        if lane.share is None:
            return []
        timeout_ms = self._limits(lane.group_id).session_timeout_ms
        return [Arm(Timer(TimerKind.SESSION, member), timeout_ms) for member in lane.share.members]

    # --- partitions -------------------------------------------------------------------------------

    async def started(self, group_id: str, topic: Topic, partition: int) -> None:
        """Remember that the group has a journal for a partition."""

        def decide(lane: Lane, now_ms: int) -> Decision:
            group = self._share(lane, join=False)
            if group.has_started(topic.id, partition):
                return Decision()
            known = group.started.get(topic.id)
            partitions = {partition, *(known.partitions if known else ())}
            entry = StartedTopic(topic.name, tuple(sorted(partitions)))
            return Decision([SharePartitionsStarted(group_id, {**group.started, topic.id: entry})])

        await self._store.change(group_id, decide)

    async def stop_topics(
        self, group_id: str, topic_ids: Iterable[uuid.UUID], *, only_unread: bool = True
    ) -> None:
        """Forget that the group ever read these topics."""
        gone = dict.fromkeys(topic_ids)

        def decide(lane: Lane, now_ms: int) -> Decision:
            if lane.share is None or not any(topic_id in lane.share.started for topic_id in gone):
                return Decision()
            started = lane.share.started
            if only_unread:
                for topic_id in gone:
                    known = started.get(topic_id)
                    if known is not None and lane.share.reads_topic(known.name):
                        raise GroupSubscribedToTopic(f"group {group_id} reads {known.name}")
            left = {key: topic for key, topic in started.items() if key not in gone}
            return Decision([SharePartitionsStarted(group_id, left)])

        await self._store.change(group_id, decide)

    def forgotten(self, group_id: str, started: StartedTopics) -> None:
        """A group that had begun to read these was deleted."""
        for listener in self.on_deleted:
            listener(group_id, started)

    # --- looking ----------------------------------------------------------------------------------

    def find(self, group_id: str) -> ShareGroup | None:
        lane = self._store.find(group_id)
        return None if lane is None else lane.share

    def get(self, group_id: str) -> ShareGroup:
        """A share group; `GroupIdNotFound` when there is none of that name."""
        lane = self._store.find(group_id)
        if lane is None:
            raise GroupIdNotFound(f"Group {group_id} not found.")
        return self._share(lane, join=False)

    def require_empty(self, group_id: str) -> ShareGroup:
        """The same, if it has no members; `NonEmptyGroup` otherwise."""
        group = self.get(group_id)
        if group.members:
            raise NonEmptyGroup(f"group {group_id} has members")
        return group

    def all(self) -> list[ShareGroup]:
        return [lane.share for lane in self._store.existing() if lane.share is not None]

    def describe(self, group_id: str) -> DescribedShareGroup:
        group = self.get(group_id)
        return DescribedShareGroup(
            group_id,
            str(group.state),
            group.epoch,
            group.target_epoch,
            ASSIGNOR,
            tuple(self._described(group, member_id) for member_id in group.members),
        )

    def _described(self, group: ShareGroup, member_id: str) -> DescribedSharer:
        subscription, current = group.members[member_id], group.current(member_id)
        return DescribedSharer(
            member_id,
            subscription.rack_id,
            current.member_epoch,
            subscription.client_id,
            subscription.client_host,
            subscription.topic_names,
            self._named(current.assigned),
        )

    def _named(self, assignment: Assignment) -> tuple[AssignedTopic, ...]:
        named = (
            (self._topics.name_of(topic_id), topic_id, p) for topic_id, p in assignment.items()
        )
        return tuple(AssignedTopic(topic_id, name, p) for name, topic_id, p in named if name)
