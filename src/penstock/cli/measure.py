"""The measurements behind `penstock bench`."""

from __future__ import annotations

import os
import random
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.cli.connection import (
    TIMEOUT_S,
    admin_client,
    broker_errors,
    consumer_client,
    producer_client,
    result_of,
)
from penstock.cli.output import Failure
from penstock.cli.progress import Progress

CHUNK = 1000  # messages given to the producer with one call
STALLED_S = 30.0
_SENT_AT = struct.Struct(">d")


@dataclass(frozen=True, kw_only=True)
class Load:
    """What is put on the broker."""

    bootstrap: str
    messages: int
    size: int
    partitions: int
    acks: str
    compression: str
    linger_ms: float
    rate: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@contextmanager
def _topic(load: Load) -> Iterator[str]:
    """A topic that is there only for the measurement."""
    admin: AdminClient = admin_client(load.bootstrap)
    name = f"penstock-bench-{os.getpid()}-{random.getrandbits(32):08x}"
    with broker_errors(load.bootstrap):
        [future] = admin.create_topics([NewTopic(name, load.partitions)]).values()
    result_of(future, load.bootstrap, "cannot create a topic to measure with")
    try:
        yield name
    finally:
        with broker_errors(load.bootstrap):
            [future] = admin.delete_topics([name]).values()
        result_of(future, load.bootstrap, f"cannot delete {name}")


def _producer(load: Load, linger_ms: float) -> Producer:
    return producer_client(
        load.bootstrap,
        **{
            "acks": load.acks,
            "compression.type": load.compression,
            "linger.ms": linger_ms,
            "batch.num.messages": 100_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1_048_576,
        },
    )


def _payload(size: int) -> bytes:
    """Bytes that compress about as well as text does: half random, half not."""
    half = random.Random(7).randbytes((size + 1) // 2)
    return bytes(byte for pair in zip(half, b" " * len(half), strict=True) for byte in pair)[:size]


def measure_throughput(load: Load, *, consume: bool) -> list[dict[str, Any]]:
    """Produce all messages, then read all of them back."""
    with _topic(load) as topic, broker_errors(load.bootstrap):
        results = [_measure_produce(load, topic)]
        if consume:
            results.append(_measure_consume(load, topic))
    return results


def _measure_produce(load: Load, topic: str) -> dict[str, Any]:
    producer = _producer(load, load.linger_ms)
    producer.list_topics(topic, timeout=TIMEOUT_S)  # connect before the clock starts
    value = _payload(load.size)
    whole = [{"value": value} for _ in range(CHUNK)]
    with Progress("producing", load.messages, unit="messages") as progress:
        begin = time.perf_counter()
        sent = 0
        while sent < load.messages:
            chunk = whole if load.messages - sent >= CHUNK else whole[: load.messages - sent]
            # A chunk spread over the partitions would be cut into small batches; the partitioner
            # of librdkafka is sticky only for produce(), so each chunk goes to one partition.
            sent += _send(producer, topic, chunk, (sent // CHUNK) % load.partitions)
            progress.advance(len(chunk))
        left = producer.flush(STALLED_S)
        seconds = time.perf_counter() - begin
    if left:
        raise Failure(f"{left} messages were not acknowledged within {STALLED_S:.0f} s")
    return _throughput("produce", load, seconds)


def _send(producer: Producer, topic: str, chunk: list[dict[str, Any]], partition: int) -> int:
    """Queue a whole chunk; when the queue is full, wait and queue the rest."""
    rest = chunk
    while rest:
        for message in rest:
            message.pop("_error", None)
        queued = producer.produce_batch(topic, rest, partition)
        if queued < len(rest):
            failed = [message for message in rest if "_error" in message]
            error = failed[0]["_error"]
            if error.name() != "_QUEUE_FULL":
                raise KafkaException(error)
            producer.poll(0.01)
            rest = failed
        else:
            rest = []
    producer.poll(0)
    return len(chunk)


def _measure_consume(load: Load, topic: str) -> dict[str, Any]:
    consumer: Consumer = consumer_client(
        load.bootstrap,
        **{
            "group.id": "penstock-bench",
            "enable.auto.commit": False,
            "queued.min.messages": 1_000_000,
            "fetch.message.max.bytes": 4 * 2**20,
            "fetch.wait.max.ms": 100,
        },
    )
    consumer.list_topics(topic, timeout=TIMEOUT_S)
    with Progress("consuming", load.messages, unit="messages") as progress:
        begin = last = time.perf_counter()
        consumer.assign([TopicPartition(topic, number, 0) for number in range(load.partitions)])
        received = 0
        while received < load.messages:
            got = len(consumer.consume(10_000, timeout=0.05))
            received += got
            now = time.perf_counter()
            if got:
                last = now
                progress.advance(got)
            elif now - last > STALLED_S:
                raise Failure(f"only {received} of {load.messages} messages came back")
        seconds = time.perf_counter() - begin
    consumer.close()
    return _throughput("consume", load, seconds)


def _throughput(name: str, load: Load, seconds: float) -> dict[str, Any]:
    return {
        "measurement": name,
        "messages": load.messages,
        "seconds": seconds,
        "messages_per_s": load.messages / seconds,
        "bytes_per_s": load.messages * load.size / seconds,
    }


def measure_latency(load: Load) -> dict[str, Any]:
    """From the call of produce to the return of poll, at a fixed rate, linger 0."""
    with _topic(load) as topic, broker_errors(load.bootstrap):
        consumer: Consumer = consumer_client(
            load.bootstrap,
            **{"group.id": "penstock-bench", "enable.auto.commit": False, "fetch.wait.max.ms": 500},
        )
        places = [TopicPartition(topic, number, 0) for number in range(load.partitions)]
        consumer.assign(places)
        producer = _producer(load, 0)
        warm_up = max(1, load.rate // 2)
        wanted = warm_up + max(1, round(load.rate * load.seconds))
        sender = threading.Thread(target=_send_at_rate, args=(producer, topic, load, wanted))
        latencies: list[float] = []
        with Progress("latency", wanted, unit="messages") as progress:
            sender.start()
            last = time.perf_counter()
            while len(latencies) < wanted:
                message = consumer.poll(0.1)
                now = time.perf_counter()
                if message is None:
                    if now - last > STALLED_S:
                        raise Failure(f"only {len(latencies)} of {wanted} messages came back")
                    continue
                if message.error() is not None:
                    raise KafkaException(message.error())
                value: Any = message.value()
                latencies.append(now - _SENT_AT.unpack_from(value)[0])
                last = now
                progress.advance()
        sender.join()
        consumer.close()
    return _percentiles(latencies[warm_up:])


def _send_at_rate(producer: Producer, topic: str, load: Load, wanted: int) -> None:
    """Each message at its own moment: a slow broker must not slow the clock that measures it."""
    padding = _payload(max(0, load.size - _SENT_AT.size))
    begin = time.perf_counter()
    for number in range(wanted):
        due = begin + number / load.rate
        while (wait := due - time.perf_counter()) > 0:
            producer.poll(0)
            time.sleep(min(wait, 0.001))
        # Stamped with the moment it was due, so that a late sender counts as latency too.
        producer.produce(topic, _SENT_AT.pack(due) + padding, partition=number % load.partitions)
    producer.flush(STALLED_S)


def _percentiles(latencies: list[float]) -> dict[str, Any]:
    ordered = sorted(latencies)

    def at(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000

    return {
        "measurement": "latency",
        "messages": len(ordered),
        "p50": at(0.5),
        "p95": at(0.95),
        "p99": at(0.99),
        "p999": at(0.999),
        "max": ordered[-1] * 1000,
    }
