"""What queues do by their arguments: limits, times, priorities, dead letters, duplicates, space."""

from __future__ import annotations

import asyncio

import pytest

from penstock.errors import PreconditionFailed
from penstock.model import message_properties
from penstock.model.records import build_batch
from penstock.services.delays import BUCKET_MS, TOPIC_PREFIX
from support.queue_world import World, bodies, in_world, take


async def with_dead_letters(world: World, **arguments: object) -> None:
    """A queue `q` whose dead letters go to a queue `dead`."""
    await world.declare("dead")
    await world.declare(
        "q", x_dead_letter_exchange="", x_dead_letter_routing_key="dead", **arguments
    )


async def dead_bodies(world: World, count: int) -> list[str]:
    live = await world.live("dead")
    await world.eventually(lambda: live.machine.ready >= count, f"{count} dead letters")
    return bodies(await take(await world.consume("dead", no_ack=True)))


# --- order and limits -----------------------------------------------------------------------------


@in_world
async def test_higher_priorities_go_first_even_after_a_restart(world: World) -> None:
    await world.declare("q", x_max_priority=5)
    for body, priority in (("low", 1), ("high", 5), ("clamped", 200), ("none", None)):
        await world.publish("q", body, priority=priority)
    await world.kill()
    assert bodies(await take(await world.consume("q"))) == ["high", "clamped", "low", "none"]


@in_world
async def test_the_oldest_messages_make_room(world: World) -> None:
    await with_dead_letters(world, x_max_length=2)
    await world.publish("q", *"abcde")
    assert await dead_bodies(world, 3) == ["a", "b", "c"]
    assert bodies(await take(await world.consume("q"))) == ["d", "e"]


@in_world
async def test_a_message_that_a_waiting_consumer_takes_is_not_too_much(world: World) -> None:
    await world.declare("q", x_max_length=0)
    consumer = await world.consume("q")
    waiting = asyncio.create_task(take(consumer))
    await world.settle()
    await world.publish("q", "a", "b")
    assert bodies(await waiting) == ["a", "b"]
    await world.publish("q", "c")
    assert (await world.live("q")).machine.ready == 0


@in_world
async def test_bodies_are_counted_where_bytes_are_limited(world: World) -> None:
    await world.declare("q", x_max_length_bytes=10)
    await world.publish("q", "aaaa", "bbbb", "cccc")
    await world.restart()
    live = await world.live("q")
    assert live.machine.ready_bytes == 8
    assert bodies(await take(await world.consume("q"))) == ["bbbb", "cccc"]


@in_world
async def test_a_full_queue_can_refuse(world: World) -> None:
    await world.declare("q", x_max_length=2, x_overflow="reject-publish")
    assert await world.publish("q", *"abc") == [2]
    assert await world.publish("q", "d") == [0]
    consumer = await world.consume("q", no_ack=True)
    assert bodies(await take(consumer)) == ["a", "b"]
    assert await world.publish("q", "e") == []


@in_world
async def test_what_a_full_queue_refuses_can_be_dead_lettered(world: World) -> None:
    await with_dead_letters(world, x_max_length=1, x_overflow="reject-publish-dlx")
    assert await world.publish("q", *"abc") == [1, 2]
    assert await dead_bodies(world, 2) == ["b", "c"]


# --- time -----------------------------------------------------------------------------------------


@in_world
async def test_each_message_expires_at_its_own_time(world: World) -> None:
    await with_dead_letters(world)
    await world.publish("q", "long", expiration="5000")
    await world.publish("q", "short", expiration="100")
    await world.pass_time(100)
    assert await dead_bodies(world, 1) == ["short"]
    await asyncio.sleep(0.02)  # until it is in the journals
    await world.kill()
    await world.pass_time(5000)
    await world.live("q")
    await world.settle()
    assert await dead_bodies(world, 1) == ["long"]


@in_world
async def test_a_queue_can_limit_the_life_of_all_its_messages(world: World) -> None:
    await world.declare("q", x_message_ttl=1000)
    await world.publish("q", "a")
    await world.pass_time(600)
    await world.publish("q", "b")
    await world.restart()
    await world.live("q")
    await world.pass_time(400)
    assert bodies(await take(await world.consume("q"))) == ["b"]


@in_world
async def test_a_message_that_lives_no_time_reaches_only_those_who_wait(world: World) -> None:
    await world.declare("q", x_message_ttl=0)
    consumer = await world.consume("q")
    waiting = asyncio.create_task(take(consumer))
    await world.settle()
    await world.publish("q", "a")
    assert bodies(await waiting) == ["a"]
    await world.publish("q", "b")
    await world.pass_time(1)
    assert (await world.live("q")).machine.ready == 0


@in_world
async def test_a_delayed_message_waits_in_its_queue(world: World) -> None:
    await world.declare("q")
    await world.session.declare_exchange(
        "later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"}
    )
    await world.session.bind_queue("q", "later", "k")
    await world.publish("k", "delayed", exchange="later", headers={"x-delay": 3000})
    await world.publish("k", "at once", exchange="later")
    live = await world.live("q")
    assert (live.machine.ready, live.machine.held) == (1, 1)
    await world.kill()
    consumer = await world.consume("q")
    assert bodies(await take(consumer)) == ["at once"]
    await world.pass_time(2999)
    assert await take(consumer, wait=False) == []
    await world.pass_time(1)
    (got,) = await take(consumer)
    assert bytes(got.body) == b"delayed"
    assert not got.redelivered


@in_world
async def test_a_long_delay_is_kept_apart_and_survives(world: World) -> None:
    await world.declare("q")
    await world.session.declare_exchange(
        "later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"}
    )
    await world.session.bind_queue("q", "later", "k")
    day = 24 * 3_600_000
    refused = await world.publish("k", "tomorrow", exchange="later", headers={"x-delay": day})
    assert refused == []
    assert (await world.live("q")).machine.unsettled == 0
    (topic,) = [name for name in world.topics.names() if name.startswith(TOPIC_PREFIX)]
    await world.kill()
    assert not world.messaging.delays._releasing
    world.clock.advance(day)
    world.messaging.delays._begin()
    consumer = await world.consume("q")
    assert bodies(await take(consumer)) == ["tomorrow"]
    await asyncio.sleep(0.02)
    world.clock.advance(BUCKET_MS)
    await world.kill()
    await world.eventually(lambda: world.topics.find(topic) is None, "an empty hour goes")


# --- dead letters ---------------------------------------------------------------------------------


@in_world
async def test_a_rejected_message_says_how_it_died(world: World) -> None:
    await world.session.declare_exchange("dlx", "fanout", durable=True)
    await world.declare("dead")
    await world.session.bind_queue("dead", "dlx", "")
    await world.declare("q", x_dead_letter_exchange="dlx")
    await world.publish("q", "a", headers={"mine": 0.1}, expiration="60000")
    consumer = await world.consume("q")
    (got,) = await take(consumer)
    consumer.reject([got.offset])
    (dead,) = await take(await world.consume("dead"))
    assert (dead.exchange, dead.routing_key) == ("dlx", "q")
    properties = message_properties.parse(dead.properties)
    (death,) = properties.headers.pop("x-death")  # type: ignore[misc, attr-defined]
    assert death == {
        "count": 1,
        "reason": "rejected",
        "queue": "q",
        "time": world.clock.now_ms() // 1000,
        "exchange": "",
        "routing-keys": ["q"],
        "original-expiration": "60000",
    }
    headers = properties.headers
    assert headers["mine"] == 0.1
    assert headers["x-first-death-queue"] == "q"
    assert headers["x-first-death-reason"] == "rejected"
    assert properties.expiration is None
    live = await world.live("q")
    await world.eventually(lambda: live.machine.unsettled == 0, "buried in the queue")


@in_world
async def test_deaths_are_counted_by_queue_and_reason(world: World) -> None:
    await world.declare(
        "retry", x_dead_letter_exchange="", x_dead_letter_routing_key="q", x_message_ttl=10
    )
    await world.declare("q", x_dead_letter_exchange="", x_dead_letter_routing_key="retry")
    await world.publish("q", "a")
    consumer = await world.consume("q")
    retry = await world.live("retry")
    for _ in range(3):
        (got,) = await take(consumer)
        consumer.reject([got.offset])
        await world.eventually(lambda: retry.machine.ready, "in the retry queue")
        await world.pass_time(10)
    (got,) = await take(consumer)
    deaths = message_properties.parse(got.properties).headers["x-death"]
    assert [(d["queue"], d["reason"], d["count"]) for d in deaths] == [  # type: ignore[attr-defined]
        ("retry", "expired", 3),
        ("q", "rejected", 3),
    ]


@in_world
async def test_a_message_that_expires_in_circles_is_dropped(world: World) -> None:
    await world.declare(
        "q", x_dead_letter_exchange="", x_dead_letter_routing_key="q", x_message_ttl=10
    )
    await world.publish("q", "a")
    live = await world.live("q")
    await world.pass_time(10)
    await world.eventually(lambda: live.machine.unsettled == 0, "dropped")
    assert live.log.replica.log.end_offset == 1


@in_world
async def test_a_message_that_comes_back_too_often_is_dead(world: World) -> None:
    await with_dead_letters(world, x_delivery_limit=1)
    await world.publish("q", "a")
    consumer = await world.consume("q")
    for _ in range(2):
        (got,) = await take(consumer)
        consumer.requeue([got.offset])
    assert await dead_bodies(world, 1) == ["a"]


@in_world
async def test_a_crash_before_the_burial_leaves_the_message_in_its_queue(world: World) -> None:
    await with_dead_letters(world)
    await world.publish("q", "a")
    consumer = await world.consume("q")
    (got,) = await take(consumer)
    consumer.reject([got.offset])
    await world.kill()
    assert bodies(await take(await world.consume("q"))) == ["a"]


@in_world
async def test_a_crash_between_copy_and_burial_makes_no_second_copy(world: World) -> None:
    await with_dead_letters(world)
    await world.publish("q", "a")
    consumer = await world.consume("q")
    (got,) = await take(consumer)
    dead = await world.live("dead")
    (await world.live("q")).journal.is_closed = True  # the burial does not get into the journal
    consumer.reject([got.offset])
    await world.eventually(lambda: dead.machine.ready, "copied")
    await world.kill()
    consumer = await world.consume("q")
    (got,) = await take(consumer)
    consumer.reject([got.offset])
    live = await world.live("q")
    await world.eventually(lambda: live.machine.unsettled == 0, "buried")
    assert await dead_bodies(world, 1) == ["a"]


@in_world
async def test_a_dead_letter_waits_for_a_target_that_refuses_it(world: World) -> None:
    await world.declare("dead", x_max_length=1, x_overflow="reject-publish")
    await world.declare(
        "q", x_dead_letter_exchange="", x_dead_letter_routing_key="dead", x_message_ttl=5
    )
    await world.publish("dead", "in the way")
    await world.publish("q", "a")
    live = await world.live("q")
    await world.pass_time(5)
    assert live.machine.dying == 1
    consumer = await world.consume("dead", no_ack=True)
    assert bodies(await take(consumer)) == ["in the way"]
    assert bodies(await take(consumer)) == ["a"]
    await world.eventually(lambda: live.machine.unsettled == 0, "buried")


# --- duplicates -----------------------------------------------------------------------------------


@in_world
async def test_a_queue_takes_each_id_once_while_it_is_there(world: World) -> None:
    await world.declare("q", x_message_deduplication=True)
    await world.publish("q", "a", message_id="1")
    assert await world.publish("q", "again", message_id="1") == []
    await world.publish("q", "b", message_id="2")
    await world.publish("q", "no id")
    await world.restart()
    await world.publish("q", "again", message_id="2")
    consumer = await world.consume("q")
    got = await take(consumer)
    assert bodies(got) == ["a", "b", "no id"]
    consumer.ack([got[0].offset])
    await world.publish("q", "now it may", message_id="1")
    assert bodies(await take(consumer)) == ["now it may"]


@in_world
async def test_a_window_outlives_the_message_and_the_process(world: World) -> None:
    await world.declare("q", x_message_deduplication=True, x_deduplication_window_ms=60_000)
    await world.publish("q", "a", headers={"x-deduplication-header": "id"})
    consumer = await world.consume("q", no_ack=True)
    await take(consumer)
    await asyncio.sleep(0.02)
    await world.kill()
    await world.publish("q", "again", headers={"x-deduplication-header": "id"})
    assert (await world.live("q")).machine.ready == 0
    world.clock.advance(60_001)
    await world.publish("q", "later", headers={"x-deduplication-header": "id"})
    assert (await world.live("q")).machine.ready == 1


@in_world
async def test_an_exchange_passes_each_id_on_once(world: World) -> None:
    await world.declare("q")
    await world.session.declare_exchange(
        "once",
        "x-message-deduplication",
        durable=True,
        arguments={"x-cache-size": 100, "x-cache-ttl": 60_000},
    )
    await world.session.bind_queue("q", "once", "")
    for body in ("a", "again"):
        headers = {"x-deduplication-header": "id"}
        await world.publish("", body, exchange="once", headers=headers)
    await world.restart()
    await world.publish("", "again", exchange="once", headers={"x-deduplication-header": "id"})
    assert bodies(await take(await world.consume("q"))) == ["a"]


# --- policies -------------------------------------------------------------------------------------


@in_world
async def test_a_policy_holds_at_once_and_its_end_too(world: World) -> None:
    await world.declare("q.1")
    await world.publish("q.1", *"abcde")
    policies = world.messaging.policies
    await policies.put("/", "short", "^q\\.", {"max-length": 2}, apply_to="queues")
    await world.settle()
    live = await world.live("q.1")
    assert live.machine.ready == 2
    assert live.queue.policy == "short"
    await policies.put("/", "bytes", "^q", {"max-length-bytes": 3}, priority=5)
    await world.publish("q.1", "ffff", "g")
    await world.eventually(lambda: live.machine.ready == 1, "limited in bytes")
    await policies.delete("/", "bytes")
    await policies.delete("/", "short")
    await world.publish("q.1", *"hijklm")
    assert live.machine.ready == 7
    with pytest.raises(PreconditionFailed, match="unknown setting 'zork'"):
        await policies.put("/", "p", ".*", {"zork": 1})


@in_world
async def test_of_two_limits_the_lower_holds(world: World) -> None:
    await world.declare("q", x_max_length=3)
    await world.messaging.policies.put("/", "p", "q", {"max-length": 5, "message-ttl": 50})
    await world.publish("q", *"abcdef")
    live = await world.live("q")
    assert live.machine.ready == 3
    await world.pass_time(50)
    assert live.machine.ready == 0


@in_world
async def test_a_policy_can_give_an_exchange_an_alternate(world: World) -> None:
    await world.declare("lost")
    await world.session.declare_exchange("x", "direct", durable=True)
    await world.session.declare_exchange("ae", "fanout", durable=True)
    await world.session.bind_queue("lost", "ae", "")
    await world.messaging.policies.put("/", "p", "^x$", {"alternate-exchange": "ae"})
    await world.publish("nowhere", "a", exchange="x")
    assert bodies(await take(await world.consume("lost"))) == ["a"]


# --- space ----------------------------------------------------------------------------------------


async def small_segments(world: World, queue: str) -> None:
    await world.topics.alter_config(queue, {"segment.bytes": str(1 << 20)})


@in_world
async def test_segments_of_settled_messages_go(world: World) -> None:
    await world.declare("q")
    await small_segments(world, "q")
    consumer = await world.consume("q", no_ack=True)
    for _ in range(10):
        await world.publish("q", "x" * 450_000)
        await take(consumer)
    log = (await world.live("q")).log.replica.log
    before = len(log.segments)
    assert before >= 4
    assert await world.messaging.queues.reclaim() == before - 1
    assert log.start_offset > 0
    await world.publish("q", "after")
    assert bodies(await take(consumer)) == ["after"]


@in_world
async def test_a_few_old_messages_do_not_pin_the_log(world: World) -> None:
    await world.declare("q", x_max_priority=1)
    await small_segments(world, "q")
    await world.publish("q", "old " + "y" * 100, priority=0, expiration="100000")
    consumer = await world.consume("q", prefetch=1)
    for _ in range(12):
        await world.publish("q", "x" * 450_000, priority=1)
        (got,) = await take(consumer)
        assert got.body[:1] == b"x"
        consumer.ack([got.offset])
    log = (await world.live("q")).log.replica.log
    assert await world.messaging.queues.reclaim() >= 3
    assert log.start_offset > 0
    await world.kill()
    live = await world.live("q")
    assert live.machine.unsettled == 1
    consumer = await world.consume("q")
    (got,) = await take(consumer)
    assert bytes(got.body).startswith(b"old")
    consumer.requeue([got.offset])
    await world.pass_time(100_000)
    assert live.machine.unsettled == 0, "its life went on counting from when it was published"


@in_world
async def test_a_queue_that_nobody_uses_goes_back_to_sleep(world: World) -> None:
    await world.declare("q")
    await world.publish("q", "a", "b")
    consumer = await world.consume("q")
    (got,) = await take(consumer, 1)
    consumer.cancel()
    queue = world.messaging.vhosts["/"].queue("q")
    world.clock.advance(300_001)
    await world.messaging.queues.reclaim()
    assert queue.live is not None, "somebody still holds a message"
    consumer.ack([got.offset])
    await world.messaging.queues.reclaim()
    assert queue.live is None
    await world.publish("q", "c")
    assert bodies(await take(await world.consume("q"))) == ["b", "c"]


@in_world
async def test_retention_keeps_what_is_acknowledged(world: World) -> None:
    await world.declare("q", x_retention_ms=3_600_000)
    assert world.topics.settings("q").retention_ms == 3_600_000
    await small_segments(world, "q")
    consumer = await world.consume("q", no_ack=True)
    for _ in range(10):
        await world.publish("q", "x" * 450_000)
        await take(consumer)
    assert await world.messaging.queues.reclaim() == 0


# --- streams --------------------------------------------------------------------------------------


@in_world
async def test_a_stream_is_read_by_everybody_from_where_they_like(world: World) -> None:
    await world.declare("s", x_queue_type="stream", x_max_age="1D")
    assert world.topics.settings("s").retention_ms == 86_400_000
    await world.publish("s", *"abc")
    world.clock.advance(10_000)
    await world.publish("s", *"de")

    async def read(offset: object) -> list[str]:
        reader = await world.consume("s", prefetch=100, arguments={"x-stream-offset": offset})
        got = bodies(await take(reader, wait=False))
        reader.cancel()
        return got

    assert await read("first") == list("abcde")
    assert await read("first") == list("abcde")
    assert await read("last") == ["e"]
    assert await read(3) == ["d", "e"]
    assert await read("5s") == ["d", "e"]
    assert await read("next") == []
    with pytest.raises(PreconditionFailed, match="x-stream-offset"):
        await read("yesterday")
    with pytest.raises(PreconditionFailed, match="prefetch"):
        await world.consume("s")


@in_world
async def test_a_topic_of_several_partitions_can_be_read_as_a_stream(world: World) -> None:
    await world.topics.create("events", partitions=3)
    for number in range(3):
        replica = await world.partitions.replica("events", number)
        batch = build_batch([(None, b"%d" % number, ())], timestamp_ms=1)
        replica.append_own(batch, world.clock.now_ms())
    await world.settle()
    await world.declare("events", x_queue_type="stream")
    assert (await world.session.declare_queue("events", passive=True)).message_count == 3
    reader = await world.consume("events", prefetch=100, arguments={"x-stream-offset": "first"})
    assert sorted(bodies(await take(reader))) == ["0", "1", "2"]
    reader.cancel()
    await world.session.delete_queue("events")
    assert world.topics.find("events") is not None


@in_world
async def test_a_reader_of_a_stream_stops_at_its_prefetch(world: World) -> None:
    await world.declare("s", x_queue_type="stream")
    await world.publish("s", *"abcd")
    reader = await world.consume("s", prefetch=2, arguments={"x-stream-offset": "first"})
    got = await take(reader)
    assert bodies(got) == ["a", "b"]
    assert message_properties.parse(got[1].properties).headers == {"x-stream-offset": 1}
    assert await take(reader, wait=False) == []
    reader.ack([got[0].offset])
    assert bodies(await take(reader)) == ["c"]
