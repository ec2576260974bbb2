"""Reading a point in time from the command line."""

from __future__ import annotations

import re
import time

import typer

_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_AGO = re.compile(r"-?(\d+)\s*(s|m|min|h|d|w)(\s+ago)?")


def to_timestamp_ms(text: str) -> int:
    """Milliseconds since 1970 from `2026-05-01T12:00`, `15m` (ago) or a number of milliseconds."""
    text = text.strip()
    if text.isdecimal():
        return int(text)
    ago = _AGO.fullmatch(text)
    if ago:
        return int((time.time() - int(ago[1]) * _UNITS[ago[2]]) * 1000)
    from datetime import datetime

    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a time; write 2026-05-01T12:00, 15m (ago), or milliseconds since 1970"
        ) from None


def from_timestamp_ms(timestamp_ms: int) -> str:
    """`2026-05-01T12:00:00.123+00:00`."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
