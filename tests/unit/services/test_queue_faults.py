"""Queues when something goes wrong half way: a full disk, a client that goes, a power failure."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from penstock.errors import NotFound, StorageError
from penstock.model.batch import read_header, stamp
from penstock.model.records import build_batch
from penstock.services import queue_space, redrive
from penstock.services.live_queue import LiveQueue
from penstock.services.queue import Queue
from penstock.services.queue_journal import JOURNAL_SETTINGS
from penstock.services.queue_log import QueueLog
from penstock.services.queue_pages import Entry
from support.queue_world import World, bodies, in_world, take

DAY_MS = 24 * 3_600_000


async def with_delays(world: World) -> None:
    """A queue `q` behind an exchange `later` that delays."""
    await world.declare("q")
    await world.session.declare_exchange(
        "later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"}
    )
    await world.session.bind_queue("q", "later", "k")


async def reject_one(world: World, queue: str) -> None:
    consumer = await world.consume(queue)
    (got,) = await take(consumer)
    consumer.reject([got.offset])
    consumer.cancel()


# --- a full disk ----------------------------------------------------------------------------------


@in_world
async def test_a_message_refused_by_a_full_disk_is_no_duplicate_when_it_comes_again(
    world: World,
) -> None:
    await world.declare("q", x_message_deduplication=True)
    await world.publish("q", "warm", message_id="0")
    world.disk.fail("write", errno.ENOSPC, path="q-0")
    assert await world.publish("q", "a", message_id="1") == [0]
    assert await world.publish("q", "a", message_id="1") == []
    assert (await world.live("q")).machine.ready == 2, "what was confirmed is in the queue"
    assert await world.publish("q", "a", message_id="1") == []
    assert (await world.live("q")).machine.ready == 2, "a duplicate is still one"


@in_world
async def test_a_message_of_a_deduplicating_exchange_may_come_again_when_it_was_refused(
    world: World,
) -> None:
    await world.declare("q")
    await world.session.declare_exchange(
        "once", "x-message-deduplication", durable=True, arguments={"x-cache-size": 100}
    )
    await world.session.bind_queue("q", "once", "k")
    seen = {"x-deduplication-header": "1"}
    await world.publish("q", "warm")
    world.disk.fail("write", errno.ENOSPC, path="q-0")
    assert await world.publish("k", "a", exchange="once", headers=seen) == [0]
    assert await world.publish("k", "a", exchange="once", headers=seen) == []
    assert (await world.live("q")).machine.ready == 2


@in_world
async def test_a_dead_letter_that_a_full_disk_refused_is_sent_again(world: World) -> None:
    await world.declare("dead")
    await world.declare("work", x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    await world.publish("dead", "warm")
    await world.publish("work", "a")
    world.disk.fail("write", errno.ENOSPC, path="dead-0")
    await reject_one(world, "work")
    dead = await world.live("dead")
    await world.eventually(lambda: dead.machine.ready == 2, "the letter is delivered")


@in_world
async def test_a_delayed_message_that_a_full_disk_refused_is_released_later(world: World) -> None:
    await with_delays(world)
    await world.publish("q", "warm")
    await world.publish("k", "late", exchange="later", headers={"x-delay": DAY_MS})
    await world.settle()
    world.clock.advance(DAY_MS)
    world.disk.fail("write", errno.ENOSPC, path="q-0")
    world.messaging.delays._begin()
    live = await world.live("q")
    await world.eventually(lambda: live.machine.ready == 2, "the message comes")


@in_world
async def test_a_delayed_message_whose_queue_could_not_be_read_is_released_later(
    world: World,
) -> None:
    await with_delays(world)
    await world.publish("q", "warm")
    await world.publish("k", "late", exchange="later", headers={"x-delay": DAY_MS})
    await world.restart()
    world.clock.advance(DAY_MS)
    world.disk.fail("open", errno.EMFILE, path="q-0")
    world.messaging.delays._begin()
    await world.settle()
    await world.eventually(
        lambda: (live := world.messaging.queues.by_topic("q").live) and live.machine.ready == 2,  # type: ignore[union-attr]
        "the message comes",
    )


@in_world
async def test_no_segment_goes_before_it_is_written_where_its_messages_went(world: World) -> None:
    await world.declare("q")
    live = await world.live("q")
    live.log.replica.log.settings = JOURNAL_SETTINGS
    for at in range(10):
        await world.publish("q", bytes([at]) * 400_000)
    consumer = await world.consume("q", prefetch=100)
    first, *rest = await take(consumer)
    consumer.ack([one.offset for one in rest])
    consumer.requeue([first.offset])
    consumer.cancel()
    await world.settle()
    live.journal.write()
    world.disk.fail("write", errno.ENOSPC, path=".queue-0/", times=100)
    for _ in range(2):
        with contextlib.suppress(StorageError):
            await queue_space.reclaim(live.queue, world.clock.now_ms())
    world.disk.mend()
    await world.store.checkpoint()
    await world.kill(power=True)
    got = await world.session.get("q")
    assert got is not None
    assert bytes(got[0].body) == bytes([0]) * 400_000


# --- power ----------------------------------------------------------------------------------------


@in_world
async def test_a_journal_lets_nothing_go_before_its_checkpoint_is_on_the_medium(
    world: World,
) -> None:
    await world.declare("q")
    await world.publish("q", *[str(n) for n in range(100)])
    live = await world.live("q")
    consumer = await world.consume("q", prefetch=100)
    got = await take(consumer)
    consumer.ack([one.offset for one in got[:50]])
    await live.journal.write_safely()
    log = live.journal._log
    log.roll(world.clock.now_ms())  # so that the old records are in a segment of their own
    live.checkpoint()
    await world.store.checkpoint()
    await world.kill(power=True)
    assert (await world.live("q")).machine.unsettled == 50


# --- clients that go ------------------------------------------------------------------------------


@in_world
async def test_a_get_that_is_given_up_while_it_reads_leaves_the_message_in_the_queue(
    world: World,
) -> None:
    await world.declare("q")
    await world.publish("q", "a")
    live = await world.live("q")
    gate = asyncio.Event()
    bring = live.reader.bring

    async def slowly(offset: int) -> bool:
        await gate.wait()
        return await bring(offset)

    live.reader = type("Slow", (), {"bring": staticmethod(slowly)})()
    getting = asyncio.create_task(world.session.get("q"))
    await world.settle()
    getting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await getting
    assert (live.machine.ready, live.machine.delivered) == (1, 0)


# --- names that are used again --------------------------------------------------------------------


@in_world
async def test_a_queue_declared_again_has_dead_letters_of_its_own(world: World) -> None:
    await world.declare("dead")
    for _ in range(2):
        await world.declare("work", x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
        await world.publish("work", "a")
        work = await world.live("work")
        await reject_one(world, "work")
        await world.eventually(lambda live=work: not live.machine.dying, "it is buried")
        await world.session.delete_queue("work")
    dead = await world.live("dead")
    await world.eventually(lambda: dead.machine.ready == 2, "both are there")


# --- damage ---------------------------------------------------------------------------------------


@in_world
async def test_a_damaged_batch_does_not_stop_its_queue(world: World) -> None:
    await world.declare("q")
    for body in ("a", "b", "c"):
        await world.publish("q", body)
    await world.store.checkpoint()
    middle = (await world.partitions.replica("q", 0)).log.size_bytes // 2
    world.disk.open("q-0/00000000000000000000.log").write([b"!!"], middle)
    await world.kill()
    assert await world.publish("q", "d") == []
    consumer = await world.consume("q")
    got: list[str] = []
    while len(got) < 3:
        got += bodies(await take(consumer))
    assert got == ["a", "c", "d"]


@in_world
async def test_nobody_consumes_from_a_queue_that_was_deleted_while_it_was_loaded(
    world: World,
) -> None:
    await world.declare("q")
    await world.publish("q", "a")
    await world.restart()
    queue = world.messaging.vhosts["/"].queue("q")
    load, gate = queue.host.load, asyncio.Event()

    async def slowly(of: Queue) -> LiveQueue:
        live = await load(of)
        await gate.wait()
        return live

    queue.host.load = slowly  # type: ignore[method-assign]
    consuming = asyncio.create_task(world.consume("q"))
    await world.settle()
    queue.host.load = load  # type: ignore[method-assign]
    world.messaging.queues.delete_unused(queue)
    await world.settle()
    gate.set()
    with pytest.raises(NotFound):
        await asyncio.wait_for(consuming, 5)


@in_world
async def test_what_is_being_redriven_is_nobody_elses_however_deliveries_are_locked(
    world: World,
) -> None:
    await world.declare("work", x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    await world.declare("dead", x_consumer_timeout=60_000)
    await world.publish("work", "a")
    await reject_one(world, "work")
    dead, work = await world.live("dead"), await world.live("work")
    await world.eventually(lambda: dead.machine.ready == 1, "it is dead")
    gate = asyncio.Event()
    entry_or_wait = dead.log.entry_or_wait

    async def slowly(place: int) -> Entry | None:
        await gate.wait()
        return await entry_or_wait(place)

    dead.log = Slowly(dead.log, slowly)  # type: ignore[assignment]
    vhost = world.messaging.vhosts["/"]
    redriving = asyncio.create_task(redrive.redrive(vhost, dead.queue, redrive.Filter()))
    await world.settle()
    dead.wake()
    await world.settle()
    assert (dead.machine.ready, dead.machine.delivered) == (0, 1)
    gate.set()
    assert (await redriving).moved == 1
    await world.eventually(lambda: work.machine.ready == 1, "it is back")


class Slowly:
    """A queue's log whose messages take their time."""

    def __init__(self, log: QueueLog, read: Callable[[int], Awaitable[Entry | None]]) -> None:
        self._log = log
        self.entry_or_wait = read

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


# --- gaps -----------------------------------------------------------------------------------------


async def append_far_away(world: World, topic: str, offset: int) -> None:
    """What compaction leaves of a long log: a record at the beginning and one far away."""
    replica = await world.partitions.replica(topic, 0)
    now_ms = world.clock.now_ms()
    data = build_batch([(b"k", b"far", ())], timestamp_ms=now_ms)
    stamp(data, 0, offset, 0)
    replica.log.append((data,), (read_header(data),), now_ms)
    replica.log.finish_sync(replica.log.begin_sync())
    replica.advance(replica.log.end_offset)


@pytest.mark.parametrize("kind", ["classic", "stream"])
def test_a_gap_of_a_hundred_million_offsets_is_one_step(kind: str) -> None:
    async def check(world: World) -> None:
        await world.declare("q", x_queue_type=kind)
        await world.publish("q", "near")
        first = {"x-stream-offset": "first"}
        consumer = await world.consume("q", prefetch=10, arguments=first)
        (got,) = await take(consumer)
        consumer.ack([got.offset])
        await append_far_away(world, "q", 100_000_000)
        assert bodies(await take(consumer)) == ["far"]

    in_world(check)()


# --- a crash between two writes to the catalogue --------------------------------------------------


@in_world
async def test_a_queue_whose_topic_went_just_before_a_crash_is_gone(world: World) -> None:
    await world.declare("q")
    await world.publish("q", "a")
    await world.catalogue.delete_topics([world.topics.get("q").id])
    await world.kill()
    assert "q" not in world.messaging.vhosts["/"].queues
    await world.declare("q")
    assert await world.publish("q", "b") == []
    assert (await world.live("q")).machine.ready == 1


@in_world
async def test_the_messages_of_a_queue_that_was_half_deleted_do_not_come_again(
    world: World,
) -> None:
    await world.declare("q")
    await world.publish("q", "a")
    rows, topics = world.messaging.queues._catalogue, world.catalogue
    delete, delete_topics = rows.delete, topics.delete_topics
    done: list[object] = []

    async def once(write: Callable[..., Awaitable[None]], *what: Any) -> None:
        if done:
            raise Died
        done.append(what)
        await write(*what)

    rows.delete = partial(once, delete)  # type: ignore[method-assign]
    topics.delete_topics = partial(once, delete_topics)  # type: ignore[method-assign]
    with pytest.raises(Died):
        await world.session.delete_queue("q")
    topics.delete_topics = delete_topics  # type: ignore[method-assign]
    await world.kill()
    await world.declare("q")
    assert (await world.live("q")).machine.ready == 0


class Died(Exception):
    """The process is gone."""
