"""`penstock demo sharding`: three independent brokers share the keys, and one goes away."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.cli.demo.crowd import Crowd
from penstock.cli.demo.shards import Shards
from penstock.cli.demo.show import Show
from penstock.cli.demo.stage import COLOURS, Stage
from penstock.cli.output import Failure

NAMES = ["alpha", "beta", "gamma"]
WRITERS = 3
BAR = 24


class Orders:
    """Writers in threads, each with numbers of its own."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self.sent: list[int] = []
        self.writers = Crowd()
        self._next = list(range(WRITERS))
        for writer in range(WRITERS):
            self.writers.start(lambda at=writer: self._write(at), 0.005)  # type: ignore[misc]

    def _write(self, writer: int) -> bool:
        number = self._next[writer]
        self._next[writer] += WRITERS
        self._shards.of(str(number)).send(number)
        self.sent.append(number)
        return False


def play(stage: Stage) -> None:
    """The whole demonstration."""
    stage.curtain("Independent brokers: each has a share of the keys, and no copy of the others'")
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as directory:
        shards = Shards(NAMES, Path(directory))
        orders = Orders(shards)
        try:
            with Show(stage, lambda note: _picture(shards, note)) as show:
                show.watch = [orders.writers]
                _act(show, shards, orders)
        finally:
            orders.writers.stop()
            shards.close()
    processed = [number for shard in shards.shards for number in shard.processed]
    lost = set(orders.sent) - set(processed)
    if lost:
        raise Failure(f"{len(lost)} orders are lost")
    stage.fact(f"{len(orders.sent):,} orders sent, 0 lost, {len(processed):,} processed")
    if twice := len(processed) - len(set(processed)):
        stage.note(f"{twice} twice: a reader got them after another had them and before it said so")
    stage.fact(f"everything came true in {time.perf_counter() - begin:.0f} seconds")


def _act(show: Show, shards: Shards, orders: Orders) -> None:
    show.tell("a key's hash says which broker has it; two threads read at each")
    show.until("orders everywhere", lambda: all(len(s.processed) > 30 for s in shards.shards))
    show.linger(2.0)

    beta, others = shards.shards[1], [shards.shards[0], shards.shards[2]]
    show.tell("beta goes away: its keys wait, the others do not notice")
    beta.stop()
    at = {shard.name: len(shard.processed) for shard in others}
    show.until(
        "the others going on",
        lambda: (
            len(beta.waiting) > 20
            and all(len(shard.processed) > at[shard.name] + 30 for shard in others)
        ),
    )
    show.linger(2.0)

    show.tell(f"beta comes back with its data; {len(beta.waiting):,} orders were waiting for it")
    beta.start()
    beta.send_waiting()
    show.until("beta catching up", lambda: beta.stored - len(beta.processed) < 20)
    show.linger(1.5)

    orders.writers.stop()
    beta.send_waiting()
    show.tell("no more orders: the readers finish")
    sent = set(orders.sent)
    show.until(
        "reading to the end",
        lambda: sent <= {number for shard in shards.shards for number in shard.processed},
    )


def _picture(shards: Shards, note: str) -> RenderableType:
    table = Table(box=box.SIMPLE)
    table.add_column("broker")
    table.add_column("", min_width=4)
    table.add_column("stored", justify="right", min_width=7)
    table.add_column("processed", justify="right", min_width=9)
    table.add_column("waiting", justify="right", min_width=7)
    table.add_column("", min_width=BAR)
    most = max([1, *(shard.stored for shard in shards.shards)])
    for at, shard in enumerate(shards.shards):
        style = COLOURS[at % len(COLOURS)] if shard.is_alive else "dim"
        table.add_row(
            Text(shard.name, style=style),
            "up" if shard.is_alive else "away",
            f"{shard.stored:,}",
            f"{len(shard.processed):,}",
            f"{len(shard.waiting):,}",
            Text("█" * round(BAR * shard.stored / most), style=style),
        )
    return Group(Text(f"   {note}"), table)
