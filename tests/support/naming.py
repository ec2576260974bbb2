"""Names that no other test, worker or earlier run has used on the same broker."""

from __future__ import annotations

import re
import uuid


def unique(stem: str) -> str:
    """`stem` made safe for a topic, group or transactional id, with a random tail."""
    return f"{re.sub(r'[^A-Za-z0-9._-]+', '-', stem)[:60].strip('-')}-{uuid.uuid4().hex[:10]}"
