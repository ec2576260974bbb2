"""kill -9 under a share group: no confirmed record is lost, no answered acknowledgement forgotten.

A share group's acknowledgement is answered when it is on the medium, and a rejected record's dead
letter before that, so there is no window here: what was answered holds, whenever the broker dies.
Producer and members are made of raw requests, which retry nothing.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from kio.schema.errors import ErrorCode as E

from support.batches import batch
from support.broker import BrokerProcess
from support.bystander import produce_request
from support.clients.confluent import Confluent
from support.share_member import ACCEPT, REJECT, RELEASE, Member, acquired
from support.sharing import configure
from support.waiting import eventually
from support.wire import ConnectionClosed, Wire, create_topic

pytestmark = [pytest.mark.own_broker, pytest.mark.timeout(600)]

KILLS = int(os.environ.get("PENSTOCK_TEST_KILLS", "6"))
TOPIC, GROUP, DEAD = "work", "sharers", "dlq.sharers"
MAY_BE_DEAD = "errors.deadletterqueue.group.enable"


@dataclass
class Ledger:
    """What was promised, over all lives of the broker. Records go by their offsets."""

    produced: set[int] = field(default_factory=set)
    taken: set[int] = field(default_factory=set)
    said: set[int] = field(default_factory=set)  # acknowledged, whether it was answered or not
    accepted: set[int] = field(default_factory=set)
    rejected: set[int] = field(default_factory=set)
    counts: dict[int, int] = field(default_factory=dict)  # of records given back, as answered
    again: list[int] = field(default_factory=list)  # settled, yet given out
    lower: list[tuple[int, int, int]] = field(default_factory=list)  # counts that were forgotten

    @property
    def settled(self) -> set[int]:
        return self.accepted | self.rejected


class Worker(threading.Thread):
    """Works until the broker dies or it is told to stop."""

    def __init__(self, broker: BrokerProcess, ledger: Ledger) -> None:
        super().__init__(daemon=True)
        self.broker, self.ledger = broker, ledger
        self.stopping = False
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            with Wire(self.broker.host, self.broker.port) as wire:
                self.work(wire)
        except (ConnectionClosed, OSError):
            pass  # the broker was killed
        except BaseException as failure:
            self.failure = failure

    def work(self, wire: Wire) -> None:
        raise AssertionError("subclasses work")

    def finish(self) -> None:
        self.stopping = True
        self.join(30)
        assert not self.is_alive()
        if self.failure is not None:
            raise self.failure


class Producer(Worker):
    def work(self, wire: Wire) -> None:
        while not self.stopping:
            data = batch([b"x" * 50] * 20)
            answer = wire.call("produce", 9, produce_request(TOPIC, data))
            (written,) = answer.responses[0].partition_responses
            assert written.error_code is E.none, written
            self.ledger.produced.update(range(written.base_offset, written.base_offset + 20))
            time.sleep(0.005)


class Sharer(Worker):
    """Accepts most records, rejects some, gives some back once."""

    def work(self, wire: Wire) -> None:
        member = Member(wire, GROUP, TOPIC)
        member.join()
        while not self.stopping:
            for first, last, count in acquired(member.fetch(max_records=40, batch_size=40)):
                self._settle(member, first, last, count)

    def _settle(self, member: Member, first: int, last: int, count: int) -> None:
        ledger, offsets = self.ledger, range(first, last + 1)
        for offset in offsets:
            ledger.taken.add(offset)
            if offset in ledger.settled:
                ledger.again.append(offset)
            if count <= ledger.counts.get(offset, 0):
                ledger.lower.append((offset, ledger.counts[offset], count))
        kinds = [_kind(offset, count) for offset in offsets]
        said = {at for at, kind in zip(offsets, kinds, strict=True) if kind != RELEASE}
        ledger.said |= said
        outcome = member.outcome((first, last, kinds))
        assert outcome is E.none, outcome
        for offset, kind in zip(offsets, kinds, strict=True):
            if kind == RELEASE:
                ledger.counts[offset] = count
            else:
                (ledger.accepted if kind == ACCEPT else ledger.rejected).add(offset)


def is_done(broker: BrokerProcess) -> bool:
    """Whether the group has nothing before it that is not settled."""
    with Wire(broker.host, broker.port) as wire:
        answer = wire.call(
            "describe_share_group_offsets", 0, {"groups": [{"group_id": GROUP, "topics": None}]}
        )
    [place] = answer.groups[0].topics[0].partitions
    _, end = Confluent(broker.bootstrap).watermarks(TOPIC)
    return bool(place.start_offset == end)


def _kind(offset: int, count: int) -> int:
    if offset % 53 == 3 and count == 1:
        return RELEASE
    return REJECT if offset % 29 == 7 else ACCEPT


def test_what_a_share_group_was_answered_holds_when_the_broker_is_killed(
    start_broker: Callable[..., Any],
) -> None:
    broker = start_broker()
    with Wire(broker.host, broker.port) as wire:
        create_topic(wire, TOPIC)
        create_topic(wire, DEAD, configs={MAY_BE_DEAD: "true"})
    configure(
        AdminClient({"bootstrap.servers": broker.bootstrap}),
        GROUP,
        share_auto_offset_reset="earliest",
        share_delivery_count_limit=10,
        errors_deadletterqueue_topic_name=DEAD,
    )
    ledger = Ledger()
    pace = random.Random(int(os.environ.get("PENSTOCK_TEST_SEED", "1")))
    for _ in range(KILLS):
        workers = [Producer(broker, ledger), Sharer(broker, ledger), Sharer(broker, ledger)]
        for worker in workers:
            worker.start()
        enough = len(ledger.accepted) + 60
        eventually(lambda goal=enough: len(ledger.accepted) > goal, within=60)
        time.sleep(pace.uniform(0.0, 0.6))
        broker.kill()
        for worker in workers:
            worker.finish()
        broker.start()
    last = Sharer(broker, ledger)
    last.start()
    eventually(lambda: not last.is_alive() or ledger.produced <= ledger.said, within=120)
    eventually(lambda: not last.is_alive() or is_done(broker), within=120)
    last.finish()
    assert ledger.produced <= ledger.taken, "a confirmed record was given to nobody"
    assert not ledger.again, f"settled, yet given out: {ledger.again[:10]}"
    assert not ledger.lower, f"a delivery count was forgotten: {ledger.lower[:10]}"
    letters = Confluent(broker.bootstrap)
    _, end = letters.watermarks(DEAD)
    dead = {int(dict(one.headers)["__dlq.errors.offset"]) for one in letters.read(DEAD, end)}
    assert ledger.rejected <= dead, "a rejected record has no dead letter"
    assert dead <= {offset for offset in ledger.taken if offset % 29 == 7}
