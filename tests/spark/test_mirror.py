"""Topics, settings, records and group offsets of one cluster in another."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from penstock.spark.pipeline import dry_run, load, run
from penstock.spark.pipeline.document import PipelineInvalid

from .conftest import fill_topic, records_of

NOW_MS = int(time.time()) * 1000 - 3_600_000
pytestmark = pytest.mark.own_broker


def _create(bootstrap: str, name: str, partitions: int, **config: str) -> None:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    new = NewTopic(name, partitions, config=settings)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([new])[name].result(20)


def _rows(low: int, high: int) -> list[dict[str, Any]]:
    return [
        {
            "key": None if at % 7 == 0 else f"k{at}",
            "value": None if at % 11 == 0 else f"v{at}",
            "headers": [("n", str(at).encode()), ("n", b"twice"), ("empty", None)],
            "partition": at % 2,
            "timestamp": NOW_MS + at,
        }
        for at in range(low, high)
    ]


def _facts(bootstrap: str, topic: str) -> dict[int, list[Any]]:
    """Every record of each partition, in order, without its offset."""
    found: dict[int, list[Any]] = {}
    for m in sorted(records_of(bootstrap, topic, 2), key=lambda m: m.offset()):
        fact = (m.key(), m.value(), m.headers(), m.timestamp())
        found.setdefault(m.partition(), []).append(fact)
    return found


def _consume(bootstrap: str, group: str, topic: str, count: int) -> list[bytes]:
    """Read so many records as this group, commit, leave."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest",
         "enable.auto.commit": False}
    )  # fmt: skip
    consumer.subscribe([topic])
    values: list[bytes] = []
    deadline = time.monotonic() + 120
    while len(values) < count:
        assert time.monotonic() < deadline, f"{len(values)} of {count} records"
        for message in consumer.consume(count - len(values), 1.0):
            assert message.error() is None
            values.append(message.value())
    consumer.commit(asynchronous=False)
    consumer.close()
    return values


@pytest.fixture
def other(start_broker: Callable[..., Any], tmp_path: Path) -> Any:
    """A second cluster."""
    return start_broker(tmp_path / "other")


def _mirror(source: str, target: str, more: str = "") -> str:
    return f"""
kind = "mirror"
checkpoint = "DIR/checkpoint"
topics = "shop[.].*"
{more}
[source]
bootstrap = "{source}"
[target]
bootstrap = "{target}"
"""


def _check_mirror(spark: Any, source: str, target: str, pipeline: Any) -> None:
    """What must hold between any two clusters."""
    _create(
        source, "shop.orders", 2, retention_ms="123456789", max_message_bytes="2000000",
        message_timestamp_after_max_ms="7200000",
    )  # fmt: skip
    _create(source, "shop.latest", 2, cleanup_policy="compact")
    _create(source, "private", 1)
    fill_topic(source, "shop.orders", _rows(0, 200))
    fill_topic(source, "shop.latest", _rows(1, 7))
    read = _consume(source, "billing", "shop.orders", 60)
    said = pipeline(_mirror(source, target, 'groups = "billing"'))
    plan = {row["topic"]: row["records"] for row in dry_run(said)["topics"]}
    assert plan == {"shop.orders": 200, "shop.latest": 6}
    done = run(said, spark=spark)
    assert (done.topics, done.rows) == (["shop.latest", "shop.orders"], 206)
    assert _facts(target, "shop.orders") == _facts(source, "shop.orders")
    assert _facts(target, "shop.latest") == _facts(source, "shop.latest")
    admin = AdminClient({"bootstrap.servers": target})
    assert "private" not in admin.list_topics(timeout=10).topics
    resource = ConfigResource("TOPIC", "shop.orders")
    settings = admin.describe_configs([resource])[resource].result(20)
    assert settings["retention.ms"].value == "123456789"
    assert settings["max.message.bytes"].value == "2000000"
    # A limit on timestamps could refuse what is copied, so it stays behind.
    assert settings["message.timestamp.after.max.ms"].value != "7200000"
    # More comes; the second pass copies only that, and the group goes on where it was.
    fill_topic(source, "shop.orders", _rows(200, 260))
    again = run(said, spark=spark)
    assert again.rows == 60
    assert _facts(target, "shop.orders") == _facts(source, "shop.orders")
    rest = _consume(target, "billing", "shop.orders", 200)
    every = {row["value"] for row in _rows(0, 260)}
    assert {v.decode() if v else None for v in read + rest} == every
    assert len(read) + len(rest) == 260


def test_a_topic_that_is_deleted_stops_none_of_the_others(
    spark: Any, start_broker: Any, other: Any, tmp_path: Path, pipeline: Any
) -> None:
    source, target = start_broker(tmp_path / "first").bootstrap, other.bootstrap
    admin = AdminClient({"bootstrap.servers": source})
    for name in ("shop.stays", "shop.goes"):
        _create(source, name, 1)
        fill_topic(source, name, [b"1", b"2"])
    said = pipeline(_mirror(source, target))
    assert run(said, spark=spark).rows == 4
    admin.delete_topics(["shop.goes"])["shop.goes"].result(20)
    fill_topic(source, "shop.stays", [b"3"])
    assert run(said, spark=spark).topics == ["shop.stays"]
    _create(source, "shop.goes", 1)
    fill_topic(source, "shop.goes", [b"again"])
    run(said, spark=spark)
    values = {
        name: [m.value() for m in records_of(target, name, 1)]
        for name in ("shop.stays", "shop.goes")
    }
    assert values == {"shop.stays": [b"1", b"2", b"3"], "shop.goes": [b"1", b"2", b"again"]}


def test_topics_move_to_another_penstock_and_a_group_goes_on_there(
    spark: Any, bootstrap: str, other: Any, start_broker: Any, tmp_path: Path, pipeline: Any
) -> None:
    source = start_broker(tmp_path / "source")
    _check_mirror(spark, source.bootstrap, other.bootstrap, pipeline)


@pytest.mark.timeout(400)
def test_topics_move_from_apache_kafka(
    spark: Any, other: Any, pipeline: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from benchmarks.peers import Unavailable, apache_kafka

    monkeypatch.chdir(tmp_path)
    try:
        with apache_kafka() as kafka:
            _check_mirror(spark, kafka.bootstrap, other.bootstrap, pipeline)
    except Unavailable as why:
        pytest.skip(f"mirror from Apache Kafka: {why}")


@pytest.mark.timeout(400)
def test_topics_move_to_apache_kafka(
    spark: Any, other: Any, pipeline: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from benchmarks.peers import Unavailable, apache_kafka

    # A setting that only Penstock has; and times that would be new ones in the copy.
    _create(other.bootstrap, "extra.own", 2, penstock_durability="os")
    _create(other.bootstrap, "extra.stamped", 2, message_timestamp_type="LogAppendTime")
    fill_topic(other.bootstrap, "extra.stamped", _rows(1, 9))
    monkeypatch.chdir(tmp_path)
    try:
        with apache_kafka() as kafka:
            stamped = pipeline(
                _mirror(other.bootstrap, kafka.bootstrap, 'groups = ""')
                .replace("shop[.].*", "extra[.].*")
                .replace("DIR/checkpoint", "DIR/first")
            )
            assert run(stamped, spark=spark).topics == ["extra.own", "extra.stamped"]
            kept, original = (
                {m.value(): m.timestamp()[1] for m in records_of(where, "extra.stamped", 2)}
                for where in (kafka.bootstrap, other.bootstrap)
            )
            assert kept == original
            _check_mirror(spark, other.bootstrap, kafka.bootstrap, pipeline)
    except Unavailable as why:
        pytest.skip(f"mirror to Apache Kafka: {why}")


def test_offsets_are_translated_exactly_where_the_copy_has_other_offsets(
    spark: Any, other: Any, start_broker: Any, tmp_path: Path, pipeline: Any
) -> None:
    from penstock.spark.pipeline.translate import Syncs, translated
    from penstock.spark.pipeline.twins import Twins

    source = start_broker(tmp_path / "source").bootstrap
    _create(source, "shop.orders", 1)
    _create(other.bootstrap, "shop.orders", 1)
    fill_topic(other.bootstrap, "shop.orders", [b"was here before"] * 3)
    said = pipeline(_mirror(source, other.bootstrap, "max_rows_per_batch = 10"))
    for low in range(0, 60, 30):
        fill_topic(source, "shop.orders", [f"v{at}".encode() for at in range(low, low + 30)])
        run(said, spark=spark)
    here = {m.value(): m.offset() for m in records_of(other.bootstrap, "shop.orders", 1)}
    syncs, twins = Syncs(Path(said.checkpoint)), Twins(said)
    for offset in (0, 1, 9, 10, 29, 30, 31, 59):
        found = translated(twins, syncs, "shop.orders", 0, offset)
        # Markers lie between: from there on, the next record is the one that is meant.
        later = [value for value, at in here.items() if found is not None and at >= found]
        assert min(later, key=lambda value: here[value]) == f"v{offset}".encode()
    assert translated(twins, syncs, "shop.orders", 0, 60) == max(here.values()) + 2


def test_a_mirror_goes_on_until_it_is_stopped_and_finds_new_topics(
    spark: Any, other: Any, start_broker: Any, tmp_path: Path, pipeline: Any
) -> None:
    source = start_broker(tmp_path / "source").bootstrap
    _create(source, "shop.a", 2)
    fill_topic(source, "shop.a", _rows(1, 5))
    said = pipeline(_mirror(source, other.bootstrap, 'every = "200 ms"\nprefix = "east."'))
    stop, seen = threading.Event(), []

    def show(figures: Any) -> None:
        seen.append(figures.rows)
        if sum(seen) == 4:
            _create(source, "shop.b", 2)
            fill_topic(source, "shop.b", _rows(5, 10))
        elif sum(seen) == 9:
            stop.set()

    done = run(said, spark=spark, show=show, stop=stop)
    assert done.rows == 9
    assert len(records_of(other.bootstrap, "east.shop.b", 2)) == 5


def test_a_mirror_of_a_cluster_into_itself_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "m.toml"
    side = 'bootstrap = "127.0.0.1:9092"\n'
    head = 'kind = "mirror"\ncheckpoint = "c"\ntopics = ".*"\n'
    file.write_text(f"{head}[source]\n{side}[target]\n{side}")
    with pytest.raises(PipelineInvalid, match=r"m\.toml:7: target\.bootstrap: is the source"):
        load(file)
    file.write_text(f"{head}[source]\n{side}[target]\namqp = 'amqp://x'\n")
    with pytest.raises(PipelineInvalid, match="both sides need"):
        load(file)
