"""Reading a point in time from the command line."""

from __future__ import annotations

import re
import time

import typer

_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_AGO = re.compile(r"-?(\d+)\s*(s|m|min|h|d|w)(\s+ago)?")
_LATEST_MS = 2**63 - 1  # that Kafka's protocol can say
_WORDS = "2026-05-01T12:00, 15m (ago), or milliseconds since 1970"


def to_timestamp_ms(text: str, words: str = _WORDS, hint: str = "--timestamp") -> int:
    """Milliseconds since 1970 from `2026-05-01T12:00`, `15m` (ago) or a number of milliseconds.

    What lies before 1970 is 0: Kafka gives negative times meanings of their own. `words` say what
    else the option `hint` takes.
    """
    text = text.strip()
    moment = _moment_ms(text)
    if moment is None or moment > _LATEST_MS:
        raise typer.BadParameter(f"{text!r} is not understood; write {words}", param_hint=hint)
    return max(0, moment)


def _moment_ms(text: str) -> int | None:
    if text.isdecimal():
        return int(text) if len(text) < 20 else None
    ago = _AGO.fullmatch(text)
    if ago:
        return int(time.time() * 1000) - int(ago[1][:20]) * _UNITS[ago[2]] * 1000
    from datetime import datetime

    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def from_timestamp_ms(timestamp_ms: int) -> str:
    """`2026-05-01T12:00:00.123+00:00`."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
