"""A message as one line of JSON: what `consume --json` prints and `produce --json` reads.

    {"topic": "orders", "partition": 0, "offset": 7, "timestamp": 1767225600000, "key": "user-1",
     "value": "hello", "headers": [["trace", "abc"]]}

Bytes that are not UTF-8 stand as {"base64": "..."}; a missing key or value is null.
"""

from __future__ import annotations

import json
from typing import Any

from penstock.cli.output import Failure

# json.dumps with these arguments builds an encoder each time; this one is built once.
_encode = json.JSONEncoder(ensure_ascii=False, separators=(", ", ": ")).encode


def _to_json(data: bytes | str | None) -> Any:
    if data is None or isinstance(data, str):
        return data
    try:
        return data.decode()
    except UnicodeDecodeError:
        from base64 import b64encode

        return {"base64": b64encode(data).decode()}


def _from_json(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and isinstance(value.get("base64"), str):
        from base64 import b64decode

        return b64decode(value["base64"], validate=True)
    return _encode(value).encode()  # a JSON value that is not text is sent as JSON


def message_to_json(message: Any) -> str:
    """One consumed message."""
    return _encode(
        {
            "topic": message.topic(),
            "partition": message.partition(),
            "offset": message.offset(),
            "timestamp": message.timestamp()[1],
            "key": _to_json(message.key()),
            "value": _to_json(message.value()),
            "headers": [[name, _to_json(value)] for name, value in message.headers() or ()],
        }
    )


def receipt_to_json(message: Any) -> str:
    """Where one sent message went."""
    place = {"partition": message.partition(), "offset": message.offset()}
    return _encode({"topic": message.topic(), **place, "timestamp": message.timestamp()[1]})


def message_from_json(line: bytes, number: int) -> dict[str, Any]:
    """Arguments of `Producer.produce` from a line: key, value, headers, and timestamp if given.

    Topic, partition and offset are where the message was, not where it goes: they are left out.
    """
    try:
        message = _parsed(line)
        if not isinstance(message, dict):
            raise ValueError("it is not an object")
        fields: dict[str, Any] = {"value": _from_json(message.get("value"))}
        if message.get("key") is not None:
            fields["key"] = _from_json(message["key"])
        headers = message.get("headers") or []
        pairs = list(headers.items()) if isinstance(headers, dict) else headers
        if not isinstance(pairs, list) or not all(map(_is_pair, pairs)):
            raise ValueError("headers are an object, or a list of [name, value]")
        if pairs:
            fields["headers"] = [(str(name), _from_json(value)) for name, value in pairs]
        timestamp = message.get("timestamp")
        if timestamp is not None:
            if not isinstance(timestamp, int) or timestamp >= 2**63:
                raise ValueError("a timestamp is milliseconds since 1970")
            if timestamp >= 0:
                fields["timestamp"] = timestamp
    except UnicodeEncodeError:
        raise Failure(f"line {number} cannot be sent: it has half a surrogate pair") from None
    except ValueError as failure:
        raise Failure(f"line {number} cannot be sent: {failure}") from None
    return fields


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        raise ValueError("it is not JSON") from None


def _is_pair(header: Any) -> bool:
    return isinstance(header, (list, tuple)) and len(header) == 2
