"""The brokers as one thing to ask: leaders, coordinators, where a log begins and ends.

Every question is repeated until `patience_s` has passed when the answer may still come: a broker
that restarts, a leader that moves, a coordinator that loads. Connections live as long as the
process, because Spark uses its Python workers again for the next batch.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any, NamedTuple, TypeVar

from penstock.spark import protocol
from penstock.spark.connection import Connection, Security
from penstock.spark.errors import (
    RETRIABLE,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_TOPIC_OR_PARTITION,
    BrokerRefused,
    BrokerUnreachable,
)
from penstock.spark.protocol import Api

T = TypeVar("T")
EARLIEST, LATEST = -2, -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
GROUP, TRANSACTION = 0, 1  # kinds of coordinators
CALLS, FETCHES = "calls", "fetches"  # lanes: connections that are not shared
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 1.0


class TopicPartition(NamedTuple):
    """A partition's name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Place(NamedTuple):
    """An offset found by time: where, and the timestamp there; offset -1 when there is none."""

    offset: int
    timestamp: int


class Cluster:
    """Connections to the brokers behind `servers`, and what they said last."""

    def __init__(
        self,
        servers: str,
        security: Security = Security(),  # noqa: B008  an immutable value
        *,
        patience_s: float = 60.0,
        client_id: str = "penstock-spark",
        retries: int | None = None,
        retry_pause_s: float = _FIRST_PAUSE_S,
    ) -> None:
        self.servers = servers
        self.patience_s = patience_s
        self._retries = retries  # None: as long as patience lasts
        self._first_pause_s = retry_pause_s
        self._security = security
        self._client_id = client_id
        self._connections: dict[tuple[str, int, str], Connection] = {}
        self._addresses: dict[int, tuple[str, int]] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._coordinators: dict[tuple[int, str], tuple[str, int]] = {}
        self._largest: dict[str, int] = {}
        self._internal: set[str] = set()

    def __repr__(self) -> str:
        return f"Cluster({self.servers}, {len(self._connections)} connections)"

    # ---- asking, again and again

    def patiently(self, what: str, attempt: Callable[[], T]) -> T:
        """`attempt()` until it succeeds, or fails in a way that waiting does not mend."""
        deadline = time.monotonic() + self.patience_s
        pause = self._first_pause_s
        for attempts in count(0):
            over = self._retries is not None and attempts >= self._retries
            try:
                return attempt()
            except BrokerUnreachable as failure:
                self.forget()
                if over or time.monotonic() + pause > deadline:
                    raise BrokerUnreachable(f"{what}: {failure}") from None
            except BrokerRefused as failure:
                if failure.code not in RETRIABLE or over or time.monotonic() + pause > deadline:
                    raise
                self._leaders.clear()
                self._coordinators.clear()
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_S)
        raise AssertionError("count() does not end")

    def forget(self) -> None:
        """Close everything; what was in flight is unknown, so nothing of it may be read."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._leaders.clear()
        self._coordinators.clear()

    def _connect(self, address: tuple[str, int], lane: str = CALLS) -> Connection:
        connection = self._connections.get((*address, lane))
        if connection is None:
            timeout_s = max(self.patience_s, 1.0)
            connection = Connection(*address, self._security, self._client_id, timeout_s)
            self._connections[(*address, lane)] = connection
        return connection

    def _any(self) -> Connection:
        for (_, _, lane), connection in self._connections.items():
            if lane == CALLS:
                return connection
        failures = []
        for place in self.servers.split(","):
            host, _, port = place.strip().rpartition(":")
            try:
                return self._connect((host.strip("[]"), int(port)))
            except BrokerUnreachable as failure:
                failures.append(str(failure))
        raise BrokerUnreachable("; ".join(failures))

    def call_any(self, api: Api, values: Mapping[str, Any]) -> dict[str, Any]:
        """Ask whichever broker answers."""
        return self._any().call(api, values)

    # ---- topics and leaders

    def topics(self, names: Iterable[str] | None = None) -> dict[str, list[int]]:
        """Partitions of the named topics (of all, without names); unknown topics are left out."""
        wanted = None if names is None else sorted(set(names))
        return self.patiently("topics", lambda: self._metadata(wanted))

    def _metadata(self, names: list[str] | None) -> dict[str, list[int]]:
        answer = self.call_any(protocol.METADATA, {"topics": names, "auto_create": False})
        self._addresses = {b["node"]: (b["host"], b["port"]) for b in answer["brokers"]}
        found: dict[str, list[int]] = {}
        for topic in answer["topics"]:
            if topic["error"] == UNKNOWN_TOPIC_OR_PARTITION:
                continue
            if topic["error"]:
                raise BrokerRefused(f"topic {topic['name']}", topic["error"])
            if topic["internal"]:
                self._internal.add(topic["name"])
            found[topic["name"]] = sorted(part["index"] for part in topic["partitions"])
            for part in topic["partitions"]:
                self._leaders[TopicPartition(topic["name"], part["index"])] = part["leader"]
        return found

    def is_internal(self, name: str) -> bool:
        """Whether a topic that `topics` named is the broker's own, or one of our sinks'."""
        return name in self._internal or name.startswith("__penstock_")

    def leader(self, partition: TopicPartition, lane: str = CALLS) -> Connection:
        """A connection to the partition's leader. A reader that asks ahead needs a lane of its
        own: on a shared one, the next caller would be given the reader's answer."""
        if partition not in self._leaders:
            self._metadata([partition.topic])
        node = self._leaders.get(partition)
        if node is None:
            raise BrokerRefused(str(partition), UNKNOWN_TOPIC_OR_PARTITION)
        if node not in self._addresses:
            del self._leaders[partition]
            raise BrokerRefused(str(partition), 5)
        return self._connect(self._addresses[node], lane)

    def coordinator(self, kind: int, key: str) -> Connection:
        """A connection to the coordinator of a group or a transactional id."""
        if (kind, key) not in self._coordinators:
            answer = self.call_any(protocol.FIND_COORDINATOR, {"key": key, "kind": kind})
            if answer["error"]:
                raise BrokerRefused(f"coordinator of {key}", answer["error"])
            self._coordinators[kind, key] = (answer["host"], answer["port"])
        return self._connect(self._coordinators[kind, key])

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> bool:
        """Whether it was created; False when it was there. -1 partitions: the broker's default."""

        def attempt() -> bool:
            topic = {
                "name": name,
                "partitions": partitions,
                "replication": -1,
                "assignments": (),
                "configs": [{"name": key, "value": value} for key, value in configs.items()],
            }
            request = {"topics": [topic], "timeout_ms": 30_000, "validate_only": False}
            (answer,) = self.call_any(protocol.CREATE_TOPICS, request)["topics"]
            if answer["error"] not in (0, TOPIC_ALREADY_EXISTS):
                said = answer["message"] or ""
                raise BrokerRefused(f"creating topic {name} {said}".rstrip(), answer["error"])
            return not answer["error"]

        return self.patiently(f"creating topic {name}", attempt)

    def topic_settings(self, name: str) -> dict[str, str]:
        """The settings given to this topic itself, without defaults."""
        found = self._described(name).items()
        return {key: value for key, (value, source) in found if source == 1 and value is not None}

    def _described(self, name: str) -> dict[str, tuple[str | None, int]]:
        """Every setting: its value and where that comes from."""

        def attempt() -> dict[str, tuple[str | None, int]]:
            request = {"resources": [{"kind": 2, "name": name, "keys": None}], "synonyms": False}
            (answer,) = self.call_any(protocol.DESCRIBE_CONFIGS, request)["resources"]
            if answer["error"]:
                raise BrokerRefused(f"settings of {name}", answer["error"])
            return {
                config["name"]: (config["value"], config["source"]) for config in answer["configs"]
            }

        return self.patiently(f"settings of {name}", attempt)

    def largest_batch(self, name: str, default: int) -> int:
        """What the topic takes as one batch (max.message.bytes); `default` if we may not ask."""
        if name not in self._largest:
            try:
                said = self._described(name).get("max.message.bytes", (str(default), 0))[0]
                self._largest[name] = int(said or default)
            except BrokerRefused:
                self._largest[name] = default
        return self._largest[name]

    def delete_topics(self, names: Iterable[str]) -> None:
        """Remove them; those that are not there are none of our business."""
        wanted = sorted(names)

        def attempt() -> None:
            request = {"topics": wanted, "timeout_ms": 30_000}
            for topic in self.call_any(protocol.DELETE_TOPICS, request)["topics"]:
                if topic["error"] not in (0, UNKNOWN_TOPIC_OR_PARTITION):
                    raise BrokerRefused(f"deleting topic {topic['name']}", topic["error"])

        if wanted:
            self.patiently("deleting topics", attempt)

    # ---- offsets

    def offsets_at(
        self, times: Mapping[TopicPartition, int], isolation: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, Place]:
        """Where each partition stands at a time: EARLIEST, LATEST, or the first record at or
        after milliseconds since 1970."""
        return self.patiently("offsets", lambda: self._offsets_at(times, isolation))

    def _offsets_at(
        self, times: Mapping[TopicPartition, int], isolation: int
    ) -> dict[TopicPartition, Place]:
        by_leader: dict[int, dict[str, list[dict[str, int]]]] = defaultdict(
            lambda: defaultdict(list)
        )
        connections: dict[int, Connection] = {}
        missing = {tp.topic for tp in times if tp not in self._leaders}
        if missing:
            self._metadata(sorted(missing))
        for tp, timestamp in times.items():
            connection = self.leader(tp)
            connections[id(connection)] = connection
            by_leader[id(connection)][tp.topic].append(
                {"index": tp.partition, "timestamp": timestamp}
            )
        found: dict[TopicPartition, Place] = {}
        for key, topics in by_leader.items():
            listed = [{"name": name, "partitions": parts} for name, parts in topics.items()]
            request = {"replica": -1, "isolation": isolation, "topics": listed}
            answer = connections[key].call(protocol.LIST_OFFSETS, request)
            for tp, part in each_partition(answer):
                if part["error"]:
                    raise BrokerRefused(f"offsets of {tp}", part["error"])
                found[tp] = Place(part["offset"], part["timestamp"])
        return found

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        """Let the broker drop everything below these offsets."""

        def attempt() -> None:
            for tp, offset in before.items():
                part = {"index": tp.partition, "offset": offset}
                request = {
                    "topics": [{"name": tp.topic, "partitions": [part]}],
                    "timeout_ms": 30_000,
                }
                answer = self.leader(tp).call(protocol.DELETE_RECORDS, request)
                for _, told in each_partition(answer):
                    if told["error"]:
                        raise BrokerRefused(f"deleting records of {tp}", told["error"])

        self.patiently("deleting records", attempt)

    # ---- groups

    def committed(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """What `group` has committed; partitions without a commit are left out."""
        listed = [
            {"name": name, "partitions": indexes} for name, indexes in by_topic(partitions).items()
        ]

        def attempt() -> dict[TopicPartition, int]:
            answer = self.coordinator(GROUP, group).call(
                protocol.OFFSET_FETCH, {"group": group, "topics": listed}
            )
            if answer["error"]:
                raise BrokerRefused(f"offsets of group {group}", answer["error"])
            return {tp: p["offset"] for tp, p in each_partition(answer) if p["offset"] >= 0}

        return self.patiently(f"offsets of group {group}", attempt)

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit as a client outside the group's membership (generation -1)."""
        topics = [
            {
                "name": topic,
                "partitions": [
                    {"index": i, "offset": offsets[TopicPartition(topic, i)], "metadata": "spark"}
                    for i in indexes
                ],
            }
            for topic, indexes in by_topic(offsets).items()
        ]
        request = {"group": group, "generation": -1, "member": "", "topics": topics}

        def attempt() -> None:
            answer = self.coordinator(GROUP, group).call(protocol.OFFSET_COMMIT, request)
            for tp, part in each_partition(answer):
                if part["error"]:
                    raise BrokerRefused(f"committing {tp} for group {group}", part["error"])

        self.patiently(f"committing for group {group}", attempt)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers under their topics."""
    grouped: dict[str, list[int]] = defaultdict(list)
    for topic, partition in partitions:
        grouped[topic].append(partition)
    return grouped


def each_partition(answer: Mapping[str, Any]) -> Iterable[tuple[TopicPartition, dict[str, Any]]]:
    """The partitions of an answer that lists them under topics."""
    for topic in answer["topics"]:
        for part in topic["partitions"]:
            yield TopicPartition(topic["name"], part["index"]), part


_CLUSTERS: dict[tuple[Any, ...], Cluster] = {}


def shared_cluster(
    servers: str,
    security: Security,
    patience_s: float,
    client_id: str = "penstock-spark",
    retries: int | None = None,
    retry_pause_s: float = _FIRST_PAUSE_S,
) -> Cluster:
    """The process's cluster for these servers: workers live on, so do connections."""
    key = (servers, security, patience_s, client_id, retries, retry_pause_s)
    if key not in _CLUSTERS:
        _CLUSTERS[key] = Cluster(
            servers,
            security,
            patience_s=patience_s,
            client_id=client_id,
            retries=retries,
            retry_pause_s=retry_pause_s,
        )
    return _CLUSTERS[key]
