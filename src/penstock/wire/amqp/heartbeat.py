"""When to send a heartbeat and when to give a peer up, as a function of time.

Any traffic counts as a heartbeat (AMQP 0-9-1 §4.2.7). With an interval of T seconds we speak when
we have been silent for T/2, and give up when the peer has been silent for 2T.
"""

from __future__ import annotations

FRAME = b"\x08\x00\x00\x00\x00\x00\x00\xce"


class Heartbeat:
    """The two clocks of one connection; an interval of 0 turns both off."""

    __slots__ = ("interval_s", "received_at", "sent_at")

    def __init__(self, interval_s: int, now: float) -> None:
        self.interval_s = interval_s
        self.received_at = now
        self.sent_at = now

    @property
    def check_every_s(self) -> float:
        """How often `is_due` and `is_lost` should be asked; 0 for never."""
        return self.interval_s / 4

    def is_due(self, now: float) -> bool:
        """Whether it is time to say that we are still here."""
        return self.interval_s > 0 and now - self.sent_at >= self.interval_s / 2

    def is_lost(self, now: float) -> bool:
        """Whether the peer has been silent for too long."""
        return self.interval_s > 0 and now - self.received_at > 2 * self.interval_s
