"""Queues through many crashes, by seed: what was confirmed is there until it is acknowledged.

The real services over a disk in memory that forgets what was not synced. A failure names its seed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from support.effort import examples
from support.queue_world import World, take

SEEDS = examples(12)
STEPS = 60


class Life:
    """What one simulated queue's clients know."""

    def __init__(self, world: World, dice: random.Random) -> None:
        self.world = world
        self.dice = dice
        self.next_body = 0
        self.confirmed: set[str] = set()
        self.settled: set[str] = set()  # acknowledged, and the journal was written since
        self.forgettable: set[str] = set()  # acknowledged, but a crash may forget that
        self.doubtful: set[str] = set()  # acknowledged just before a crash: who knows
        self.held: dict[str, int] = {}  # body: offset
        self.counts: dict[str, int] = {}  # as consumers saw them
        self.written_counts: dict[str, int] = {}

    async def publish(self) -> None:
        bodies = [f"{self.next_body + n}" for n in range(self.dice.randint(1, 12))]
        self.next_body += len(bodies)
        priority = self.dice.choice([None, 0, 3])
        assert await self.world.publish("q", *bodies, priority=priority) == []
        self.confirmed.update(bodies)

    async def consume(self) -> None:
        consumer = await self.world.consume("q", f"c{self.next_body}")
        for one in await take(consumer, self.dice.randint(1, 20), wait=False):
            body = bytes(one.body).decode()
            assert body in self.confirmed
            assert body not in self.settled, f"{body} was acknowledged and came again"
            assert body not in self.held, f"{body} is with somebody else"
            assert body not in self.forgettable
            self.doubtful.discard(body)
            assert one.delivery_count >= self.counts.get(body, 0), "a count went back"
            self.counts[body] = one.delivery_count
            self.held[body] = one.offset
        consumer.cancel()

    async def settle(self) -> None:
        live = await self.world.live("q")
        chosen = self.dice.sample(sorted(self.held), self.dice.randint(0, len(self.held)))
        offsets = [self.held.pop(body) for body in chosen]
        if self.dice.random() < 0.7:
            live.ack(offsets, None)
            self.forgettable.update(chosen)
        else:
            live.requeue(offsets, None)

    async def write_journal(self) -> None:
        (await self.world.live("q")).journal.write()
        self.written()

    async def checkpoint(self) -> None:
        (await self.world.live("q")).checkpoint()
        self.written()

    def written(self) -> None:
        """The journal is up to date: a crash forgets nothing of what was until now."""
        self.settled |= self.forgettable
        self.forgettable.clear()
        self.written_counts = dict(self.counts)

    async def die(self) -> None:
        power = self.dice.random() < 0.3
        if power:
            # Whatever the journal did not sync is forgotten too.
            await (await self.world.live("q")).journal.write_safely()
            self.written()
        await self.world.kill(power=power)
        self.counts = dict(self.written_counts)
        self.doubtful |= self.forgettable
        self.forgettable.clear()
        self.held.clear()

    async def rest(self) -> None:
        await asyncio.sleep(0.007)
        await self.world.messaging.queues.reclaim()

    async def drain(self) -> None:
        """At the end, everything that was not acknowledged can still be had, once."""
        await self.die()
        consumer = await self.world.consume("q", "last")
        found: list[str] = []
        while got := await take(consumer, 1000, wait=False):
            found += [bytes(one.body).decode() for one in got]
            consumer.ack([one.offset for one in got])
        assert len(found) == len(set(found))
        missing = self.confirmed - self.settled - self.doubtful - set(found)
        assert not missing, f"lost: {sorted(missing)}"
        assert not set(found) & self.settled
        consumer.cancel()


async def simulate(seed: int, arguments: dict[str, object]) -> None:
    dice = random.Random(seed)
    world = World()
    await world.start()
    await world.declare("q", **arguments)
    life = Life(world, dice)
    steps: Sequence[tuple[object, int]] = (
        (life.publish, 6),
        (life.consume, 6),
        (life.settle, 6),
        (life.write_journal, 2),
        (life.checkpoint, 1),
        (life.rest, 1),
        (life.die, 1),
    )
    for step in dice.choices([s for s, _ in steps], [w for _, w in steps], k=STEPS):
        await step()  # type: ignore[operator]
    await life.drain()
    await world.stop()
    await world.catalogue.close()


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize(
    "arguments",
    [{}, {"x_max_priority": 5}, {"x_message_ttl": 10**9}, {"x_max_length_bytes": 10**9}],
    ids=["plain", "priorities", "ttl", "bytes"],
)
def test_a_queue_keeps_its_promises_through_crashes(
    seed: int, arguments: dict[str, object]
) -> None:
    asyncio.run(simulate(seed, arguments))
