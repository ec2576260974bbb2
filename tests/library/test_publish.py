"""Publishing, in both homes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta

import pytest

import penstock
from penstock import Client, Message, Receipt
from support.naming import unique
from support.waiting import eventually

OpenMq = Callable[..., Client]


def everything(mq: Client, topic: str) -> list[Message]:
    count = mq.admin.topic(topic).partition_count
    return [message for p in range(count) for message in mq.read(topic, p)]


def test_a_receipt_tells_where_the_message_is(mq: Client, topic: str) -> None:
    first, second = mq.publish(topic, b"a"), mq.publish(topic, b"b")
    assert (first.topic, first.partition, first.offset) == (topic, 0, 0)
    assert second.offset == 1
    [message] = mq.read(topic, 0, offset=1)
    assert message.payload == b"b"
    assert message.message_id == second.message_id


def test_a_topic_that_is_not_there_is_created(mq: Client) -> None:
    receipt = mq.publish(unique("new"), "hello")
    assert receipt.offset == 0
    assert receipt.topic in mq.admin.topics()


def test_every_field_of_a_message_arrives(mq: Client, topic: str) -> None:
    at = datetime(2024, 5, 1, 12, 30, tzinfo=UTC)
    receipt = mq.publish(
        topic,
        "ünï",
        key="user-1",
        headers={"source": "web", "n": 3, "raw": b"\xff\x00", "none": None, "yes": True},
        partition=0,
        timestamp=at,
        priority=5,
        ttl=timedelta(days=36500),
        message_id="m-1",
        correlation_id="c-1",
        reply_to="answers",
    )
    [message] = mq.read(topic)
    assert receipt.message_id == message.message_id == "m-1"
    assert (message.topic, message.partition, message.offset) == (topic, 0, 0)
    assert (message.key, message.text) == (b"user-1", "ünï")
    assert message.timestamp == at
    assert message.headers["source"] == "web"
    assert message.headers["n"] == "3"
    assert message.headers["yes"] == "true"
    assert dict(message.raw_headers)["raw"] == b"\xff\x00"
    assert dict(message.raw_headers)["none"] is None
    assert (message.priority, message.ttl) == (5, 36500 * 86400.0)
    assert (message.correlation_id, message.reply_to) == ("c-1", "answers")
    assert message.retry_count == 0
    assert "message-id" not in message.headers


def test_json_and_any_function_serialize(open_mq: OpenMq) -> None:
    mq = open_mq(serializer="json")
    name = unique("json")
    mq.admin.create_topic(name, partitions=1)
    mq.publish(name, {"id": 7, "tags": ["a"]})
    mq.publish(name, 12, serializer=lambda n: f"<{n}>")
    first, second = mq.read(name)
    assert first.json() == {"id": 7, "tags": ["a"]}
    assert second.text == "<12>"


def test_what_cannot_be_serialized_is_refused_before_anything_is_sent(
    mq: Client, topic: str
) -> None:
    with pytest.raises(penstock.InvalidArgument, match='serializer="json"'):
        mq.publish(topic, {"id": 7})
    with pytest.raises(penstock.InvalidArgument, match="JSON has no object"):
        mq.publish(topic, object(), serializer="json")
    with pytest.raises(penstock.InvalidArgument, match="header 'x' is a list"):
        mq.publish(topic, b"", headers={"x": []})  # type: ignore[dict-item]
    assert mq.admin.topic(topic).message_count == 0


def test_none_is_a_tombstone(mq: Client, topic: str) -> None:
    mq.publish(topic, None, key="gone")
    [message] = mq.read(topic)
    assert message.is_tombstone
    assert message.payload == b""


def test_keys_go_where_every_kafka_client_puts_them(mq: Client, wide: str) -> None:
    for key in ("user-1", "user-2", "a", "", "日本", "x" * 50):
        receipt = mq.publish(wide, b"", key=key)
        assert receipt.partition == penstock.partition_of_key(key.encode(), 4), key
    receipts = mq.publish_many(wide, ["a", "b"], key="user-2")
    assert {r.partition for r in receipts} == {penstock.partition_of_key(b"user-2", 4)}


def test_round_robin_takes_turns(open_mq: OpenMq) -> None:
    mq = open_mq(partitioner="round-robin")
    name = unique("turns")
    mq.admin.create_topic(name, partitions=3)
    assert [mq.publish(name, b"").partition for _ in range(6)] == [0, 1, 2, 0, 1, 2]


def test_a_partitioner_can_be_any_function(open_mq: OpenMq) -> None:
    mq = open_mq(partitioner=lambda topic, key, count: len(key or b"") % count)
    name = unique("own")
    mq.admin.create_topic(name, partitions=3)
    assert mq.publish(name, b"", key="four").partition == 1
    assert [r.partition for r in mq.publish_many(name, [b"x"], key="fives")] == [2]


def test_a_partitioner_that_fails_or_lies_is_told_on(open_mq: OpenMq) -> None:
    mq = open_mq(partitioner=lambda topic, key, count: 1 // len(key or b"") + 7)
    name = unique("own")
    mq.admin.create_topic(name, partitions=3)
    with pytest.raises(penstock.InvalidArgument, match="ZeroDivisionError"):
        mq.publish(name, b"")
    with pytest.raises(penstock.InvalidArgument, match="partitions 0 to 2, there is no 7"):
        mq.publish(name, b"", key="many")


def test_a_partition_that_is_not_there_is_refused(mq: Client, topic: str) -> None:
    with pytest.raises(penstock.InvalidArgument, match=r"(?i)partition"):
        mq.publish(topic, b"", partition=3)


def test_a_topic_name_that_cannot_be_is_refused(mq: Client) -> None:
    with pytest.raises((penstock.InvalidArgument, penstock.NotFound)):
        mq.publish("no spaces please", b"", timeout=20)


def test_a_message_that_is_too_large_is_refused_and_the_next_one_is_not(
    mq: Client, topic: str
) -> None:
    with pytest.raises(penstock.MessageTooLarge):
        mq.publish(topic, b"x" * 2_000_000)
    assert mq.publish(topic, b"small").offset == 0


def test_futures_and_callbacks_bring_receipts(mq: Client, topic: str) -> None:
    heard: list[tuple[Receipt | None, Exception | None]] = []
    futures = [
        mq.send(topic, str(n), on_delivery=lambda receipt, error: heard.append((receipt, error)))
        for n in range(100)
    ]
    receipts = [future.result(10) for future in futures]
    assert [receipt.offset for receipt in receipts] == list(range(100))
    assert eventually(lambda: len(heard) == 100)
    assert all(error is None for _, error in heard)
    assert [message.text for message in mq.read(topic)] == [str(n) for n in range(100)]


def test_a_callback_that_raises_harms_nobody(mq: Client, topic: str) -> None:
    mq.send(topic, "a", on_delivery=lambda receipt, error: 1 / 0).result(10)  # type: ignore[arg-type, return-value]
    assert mq.publish(topic, "b").offset == 1


def test_many_threads_publish_at_once(mq: Client, topic: str) -> None:
    futures: list[Future[Receipt]] = []

    def work(number: int) -> None:
        futures.extend([mq.send(topic, f"{number}-{n}") for n in range(200)])

    threads = [threading.Thread(target=work, args=(n,)) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    mq.flush(30)
    assert sorted(future.result(0).offset for future in futures) == list(range(1000))
    texts = [message.text for message in mq.read(topic)]
    for number in range(5):  # each thread's own are in its order
        mine = [text for text in texts if text.startswith(f"{number}-")]
        assert mine == [f"{number}-{n}" for n in range(200)]


def test_publish_many_keeps_the_order_and_counts(mq: Client, wide: str) -> None:
    receipts = mq.publish_many(wide, (str(n) for n in range(25_000)), key_of=lambda n: n[-1])
    assert len(receipts) == 25_000
    by_key: dict[bytes, list[int]] = {}
    for message in everything(mq, wide):
        assert message.key is not None
        by_key.setdefault(message.key, []).append(int(message.text))
    assert sum(map(len, by_key.values())) == 25_000
    assert all(numbers == sorted(numbers) for numbers in by_key.values())
    one = receipts[12_345]
    [message] = mq.read(wide, one.partition, one.offset, limit=1)
    assert message.text == "12345"


def test_publish_many_takes_messages_with_wishes_of_their_own(mq: Client, topic: str) -> None:
    mq.publish_many(
        topic,
        [b"plain", Message("own", key="k", headers={"a": "own"}, priority=3), "text"],
        headers={"a": "all", "b": "all"},
    )
    plain, own, text = mq.read(topic)
    assert plain.headers == text.headers == {"a": "all", "b": "all"}
    assert own.headers == {"a": "own", "b": "all"}
    assert (own.key, own.priority) == (b"k", 3)


def test_publish_many_of_nothing_is_nothing(mq: Client, topic: str) -> None:
    assert list(mq.publish_many(topic, [])) == []


def test_send_ordered_keeps_a_key_together(mq: Client, wide: str) -> None:
    receipts = mq.send_ordered(wide, "account-7", [f"step {n}" for n in range(50)])
    [partition] = {receipt.partition for receipt in receipts}
    offsets = [receipt.offset for receipt in receipts]
    assert offsets == sorted(offsets)
    texts = [message.text for message in mq.read(wide, partition)]
    assert texts == [f"step {n}" for n in range(50)]


def test_a_message_id_is_published_once_within_the_window(mq: Client, topic: str) -> None:
    first = mq.publish(topic, "a", message_id="order-1")
    again = mq.publish(topic, "a", message_id="order-1")
    assert (first.duplicate, again.duplicate) == (False, True)
    assert again.offset == first.offset
    mq.publish(topic, "b", message_id="order-2")
    flying = [mq.send(topic, "c", message_id="order-3") for _ in range(5)]
    assert len({future.result(10).offset for future in flying}) == 1
    assert [message.text for message in mq.read(topic)] == ["a", "b", "c"]


def test_after_the_window_an_id_is_new_again(open_mq: OpenMq) -> None:
    mq = open_mq(deduplication_window=0.2)
    name = unique("window")
    mq.admin.create_topic(name, partitions=1)
    mq.publish(name, "a", message_id="x")
    time.sleep(0.3)
    assert mq.publish(name, "a", message_id="x").offset == 1


def test_an_id_whose_message_failed_is_free(mq: Client, topic: str) -> None:
    with pytest.raises(penstock.MessageTooLarge):
        mq.publish(topic, b"x" * 2_000_000, message_id="big")
    assert not mq.publish(topic, b"small", message_id="big").duplicate


def test_backpressure_raises_when_asked_to(open_mq: OpenMq) -> None:
    mq = open_mq(backpressure="raise", max_pending_messages=3)

    def flood() -> None:
        for n in range(10_000):
            mq.send("full", str(n))

    with pytest.raises(penstock.QueueFull, match="publish slower"):
        flood()
    mq.flush(30)
    mq.publish("full", "there is room again")


def test_backpressure_drops_when_asked_to(open_mq: OpenMq) -> None:
    mq = open_mq(backpressure="drop", max_pending_messages=3)
    name = unique("drop")
    receipts = [f.result(30) for f in [mq.send(name, str(n)) for n in range(5_000)]]
    kept = [receipt for receipt in receipts if not receipt.dropped]
    assert 0 < len(kept) < 5_000
    assert len(everything(mq, name)) == len(kept)


def test_backpressure_blocks_and_loses_nothing(open_mq: OpenMq) -> None:
    mq = open_mq(backpressure="block", max_pending_messages=10, max_pending_bytes=2_000)
    name = unique("block")
    mq.admin.create_topic(name, partitions=1)
    futures = [mq.send(name, str(n)) for n in range(2_000)]
    assert [future.result(30).offset for future in futures] == list(range(2_000))
    mq.publish(name, b"x" * 10_000)  # larger than all the room there is: alone it passes


def test_after_close_nothing_is_taken(open_mq: Callable[..., Client]) -> None:
    mq, topic = open_mq(), unique("topic")
    future = mq.send(topic, "on its way")
    mq.close()
    assert future.result(0).offset == 0
    mq.close()
    assert mq.is_closed
    with pytest.raises(penstock.Closed):
        mq.publish(topic, "too late")
    with pytest.raises(penstock.Closed):
        mq.publish_many(topic, ["too late"])
    with pytest.raises(penstock.Closed):
        mq.subscribe(topic)
    with pytest.raises(penstock.Closed):
        mq.admin.topics()
