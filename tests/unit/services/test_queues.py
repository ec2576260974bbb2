"""Queues over the log: publishing, consuming, settling, and what survives."""

from __future__ import annotations

import asyncio

import pytest

from penstock.errors import (
    AccessRefused,
    NotFound,
    PreconditionFailed,
    ResourceLocked,
    SubscriptionEnded,
)
from penstock.model import message_properties
from penstock.model.queue_record import Message
from penstock.model.records import build_batch
from support.queue_world import World, bodies, in_world, take


@in_world
async def test_what_is_published_is_delivered_in_order(world: World) -> None:
    await world.declare("q")
    await world.publish("q", "a", "b", "c", priority=3)
    consumer = await world.consume("q")
    got = await take(consumer)
    assert bodies(got) == ["a", "b", "c"]
    assert [(one.exchange, one.routing_key, one.redelivered) for one in got[:1]] == [
        ("", "q", False)
    ]
    assert message_properties.parse(got[0].properties).priority == 3
    consumer.ack([one.offset for one in got])
    live = await world.live("q")
    assert live.machine.unsettled == 0


@in_world
async def test_messages_that_come_while_a_consumer_waits_reach_it(world: World) -> None:
    await world.declare("q")
    consumer = await world.consume("q")
    waiting = asyncio.create_task(take(consumer))
    await world.settle()
    await world.publish("q", "a")
    assert bodies(await waiting) == ["a"]


@in_world
async def test_a_consumer_gets_no_more_than_its_prefetch(world: World) -> None:
    await world.declare("q")
    await world.publish("q", *[str(n) for n in range(10)])
    consumer = await world.consume("q", prefetch=3)
    first = await take(consumer)
    assert bodies(first) == ["0", "1", "2"]
    assert await take(consumer, wait=False) == []
    consumer.ack([first[1].offset])
    assert bodies(await take(consumer)) == ["3"]
    consumer.prefetch = 5
    assert bodies(await take(consumer)) == ["4", "5"]


@in_world
async def test_what_is_reserved_and_not_taken_goes_to_others_unseen(world: World) -> None:
    await world.declare("q")
    await world.publish("q", "a", "b", "c")
    first, second = await world.consume("q", "1"), await world.consume("q", "2")
    await first.ready()
    assert bodies(first.try_take(1, 1 << 20)) == ["a"]
    got = await take(second)
    assert bodies(got) == ["b", "c"]
    assert not any(one.redelivered for one in got)


@in_world
async def test_consumers_that_wait_share_what_comes(world: World) -> None:
    await world.declare("q")
    consumers = [await world.consume("q", str(n)) for n in range(4)]
    waiting = [asyncio.create_task(take(one)) for one in consumers]
    await world.settle()
    await world.publish("q", *[str(n) for n in range(8)])
    assert [len(await one) for one in waiting] == [2, 2, 2, 2]


@in_world
async def test_returned_messages_come_back_first_and_say_so(world: World) -> None:
    await world.declare("q", x_queue_type="quorum")
    await world.publish("q", "a", "b", "c")
    consumer = await world.consume("q", prefetch=2)
    got = await take(consumer)
    consumer.requeue([one.offset for one in got])
    again = await take(consumer)
    assert bodies(again) == ["a", "b"]
    assert all(one.redelivered for one in again)
    headers = message_properties.parse(again[0].properties).headers
    assert headers == {"x-delivery-count": 1}


@in_world
async def test_a_consumer_that_needs_no_acknowledgement_settles_by_taking(world: World) -> None:
    await world.declare("q")
    await world.publish("q", "a", "b")
    consumer = await world.consume("q", no_ack=True, prefetch=1)
    assert bodies(await take(consumer)) == ["a", "b"]
    assert (await world.live("q")).machine.unsettled == 0


@in_world
async def test_get_takes_one_and_says_how_many_are_left(world: World) -> None:
    await world.declare("q")
    await world.publish("q", "a", "b", "c")
    found = await world.session.get("q")
    assert found is not None
    delivery, left, holder = found
    assert (bytes(delivery.body), left) == (b"a", 2)
    holder.requeue([delivery.offset])
    again = await world.session.get("q", no_ack=True)
    assert again is not None
    assert (bytes(again[0].body), again[0].redelivered) == (b"a", True)
    await world.session.purge_queue("q")
    assert await world.session.get("q") is None


@in_world
async def test_a_cancelled_consumer_keeps_what_it_took_and_gives_back_the_rest(
    world: World,
) -> None:
    await world.declare("q")
    await world.publish("q", "a", "b")
    consumer = await world.consume("q")
    await consumer.ready()
    got = consumer.try_take(1, 1 << 20)
    consumer.cancel()
    with pytest.raises(SubscriptionEnded):
        await consumer.ready()
    consumer.ack([got[0].offset])
    other = await world.consume("q")
    assert bodies(await take(other)) == ["b"]


@in_world
async def test_a_deleted_queue_ends_its_consumers(world: World) -> None:
    await world.declare("q")
    consumer = await world.consume("q")
    waiting = asyncio.create_task(consumer.ready())
    await world.settle()
    assert await world.session.delete_queue("q") == 0
    with pytest.raises(SubscriptionEnded):
        await waiting
    assert world.topics.find("q") is None
    with pytest.raises(NotFound, match="no queue 'q' in vhost '/'"):
        await world.consume("q")
    assert await world.session.delete_queue("q") == 0


# --- surviving ------------------------------------------------------------------------------------


@in_world
async def test_everything_survives_a_clean_stop(world: World) -> None:
    await world.declare("q", x_delivery_limit=9)
    await world.publish("q", *"abcdef")
    consumer = await world.consume("q")
    got = await take(consumer, 4)
    consumer.ack([got[1].offset, got[3].offset])
    consumer.requeue([got[0].offset, got[2].offset])
    await world.restart()
    again = await take(await world.consume("q"))
    assert bodies(again) == ["a", "c", "e", "f"]
    assert [one.delivery_count for one in again] == [1, 1, 0, 0]


@in_world
async def test_acknowledgements_survive_a_kill_a_few_milliseconds_later(world: World) -> None:
    await world.declare("q")
    await world.publish("q", *"abcd")
    consumer = await world.consume("q")
    got = await take(consumer)
    consumer.ack([one.offset for one in got[:2]])
    await asyncio.sleep(0.02)
    consumer.ack([got[2].offset])  # too late to be written
    await world.kill()
    again = await take(await world.consume("q"))
    assert bodies(again) == ["c", "d"]
    assert all(one.redelivered for one in again), "they were in somebody's hands"


@in_world
async def test_nothing_confirmed_is_lost_when_the_power_fails(world: World) -> None:
    await world.declare("q")
    assert await world.publish("q", *"abc") == []
    consumer = await world.consume("q")
    got = await take(consumer)
    consumer.ack([one.offset for one in got])
    await asyncio.sleep(0.02)  # written, but not synced
    await world.kill(power=True)
    again = await take(await world.consume("q"))
    assert bodies(again) == ["a", "b", "c"]


@in_world
async def test_a_queue_is_not_loaded_until_it_is_used(world: World) -> None:
    await world.declare("q")
    await world.publish("q", "a")
    await world.restart()
    queue = world.messaging.vhosts["/"].queue("q")
    assert queue.live is None
    first = world.session.publish([_message("q", b"b")])
    second = world.session.publish([_message("q", b"c")])
    assert list(await first.settled()) == []
    assert list(await second.settled()) == []
    assert bodies(await take(await world.consume("q"))) == ["a", "b", "c"]


@in_world
async def test_queues_that_do_not_last_are_gone_after_a_restart(world: World) -> None:
    await world.session.declare_queue("passing")
    await world.session.declare_queue("mine", exclusive=True, durable=True)
    await world.declare("lasting")
    await world.restart()
    assert sorted(world.messaging.vhosts["/"].queues) == ["lasting"]
    assert sorted(world.topics.names()) == ["lasting"]


def _message(queue: str, body: bytes) -> Message:
    return Message("", queue, message_properties.NO_PROPERTIES, body)


# --- one log, two doors ---------------------------------------------------------------------------


@in_world
async def test_what_a_kafka_producer_writes_is_in_the_queue(world: World) -> None:
    await world.declare("q")
    consumer = await world.consume("q")
    waiting = asyncio.create_task(take(consumer))
    await world.settle()
    replica = await world.partitions.replica("q", 0)
    batch = build_batch([(b"k", b"from kafka", [("h", b"v")])], timestamp_ms=5000)
    appended = replica.append(memoryview(batch), world.clock.now_ms())
    await replica.safe(appended.end_offset)
    (got,) = await waiting
    assert bytes(got.body) == b"from kafka"
    assert (got.exchange, got.routing_key) == ("", "q")
    assert message_properties.parse(got.properties).headers == {"h": "v", "kafka.key": "k"}


@in_world
async def test_aborted_transactions_and_markers_are_no_messages(world: World) -> None:
    await world.declare("q")
    replica = await world.partitions.replica("q", 0)
    now_ms = world.clock.now_ms()
    for commit, body in ((False, b"aborted"), (True, b"committed")):
        guard = replica.producers.begin_verification(7, 0, int(commit), now_ms)
        batch = build_batch(
            [(None, body, ())],
            timestamp_ms=now_ms,
            producer_id=7,
            producer_epoch=0,
            base_sequence=int(commit),
            transactional=True,
        )
        replica.append(memoryview(batch), now_ms, guard=guard)
        await replica.write_marker(
            producer_id=7, producer_epoch=0, commit=commit, coordinator_epoch=0, now_ms=now_ms
        )
    await world.publish("q", "plain")
    consumer = await world.consume("q")
    got = await take(consumer)
    assert bodies(got) == ["committed", "plain"]
    consumer.ack([one.offset for one in got])
    assert (await world.live("q")).machine.unsettled == 0


@in_world
async def test_a_topic_of_one_partition_becomes_a_queue_and_outlives_it(world: World) -> None:
    await world.topics.create("events", partitions=1)
    replica = await world.partitions.replica("events", 0)
    replica.append_own(build_batch([(None, b"old", ())], timestamp_ms=1), 1)
    await world.declare("events")
    consumer = await world.consume("events")
    assert bodies(await take(consumer)) == ["old"]
    await world.session.delete_queue("events")
    assert world.topics.find("events") is not None
    await world.topics.create("many", partitions=4)
    with pytest.raises(PreconditionFailed, match="4 partitions"):
        await world.declare("many")


@in_world
async def test_a_topic_that_is_deleted_takes_its_queue_with_it(world: World) -> None:
    await world.declare("q")
    await world.publish("q", "a")
    consumer = await world.consume("q")
    await world.topics.delete("q")
    with pytest.raises(SubscriptionEnded):
        await take(consumer)
    assert "q" not in world.messaging.vhosts["/"].queues
    await world.declare("q")
    assert (await world.session.declare_queue("q", passive=True)).message_count == 0


@in_world
async def test_names_that_look_alike_to_kafka_are_different_queues(world: World) -> None:
    await world.declare("a.b")
    await world.declare("a_b")
    await world.publish("a.b", "dot")
    await world.publish("a_b", "line")
    assert bodies(await take(await world.consume("a_b"))) == ["line"]
    await world.restart()
    assert bodies(await take(await world.consume("a.b"))) == ["dot"]


# --- declaring ------------------------------------------------------------------------------------


@in_world
async def test_redeclaring_must_say_the_same(world: World) -> None:
    await world.declare("q", x_max_length=5)
    await world.declare("q", x_max_length=5)
    with pytest.raises(PreconditionFailed, match="received '6' but current is '5'"):
        await world.declare("q", x_max_length=6)
    with pytest.raises(PreconditionFailed, match="inequivalent arg 'durable'"):
        await world.session.declare_queue("q", arguments={"x-max-length": 5})
    info = await world.session.declare_queue("q", passive=True)
    assert info == ("q", 0, 0)


@in_world
async def test_a_server_named_queue_gets_a_name(world: World) -> None:
    info = await world.session.declare_queue("")
    assert info.name.startswith("amq.gen-")
    with pytest.raises(AccessRefused, match="reserved prefix"):
        await world.session.declare_queue("amq.mine")


@in_world
async def test_an_exclusive_queue_is_its_sessions_and_goes_with_it(world: World) -> None:
    other = await world.open()
    await other.declare_queue("mine", exclusive=True)
    for attempt in (
        world.session.declare_queue("mine", passive=True),
        world.session.subscribe("mine", tag="t"),
        world.session.delete_queue("mine"),
        world.session.purge_queue("mine"),
        world.session.get("mine"),
    ):
        with pytest.raises(ResourceLocked, match="locked queue 'mine'"):
            await attempt
    await other.close()
    await other.close()
    with pytest.raises(NotFound):
        await world.session.declare_queue("mine", passive=True)


@in_world
async def test_an_auto_delete_queue_goes_when_its_last_consumer_does(world: World) -> None:
    await world.session.declare_queue("q", auto_delete=True)
    first, second = await world.consume("q", "1"), await world.consume("q", "2")
    first.cancel()
    assert "q" in world.messaging.vhosts["/"].queues
    second.cancel()
    assert "q" not in world.messaging.vhosts["/"].queues
    # Declared again at once, it is a new and empty one.
    await world.session.declare_queue("q", auto_delete=True)
    assert (await world.session.declare_queue("q", passive=True)).message_count == 0


@in_world
async def test_a_queue_that_nobody_uses_expires(world: World) -> None:
    await world.declare("q", x_expires=1000)
    queue = world.messaging.vhosts["/"].queue("q")
    assert queue._expiry is not None
    assert queue._expiry.due_ms == world.clock.now_ms() + 1000
    consumer = await world.consume("q")
    assert queue._expiry.due_ms is None
    consumer.cancel()
    world.clock.advance(1000)
    queue._expiry._rings()
    assert "q" not in world.messaging.vhosts["/"].queues


@in_world
async def test_deleting_can_depend_on_use_and_content(world: World) -> None:
    await world.declare("q")
    await world.publish("q", "a")
    consumer = await world.consume("q")
    with pytest.raises(PreconditionFailed, match="queue 'q' in vhost '/' in use"):
        await world.session.delete_queue("q", if_unused=True)
    with pytest.raises(PreconditionFailed, match="queue 'q' in vhost '/' not empty"):
        await world.session.delete_queue("q", if_empty=True)
    consumer.cancel()
    assert await world.session.delete_queue("q", if_unused=True) == 1
