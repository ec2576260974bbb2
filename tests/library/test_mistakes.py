"""What cannot be meant is refused at once, in words, and in the same way in both homes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import penstock
from penstock import Client, InvalidArgument, QueueMessage
from support.naming import unique
from support.waiting import eventually

Call = Callable[[Client], Any]


def taken(mq: Client) -> QueueMessage:
    queue = mq.queue(unique("work"))
    queue.publish("a")
    message = queue.get(20)
    assert message is not None
    return message


async def coroutine(message: QueueMessage) -> None:
    """A handler for the asynchronous client."""


PUBLISHING: dict[str, tuple[Call, str]] = {
    "topic": (lambda mq: mq.publish(5, "x"), "a topic is named by text, not by int"),  # type: ignore[arg-type]
    "no topic": (lambda mq: mq.publish("", "x"), "."),
    "many to 5": (lambda mq: mq.publish_many(5, ["x"]), "a topic is named by text"),  # type: ignore[arg-type]
    "letters": (lambda mq: mq.publish_many("t", "hello"), "a list of them, not one str"),
    "nothing": (lambda mq: mq.publish_many("t", None), "a list of them"),  # type: ignore[arg-type]
    "payload": (lambda mq: mq.publish("t", {"a": 1}), 'serializer="json"'),
    "partition": (lambda mq: mq.publish("t", "x", partition="0"), "a partition is a whole number"),  # type: ignore[arg-type]
    "priority": (lambda mq: mq.publish("t", "x", priority="high"), "priority is 0 to 255"),  # type: ignore[arg-type]
    "ttl": (lambda mq: mq.publish("t", "x", ttl="soon"), "ttl cannot be 'soon'"),  # type: ignore[arg-type]
    "due": (lambda mq: mq.publish("t", "x", deliver_at="noon"), "give a datetime"),  # type: ignore[arg-type]
    "timeout": (lambda mq: mq.publish("t", "x", timeout="1"), "timeout is seconds"),  # type: ignore[arg-type]
    "no text": (lambda mq: mq.publish("t", "\ud800"), "half a surrogate pair"),
    "no text in a key": (lambda mq: mq.publish("t", "x", key="\ud800"), "half a surrogate pair"),
    "no headers": (lambda mq: mq.publish("t", "x", headers="a"), "headers are a dict, or pairs"),  # type: ignore[arg-type]
    "halved header": (lambda mq: mq.publish("t", "x", headers=[("a",)]), "headers are a dict"),  # type: ignore[list-item]
    "far partition": (lambda mq: mq.publish("t", "x", partition=2**40), "a partition is a whole"),
    "callback": (lambda mq: mq.send("t", "x", on_delivery=5), "on_delivery is a function"),  # type: ignore[arg-type]
    "no key": (lambda mq: mq.send_ordered("t", None, ["x"]), "by their key"),  # type: ignore[arg-type]
}
READING: dict[str, tuple[Call, str]] = {
    "topics": (lambda mq: mq.subscribe(5), "a name or a list of names, not 5"),  # type: ignore[arg-type]
    "a topic": (lambda mq: mq.subscribe(["t", 5]), "a topic is named by text"),  # type: ignore[list-item]
    "group": (lambda mq: mq.subscribe("t", group=""), "a group has a name"),
    "idle": (lambda mq: mq.subscribe("t", idle_timeout=-1), "idle_timeout is seconds, 0 or more"),
    "offset": (lambda mq: list(mq.read("t", 0, -5)), "an offset is a whole number from 0 on"),
    "place": (lambda mq: list(mq.read("t", "0")), "a partition is a whole number"),  # type: ignore[arg-type]
    "limit": (lambda mq: list(mq.read("t", limit=-1)), "limit is a whole number from 0 on"),
    "new topic": (lambda mq: mq.admin.create_topic(5), "a topic is named by text"),  # type: ignore[arg-type]
    "partitions": (lambda mq: mq.admin.create_topic("t", 0), "partitions is a whole number from 1"),
    "too many": (lambda mq: mq.admin.create_topic("t", 10**9), "partitions"),
    "transaction": (lambda mq: mq.transaction(5).begin(), "a transaction needs an id"),  # type: ignore[arg-type]
}
QUEUES: dict[str, tuple[Call, str]] = {
    "name": (lambda mq: mq.queue(5), "a queue is named by text, not by int"),  # type: ignore[arg-type]
    "long name": (lambda mq: mq.queue("q" * 300), "at most 255 bytes"),
    "exchange": (lambda mq: mq.exchange(5), "an exchange is named by text"),  # type: ignore[arg-type]
    "letters": (lambda mq: mq.queue("t").publish_many("hello"), "a list of them, not one str"),
    "prefetch": (lambda mq: mq.queue("t").consume(prefetch=0), "prefetch is a whole number"),
    "count": (lambda mq: mq.queue("t").peek(-1), "count is a whole number from 0 on"),
    "timeout": (lambda mq: mq.queue("t").get("x"), "timeout is seconds"),  # type: ignore[arg-type]
    "concurrency": (lambda mq: mq.worker("t", concurrency=0)(print), "concurrency is a whole"),
    "handler": (lambda mq: mq.worker("t")(5), "5 is none"),  # type: ignore[arg-type]
    "coroutine": (lambda mq: mq.worker("t")(coroutine), "a client of penstock.aio"),
    "reply": (lambda mq: mq.reply("t")(coroutine), "a client of penstock.aio"),
    "no name": (lambda mq: mq.worker(print), "a queue is named by text"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize(("call", "words"), [*PUBLISHING.values(), *READING.values()])
def test_what_cannot_be_meant_is_refused(mq: Client, call: Call, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        call(mq)


@pytest.mark.own_broker
@pytest.mark.parametrize(("call", "words"), QUEUES.values(), ids=QUEUES)
def test_what_cannot_be_meant_of_queues_is_refused(mq: Client, call: Call, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        call(mq)


def test_an_argument_that_a_message_does_not_have_is_named(mq: Client) -> None:
    with pytest.raises(TypeError, match="a message has no colour; it can have key, headers"):
        mq.publish("t", "x", colour="red")  # type: ignore[call-arg]


def test_places_that_are_not_there_are_named(mq: Client, topic: str) -> None:
    mq.publish(topic, "a")
    with pytest.raises(penstock.NotFound, match="there is no partition"):
        list(mq.read(topic, 99))
    with pytest.raises(penstock.OffsetLost, match="offset 1000"):
        list(mq.read(topic, 0, 1000))


def test_a_commit_that_comes_too_late_says_so(mq: Client, topic: str, group: str) -> None:
    mq.publish(topic, "a")
    messages = mq.subscribe(topic, group=group, auto_commit=False)
    assert messages.get(20) is not None
    messages.close()
    with pytest.raises(penstock.Closed, match="commit before"):
        messages.commit()


def test_seeking_and_pausing_wait_for_partitions(mq: Client, topic: str) -> None:
    mq.publish_many(topic, ["a", "b", "c"])
    with mq.subscribe(topic) as messages:
        messages.seek(topic, 0, 2)  # before anything was read
        assert next(messages).text == "c"
    with mq.subscribe(topic) as messages:
        messages.pause()
        while messages.get(0.2):  # what was here already is still handed out
            pass
        mq.publish(topic, "d")
        assert messages.get(0.5) is None


def test_places_to_read_on_from_are_offsets_and_partitions(mq: Client, topic: str) -> None:
    mq.publish(topic, "a")
    with mq.subscribe(topic) as messages:
        with pytest.raises(InvalidArgument, match="an offset is a whole number from 0 on"):
            messages.seek(topic, 0, "5")  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="an offset is a whole number up to"):
            messages.seek(topic, 0, 2**70)
        with pytest.raises(InvalidArgument, match="partitions are a list like"):
            messages.pause(topic)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="timeout is seconds, 0 or more"):
            messages.get(timeout=-1)


def test_a_transaction_that_is_open_is_not_begun_again(mq: Client, topic: str) -> None:
    tx = mq.transaction(unique("tx"))
    tx.begin()
    tx.publish(topic, "a")
    with pytest.raises(penstock.Conflict, match="is open already: commit or abort"):
        tx.begin()
    tx.commit()
    assert [message.text for message in mq.read(topic)] == ["a"]


@pytest.mark.own_broker
def test_a_settled_message_is_not_renewed(mq: Client) -> None:
    message = taken(mq)
    message.ack()
    with pytest.raises(penstock.Conflict, match="settled already"):
        message.extend()


@pytest.mark.own_broker
def test_a_message_may_be_rejected_with_anything(mq: Client) -> None:
    message = taken(mq)
    message.reject(404)  # type: ignore[arg-type]
    dead = mq.queue(message.queue).dead_letters.get(20)
    assert dead is not None
    assert dead.error == "404"
    dead.ack()


@pytest.mark.own_broker
def test_an_answer_that_cannot_be_sent_is_an_error_to_whoever_asked(mq: Client) -> None:
    name = unique("rpc")
    worker = mq.reply(name)(lambda message: object())
    with pytest.raises(penstock.RequestFailed, match="a payload is bytes or text"):
        mq.request(name, "x", timeout=30)
    worker.stop()


def test_an_asynchronous_worker_takes_a_plain_function_too() -> None:
    async def scenario() -> None:
        found: list[str] = []
        async with penstock.aio.open(None) as mq:
            mq.worker("work")(lambda message: found.append(message.text))  # type: ignore[arg-type,func-returns-value]
            mq.reply("rpc")(lambda message: object())  # type: ignore[arg-type,return-value]
            await (await mq.queue("work")).publish("a")
            with pytest.raises(penstock.RequestFailed, match="a payload is bytes or text"):
                await mq.request("rpc", "x", timeout=30)
            await asyncio.to_thread(eventually, lambda: found == ["a"])

    asyncio.run(scenario())


@pytest.mark.parametrize("servers", [5, [], [5], None, "", "nowhere"])
def test_servers_are_addresses(servers: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"like 127\.0\.0\.1:9092"):
        penstock.connect(servers)


def test_an_asynchronous_client_that_is_not_there_yet_says_how_to_have_it() -> None:
    with pytest.raises(AttributeError, match="no 'publish' yet: await this"):
        penstock.aio.open(None).publish("t", "x")


def test_an_asynchronous_client_belongs_to_its_event_loop() -> None:
    async def publish(mq: penstock.aio.AsyncClient) -> None:
        await mq.publish("t", "x")

    async def check() -> None:
        async with penstock.aio.open(None) as mq:
            with pytest.raises(penstock.Conflict, match="another event loop"):
                await asyncio.to_thread(asyncio.run, publish(mq))
            await publish(mq)

    asyncio.run(check())
