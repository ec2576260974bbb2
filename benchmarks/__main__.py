"""Throughput, latency, start time and memory of the Kafka door, beside its peers, in one run.

    python -m benchmarks [--quick] [--rounds N] [--only throughput,latency,start,memory] [--write]

Peers take turns within each round, so that a noisy machine is noisy for all of them; a ratio is the
median over the rounds of ours by theirs in the same round. `--write` puts figures and plots into
docs/benchmarks.md and docs/benchmarks/. The bars are those of the design: see BARS.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import floor, page, peers
from benchmarks.page import Figures, Verdict, median, ratio, say
from benchmarks.peers import Running, Unavailable, resident_mb

ROOT = Path(__file__).parent.parent

Peer = Callable[[], contextlib.AbstractContextManager[Running]]
PEERS: dict[str, Peer] = {
    "penstock, fsync": peers.penstock,
    "penstock, os": lambda: peers.penstock("--durability", "os"),
    "librdkafka mock (ceiling)": peers.mock,
    "Apache Kafka, flush.messages=1": lambda: peers.apache_kafka(flush_every_message=True),
    "Apache Kafka, default": peers.apache_kafka,
}
OURS, CEILING = "penstock, fsync", "librdkafka mock (ceiling)"
FLOOR = "no broker: socket, write, fdatasync"
BARS = {
    "produce, by the mock": 0.5,
    "consume, by the mock": 0.8,
    "p50 ms": 2.0,
    "p99 ms": 5.0,
    "start, seconds": 0.5,
    "start with 1,000 partitions, seconds": 1.0,
    "idle memory, MB": 60.0,
}


def load(what: str, bootstrap: str, *arguments: object) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.load", what, bootstrap, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        cwd=ROOT,
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def each_peer(figures: Figures, measure: Callable[[Running], dict[str, Any]]) -> None:
    """One round: every peer that can be had, one after the other."""
    for name, start in PEERS.items():
        try:
            with start() as running:
                result = measure(running)
        except Unavailable as reason:
            say(f"  {name}: left out, {reason}")
            continue
        figures.setdefault(name, []).append(result)
        shown = "  ".join(f"{key} {value:,.2f}" for key, value in result.items())
        say(f"  {name}: {shown}")


def throughput(count: int, rounds: int) -> Figures:
    figures: Figures = {}

    def measure(running: Running) -> dict[str, Any]:
        load("produce", running.bootstrap, "--count", count // 10, "--topic", "warm")
        written = load("produce", running.bootstrap, "--count", count)
        read = load("consume", running.bootstrap, "--count", count)
        return {
            "produce": written["per_second"],
            "consume": read["per_second"],
            "failed": written["failed"] + read["failed"],
        }

    for number in range(rounds):
        say(f"throughput, round {number + 1} of {rounds}: messages a second, 100 B, acks=all")
        each_peer(figures, measure)
    return figures


def latency(seconds: float, rounds: int) -> Figures:
    figures: Figures = {}

    def measure(running: Running) -> dict[str, Any]:
        load("latency", running.bootstrap, "--seconds", seconds / 2, "--topic", "warm")
        result = load("latency", running.bootstrap, "--seconds", seconds)
        return {"p50": result["p50_ms"], "p99": result["p99_ms"], "failed": result["failed"]}

    for number in range(rounds):
        say(f"latency, round {number + 1} of {rounds}: ms end to end, 1,000 messages a second")
        bare = floor.latency(1000, seconds)
        figures.setdefault(FLOOR, []).append(bare)
        say(f"  {FLOOR}: p50 {bare['p50']:.2f}  p99 {bare['p99']:.2f}")
        each_peer(figures, measure)
    return figures


def start_and_memory(rounds: int) -> Figures:
    figures: Figures = {}

    def measure(running: Running) -> dict[str, Any]:
        time.sleep(2)
        return {"start": running.ready_seconds, "memory": resident_mb(running.pid)}

    for number in range(rounds):
        say(f"start and idle memory, round {number + 1} of {rounds}: seconds, MB")
        each_peer(figures, measure)
    return figures


def restart_with_partitions(count: int) -> float:
    """Seconds to ready after a clean stop with so many partitions that hold data."""
    import tempfile

    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=Path.cwd()) as directory:
        data = Path(directory)
        with peers.penstock(data=data) as running:
            admin = AdminClient({"bootstrap.servers": running.bootstrap})
            for future in admin.create_topics([NewTopic("many", count)]).values():
                future.result(60)
            producer = Producer({"bootstrap.servers": running.bootstrap, "log_level": 0})
            for partition in range(count):
                producer.produce("many", b"x", partition=partition)
            assert producer.flush(120) == 0
        with peers.penstock(data=data) as running:
            return running.ready_seconds


def verdicts(results: dict[str, Any]) -> list[Verdict]:
    """Of every bar of the design that was measured."""
    rows: list[Verdict] = []

    def add(what: str, figure: float | None, *, at_least: bool = False) -> None:
        if figure is not None:
            bar = BARS[what]
            met = figure >= bar if at_least else figure <= bar
            rows.append(Verdict(what, figure, bar, met))

    speed = results.get("throughput", {})
    add("produce, by the mock", ratio(speed, "produce", OURS, CEILING), at_least=True)
    add("consume, by the mock", ratio(speed, "consume", OURS, CEILING), at_least=True)
    add("p50 ms", median(results.get("latency", {}), OURS, "p50"))
    add("p99 ms", median(results.get("latency", {}), OURS, "p99"))
    idle = results.get("start", {})
    add("start, seconds", median(idle, OURS, "start"))
    add("start with 1,000 partitions, seconds", results.get("restart"))
    add("idle memory, MB", median(idle, OURS, "memory"))
    return rows


def report(results: dict[str, Any]) -> str:
    tables = [page.verdict_table(verdicts(results))]
    for key, title, columns in (
        ("throughput", "messages a second, 100 B, acks=all", ("produce", "consume")),
        ("latency", "end to end at 1,000 messages a second, ms", ("p50", "p99")),
        ("start", "start in seconds, idle memory in MB", ("start", "memory")),
    ):
        if results.get(key):
            tables.append(page.median_table(title, results[key], columns))
    return "\n".join(tables)


def write_docs(results: dict[str, Any], tables: str) -> None:
    """Figures between the markers of docs/benchmarks.md, and the plots beside it."""
    plots = ""
    for key, column, title, lower in (
        ("throughput", "produce", "Produce, messages/s", False),
        ("throughput", "consume", "Consume, messages/s", False),
        ("latency", "p99", "End-to-end latency p99, ms", True),
    ):
        if figures := results.get(key):
            values = {name: median(figures, name, column) or 0.0 for name in figures}
            plots += page.plot(f"kafka-{column}", title, values, lower=lower)
    page.write_section("kafka", "make bench", tables + plots)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the load, one round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="throughput,latency,start,restart")
    parser.add_argument("--without-apache", action="store_true", help="leave Apache Kafka out")
    parser.add_argument("--write", action="store_true", help="update docs/benchmarks.md")
    given = parser.parse_args()
    if given.without_apache:
        for name in [name for name in PEERS if name.startswith("Apache")]:
            del PEERS[name]
    rounds = 1 if given.quick else given.rounds
    count = 200_000 if given.quick else 2_000_000
    wanted = given.only.split(",")
    results: dict[str, Any] = {}
    if "throughput" in wanted:
        results["throughput"] = throughput(count, rounds)
    if "latency" in wanted:
        results["latency"] = latency(3 if given.quick else 10, rounds)
    if "start" in wanted:
        results["start"] = start_and_memory(rounds)
    if "restart" in wanted:
        results["restart"] = restart_with_partitions(1000)
    tables = report(results)
    sys.stdout.write(tables)
    if given.write:
        write_docs(results, tables)
    return 0 if all(each.met for each in verdicts(results)) else 1


if __name__ == "__main__":
    raise SystemExit(main())
