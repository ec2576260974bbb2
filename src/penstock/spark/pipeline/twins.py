"""Two clusters and what a mirror must know of both: topics, settings, ends, groups.

Asked through librdkafka's admin client, which is what every Kafka-protocol cluster understands.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.spark.errors import BrokerUnreachable, SparkConnectorError

if TYPE_CHECKING:
    from penstock.spark.pipeline.mirror import Mirror

T = TypeVar("T")
PATIENCE_S = 30
NOT_YET = (3, 5, 6)  # unknown topic or partition, leader not available, not the leader
OWN = 1  # the source of a setting that was given to the topic itself
# Settings that fit one cluster's replicas only, or would put other timestamps in place of the
# records' own or refuse those: a copy does without them.
LEFT_OUT = re.compile(
    r".*\.replication\..*|min\.insync\.replicas|unclean\.leader\.election\.enable"
    r"|message\.timestamp\..*"
)


def client_options(bootstrap: str, options: dict[str, str]) -> dict[str, Any]:
    """The options of the data source as librdkafka's."""
    given = {k.removeprefix("kafka."): v for k, v in options.items() if k.startswith("kafka.")}
    return {"bootstrap.servers": bootstrap, "log_level": 0, **given}


def patiently(ask: Callable[[], T]) -> T:
    """Ask again while a topic that has just been made is not known to every broker."""
    from confluent_kafka import KafkaException

    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return ask()
        except KafkaException as failure:
            if failure.args[0].code() not in NOT_YET or time.monotonic() > until:
                raise
        time.sleep(0.1)


class Twins:
    """The source and the target of one mirror."""

    def __init__(self, said: Mirror) -> None:
        from confluent_kafka.admin import AdminClient

        self.said = said
        self.source_options = client_options(said.source.bootstrap, said.source.options)
        self.target_options = client_options(said.target.bootstrap, said.target.options)
        self.source = AdminClient(self.source_options)
        self.target = AdminClient(self.target_options)

    def twin(self, topic: str) -> str:
        """The topic's name in the target."""
        return f"{self.said.prefix}{topic}"

    def match_topics(self) -> list[str]:
        """The topics to copy, made in the target with the same partitions and settings."""
        wanted = self._wanted()
        there = self._partitions(self.target)
        for topic, count in wanted.items():
            twin = self.twin(topic)
            if twin not in there:
                self._create(twin, count)
            elif there[twin] < count:
                self._widen(twin, count)
            elif there[twin] > count:
                raise SparkConnectorError(
                    f"{twin} has {there[twin]} partitions in the target and {count} in the source"
                )
        self._await({self.twin(topic): count for topic, count in wanted.items()})
        for topic in wanted:
            self._match_settings(topic)
        return sorted(wanted)

    def _await(self, wanted: dict[str, int]) -> None:
        """A cluster answers before all its brokers know of a new topic."""
        until = time.monotonic() + PATIENCE_S
        while missing := wanted.items() - self._partitions(self.target).items():
            if time.monotonic() > until:
                names = ", ".join(sorted(name for name, _ in missing))
                raise SparkConnectorError(f"the target does not show its new topics: {names}")
            time.sleep(0.1)

    def _wanted(self) -> dict[str, int]:
        pattern = re.compile(self.said.topics)
        own = self.said.prefix if self.said.source.bootstrap == self.said.target.bootstrap else ""
        return {
            name: count
            for name, count in self._partitions(self.source).items()
            if pattern.fullmatch(name)
            and not name.startswith("__")
            and not (own and name.startswith(own))
        }

    def _partitions(self, admin: Any) -> dict[str, int]:
        from confluent_kafka import KafkaException

        try:
            found = admin.list_topics(timeout=PATIENCE_S).topics
        except KafkaException as failure:
            side = "source" if admin is self.source else "target"
            raise BrokerUnreachable(f"the {side}: {failure.args[0].str()}") from None
        return {name: len(topic.partitions) for name, topic in found.items()}

    def _create(self, name: str, count: int) -> None:
        from confluent_kafka.admin import NewTopic

        self.target.create_topics([NewTopic(name, count)])[name].result(PATIENCE_S)

    def _widen(self, name: str, count: int) -> None:
        from confluent_kafka.admin import NewPartitions

        self.target.create_partitions([NewPartitions(name, count)])[name].result(PATIENCE_S)

    def settings(self, topic: str) -> dict[str, str]:
        """The settings given to a topic of the source itself."""
        return {name: value for name, (value, own) in self._describe(self.source, topic) if own}

    def _describe(self, admin: Any, topic: str) -> list[tuple[str, tuple[str, bool]]]:
        from confluent_kafka.admin import ConfigResource

        resource = ConfigResource("TOPIC", topic)
        found = patiently(lambda: admin.describe_configs([resource])[resource].result(PATIENCE_S))
        return [(name, (entry.value, entry.source == OWN)) for name, entry in found.items()]

    def _match_settings(self, topic: str) -> None:
        """What the target does not know (a setting of another kind of broker) is left out."""
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

        twin = self.twin(topic)
        there = dict(self._describe(self.target, twin))
        changes = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in self.settings(topic).items()
            if name in there and there[name][0] != value and not LEFT_OUT.fullmatch(name)
        ]
        if changes:
            resource = ConfigResource("TOPIC", twin, incremental_configs=changes)
            alter = self.target.incremental_alter_configs
            patiently(lambda: alter([resource])[resource].result(PATIENCE_S))

    def ends(self, topics: list[str], *, of: str, which: str = "latest") -> dict[str, list[int]]:
        """The first or the last offsets of all partitions, by the topic's name in the source."""
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import OffsetSpec

        admin = self.source if of == "source" else self.target
        counts = self._partitions(admin)
        spec = OffsetSpec.earliest() if which == "earliest" else OffsetSpec.latest()
        found: dict[str, list[int]] = {}
        for topic in topics:
            name = topic if of == "source" else self.twin(topic)
            asked = {TopicPartition(name, part): spec for part in range(counts.get(name, 0))}
            offsets = patiently(partial(_offsets, admin, asked))
            found[topic] = [offsets[part] for part in sorted(offsets)]
        return found

    def survey(self, done: dict[str, dict[str, int]]) -> dict[str, Any]:
        """What a run would do."""
        wanted = self._wanted()
        there = self._partitions(self.target)
        ends = self.ends(list(wanted), of="source")
        firsts = self.ends(list(wanted), of="source", which="earliest")
        rows = []
        for topic, count in sorted(wanted.items()):
            at = done.get(topic, {})
            pairs = zip(ends[topic], firsts[topic], strict=True)
            waits = sum(end - at.get(str(p), first) for p, (end, first) in enumerate(pairs))
            rows.append({
                "topic": topic, "target": self.twin(topic), "partitions": count,
                "there": self.twin(topic) in there, "records": waits,
                "settings": self.settings(topic),
            })  # fmt: skip
        return {"topics": rows}


def _offsets(admin: Any, asked: dict[Any, Any]) -> dict[int, int]:
    answers = admin.list_offsets(asked) if asked else {}
    return {tp.partition: answer.result(PATIENCE_S).offset for tp, answer in answers.items()}
