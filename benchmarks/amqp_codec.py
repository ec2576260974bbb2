"""CPU per message of the AMQP codec, beside pamqp doing the same.

    python -m benchmarks.amqp_codec

Each figure is the least CPU time of seven runs over 2,000 messages, in microseconds a message.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from pamqp import body, commands, frame, header

from penstock.model import message_properties
from penstock.wire.amqp import content
from penstock.wire.amqp.connection import ServerConnection
from penstock.wire.amqp.events import LoginAttempted, Published, VirtualHostWanted
from penstock.wire.amqp.handshake import Limits

MESSAGES = 2_000
RUNS = 7
IN_ONE_READ = 100
CELERY = commands.Basic.Properties(
    content_type="application/json",
    content_encoding="utf-8",
    delivery_mode=2,
    priority=0,
    correlation_id="6d3a1a3e-6f1d-4a3c-9d44-2b2e8a0a4b11",
    reply_to="0c9be9b0-9b83-3a3b-b1b1-50e6d1a3f9d7",
    headers={
        "lang": "py", "task": "tasks.add", "id": "6d3a1a3e-6f1d-4a3c-9d44-2b2e8a0a4b11",
        "shadow": "", "eta": "", "expires": "", "group": "", "retries": 0,
        "root_id": "6d3a1a3e-6f1d-4a3c-9d44-2b2e8a0a4b11", "parent_id": "", "argsrepr": "(2, 2)",
        "kwargsrepr": "{}", "origin": "gen12345@host", "ignore_result": False,
    },
)  # fmt: skip
PERSISTENT = commands.Basic.Properties(delivery_mode=2)


@dataclass(slots=True)
class Parcel:
    exchange: str
    routing_key: str
    properties: bytes
    body: bytes
    redelivered: bool = False


def microseconds(work: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(RUNS):
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return best / MESSAGES * 1e6


def running_connection() -> ServerConnection:
    connection = ServerConnection(Limits(), {})
    connection.receive(b"AMQP\x00\x00\x09\x01")
    start_ok = commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US")
    for sent in (start_ok, commands.Connection.TuneOk(0, 0, 0), commands.Connection.Open("/")):
        for event in connection.receive(frame.marshal(sent, 0)):
            if isinstance(event, LoginAttempted):
                connection.accept_login()
            elif isinstance(event, VirtualHostWanted):
                connection.open_virtual_host()
    connection.receive(frame.marshal(commands.Channel.Open(), 1))
    return connection


def publish_triple(properties: commands.Basic.Properties, payload: bytes) -> list[bytes]:
    return [
        frame.marshal(commands.Basic.Publish(exchange="", routing_key="orders"), 1),
        frame.marshal(header.ContentHeader(0, len(payload), properties), 1),
        frame.marshal(body.ContentBody(payload), 1),
    ]


def report(name: str, theirs: Callable[[], object], ours: Callable[[], object]) -> None:
    slow, fast = microseconds(theirs), microseconds(ours)
    print(f"{name:<58} pamqp {slow:6.2f}   penstock {fast:6.2f}   {slow / fast:5.1f} x")


def decode(name: str, properties: commands.Basic.Properties, size: int, *, check: bool) -> None:
    triple = publish_triple(properties, b"x" * size)
    read = b"".join(triple) * IN_ONE_READ
    connection = running_connection()

    def theirs() -> None:
        for _ in range(MESSAGES):
            for part in triple:
                frame.unmarshal(part)

    def ours() -> None:
        for _ in range(MESSAGES // IN_ONE_READ):
            for event in connection.receive(read):
                if check and isinstance(event, Published):
                    for _, raw, _ in event.groups:
                        message_properties.parse(raw)

    report(f"publish in, {name}{', properties checked' if check else ''}", theirs, ours)


def decode_various() -> None:
    """The other extreme: no two messages have the same size and id."""
    triples = [
        publish_triple(
            commands.Basic.Properties(delivery_mode=2, message_id=f"{number:036d}"),
            b"x" * (80 + number % 40),
        )
        for number in range(IN_ONE_READ)
    ]
    read = b"".join(part for triple in triples for part in triple)
    connection = running_connection()

    def theirs() -> None:
        for _ in range(MESSAGES // IN_ONE_READ):
            for triple in triples:
                for part in triple:
                    frame.unmarshal(part)

    def ours() -> None:
        for _ in range(MESSAGES // IN_ONE_READ):
            for event in connection.receive(read):
                assert isinstance(event, Published)
                for _, raw, _ in event.groups:
                    message_properties.parse(raw)

    report("publish in, about 100 B, all different, checked", theirs, ours)


def encode(name: str, properties: commands.Basic.Properties, size: int) -> None:
    payload = b"x" * size
    raw = frame.marshal(header.ContentHeader(0, size, properties), 1)[19:-1]
    parcels = [Parcel("", "orders", raw, payload) for _ in range(IN_ONE_READ)]
    encoder = content.DeliveryEncoder(1, "ctag1.0", 131072)

    def theirs() -> None:
        for tag in range(MESSAGES):
            deliver = commands.Basic.Deliver("ctag1.0", tag, False, "", "orders")
            frame.marshal(deliver, 1)
            frame.marshal(header.ContentHeader(0, size, properties), 1)
            frame.marshal(body.ContentBody(payload), 1)

    def ours() -> None:
        tag = 1
        for _ in range(MESSAGES // IN_ONE_READ):
            out: content.Buffers = []
            tag = encoder.encode(out, parcels, tag)
            b"".join(out)

    report(f"deliver out, {name}", theirs, ours)


def settle() -> None:
    acks = [frame.marshal(commands.Basic.Ack(tag, False), 1) for tag in range(1, IN_ONE_READ + 1)]
    read = b"".join(acks)
    connection = running_connection()

    def theirs_in() -> None:
        for _ in range(MESSAGES // IN_ONE_READ):
            for ack in acks:
                frame.unmarshal(ack)

    def ours_in() -> None:
        for _ in range(MESSAGES // IN_ONE_READ):
            connection.receive(read)

    def theirs_out() -> None:
        for tag in range(MESSAGES):
            frame.marshal(commands.Basic.Ack(tag, True), 1)

    def ours_out() -> None:
        for tag in range(MESSAGES):
            content.confirm(1, tag, True)

    report("ack in", theirs_in, ours_in)
    report("confirm out", theirs_out, ours_out)


def main() -> None:
    for name, properties, size in (
        ("100 B", PERSISTENT, 100),
        ("1 KiB", PERSISTENT, 1024),
        ("100 B with Celery's headers", CELERY, 100),
    ):
        decode(name, properties, size, check=False)
        decode(name, properties, size, check=True)
        encode(name, properties, size)
    decode_various()
    settle()


if __name__ == "__main__":
    main()
