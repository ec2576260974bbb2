"""A real Spark and a real broker: one session for the whole run, topics of each test's own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.spark.launch import prepare_environment, session

Topics = Callable[..., str]

if find_spec("pyspark") is None:
    collect_ignore_glob = ["test_*.py"]


def pytest_report_header() -> str:
    """Say so when the tests on Spark are not here to run; `make spark` installs what they need."""
    return (
        "" if find_spec("pyspark") else "tests/spark: not run, the extra `spark` is not installed"
    )


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    prepare_environment()
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spark = session(
            "tests",
            "local[2]",
            {
                "spark.sql.shuffle.partitions": "2",
                "spark.driver.memory": "1g",
                # A short run: starting quickly matters more than running fast.
                "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
                "spark.sql.codegen.wholeStage": "false",
                "spark.sql.codegen.factoryMode": "NO_CODEGEN",
                "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution"
                ".streaming.checkpointing.FileSystemBasedCheckpointFileManager",
            },
        )
    yield spark
    spark.stop()


@pytest.fixture
def topic(bootstrap: str, name: Callable[[str], str]) -> Topics:
    """topic("orders", 3) creates a topic with three partitions and a name of its own."""

    def create(stem: str, partitions: int = 2, **config: str) -> str:
        full = name(stem)
        settings = {key.replace("_", "."): value for key, value in config.items()}
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(full, partitions, config=settings)])[full].result(20)
        return full

    return create


@pytest.fixture
def fill(bootstrap: str) -> Callable[..., None]:
    """fill(topic, rows): rows are values, or (key, value), or dicts of produce()'s arguments."""

    def send(topic: str, rows: Any, **settings: Any) -> None:
        fill_topic(bootstrap, topic, rows, **settings)

    return send


def fill_topic(bootstrap: str, topic: str, rows: Any, **settings: Any) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **settings})
    for row in rows:
        if not isinstance(row, dict):
            key, value = row if isinstance(row, tuple) else (None, row)
            row = {"key": key, "value": value}
        producer.produce(topic, **row)
        producer.poll(0)
    assert producer.flush(30) == 0


def records_of(bootstrap: str, topic: str, partitions: int, **settings: Any) -> list[Any]:
    """Every committed record of a topic, by an ordinary client."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "records-of",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            **settings,
        }
    )
    consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
    found, ended, deadline = [], set(), time.monotonic() + 30
    while len(ended) < partitions:
        assert time.monotonic() < deadline, "no end of the topic"
        for message in consumer.consume(10_000, 0.5):
            if message.error():
                ended.add(message.partition())
            else:
                found.append(message)
    consumer.close()
    return found


@pytest.fixture
def records(bootstrap: str) -> Callable[..., list[Any]]:
    def read(topic: str, partitions: int = 2, **settings: Any) -> list[Any]:
        return records_of(bootstrap, topic, partitions, **settings)

    return read


@pytest.fixture
def reading(spark: Any, bootstrap: str) -> Callable[..., Any]:
    """reading(subscribe="t") is a DataFrame of a batch read with these options."""

    def load(**options: Any) -> Any:
        reader = spark.read.format("penstock").option("kafka.bootstrap.servers", bootstrap)
        return reader.options(**options).load()

    return load


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")


@pytest.fixture
def pipeline(bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """pipeline(text): the text of a file, with BOOTSTRAP and DIR filled in, loaded."""
    from penstock.spark.pipeline import load

    monkeypatch.setenv("PENSTOCK_PIPELINES", str(tmp_path / "state"))

    def make(text: str) -> Any:
        text = text.replace("BOOTSTRAP", bootstrap).replace("DIR", str(tmp_path))
        file = tmp_path / "orders.toml"
        file.write_text(text)
        return load(file)

    return make


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Time for the first test, which starts the JVM that all share (`support.scheduling`)."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(300))
