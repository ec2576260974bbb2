"""Kafka's messages by API key and version, read and written through kio's schemas.

Requests are read by kio's compiled readers into its dataclasses. Responses are written from plain
nested dicts by writers that are made once per version from the same dataclasses: a handler fills in
the newest version's fields, and what an older version does not know is left out here, in one place.

A missing key takes the schema's default, else zero, the empty string, the empty array, or null
where the field may be null. Time spans and instants are written from integer milliseconds.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import datetime, timedelta
from functools import cache
from types import NoneType, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin
from uuid import UUID

from penstock.errors import MalformedRequest, UnsupportedVersion
from penstock.wire.kafka.guard import guarded

Writer = Callable[[bytearray, Any], None]

API_VERSIONS = 18
_ZERO_UUID = bytes(16)


class Schema(NamedTuple):
    """How one API and version is read and written."""

    flexible: bool
    read: Callable[[Any, int], tuple[Any, int]]
    write: Writer
    name: str
    request: Any  # kio's dataclass


@cache
def schema(api_key: int, api_version: int) -> Schema:
    """The schema of one API and version; kio is imported when the first one is asked for."""
    from kio.index import KioIndexError, load_request_schema, load_response_schema
    from kio.serial import entity_reader

    try:
        request = load_request_schema(api_key, api_version)
        response = load_response_schema(api_key, api_version)
    except KioIndexError:
        raise UnsupportedVersion(f"API {api_key} has no version {api_version}") from None
    return Schema(
        flexible=bool(request.__flexible__),
        read=entity_reader(request),
        write=entity_writer(response),
        name=request.__name__.removesuffix("Request"),
        request=request,
    )


def warm_up() -> None:
    """Import kio and make the schemas that every client asks for first.

    Takes a fraction of a second, so it is done after the doors are open, in a thread.
    """
    for api_key, version in ((API_VERSIONS, 3), (3, 12), (1, 11)):
        schema(api_key, version)


def decode_request(api_key: int, api_version: int, body: memoryview) -> Any:
    """The request as kio's dataclass of exactly that version; `MalformedRequest` if unreadable."""
    found = schema(api_key, api_version)
    if found.flexible:
        body = guarded(found.request, body)
    try:
        # Bytes after the request are ignored, as Kafka ignores them: librdkafka 2.16 asks for all
        # topics with the array count of an old version, which leaves three bytes over.
        request, _ = found.read(body.toreadonly(), 0)
    except Exception as failure:  # kio's readers raise their own family, ValueError, OverflowError
        raise MalformedRequest(f"{found.name} v{api_version}: {failure}") from None
    return request


def encode_response(api_key: int, api_version: int, payload: Mapping[str, Any]) -> bytearray:
    """The body of a response, without its header."""
    out = bytearray()
    schema(api_key, api_version).write(out, payload)
    return out


def response_header(api_key: int, flexible: bool, correlation_id: int) -> bytes:
    """Correlation id, and an empty tag section in flexible versions.

    ApiVersions answers with the old header always, so that a client can read it before it knows
    what the broker speaks (KIP-511).
    """
    header = correlation_id.to_bytes(4, "big", signed=True)
    return header + b"\0" if flexible and api_key != API_VERSIONS else header


# --- writers --------------------------------------------------------------------------------------


def write_unsigned_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _number(layout: str) -> Writer:
    pack = struct.Struct(">" + layout).pack

    def write(out: bytearray, value: Any) -> None:
        out += pack(value)

    return write


def _write_bool(out: bytearray, value: Any) -> None:
    out.append(1 if value else 0)


def _write_uuid(out: bytearray, value: UUID | None) -> None:
    out += _ZERO_UUID if value is None else value.bytes


def _write_instant(out: bytearray, value: int | None) -> None:
    out += (-1 if value is None else value).to_bytes(8, "big", signed=True)


def _write_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out += b"\xff\xff"
        return
    raw = value.encode()
    out += len(raw).to_bytes(2, "big")
    out += raw


def _write_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out += b"\xff\xff\xff\xff"
        return
    out += len(value).to_bytes(4, "big")
    out += value


def _write_compact(out: bytearray, value: str | bytes | None) -> None:
    if value is None:
        out.append(0)
        return
    raw = value.encode() if isinstance(value, str) else value
    write_unsigned_varint(out, len(raw) + 1)
    out += raw


_NUMBERS = {
    "int8": "b", "int16": "h", "int32": "i", "int64": "q",
    "uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q",
    "float64": "d", "error_code": "h", "timedelta_i32": "i", "timedelta_i64": "q",
}  # fmt: skip
_NUMBER_WRITERS = {kind: _number(layout) for kind, layout in _NUMBERS.items()}


def _primitive_writer(kind: str, flexible: bool) -> tuple[Writer, Any]:
    """The writer of a primitive and its zero value."""
    if kind in _NUMBER_WRITERS:
        return _NUMBER_WRITERS[kind], 0
    if kind == "string":
        return (_write_compact if flexible else _write_string), ""
    if kind in ("bytes", "records"):
        return (_write_compact if flexible else _write_bytes), b""
    if kind == "bool":
        return _write_bool, False
    if kind == "uuid":
        return _write_uuid, None
    if kind == "datetime_i64":
        return _write_instant, 0
    raise AssertionError(f"kio has a new primitive type: {kind}")


class Shared(tuple[Mapping[str, Any], ...]):
    """An array that one answer holds many times over, such as the partitions of equal topics.

    Its bytes are made once for each field of each version. Never change its items.
    """

    encoded: dict[Writer, bytes]

    def __new__(cls, items: Iterable[Mapping[str, Any]]) -> Shared:
        made = super().__new__(cls, items)
        made.encoded = {}
        return made


def _array_writer(item: Writer, flexible: bool) -> Writer:
    def write_compact_array(out: bytearray, values: Any) -> None:
        if values is None:
            out.append(0)
            return
        write_unsigned_varint(out, len(values) + 1)
        for value in values:
            item(out, value)

    def write_array(out: bytearray, values: Any) -> None:
        if values is None:
            out.extend(b"\xff\xff\xff\xff")
            return
        out.extend(len(values).to_bytes(4, "big"))
        for value in values:
            item(out, value)

    write_plain = write_compact_array if flexible else write_array

    def write(out: bytearray, values: Any) -> None:
        if type(values) is not Shared:
            write_plain(out, values)
            return
        encoded = values.encoded.get(write_plain)
        if encoded is None:
            piece = bytearray()
            write_plain(piece, values)
            encoded = values.encoded[write_plain] = bytes(piece)
        out += encoded

    return write


def _nullable_struct(write_struct: Writer) -> Writer:
    """A struct that may be null has a marker byte in front (KIP-893)."""

    def write(out: bytearray, value: Any) -> None:
        out.append(0xFF if value is None else 1)
        if value is not None:
            write_struct(out, value)

    return write


class _Step(NamedTuple):
    name: str
    write: Writer
    default: Any
    tag: int | None


def _step(field: Field[Any], flexible: bool) -> _Step:
    kind: Any = field.type
    nullable = False
    if get_origin(kind) in (UnionType, Union):
        nullable = True
        (kind,) = (each for each in get_args(kind) if each is not NoneType)
    is_array = get_origin(kind) is tuple
    if is_array:
        kind = get_args(kind)[0]
    zero: Any
    if is_dataclass(kind):
        entity: Any = kind
        write, zero = entity_writer(entity), {}
        if nullable and not is_array:
            write = _nullable_struct(write)
    else:
        write, zero = _primitive_writer(field.metadata["kafka_type"], flexible)
    if is_array:
        write, zero = _array_writer(write, flexible), ()
    if nullable:
        zero = zero if kind is UUID else None
    return _Step(field.name, write, _default(field, zero), field.metadata.get("tag"))


def _default(field: Field[Any], zero: Any) -> Any:
    if field.default is MISSING:
        return zero
    if isinstance(field.default, timedelta):
        return field.default // timedelta(milliseconds=1)
    if isinstance(field.default, datetime):
        return int(field.default.timestamp() * 1000)
    return field.default


@cache
def entity_writer(entity: Any) -> Writer:
    """A writer for one of kio's dataclasses that takes a mapping instead of an instance."""
    flexible = bool(entity.__flexible__)
    steps = [_step(field, flexible) for field in fields(entity)]
    plain = [(step.name, step.write, step.default) for step in steps if step.tag is None]
    tagged = sorted((step for step in steps if step.tag is not None), key=lambda s: s.tag or 0)

    def write(out: bytearray, payload: Mapping[str, Any]) -> None:
        get = payload.get
        for name, write_field, default in plain:
            write_field(out, get(name, default))
        if flexible:
            _write_tags(out, payload, tagged)

    return write


def _write_tags(out: bytearray, payload: Mapping[str, Any], tagged: list[_Step]) -> None:
    present = [
        step for step in tagged if step.name in payload and payload[step.name] != step.default
    ]
    write_unsigned_varint(out, len(present))
    for step in present:
        content = bytearray()
        step.write(content, payload[step.name])
        write_unsigned_varint(out, step.tag or 0)
        write_unsigned_varint(out, len(content))
        out += content
