"""The partitions that share groups read, each loaded when it is first asked for.

What a group knows of a partition lies in a journal beside it, named by a digest of the group's name
because that may be anything. The group remembers which partitions it has begun (`started`), so a
group that is deleted takes its journals with it, and a new one of the same name begins anew.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator

from penstock.errors import UnknownTopicOrPartition
from penstock.log import layout
from penstock.log.flusher import Flusher
from penstock.log.store import LogStore
from penstock.machines.queue import Queue as Machine
from penstock.model.queue_journal import NOTHING_MARKED, Checkpoint
from penstock.model.share_group_records import StartedTopics
from penstock.model.topic import Topic, topic_id_text
from penstock.runtime.clock import Clock
from penstock.services.partitions import Partitions
from penstock.services.queue_journal import JOURNAL_SETTINGS, QueueJournal
from penstock.services.replica import Replica
from penstock.services.share_dead_letters import ShareDeadLetters
from penstock.services.share_groups import ShareGroupVerbs
from penstock.services.share_partition import SharePartition
from penstock.services.share_rules import ShareRules
from penstock.services.topics import Topics

_Key = tuple[str, str, int]  # group id, topic, partition


class SharePartitions:
    """Share partitions by group, topic and partition number."""

    def __init__(
        self,
        groups: ShareGroupVerbs,
        topics: Topics,
        partitions: Partitions,
        store: LogStore,
        flusher: Flusher,
        clock: Clock,
        rules: Callable[[str], ShareRules],
        dead_letters: ShareDeadLetters,
    ) -> None:
        self._groups = groups
        self._topics = topics
        self._partitions = partitions
        self._store = store
        self._flusher = flusher
        self._clock = clock
        self.rules = rules  # of a group, by its id
        self._dead_letters = dead_letters
        self._loaded: dict[_Key, SharePartition] = {}
        self._loading: dict[_Key, asyncio.Task[SharePartition]] = {}
        groups.on_deleted.append(self._group_deleted)
        topics.on_deleted.append(self._topic_deleted)

    def __repr__(self) -> str:
        return f"<SharePartitions {len(self._loaded)} loaded>"

    def __iter__(self) -> Iterator[SharePartition]:
        return iter(list(self._loaded.values()))

    # --- finding ----------------------------------------------------------------------------------

    def find(self, group_id: str, topic: str, partition: int) -> SharePartition | None:
        """The partition as the group sees it, if it is loaded."""
        return self._loaded.get((group_id, topic, partition))

    async def get(self, group_id: str, topic: Topic, partition: int) -> SharePartition:
        """The same, loaded if need be; the group begins to read it if it has not yet."""
        key = (group_id, topic.name, partition)
        found = self._loaded.get(key)
        if found is not None:
            return found
        if not topic.has_partition(partition):
            raise UnknownTopicOrPartition(f"there is no partition {partition} of {topic.name!r}")
        loading = self._loading.get(key)
        if loading is None:
            loading = self._loading[key] = asyncio.create_task(
                self._load(group_id, topic, partition)
            )
            loading.add_done_callback(lambda _: self._loading.pop(key, None))
        # Shielded: one client that goes away must not end the loading that others wait for.
        return await asyncio.shield(loading)

    async def _load(self, group_id: str, topic: Topic, partition: int) -> SharePartition:
        group = self._groups.get(group_id)
        replica = await self._partitions.replica(topic.name, partition)
        machine = Machine(self.rules(group_id).queue)
        journal = self._journal(group_id, topic, partition, machine)
        known = 0
        if group.has_started(topic.id, partition):
            known = await _replay(machine, journal, replica)
        else:
            start = await self._first_offset(self.rules(group_id), replica)
            await self._begin(machine, journal, start)
            await self._groups.started(group_id, topic, partition)
        machine.recovered()
        made = SharePartition(
            group_id,
            topic,
            replica,
            machine,
            journal,
            self._clock,
            lambda: self.rules(group_id),
            self._dead_letters,
        )
        # Before anything is written: a checkpoint only knows of records that were looked at.
        await made.look_to(known)
        if replica.log.retired:
            made.close(deleted=True)
            self._store.delete_journals(topic.id, purpose(group_id))
            await self._groups.stop_topics(group_id, [topic.id], only_unread=False)
            raise UnknownTopicOrPartition(f"topic {topic.name!r} has just been deleted")
        self._loaded[group_id, topic.name, partition] = made
        return made

    def _journal(
        self, group_id: str, topic: Topic, partition: int, machine: Machine
    ) -> QueueJournal:
        name = layout.journal_name(topic_id_text(topic.id), purpose(group_id))
        log = self._store.get(name, topic.id, partition, JOURNAL_SETTINGS)
        return QueueJournal(log, self._flusher, self._clock, machine.handed)

    async def _begin(self, machine: Machine, journal: QueueJournal, start: int) -> None:
        """Everything below `start` is done with; whatever an older journal says, forget it."""
        beginning = Checkpoint(start, start, NOTHING_MARKED, (), (), (), ())
        machine.apply(beginning)
        journal.checkpoint(beginning)
        await journal.write_safely()

    async def _first_offset(self, rules: ShareRules, replica: Replica) -> int:
        """Where a group begins that has never read the partition."""
        end = replica.visible_end(rules.read_committed)
        if rules.offset_reset == "earliest":
            return replica.log.start_offset
        age_ms = rules.reset_age_ms
        if age_ms is None:
            return end
        since_ms = self._clock.now_ms() - age_ms
        found = await replica.log.find_timestamp(since_ms, upper_offset=end)
        return end if found is None else found.offset

    # --- moving and forgetting --------------------------------------------------------------------

    async def start_at(self, group_id: str, topic: Topic, partition: int, offset: int) -> None:
        """Let a group without members go on from `offset`, whatever it did before."""
        self._groups.require_empty(group_id)
        replica = await self._partitions.replica(topic.name, partition)
        first, last = replica.log.start_offset, replica.high_watermark
        self._close((group_id, topic.name, partition), deleted=False)
        machine = Machine(self.rules(group_id).queue)
        journal = self._journal(group_id, topic, partition, machine)
        await self._begin(machine, journal, min(max(offset, first), last))
        journal.close()
        await self._groups.started(group_id, topic, partition)

    async def forget(self, group_id: str, topic: Topic) -> None:
        """Let a group without members forget a topic: it will begin anew."""
        self._groups.require_empty(group_id)
        self._drop(group_id, topic.name)
        await self._groups.stop_topics(group_id, [topic.id])
        self._store.delete_journals(topic.id, purpose(group_id))

    def _drop(self, group_id: str, topic: str) -> None:
        for key in list(self._loaded):
            if key[:2] == (group_id, topic):
                self._close(key, deleted=True)

    def _close(self, key: _Key, *, deleted: bool) -> None:
        found = self._loaded.pop(key, None)
        if found is not None:
            found.close(deleted=deleted)

    def _group_deleted(self, group_id: str, started: StartedTopics) -> None:
        for topic_id, topic in started.items():
            self._drop(group_id, topic.name)
            self._store.delete_journals(topic_id, purpose(group_id))

    async def _topic_deleted(self, topic: Topic) -> None:
        for group in self._groups.all():
            if topic.id in group.started:
                self._drop(group.group_id, topic.name)
                self._store.delete_journals(topic.id, purpose(group.group_id))
                await self._groups.stop_topics(group.group_id, [topic.id], only_unread=False)

    async def close(self) -> None:
        """Write what a restart needs."""
        for task in list(self._loading.values()):
            task.cancel()
        for key in list(self._loaded):
            self._close(key, deleted=False)


def purpose(group_id: str) -> str:
    """What a group's journals are called."""
    return f"share-{hashlib.sha256(group_id.encode()).hexdigest()[:32]}"


async def _replay(machine: Machine, journal: QueueJournal, replica: Replica) -> int:
    """Bring the machine up to date; returns an offset above all that the journal speaks of."""
    await journal.replay(machine.apply)
    orphans = machine.state.orphans(replica.log.end_offset)
    if orphans is not None:
        machine.apply(orphans)
        journal.add(orphans)
        await journal.write_safely()
    return max(machine.state.states.top(), machine.state.counts.top())
