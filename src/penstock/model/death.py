"""What a dead letter says of its death: the headers `x-death` and `x-first-death-*`.

`x-death` is a list with an entry for each queue and reason, the latest first, each with how often
and with the circumstances of the first time.
Everything else in the message's properties stays byte for byte, except the expiration, which would
kill it again; the entry keeps it as `original-expiration`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.field_table import Timestamp, decode_value, encode_value
from penstock.model.message_properties import EXPIRATION, MessageProperties, parse
from penstock.model.queue_settings import DeadReason

DEATH = "x-death"


class Death(NamedTuple):
    """How a message died."""

    queue: str
    reason: DeadReason
    exchange: str
    routing_keys: Sequence[str]
    time_ms: int


def with_death(properties: bytes, death: Death, *, without: Sequence[str] = ()) -> bytes:
    """The properties of the dead letter, less the headers that it shall not have."""
    parsed = parse(properties)
    entries = parsed.header_entries
    for name in without:
        entries.pop(name, None)
    is_first = DEATH not in entries
    history = deaths(parsed)
    for index, earlier in enumerate(history):
        if earlier.get("queue") == death.queue and earlier.get("reason") == death.reason:
            # Only the count changes: the rest says how it died here for the first time.
            count = earlier.get("count")
            entry = {**earlier, "count": count + 1 if isinstance(count, int) else 1}
            del history[index]
            break
    else:
        entry = _entry(death, parsed.expiration)
    entries[DEATH] = encode_value([entry, *history])
    if is_first:
        entries["x-first-death-exchange"] = encode_value(death.exchange)
        entries["x-first-death-queue"] = encode_value(death.queue)
        entries["x-first-death-reason"] = encode_value(str(death.reason))
    return parsed.with_headers(entries, without=EXPIRATION)


def _entry(death: Death, expiration: str | None) -> dict[str, object]:
    entry: dict[str, object] = {
        "count": 1,
        "reason": str(death.reason),
        "queue": death.queue,
        "time": Timestamp(death.time_ms // 1000),
        "exchange": death.exchange,
        "routing-keys": list(death.routing_keys),
    }
    if expiration is not None:
        entry["original-expiration"] = expiration
    return entry


def deaths(parsed: MessageProperties) -> list[dict[str, object]]:
    """The entries of `x-death`, latest first; those that are nonsense are left out."""
    raw = parsed.header_entries.get(DEATH) if parsed.has_headers else None
    value = decode_value(raw) if raw is not None else []
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def is_going_in_circles(properties: bytes, target: str) -> bool:
    """Whether a dead letter has been in that queue before without anybody rejecting it since.

    Such a message would go round for ever; it is dropped, as with RabbitMQ.
    """
    for entry in deaths(parse(properties)):
        if entry.get("reason") == DeadReason.REJECTED:
            return False
        if entry.get("queue") == target:
            return True
    return False


def without_death(properties: bytes) -> bytes:
    """The properties as before the message died, for sending it back."""
    parsed = parse(properties)
    told = (DEATH, "x-first-death-", "penstock.error")  # the last is what our own clients add
    entries = {
        name: value for name, value in parsed.header_entries.items() if not name.startswith(told)
    }
    return parsed.with_headers(entries)
