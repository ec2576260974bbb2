"""Messages as AMQP properties.

Fields that AMQP has are its properties; what it has not (a key, how often it was tried) are headers
with the names that the broker uses too.
"""

from __future__ import annotations

import itertools
import os
import uuid

from penstock.client.amqp_headers import DELAY_HEADER, KEY_HEADER, read_amqp
from penstock.client.message import Message
from penstock.client.outgoing import Outgoing
from penstock.client.properties import NAMES, RETRY_COUNT, read_properties
from penstock.model import message_properties
from penstock.model.field_table import LongString

_PERSISTENT = 2


class _Ids:
    """Ids that nobody else gives: a random number for this process, and a count."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self._first = uuid.uuid4().hex[:20]
        self._count = itertools.count()

    def next(self) -> str:
        return f"{self._first}{next(self._count):012x}"


_ids = _Ids()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ids.begin)


def write_amqp(outgoing: Outgoing, *, delay_ms: int | None = None) -> bytes:
    """The property bytes of a message. One without an id gets one: a queue has no offsets."""
    found = read_properties(outgoing.headers)
    table: dict[str, object] = {
        name: LongString(value or b"") for name, value in outgoing.headers if name not in NAMES
    }
    if outgoing.key is not None:
        table[KEY_HEADER] = LongString(outgoing.key)
    if found.retry_count:
        table[RETRY_COUNT] = found.retry_count
    if delay_ms:
        table[DELAY_HEADER] = delay_ms
    if found.message_id is None:
        outgoing.message_id = _ids.next()
    return message_properties.build(
        headers=table or None,
        delivery_mode=_PERSISTENT,
        priority=found.priority or None,
        correlation_id=found.correlation_id,
        reply_to=found.reply_to,
        expiration=None if found.ttl_ms is None else str(found.ttl_ms),
        message_id=found.message_id or outgoing.message_id,
        timestamp=None if outgoing.timestamp_ms < 0 else outgoing.timestamp_ms // 1000,
    )


def message_of(
    queue: str, offset: int, properties: bytes, body: bytes | bytearray | memoryview
) -> Message:
    """A message of a queue that was only looked at."""
    headers, key, timestamp_ms = read_amqp(properties)
    return Message.stored(queue, 0, offset, timestamp_ms, key, bytes(body), headers)
