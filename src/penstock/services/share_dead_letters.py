"""Dead letters of share groups (KIP-1191): records that were rejected, or given out too often.

A group names the topic, which must allow it: its name has the broker's prefix, and its setting
`errors.deadletterqueue.group.enable` is true. What is written there says where the record came
from, for whom and why, in headers; with `errors.deadletterqueue.copy.record.enable` it is the
record itself with these added.

A record whose letter cannot be written is let go all the same, with a line in the log: otherwise a
missing topic would stop the group.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from penstock.config import BrokerConfig
from penstock.errors import BrokerError, PolicyViolation
from penstock.machines.queue_outcome import DeadLetters
from penstock.model.batch import whole_batches
from penstock.model.queue_settings import DeadReason
from penstock.model.records import Headers, Record, build_batch, read_records
from penstock.runtime.clock import Clock
from penstock.services.partitions import Partitions
from penstock.services.share_partition import SharePartition
from penstock.services.share_rules import ShareRules
from penstock.services.topics import Topics

_log = logging.getLogger("penstock")

ENABLED = "errors.deadletterqueue.group.enable"
_AT_ONCE = 256
_READ_BYTES = 1 << 20
_WORDS = {
    DeadReason.REJECTED: "The record was rejected by a consumer.",
    DeadReason.DELIVERY_LIMIT: "The record reached the delivery count limit.",
}

_Letter = tuple[bytes | None, bytes | None, Headers]


class ShareDeadLetters:
    """Writes the dead letters of all share groups."""

    def __init__(
        self,
        topics: Topics,
        partitions: Partitions,
        clock: Clock,
        config: Callable[[], BrokerConfig],
        rules: Callable[[str], ShareRules],
    ) -> None:
        self._topics = topics
        self._partitions = partitions
        self._clock = clock
        self._config = config
        self._rules = rules

    async def __call__(self, partition: SharePartition, letters: DeadLetters) -> None:
        """Return when the letters are safe, or when it is clear that they cannot be."""
        try:
            await self._write(partition, letters)
        except BrokerError as failure:
            _log.warning(
                "records %s of %s that group %s gave up have no dead letters: %s",
                letters.ranges, partition.replica.log.name, partition.group_id, failure,
            )  # fmt: skip

    async def _write(self, source: SharePartition, letters: DeadLetters) -> None:
        rules = self._rules(source.group_id)
        name = rules.dead_letter_topic
        await self._require_topic(name)
        topic = self._topics.get(name)
        number = source.replica.partition % topic.partition_count
        target = await self._partitions.replica(name, number)
        offsets = [offset for low, high in letters.ranges for offset in range(low, high)]
        for at in range(0, len(offsets), _AT_ONCE):
            some = offsets[at : at + _AT_ONCE]
            records = await _records(source, some) if rules.copies_dead_letters else {}
            batch = build_batch(
                _letters(source, some, records, letters.reason), timestamp_ms=self._clock.now_ms()
            )
            appended = target.append_own(batch, self._clock.now_ms())
            await target.safe(appended.end_offset)

    async def _require_topic(self, name: str) -> None:
        config = self._config()
        prefix = config.errors_deadletterqueue_topic_name_prefix
        if name.startswith("__"):
            raise PolicyViolation(f"{name} is a topic of the broker's own")
        if not name.startswith(prefix):
            raise PolicyViolation(f"{name} does not begin with {prefix}")
        if self._topics.find(name) is None:
            if not config.errors_deadletterqueue_auto_create_topics_enable:
                raise PolicyViolation(f"there is no topic {name}")
            await self._topics.create(name, config={ENABLED: "true"})
        elif not self._topics.settings(name).errors_deadletterqueue_group_enable:
            raise PolicyViolation(f"topic {name} has not {ENABLED}=true")


def _letters(
    source: SharePartition,
    offsets: Sequence[int],
    records: dict[int, Record],
    reason: DeadReason,
) -> Iterator[_Letter]:
    for offset in offsets:
        count = source.machine.delivery_count(offset) + 1
        why = [
            ("__dlq.errors.topic", source.topic.name.encode()),
            ("__dlq.errors.partition", b"%d" % source.replica.partition),
            ("__dlq.errors.offset", b"%d" % offset),
            ("__dlq.errors.group", source.group_id.encode()),
            ("__dlq.errors.delivery.count", b"%d" % count),
            ("__dlq.errors.message", _WORDS.get(reason, str(reason)).encode()),
        ]
        record = records.get(offset)
        if record is None:
            yield None, None, why
        else:
            yield record.key, record.value, [*record.headers, *why]


async def _records(source: SharePartition, offsets: Sequence[int]) -> dict[int, Record]:
    """The records themselves, as far as the log still has them."""
    log = source.replica.log
    found: dict[int, Record] = {}
    wanted = dict.fromkeys(offsets)
    position = -1
    for offset in offsets:
        if offset < position or not log.start_offset <= offset < log.end_offset:
            continue
        chunk = await log.read(offset, _READ_BYTES, upper_offset=offsets[-1] + 1)
        view, at = memoryview(chunk.data), 0
        for header in whole_batches(view):
            for record in read_records(view[at : at + header.size]):
                if record.offset in wanted:
                    found[record.offset] = record
            at += header.size
        position = chunk.next_offset
    return found
