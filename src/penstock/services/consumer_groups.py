"""Groups by the KIP-848 protocol, and classic members among them.

A group is of one kind at a time. What a request finds decides: a heartbeat that joins turns a
classic group into a KIP-848 one, a JoinGroup turns an empty KIP-848 group into a classic one
(`machines/group_migration.py`). `migration` says which of this is allowed for groups with members.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from penstock.errors import (
    GroupIdNotFound,
    InconsistentGroupProtocol,
    InvalidRequest,
    UnknownMember,
    UnsupportedVersion,
)
from penstock.machines import (
    consumer_group_classic,
    consumer_group_heartbeat,
    group,
    group_migration,
)
from penstock.machines.consumer_group import ConsumerGroup, MemberState
from penstock.machines.consumer_group_checks import tombstones
from penstock.machines.consumer_group_heartbeat import ConsumerHeartbeat, HeartbeatReply
from penstock.machines.consumer_group_steps import ConsumerGroupLimits, preferred_assignor
from penstock.machines.decision import Arm, Decision, Timer, TimerKind
from penstock.machines.group_commands import (
    GroupCommand,
    GroupLimits,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    SyncGroup,
    TimerFired,
)
from penstock.machines.group_state import Group
from penstock.model import consumer_protocol
from penstock.model.group_config import GroupSettings
from penstock.model.group_record import Assignment
from penstock.services.group_config import ConsumerGroupsConfig
from penstock.services.group_lane import Lane
from penstock.services.group_mirror import GroupMirror
from penstock.services.group_store import GroupStore
from penstock.services.group_topics import GroupTopics
from penstock.services.group_views import (
    AssignedTopic,
    DescribedConsumer,
    DescribedConsumerGroup,
)

__all__ = ["ConsumerGroupVerbs", "ConsumerHeartbeat", "HeartbeatReply"]

SettingsOf = Callable[[str], GroupSettings | None]  # by group id


class ConsumerGroupVerbs:
    """What can be done with KIP-848 groups, and with any group a classic member speaks to."""

    def __init__(
        self,
        store: GroupStore,
        mirror: GroupMirror,
        topics: GroupTopics,
        classic: GroupLimits,
        config: ConsumerGroupsConfig,
        settings: SettingsOf,
    ) -> None:
        self._store = store
        self._mirror = mirror
        self._topics = topics
        self._classic = classic
        self._config = config
        self._settings = settings

    def limits(self, group_id: str) -> ConsumerGroupLimits:
        """The broker's limits with the group's own session time-out and heartbeat interval."""
        own = self._settings(group_id)
        if own is None:
            return self._config.limits
        return replace(
            self._config.limits,
            session_timeout_ms=own.consumer_session_timeout_ms,
            heartbeat_interval_ms=own.consumer_heartbeat_interval_ms,
        )

    # --- KIP-848 members --------------------------------------------------------------------------

    async def heartbeat(self, group_id: str, command: ConsumerHeartbeat) -> HeartbeatReply:
        """One step of a member: it joins, changes, reconciles or leaves."""
        if not group_id:
            raise InvalidRequest("a group needs a name")
        if not self._config.enabled:
            raise UnsupportedVersion("group.coordinator.rebalance.protocols leaves out consumer")
        reply: HeartbeatReply = await self._change(group_id, command)
        return reply

    # --- classic members --------------------------------------------------------------------------

    async def classic(self, group_id: str, command: GroupCommand) -> Any:
        """A request of the classic protocol, to whatever kind the group is of."""
        return await self._change(group_id, command)

    async def _change(self, group_id: str, command: ConsumerHeartbeat | GroupCommand) -> Any:
        version = self._topics.version

        def decide(lane: Lane, now_ms: int) -> Decision:
            self._mirror.heard_from(lane, now_ms)
            if isinstance(command, ConsumerHeartbeat):
                return self._heartbeat(lane, command, now_ms)
            return self._classic_command(lane, command, now_ms)

        reply = await self._store.change(group_id, decide)
        lane = self._store.find(group_id)
        if lane is not None and not isinstance(command, Heartbeat | SyncGroup | LeaveGroup):
            lane.topics_version = version
        return reply

    def _heartbeat(self, lane: Lane, command: ConsumerHeartbeat, now_ms: int) -> Decision:
        limits = self.limits(lane.group_id)
        consumer_group_heartbeat.check_request(command, limits)
        if lane.share is not None:
            raise GroupIdNotFound(f"Group {lane.group_id} is not a consumer group.")
        before = Decision()
        group = lane.consumer
        if group is None:
            if command.member_epoch != 0:
                raise GroupIdNotFound(f"no consumer group {lane.group_id}")
            self._check_upgrade(lane.classic, limits)
            group, before = group_migration.upgrade(lane.classic, self._topics, now_ms)
        decision = consumer_group_heartbeat.decide(
            group,
            command,
            limits,
            self._topics,
            now_ms,
            topics_changed=lane.topics_version != self._topics.version,
        )
        return self._maybe_downgrade(group, _joined(before, decision), now_ms)

    def _check_upgrade(self, classic: Group, limits: ConsumerGroupLimits) -> None:
        if not classic.members:
            return
        allowed = self._config.migration in ("upgrade", "bidirectional")
        is_consumer = classic.protocol_type == consumer_protocol.PROTOCOL_TYPE
        if not allowed or not is_consumer or len(classic.members) >= limits.max_size:
            raise GroupIdNotFound(f"Group {classic.group_id} is not a consumer group.")

    def _classic_command(self, lane: Lane, command: GroupCommand, now_ms: int) -> Decision:
        consumer = lane.consumer
        if lane.share is not None:
            if isinstance(command, JoinGroup):
                raise InconsistentGroupProtocol(f"Group {lane.group_id} is a share group.")
            raise UnknownMember(f"Group {lane.group_id} is a share group.")
        if consumer is None:
            return group.decide(lane.classic, command, self._classic, now_ms)
        if not consumer.members and isinstance(command, JoinGroup):
            # Nobody is there who would mind: the group becomes a classic one.
            joined = group.decide(Group(lane.group_id), command, self._classic, now_ms)
            return _joined(Decision(tombstones(consumer)), joined)
        decision = self._classic_in_consumer(lane, consumer, command, now_ms)
        return self._maybe_downgrade(consumer, decision, now_ms)

    def _classic_in_consumer(
        self, lane: Lane, consumer: ConsumerGroup, command: GroupCommand, now_ms: int
    ) -> Decision:
        match command:
            case JoinGroup():
                return consumer_group_classic.join(
                    consumer,
                    command,
                    self._classic,
                    self.limits(lane.group_id),
                    self._topics,
                    now_ms,
                    topics_changed=lane.topics_version != self._topics.version,
                )
            case SyncGroup():
                return consumer_group_classic.sync(consumer, command, now_ms)
            case Heartbeat():
                return consumer_group_classic.heartbeat(consumer, command, now_ms)
            case LeaveGroup():
                return consumer_group_classic.leave(consumer, command, self._topics, now_ms)
            case TimerFired(timer):
                return consumer_group_heartbeat.timer_fired(consumer, timer, self._topics, now_ms)

    def _maybe_downgrade(self, group: ConsumerGroup, decision: Decision, now_ms: int) -> Decision:
        """Turn back into a classic group when this decision takes the last KIP-848 member out."""
        if not decision.records or self._config.migration not in ("downgrade", "bidirectional"):
            return decision
        after = group.copy()
        for record in decision.records:
            after.apply(record)
        lost_one = any(member_id not in after.members for member_id in group.members)
        if not lost_one or not group_migration.may_downgrade(after, self._classic):
            return decision
        turned_back = group_migration.downgrade(after, group.epoch, self._classic, now_ms)
        return _joined(decision, turned_back)._replace(reply=decision.reply)

    def timer_fired(self, lane: Lane, timer: Timer, now_ms: int) -> Decision:
        return self._classic_command(lane, TimerFired(timer), now_ms)

    # --- restart ----------------------------------------------------------------------------------

    def rearm(self, lane: Lane) -> list[Arm]:
        """The timers of a group that was just read from the journal."""
        consumer = lane.consumer
        if consumer is None:
            return [
                Arm(Timer(TimerKind.SESSION, member.member_id), member.session_timeout_ms)
                for member in lane.classic.members.values()
            ]
        armed = []
        for member_id, subscription in consumer.members.items():
            timeout_ms = self.limits(lane.group_id).session_timeout_ms
            if subscription.classic is not None:
                timeout_ms = subscription.classic.session_timeout_ms
            armed.append(Arm(Timer(TimerKind.SESSION, member_id), timeout_ms))
            if consumer.current(member_id).state == MemberState.UNREVOKED_PARTITIONS:
                kind = TimerKind.REBALANCE if subscription.classic is None else TimerKind.JOIN
                armed.append(Arm(Timer(kind, member_id), subscription.rebalance_timeout_ms))
        return armed

    # --- looking ----------------------------------------------------------------------------------

    def describe(self, group_id: str) -> DescribedConsumerGroup:
        """A KIP-848 group; `GroupIdNotFound` when there is none of that name."""
        lane = self._store.find(group_id)
        if lane is None:
            raise GroupIdNotFound(f"Group {group_id} not found.")
        if lane.consumer is None:
            raise GroupIdNotFound(f"Group {group_id} is not a consumer group.")
        group = lane.consumer
        return DescribedConsumerGroup(
            group_id,
            str(group.state),
            group.epoch,
            group.target_epoch,
            preferred_assignor(group, self.limits(group_id)),
            tuple(self._described(group, member_id) for member_id in group.members),
        )

    def _described(self, group: ConsumerGroup, member_id: str) -> DescribedConsumer:
        subscription, current = group.members[member_id], group.current(member_id)
        return DescribedConsumer(
            member_id,
            subscription.instance_id,
            subscription.rack_id,
            current.member_epoch,
            subscription.client_id,
            subscription.client_host,
            subscription.topic_names,
            subscription.topic_regex,
            self._named(current.held()),
            self._named(group.targets.get(member_id, {})),
            subscription.classic is not None,
        )

    def _named(self, assignment: Assignment) -> tuple[AssignedTopic, ...]:
        named = (
            (self._topics.name_of(topic_id), topic_id, p) for topic_id, p in assignment.items()
        )
        return tuple(AssignedTopic(topic_id, name, p) for name, topic_id, p in named if name)


def _joined(first: Decision, second: Decision) -> Decision:
    return Decision(
        [*first.records, *second.records], [*first.effects, *second.effects], second.reply
    )
