"""What one AMQP client did and was promised, for crash tests: publishes, confirms, receipts, acks.

Publisher and worker run as threads over raw sockets, so that nothing of a client library retries or
hides anything. They stop when the broker dies and are joined before it is looked at.
"""

from __future__ import annotations

import struct
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from pamqp import commands as c

from support.amqp_wire import AmqpWire, Content, publish_frames

_ACK = b"\x00\x3c\x00\x50"
_DELIVERY_MODE, _EXPIRATION = b"\x10\x00\x02", b"\x11\x00\x02"


@dataclass
class Ledger:
    """Everything known about the messages of one test, over all lives of the broker."""

    published: set[int] = field(default_factory=set)
    confirmed: set[int] = field(default_factory=set)
    received: dict[int, int] = field(default_factory=dict)  # body -> how often
    acked_at: dict[int, float] = field(default_factory=dict)  # body -> when the ack was written
    rejected_at: dict[int, float] = field(default_factory=dict)
    counts: dict[int, list[int]] = field(default_factory=dict)  # body -> x-delivery-count seen
    again: list[tuple[int, float, float]] = field(default_factory=list)  # settled, yet delivered
    kills: list[float] = field(default_factory=list)
    next_body: int = 0


class Client(threading.Thread):
    """A thread that works until its connection breaks or it is told to stop."""

    def __init__(self, port: int, ledger: Ledger) -> None:
        super().__init__(daemon=True)
        self.port = port
        self.ledger = ledger
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
                wire.send_raw(b"".join(block))
                if tag - settled < 400:
                    continue
            _, ack = wire.read()
            assert isinstance(ack, c.Basic.Ack), ack
            first = settled + 1 if ack.multiple else ack.delivery_tag
            for number in range(first, ack.delivery_tag + 1):
                ledger.confirmed.add(bodies.pop(number))
            settled = ack.delivery_tag if ack.multiple else settled + 1


class Worker(Client):
    """Consumes; acknowledges most, rejects some to the dead, requeues some once."""

    def __init__(
        self, port: int, ledger: Ledger, queue: str, *, ack_window_s: float, reject_window_s: float
    ) -> None:
        super().__init__(port, ledger)
        self.queue = queue
        self.ack_window_s = ack_window_s
        self.reject_window_s = reject_window_s

    def work(self, wire: AmqpWire) -> None:
        ledger = self.ledger
        wire.call(1, c.Basic.Qos(0, 100, False), c.Basic.QosOk)
        wire.call(1, c.Basic.Consume(queue=self.queue), c.Basic.ConsumeOk)
        wire.socket.settimeout(0.2)
        while not self.stopping:
            try:
                _, got = wire.read()
            except TimeoutError:
                continue
            assert isinstance(got, Content), got
            body, tag = int(got.body), got.method.delivery_tag  # type: ignore[attr-defined]
            self._note(body, got)
            if body % 97 == 3 and ledger.received[body] == 1:
                wire.send_raw(_settle(tag, 120, 2))  # once more, please
            elif body % 50 == 7:
                wire.send_raw(_settle(tag, 120, 0))
                ledger.rejected_at[body] = time.monotonic()
            else:
                wire.send_raw(_settle(tag, 80, 0))
                ledger.acked_at[body] = time.monotonic()

    def _note(self, body: int, got: Content) -> None:
        ledger = self.ledger
        ledger.received[body] = ledger.received.get(body, 0) + 1
        headers = got.properties.headers or {}
        ledger.counts.setdefault(body, []).append(int(headers.get("x-delivery-count", 0)))
        for settled_at, window_s in (
            (ledger.acked_at.get(body), self.ack_window_s),
            (ledger.rejected_at.get(body), self.reject_window_s),
        ):
            if settled_at is None:
                continue
            # A settlement of the last moments before a kill may be forgotten, no other.
            before = [kill - settled_at for kill in ledger.kills if kill > settled_at]
            if not before or min(before) > window_s:
                ledger.again.append((body, settled_at, min(before, default=-1.0)))


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
