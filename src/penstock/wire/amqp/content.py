"""What travels with every message: publish, deliver, get-ok, return, acknowledgements, confirms.

    method frame   01 | channel u16 | size u32 | class, method, arguments            | CE
    header frame   02 | channel u16 | size u32 | 003C 0000 | body size u64 | properties | CE
    body frames    03 | channel u16 | size u32 | a part of the body                  | CE

All of it is plain functions over bytes and ints. Properties and bodies are never looked into here.
Publishers repeat the bytes of their publish method, and consumers receive the same exchange, key
and properties again and again, so both are remembered: a message then costs one dictionary lookup
and one join. `benchmarks/amqp_codec.py` measures it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, Protocol

from penstock.wire.amqp.codes import FRAME_ERROR, FRAME_OVERHEAD, AmqpError

PUBLISH: Final = b"\x00\x3c\x00\x28"
ACK: Final = b"\x00\x3c\x00\x50"
REJECT: Final = b"\x00\x3c\x00\x5a"
NACK: Final = b"\x00\x3c\x00\x78"
PUBLISH_IDS: Final = (60, 40)

_CONFIRM = struct.Struct(">BHI4sQBB")
_TAG = struct.Struct(">QB")
_CONTENT = struct.Struct(">BHIIQ")
_FRAME = struct.Struct(">BHI")
_SIZE = struct.Struct(">I")
_BASIC_CONTENT = 60 << 16  # class 60, weight 0
_REMEMBERED = 256
_REMEMBERED_PROPERTY_BYTES = 32


Body = bytes | bytearray | memoryview
Buffers = list[Body]


class PublishTarget:
    """Where basic.publish sends its message, and the content header that was with it last.

    `header` is everything between the method and the body: the header frame and the seven bytes
    that begin the only body frame. A publisher that sends messages of one size repeats it, and
    then `properties` and `body_size` are what they were.
    """

    __slots__ = (
        "body_size", "exchange", "header", "immediate", "mandatory", "properties", "routing_key",
    )  # fmt: skip

    def __init__(self, exchange: str, routing_key: str, mandatory: bool, immediate: bool) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        self.mandatory = mandatory
        self.immediate = immediate
        self.header = b""
        self.properties = b""
        self.body_size = 0

    def __repr__(self) -> str:
        return f"<PublishTarget {self.exchange!r} {self.routing_key!r}>"


def read_publish(payload: bytes) -> PublishTarget:
    """class, method, ticket u16, exchange, routing key, and two bits."""
    try:
        start = 7
        end = start + payload[6]
        exchange = payload[start:end].decode()
        start = end + 1
        end = start + payload[end]
        routing_key = payload[start:end].decode()
        bits = payload[end]
    except IndexError:
        text = "cannot decode Basic.Publish: it ends inside an argument"
        raise AmqpError(FRAME_ERROR, text, PUBLISH_IDS) from None
    except UnicodeDecodeError:
        text = "cannot decode Basic.Publish: a short string is not UTF-8"
        raise AmqpError(FRAME_ERROR, text, PUBLISH_IDS) from None
    if end + 1 != len(payload):
        text = f"cannot decode Basic.Publish: {len(payload) - end - 1} bytes too many"
        raise AmqpError(FRAME_ERROR, text, PUBLISH_IDS)
    return PublishTarget(exchange, routing_key, bool(bits & 1), bool(bits & 2))


# --- what the broker says for every message -------------------------------------------------------


class Content(Protocol):
    """A message with where it was published to."""

    @property
    def exchange(self) -> str: ...
    @property
    def routing_key(self) -> str: ...
    @property
    def properties(self) -> bytes: ...
    @property
    def body(self) -> Body: ...


class Deliverable(Content, Protocol):
    """A message on its way to a consumer."""

    @property
    def redelivered(self) -> bool: ...


def confirm(channel: int, delivery_tag: int, multiple: bool) -> bytes:
    """basic.ack, by which the broker takes responsibility for what was published."""
    return _CONFIRM.pack(1, channel, 13, ACK, delivery_tag, multiple, 0xCE)


def refuse(channel: int, delivery_tag: int) -> bytes:
    """basic.nack of a single published message."""
    return _CONFIRM.pack(1, channel, 13, NACK, delivery_tag, 0, 0xCE)


class DeliveryEncoder:
    """basic.deliver for one consumer, many messages at a time."""

    __slots__ = ("_channel", "_consumer", "_contents", "_glue", "_heads", "_room")

    def __init__(self, channel: int, consumer_tag: str, frame_max: int) -> None:
        self._channel = channel
        self._consumer = b"\x00\x3c\x00\x3c" + _short(consumer_tag)
        self._room = frame_max - FRAME_OVERHEAD
        self._glue = b"\xce\x03" + channel.to_bytes(2, "big")
        # (exchange, key) -> what stands before the delivery tag, and after it
        self._heads: dict[tuple[str, str], tuple[bytes, bytes]] = {}
        # (exchange, key, properties, body size) -> all that stands before and after the tag
        self._contents: dict[tuple[str, str, bytes, int], tuple[bytes, bytes]] = {}

    def encode(self, out: Buffers, deliveries: Iterable[Deliverable], first_tag: int) -> int:
        """Append the frames of the deliveries to `out`; returns the next delivery tag."""
        tag = first_tag
        known, room, pack = self._contents, self._room, _TAG.pack
        for delivery in deliveries:
            body, properties = delivery.body, delivery.properties
            size = len(body)
            key = (delivery.exchange, delivery.routing_key, properties, size)
            content = known.get(key)
            if content is None:
                content = self._content(*key)
            if 0 < size <= room:
                out += (content[0], pack(tag, delivery.redelivered), content[1], body, b"\xce")
            else:
                out += (content[0], pack(tag, delivery.redelivered), content[1])
                _append_body(out, self._channel, body, room)
            tag += 1
        return tag

    def _content(
        self, exchange: str, routing_key: str, properties: bytes, size: int
    ) -> tuple[bytes, bytes]:
        head = self._heads.get((exchange, routing_key))
        if head is None:
            head = self._head(exchange, routing_key)
        before, after = head
        header = _SIZE.pack(12 + len(properties)) + b"\x00\x3c\x00\x00" + size.to_bytes(8, "big")
        if 0 < size <= self._room:
            after = b"".join((after, header, properties, self._glue, _SIZE.pack(size)))
        else:
            after = b"".join((after, header, properties, b"\xce"))
        if len(properties) <= _REMEMBERED_PROPERTY_BYTES:
            if len(self._contents) >= _REMEMBERED:
                self._contents.clear()
            self._contents[exchange, routing_key, properties, size] = (before, after)
        return before, after

    def _head(self, exchange: str, routing_key: str) -> tuple[bytes, bytes]:
        names = _short(exchange) + _short(routing_key)
        size = len(self._consumer) + _TAG.size + len(names)
        before = _FRAME.pack(1, self._channel, size) + self._consumer
        after = names + b"\xce\x02" + self._channel.to_bytes(2, "big")
        if len(self._heads) >= _REMEMBERED:
            self._heads.clear()
        self._heads[exchange, routing_key] = (before, after)
        return before, after


def get_ok(
    channel: int, frame_max: int, delivery: Deliverable, delivery_tag: int, message_count: int
) -> Buffers:
    """basic.get-ok and the message; `message_count` is how many are ready after this one."""
    arguments = b"".join(
        (
            b"\x00\x3c\x00\x47",
            _TAG.pack(delivery_tag, delivery.redelivered),
            _short(delivery.exchange),
            _short(delivery.routing_key),
            _SIZE.pack(min(message_count, 0xFFFFFFFF)),
        )
    )
    return _with_content(channel, frame_max, arguments, delivery.properties, delivery.body)


def returned(channel: int, frame_max: int, reason: tuple[int, str], message: Content) -> Buffers:
    """basic.return: a mandatory message that no queue took."""
    code, text = reason
    arguments = b"".join(
        (
            b"\x00\x3c\x00\x32",
            code.to_bytes(2, "big"),
            _short(text),
            _short(message.exchange),
            _short(message.routing_key),
        )
    )
    return _with_content(channel, frame_max, arguments, message.properties, message.body)


def _with_content(
    channel: int, frame_max: int, arguments: bytes, properties: bytes, body: Body
) -> Buffers:
    size = len(body)
    out: Buffers = [
        _FRAME.pack(1, channel, len(arguments)),
        arguments,
        b"\xce",
        _CONTENT.pack(2, channel, 12 + len(properties), _BASIC_CONTENT, size),
        properties,
        b"\xce",
    ]
    _append_body(out, channel, body, frame_max - FRAME_OVERHEAD)
    return out


def _append_body(out: Buffers, channel: int, body: Body, room: int) -> None:
    """The body cut into frames; none at all when it is empty."""
    view = memoryview(body)
    for at in range(0, len(view), room):
        part = view[at : at + room]
        out += (_FRAME.pack(3, channel, len(part)), part, b"\xce")


def _short(text: str) -> bytes:
    encoded = text.encode()
    return bytes((len(encoded),)) + encoded
