"""One channel as the wire sees it: open or not, and the message that is arriving on it.

       channel.open            publish              header             body (all of it)
    ──────────────► OPEN ─────────────► awaiting ───────────► receiving ─────────────► OPEN
                     │ │                 header                  body
       channel.close │ │ we failed it
      (by the client)▼ ▼ (channel.close)
               LEAVING CLOSING ── close-ok ──► forgotten

While CLOSING, everything but close-ok (and a close that crossed ours) is ignored, because the
client sent it before it knew (AMQP 0-9-1 §1.5.2.5).
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from penstock.wire.amqp.codes import (
    FRAME_ERROR,
    PRECONDITION_FAILED,
    RESOURCE_ERROR,
    UNEXPECTED_FRAME,
    AmqpError,
)
from penstock.wire.amqp.content import PUBLISH_IDS, PublishTarget

NOT_A_METHOD = "expected method frame, got non method frame instead"
_SMALLEST_HEADER = 14  # class, weight, body size and the property flags


class Phase(Enum):
    OPEN = "open"
    LEAVING = "leaving"  # the client closed it, the door has not finished with it
    CLOSING = "closing"  # we closed it and wait for close-ok


class ChannelState:
    """A channel number in use. `owner` belongs to the door."""

    __slots__ = (
        "_parts", "_properties", "_received", "_size", "left_by_client", "number",
        "owner", "phase", "target",
    )  # fmt: skip

    def __init__(self, number: int) -> None:
        self.number = number
        self.phase = Phase.OPEN
        self.left_by_client = False
        self.owner: Any = None
        self.target: PublishTarget | None = None  # of a message that is not whole yet
        self._properties: bytes | None = None
        self._size = 0
        self._received = 0
        self._parts: list[bytes] = []

    def __repr__(self) -> str:
        return f"<ChannelState {self.number} {self.phase.value}>"

    @property
    def buffered_bytes(self) -> int:
        return self._received

    def begin_content(self, target: PublishTarget) -> None:
        """A publish has been read; its header and body are to follow."""
        self.target = target
        self._properties = None
        self._size = self._received = 0
        self._parts = []

    def forget_content(self) -> None:
        self.target = self._properties = None
        self._parts = []
        self._received = 0

    def take_header(self, payload: bytes, max_message_bytes: int) -> None:
        """class u16 | weight u16 | body size u64 | properties"""
        if self.target is None:
            raise AmqpError(UNEXPECTED_FRAME, NOT_A_METHOD)
        class_id = int.from_bytes(payload[:2], "big")
        if self._properties is not None:
            text = "expected content body, got non content body frame instead"
            raise AmqpError(UNEXPECTED_FRAME, text, PUBLISH_IDS)
        if len(payload) < _SMALLEST_HEADER:
            raise AmqpError(FRAME_ERROR, f"a content header of {len(payload)} bytes", PUBLISH_IDS)
        if class_id != 60 or payload[2:4] != b"\x00\x00":
            text = f"expected content header for class 60, got one for class {class_id} instead"
            raise AmqpError(UNEXPECTED_FRAME, text, PUBLISH_IDS)
        self._size = int.from_bytes(payload[4:12], "big")
        self._properties = payload[12:]
        if self._size > max_message_bytes:
            text = (
                f"message size {self._size} is larger than configured max size {max_message_bytes}"
            )
            raise AmqpError(PRECONDITION_FAILED, text, PUBLISH_IDS)

    def take_body(self, payload: bytes, room: int) -> None:
        """A part of the body; `room` is what the connection may still hold in unfinished ones."""
        if self.target is None:
            raise AmqpError(UNEXPECTED_FRAME, NOT_A_METHOD)
        if self._properties is None:
            text = "expected content header for class 60, got non content header frame instead"
            raise AmqpError(UNEXPECTED_FRAME, text, PUBLISH_IDS)
        if self._received + len(payload) > self._size:
            text = f"a body longer than the {self._size} bytes its header announced"
            raise AmqpError(FRAME_ERROR, text, PUBLISH_IDS)
        if len(payload) > room:
            text = "too many unfinished messages on the channels of this connection"
            raise AmqpError(RESOURCE_ERROR, text, PUBLISH_IDS)
        if payload:
            self._parts.append(payload)
            self._received += len(payload)

    def finish_content(self) -> tuple[PublishTarget, bytes, bytes] | None:
        """(target, properties, body) when the message is whole, else None."""
        if self.target is None or self._properties is None or self._received < self._size:
            return None
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        whole = self.target, self._properties, body
        self.forget_content()
        return whole
