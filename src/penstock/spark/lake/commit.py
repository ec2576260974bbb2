"""What a table remembers of a batch, in the same transaction as its rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Commit(NamedTuple):
    """Whose batch it is, its number, and how far the source was read."""

    sink: str
    batch: int
    note: Mapping[str, str]
