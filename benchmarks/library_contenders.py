"""One contender of `benchmarks.library` at work, in a process of its own.

    python -m benchmarks.library_contenders NAME --count N [--bootstrap HOST:PORT]

Each publishes messages of 100 bytes and takes them out again, and prints what it did in a second.
What "published" means differs, and is in MEANS: a figure is to be read with it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import queue
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

PAYLOAD = b"x" * 100
TOPIC = "bench"

DISK = "on disk"
ELSEWHERE = "on disk, elsewhere"
MEANS = {
    "penstock.open, publish_many": DISK,
    "penstock.open, send": DISK,
    "penstock.open, publish": DISK,
    "penstock.open, queue": DISK,
    "penstock.open(None), send": "in memory",
    "penstock.aio.open, send": DISK,
    "penstock.connect, publish_many": ELSEWHERE,
    "penstock.connect, send": ELSEWHERE,
    "confluent-kafka alone": ELSEWHERE,
    "aiokafka alone": ELSEWHERE,
    "queue.Queue": "in memory",
    "multiprocessing.Queue": "in a pipe",
    "persist-queue, file": "in the page cache",
    "persist-queue, SQLite": DISK,
    "huey, SQLite": "in the page cache",
}
SLOW = {
    "penstock.open, publish": 50,
    "penstock.open, queue": 2,
    "persist-queue, file": 100,
    "persist-queue, SQLite": 100,
    "huey, SQLite": 100,
}  # by how much less is done, for it to end this week
MANY = {"penstock.open, publish_many", "penstock.connect, publish_many", "confluent-kafka alone"}

Figures = dict[str, float]


def _directory() -> tempfile.TemporaryDirectory[str]:
    """On the disk that is measured, which the system's own for such things may not be."""
    return tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=Path.cwd())


class Stopwatch:
    """Measures from its making to `stop`: how many a second, and the processor time of each."""

    def __init__(self) -> None:
        self._began, self._worked = time.perf_counter(), time.process_time()

    def stop(self, count: int) -> Measured:
        seconds, worked = time.perf_counter() - self._began, time.process_time() - self._worked
        return Measured(count / seconds, worked / count * 1e6)


class Measured(NamedTuple):
    """The processor time is that of this process, all its threads, in microseconds."""

    per_second: float
    cpu_us: float


def timed(count: int, work: Callable[[], object]) -> Measured:
    watch = Stopwatch()
    work()
    return watch.stop(count)


def figures(published: Measured, consumed: Measured) -> Figures:
    return {
        "publish": published.per_second,
        "publish_us": published.cpu_us,
        "consume": consumed.per_second,
        "consume_us": consumed.cpu_us,
    }


# --- ours -----------------------------------------------------------------------------------------


def _read_all(mq: Any, count: int) -> Measured:
    """From joining a group to having handled every message."""

    def read() -> None:
        seen = 0
        with mq.subscribe(TOPIC, group="bench") as messages:
            while seen < count:
                seen += len(messages.batch(5_000, timeout=60))

    return timed(count, read)


def _send_all(mq: Any, count: int) -> None:
    futures = [mq.send(TOPIC, PAYLOAD) for _ in range(count)]
    for future in futures:
        future.result()


def _streams(mq: Any, count: int, how: str) -> Figures:
    mq.admin.create_topic(TOPIC, partitions=4)
    mq.publish("warm", PAYLOAD)
    work: dict[str, Callable[[], object]] = {
        "publish_many": lambda: mq.publish_many(TOPIC, [PAYLOAD] * count),
        "send": lambda: _send_all(mq, count),
        "publish": lambda: [mq.publish(TOPIC, PAYLOAD) for _ in range(count)],
    }
    published = timed(count, work[how])
    return figures(published, _read_all(mq, count))


def _opened(count: int, how: str) -> Figures:
    import penstock

    with _directory() as data, penstock.open(data) as mq:
        return _streams(mq, count, how)


def _in_memory(count: int, how: str) -> Figures:
    import penstock

    with penstock.open(None) as mq:
        return _streams(mq, count, how)


def _connected(count: int, how: str, bootstrap: str) -> Figures:
    import penstock

    with penstock.connect(bootstrap) as mq:
        return _streams(mq, count, how)


def _queue(count: int) -> Figures:
    import penstock

    with _directory() as data, penstock.open(data) as mq:
        work = mq.queue("work")
        work.publish(PAYLOAD)
        work.purge()
        published = timed(count, lambda: work.publish_many([PAYLOAD] * count))

        def take() -> None:
            with work.consume(prefetch=500) as messages:
                for _ in range(count):
                    next(messages).ack()

        return figures(published, timed(count, take))


def _async(count: int) -> Figures:
    import penstock

    async def main(data: str) -> Figures:
        async with penstock.aio.open(data) as mq:
            await mq.admin.create_topic(TOPIC, partitions=4)
            await mq.publish("warm", PAYLOAD)
            watch = Stopwatch()
            await asyncio.gather(*[await mq.send(TOPIC, PAYLOAD) for _ in range(count)])
            published = watch.stop(count)
            watch, seen = Stopwatch(), 0
            async with mq.subscribe(TOPIC, group="bench") as messages:
                while seen < count:
                    seen += len(await messages.batch(5_000, timeout=60))
            return figures(published, watch.stop(count))

    with _directory() as data:
        return asyncio.run(main(data))


# --- others, over the network ---------------------------------------------------------------------


def _confluent(count: int, bootstrap: str) -> Figures:
    from confluent_kafka import Consumer, Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 2,
            "queue.buffering.max.messages": 0,
        }
    )
    producer.produce("warm", PAYLOAD)
    producer.flush()

    def publish() -> None:
        for number in range(count):
            producer.produce(TOPIC, PAYLOAD)
            if not number % 1_000:
                producer.poll(0)
        assert producer.flush(120) == 0

    published = timed(count, publish)
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "bench", "auto.offset.reset": "earliest"}
    )

    def read() -> None:
        consumer.subscribe([TOPIC])
        seen = 0
        while seen < count:
            seen += len(consumer.consume(5_000, timeout=1))

    consumed = timed(count, read)
    consumer.close()
    return figures(published, consumed)


def _aiokafka(count: int, bootstrap: str) -> Figures:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    async def main() -> Figures:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=2)
        await producer.start()
        await producer.send_and_wait("warm", PAYLOAD)
        watch = Stopwatch()
        for future in [await producer.send(TOPIC, PAYLOAD) for _ in range(count)]:
            await future
        published = watch.stop(count)
        await producer.stop()
        consumer = AIOKafkaConsumer(
            TOPIC, bootstrap_servers=bootstrap, group_id="bench", auto_offset_reset="earliest"
        )
        watch, seen = Stopwatch(), 0
        await consumer.start()
        while seen < count:
            found = await consumer.getmany(timeout_ms=1000, max_records=5_000)
            seen += sum(map(len, found.values()))
        consumed = watch.stop(count)
        await consumer.stop()
        return figures(published, consumed)

    return asyncio.run(main())


# --- others, in this process ----------------------------------------------------------------------


def _queue_queue(count: int) -> Figures:
    waiting: queue.Queue[bytes] = queue.Queue()
    published = timed(count, lambda: [waiting.put(PAYLOAD) for _ in range(count)])
    taken: list[Measured] = []
    thread = threading.Thread(
        target=lambda: taken.append(timed(count, lambda: [waiting.get() for _ in range(count)]))
    )
    thread.start()
    thread.join()
    return figures(published, taken[0])


def _drain(waiting: Any, answer: Any, count: int) -> None:
    answer.put(tuple(timed(count, lambda: [waiting.get() for _ in range(count)])))


def _multiprocessing(count: int) -> Figures:
    context = multiprocessing.get_context("spawn")
    waiting, answer = context.Queue(), context.Queue()
    other = context.Process(target=_drain, args=(waiting, answer, count))
    other.start()
    published = timed(count, lambda: [waiting.put(PAYLOAD) for _ in range(count)])
    consumed = Measured(*answer.get())
    other.join()
    return figures(published, consumed)


def _persist_queue(count: int, kind: str) -> Figures:
    import persistqueue

    with _directory() as data:
        if kind == "file":
            waiting: Any = persistqueue.Queue(data, autosave=True)
        else:
            waiting = persistqueue.SQLiteQueue(data, auto_commit=True)
        published = timed(count, lambda: [waiting.put(PAYLOAD) for _ in range(count)])
        consumed = timed(count, lambda: [waiting.get() for _ in range(count)])
        return figures(published, consumed)


def _huey(count: int) -> Figures:
    from huey import SqliteHuey

    with _directory() as data:
        huey = SqliteHuey(filename=str(Path(data) / "huey.db"), results=False)

        @huey.task()
        def work(payload: bytes) -> None:
            pass

        def run() -> None:
            for _ in range(count):
                huey.execute(huey.dequeue())

        published = timed(count, lambda: [work(PAYLOAD) for _ in range(count)])
        return figures(published, timed(count, run))


def measure(name: str, count: int, bootstrap: str) -> Figures:
    """Publish and consume so many messages."""
    how = name.rpartition(" ")[2]
    match name.partition(",")[0]:
        case "penstock.open" if how == "queue":
            return _queue(count)
        case "penstock.open":
            return _opened(count, how)
        case "penstock.open(None)":
            return _in_memory(count, how)
        case "penstock.aio.open":
            return _async(count)
        case "penstock.connect":
            return _connected(count, how, bootstrap)
        case "confluent-kafka alone":
            return _confluent(count, bootstrap)
        case "aiokafka alone":
            return _aiokafka(count, bootstrap)
        case "queue.Queue":
            return _queue_queue(count)
        case "multiprocessing.Queue":
            return _multiprocessing(count)
        case "persist-queue":
            return _persist_queue(count, how)
        case "huey":
            return _huey(count)
    raise AssertionError(name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=sorted(MEANS))
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--bootstrap", default="")
    given = parser.parse_args()
    sys.stdout.write(json.dumps(measure(given.name, given.count, given.bootstrap)) + "\n")


if __name__ == "__main__":
    main()
