"""One test for each option of a read that the other files do not show.

Where an option only decides what the driver plans, the stream's reader is asked directly, with a
real broker behind it: Spark asks it the same questions in the same order.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from penstock.spark.errors import OptionError

Reading = Callable[..., Any]
NOON = int(time.time()) * 1000 - 3_600_000


@pytest.fixture
def stream(bootstrap: str) -> Callable[..., Any]:
    """stream(subscribe="t") is the reader that a streaming query with these options has."""
    from penstock.spark.reader import TopicStreamReader
    from penstock.spark.schema import record_schema

    def reader(**options: str) -> Any:
        options = {"kafka.bootstrap.servers": bootstrap, "startingOffsets": "earliest", **options}
        return TopicStreamReader(options, record_schema(options))

    return reader


def _next(reader: Any, start: dict[str, Any] | None = None) -> dict[str, Any]:
    where = reader.initialOffset() if start is None else start
    found: dict[str, Any] = reader.latestOffset(where, reader.getDefaultReadLimit())
    return found


def _values(frame: Any) -> list[bytes]:
    return sorted(bytes(row.value) for row in frame.select("value").collect())


def _numbers(low: int, high: int) -> list[bytes]:
    return [b"%04d" % at for at in range(low, high)]


def test_brokers_are_found_under_both_names(
    spark: Any, bootstrap: str, topic: Any, fill: Any
) -> None:
    name = topic("names", 1)
    fill(name, _numbers(0, 3))
    reader = spark.read.format("penstock").option("bootstrap.servers", bootstrap)
    assert reader.option("SUBSCRIBE", name).load().count() == 3


def test_a_read_ends_at_offsets_or_times(reading: Reading, topic: Any, fill: Any) -> None:
    name = topic("ends", 1)
    fill(name, [{"value": b"%04d" % at, "timestamp": NOON + at * 1000} for at in range(20)])
    by_time = reading(
        subscribe=name,
        startingOffsetsByTimestamp=f'{{"{name}":{{"0":{NOON + 5000}}}}}',
        endingTimestamp=str(NOON + 8000),
        endingOffsets="latest",
    )
    assert _values(by_time) == _numbers(5, 8)
    late = reading(subscribe=name, endingTimestamp=str(NOON + 99_000_000))
    assert late.count() == 20
    words = f'{{"{name}":{{"0":-2}}}}', f'{{"{name}":{{"0":-1}}}}'
    assert reading(subscribe=name, startingOffsets=words[0], endingOffsets=words[1]).count() == 20


def test_offsets_must_be_given_for_all_partitions(reading: Reading, topic: Any) -> None:
    name = topic("all", 2)
    with pytest.raises(Exception, match="missing"):
        reading(subscribe=name, startingOffsets=f'{{"{name}":{{"0":0}}}}').count()


def test_poll_timeout_bounds_the_wait_for_offsets_that_never_come(
    reading: Reading, topic: Any, fill: Any
) -> None:
    name = topic("short", 1)
    fill(name, _numbers(0, 10))
    beyond = {
        "subscribe": name,
        "endingOffsets": f'{{"{name}":{{"0":15}}}}',
        "kafkaConsumer.pollTimeoutMs": "700",
    }
    with pytest.raises(Exception, match="gave nothing at offset 10 of 15"):
        reading(**beyond).count()
    assert reading(**beyond, failOnDataLoss="false").count() == 10


def test_fetches_may_be_as_small_as_asked(reading: Reading, topic: Any, fill: Any) -> None:
    name = topic("small", 1)
    fill(name, _numbers(0, 500), **{"batch.num.messages": 20})
    small = {"kafka.fetch.max.bytes": "1000", "kafka.max.partition.fetch.bytes": "700"}
    waits = {"kafka.fetch.min.bytes": "10", "kafka.fetch.max.wait.ms": "50"}
    who = {"kafka.client.id": "me", "groupIdPrefix": "us", "kafka.client.rack": "here"}
    frame = reading(subscribe=name, **small, **waits, **who, **{"kafka.check.crcs": "false"})
    assert _values(frame) == _numbers(0, 500)


def test_columns_are_those_asked_for_in_that_order(reading: Reading, topic: Any, fill: Any) -> None:
    name = topic("columns", 1)
    fill(name, [{"key": b"k", "value": b"v", "headers": [("h", None), ("h", b"2")]}])
    frame = reading(subscribe=name, columns="offset,headers,key")
    assert frame.columns == ["offset", "headers", "key"]
    (row,) = frame.collect()
    assert (row.offset, bytes(row.key)) == (0, b"k")
    assert [(h.key, h.value and bytes(h.value)) for h in row.headers] == [("h", None), ("h", b"2")]


def test_few_retries_give_up_at_once(stream: Any) -> None:
    from support.broker import free_port

    reader = stream(
        **{"kafka.bootstrap.servers": f"127.0.0.1:{free_port()}"},
        **{"fetchOffset.numRetries": "1", "fetchOffset.retryIntervalMs": "10"},
        subscribe="any",
    )
    began = time.monotonic()
    with pytest.raises(Exception, match="no broker answers"):
        _next(reader)
    assert time.monotonic() - began < 30  # without the option it would be a minute


def test_offsets_per_trigger_are_shared_out_by_what_partitions_hold(
    stream: Any, topic: Any, fill: Any
) -> None:
    name = topic("shares", 2)
    fill(name, [{"value": b"x", "partition": 0 if at < 300 else 1} for at in range(400)])
    end = _next(stream(subscribe=name, maxOffsetsPerTrigger="100"))
    assert end[name] == {"0": 75, "1": 25}
    assert end["@from"] == {name: {"0": 0, "1": 0}}


def test_a_trigger_waits_for_enough_offsets_but_not_for_ever(
    stream: Any, topic: Any, fill: Any
) -> None:
    name = topic("enough", 1)
    fill(name, _numbers(0, 10))
    options = {"subscribe": name, "minOffsetsPerTrigger": "10", "maxTriggerDelay": "2s"}
    reader = stream(**options)
    first = _next(reader)
    assert first[name] == {"0": 10}
    fill(name, _numbers(10, 15))
    assert _next(reader, first) == first  # five are too few, and nobody has waited long
    patient = stream(**{**options, "maxTriggerDelay": "1h"})
    assert _next(patient, first)[name] == {"0": 15}  # a query that starts again does not wait
    deadline = time.monotonic() + 60
    while (second := _next(reader, first)) == first:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert second[name] == {"0": 15}


def test_partitions_are_looked_up_as_seldom_as_asked(
    stream: Any, topic: Any, fill: Any, bootstrap: str
) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions

    name = topic("ttl", 1)
    fill(name, _numbers(0, 2))
    lazy = stream(subscribe=name, **{"partition.metadata.cache.ttl.ms": "3600000"})
    eager = stream(subscribe=name)
    start = _next(lazy)
    _next(eager)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_partitions([NewPartitions(name, 2)])[name].result(20)
    fill(name, [{"value": b"new", "partition": 1}])
    assert set(_next(lazy, start).get(name, {})) == {"0"}
    found = _next(eager, start)
    assert found[name] == {"0": 2, "1": 1}
    assert found["@from"] == {name: {"1": 0}}  # and it begins at its first record


def test_topics_that_begin_to_match_a_pattern_are_read_from_their_start(
    stream: Any, topic: Any, fill: Any
) -> None:
    one = topic("match", 1)
    fill(one, _numbers(0, 2))
    reader = stream(subscribePattern="match-.*|later-.*", startingOffsets="latest")
    start = _next(reader)
    two = topic("later", 1)
    fill(two, _numbers(0, 3))
    found = _next(reader, start)
    assert found[two] == {"0": 3}
    assert found["@from"][two] == {"0": 0}


def test_available_now_ends_where_the_topics_ended_when_it_began(
    stream: Any, topic: Any, fill: Any
) -> None:
    name = topic("ended", 1)
    fill(name, _numbers(0, 5))
    reader = stream(subscribe=name)
    reader.prepareForTriggerAvailableNow()
    fill(name, _numbers(5, 9))
    assert _next(reader)[name] == {"0": 5}
    assert reader.reportLatestOffset()[name] == {"0": 9}


def test_a_group_that_never_committed_starts_at_the_first_record(
    stream: Any, topic: Any, fill: Any, name: Any
) -> None:
    source = topic("fresh", 1)
    fill(source, _numbers(0, 4))
    reader = stream(subscribe=source, startingOffsets="group", **{"kafka.group.id": name("nobody")})
    assert _next(reader)["@from"] == {source: {"0": 0}}


def test_a_topic_made_anew_under_the_same_name_is_data_loss(
    stream: Any, topic: Any, fill: Any, bootstrap: str
) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    name = topic("anew", 1)
    fill(name, _numbers(0, 10))
    start = _next(stream(subscribe=name))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([name])[name].result(20)
    admin.create_topics([NewTopic(name, 1)])[name].result(20)
    deadline = time.monotonic() + 30
    while name not in admin.list_topics(timeout=20).topics:  # Apache Kafka answers before it is
        assert time.monotonic() < deadline
    with pytest.raises(Exception, match="ends at 0 but was already read up to 10"):
        _next(stream(subscribe=name), start)
    assert _next(stream(subscribe=name, failOnDataLoss="false"), start) == start


def test_a_deleted_topic_is_lost_data_unless_it_is_to_be_ignored(
    stream: Any, topic: Any, fill: Any, bootstrap: str
) -> None:
    from confluent_kafka.admin import AdminClient

    stays, goes = topic("stays", 1), topic("goes", 1)
    fill(stays, _numbers(0, 3))
    fill(goes, _numbers(0, 4))
    both = _next(stream(subscribe=f"{stays},{goes}"))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([goes])[goes].result(20)
    fill(stays, _numbers(3, 5))
    with pytest.raises(Exception, match=f"{goes}-0 is gone"):
        _next(stream(subscribe=stays), both)
    found = _next(stream(subscribe=stays, ignoreDeletedTopics="true"), both)
    assert found == {stays: {"0": 5}}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": " , "}, "no topics to subscribe to"),
        ({"assign": "{}"}, "no partition to read"),
        ({"assign": '{"t":["a"]}'}, "expected e.g."),
        ({"subscribePattern": ""}, "'subscribePattern' is empty"),
        ({"subscribePattern": "("}, "subscribePattern"),
        ({"subscribe": "t", "startingTimestamp": "noon"}, "not a whole number"),
        ({"subscribe": "t", "maxRecordsPerPartition": "0"}, "less than 1"),
        ({"subscribe": "t", "maxOffsetsPerTrigger": "x"}, "not a whole number"),
        ({"subscribe": "t", "maxBytesPerTrigger": "0"}, "less than 1"),
        ({"subscribe": "t", "maxTriggerDelay": "soon"}, "not a duration"),
        ({"subscribe": "t", "startingOffsetsByTimestampStrategy": "x"}, "none of error, latest"),
        ({"subscribe": "t", "endingTimestamp": "1"}, "not valid in a streaming query"),
        ({"subscribe": "t", "endingOffsetsByTimestamp": "{}"}, "not valid in a streaming query"),
        ({"subscribe": "t", "kafka.enable.auto.commit": "true"}, "use commitGroup"),
        ({"subscribe": "t", "kafka.key.deserializer": "x"}, "read as binary"),
        ({"subscribe": "t", "kafka.value.deserializer": "x"}, "read as binary"),
        ({"subscribe": "t", "kafka.interceptor.classes": "x"}, "breaks the promises"),
        ({"subscribe": "t", "kafka.isolation.level": "serializable"}, "none of read_committed"),
        ({"subscribe": "t", "kafka.bootstrap.servers": "here"}, "is not HOST:PORT"),
        ({"subscribe": "t", "kafka.bootstrap.servers": ""}, "must be given"),
        ({"subscribe": "t", "kafka.security.protocol": "X"}, "is unknown"),
        (
            {"subscribe": "t", "kafka.security.protocol": "SASL_SSL"},
            r'use Spark.s own format\("kafka"\)',
        ),
        ({"subscribe": "t", "kafka.ssl.truststore.location": "a.jks"}, "type=PEM"),
        ({"subscribe": "t", "partition.metadata.cache.ttl.ms": "-2"}, "less than -1"),
        ({"subscribe": "t", "fetchOffset.numRetries": "-1"}, "less than 0"),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(
    stream: Any, options: dict[str, str], words: str
) -> None:
    with pytest.raises(OptionError, match=words):
        stream(**options)


def test_a_schema_of_the_users_own_is_refused_before_any_task(
    spark: Any, bootstrap: str, topic: Any, fill: Any
) -> None:
    name = topic("schema", 1)
    fill(name, _numbers(0, 2))

    def reader() -> Any:
        made = spark.read.format("penstock").option("kafka.bootstrap.servers", bootstrap)
        return made.option("subscribe", name)

    with pytest.raises(Exception, match="the columns of a topic are key, value"):
        reader().schema("id INT").load().count()
    assert reader().schema(reader().load().schema).load().count() == 2


def test_a_start_after_the_end_is_a_mistake_whatever_loss_means(
    reading: Reading, topic: Any, fill: Any
) -> None:
    name = topic("backwards", 1)
    fill(name, _numbers(0, 10))
    start = f'{{"{name}":{{"0":8}}}}'
    end = f'{{"{name}":{{"0":5}}}}'
    for loss in ("true", "false"):
        with pytest.raises(Exception, match=r"the start is after the end: .* starts at 8 and ends"):
            reading(
                subscribe=name, startingOffsets=start, endingOffsets=end, failOnDataLoss=loss
            ).count()


def test_a_pattern_matches_anywhere_in_a_name_as_in_sparks_connector(
    reading: Reading, topic: Any, fill: Any
) -> None:
    one, two = topic("anywhere", 1), topic("somewhere", 1)
    fill(one, _numbers(0, 2))
    fill(two, _numbers(2, 5))
    assert _values(reading(subscribePattern=f"{one[3:]}|{two[4:-1]}")) == _numbers(0, 5)
    assert _values(reading(subscribePattern=f"^{one[3:]}|^{two}$")) == _numbers(2, 5)


def test_a_pattern_finds_neither_the_brokers_topics_nor_those_of_our_sinks(bootstrap: str) -> None:
    from penstock.spark import ledger
    from penstock.spark.cluster import Cluster
    from penstock.spark.offsets import partitions_of
    from penstock.spark.options import subscription

    cluster = Cluster(bootstrap)
    cluster.create_topic(ledger.TOPIC, 1, {})
    cluster.commit("some group", {})
    found = {tp.topic for tp in partitions_of(cluster, subscription({"subscribePattern": "."}))}
    assert not found & {"__consumer_offsets", "__transaction_state", ledger.TOPIC}
    cluster.forget()


@pytest.mark.parametrize("least", [4, 5, 7, 10, 33, 100])
def test_there_are_at_least_as_many_tasks_as_asked_for(least: int) -> None:
    from penstock.spark.cluster import TopicPartition
    from penstock.spark.fetching import Range
    from penstock.spark.planning import split

    sizes = [60, 30, 30, 20]
    ranges = [Range(TopicPartition("t", at), 5, 5 + size) for at, size in enumerate(sizes)]
    pieces = split(ranges, min_partitions=least, max_records=None)
    assert len(pieces) == least
    assert sum(piece.size for piece in pieces) == sum(sizes)
    few = split(ranges[3:], min_partitions=100, max_records=None)
    assert len(few) == 20  # one record is not cut
