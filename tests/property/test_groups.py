"""Groups under random members, random time, lost answers and crashes, against their promises.

Each machine is driven as a service would drive it: decide, write the durable records down as bytes,
apply, keep the timers. A crash throws the state away and replays the bytes.
"""

from __future__ import annotations

import uuid
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
)

from penstock.errors import BrokerError
from penstock.machines import consumer_group_heartbeat
from penstock.machines.consumer_group import ConsumerGroup, ConsumerGroupState
from penstock.machines.consumer_group_steps import ConsumerGroupLimits
from penstock.machines.decision import (
    AnswerJoin,
    AnswerSync,
    Arm,
    Decision,
    Disarm,
    Parked,
    Timer,
    TimerKind,
)
from penstock.machines.group import decide
from penstock.machines.group_commands import (
    GroupCommand,
    GroupLimits,
    Heartbeat,
    LeaveGroup,
    Leaver,
    TimerFired,
)
from penstock.machines.group_state import Group, GroupState
from penstock.machines.offsets import GroupOffsets, OffsetStaged, TransactionEnded
from penstock.model.consumer_group_records import SubscribedTopic
from penstock.model.offsets_topic import (
    CommittedOffset,
    GroupStored,
    OffsetCommitted,
    decode,
    encode,
)
from support.effort import examples
from support.groups import NOW_MS, consumer_beat, join, subscription, sync

Bytes = tuple[bytes, bytes | None]


class Timers:
    """What a service keeps of `Arm` and `Disarm`."""

    def __init__(self) -> None:
        self.due_ms: dict[Timer, int] = {}

    def perform(self, decision: Decision, now_ms: int) -> None:
        for effect in decision.effects:
            if isinstance(effect, Arm):
                if not (effect.unless_armed and effect.timer in self.due_ms):
                    self.due_ms[effect.timer] = now_ms + effect.after_ms
            elif isinstance(effect, Disarm):
                self.due_ms.pop(effect.timer, None)

    def take_due(self, now_ms: int) -> Timer | None:
        due = [timer for timer, at in self.due_ms.items() if at <= now_ms]
        if not due:
            return None
        first = min(due, key=lambda timer: self.due_ms[timer])
        del self.due_ms[first]
        return first


class ClassicGroups(RuleBasedStateMachine):
    """One classic group with whoever comes."""

    members = Bundle("members")

    def __init__(self) -> None:
        super().__init__()
        self.limits = GroupLimits(initial_rebalance_delay_ms=0, max_size=5)
        self.group = Group("g")
        self.journal: list[Bytes] = []
        self.timers = Timers()
        self.now_ms = NOW_MS
        self.parked: dict[tuple[str, str], int] = {}
        self.count = 0

    def do(self, command: GroupCommand) -> Any:
        try:
            decision = decide(self.group, command, self.limits, self.now_ms)
        except BrokerError as refusal:
            return refusal
        self.journal += [encode(r) for r in decision.records if isinstance(r, GroupStored)]
        for record in decision.records:
            self.group.apply(record)
        if isinstance(decision.reply, Parked):
            self.parked[decision.reply.phase, decision.reply.member_id] = self.group.generation
        for effect in decision.effects:
            if isinstance(effect, AnswerJoin):
                waited = self.parked.pop(("join", effect.member_id), None)
                if waited is not None and effect.reply.error is None:
                    assert effect.reply.generation == self.group.generation
            elif isinstance(effect, AnswerSync):
                self.parked.pop(("sync", effect.member_id), None)
        self.timers.perform(decision, self.now_ms)
        return decision.reply

    # --- what members do --------------------------------------------------------------------------

    @rule(target=members, topic=st.sampled_from("ab"), two_steps=st.booleans())
    def a_dynamic_member_comes(self, topic: str, two_steps: bool) -> Any:
        self.count += 1
        member_id = f"m{self.count}"
        protocols = (("range", subscription(topic)),)
        self.do(join(fresh=member_id, member_id_required=two_steps, protocols=protocols))
        return member_id

    @rule(target=members, instance=st.sampled_from(["i1", "i2"]), skip=st.booleans())
    def a_static_member_comes(self, instance: str, skip: bool) -> Any:
        self.count += 1
        member_id = f"{instance}-{self.count}"
        self.do(join(fresh=member_id, instance_id=instance, can_skip_assignment=skip))
        return member_id

    @rule(member=members, topic=st.sampled_from("ab"))
    def it_joins_again(self, member: str, topic: str) -> None:
        instance = member.split("-")[0] if "-" in member else None
        protocols = (("range", subscription(topic)),)
        self.do(join(member, instance_id=instance, protocols=protocols))

    @rule(member=members, lag=st.integers(0, 1))
    def it_syncs(self, member: str, lag: int) -> None:
        assignments = {m: m.encode() for m in self.group.members}
        command = sync(member, self.group.generation - lag)._replace(assignments=assignments)
        self.do(command)

    @rule(member=members)
    def it_beats(self, member: str) -> None:
        self.do(Heartbeat(member, None, self.group.generation))

    @rule(member=consumes(members))
    def it_leaves(self, member: str) -> None:
        self.do(LeaveGroup((Leaver(member),)))
        assert member not in self.group.members

    @rule(seconds=st.integers(1, 70))
    def time_passes(self, seconds: int) -> None:
        self.now_ms += seconds * 1000
        while (timer := self.timers.take_due(self.now_ms)) is not None:
            self.do(TimerFired(timer))

    @rule()
    def everybody_does_what_is_asked(self) -> None:
        """Two rounds of well-behaved members always end in a settled group."""
        for _ in range(2):
            for member_id in list(self.group.given_ids):
                self.do(join(member_id))
            for member in list(self.group.members.values()):
                if self.group.state is GroupState.PREPARING_REBALANCE and not member.awaits_join:
                    self.do(
                        join(
                            member.member_id,
                            instance_id=member.instance_id,
                            protocols=member.protocols,
                        )
                    )
            for member_id in list(self.group.members):
                if self.group.state is GroupState.COMPLETING_REBALANCE:
                    self.it_syncs(member_id, 0)
        assert self.group.state in (GroupState.STABLE, GroupState.EMPTY)

    @rule()
    def crash(self) -> None:
        self.group = self.replayed()
        self.parked.clear()
        self.timers = Timers()
        for member in self.group.members.values():
            timer = Timer(TimerKind.SESSION, member.member_id)
            self.timers.due_ms[timer] = self.now_ms + member.session_timeout_ms

    # --- what the group promises ------------------------------------------------------------------

    def replayed(self) -> Group:
        group = Group("g")
        for key, value in self.journal:
            record = decode(key, value)
            assert isinstance(record, GroupStored)
            group.apply(record)
        return group

    @invariant()
    def a_parked_request_is_one_that_the_group_knows_of(self) -> None:
        joins = {m.member_id for m in self.group.members.values() if m.awaits_join}
        syncs = {m.member_id for m in self.group.members.values() if m.awaits_sync}
        assert {m for phase, m in self.parked if phase == "join"} == joins
        assert {m for phase, m in self.parked if phase == "sync"} == syncs

    @invariant()
    def nobody_waits_for_ever(self) -> None:
        armed = self.timers.due_ms
        if self.group.state is GroupState.PREPARING_REBALANCE:
            assert Timer(TimerKind.JOIN) in armed
        if self.group.state is GroupState.COMPLETING_REBALANCE:
            assert Timer(TimerKind.SYNC) in armed or self.group.leader in {
                m for phase, m in self.parked if phase == "sync"
            }
        for member in self.group.members.values():
            if member.is_new or not (member.awaits_join or member.awaits_sync):
                assert Timer(TimerKind.SESSION, member.member_id) in armed
        for member_id in self.group.given_ids:
            assert Timer(TimerKind.SESSION, member_id) in armed

    @invariant()
    def the_state_fits_the_members(self) -> None:
        group = self.group
        assert (group.leader in group.members) == bool(group.members)
        assert set(group.statics.values()) == {
            m.member_id for m in group.members.values() if m.instance_id is not None
        }
        if group.state is GroupState.EMPTY:
            assert not group.members
        else:
            assert group.members or group.given_ids
        if group.state is not GroupState.PREPARING_REBALANCE:
            assert not any(m.awaits_join for m in group.members.values())
        if group.state is not GroupState.COMPLETING_REBALANCE:
            assert not any(m.awaits_sync for m in group.members.values())

    @invariant()
    def a_settled_group_is_the_one_that_a_restart_would_find(self) -> None:
        if self.group.is_stored and self.group.state in (GroupState.STABLE, GroupState.EMPTY):
            assert self.replayed().as_stored() == self.group.as_stored()
        assert self.replayed().generation <= self.group.generation


class Client:
    """A KIP-848 consumer: what it believes. `owned` is what it may be reading right now."""

    def __init__(self, member_id: str, instance_id: str | None) -> None:
        self.member_id, self.instance_id = member_id, instance_id
        self.epoch = 0
        self.owned: set[tuple[uuid.UUID, int]] = set()
        self.told: set[tuple[uuid.UUID, int]] = set()  # the last assignment it heard of

    def spoken(self) -> dict[uuid.UUID, tuple[int, ...]]:
        by_topic: dict[uuid.UUID, tuple[int, ...]] = {}
        for topic_id, index in sorted(self.owned):
            by_topic[topic_id] = (*by_topic.get(topic_id, ()), index)
        return by_topic


class Book:
    """Topics for the machine."""

    def __init__(self) -> None:
        self.version = 0
        self.topics: dict[str, SubscribedTopic] = {}

    def find(self, name: str) -> SubscribedTopic | None:
        return self.topics.get(name)

    def names(self) -> list[str]:
        return list(self.topics)

    def put(self, name: str, count: int) -> None:
        self.version += 1
        known = self.topics.get(name)
        topic_id = known.topic_id if known else uuid.UUID(int=1000 + self.version)
        self.topics[name] = SubscribedTopic(topic_id, name, count)


class ConsumerGroups(RuleBasedStateMachine):
    """One KIP-848 group; clients give back late, lose answers, die; the broker crashes."""

    clients = Bundle("clients")

    def __init__(self) -> None:
        super().__init__()
        self.limits = ConsumerGroupLimits(max_size=6)
        self.group = ConsumerGroup("g")
        self.journal: list[Bytes] = []
        self.timers = Timers()
        self.now_ms = NOW_MS
        self.topics = Book()
        self.topics.put("a1", 4)
        self.seen_version = -1
        self.count = 0
        self.alive: dict[str, Client] = {}

    def keep(self, decision: Decision) -> Any:
        self.journal += [encode(record) for record in decision.records]
        for record in decision.records:
            self.group.apply(record)
        self.timers.perform(decision, self.now_ms)
        return decision.reply

    def beat(self, client: Client, *, answer_is_lost: bool = False, **says: Any) -> bool:
        owned = {} if client.epoch == 0 else client.spoken()
        command = consumer_beat(
            client.member_id,
            client.epoch,
            **{"owned": owned, "instance_id": client.instance_id} | says,
        )
        try:
            reply = self.keep(
                consumer_group_heartbeat.decide(
                    self.group,
                    command,
                    self.limits,
                    self.topics,
                    self.now_ms,
                    topics_changed=self.seen_version != self.topics.version,
                )
            )
            self.seen_version = self.topics.version
        except BrokerError:
            # Fenced, unknown or refused: a consumer lets go of everything and starts again.
            client.epoch, client.owned, client.told = 0, set(), set()
            return False
        if answer_is_lost:
            return True
        client.epoch = reply.member_epoch
        if reply.assignment is not None:
            client.told = {(t, i) for t, indexes in reply.assignment.items() for i in indexes}
            client.owned |= client.told  # what is new may be read at once
        return True

    @rule(
        target=clients,
        instance=st.sampled_from([None, None, "i1", "i2"]),
        says=st.sampled_from(
            [
                {"topic_names": ("a1",)},
                {"topic_names": ("a1", "b1")},
                {"topic_names": None, "topic_regex": "a.*"},
                {"topic_names": ("b1",), "server_assignor": "range"},
            ]
        ),
    )
    def a_client_comes(self, instance: str | None, says: dict[str, Any]) -> Any:
        self.count += 1
        client = Client(f"c{self.count}", instance)
        if not self.beat(client, **says):
            return multiple()
        self.alive[client.member_id] = client
        return client

    @rule(client=clients, lost=st.booleans())
    def it_beats(self, client: Client, lost: bool) -> None:
        if client.member_id in self.alive:
            self.beat(client, answer_is_lost=lost)

    @rule(client=clients)
    def it_gives_back_and_beats(self, client: Client) -> None:
        if client.member_id in self.alive:
            client.owned &= client.told
            self.beat(client)

    @rule(client=consumes(clients), only_for_a_while=st.booleans())
    def it_leaves(self, client: Client, only_for_a_while: bool) -> None:
        if self.alive.pop(client.member_id, None) is None or client.epoch == 0:
            return
        client.owned = set()
        client.epoch = -2 if only_for_a_while and client.instance_id else -1
        self.beat(client, owned=None)

    @rule(client=consumes(clients))
    def it_dies(self, client: Client) -> None:
        if self.alive.pop(client.member_id, None) is not None:
            client.owned = set()

    @rule(name=st.sampled_from(["a1", "a2", "b1"]), count=st.integers(1, 3))
    def a_topic_comes_or_grows(self, name: str, count: int) -> None:
        known = self.topics.find(name)
        self.topics.put(name, count + (known.partition_count if known else 0))

    @rule(name=st.sampled_from(["a1", "a2", "b1"]))
    def a_topic_goes(self, name: str) -> None:
        if self.topics.topics.pop(name, None) is not None:
            self.topics.version += 1

    @rule(seconds=st.integers(1, 50))
    def time_passes(self, seconds: int) -> None:
        self.now_ms += seconds * 1000
        while (timer := self.timers.take_due(self.now_ms)) is not None:
            self.keep(
                consumer_group_heartbeat.timer_fired(self.group, timer, self.topics, self.now_ms)
            )
            # A consumer that cannot heartbeat stops reading when its session is over.
            if timer.member_id not in self.group.members and timer.member_id in self.alive:
                client = self.alive[timer.member_id]
                client.epoch, client.owned, client.told = 0, set(), set()

    @rule()
    def crash(self) -> None:
        self.group = self.replayed()
        self.seen_version = -1
        self.timers = Timers()
        for member_id in self.group.members:
            timer = Timer(TimerKind.SESSION, member_id)
            self.timers.due_ms[timer] = self.now_ms + self.limits.session_timeout_ms

    def replayed(self, *, compacted: bool = False) -> ConsumerGroup:
        group = ConsumerGroup("g")
        last = {key: at for at, (key, _) in enumerate(self.journal)}
        for at, (key, value) in enumerate(self.journal):
            if not compacted or (last[key] == at and value is not None):
                record: Any = decode(key, value)
                group.apply(record)
        return group

    @invariant()
    def no_partition_is_read_by_two(self) -> None:
        reading = [p for client in self.alive.values() for p in client.owned]
        assert len(reading) == len(set(reading))

    @invariant()
    def the_owners_are_those_who_have(self) -> None:
        owners = {}
        for member_id, current in self.group.currents.items():
            for assignment in (current.assigned, current.pending_revocation):
                for topic_id, indexes in assignment.items():
                    for index in indexes:
                        assert (topic_id, index) not in owners
                        owners[topic_id, index] = member_id
        assert owners == self.group.owners

    @invariant()
    def a_restart_finds_the_same_group(self) -> None:
        for replayed in (self.replayed(), self.replayed(compacted=True)):
            for name in ConsumerGroup.__slots__:
                assert getattr(replayed, name) == getattr(self.group, name), name

    def teardown(self) -> None:
        """Left alone with clients that behave, the group settles and everything is read once."""
        dead = [m for m in self.group.members if m not in self.alive]
        for member_id in dead:
            timer = Timer(TimerKind.SESSION, member_id)
            self.keep(
                consumer_group_heartbeat.timer_fired(self.group, timer, self.topics, self.now_ms)
            )
        for client in self.alive.values():
            if client.epoch == 0:
                client.owned = set()
        for _ in range(2 * len(self.alive) + 4):
            for client in self.alive.values():
                client.owned &= client.told
                self.beat(client)
        if not self.group.members:
            return
        assert self.group.state is ConsumerGroupState.STABLE
        expected = {
            (topic.topic_id, index)
            for topic in self.group.topics.values()
            for index in range(topic.partition_count)
        }
        assert {p for client in self.alive.values() for p in client.owned} == expected
        self.no_partition_is_read_by_two()


class Offsets(RuleBasedStateMachine):
    """Commits, transactions and tombstones of one group against a plain model and a replay."""

    def __init__(self) -> None:
        super().__init__()
        self.offsets = GroupOffsets("g")
        self.journal: list[Any] = []
        self.committed: dict[int, tuple[int, int]] = {}  # partition: (offset, position)
        self.pending: dict[int, dict[int, tuple[int, int]]] = {}

    def write(self, record: Any) -> int:
        self.journal.append(record)
        self.offsets.apply(record, len(self.journal))
        return len(self.journal)

    def record(self, partition: int, offset: int | None) -> OffsetCommitted:
        value = None if offset is None else CommittedOffset(offset)
        return OffsetCommitted("g", "t", partition, value)

    @rule(partition=st.integers(0, 2), offset=st.integers(0, 99))
    def commit(self, partition: int, offset: int) -> None:
        self.committed[partition] = (offset, self.write(self.record(partition, offset)))

    @rule(partition=st.integers(0, 2), offset=st.integers(0, 99), producer=st.integers(1, 2))
    def stage(self, partition: int, offset: int, producer: int) -> None:
        position = self.write(OffsetStaged(producer, self.record(partition, offset)))
        self.pending.setdefault(producer, {})[partition] = (offset, position)

    @rule(producer=st.integers(1, 2), committed=st.booleans())
    def end(self, producer: int, committed: bool) -> None:
        self.write(TransactionEnded(producer, committed))
        for partition, (offset, position) in self.pending.pop(producer, {}).items():
            if committed and self.committed.get(partition, (0, -1))[1] < position:
                self.committed[partition] = (offset, position)

    @rule(partition=st.integers(0, 2))
    def forget(self, partition: int) -> None:
        self.write(self.record(partition, None))
        self.committed.pop(partition, None)
        for offsets in self.pending.values():
            offsets.pop(partition, None)

    @invariant()
    def it_is_as_the_model_says(self) -> None:
        assert {p.partition: v.offset for p, v in self.offsets} == {
            partition: offset for partition, (offset, _) in self.committed.items()
        }
        assert bool(self.offsets) == bool(self.committed or any(self.pending.values()))

    @invariant()
    def a_restart_finds_the_same_offsets(self) -> None:
        replayed = GroupOffsets("g")
        for position, record in enumerate(self.journal, 1):
            replayed.apply(record, position)
        assert dict(replayed) == dict(self.offsets)


_SETTINGS = settings(max_examples=examples(60), stateful_step_count=40)
TestClassicGroups = ClassicGroups.TestCase
TestClassicGroups.settings = _SETTINGS
TestConsumerGroups = ConsumerGroups.TestCase
TestConsumerGroups.settings = _SETTINGS
TestOffsets = Offsets.TestCase
TestOffsets.settings = _SETTINGS
