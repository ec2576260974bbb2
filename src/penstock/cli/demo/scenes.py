"""What the demonstration shows, scene by scene. A scene that does not come true is a `Failure`."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Producer

from penstock.cli.demo.broker import BrokerProcess
from penstock.cli.demo.clients import installed_clients
from penstock.cli.demo.group import play_group
from penstock.cli.demo.pipeline import play_pipeline
from penstock.cli.demo.queue import play_queue
from penstock.cli.demo.stage import Stage
from penstock.cli.demo.topics import fresh_topic, read_all
from penstock.cli.measure import Load, measure_latency, measure_throughput
from penstock.cli.output import Failure

EACH = 2000
QUICK_LOAD = {"messages": 300_000, "size": 100, "partitions": 4, "rate": 1000, "seconds": 1.5}


def play(stage: Stage, broker: BrokerProcess) -> None:
    """The whole demonstration, on a broker that is not yet started."""
    begin = time.perf_counter()
    stage.curtain("Penstock at work: one broker, real Kafka and AMQP clients, real figures")
    start(stage, broker)
    clients(stage, broker.kafka)
    speed(stage, broker.kafka)
    play_group(stage, broker.kafka)
    transactions(stage, broker.kafka)
    play_queue(stage, broker)
    recovery(stage, broker)
    play_pipeline(stage, broker)
    stage.console.print()
    stage.fact(f"everything came true in {time.perf_counter() - begin:.0f} seconds")


def start(stage: Stage, broker: BrokerProcess) -> None:
    stage.scene("A broker starts", f"penstock serve --data {broker.data}")
    seconds = broker.start()
    stage.fact(broker.ready_line)
    stage.fact(f"{seconds * 1000:.0f} ms from nothing to open doors, Python's own start included")


def clients(stage: Stage, bootstrap: str) -> None:
    stage.scene("Clients that know only Kafka", "each sends, and reads what all of them sent")
    fresh_topic(bootstrap, "hello", 4)
    found = installed_clients()
    sent: list[bytes] = []
    took: dict[str, float] = {}
    for client in found:
        values = [f"{client.name} {number}".encode() for number in range(EACH)]
        begin = time.perf_counter()
        client.send(bootstrap, "hello", values)
        took[client.name] = time.perf_counter() - begin
        sent += values
    rows = []
    for client in found:
        begin = time.perf_counter()
        read = client.read(bootstrap, "hello", len(sent))
        seconds = time.perf_counter() - begin
        if sorted(read) != sorted(sent):
            raise Failure(f"{client.name} read {len(read)} of {len(sent)} messages")
        rows.append(
            [client.name, EACH, f"{took[client.name]:.2f} s", len(read), f"{seconds:.2f} s"]
        )
    stage.table(("client", "sent", "acknowledged in", "read back", "in"), rows)


def speed(stage: Stage, bootstrap: str) -> None:
    stage.scene(
        "How fast", "100 byte messages, acks=all: each acknowledgement waits until it is on disk"
    )
    load = Load(bootstrap=bootstrap, acks="all", compression="none", linger_ms=5, **QUICK_LOAD)  # type: ignore[arg-type]
    produced, consumed = measure_throughput(load, consume=True)
    latency = measure_latency(load)
    stage.fact(f"produced {produced['messages_per_s']:,.0f} messages a second")
    stage.fact(f"consumed {consumed['messages_per_s']:,.0f} messages a second")
    stage.fact(
        f"from producer to consumer at 1,000 a second: half within {latency['p50']:.1f} ms, "
        f"99 % within {latency['p99']:.1f} ms"
    )


def transactions(stage: Stage, bootstrap: str) -> None:
    stage.scene("A transaction is aborted", "five records that nobody who cares ever sees")
    fresh_topic(bootstrap, "payments", 1)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": "demo", "log_level": 0}
    )
    producer.init_transactions(15)
    producer.begin_transaction()
    for number in range(5):
        producer.produce("payments", f"wrong {number}".encode())
    producer.flush(15)
    producer.abort_transaction(15)
    producer.begin_transaction()
    for number in range(3):
        producer.produce("payments", f"right {number}".encode())
    producer.commit_transaction(15)
    committed = [m.value() for m in read_all(bootstrap, "payments", "read_committed")]
    everything = read_all(bootstrap, "payments", "read_uncommitted")
    if len(committed) != 3 or any(value.startswith(b"wrong") for value in committed):
        raise Failure(f"a reader of committed records saw {committed}")
    stage.fact("aborted 5 records, then committed 3")
    stage.fact(
        f"read_committed sees {len(committed)}, read_uncommitted sees all {len(everything)} "
        "that are in the log"
    )


def recovery(stage: Stage, broker: BrokerProcess) -> None:
    stage.scene("kill -9", "the broker dies while a producer is writing, and comes back")
    fresh_topic(broker.kafka, "ledger", 4)
    acknowledged: set[tuple[int, int]] = set()
    producer = Producer(
        {"bootstrap.servers": broker.kafka, "acks": "all", "linger.ms": 1, "log_level": 0}
    )

    def delivered(error: Any, message: Any) -> None:
        if error is None:
            acknowledged.add((message.partition(), message.offset()))

    end = time.perf_counter() + 1.0
    while time.perf_counter() < end:
        for _ in range(200):
            producer.produce("ledger", b"entry", on_delivery=delivered)
        producer.poll(0.002)
    broker.kill()
    producer.purge()
    producer.flush(5)
    at_death = len(acknowledged)
    stage.note(f"killed process {broker.pid} after {at_death:,} acknowledged records")
    seconds = broker.start()
    stage.fact(f"serving again after {seconds:.2f} s")
    found = {(m.partition(), m.offset()) for m in read_all(broker.kafka, "ledger")}
    lost = acknowledged - found
    if lost:
        raise Failure(f"{len(lost)} acknowledged records are lost")
    stage.fact(f"{at_death:,} acknowledged, {len(found):,} found, 0 lost")
