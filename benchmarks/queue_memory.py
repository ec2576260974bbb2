"""What waiting messages and declared queues cost a whole broker, in memory and at its start.

    python -m benchmarks.queue_memory [--messages 10000000] [--queues 100000] [--write]

The broker is a process of its own. A queue is filled with persistent messages of 100 bytes through
the AMQP door while a consumer takes some of them and acknowledges; its memory is then compared with
what it was with the queue empty. Likewise with a queue of ten priorities, and one whose messages
expire one by one. Then that many queues are declared, and the broker is started again. `--write`
puts the figures into docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import struct
import sys
import tempfile
import threading
import time
from pathlib import Path

from pamqp import commands, frame

from benchmarks import amqp_peers, page
from benchmarks.amqp_client import Load, RawClient, consume, encoded_publish
from benchmarks.page import say
from benchmarks.peers import resident_mb

MB_BAR, KB_BAR, START_BAR = 200.0, 2.0, 10.0
WINDOW, BATCH, CHANNELS = 5_000, 500, 100
KINDS: dict[str, tuple[dict[str, object], bytes]] = {
    "one after the other": ({}, b"\x10\x00\x02"),
    "ten priorities": ({"x-max-priority": 9}, b"\x18\x00\x02\x05"),
    "an expiry each": ({}, b"\x11\x00\x02\x0886400000"),
}


def fill(host: str, port: int, queue: str, messages: int, properties: bytes) -> float:
    """Publish with confirms; returns the seconds."""
    client = RawClient(host, port)
    client.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
    one = encoded_publish(queue, b"x" * 100, True)
    header = b"\x10\x00\x02"
    plain = struct.pack(">BHI", 2, 1, 12 + len(header)) + b"\x00\x3c\x00\x00"
    wanted = struct.pack(">BHI", 2, 1, 12 + len(properties)) + b"\x00\x3c\x00\x00"
    block = one.replace(plain, wanted).replace(header + b"\xce", properties + b"\xce") * BATCH
    sent = confirmed = 0
    buffer = client.buffer
    began = time.perf_counter()
    while confirmed < messages:
        while sent < messages and sent - confirmed < WINDOW:
            client.socket.sendall(block)
            sent += BATCH
        buffer += client.socket.recv(65536)
        whole = len(buffer) // 21 * 21
        for at in range(0, whole, 21):
            tag = int.from_bytes(buffer[at + 11 : at + 19], "big")
            confirmed = tag if buffer[at + 19] else confirmed + 1
        buffer = buffer[whole:]
    client.close()
    return time.perf_counter() - began


def waiting(kind: str, messages: int) -> dict[str, float]:
    """Fill a queue while a consumer takes a twentieth of it; then start the broker again."""
    arguments, properties = KINDS[kind]
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=Path.cwd()) as data:
        with amqp_peers.penstock(data=data) as broker:
            client = RawClient(broker.host, broker.port)
            client.declare("waiting", arguments)
            fill(broker.host, broker.port, "waiting", BATCH, properties)
            load = Load(broker.host, broker.port, "waiting", 0, prefetch=500)
            consume(load, BATCH)
            time.sleep(2)
            empty = resident_mb(broker.pid)
            taker = threading.Thread(target=consume, args=(load, messages // 20))
            taker.start()
            seconds = fill(broker.host, broker.port, "waiting", messages, properties)
            taker.join()
            time.sleep(3)
            more = resident_mb(broker.pid) - empty
            client.close()
        with amqp_peers.penstock(data=data) as broker:
            idle = resident_mb(broker.pid)
            began = time.perf_counter()
            client = RawClient(broker.host, broker.port)
            client.socket.settimeout(600)
            passive = commands.Queue.Declare(queue="waiting", passive=True)
            found = client.call(1, passive, commands.Queue.DeclareOk)
            opened = time.perf_counter() - began
            assert found.message_count == messages - messages // 20, found.message_count
            again = resident_mb(broker.pid) - idle
            client.close()
            return {
                "messages/s": messages / seconds, "more MB": more,
                "start s": broker.ready_seconds, "opened s": opened, "then more MB": again,
            }  # fmt: skip


def declared(queues: int) -> dict[str, float]:
    """Declare so many queues; then start the broker again."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=Path.cwd()) as data:
        with amqp_peers.penstock(data=data) as broker:
            client = RawClient(broker.host, broker.port)
            client.declare("first", {})
            time.sleep(1)
            idle = resident_mb(broker.pid)
            began = time.perf_counter()
            _declare(client, queues)
            seconds = time.perf_counter() - began
            time.sleep(2)
            each = (resident_mb(broker.pid) - idle) * 1024 / queues
            client.close()
        with amqp_peers.penstock(data=data) as broker:
            return {
                "declared/s": queues / seconds, "KB each": each, "start s": broker.ready_seconds,
                "KB each then": (resident_mb(broker.pid) - idle) * 1024 / queues,
            }  # fmt: skip


def _declare(client: RawClient, queues: int) -> None:
    """On many channels at once, so that they share their syncs; each is asked for its last one."""
    numbers = range(2, 2 + CHANNELS)
    for channel in numbers:
        client.call(channel, commands.Channel.Open(), commands.Channel.OpenOk)
    for start in range(0, queues, 1000):
        client.socket.sendall(
            b"".join(
                frame.marshal(
                    commands.Queue.Declare(queue=f"queue-{n:06d}", durable=True, nowait=True),
                    numbers[n % CHANNELS],
                )
                for n in range(start, min(start + 1000, queues))
            )
        )
    for channel in numbers:  # a channel does what it is told in order
        passive = commands.Queue.Declare(queue="first", passive=True)
        client.socket.settimeout(600)
        client.call(channel, passive, commands.Queue.DeclareOk)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.queue_memory", description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--queues", type=int, default=100_000)
    parser.add_argument("--only", default=",".join(KINDS))
    parser.add_argument("--write", action="store_true", help="update docs/benchmarks.md")
    given = parser.parse_args()
    parts, met = [], True
    if given.messages:
        rows = {}
        for kind in given.only.split(","):
            rows[kind] = waiting(kind, given.messages)
            say(f"{kind}: {rows[kind]}")
        parts.append(_table(f"{given.messages:,} messages wait", rows))
        met = all(max(row["more MB"], row["then more MB"]) < MB_BAR for row in rows.values())
        parts.append(f"Bar: less than {MB_BAR:g} MB more than an empty queue.\n")
    if given.queues:
        row = declared(given.queues)
        say(f"queues: {row}")
        parts.append(_table(f"{given.queues:,} queues", {"declared": row}))
        met = met and row["KB each"] < KB_BAR and row["start s"] < START_BAR
        parts.append(f"Bars: {KB_BAR:g} KB each, ready again within {START_BAR:g} s.\n")
    text = "\n".join(parts)
    sys.stdout.write(text)
    if given.write:
        page.write_section("queues", "python -m benchmarks.queue_memory", text)
    return 0 if met else 1


def _table(title: str, rows: dict[str, dict[str, float]]) -> str:
    columns = list(next(iter(rows.values())))
    return page.median_table(title, {name: [row] for name, row in rows.items()}, columns)


if __name__ == "__main__":
    raise SystemExit(main())
