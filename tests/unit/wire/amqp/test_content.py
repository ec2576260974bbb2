"""Messages on the wire: pamqp reads what is written, byte for byte what was published."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import body, commands, frame, header

from penstock.wire.amqp import content
from penstock.wire.amqp.codes import AmqpError

NAMES = st.text(max_size=60).filter(lambda text: len(text.encode()) <= 255)
PROPERTIES = [b"\x00\x00", b"\x10\x00\x02", b"\x01\x80\x0510000\x28" + b"m" * 40]


@dataclass
class Parcel:
    exchange: str
    routing_key: str
    properties: bytes
    body: bytes
    redelivered: bool = False


PARCELS = st.builds(
    Parcel, NAMES, NAMES, st.sampled_from(PROPERTIES), st.binary(max_size=300), st.booleans()
)


def frames(data: bytes) -> list[tuple[int, int, bytes]]:
    """(type, channel, payload) of each frame."""
    found = []
    while data:
        size = int.from_bytes(data[3:7], "big")
        assert data[7 + size] == 0xCE
        found.append((data[0], int.from_bytes(data[1:3], "big"), data[7 : 7 + size]))
        data = data[8 + size :]
    return found


def contents(data: bytes) -> list[tuple[bytes, bytes, bytes]]:
    """(method payload, properties, body) of each message."""
    found: list[tuple[bytes, bytes, bytes]] = []
    for kind, _, payload in frames(data):
        if kind == 1:
            found.append((payload, b"", b""))
        elif kind == 2:
            assert payload[:4] == b"\x00\x3c\x00\x00"
            found[-1] = (found[-1][0], payload[12:], b"")
        else:
            found[-1] = (*found[-1][:2], found[-1][2] + payload)
    return found


@given(st.lists(PARCELS, max_size=12), st.integers(1, 2**40), st.sampled_from([40, 4096]))
def test_deliveries_carry_what_was_published(
    parcels: list[Parcel], first_tag: int, frame_max: int
) -> None:
    encoder = content.DeliveryEncoder(3, "consumer-ü", frame_max)
    out: content.Buffers = []
    assert encoder.encode(out, parcels, first_tag) == first_tag + len(parcels)
    data = b"".join(out)
    assert all(len(payload) + 8 <= max(frame_max, 600) for _, _, payload in frames(data))
    assert all(channel == 3 for _, channel, _ in frames(data))
    read = contents(data)
    assert len(read) == len(parcels)
    for index, (parcel, (method, properties, payload)) in enumerate(
        zip(parcels, read, strict=True)
    ):
        deliver = commands.Basic.Deliver()
        deliver.unmarshal(method[4:])
        assert deliver.consumer_tag == "consumer-ü"
        assert deliver.delivery_tag == first_tag + index
        assert deliver.redelivered == parcel.redelivered
        assert (deliver.exchange, deliver.routing_key) == (parcel.exchange, parcel.routing_key)
        assert properties == parcel.properties
        assert payload == parcel.body


@given(NAMES, NAMES, st.integers(0, 3))
def test_publish_is_read(exchange: str, routing_key: str, bits: int) -> None:
    payload = b"".join(
        [b"\x00\x3c\x00\x28\x00\x00", *map(_short, (exchange, routing_key)), bytes([bits])]
    )
    target = content.read_publish(payload)
    assert (target.exchange, target.routing_key) == (exchange, routing_key)
    assert (target.mandatory, target.immediate) == (bool(bits & 1), bool(bits & 2))
    for wrong in (payload[:-1], payload + b"\0", payload[:7]):
        with pytest.raises(AmqpError):
            content.read_publish(wrong)


def test_confirms_are_acks_and_nacks_as_pamqp_knows_them() -> None:
    _, channel, ack = frame.unmarshal(content.confirm(5, 77, True))
    assert channel == 5
    assert isinstance(ack, commands.Basic.Ack)
    assert (ack.delivery_tag, ack.multiple) == (77, True)
    _, _, nack = frame.unmarshal(content.refuse(5, 78))
    assert isinstance(nack, commands.Basic.Nack)
    assert (nack.delivery_tag, nack.multiple, nack.requeue) == (78, False, False)


def test_get_ok_carries_the_message_and_the_count() -> None:
    parcel = Parcel("e", "k", b"\x10\x00\x02", b"x" * 5000, True)
    data = b"".join(content.get_ok(2, 4096, parcel, 9, 2**40))
    (method, properties, payload), *_ = contents(data)
    read = commands.Basic.GetOk()
    read.unmarshal(method[4:])
    assert (read.delivery_tag, read.redelivered, read.message_count) == (9, True, 2**32 - 1)
    assert (properties, payload) == (parcel.properties, parcel.body)
    assert [kind for kind, _, _ in frames(data)] == [1, 2, 3, 3]


def test_return_says_why_and_gives_everything_back() -> None:
    parcel = Parcel("e", "k", b"\0\0", b"")
    data = b"".join(content.returned(2, 4096, (312, "NO_ROUTE"), parcel))
    (method, _, payload), *_ = contents(data)
    read = commands.Basic.Return()
    read.unmarshal(method[4:])
    assert dict(read) == {
        "reply_code": 312, "reply_text": "NO_ROUTE", "exchange": "e", "routing_key": "k",
    }  # fmt: skip
    assert payload == b""


def test_an_ordinary_client_reads_a_delivery() -> None:
    out: content.Buffers = []
    parcel = Parcel("e", "k", b"\x10\x00\x02", b"hello")
    content.DeliveryEncoder(1, "t", 131072).encode(out, [parcel], 1)
    data = b"".join(out)
    kinds = []
    while data:
        consumed, _, read = frame.unmarshal(data)
        kinds.append(type(read))
        data = data[consumed:]
    assert kinds == [commands.Basic.Deliver, header.ContentHeader, body.ContentBody]


def _short(text: str) -> bytes:
    encoded = text.encode()
    return bytes([len(encoded)]) + encoded
