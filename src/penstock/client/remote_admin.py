"""Administration over the network: librdkafka's admin client."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.client.errors import InvalidArgument, NotFound, TimedOut
from penstock.client.home import EARLIEST, LATEST, Start, start_timestamp
from penstock.client.remote_errors import kafka_errors
from penstock.client.views import ClusterInfo, GroupInfo, MemberInfo, PartitionInfo, TopicInfo
from penstock.model.ids import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_SEEN_SECONDS = 5.0
_MOST_PARTITIONS = 100_000  # of librdkafka; servers have limits of their own


class RemoteAdmin:
    """Topics and groups. Every call blocks until the server has answered."""

    def __init__(self, client: AdminClient, timeout: float) -> None:
        self._client = client
        self._timeout = timeout

    def _answer(self, future: Any, what: str) -> Any:
        with kafka_errors(what):
            try:
                return future.result(timeout=self._timeout)
            except TimeoutError:
                raise TimedOut(f"{what}: no answer within {self._timeout} s") from None
            except (TypeError, ValueError) as failure:
                raise InvalidArgument(f"{what}: {failure}") from failure

    def _metadata(self, topic: str | None = None) -> Any:
        with kafka_errors("asking for topics"):
            if topic is None:
                return self._client.list_topics(timeout=self._timeout)
            return self._client.list_topics(topic, timeout=self._timeout)

    # --- topics -----------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int | None,
        replication_factor: int | None,
        config: Mapping[str, str],
    ) -> None:
        from confluent_kafka.admin import NewTopic

        what = f"creating topic {name!r}"
        if partitions is not None and not 1 <= partitions <= _MOST_PARTITIONS:
            raise InvalidArgument(f"{what}: a topic has 1 to {_MOST_PARTITIONS} partitions")
        with kafka_errors(what):
            topic = NewTopic(
                name,
                num_partitions=-1 if partitions is None else partitions,
                replication_factor=-1 if replication_factor is None else replication_factor,
                config=dict(config),
            )
            futures = self._client.create_topics([topic], operation_timeout=self._timeout)
        self._answer(futures[name], what)
        self._wait_for(name, partitions or 1)

    def _wait_for(self, name: str, partitions: int = 1) -> None:
        """A server of several processes may need a moment until all of them know the topic."""
        deadline = time.monotonic() + min(self._timeout, _SEEN_SECONDS)
        while time.monotonic() < deadline:
            with kafka_errors(f"creating topic {name!r}"):
                found = self._client.list_topics(name, timeout=self._timeout).topics.get(name)
            if found is not None and found.error is None and len(found.partitions) >= partitions:
                return
            time.sleep(0.02)

    def delete_topic(self, name: str) -> None:
        what = f"deleting topic {name!r}"
        with kafka_errors(what):
            futures = self._client.delete_topics([name], operation_timeout=self._timeout)
        self._answer(futures[name], what)

    def add_partitions(self, name: str, total: int) -> None:
        from confluent_kafka.admin import NewPartitions

        what = f"adding partitions to {name!r}"
        with kafka_errors(what):
            futures = self._client.create_partitions([NewPartitions(name, total)])
        self._answer(futures[name], what)
        self._wait_for(name, total)

    def alter_topic(self, name: str, config: Mapping[str, str | None]) -> None:
        from confluent_kafka.admin import (
            AlterConfigOpType,
            ConfigEntry,
            ConfigResource,
            ResourceType,
        )

        entries = [
            ConfigEntry(key, "" if value is None else value, incremental_operation=operation)
            for key, value in config.items()
            for operation in [AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET]
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        [future] = self._client.incremental_alter_configs([resource]).values()
        self._answer(future, f"changing topic {name!r}")

    def _settings(self, name: str) -> dict[str, Any]:
        from confluent_kafka.admin import ConfigResource, ResourceType

        resource = ConfigResource(ResourceType.TOPIC, name)
        [future] = self._client.describe_configs([resource]).values()
        found: dict[str, Any] = self._answer(future, f"asking for the settings of {name!r}")
        return found

    def topic_config(self, name: str) -> dict[str, str]:
        return {key: e.value for key, e in self._settings(name).items() if e.value is not None}

    def topic_names(self) -> list[str]:
        return sorted(name for name in self._metadata().topics if not name.startswith("__"))

    def partition_count(self, name: str) -> int:
        """How many partitions a topic has; asking creates it where that is allowed."""
        topic = self._metadata(name).topics.get(name)
        if topic is None or topic.error is not None or not topic.partitions:
            raise NotFound(f"there is no topic {name!r}")
        return len(topic.partitions)

    def topic(self, name: str) -> TopicInfo:
        from confluent_kafka.admin import ConfigSource

        topic = self._metadata().topics.get(name)  # of all: asking for one might create it
        if topic is None or topic.error is not None:
            raise NotFound(f"there is no topic {name!r}")
        places = [TopicPartition(name, index) for index in sorted(topic.partitions)]
        starts = self.find_offsets(dict.fromkeys(places, EARLIEST), read_committed=False)
        ends = self.find_offsets(dict.fromkeys(places, LATEST), read_committed=False)
        own = int(ConfigSource.DYNAMIC_TOPIC_CONFIG.value)
        return TopicInfo(
            name=name,
            partitions=tuple(
                PartitionInfo(
                    partition=place.partition,
                    start_offset=starts[place],
                    end_offset=ends[place],
                    leader=topic.partitions[place.partition].leader,
                )
                for place in places
            ),
            config={
                key: entry.value
                for key, entry in self._settings(name).items()
                if int(getattr(entry.source, "value", entry.source)) == own
            },
        )

    def find_offsets(
        self, wanted: Mapping[TopicPartition, Start], *, read_committed: bool
    ) -> dict[TopicPartition, int]:
        """The offsets that starts mean; a moment after the last record means the end."""
        from confluent_kafka import IsolationLevel
        from confluent_kafka import TopicPartition as KafkaPartition

        if not wanted:
            return {}
        level = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
        with kafka_errors("looking for offsets"):
            answers = self._client.list_offsets(
                {KafkaPartition(*place): _spec(start) for place, start in wanted.items()},
                isolation_level=level,
                request_timeout=self._timeout,
            )
        found = {}
        for asked, future in answers.items():
            place = TopicPartition(asked.topic, asked.partition)
            try:
                answer = self._answer(future, f"looking for offsets of {place}")
            except NotFound as failure:
                raise NotFound(f"there is no partition {place}") from failure
            found[place] = int(answer.offset)
        beyond = {place: LATEST for place, offset in found.items() if offset < 0}
        return found | self.find_offsets(beyond, read_committed=read_committed)

    def delete_records(self, place: TopicPartition, before: int) -> None:
        from confluent_kafka import TopicPartition as KafkaPartition

        answers = self._client.delete_records([KafkaPartition(*place, before)])
        for future in answers.values():
            self._answer(future, f"deleting records of {place}")

    # --- groups -----------------------------------------------------------------------------------

    def group_names(self) -> list[str]:
        future = self._client.list_consumer_groups(request_timeout=self._timeout)
        return sorted(group.group_id for group in self._answer(future, "asking for groups").valid)

    def group(self, name: str) -> GroupInfo:
        if name not in self.group_names():
            raise NotFound(f"there is no group {name!r}")
        futures = self._client.describe_consumer_groups([name], request_timeout=self._timeout)
        group = self._answer(futures[name], f"asking for group {name!r}")
        offsets = self._committed(name)
        known = set(self._metadata().topics)
        places = [place for place in offsets if place.topic in known]
        ends = self.find_offsets(dict.fromkeys(places, LATEST), read_committed=False)
        return GroupInfo(
            name=name,
            state=_state(group.state),
            members=tuple(
                MemberInfo(
                    member_id=member.member_id,
                    client_id=member.client_id,
                    host=member.host.lstrip("/"),
                    assignment=tuple(
                        TopicPartition(each.topic, each.partition)
                        for each in (member.assignment.topic_partitions or ())
                    ),
                )
                for member in group.members
            ),
            offsets=offsets,
            lag={place: max(0, end - offsets[place]) for place, end in ends.items()},
        )

    def _committed(self, name: str) -> dict[TopicPartition, int]:
        from confluent_kafka import ConsumerGroupTopicPartitions

        futures = self._client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)])
        answer = self._answer(futures[name], f"asking for offsets of group {name!r}")
        return {
            TopicPartition(each.topic, each.partition): each.offset
            for each in answer.topic_partitions
            if each.offset >= 0
        }

    def set_group_offsets(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        from confluent_kafka import ConsumerGroupTopicPartitions
        from confluent_kafka import TopicPartition as KafkaPartition

        rows = [KafkaPartition(*place, offset) for place, offset in offsets.items()]
        futures = self._client.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(name, rows)]
        )
        answer = self._answer(futures[name], f"moving group {name!r}")
        for each in answer.topic_partitions:
            if each.error is not None:
                raise InvalidArgument(f"{each.topic}-{each.partition}: {each.error.str()}")

    def delete_group(self, name: str) -> None:
        futures = self._client.delete_consumer_groups([name], request_timeout=self._timeout)
        self._answer(futures[name], f"deleting group {name!r}")

    # --- the server -------------------------------------------------------------------------------

    def cluster(self) -> ClusterInfo:
        metadata = self._metadata()
        return ClusterInfo(
            cluster_id=metadata.cluster_id or "",
            brokers={each.id: f"{each.host}:{each.port}" for each in metadata.brokers.values()},
            topic_count=sum(not name.startswith("__") for name in metadata.topics),
        )


def _spec(start: Start) -> Any:
    from confluent_kafka.admin import OffsetSpec

    timestamp = start_timestamp(start)
    if timestamp is not None:
        return OffsetSpec.for_timestamp(timestamp)
    return OffsetSpec.latest() if start == LATEST else OffsetSpec.earliest()


def _state(state: Any) -> str:
    """`STABLE` as Kafka writes it: Stable, PreparingRebalance."""
    return "".join(word.capitalize() for word in state.name.split("_"))
