"""Members of groups for tests: commands with sensible defaults."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

from penstock.machines.decision import Decision, JoinReply, SyncReply
from penstock.machines.group import decide
from penstock.machines.group_commands import (
    GroupCommand,
    GroupLimits,
    Heartbeat,
    JoinGroup,
    SyncGroup,
)
from penstock.machines.group_state import Group
from penstock.model.fields import FieldWriter
from penstock.model.topic import Topic
from penstock.runtime.clock import ManualClock
from penstock.services.consumer_groups import ConsumerHeartbeat, HeartbeatReply
from penstock.services.group_config import GroupsConfig
from penstock.services.groups import Groups
from support.journal import MemoryJournal

NOW_MS = 1_700_000_000_000


def subscription(*topics: str) -> bytes:
    return FieldWriter().i16(0).strings(topics).blob(None).done()


def join(member_id: str = "", *, fresh: str = "", **changes: Any) -> JoinGroup:
    command = JoinGroup(
        member_id=member_id,
        fresh_member_id=fresh or "fresh",
        instance_id=None,
        client_id="client",
        client_host="/127.0.0.1",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=(("range", subscription("orders")),),
    )
    return command._replace(**changes)


def sync(member_id: str, generation: int, **assignments: bytes) -> SyncGroup:
    return SyncGroup(member_id, None, generation, None, None, assignments)


class Bench:
    """A classic group on a bench: commands in, decisions out, applied at once."""

    def __init__(self, limits: GroupLimits | None = None) -> None:
        self.group = Group("g")
        self.limits = limits or GroupLimits()
        self.now_ms = NOW_MS
        self.last = Decision()

    def do(self, command: GroupCommand) -> Any:
        self.last = decide(self.group, command, self.limits, self.now_ms)
        for record in self.last.records:
            self.group.apply(record)
        return self.last.reply

    def answers(self, kind: type) -> dict[str, Any]:
        """Replies that effects of the last decision gave to parked requests, by member."""
        return {e.member_id: e.reply for e in self.last.effects if isinstance(e, kind)}

    def timers(self, kind: type) -> list[Any]:
        return [e for e in self.last.effects if isinstance(e, kind)]

    def add(self, member_id: str, **changes: Any) -> None:
        """A member joins without the detour over MEMBER_ID_REQUIRED."""
        self.do(join(fresh=member_id, member_id_required=False, **changes))

    def stable(self, *member_ids: str) -> None:
        """Bring the group to a stable generation with these members."""
        for member_id in member_ids:
            self.add(member_id)
        for member_id in list(self.group.members):
            if not self.group.members[member_id].awaits_join:
                self.do(join(member_id))
        leader = self.group.leader or ""
        for member_id in self.group.members:
            if member_id != leader:
                self.do(sync(member_id, self.group.generation))
        assigned = {m: f"for {m}".encode() for m in self.group.members}
        self.do(SyncGroup(leader, None, self.group.generation, None, None, assigned))


class TopicBook:
    """Topics that a test writes down: what the group service needs of the real ones."""

    def __init__(self, **partitions: int) -> None:
        self.on_created: list[Any] = []
        self.on_changed: list[Any] = []
        self.on_deleted: list[Any] = []
        self._topics: dict[str, Topic] = {}
        self._gone = 0  # so that a topic created again has another id
        for name, count in partitions.items():
            self.put(name, count)

    def find(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def by_id(self, topic_id: uuid.UUID) -> Topic | None:
        return next((t for t in self._topics.values() if t.id == topic_id), None)

    def all(self) -> Collection[Topic]:
        return self._topics.values()

    def put(self, name: str, count: int) -> Topic:
        """Create a topic, or give it more partitions."""
        known = self._topics.get(name)
        topic = Topic(
            name=name,
            id=known.id if known else uuid.uuid5(uuid.NAMESPACE_DNS, f"{name}{self._gone}"),
            partition_count=count,
            replication_factor=1,
            created_at_ms=NOW_MS,
        )
        self._topics[name] = topic
        for tell in self.on_created if known is None else ():
            tell(topic)
        for tell in self.on_changed if known is not None else ():
            tell(topic, None)
        return topic

    async def remove(self, name: str) -> None:
        topic = self._topics.pop(name)
        self._gone += 1
        for tell in self.on_deleted:
            await tell(topic)


@asynccontextmanager
async def groups_on(
    journal: MemoryJournal, clock: ManualClock, config: GroupsConfig | None = None, **more: Any
) -> AsyncIterator[Groups]:
    """A loaded service, closed at the end."""
    more.setdefault("topics", TopicBook(orders=4))
    groups = Groups(journal, clock, config, **more)
    await groups.load()
    try:
        yield groups
    finally:
        await groups.close()


async def settle(turns: int = 20) -> None:
    """Let everything that can run, run."""
    for _ in range(turns):
        await asyncio.sleep(0)


async def joined_alone(groups: Groups, group_id: str, member_id: str) -> JoinReply:
    """One member takes the whole group to Stable."""
    first = await groups.join(group_id, join(fresh=member_id, member_id_required=False))
    synced: SyncReply = await groups.sync(
        group_id, sync(member_id, first.generation, **{member_id: b"all"})
    )
    assert synced.error is None
    return first


def beat(member_id: str, generation: int) -> Heartbeat:
    return Heartbeat(member_id, None, generation)


def consumer_beat(member_id: str, epoch: int = 0, **changes: Any) -> ConsumerHeartbeat:
    """A KIP-848 heartbeat: a full one when it joins, else one that says nothing new."""
    joining = epoch == 0
    command = ConsumerHeartbeat(
        member_id=member_id,
        member_epoch=epoch,
        instance_id=None,
        rack_id=None,
        client_id="client",
        client_host="/127.0.0.1",
        rebalance_timeout_ms=60_000 if joining else -1,
        topic_names=("orders",) if joining else None,
        topic_regex=None,
        server_assignor=None,
        owned={} if joining else None,
    )
    return command._replace(**changes)


class Consumer:
    """A KIP-848 member that does what it is told: it takes and gives back at once."""

    def __init__(self, groups: Groups, member_id: str, group_id: str = "g", **says: Any) -> None:
        self.groups, self.member_id, self.group_id, self.says = groups, member_id, group_id, says
        self.epoch = 0
        self.owned: dict[uuid.UUID, tuple[int, ...]] = {}

    async def beat(self, **changes: Any) -> HeartbeatReply:
        says = {"owned": {} if self.epoch == 0 else self.owned}
        if self.epoch == 0:
            says |= self.says
        command = consumer_beat(self.member_id, self.epoch, **(says | changes))
        reply = await self.groups.consumers.heartbeat(self.group_id, command)
        self.epoch = reply.member_epoch
        if reply.assignment is not None:
            self.owned = dict(reply.assignment)
        return reply

    async def leave(self) -> None:
        leaving = consumer_beat(self.member_id, -1)
        reply = await self.groups.consumers.heartbeat(self.group_id, leaving)
        assert reply.member_epoch == -1

    @property
    def partitions(self) -> list[int]:
        return sorted(index for indexes in self.owned.values() for index in indexes)


async def converge(*consumers: Consumer, rounds: int = 8) -> None:
    for _ in range(rounds):
        for consumer in consumers:
            await consumer.beat()
