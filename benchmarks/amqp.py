"""The AMQP door beside RabbitMQ in one run: throughput, latency, memory, start.

    python -m benchmarks.amqp [--quick] [--rounds N] [--write]

The client is raw and pipelined (`amqp_client`): persistent messages, confirms with 1,000
outstanding, prefetch 500, an ack for every 50. Peers take turns within each round, so that a noisy
machine is noisy for all of them; a ratio is the median over the rounds of ours by theirs in one
round. Penstock confirms after fdatasync; RabbitMQ's quorum queue does too, its classic queue does
not. `--write` puts figures and plots into docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import amqp_client, amqp_peers, amqp_references, page
from benchmarks.amqp_client import Load, RawClient
from benchmarks.amqp_peers import AmqpRunning
from benchmarks.page import Figures, Verdict, median, ratio, say
from benchmarks.peers import Unavailable, resident_mb

ROOT = Path(__file__).parent.parent
OURS, QUORUM, CLASSIC = "penstock", "RabbitMQ quorum", "RabbitMQ classic"
BARS = {"100 B, by the quorum queue": 2.0, "1 KiB, by the quorum queue": 2.0}


@contextlib.contextmanager
def peers() -> Any:
    """Every broker that can be had, all at once and idle while another is measured."""
    with contextlib.ExitStack() as stack:
        running: dict[str, tuple[AmqpRunning, dict[str, object]]] = {}
        running[OURS] = (stack.enter_context(amqp_peers.penstock()), {})
        try:
            rabbit = stack.enter_context(amqp_peers.rabbitmq())
        except Unavailable as reason:
            say(f"RabbitMQ is left out: {reason}")
        else:
            running[QUORUM] = (rabbit, {"x-queue-type": "quorum"})
            running[CLASSIC] = (rabbit, {"x-queue-type": "classic"})
        yield running


def throughput(running: dict[str, Any], messages: int, size: int, rounds: int) -> Figures:
    figures: Figures = {}
    for number in range(rounds):
        say(f"{size} B, round {number + 1} of {rounds}: messages a second")
        for name, (broker, arguments) in running.items():
            count = messages if name == OURS else messages // 3
            load = Load(broker.host, broker.port, f"bench-{size}-{number}", count - count % 100,
                        size, arguments=arguments)  # fmt: skip
            before = cpu_seconds(broker.pid)
            result = amqp_client.run(load)
            cpu_us = (cpu_seconds(broker.pid) - before) / load.messages * 1e6
            row = {
                "published": result.publish_rate, "consumed": result.consume_rate,
                "confirm p50 ms": result.confirm_p50_ms, "cpu us": cpu_us,
            }  # fmt: skip
            figures.setdefault(name, []).append(row)
            say("  " + name + ": " + "  ".join(f"{key} {value:,.1f}" for key, value in row.items()))
    return figures


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def latency(running: dict[str, Any], seconds: float, rounds: int) -> Figures:
    """End to end at 1,000 messages a second: publish, confirm, deliver to a waiting consumer."""
    figures: Figures = {}
    for number in range(rounds):
        say(f"latency, round {number + 1} of {rounds}: ms end to end at 1,000 messages a second")
        for name, (broker, arguments) in running.items():
            queue = f"bench-latency-{number}"
            times = amqp_client.measure_latency(
                Load(broker.host, broker.port, queue, int(seconds * 1000), arguments=arguments)
            )
            times.sort()
            row = {
                "p50": times[len(times) // 2] * 1000, "p99": times[int(len(times) * 0.99)] * 1000,
            }  # fmt: skip
            figures.setdefault(name, []).append(row)
            say(f"  {name}: p50 {row['p50']:.2f} ms  p99 {row['p99']:.2f} ms")
    return figures


def pika_throughput(running: dict[str, Any], messages: int) -> Figures:
    """pika as people use it: one process publishes with confirms, one consumes."""
    figures: Figures = {}
    say("pika: messages a second")
    for name, (broker, arguments) in running.items():
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.amqp_pika", broker.host, str(broker.port),
             str(messages), str(arguments.get("x-queue-type", "classic"))],
            capture_output=True, text=True, timeout=300, check=True, cwd=ROOT,
        )  # fmt: skip
        rate = float(done.stdout)
        figures[name] = [{"pika": rate}]
        say(f"  {name}: {rate:,.0f}")
    return figures


def waiting(messages: int) -> Figures:
    """Memory with so many messages waiting, beside the same broker empty; and its start."""
    figures: Figures = {}
    starts: dict[str, Callable[[], Any]] = {OURS: amqp_peers.penstock}
    starts |= {QUORUM: amqp_peers.rabbitmq, CLASSIC: amqp_peers.rabbitmq}
    say(f"{messages:,} messages waiting: MB more than empty; start in seconds")
    for name, start in starts.items():
        kind = {QUORUM: "quorum", CLASSIC: "classic"}.get(name)
        arguments: dict[str, object] = {"x-queue-type": kind} if kind else {}
        try:
            with start() as broker:
                time.sleep(1)
                idle = resident_mb(broker.pid)
                client = RawClient(broker.host, broker.port)
                client.declare("waiting", arguments)
                amqp_client.publish(Load(broker.host, broker.port, "waiting", messages))
                time.sleep(3)
                row = {
                    "start s": broker.ready_seconds, "idle MB": idle,
                    "more MB": resident_mb(broker.pid) - idle,
                }  # fmt: skip
                client.close()
        except Unavailable as reason:
            say(f"  {name}: left out, {reason}")
            continue
        figures[name] = [row]
        say("  " + name + ": " + "  ".join(f"{key} {value:,.1f}" for key, value in row.items()))
    return figures


def verdicts(results: dict[str, Figures]) -> list[Verdict]:
    rows = []
    for size, what in ((100, "100 B, by the quorum queue"), (1024, "1 KiB, by the quorum queue")):
        figure = ratio(results.get(f"{size} B", {}), "consumed", OURS, QUORUM)
        if figure is not None:
            rows.append(Verdict(what, figure, BARS[what], figure >= BARS[what]))
    return rows


def report(results: dict[str, Figures]) -> str:
    tables = [page.verdict_table(verdicts(results))]
    for title, figures in results.items():
        if figures:
            columns = list(next(iter(figures.values()))[0])
            tables.append(page.median_table(title, figures, columns))
    return "\n".join(tables)


def write_docs(results: dict[str, Figures], tables: str) -> None:
    """Figures between the markers of docs/benchmarks.md, and the plots beside it."""
    plots = ""
    for key, column, title, lower in (
        ("100 B", "consumed", "AMQP, persistent, confirmed, 100 B, messages/s end to end", False),
        ("1024 B", "consumed", "AMQP, persistent, confirmed, 1 KiB, messages/s end to end", False),
        ("latency, ms", "p99", "AMQP, end-to-end latency p99, ms", True),
    ):
        if figures := results.get(key):
            values = {name: median(figures, name, column) or 0.0 for name in figures}
            name = f"amqp-{key.split()[0].strip(',')}"
            plots += page.plot(name, title, values, lower=lower)
    page.write_section("amqp", "python -m benchmarks.amqp", tables + plots)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.amqp", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the load, one round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="throughput,latency,pika,references,waiting")
    parser.add_argument("--write", action="store_true", help="update docs/benchmarks.md")
    given = parser.parse_args()
    wanted = given.only.split(",")
    rounds = 1 if given.quick else given.rounds
    messages = 60_000 if given.quick else 450_000
    results: dict[str, Figures] = {}
    with peers() as running:
        if "throughput" in wanted:
            results["100 B"] = throughput(running, messages, 100, rounds)
            results["1024 B"] = throughput(running, messages, 1024, rounds)
        if "latency" in wanted:
            results["latency, ms"] = latency(running, 2 if given.quick else 10, rounds)
        if "pika" in wanted:
            results["pika, messages/s"] = pika_throughput(running, 4000 if given.quick else 40_000)
    if "references" in wanted:
        say("references: messages a second, published and synced, 100 B")
        rates = amqp_references.publish_rates(messages // 5)
        results["published only, 100 B"] = {n: [{"published": r}] for n, r in rates.items()}
    if "waiting" in wanted:
        results["waiting"] = waiting(100_000 if given.quick else 1_000_000)
    tables = report(results)
    sys.stdout.write(tables)
    if given.write:
        write_docs(results, tables)
    return 0 if all(each.met for each in verdicts(results)) else 1


if __name__ == "__main__":
    raise SystemExit(main())
