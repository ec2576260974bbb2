"""The scene of the group: consumers come, one is killed, and no record is left behind."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Producer
from rich.live import Live

from penstock.cli.demo.stage import Stage
from penstock.cli.demo.topics import fresh_topic
from penstock.cli.output import Failure

PARTITIONS = 6
RATE = 2000
WITHIN_S = 20.0


class Member:
    """A consumer process, and what it told us."""

    def __init__(self, name: str, bootstrap: str, group: str) -> None:
        self.name = name
        self.holds: list[int] = []
        self.seen: set[tuple[int, int]] = set()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "penstock.cli.demo.worker", bootstrap, group, "orders"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            news: dict[str, Any] = json.loads(line)
            self.holds = news.get("holds", self.holds)
            self.seen |= {(place[0], place[1]) for place in news.get("seen", ())}

    def kill(self) -> None:
        self._process.kill()
        self._end()
        self.holds = []

    def leave(self) -> None:
        """Ask it to go, if it is still there."""
        if self._process.poll() is not None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._end()

    def _end(self) -> None:
        self._process.wait()
        self._reader.join()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()


class Orders:
    """A producer that sends at a steady rate from a thread, and remembers what was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: set[tuple[int, int]] = set()
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 2, "log_level": 0}
        )
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._enough.wait(0.01):
            for _ in range(RATE // 100):
                number += 1
                self._producer.produce(
                    "orders", f"order {number}", key=str(number), on_delivery=self._delivered
                )
            self._producer.poll(0)
        self._producer.flush(15)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged.add((message.partition(), message.offset()))

    def stop(self) -> None:
        self._enough.set()
        self._thread.join()


class _Show:
    """The live picture, and waiting for something to become true in it."""

    def __init__(self, stage: Stage, live: Live) -> None:
        self._stage = stage
        self._live = live
        self.members: list[Member] = []
        self.note = ""

    def draw(self) -> None:
        seen: dict[int, int] = {}
        for partition, _ in self.seen():
            seen[partition] = seen.get(partition, 0) + 1
        holds = {member.name: member.holds for member in self.members}
        self._live.update(self._stage.members(holds, seen, PARTITIONS, self.note))

    def seen(self) -> set[tuple[int, int]]:
        return set().union(*(set(member.seen) for member in self.members))

    def until(self, what: str, come_true: Callable[[], bool]) -> float:
        begin = time.perf_counter()
        while not come_true():
            self.draw()
            if time.perf_counter() - begin > WITHIN_S:
                raise Failure(f"{what} did not happen within {WITHIN_S:.0f} s")
            time.sleep(0.05)
        self.draw()
        return time.perf_counter() - begin

    def settled(self, living: list[Member]) -> bool:
        """Every partition is held once, and everybody living holds one."""
        held = sorted(number for member in living for number in member.holds)
        return held == list(range(PARTITIONS)) and all(member.holds for member in living)


def play_group(stage: Stage, bootstrap: str) -> None:
    stage.scene(
        "A group shares the work",
        f"{RATE:,} orders a second; a consumer joins, another is killed with kill -9",
    )
    fresh_topic(bootstrap, "orders", PARTITIONS)
    group = f"billing-{time.time_ns():x}"
    orders = Orders(bootstrap)
    with stage.live() as live:
        show = _Show(stage, live)
        try:
            show.members = [Member(name, bootstrap, group) for name in ("anna", "ben")]
            show.note = "anna and ben start"
            show.until("the first assignment", lambda: show.settled(show.members))
            _linger(show, 1.0)
            show.members.append(Member("clara", bootstrap, group))
            show.note = "clara joins"
            joined = show.until("the assignment to clara", lambda: show.settled(show.members))
            _linger(show, 1.0)
            victim, rest = show.members[1], [show.members[0], show.members[2]]
            victim.kill()
            show.note = "ben is killed"
            missed = show.until("the assignment without ben", lambda: show.settled(rest))
            _linger(show, 0.5)
            orders.stop()
            show.note = "anna and clara finish what ben left"
            show.until("reading to the end", lambda: orders.acknowledged <= show.seen())
        finally:
            orders.stop()
            for member in show.members:
                member.leave()
    if not stage.console.is_terminal:
        stage.console.print()  # the picture ends without a newline in a pipe
    stage.fact(
        f"clara had her share after {joined:.1f} s, ben's was taken over after {missed:.1f} s"
    )
    stage.fact(f"{len(orders.acknowledged):,} orders acknowledged, all of them processed")
    twice = sum(len(member.seen) for member in show.members) - len(show.seen())
    if twice:
        stage.note(f"{twice:,} of them twice: ben died before he could commit what he had done")


def _linger(show: _Show, seconds: float) -> None:
    """Give people time to look."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        show.draw()
        time.sleep(0.08)
