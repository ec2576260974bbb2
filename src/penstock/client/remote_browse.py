"""Messages that the management API shows."""

from __future__ import annotations

import base64
from typing import Any

from penstock.client.message import Message
from penstock.client.properties import (
    CORRELATION_ID,
    EXPIRATION,
    MESSAGE_ID,
    PRIORITY,
    REPLY_TO,
)

_PROPERTIES = {
    "message_id": MESSAGE_ID,
    "correlation_id": CORRELATION_ID,
    "reply_to": REPLY_TO,
    "expiration": EXPIRATION,
    "priority": PRIORITY,
}


def message_of_json(queue: str, row: dict[str, Any]) -> Message:
    """A message as the API describes it."""
    body = row.get("payload") or ""
    data = base64.b64decode(body) if row.get("payload_encoding") == "base64" else body.encode()
    properties = row.get("properties") or {}
    key: bytes | None = None
    headers: list[tuple[str, bytes | None]] = []
    for name, value in (properties.get("headers") or {}).items():
        if name == "kafka.key":
            key = str(value).encode("utf-8", "surrogateescape")
        else:
            headers.append((name, str(value).encode("utf-8", "surrogateescape")))
    headers += [
        (header, str(properties[name]).encode())
        for name, header in _PROPERTIES.items()
        if properties.get(name) is not None
    ]
    timestamp = row.get("timestamp_ms")
    if timestamp is None:
        timestamp = (properties.get("timestamp") or 0) * 1000 or -1
    return Message.stored(queue, 0, int(row.get("offset", -1)), timestamp, key, data, headers)
