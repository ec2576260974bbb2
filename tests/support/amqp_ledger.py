"""What one AMQP client did and was promised, for crash tests: publishes, confirms, receipts, acks.

Publisher and worker run as threads over raw sockets, so that nothing of a client library retries or
hides anything. They stop when the broker dies and are joined before it is looked at.
"""

from __future__ import annotations

import math
import struct
import threading
import time
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from pamqp import commands as c

from support.amqp_wire import AmqpWire, Content, publish_frames, raw_frame

_ACK = b"\x00\x3c\x00\x50"
_DELIVERY_MODE, _EXPIRATION = b"\x10\x00\x02", b"\x11\x00\x02"


@dataclass
class Ledger:
    """Everything known about the messages of one test, over all lives of the broker."""

    published: set[int] = field(default_factory=set)
    confirmed: set[int] = field(default_factory=set)
    received: dict[int, int] = field(default_factory=dict)  # body -> how often
    settled: set[int] = field(default_factory=set)
    acked_at: dict[int, float] = field(default_factory=dict)  # body -> when its ack was surely read
    rejected_at: dict[int, float] = field(default_factory=dict)
    counts: dict[int, tuple[int, float]] = field(default_factory=dict)  # x-delivery-count, when
    lower: list[tuple[int, int, int, float]] = field(default_factory=list)  # counts that went back
    again: list[tuple[int, float, float]] = field(default_factory=list)  # settled, yet delivered
    kills: list[float] = field(default_factory=list)  # just before each
    stalls: dict[int, float] = field(default_factory=dict)  # longest wait for a confirm, by life
    next_body: int = 0

    def now(self, life: int) -> float:
        """When something came that the broker said in that life: before it died, at any rate."""
        return self.kills[life] if len(self.kills) > life else time.monotonic()

    def lived_on_for(self, when: float) -> float:
        """How much longer than the broker was stalled it lived after that."""
        life = bisect_left(self.kills, when)
        if life == len(self.kills):
            return math.inf
        return self.kills[life] - when - self.stalls.get(life, 0.0)


class Client(threading.Thread):
    """A thread that works until its connection breaks or it is told to stop."""

    def __init__(self, port: int, ledger: Ledger) -> None:
        super().__init__(daemon=True)
        self.port = port
        self.ledger = ledger
        self.life = len(ledger.kills)
        self.stopping = False
        self.failure: BaseException | None = None
        self.wire: AmqpWire | None = None

    def run(self) -> None:
        try:
            self.wire = AmqpWire("127.0.0.1", self.port)
            self.wire.handshake().channel(1)
            self.work(self.wire)
        except (OSError, EOFError):
            pass  # the broker was killed
        except BaseException as failure:
            self.failure = failure
        finally:
            if self.wire is not None:
                self.wire.close()

    def work(self, wire: AmqpWire) -> None:
        raise AssertionError("subclasses work")

    def finish(self) -> None:
        self.stopping = True
        self.join(20)
        assert not self.is_alive()
        if self.failure is not None:
            raise self.failure


class Publisher(Client):
    """Publishes numbered bodies with confirms, in batches, up to 500 unconfirmed."""

    def __init__(self, port: int, ledger: Ledger, exchange: str, key: str, **more: Any) -> None:
        super().__init__(port, ledger)
        self.exchange, self.key = exchange, key
        self.properties = more.get("properties", _DELIVERY_MODE)

    def work(self, wire: AmqpWire) -> None:
        ledger = self.ledger
        wire.call(1, c.Confirm.Select(), c.Confirm.SelectOk)
        bodies: dict[int, int] = {}
        sent: deque[float] = deque()  # when each unconfirmed block was sent
        tag = settled = 0
        while not self.stopping or settled < tag:
            if not self.stopping and tag - settled < 500:
                block = []
                for _ in range(20):
                    body, tag = ledger.next_body, tag + 1
                    ledger.next_body += 1
                    ledger.published.add(body)
                    bodies[tag] = body
                    text = b"%d" % body
                    block.append(publish_frames(1, self.exchange, self.key, text, self.properties))
                sent.append(time.monotonic())
                wire.send_raw(b"".join(block))
                if tag - settled < 400:
                    continue
            try:
                _, ack = wire.read()
            finally:
                self._waited(time.monotonic() - sent[0])
            assert isinstance(ack, c.Basic.Ack), ack
            first = settled + 1 if ack.multiple else ack.delivery_tag
            for number in range(first, ack.delivery_tag + 1):
                ledger.confirmed.add(bodies.pop(number))
            settled = ack.delivery_tag if ack.multiple else settled + 1
            while len(sent) > (tag - settled + 19) // 20:
                sent.popleft()

    def _waited(self, wait_s: float) -> None:
        stalls = self.ledger.stalls
        stalls[self.life] = max(wait_s, stalls.get(self.life, 0.0))


class Worker(Client):
    """Consumes; acknowledges most, rejects some to the dead, requeues some once.

    After every few settlements it asks for an answer: what was settled before an answer that came
    has been read by the broker, and only that is held against it. A broker that had no processor
    or no disk for a while, as its publisher noticed, has so much longer to write it down.
    """

    def __init__(
        self, port: int, ledger: Ledger, queue: str, *, ack_window_s: float, reject_window_s: float
    ) -> None:
        super().__init__(port, ledger)
        self.queue = queue
        self.ack_window_s = ack_window_s
        self.reject_window_s = reject_window_s
        self.unanswered: list[tuple[dict[int, float], int]] = []
        self.fences: deque[list[tuple[dict[int, float], int]]] = deque()

    def work(self, wire: AmqpWire) -> None:
        wire.call(1, c.Basic.Qos(0, 100, False), c.Basic.QosOk)
        wire.call(1, c.Basic.Consume(queue=self.queue), c.Basic.ConsumeOk)
        wire.socket.settimeout(0.2)
        while not self.stopping:
            try:
                _, got = wire.read()
            except TimeoutError:
                self._ask(wire)
                continue
            if isinstance(got, c.Channel.FlowOk):
                for noted, body in self.fences.popleft():
                    noted[body] = self.ledger.now(self.life)
                continue
            assert isinstance(got, Content), got
            self._settle_one(wire, got)
            if len(self.unanswered) >= 20:
                self._ask(wire)

    def _settle_one(self, wire: AmqpWire, got: Content) -> None:
        ledger = self.ledger
        body, tag = int(got.body), got.method.delivery_tag  # type: ignore[attr-defined]
        self._note(body, got)
        if body % 97 == 3 and ledger.received[body] == 1:
            wire.send_raw(_settle(tag, 120, 2))  # once more, please
        elif body % 50 == 7:
            wire.send_raw(_settle(tag, 120, 0))
            ledger.settled.add(body)
            self.unanswered.append((ledger.rejected_at, body))
        else:
            wire.send_raw(_settle(tag, 80, 0))
            ledger.settled.add(body)
            self.unanswered.append((ledger.acked_at, body))

    def _ask(self, wire: AmqpWire) -> None:
        if self.unanswered:
            wire.send_raw(raw_frame(1, 1, b"\x00\x14\x00\x14\x01"))
            self.fences.append(self.unanswered)
            self.unanswered = []

    def _note(self, body: int, got: Content) -> None:
        ledger = self.ledger
        ledger.received[body] = ledger.received.get(body, 0) + 1
        headers = got.properties.headers or {}
        count, had = int(headers.get("x-delivery-count", 0)), ledger.counts.get(body)
        # What was settled in the last moments before a kill may be forgotten, no other.
        if had is not None and count < had[0]:
            lived_on_for = ledger.lived_on_for(had[1])
            if lived_on_for > self.ack_window_s:
                ledger.lower.append((body, had[0], count, lived_on_for))
        ledger.counts[body] = count, ledger.now(self.life)
        for settled_at, window_s in (
            (ledger.acked_at.get(body), self.ack_window_s),
            (ledger.rejected_at.get(body), self.reject_window_s),
        ):
            if settled_at is not None and ledger.lived_on_for(settled_at) > window_s:
                ledger.again.append((body, settled_at, ledger.lived_on_for(settled_at)))


def _settle(tag: int, method: int, bits: int) -> bytes:
    return struct.pack(">BHIHHQBB", 1, 1, 13, 60, method, tag, bits, 0xCE)


def drain(port: int, queue: str, *, quiet_s: float = 1.5) -> list[Content]:
    """Everything that is in a queue, acknowledged, until it has been quiet for a while."""
    wire = AmqpWire("127.0.0.1", port).handshake().channel(1)
    wire.call(1, c.Basic.Qos(0, 1000, False), c.Basic.QosOk)
    wire.call(1, c.Basic.Consume(queue=queue), c.Basic.ConsumeOk)
    wire.socket.settimeout(quiet_s)
    got: list[Content] = []
    try:
        while True:
            _, one = wire.read()
            got.append(one)
            wire.send_raw(_settle(one.method.delivery_tag, 80, 0))
    except TimeoutError:
        pass
    wire.call(1, c.Channel.Flow(True), c.Channel.FlowOk)
    wire.send(0, c.Connection.Close(200, "", 0, 0))
    wire.expect(c.Connection.CloseOk)
    wire.close()
    return got
