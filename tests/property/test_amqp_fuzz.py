"""Hostile bytes against the AMQP parser: it never raises, never hangs, never grows.

`tests/fuzz/amqp_frames.py` runs the same check under atheris for as long as one likes.
"""

from __future__ import annotations

import random
import struct
import tracemalloc

from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands

from support.amqp_check import check_stream
from support.amqp_script import HEADER, marshal, publish, raw_frame, settle
from support.effort import examples

VALID = [
    marshal(1, commands.Channel.Open()),
    marshal(2, commands.Channel.Open()),
    marshal(1, commands.Queue.Declare(queue="q", arguments={"x-max-length": 5, "t": {"a": [1]}})),
    marshal(1, commands.Basic.Consume(queue="q", consumer_tag="c")),
    marshal(1, commands.Channel.Close(200, "", 0, 0)),
    marshal(1, commands.Channel.CloseOk()),
    marshal(0, commands.Connection.Close(200, "", 0, 0)),
    publish(1, b"hello"),
    publish(1, b"hullo") * 3,
    publish(1, b"other properties", properties=b"\x18\x00\x02\x05"),
    publish(1, b""),
    publish(2, b"long" * 50, room=30),
    settle(1, 80, 1, 1),
    raw_frame(8, 0, b""),
]
FRAMES = st.builds(
    raw_frame,
    st.sampled_from([0, 1, 2, 3, 4, 8, 255]),
    st.sampled_from([0, 1, 2, 3, 65535]),
    st.binary(max_size=60)
    | st.builds(
        lambda ids, rest: struct.pack(">HH", *ids) + rest,
        st.tuples(
            st.sampled_from([10, 20, 30, 40, 50, 60, 85, 90]), st.sampled_from(range(0, 122))
        ),
        st.binary(max_size=40),
    ),
)
STREAMS = st.lists(st.sampled_from(VALID) | FRAMES | st.binary(max_size=20), max_size=20).map(
    b"".join
)


@settings(max_examples=examples(400))
@given(
    STREAMS,
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4),
    st.booleans(),
)
def test_any_stream_of_frames_is_read_or_refused(
    stream: bytes, damage: list[tuple[int, int]], logged_in: bool
) -> None:
    data = bytearray(stream)
    for at, byte in damage:
        if data:
            data[at % len(data)] = byte
    check_stream(bytes(data), logged_in=logged_in)


@settings(max_examples=examples(200))
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    check_stream(data, logged_in=True)
    check_stream(data, logged_in=False)
    check_stream(HEADER + data, logged_in=False)


def test_claims_of_size_cost_no_memory() -> None:
    """Every field that states a length, set to its largest, from many connections."""
    seed = random.Random(7)
    tracemalloc.start()
    try:
        for _ in range(300):
            method = struct.pack(">HH", 50, 10) + b"\0\0\xff" + b"q" * seed.randrange(40)
            check_stream(raw_frame(1, 1, method), logged_in=True)
            check_stream(struct.pack(">BHI", 3, 1, 0xFFFFFFFF), logged_in=True)
            check_stream(publish(1, b"", announced=2**64 - 1), logged_in=True)
            table = struct.pack(">I", 0xFFFFFFFF) + b"\x01kS" + struct.pack(">I", 0xFFFFFFFF)
            check_stream(
                raw_frame(1, 1, struct.pack(">HH", 50, 10) + b"\0\0\x01q\0" + table), logged_in=True
            )
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * 1024 * 1024
