"""Bad input: nothing crashes, nobody else notices, and memory does not grow by more than 64 MB.

Every test here runs beside a bystander: another client on its own connection that writes and reads
all the while, and must see every record within seconds. The broker's peak memory is measured from
before the test to after it (when the broker is ours to measure).
"""

from __future__ import annotations

import contextlib
import random
import resource
import socket
import struct
import time
from collections.abc import Callable, Iterator

import cramjam
import pytest

from support.batches import batch, records, sealed, with_header_field
from support.broker import BrokerProcess, ForeignBroker
from support.bystander import Bystander, produce
from support.fetching import fetch_bytes, fetch_request
from support.waiting import eventually
from support.wire import ConnectionClosed, Wire, create_topic, encode_request

Connect = Callable[..., Wire]
Name = Callable[[str], str]
GROWTH_MB = 64
REFUSED = {"corrupt_message", "invalid_record", "message_too_large", "unsupported_compression_type"}


@pytest.fixture(autouse=True)
def unharmed(broker: BrokerProcess | ForeignBroker) -> Iterator[None]:
    """The bystander and the scales, around every test of this module."""
    bystander = Bystander(broker)
    bystander.start()
    eventually(lambda: bystander.rounds > 0 or bystander.failure)
    before = 0.0
    if isinstance(broker, BrokerProcess):
        broker.forget_peak_memory()
        before = broker.memory_mb()
    yield
    rounds = bystander.rounds
    eventually(lambda: bystander.rounds > rounds + 2 or bystander.failure)
    bystander.done.set()
    bystander.join(15)
    bystander.wire.close()
    assert bystander.failure is None, bystander.failure
    assert bystander.slowest < 5, f"another client waited {bystander.slowest:.1f} s"
    if isinstance(broker, BrokerProcess):
        assert broker.running
        grown = broker.peak_memory_mb() - before
        assert grown <= GROWTH_MB, f"memory grew by {grown:.0f} MB"


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def header(key: int, version: int) -> bytes:
    """A request header without client id; flexible versions want an empty tag buffer after it."""
    return struct.pack(">hhih", key, version, 1, -1)


# --- lengths ----------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 500_000_000, 200_000_000])
def test_an_impossible_length_closes_the_connection_before_anything_is_allocated(
    connect: Connect, length: int
) -> None:
    wire = connect()
    wire.send_bytes(struct.pack(">i", length) + b"\0" * 100)
    assert wire.is_closed()


@pytest.mark.parametrize("body", [b"", b"\0", b"\0\x03", b"\0\x03\0\0\0\0\0"], ids=len)
def test_a_frame_too_short_for_its_header_closes_the_connection(
    connect: Connect, body: bytes
) -> None:
    wire = connect()
    wire.send_bytes(frame(body))
    assert wire.is_closed()


@pytest.mark.own_broker  # it would kill Apache Kafka with a small heap
def test_large_frames_that_never_end_do_not_fill_the_memory(connect: Connect) -> None:
    """Fifty clients announce 100 MB each and send the first 64 KiB."""
    wires = [connect() for _ in range(50)]
    for wire in wires:
        wire.send_bytes(struct.pack(">i", 100_000_000) + header(0, 9) + b"\0" * 65_536)
    time.sleep(0.5)


@pytest.mark.own_broker
def test_a_client_that_never_reads_its_answers_is_held_back(
    connect: Connect, wire: Wire, name: Name
) -> None:
    """200 fetches of a megabyte, unread: what is not read must wait in the log, not in memory."""
    topic = name("unread")
    create_topic(wire, topic)
    for _ in range(4):
        assert produce(wire, topic, batch([b"x" * 900_000])) == "none"
    lazy = connect()
    lazy.socket.settimeout(2)
    request = encode_request("fetch", 11, fetch_request(topic, max_wait=0))
    with contextlib.suppress(TimeoutError, ConnectionClosed):
        for _ in range(200):
            lazy.send_bytes(request)
    time.sleep(1)


@pytest.mark.own_broker
def test_a_crowd_that_asks_for_much_and_reads_nothing_shares_one_bound(
    broker: BrokerProcess, wire: Wire, name: Name
) -> None:
    """Sixty readers want 27 MB each: over a gigabyte, if every one of them were answered."""
    topic = name("unread")
    create_topic(wire, topic)
    for _ in range(300):
        assert produce(wire, topic, batch([b"x" * 90_000])) == "none"
    request = encode_request("fetch", 11, fetch_request(topic, partition_max_bytes=50 << 20))
    lazy = opened(broker, 60)
    try:
        for one in lazy:
            one.sendall(request)
        time.sleep(2)
    finally:
        for one in lazy:
            one.close()


# --- slow and idle ----------------------------------------------------------------------------


def opened(broker: BrokerProcess | ForeignBroker, count: int) -> list[socket.socket]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count + 500:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count + 2000), hard))
    sockets = []
    for _ in range(count):
        sockets.append(socket.create_connection((broker.host, broker.port), 10))
    return sockets


@pytest.mark.own_broker  # Apache Kafka takes a quarter of a minute for so many, and a minute below
def test_a_thousand_clients_that_send_a_byte_at_a_time(
    broker: BrokerProcess | ForeignBroker,
) -> None:
    request = encode_request("metadata", 9, {"topics": []})
    sockets = opened(broker, 1000)
    try:
        for at in range(5):
            for one in sockets:
                one.send(request[at : at + 1])
            time.sleep(0.3)
    finally:
        for one in sockets:
            one.close()


@pytest.mark.own_broker
def test_ten_thousand_idle_connections(broker: BrokerProcess | ForeignBroker) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(10_000, hard - 1000)
    sockets = opened(broker, count)
    try:
        time.sleep(0.5)
        request = encode_request("api_versions", 0, {})
        chosen = random.Random(7).sample(sockets, 20)
        for one in chosen:
            one.sendall(request)
        for one in chosen:
            one.settimeout(10)
            assert one.recv(4)
    finally:
        for one in sockets:
            one.close()


# --- malformed requests -----------------------------------------------------------------------

HUGE = struct.pack(">i", 2**31 - 1)
COMPACT_HUGE = b"\xff\xff\xff\xff\x0f"  # an unsigned varint of 2^32 - 1
MALFORMED = {
    "array of 2^31-1 topics": header(3, 4) + HUGE,
    "array of -5 topics": header(3, 4) + struct.pack(">i", -5),
    "compact array of 2^32-2": header(3, 9) + b"\0" + COMPACT_HUGE,
    "string of 32767 bytes that are not there": header(3, 4) + struct.pack(">ih", 1, 32767),
    "string of length -7": header(3, 4) + struct.pack(">ih", 1, -7),
    "varint without an end": header(3, 9) + b"\0" + b"\xff" * 20,
    "ten thousand tagged fields": header(3, 9) + b"\0\1\0\0\0" + b"\x90\x4e" + b"\1\0" * 10,
    "tagged field longer than the frame": header(3, 9) + b"\0\1\0\0\0\1\0" + COMPACT_HUGE,
    "records longer than the frame": header(0, 3)
    + struct.pack(">hhi", -1, 1, 1000)
    + struct.pack(">ih1si", 1, 1, b"t", 1)
    + struct.pack(">ii", 0, 2**31 - 1),
    "nothing after the header": header(0, 9),
    "client id longer than the frame": struct.pack(">hhih", 3, 4, 1, 32767),
    "client id of length -9": struct.pack(">hhih", 3, 4, 1, -9),
    "fetch of 2^31-1 topics": header(1, 11)
    + struct.pack(">iiiibii", -1, 0, 1, 1 << 20, 0, 0, -1)
    + HUGE,
    "join group with 2^31-1 protocols": header(11, 0)
    + struct.pack(">h1sih0sh8s", 1, b"g", 6000, 0, b"", 8, b"consumer")
    + HUGE,
    "group member metadata of 2^31-1 bytes": header(11, 0)
    + struct.pack(">h1sih0sh8s", 1, b"g", 6000, 0, b"", 8, b"consumer")
    + struct.pack(">ih1s", 1, 1, b"r")
    + HUGE,
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_request_closes_its_connection_and_no_other(
    connect: Connect, body: bytes
) -> None:
    wire = connect()
    wire.send_bytes(frame(body))
    assert wire.is_closed()


def test_a_name_that_is_not_utf_8_is_refused_or_closes_the_connection(connect: Connect) -> None:
    """Kafka reads it leniently and refuses the name; a strict reader closes."""
    wire = connect()
    wire.send_bytes(frame(header(3, 4) + struct.pack(">ih", 1, 4) + b"\xff\xfe\xc3\x28" + b"\1"))
    with contextlib.suppress(ConnectionClosed):
        assert (17).to_bytes(2, "big") in wire.receive_frame(), "INVALID_TOPIC_EXCEPTION"


@pytest.mark.own_broker
def test_a_malformed_request_is_worth_one_line_in_the_log(
    broker: BrokerProcess, connect: Connect
) -> None:
    before = len(broker.log.splitlines())
    wire = connect()
    wire.send_bytes(frame(MALFORMED["array of 2^31-1 topics"]))
    assert wire.is_closed()
    eventually(lambda: len(broker.log.splitlines()) > before)
    time.sleep(0.2)
    lines = broker.log.splitlines()[before:]
    assert len(lines) == 1, lines
    assert "Traceback" not in lines[0]


def test_random_bytes_in_every_api_do_no_harm(connect: Connect) -> None:
    """The seed is fixed; each body is random, and so is where a good request is cut or bent."""
    dice = random.Random(20_260)
    wire = connect(timeout=0.2)
    for _ in range(400):
        key = dice.choice([0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 19, 22, 24, 26, 32, 44, 68])
        body = header(key, dice.randrange(14)) + dice.randbytes(dice.randrange(200))
        with contextlib.suppress(ConnectionClosed, TimeoutError, ConnectionError):
            wire.send_bytes(frame(body))
            wire.socket.recv(65_536)
            continue
        wire.close()
        wire = connect(timeout=0.2)


# --- record batches ---------------------------------------------------------------------------


def bomb(codec: int, compressed: bytes, *, count: int = 1) -> bytes:
    """A batch that says `codec` and carries `compressed` as its records."""
    plain = batch([b"x"])
    made = bytearray(plain[:61]) + compressed
    struct.pack_into(">i", made, 8, len(made) - 12)
    struct.pack_into(">h", made, 21, codec)
    struct.pack_into(">i", made, 23, count - 1)
    struct.pack_into(">i", made, 57, count)
    return sealed(made)


def swollen(codec: int, size: int) -> bytes:
    """`size` zero bytes in very few: 1000:1 and more."""
    zeros = bytes(size)
    match codec:
        case 1:
            return bytes(cramjam.gzip.compress(zeros, level=9))
        case 2:
            return bytes(cramjam.snappy.compress_raw(zeros))
        case 3:
            return bytes(cramjam.lz4.compress(zeros))
        case _:
            return bytes(cramjam.zstd.compress(zeros, level=19))


@pytest.mark.own_broker
@pytest.mark.parametrize("codec", [1, 2, 3, 4], ids=["gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_small_batch_that_swells_to_a_gigabyte_is_refused_or_kept_as_it_is(
    wire: Wire, name: Name, codec: int, policy: str
) -> None:
    """A compacted topic makes the broker look inside; a plain one it may keep unopened."""
    topic = name("bomb")
    create_topic(wire, topic, configs={"cleanup.policy": policy})
    size = 20 << 20 if codec == 2 else 300 << 20
    data = bomb(codec, swollen(codec, size))
    assert produce(wire, topic, data) in {*REFUSED, "none", "unknown_server_error"}
    assert produce(wire, topic, batch([b"v"], keys=[b"k"])) == "none"


BROKEN = {
    "a wrong CRC": with_header_field(batch([b"v"]), 17, ">I", 1, seal=False),
    "a count of 0": with_header_field(batch([b"v"]), 57, ">i", 0),
    "a count greater than its records": with_header_field(batch([b"v"]), 57, ">i", 5),
    "a count of 2^31-1": with_header_field(batch([b"v"]), 57, ">i", 2**31 - 1),
    "a negative count": with_header_field(batch([b"v"]), 57, ">i", -1),
    "a last offset that does not fit the count": with_header_field(batch([b"v"]), 23, ">i", 9),
    "a negative last offset": with_header_field(batch([b"v"]), 23, ">i", -1),
    "a length greater than its bytes": with_header_field(batch([b"v"]), 8, ">i", 9999, seal=False),
    "a length of 0": with_header_field(batch([b"v"]), 8, ">i", 0, seal=False),
    "a negative length": with_header_field(batch([b"v"]), 8, ">i", -1, seal=False),
    "half a header": batch([b"v"])[:40],
    "a message of format 0": with_header_field(batch([b"v"]), 16, ">b", 0),
    "no batch at all": b"",
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN.keys())
def test_a_batch_with(wire: Wire, name: Name, data: bytes) -> None:
    """is refused, nothing of it is written, and the next good one is taken."""
    topic = name("broken")
    create_topic(wire, topic)
    assert produce(wire, topic, data) in REFUSED
    assert produce(wire, topic, batch([b"good"])) == "none"
    assert [one.value for one in records(fetch_bytes(wire, topic))] == [b"good"]


def test_a_batch_of_an_unknown_codec_is_refused(wire: Wire, name: Name) -> None:
    """Kafka answers with UNKNOWN_SERVER_ERROR; ours says what was wrong."""
    topic = name("broken")
    create_topic(wire, topic)
    data = with_header_field(batch([b"v"]), 21, ">h", 7)
    assert produce(wire, topic, data) in {*REFUSED, "unknown_server_error"}


# --- names ------------------------------------------------------------------------------------

NAMES = ["../up", "..", ".", "a/b", "a\0b", "<script>alert(1)</script>", "x" * 250, "x" * 30_000]


@pytest.mark.parametrize("bad", NAMES, ids=[repr(one)[:20] for one in NAMES])
def test_a_dangerous_topic_name_is_refused_by_every_door(wire: Wire, bad: str) -> None:
    wanted = {"name": bad, "num_partitions": 1, "replication_factor": 1}
    answer = wire.call("create_topics", 7, {"topics": [wanted], "timeout": 5000})
    assert answer.topics[0].error_code.name == "invalid_topic_exception"
    asked = {"topics": [{"name": bad}], "allow_auto_topic_creation": True}
    (found,) = wire.call("metadata", 9, asked).topics
    assert found.error_code.name == "invalid_topic_exception"
    assert produce(wire, bad, batch([b"v"])) == "unknown_topic_or_partition"


@pytest.mark.parametrize("group", ["../../etc", "a\0b", "<script>", "g" * 30_000, "ünï 🐟"])
def test_a_strange_group_name_is_only_a_name(wire: Wire, name: Name, group: str) -> None:
    topic = name("topic")
    create_topic(wire, topic)
    partition = {"partition_index": 0, "committed_offset": 4, "committed_metadata": ""}
    topics = [{"name": topic, "partitions": [partition]}]
    values = {"group_id": group, "generation_id_or_member_epoch": -1, "topics": topics}
    answer = wire.call("offset_commit", 8, values)
    assert answer.topics[0].partitions[0].error_code.value == 0
    asked = [{"name": topic, "partition_indexes": [0]}]
    found = wire.call("offset_fetch", 7, {"group_id": group, "topics": asked})
    assert found.topics[0].partitions[0].committed_offset == 4
