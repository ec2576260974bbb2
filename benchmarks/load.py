"""The load: one client process that writes or reads, and says how fast.

Run as `python -m benchmarks.load produce|consume|latency BOOTSTRAP ...`; it prints one JSON object.
A process of its own keeps the client's threads out of the one that starts the brokers.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
import uuid
from typing import Any

import confluent_kafka as ck

SILENT = {"log_level": 0}


def produce(bootstrap: str, topic: str, count: int, size: int, idempotent: bool) -> dict[str, Any]:
    """As many messages a second as the client and the broker can do, acks=all."""
    producer = ck.Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": idempotent,
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "batch.num.messages": 10_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
            **SILENT,
        }
    )
    producer.list_topics(topic, 30)
    failed = 0

    def delivered(error: ck.KafkaError | None, message: ck.Message) -> None:
        nonlocal failed
        failed += error is not None

    value = b"x" * size
    messages: list[Any] = [{"value": value} for _ in range(1000)]
    messages[-1]["callback"] = delivered  # one report in a thousand: the others cost the client
    began = time.perf_counter()
    sent = 0
    while sent < count:
        try:
            sent += producer.produce_batch(topic, messages)
        except BufferError:
            producer.poll(0.005)
        producer.poll(0)
    left = producer.flush(120)
    seconds = time.perf_counter() - began
    return {"messages": sent, "per_second": sent / seconds, "failed": failed + left}


def consume(bootstrap: str, topic: str, count: int) -> dict[str, Any]:
    """Read what is there from the beginning, all partitions."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"bench-{uuid.uuid4()}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "queued.min.messages": 1_000_000,
            **SILENT,
        }
    )
    partitions = consumer.list_topics(topic, 30).topics[topic].partitions
    ends = 0
    for partition in partitions:
        low, high = consumer.get_watermark_offsets(ck.TopicPartition(topic, partition), 30)
        ends += high - low
    count = min(count, ends)
    began = time.perf_counter()
    consumer.assign([ck.TopicPartition(topic, p, ck.OFFSET_BEGINNING) for p in partitions])
    read = 0
    while read < count:
        messages = consumer.consume(10_000, 10)
        if not messages:
            break
        read += len(messages)
    seconds = time.perf_counter() - began
    consumer.close()
    return {"messages": read, "per_second": read / seconds, "failed": count - read}


def latency(bootstrap: str, topic: str, rate: int, seconds: float) -> dict[str, Any]:
    """From produce() to the consumer's hands, at a steady rate, linger 0."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"bench-{uuid.uuid4()}",
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
            "fetch.error.backoff.ms": 0,
            **SILENT,
        }
    )
    producer = ck.Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, **SILENT}
    )
    producer.list_topics(topic, 30)
    consumer.assign([ck.TopicPartition(topic, 0, ck.OFFSET_BEGINNING)])
    taken: list[float] = []
    wanted = int(rate * seconds)

    def read() -> None:
        while len(taken) < wanted:
            message = consumer.poll(5)
            if message is None:
                return
            if not message.error():
                taken.append(time.perf_counter() - float(message.value() or b"nan"))

    producer.produce(topic, repr(time.perf_counter()), partition=0)
    producer.flush(10)
    reader = threading.Thread(target=read)
    reader.start()
    time.sleep(1.0)
    due = time.perf_counter()
    for _ in range(wanted):
        due += 1 / rate
        time.sleep(max(0.0, due - time.perf_counter()))
        producer.produce(topic, repr(time.perf_counter()), partition=0)
        producer.poll(0)
    producer.flush(10)
    reader.join(20)
    consumer.close()
    ordered = sorted(taken[max(2, wanted // 10) :])  # the first tenth warms up
    return {
        "messages": len(ordered),
        "p50_ms": ordered[len(ordered) // 2] * 1000,
        "p99_ms": ordered[int(len(ordered) * 0.99)] * 1000,
        "failed": wanted - len(taken),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["produce", "consume", "latency"])
    parser.add_argument("bootstrap")
    parser.add_argument("--topic", default="bench")
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--idempotent", action="store_true")
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=10)
    given = parser.parse_args()
    if given.what == "produce":
        result = produce(given.bootstrap, given.topic, given.count, given.size, given.idempotent)
    elif given.what == "consume":
        result = consume(given.bootstrap, given.topic, given.count)
    else:
        result = latency(given.bootstrap, given.topic, given.rate, given.seconds)
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
