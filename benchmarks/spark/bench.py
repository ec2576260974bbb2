"""What every part of the benchmark shares: a session, the connectors that take turns, the clock."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

OURS, THEIRS = "penstock", "kafka"
LONGEST_QUERY_S = 240


class Done(NamedTuple):
    """What a job did; without seconds, all of its time counts."""

    rows: int
    seconds: float | None = None
    all_rows: int = 0  # those of the first batch too


class Bench:
    """One run."""

    def __init__(
        self, bootstrap: str, directory: Path, jars: list[Path], rows: int, rounds: int, events: int
    ) -> None:
        self.bootstrap = bootstrap
        self.directory = directory
        self.rows = rows
        self.rounds = rounds
        self.events = events
        self.formats = [OURS, THEIRS] if jars else [OURS]
        self._jars = jars
        self._numbers = count()
        self._began = time.monotonic()
        self._until, self._lines = float("inf"), 1

    @cached_property
    def spark(self) -> Any:
        from penstock.spark.launch import session

        settings = {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "2"}
        if self._jars:
            settings["spark.jars"] = ",".join(map(str, self._jars))
        return session("benchmark", "local[2]", settings)

    def allow(self, seconds: float, lines: int) -> None:
        """The next `lines` comparisons share this time; each leaves out the rounds it lacks."""
        self._until, self._lines = time.monotonic() + seconds, lines

    def say(self, text: str) -> None:
        """Progress, to standard error."""
        sys.stderr.write(f"{time.monotonic() - self._began:5.0f} s  {text}\n")

    def topic(self, stem: str, partitions: int = 4) -> str:
        """A new topic."""
        name = f"{stem}-{next(self._numbers)}"
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 3})
        admin.create_topics([NewTopic(name, partitions)])[name].result(20)
        return name

    def fill(self, topic: str, records: Iterable[tuple[bytes | None, bytes]]) -> None:
        """Write (key, value) pairs as quickly as librdkafka does."""
        settings = {"bootstrap.servers": self.bootstrap, "linger.ms": 20, "batch.size": 500_000}
        producer = Producer({**settings, "queue.buffering.max.messages": 2_000_000})
        for at, (key, value) in enumerate(records):
            producer.produce(topic, value, key=key)
            if at % 10_000 == 0:
                producer.poll(0)
        assert producer.flush(300) == 0

    def checkpoint(self) -> str:
        return str(self.directory / f"checkpoint-{next(self._numbers)}")

    def reader(self, kind: str, topic: str, *, stream: bool = False, **options: str) -> Any:
        how = self.spark.readStream if stream else self.spark.read
        options = {"subscribe": topic, "kafka.bootstrap.servers": self.bootstrap, **options}
        if stream:
            options.setdefault("startingOffsets", "earliest")
        return how.format(kind).options(**options).load()

    def run(self, frame: Any, kind: str, **options: str) -> list[dict[str, Any]]:
        """A streaming query over everything that is there; the progress of its batches."""
        if kind in (OURS, THEIRS):
            options = {"kafka.bootstrap.servers": self.bootstrap, **options}
        writer = frame.writeStream.format(kind).options(**options)
        writer = writer.option("checkpointLocation", self.checkpoint())
        query = writer.trigger(availableNow=True).start()
        if not query.awaitTermination(LONGEST_QUERY_S):
            query.stop()
            raise TimeoutError(f"a query did not end within {LONGEST_QUERY_S} s")
        return list(query.recentProgress)

    def stream(self, frame: Any, kind: str, **options: str) -> Done:
        """The same as rows and seconds, without the first batch, which starts the workers."""
        batches = self.run(frame, kind, **options)
        rows = [batch["numInputRows"] for batch in batches]
        spent_ms = sum(batch["durationMs"]["triggerExecution"] for batch in batches[1:])
        return Done(sum(rows[1:]), spent_ms / 1000, sum(rows))

    def compare(
        self, what: str, jobs: dict[str, Callable[[], Done]], rounds: int | None = None
    ) -> dict[str, Any]:
        """Rows a second and processor time a row of each job, by turns, after one warm-up.

        There are as many rounds as asked for, or as there is time for, but one at least. A job that
        fails is left out and said to have failed.
        """
        now = time.monotonic()
        until = now + max(0.0, self._until - now) / max(self._lines, 1)
        self._lines -= 1
        paces: dict[str, list[float]] = {name: [] for name in jobs}
        costs: dict[str, list[float]] = {name: [] for name in jobs}
        for at in range((rounds or self.rounds) + 1):
            began = time.monotonic()
            for name in list(paces) if at % 2 else list(reversed(paces)):
                try:
                    pace, cost = self._measured(jobs[name])
                except Exception as failure:
                    self.say(f"{what}, {name}, failed: {failure}"[:300])
                    del paces[name], costs[name]
                    continue
                self.say(f"{what}, {name}, {'round ' + str(at) if at else 'warm-up'}: {pace:,.0f}")
                if at:
                    paces[name].append(pace)
                    costs[name].append(cost)
            if at and 2 * time.monotonic() - began > until:
                break
        return {**line(what, paces), **_processor(costs)}

    def _measured(self, job: Callable[[], Done]) -> tuple[float, float]:
        """Rows a second, and processor seconds a row."""
        began, cpu = time.perf_counter(), self._cpu_seconds()
        done = job()
        spent = done.seconds or time.perf_counter() - began
        return done.rows / spent, (self._cpu_seconds() - cpu) / (done.all_rows or done.rows)

    def _cpu_seconds(self) -> float:
        """Of Spark's JVM and every Python it has started: what a crowded machine cannot blur."""
        jvm = int(self.spark._jvm.java.lang.ProcessHandle.current().pid())
        parents, spent = {}, {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            pid = int(stat.parent.name)
            parents[pid] = int(fields[1])
            spent[pid] = sum(map(int, fields[11:15]))  # its own, and of children that have ended
        total = 0
        for pid in parents:
            ancestor = pid
            while ancestor not in (0, 1, jvm):
                ancestor = parents.get(ancestor, 0)
            total += spent[pid] if ancestor == jvm else 0
        return total / os.sysconf("SC_CLK_TCK")


def _processor(costs: dict[str, list[float]]) -> dict[str, Any]:
    """Microseconds of processor time a row, and how many times ours theirs takes."""
    found: dict[str, Any] = {
        f"{name} cpu": round(statistics.median(values) * 1e6, 2) for name, values in costs.items()
    }
    ours = next((name for name in costs if name.startswith(OURS)), None)
    if THEIRS in costs and ours:
        found["cpu ratio"] = round(found[f"{THEIRS} cpu"] / found[f"{ours} cpu"], 2)
    return found


def line(what: str, paces: dict[str, list[float]], digits: int = 0) -> dict[str, Any]:
    """Medians, and the median ratio of ours by theirs."""
    found: dict[str, Any] = {"what": what}
    for name, values in paces.items():
        found[name] = round(statistics.median(values), digits or None)
    ours = next((name for name in paces if name.startswith(OURS)), None)
    if THEIRS in paces and ours:
        pairs = zip(paces[ours], paces[THEIRS], strict=True)
        found["ratio"] = round(statistics.median(one / other for one, other in pairs), 2)
    return found
