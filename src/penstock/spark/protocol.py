"""The few requests of Kafka's protocol that the Spark side sends, as tables, and their bytes.

Each API is fixed at one version that has no tagged fields, which every broker since Kafka 2.4
answers (Kafka 4 still does, KIP-896): so no negotiation, and one page of code instead of a client.

    request   size i32 | api key i16 | version i16 | correlation i32 | client id string | fields
    response  size i32 | correlation i32 | fields

Kinds: i8 i16 i32 i64 bool; str and bytes with a length in front; a leading ? for null; a list of
one kind is an array; a tuple of (name, kind) pairs is a struct. `bytes` read from a response are
views of it: nothing is copied.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

Kind = Any  # str | list[Kind] | tuple[tuple[str, Kind], ...]

_FIXED = {
    "i8": struct.Struct(">b"),
    "i16": struct.Struct(">h"),
    "i32": struct.Struct(">i"),
    "i64": struct.Struct(">q"),
    "bool": struct.Struct(">?"),
}
_I16, _I32 = _FIXED["i16"], _FIXED["i32"]


class Api(NamedTuple):
    """One request and its response at one version."""

    name: str
    key: int
    version: int
    request: Kind
    response: Kind


def _topics(*fields: tuple[str, Kind]) -> Kind:
    return [(("name", "str"), ("partitions", [tuple(fields)]))]


_THROTTLE = ("throttle_ms", "i32")
_INDEX = ("index", "i32")
_ERROR = ("error", "i16")
_PRODUCER = (("producer_id", "i64"), ("producer_epoch", "i16"))

METADATA = Api(
    "Metadata", 3, 5,
    (("topics", "?[]str"), ("auto_create", "bool")),
    (
        _THROTTLE,
        ("brokers", [(("node", "i32"), ("host", "str"), ("port", "i32"), ("rack", "?str"))]),
        ("cluster_id", "?str"),
        ("controller", "i32"),
        ("topics", [(
            _ERROR, ("name", "str"), ("internal", "bool"),
            ("partitions", [(
                _ERROR, _INDEX, ("leader", "i32"),
                ("replicas", ["i32"]), ("in_sync", ["i32"]), ("offline", ["i32"]),
            )]),
        )]),
    ),
)  # fmt: skip
LIST_OFFSETS = Api(
    "ListOffsets", 2, 2,
    (("replica", "i32"), ("isolation", "i8"), ("topics", _topics(_INDEX, ("timestamp", "i64")))),
    (_THROTTLE, ("topics", _topics(_INDEX, _ERROR, ("timestamp", "i64"), ("offset", "i64")))),
)  # fmt: skip
FETCH = Api(
    "Fetch", 1, 11,
    (
        ("replica", "i32"), ("max_wait_ms", "i32"), ("min_bytes", "i32"), ("max_bytes", "i32"),
        ("isolation", "i8"), ("session", "i32"), ("session_epoch", "i32"),
        ("topics", _topics(
            _INDEX, ("leader_epoch", "i32"), ("offset", "i64"), ("log_start", "i64"),
            ("partition_max_bytes", "i32"),
        )),
        ("forgotten", ["str"]), ("rack", "str"),
    ),
    (
        _THROTTLE, _ERROR, ("session", "i32"),
        ("topics", _topics(
            _INDEX, _ERROR, ("high_watermark", "i64"), ("last_stable", "i64"),
            ("log_start", "i64"),
            ("aborted", [(("producer_id", "i64"), ("first_offset", "i64"))]),
            ("preferred_replica", "i32"), ("records", "?bytes"),
        )),
    ),
)  # fmt: skip
PRODUCE = Api(
    "Produce", 0, 7,
    (
        ("transactional_id", "?str"), ("acks", "i16"), ("timeout_ms", "i32"),
        ("topics", _topics(_INDEX, ("records", "bytes"))),
    ),
    (
        ("topics", _topics(
            _INDEX, _ERROR, ("base_offset", "i64"), ("append_time", "i64"), ("log_start", "i64"),
        )),
        _THROTTLE,
    ),
)  # fmt: skip
FIND_COORDINATOR = Api(
    "FindCoordinator", 10, 1,
    (("key", "str"), ("kind", "i8")),
    (
        _THROTTLE, _ERROR, ("message", "?str"),
        ("node", "i32"), ("host", "str"), ("port", "i32"),
    ),
)  # fmt: skip
INIT_PRODUCER_ID = Api(
    "InitProducerId", 22, 1,
    (("transactional_id", "?str"), ("timeout_ms", "i32")),
    (_THROTTLE, _ERROR, *_PRODUCER),
)  # fmt: skip
ADD_PARTITIONS_TO_TXN = Api(
    "AddPartitionsToTxn", 24, 1,
    (
        ("transactional_id", "str"), *_PRODUCER,
        ("topics", [(("name", "str"), ("partitions", ["i32"]))]),
    ),
    (_THROTTLE, ("topics", _topics(_INDEX, _ERROR))),
)  # fmt: skip
END_TXN = Api(
    "EndTxn", 26, 1,
    (("transactional_id", "str"), *_PRODUCER, ("commit", "bool")),
    (_THROTTLE, _ERROR),
)  # fmt: skip
OFFSET_COMMIT = Api(
    "OffsetCommit", 8, 5,
    (
        ("group", "str"), ("generation", "i32"), ("member", "str"),
        ("topics", _topics(_INDEX, ("offset", "i64"), ("metadata", "?str"))),
    ),
    (_THROTTLE, ("topics", _topics(_INDEX, _ERROR))),
)  # fmt: skip
OFFSET_FETCH = Api(
    "OffsetFetch", 9, 5,
    (("group", "str"), ("topics", [(("name", "str"), ("partitions", ["i32"]))])),
    (
        _THROTTLE,
        ("topics", _topics(
            _INDEX, ("offset", "i64"), ("leader_epoch", "i32"), ("metadata", "?str"), _ERROR,
        )),
        _ERROR,
    ),
)  # fmt: skip
CREATE_TOPICS = Api(
    "CreateTopics", 19, 4,
    (
        ("topics", [(
            ("name", "str"), ("partitions", "i32"), ("replication", "i16"),
            ("assignments", ["i32"]),
            ("configs", [(("name", "str"), ("value", "?str"))]),
        )]),
        ("timeout_ms", "i32"), ("validate_only", "bool"),
    ),
    (_THROTTLE, ("topics", [(("name", "str"), _ERROR, ("message", "?str"))])),
)  # fmt: skip
DELETE_TOPICS = Api(
    "DeleteTopics", 20, 3,
    (("topics", ["str"]), ("timeout_ms", "i32")),
    (_THROTTLE, ("topics", [(("name", "str"), _ERROR)])),
)  # fmt: skip
DELETE_RECORDS = Api(
    "DeleteRecords", 21, 1,
    (("topics", _topics(_INDEX, ("offset", "i64"))), ("timeout_ms", "i32")),
    (_THROTTLE, ("topics", _topics(_INDEX, ("low_watermark", "i64"), _ERROR))),
)  # fmt: skip
DESCRIBE_CONFIGS = Api(
    "DescribeConfigs", 32, 1,
    (
        ("resources", [(("kind", "i8"), ("name", "str"), ("keys", "?[]str"))]),
        ("synonyms", "bool"),
    ),
    (
        _THROTTLE,
        ("resources", [(
            _ERROR, ("message", "?str"), ("kind", "i8"), ("name", "str"),
            ("configs", [(
                ("name", "str"), ("value", "?str"), ("read_only", "bool"), ("source", "i8"),
                ("sensitive", "bool"),
                ("synonyms", [(("name", "str"), ("value", "?str"), ("source", "i8"))]),
            )]),
        )]),
    ),
)  # fmt: skip
SASL_HANDSHAKE = Api(
    "SaslHandshake", 17, 1, (("mechanism", "str"),), (_ERROR, ("mechanisms", ["str"]))
)  # fmt: skip
SASL_AUTHENTICATE = Api(
    "SaslAuthenticate", 36, 1,
    (("token", "bytes"),),
    (_ERROR, ("message", "?str"), ("token", "bytes"), ("lifetime_ms", "i64")),
)  # fmt: skip


def encode_request(
    api: Api, correlation: int, client_id: str, values: Mapping[str, Any]
) -> list[bytes]:
    """The parts of one frame, in order; large `bytes` fields are passed on, not copied."""
    name = client_id.encode()
    head = struct.pack(">hhih", api.key, api.version, correlation, len(name)) + name
    parts = [b"", head]
    _write(api.request, values, parts)
    parts[0] = _I32.pack(sum(map(len, parts)))
    return parts


def decode_response(api: Api, frame: memoryview) -> dict[str, Any]:
    """The fields behind the correlation id. Fields added at the end by nobody are not expected."""
    values, _ = _read(api.response, frame, 4)
    assert isinstance(values, dict)
    return values


def _write(kind: Kind, value: Any, parts: list[bytes]) -> None:
    if isinstance(kind, str):
        if (fixed := _FIXED.get(kind)) is not None:
            parts.append(fixed.pack(value))
        elif kind == "?[]str":
            if value is None:
                parts.append(_I32.pack(-1))
            else:
                _write(["str"], value, parts)
        else:
            _write_text(kind.lstrip("?"), value, parts)
    elif isinstance(kind, list):
        items = value or ()
        parts.append(_I32.pack(len(items)))
        for item in items:
            _write(kind[0], item, parts)
    else:
        for name, inner in kind:
            _write(inner, value[name], parts)


def _write_text(kind: str, value: Any, parts: list[bytes]) -> None:
    length = _I16 if kind == "str" else _I32
    if value is None:
        parts.append(length.pack(-1))
        return
    data = value.encode() if kind == "str" else value
    parts.append(length.pack(len(data)))
    parts.append(data)


def _read(kind: Kind, frame: memoryview, at: int) -> tuple[Any, int]:
    if isinstance(kind, str):
        if (fixed := _FIXED.get(kind)) is not None:
            return fixed.unpack_from(frame, at)[0], at + fixed.size
        length = _I16 if kind.endswith("str") else _I32
        (size,) = length.unpack_from(frame, at)
        at += length.size
        if size < 0:
            return None, at
        data = frame[at : at + size]
        return (str(data, "utf-8") if length is _I16 else data), at + size
    if isinstance(kind, list):
        (count,) = _I32.unpack_from(frame, at)
        at += 4
        items = []
        for _ in range(count):
            item, at = _read(kind[0], frame, at)
            items.append(item)
        return items, at
    values: dict[str, Any] = {}
    for name, inner in kind:
        values[name], at = _read(inner, frame, at)
    return values, at
