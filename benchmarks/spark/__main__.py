"""Rows per second of this data source and of Spark's Kafka connector, same topic, same run.

    python -m benchmarks.spark [--rows N] [--jars DIR]

DIR holds the official connector (spark-sql-kafka-0-10, spark-token-provider-kafka-0-10,
kafka-clients, commons-pool2); without it only this source is measured. The two take turns; a ratio
is the median over the rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROUNDS = 5
VALUE_BYTES = 100
DOORS = ("--kafka", "127.0.0.1:0", "--amqp", "off", "--http", "off")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--jars", type=Path)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    said = parser.parse_args()
    with tempfile.TemporaryDirectory() as data:
        broker = subprocess.Popen(
            [sys.executable, "-m", "penstock", "serve", "--data", f"{data}/log", *DOORS],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert broker.stdout is not None
            bootstrap = broker.stdout.readline().split("kafka=")[1].split()[0]
            measure(bootstrap, said.rows, said.jars, said.rounds, data)
        finally:
            broker.terminate()
            broker.wait(20)


def measure(bootstrap: str, rows: int, jars: Path | None, rounds: int, data: str) -> None:
    from penstock.spark.launch import session

    settings = {"spark.driver.memory": "2g"}
    if jars:
        settings["spark.jars"] = ",".join(str(path) for path in sorted(jars.glob("*.jar")))
    spark = session("benchmark", "local[2]", settings)
    fill(bootstrap, "bench", rows)
    formats = ["penstock", *(["kafka"] if jars else [])]
    for what, job in (("read", read), ("read value only", read_value), ("write", write)):
        paces: dict[str, list[float]] = {name: [] for name in formats}
        for at in range(rounds + 1):
            for name in formats:
                began = time.perf_counter()
                count = job(spark, name, bootstrap, at)
                pace = count / (time.perf_counter() - began)
                if at:  # the first round warms up
                    paces[name].append(pace)
        report(what, paces)


def fill(bootstrap: str, topic: str, rows: int) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    names = [topic, *(f"out-{name}" for name in ("penstock", "kafka"))]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, 4) for name in names]).values():
        future.result(20)
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.size": 500_000}
    producer = Producer({**settings, "queue.buffering.max.messages": 1_000_000})
    value = b"x" * VALUE_BYTES
    for at in range(rows):
        producer.produce(topic, value, key=b"%08d" % at)
        if at % 10_000 == 0:
            producer.poll(0)
    producer.flush(120)


def _frame(spark: Any, name: str, bootstrap: str, **options: str) -> Any:
    options = {"subscribe": "bench", "kafka.bootstrap.servers": bootstrap, **options}
    return spark.read.format(name).options(**options).load()


def read(spark: Any, name: str, bootstrap: str, at: int) -> int:
    """All columns, each looked at, so that neither source can leave one out."""
    frame = _frame(spark, name, bootstrap)
    (row,) = frame.selectExpr(
        "count(*) n", "sum(length(value))", "sum(length(key))", "max(offset)", "max(timestamp)",
        "max(topic)", "max(partition)",
    ).collect()  # fmt: skip
    return int(row["n"])


def read_value(spark: Any, name: str, bootstrap: str, at: int) -> int:
    """Only the value, where our source can leave the other columns out."""
    options = {"columns": "value"} if name == "penstock" else {}
    frame = _frame(spark, name, bootstrap, **options)
    (row,) = frame.selectExpr("count(*) n", "sum(length(value))").collect()
    return int(row["n"])


def write(spark: Any, name: str, bootstrap: str, at: int) -> int:
    """Rows made by Spark, sent to a topic of four partitions."""
    rows = 300_000
    frame = spark.range(0, rows, 1, 2).selectExpr(
        "cast(id as string) key", f"repeat('x', {VALUE_BYTES}) value"
    )
    options = {"topic": f"out-{name}", "kafka.bootstrap.servers": bootstrap}
    frame.write.format(name).options(**options).mode("append").save()
    return rows


def report(what: str, paces: dict[str, list[float]]) -> None:
    line: dict[str, Any] = {"what": what}
    line |= {name: round(statistics.median(found)) for name, found in paces.items()}
    if "kafka" in paces:
        pairs = zip(paces["penstock"], paces["kafka"], strict=True)
        line["ratio"] = round(statistics.median(ours / theirs for ours, theirs in pairs), 2)
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
