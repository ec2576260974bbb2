"""Bad input: the broker lives, its memory stays, other clients do not notice."""

from __future__ import annotations

import contextlib
import random
import resource
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pamqp import commands as c

from support.amqp_wire import PROTOCOL_HEADER, AmqpWire, publish_frames, raw_frame, short
from support.naming import unique
from support.waiting import eventually

pytestmark = pytest.mark.own_broker
Open = Callable[..., AmqpWire]
ALLOWED_MB = 64


@pytest.fixture
def unharmed(amqp: Any, broker: Any, wire: Open) -> Iterator[None]:
    """Another client works before and after, and memory has not grown beyond what is allowed."""
    bystander = wire()
    queue = bystander.call(1, c.Queue.Declare(queue="", exclusive=True), c.Queue.DeclareOk).queue
    before = broker.memory_mb()
    yield
    bystander.publish("", queue, b"still here")
    got = bystander.call(1, c.Basic.Get(queue=queue, no_ack=True), c.Basic.GetOk)
    assert got.body == b"still here"
    grown = broker.memory_mb() - before
    assert grown < ALLOWED_MB, f"{grown:.0f} MB more"
    assert broker.running


def held(one: AmqpWire, data: bytes) -> bool:
    """Whether the broker stops reading when the same is said again and again."""
    try:
        for _ in range(3000):
            one.send_raw(data)
    except TimeoutError:
        return True
    return False


@pytest.mark.usefixtures("unharmed")
def test_frames_that_claim_to_be_huge(wire: Open) -> None:
    for size in (0xFFFFFFFF, 0x7FFFFFFF, 200_000):
        for kind in (1, 2, 3):
            one = wire()
            one.send_raw(struct.pack(">BHI", kind, 1, size) + b"x" * 100)
            one.expect_error(c.Connection.Close, 501)


@pytest.mark.usefixtures("unharmed")
def test_a_long_first_frame_is_refused_before_it_is_read(wire: Open) -> None:
    one = wire(raw=True)
    one.send_raw(PROTOCOL_HEADER)
    one.expect(c.Connection.Start)
    one.send_raw(struct.pack(">BHI", 1, 0, 100_000) + b"x" * 1000)
    one.expect_error(c.Connection.Close, 501)


@pytest.mark.usefixtures("unharmed")
def test_tables_nested_ten_thousand_deep(wire: Open) -> None:
    value = b"V"
    for _ in range(10_000):
        value = b"F" + struct.pack(">I", len(value) + 2) + b"\x01k" + value
    table = struct.pack(">I", len(value) + 2) + b"\x01k" + value
    declare = wire()
    declare.send_method(1, 50, 10, b"\0\0" + short("q") + b"\0" + table)
    declare.expect_error(c.Connection.Close, 501)
    publish = wire()
    publish.send_raw(publish_frames(1, "", "q", b"x", b"\x20\x00" + table))
    publish.expect_error(c.Connection.Close, 501)


@pytest.mark.usefixtures("unharmed")
def test_publishes_that_never_end_on_many_channels(wire: Open) -> None:
    """Each channel of a connection begins a message of 10 MB and sends most of it."""
    one = wire(channels=64)
    part = b"x" * 130_000
    header = b"\0\x3c\0\0" + struct.pack(">Q", 10_000_000) + b"\0\0"
    method = b"\0\x3c\0\x28\0\0" + short("") + short("q") + b"\0"
    said = [
        raw_frame(1, number, method)
        + raw_frame(2, number, header)
        + raw_frame(3, number, part) * 70
        for number in range(1, 65)
    ]
    with contextlib.suppress(ConnectionError):
        for data in said:
            one.send_raw(data)
    with contextlib.suppress(ConnectionError):
        one.expect_error(c.Connection.Close, 506)


@pytest.mark.usefixtures("unharmed")
def test_a_thousand_connections_that_send_a_byte_now_and_then(amqp: Any) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
    slow = [socket.create_connection((amqp.host, amqp.port), 10) for _ in range(1000)]
    try:
        for byte in PROTOCOL_HEADER[:3]:
            for one in slow:
                one.sendall(bytes([byte]))
            time.sleep(0.2)
        fast = AmqpWire(amqp.host, amqp.port)
        started = time.monotonic()
        fast.handshake()
        assert time.monotonic() - started < 2
        fast.close()
        # A handshake takes at most ten seconds, then the socket is taken back.
        slow[0].settimeout(15)
        assert slow[0].recv(100) == b""
    finally:
        for one in slow:
            one.close()


@pytest.mark.usefixtures("unharmed")
@pytest.mark.parametrize("seed", range(8))
def test_valid_conversations_with_bytes_turned(wire: Open, seed: int) -> None:
    random_bytes = random.Random(seed)
    said = b"".join(
        [
            raw_frame(1, 1, b"\0\x32\0\x0a\0\0" + short(unique("fuzz")) + b"\x08\0\0\0\0"),
            publish_frames(1, "amq.direct", "k", b"x" * 50) * 5,
            raw_frame(1, 1, b"\0\x3c\0\x0a" + struct.pack(">IHB", 0, 10, 0)),
            raw_frame(1, 1, b"\0\x55\0\x0a\0"),
            publish_frames(1, "", "nowhere", b"y" * 500, flags=1) * 3,
            raw_frame(8, 0, b""),
        ]
    )
    for _ in range(30):
        damaged = bytearray(said)
        for _ in range(random_bytes.randint(1, 4)):
            damaged[random_bytes.randrange(len(damaged))] = random_bytes.randrange(256)
        one = wire()
        one.socket.settimeout(0.2)
        try:
            one.send_raw(bytes(damaged))
            one.send_raw(raw_frame(1, 0, b"\0\x0a\0\x32\0\xc8\0\0\0\0\0"))
        except ConnectionError:
            continue
        one.at_end()
        one.close()


@pytest.mark.usefixtures("unharmed")
def test_a_client_that_reads_nothing_is_not_fed_for_ever(wire: Open, broker: Any) -> None:
    """It gets the same large message over and over, and publishes what comes back to it."""
    one = wire()
    one.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    queue = one.call(1, c.Queue.Declare(queue="", exclusive=True), c.Queue.DeclareOk).queue
    one.publish("", queue, b"x" * 1_000_000)
    get = raw_frame(1, 1, b"\0\x3c\0\x46\0\0" + short(queue) + b"\0")
    requeue = raw_frame(1, 1, b"\0\x3c\0\x78" + struct.pack(">QB", 0, 3))
    one.socket.settimeout(1)
    assert held(one, (get + requeue) * 500)


@pytest.mark.usefixtures("unharmed")
def test_a_publisher_that_reads_no_returns_is_held(wire: Open) -> None:
    one = wire()
    one.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one.socket.settimeout(2)
    block = publish_frames(1, "", "nowhere", b"x" * 100_000, flags=1)
    assert held(one, block)


@pytest.mark.usefixtures("unharmed")
def test_many_idle_connections(amqp: Any, broker: Any) -> None:
    before = broker.memory_mb()
    idle = [AmqpWire(amqp.host, amqp.port).handshake() for _ in range(500)]
    each_kb = (broker.memory_mb() - before) / 500 * 1024
    for one in idle:
        one.close()
    assert each_kb < 60, f"{each_kb:.0f} KB each"


@pytest.mark.usefixtures("unharmed")
@pytest.mark.parametrize("name", ["../../etc", "a\0b", "<script>", "x" * 255, "é" * 127])
def test_names_are_only_names(wire: Open, broker: Any, name: str) -> None:
    one = wire()
    one.send_method(1, 50, 10, b"\0\0" + short(name) + b"\x02\0\0\0\0")
    one.expect(c.Queue.DeclareOk)
    one.publish("", name, b"x")
    one.send_method(1, 60, 70, b"\0\0" + short(name) + b"\x01")
    assert one.expect(c.Basic.GetOk).body == b"x"
    one.send_method(1, 50, 40, b"\0\0" + short(name) + b"\0")
    one.expect(c.Queue.DeleteOk)
    assert not list(broker.data.parent.glob("etc*"))


@pytest.mark.usefixtures("unharmed")
def test_a_topic_pattern_of_many_wildcards_costs_no_more(wire: Open) -> None:
    one = wire()
    exchange = unique("wild")
    one.call(1, c.Exchange.Declare(exchange=exchange, exchange_type="topic", auto_delete=True),
             c.Exchange.DeclareOk)  # fmt: skip
    queue = one.call(1, c.Queue.Declare(queue="", exclusive=True), c.Queue.DeclareOk).queue
    pattern = ".".join(["#"] * 60 + ["end"])
    bind = c.Queue.Bind(queue=queue, exchange=exchange, routing_key=pattern)
    one.call(1, bind, c.Queue.BindOk)
    started = time.monotonic()
    for number in range(20):
        one.publish(exchange, ".".join(["w"] * 100 + [str(number)]), b"x")
    one.call(1, c.Channel.Flow(True), c.Channel.FlowOk)
    assert time.monotonic() - started < 2


def test_wrong_passwords_take_time(wire: Open) -> None:
    started = time.monotonic()
    one = wire(raw=True)
    one.send_raw(PROTOCOL_HEADER)
    one.expect(c.Connection.Start)
    one.send(0, c.Connection.StartOk({}, "PLAIN", "\0guest\0wrong", "en_US"))
    assert one.at_end()
    assert time.monotonic() - started > 0.5


def test_credentials_are_not_in_the_log(wire: Open, broker: Any) -> None:
    secret = unique("secret")
    one = wire(raw=True)
    one.send_raw(PROTOCOL_HEADER)
    one.expect(c.Connection.Start)
    one.send(0, c.Connection.StartOk({}, "PLAIN", f"\0guest\0{secret}", "en_US"))
    assert one.at_end()
    eventually(lambda: "refused a login" in broker.log)
    assert secret not in broker.log
