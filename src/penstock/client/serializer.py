"""From a user's object to the bytes of a payload.

Bytes and text need nothing. For all else name a serializer: "json", or any callable that gives
bytes or text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from penstock.client.arguments import utf8
from penstock.client.errors import InvalidArgument

Serializer = Callable[[Any], bytes | str]


def as_json(value: Any) -> bytes:
    """Compact JSON. Dates are ISO 8601, decimals and UUIDs text, sets lists.

    >>> as_json({"id": 7, "tags": {"new"}})
    b'{"id":7,"tags":["new"]}'
    """
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=_more).encode()


def _more(value: object) -> object:
    match value:
        case datetime() | date():
            return value.isoformat()
        case Decimal() | UUID():
            return str(value)
        case set() | frozenset():
            return sorted(value, key=repr)
    raise TypeError(f"JSON has no {type(value).__name__}")


def find_serializer(wanted: Serializer | str | None) -> Serializer | None:
    """The serializer that is meant, None for none."""
    if wanted is None or callable(wanted):
        return wanted
    if wanted == "json":
        return as_json
    raise InvalidArgument(f'there is no serializer {wanted!r}: give "json" or a function')


def payload_bytes(payload: Any, serializer: Serializer | None) -> bytes | None:
    """The payload as the log has it. None is a tombstone, with any serializer."""
    if type(payload) is bytes and serializer is None:
        return payload
    if payload is None:
        return None
    if serializer is not None:
        try:
            payload = serializer(payload)
        except (TypeError, ValueError) as failure:
            raise InvalidArgument(f"the payload cannot be serialized: {failure}") from failure
    if isinstance(payload, str):
        return utf8(payload)
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload)
    raise InvalidArgument(
        f"a payload is bytes or text, not {type(payload).__name__}; "
        'serializer="json" (here or in open and connect) takes other objects'
    )
