"""kill -9 under load, thirty times: confirmed is kept, acknowledged is not seen again.

One broker with publishers and workers on it is killed and started again; the ledger remembers what
every client was promised over all its lives. The stated windows (docs/amqp.md): an acknowledgement
that was read by the broker longer than that before the kill is on disk, and so is a rejection,
which takes longer because its dead letter is written and synced first.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from pamqp import commands as c

from support.amqp_ledger import Ledger, Publisher, Worker, drain
from support.amqp_wire import AmqpWire, publish_frames, short
from support.waiting import eventually

KILLS = int(os.environ.get("PENSTOCK_TEST_KILLS", "30"))
WINDOWS = {"ack_window_s": 0.5, "reject_window_s": 2.0}
QUEUE, DEAD, DELAYED, LATER = "work", "dead", "delayed", "later"

pytestmark = [pytest.mark.own_broker, pytest.mark.timeout(900)]


def declare(port: int) -> None:
    wire = AmqpWire("127.0.0.1", port).handshake().channel(1)
    wire.call(1, c.Queue.Declare(queue=DEAD, durable=True), c.Queue.DeclareOk)
    arguments = {
        "x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD,
    }  # fmt: skip
    wire.call(1, c.Queue.Declare(queue=QUEUE, durable=True, arguments=arguments), c.Queue.DeclareOk)
    delayed = c.Exchange.Declare(
        exchange=DELAYED, exchange_type="x-delayed-message", durable=True,
        arguments={"x-delayed-type": "direct"},
    )  # fmt: skip
    wire.call(1, delayed, c.Exchange.DeclareOk)
    wire.call(1, c.Queue.Declare(queue=LATER, durable=True), c.Queue.DeclareOk)
    wire.call(1, c.Queue.Bind(queue=LATER, exchange=DELAYED, routing_key=LATER), c.Queue.BindOk)
    wire.close()


def publish_delayed(port: int, ledger: Ledger, delay_ms: int) -> None:
    """Twenty messages with a delay, confirmed; their bodies say when they are due."""
    wire = AmqpWire("127.0.0.1", port).handshake().channel(1)
    wire.call(1, c.Confirm.Select(), c.Confirm.SelectOk)
    table = short("x-delay") + b"I" + delay_ms.to_bytes(4, "big")
    properties = b"\x30\x00" + len(table).to_bytes(4, "big") + table + b"\x02"
    due = time.time() + delay_ms / 1000
    bodies = range(ledger.next_body, ledger.next_body + 20)
    ledger.next_body += 20
    for body in bodies:
        ledger.published.add(body)
        wire.send_raw(publish_frames(1, DELAYED, LATER, b"%d %f" % (body, due), properties))
    confirmed = 0
    while confirmed < 20:
        confirmed = wire.expect(c.Basic.Ack).delivery_tag
    ledger.confirmed.update(bodies)
    wire.close()


def test_nothing_confirmed_is_lost_and_nothing_acknowledged_comes_again(
    start_broker: Callable[..., Any],
) -> None:
    broker = start_broker()
    declare(broker.amqp_port)
    work, delays = Ledger(), Ledger()
    pace = random.Random(int(os.environ.get("PENSTOCK_TEST_SEED", "1")))
    for life in range(KILLS):
        clients = [
            Publisher(broker.amqp_port, work, "", QUEUE),
            Worker(broker.amqp_port, work, QUEUE, **WINDOWS),
            Worker(broker.amqp_port, work, QUEUE, **WINDOWS),
        ]
        for client in clients:
            client.start()
        if life % 3 == 0:
            publish_delayed(broker.amqp_port, delays, delay_ms=pace.choice([500, 2000, 6000]))
        enough = len(work.confirmed) + 100
        eventually(lambda goal=enough: len(work.confirmed) > goal, within=60)
        time.sleep(pace.uniform(0.0, 1.0))
        work.kills.append(time.monotonic())
        broker.kill()
        for client in clients:
            client.finish()
        broker.start()
    final = Worker(broker.amqp_port, work, QUEUE, **WINDOWS)
    final.start()
    eventually(lambda: not work.confirmed - work.settled and is_done(broker), within=90)
    final.finish()
    check_work(broker, work)
    check_dead(broker, work)
    check_delays(broker, delays)
    assert not drain(broker.amqp_port, QUEUE)
    broker.restart()
    assert not drain(broker.amqp_port, QUEUE)


def is_done(broker: Any) -> bool:
    """Whether the queue has nothing left, nor its worker anything in hand."""
    found = httpx.get(f"{broker.http}/api/queues/%2F/{QUEUE}", auth=("guest", "guest"))
    return bool(found.json()["messages"] == 0)


def check_work(broker: Any, work: Ledger) -> None:
    lost = work.confirmed - work.received.keys()
    assert not lost, (
        f"{len(lost)} of {len(work.confirmed)} confirmed were lost: {sorted(lost)[:20]}"
    )
    assert work.received.keys() <= work.published
    assert not work.again, f"settled and seen again: {work.again[:10]}"
    # A count is how often the message had been delivered and given back before.
    assert not work.lower, f"a delivery count went back: {work.lower[:10]}"


def check_dead(broker: Any, work: Ledger) -> None:
    dead = drain(broker.amqp_port, DEAD)
    bodies = [int(one.body) for one in dead]
    assert work.rejected_at.keys() <= set(bodies), "a rejected message is in no queue"
    assert set(bodies) <= work.rejected_at.keys() | {b for b in work.published if b % 50 == 7}
    for one in dead:
        told = one.properties.headers["x-death"][0]
        assert (told["queue"], told["reason"]) == (QUEUE, "rejected")


def check_delays(broker: Any, delays: Ledger) -> None:
    received: dict[int, float] = {}
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and delays.confirmed - received.keys():
        for one in drain(broker.amqp_port, LATER, quiet_s=1.0):
            body, due = one.body.split()
            received[int(body)] = time.time()
            assert time.time() >= float(due) - 0.05, "a delayed message came too early"
    assert not delays.confirmed - received.keys(), "a delayed message was lost"
