"""Messages as JSON and back, in the form of RabbitMQ's management API.

A body is shown as a string when it is UTF-8, else in base64; `payload_encoding` says which. Headers
of AMQP types that JSON lacks are shown as the nearest that it has.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from penstock.errors import InvalidRequest, PreconditionFailed
from penstock.http.call import Body
from penstock.model import message_properties
from penstock.model.field_table import decode_table, encode_table
from penstock.model.message_properties import CLUSTER_ID, CONTENT_ENCODING, NO_PROPERTIES

_TEXTS = (
    "content_type", "correlation_id", "reply_to", "expiration", "message_id", "type", "user_id",
    "app_id",
)  # fmt: skip
_SHOWN = (
    "content_type", "content_encoding", "delivery_mode", "priority", "correlation_id", "reply_to",
    "expiration", "message_id", "timestamp", "type", "user_id", "app_id", "cluster_id",
)  # fmt: skip
_KNOWN = frozenset({*_SHOWN, "headers"})


# --- to JSON --------------------------------------------------------------------------------------


def json_of_body(
    body: bytes | bytearray | memoryview, encoding: str = "auto", truncate: int | None = None
) -> dict[str, Any]:
    """The payload fields of a message."""
    data = bytes(body)
    shown = data if truncate is None else data[:truncate]
    fields: dict[str, Any] = {"payload_bytes": len(data)}
    if encoding == "auto":
        try:
            return fields | {"payload": shown.decode(), "payload_encoding": "string"}
        except UnicodeDecodeError:
            pass
    return fields | {
        "payload": base64.b64encode(shown).decode(),
        "payload_encoding": "base64",
    }


def json_of_properties(raw: bytes) -> dict[str, Any]:
    """The properties that a message has."""
    parsed = message_properties.parse(raw)
    values = {name: getattr(parsed, name) for name in _SHOWN}
    shown = {name: value for name, value in values.items() if value is not None}
    if parsed.has_headers:
        shown["headers"] = json_of_value(parsed.headers)
    return shown


def json_of_value(value: object) -> Any:
    """A value of a field table."""
    match value:
        case bytes() | bytearray():
            try:
                return bytes(value).decode()
            except UnicodeDecodeError:
                return {"base64": base64.b64encode(value).decode()}
        case Decimal():
            return str(value)
        case float() if value != value or value in (float("inf"), float("-inf")):
            return str(value)
        case Mapping():
            return {str(key): json_of_value(one) for key, one in value.items()}
        case list() | tuple():
            return [json_of_value(one) for one in value]
    return value


# --- from JSON ------------------------------------------------------------------------------------


def table_from_json(given: Mapping[str, Any], what: str) -> dict[str, object]:
    """Arguments or headers, if AMQP can carry them."""
    try:
        return decode_table(encode_table(given))
    except (ValueError, TypeError, struct.error, RecursionError):
        raise InvalidRequest(f"the {what} cannot be written as an AMQP table") from None


def body_from_json(body: Body) -> bytes:
    """The payload of a message to publish."""
    payload, encoding = body.text("payload"), body.text("payload_encoding", "string")
    if encoding == "string":
        return payload.encode()
    if encoding != "base64":
        raise InvalidRequest(f"'payload_encoding' is string or base64, not {encoding[:80]!r}")
    try:
        return base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest("the payload is not base64") from None


def properties_from_json(given: Mapping[str, Any], user: str) -> bytes:
    """The properties of a message to publish; what AMQP checks is checked here too."""
    if not given:
        return NO_PROPERTIES
    body = Body(given)
    for name in given:
        if name not in _KNOWN:
            raise InvalidRequest(f"there is no property {name[:80]!r}")
    texts = {name: body.maybe_text(name) for name in _TEXTS}
    expiration, claimed = texts["expiration"], texts["user_id"]
    if expiration is not None and not (expiration.isascii() and expiration.isdigit()):
        raise PreconditionFailed(f"invalid expiration {expiration[:80]!r}: not a number")
    if claimed not in (None, user):
        raise PreconditionFailed(
            f"user_id property set to '{claimed}' but authenticated user was '{user}'"
        )
    headers = table_from_json(body.table("headers"), "headers")
    try:
        raw = message_properties.build(
            headers=headers or None,
            delivery_mode=_number(body, "delivery_mode", 1, 2),
            priority=_number(body, "priority", 0, 255),
            timestamp=_number(body, "timestamp", 0, (1 << 63) - 1),
            **texts,
        )
        for name, flag in (("content_encoding", CONTENT_ENCODING), ("cluster_id", CLUSTER_ID)):
            if given.get(name) is not None:
                raw = message_properties.parse(raw).with_text(flag, body.text(name))
    except ValueError as problem:
        raise InvalidRequest(f"the properties cannot be written: {problem}") from None
    return raw


def _number(body: Body, name: str, low: int, high: int) -> int | None:
    return None if body.get(name) is None else body.number(name, low, low, high)
