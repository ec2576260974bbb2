"""Numbers and names of AMQP 0-9-1: frames, reply codes, and the error that ends a channel.

Which codes end a channel and which the whole connection is the specification's (§1.2, "soft" and
"hard" errors), and so are the names that stand before every reply text.
"""

from __future__ import annotations

from typing import Final

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
FRAME_METHOD: Final = 1
FRAME_HEADER: Final = 2
FRAME_BODY: Final = 3
FRAME_HEARTBEAT: Final = 8
FRAME_END: Final = 0xCE
FRAME_OVERHEAD: Final = 8  # type, channel and size before the payload, the end octet after it
FRAME_MIN_SIZE: Final = 4096  # no peer may negotiate less (AMQP 0-9-1 §4.2.3)

CONTENT_TOO_LARGE: Final = 311
NO_ROUTE: Final = 312
NO_CONSUMERS: Final = 313
CONNECTION_FORCED: Final = 320
INVALID_PATH: Final = 402
ACCESS_REFUSED: Final = 403
NOT_FOUND: Final = 404
RESOURCE_LOCKED: Final = 405
PRECONDITION_FAILED: Final = 406
FRAME_ERROR: Final = 501
SYNTAX_ERROR: Final = 502
COMMAND_INVALID: Final = 503
CHANNEL_ERROR: Final = 504
UNEXPECTED_FRAME: Final = 505
RESOURCE_ERROR: Final = 506
NOT_ALLOWED: Final = 530
NOT_IMPLEMENTED: Final = 540
INTERNAL_ERROR: Final = 541

NAMES: Final = {
    value: name
    for name, value in list(globals().items())
    if isinstance(value, int) and value >= CONTENT_TOO_LARGE and name != "FRAME_MIN_SIZE"
}
_ENDS_ONLY_THE_CHANNEL: Final = frozenset(
    {
        CONTENT_TOO_LARGE,
        NO_ROUTE,
        NO_CONSUMERS,
        ACCESS_REFUSED,
        NOT_FOUND,
        RESOURCE_LOCKED,
        PRECONDITION_FAILED,
    }
)


class AmqpError(Exception):
    """The client did something that ends its channel or its connection, with a reply code.

    `method` is the (class, method) that caused it, (0, 0) when none did.
    """

    def __init__(self, code: int, text: str, method: tuple[int, int] = (0, 0)) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.method = method

    @property
    def ends_connection(self) -> bool:
        return self.code not in _ENDS_ONLY_THE_CHANNEL

    @property
    def reply_text(self) -> str:
        """`NOT_FOUND - no queue ...`, cut to what fits a short string."""
        return cut_short(f"{NAMES[self.code]} - {self.text}" if self.text else NAMES[self.code])


def cut_short(text: str) -> str:
    """At most 255 bytes of UTF-8, never half a character; dots say that more was to be said."""
    encoded = text.encode("utf-8", "replace")
    return text if len(encoded) <= 255 else encoded[:252].decode("utf-8", "ignore") + "..."
