"""`penstock demo replication`: a primary, two secondaries, and what happens when brokers die."""

from __future__ import annotations

import time

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

import penstock
from penstock.cli.demo.crowd import Crowd
from penstock.cli.demo.replicas import PARTITIONS, Replicas
from penstock.cli.demo.show import Show
from penstock.cli.demo.stage import COLOURS, Stage
from penstock.cli.output import Failure

NAMES = ["north", "south", "west"]
WRITERS = 3
BAR = 24


class Orders:
    """Writers and readers in threads, and what they know of each other."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self.acknowledged: set[int] = set()
        self.processed: dict[int, list[int]] = {part: [] for part in range(PARTITIONS)}
        self.retried = 0
        self._next = list(range(WRITERS))
        self.writers, self.readers = Crowd(), Crowd()
        for writer in range(WRITERS):
            self.writers.start(lambda at=writer: self._write(at), 0.01)  # type: ignore[misc]
        for part in range(PARTITIONS):
            self.readers.start(lambda at=part: self._read(at), 0.01)  # type: ignore[misc]

    def _write(self, writer: int) -> bool:
        number = self._next[writer]
        self._next[writer] += WRITERS
        while True:
            try:
                self._replicas.publish(number, number % PARTITIONS)
                break
            except penstock.PenstockError:  # the primary died: again, to the next one
                self.retried += 1
                time.sleep(0.01)
        self.acknowledged.add(number)
        return False

    def _read(self, partition: int) -> bool:
        done = self.processed[partition]
        try:
            found = self._replicas.read(partition, len(done))
        except penstock.PenstockError:  # the same: offsets are the same everywhere
            return False
        done += found
        return bool(found)

    def count(self) -> int:
        return sum(len(done) for done in self.processed.values())

    def unread(self) -> set[int]:
        return self.acknowledged - {number for done in self.processed.values() for number in done}


def play(stage: Stage) -> None:
    """The whole demonstration."""
    stage.curtain("Primary and secondaries: what one broker has, the others have too")
    begin = time.perf_counter()
    replicas = Replicas(NAMES)
    orders = Orders(replicas)
    try:
        with Show(stage, lambda note: _picture(replicas, orders, note)) as show:
            show.watch = [orders.writers, orders.readers]
            _act(show, replicas, orders)
    finally:
        orders.writers.stop()
        orders.readers.stop()
        replicas.close()
    total, twice = orders.count(), orders.count() - len(orders.acknowledged)
    stage.fact(f"{len(orders.acknowledged):,} orders acknowledged, 0 lost, {total:,} processed")
    if twice > 0:
        stage.note(f"{twice} twice: the primary died after the copy and before the acknowledgement")
    stage.fact(f"everything came true in {time.perf_counter() - begin:.0f} seconds")


def _act(show: Show, replicas: Replicas, orders: Orders) -> None:
    show.tell("three writers, three readers; north is primary, south and west copy it")
    show.until("the first orders", lambda: orders.count() > 100)
    show.linger(2.0)

    show.tell("the primary dies, with all it has in memory")
    at = len(orders.acknowledged)
    died = time.perf_counter()
    heir = replicas.kill("north")
    show.until("a new primary", lambda: len(orders.acknowledged) > at + 20)
    pause = time.perf_counter() - died
    show.tell(f"{heir.name} took over: the next 20 orders were acknowledged after {pause:.2f} s")
    show.linger(1.5)

    show.tell("north comes back, empty, and copies everything")
    replicas.add("north")
    show.until("north's catching up", lambda: replicas.nodes["north"].is_in_sync)
    show.linger(1.5)

    victim = next(node for node in replicas.living() if node not in (heir, replicas.nodes["north"]))
    show.tell(f"a secondary dies, {victim.name}: nobody has to wait for it any more")
    replicas.kill(victim.name)
    at = len(orders.acknowledged)
    show.until("more orders", lambda: len(orders.acknowledged) > at + 20)
    show.linger(1.0)

    orders.writers.stop()
    show.tell("no more orders: the readers finish")
    show.until("reading to the end", lambda: not orders.unread())
    if orders.unread():
        raise Failure(f"{len(orders.unread())} acknowledged orders are lost")


def _picture(replicas: Replicas, orders: Orders, note: str) -> RenderableType:
    table = Table(box=box.SIMPLE)
    table.add_column("broker")
    table.add_column("role", min_width=11)
    table.add_column("has", justify="right", min_width=7)
    table.add_column("", min_width=BAR)
    most = max([1, *(sum(node.ends) for node in replicas.nodes.values())])
    for at, node in enumerate(replicas.nodes.values()):
        style = COLOURS[at % len(COLOURS)] if node.is_alive else "dim"
        role = "secondary" if node.is_in_sync else "catching up"
        role = "primary" if node is replicas.primary else role
        total = sum(node.ends) if node.is_alive else 0
        table.add_row(
            Text(node.name, style=style),
            role if node.is_alive else "dead",
            f"{total:,}",
            Text("█" * round(BAR * total / most), style=style),
        )
    table.add_section()
    table.add_row(
        "readers", f"epoch {replicas.epoch}", f"{orders.count():,}", "processed by three threads"
    )
    return Group(Text(f"   {note}"), table)
