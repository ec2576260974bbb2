"""What handlers of the management API answer, and JSON as the HTTP door writes it."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from starlette.responses import JSONResponse


class Json(JSONResponse):
    """Compact JSON, ended by a newline, in UTF-8."""

    def render(self, content: Any) -> bytes:
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
        # A name or header that is not UTF-8 was read with escapes, and is shown with marks.
        return text.encode("utf-8", "replace") + b"\n"


class Answer(NamedTuple):
    """A value to show, or nothing to show; and the status."""

    value: Any
    status: int = 200


DONE = Answer(None, 204)
CREATED = Answer(None, 201)


def put(was_there: bool) -> Answer:
    """The answer to a PUT."""
    return DONE if was_there else CREATED
