"""Methods of the control plane: arguments to objects and back.

pamqp knows every method of AMQP 0-9-1 and RabbitMQ's additions: its classes give us ids, names,
order and types of the arguments, and are what handlers receive. The values are read and written
here, because pamqp decodes tables in quadratic time and without a limit on their depth, and refuses
to write names that every broker accepts (`a*b`, `a?`, `ä`).

What is sent for every message has its own code in `content`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from pamqp import commands
from pamqp.base import Frame

from penstock.errors import MalformedRequest
from penstock.model.field_table import encode_table, read_table
from penstock.wire.amqp.codes import COMMAND_INVALID, FRAME_ERROR, AmqpError

Method = Frame


class BasicRenew(Frame):
    """Our own addition, announced by the capability `basic.renew`: a delivery takes longer.

    The time after which it would come back to its queue (`x-consumer-timeout`) begins anew. There
    is no answer, and a tag that was settled or came back meanwhile is no error.
    """

    __slots__ = ("delivery_tag",)

    frame_id = 200
    index = 60 << 16 | 200
    name = "Basic.Renew"
    _delivery_tag = "longlong"

    def __init__(self, delivery_tag: int = 0) -> None:
        self.delivery_tag = delivery_tag


_METHODS: Final[Mapping[int, type[Frame]]] = {
    **commands.INDEX_MAPPING,
    BasicRenew.index: BasicRenew,
}
_LAYOUTS: Final[dict[int, tuple[tuple[str, str], ...]]] = {
    index: tuple((name, method.amqp_type(name)) for name in method.__slots__)
    for index, method in _METHODS.items()
}
_INTEGERS: Final = {"octet": 1, "short": 2, "long": 4, "longlong": 8}
_FRAME = struct.Struct(">BHI")
_ACCESS_REQUEST = 30 << 16 | 10


class AccessRequest(Frame):
    """A method of AMQP 0-8 that old clients still send; pamqp does not know it."""

    frame_id = 10
    index = _ACCESS_REQUEST
    name = "Access.Request"


# What a client may call on an open channel. Publishing and settling have code of their own,
# opening and closing is the connection's.
CALLS: Final = (
    commands.Channel.Flow,
    commands.Exchange.Declare, commands.Exchange.Delete,
    commands.Exchange.Bind, commands.Exchange.Unbind,
    commands.Queue.Declare, commands.Queue.Bind, commands.Queue.Unbind,
    commands.Queue.Purge, commands.Queue.Delete,
    commands.Basic.Qos, commands.Basic.Consume, commands.Basic.Cancel, commands.Basic.Get,
    commands.Basic.Recover, commands.Basic.RecoverAsync, BasicRenew,
    commands.Confirm.Select,
    commands.Tx.Select, commands.Tx.Commit, commands.Tx.Rollback,
    AccessRequest,
)  # fmt: skip


def method_ids(method: Method) -> tuple[int, int]:
    """(class id, method id), as error replies name them."""
    return method.index >> 16, method.index & 0xFFFF


def decode_method(payload: bytes) -> Method:
    """The method in a method frame's payload; AmqpError when there is none that we know."""
    if len(payload) < 4:
        raise AmqpError(FRAME_ERROR, f"a method frame of {len(payload)} bytes")
    index = int.from_bytes(payload[:4], "big")
    ids = (index >> 16, index & 0xFFFF)
    kind = _METHODS.get(index)
    if kind is None:
        if index == _ACCESS_REQUEST:
            return AccessRequest()
        raise AmqpError(COMMAND_INVALID, f"unknown method {ids[0]}.{ids[1]}", ids)
    method = kind()
    try:
        _read_arguments(method, payload)
    except (MalformedRequest, IndexError) as failure:
        raise AmqpError(FRAME_ERROR, f"cannot decode {method.name}: {failure}", ids) from None
    except UnicodeDecodeError:
        text = f"cannot decode {method.name}: a short string is not UTF-8"
        raise AmqpError(FRAME_ERROR, text, ids) from None
    return method


def _read_arguments(method: Method, payload: bytes) -> None:
    position, bit, end = 4, 0, len(payload)
    for name, kind in _LAYOUTS[method.index]:
        value: object
        if kind == "bit":
            # Bits that follow each other share an octet, the first in the lowest (§4.2.5.2).
            if bit == 0:
                position += 1
            value = bool(payload[position - 1] >> bit & 1)
            bit = (bit + 1) % 8
            setattr(method, name, value)
            continue
        bit = 0
        if kind in _INTEGERS:
            after = position + _INTEGERS[kind]
            _must_fit(after, end)
            value = int.from_bytes(payload[position:after], "big")
        elif kind == "shortstr":
            start = position + 1
            after = start + payload[position]
            _must_fit(after, end)
            value = payload[start:after].decode()
        elif kind == "longstr":
            start = position + 4
            _must_fit(start, end)
            after = start + int.from_bytes(payload[position:start], "big")
            _must_fit(after, end)
            value = payload[start:after].decode("utf-8", "surrogateescape")
        else:
            value, after = read_table(payload, position)
        setattr(method, name, value)
        position = after
    if position != end:
        raise MalformedRequest(f"{end - position} bytes too many")


def _must_fit(after: int, end: int) -> None:
    if after > end:
        raise MalformedRequest("it ends inside an argument")


def encode_method(channel: int, kind: type[Method], *values: object) -> bytes:
    """A whole frame with one method, its arguments in the order of the specification."""
    layout = _LAYOUTS[kind.index]
    assert len(layout) == len(values), f"{kind.name} takes {[name for name, _ in layout]}"
    parts = [kind.index.to_bytes(4, "big")]
    bits: list[bool] = []
    for (_, argument), value in zip(layout, values, strict=True):
        if argument == "bit":
            bits.append(bool(value))
            continue
        parts.append(_write_bits(bits))
        parts.append(_write_argument(argument, value))
    parts.append(_write_bits(bits))
    payload = b"".join(parts)
    return _FRAME.pack(1, channel, len(payload)) + payload + b"\xce"


def _write_bits(bits: list[bool]) -> bytes:
    if not bits:
        return b""
    assert len(bits) <= 8
    octet = sum(bit << place for place, bit in enumerate(bits))
    bits.clear()
    return bytes((octet,))


def _write_argument(kind: str, value: object) -> bytes:
    if kind in _INTEGERS:
        assert isinstance(value, int)
        return value.to_bytes(_INTEGERS[kind], "big")
    if kind == "table":
        assert isinstance(value, Mapping)
        return encode_table(value)
    text = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")
    if kind == "shortstr":
        return bytes((len(text),)) + text
    return len(text).to_bytes(4, "big") + text


ACCESS_REQUEST_OK: Final = b"\x00\x1e\x00\x0b\x00\x01"


def encode_access_request_ok(channel: int) -> bytes:
    """Ticket 1, whatever was asked for: access is decided by the user's permissions."""
    return _FRAME.pack(1, channel, len(ACCESS_REQUEST_OK)) + ACCESS_REQUEST_OK + b"\xce"
