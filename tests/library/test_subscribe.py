"""Streams, in both homes."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime

import pytest

import penstock
from penstock import Client, Message, Subscription, TopicPartition
from support.naming import unique
from support.waiting import eventually

PATIENCE = 20.0


def texts(messages: list[Message]) -> list[str]:
    return [message.text for message in messages]


def drain(subscription: Subscription, count: int, within: float = PATIENCE) -> list[Message]:
    """`count` messages, or a failure that says how many came."""
    deadline = time.monotonic() + within
    found: list[Message] = []
    while len(found) < count and time.monotonic() < deadline:
        found += subscription.batch(count - len(found), timeout=0.5)
    assert len(found) == count, f"{len(found)} of {count} came"
    return found


def test_a_group_reads_what_was_there_and_what_comes(mq: Client, topic: str, group: str) -> None:
    mq.publish_many(topic, ["a", "b"])
    with mq.subscribe(topic, group=group) as messages:
        assert texts([next(messages), next(messages)]) == ["a", "b"]
        mq.publish(topic, "c")
        assert next(messages).text == "c"


def test_what_was_done_with_is_not_read_again(mq: Client, topic: str, group: str) -> None:
    mq.publish_many(topic, [str(n) for n in range(10)])
    with mq.subscribe(topic, group=group) as messages:
        drain(messages, 4)
    with mq.subscribe(topic, group=group) as messages:
        assert next(messages).text == "4"


def test_a_message_whose_work_failed_comes_again(mq: Client, topic: str, group: str) -> None:
    mq.publish_many(topic, ["a", "b", "c"])

    def work() -> None:
        with mq.subscribe(topic, group=group) as messages:
            assert next(messages).text == "a"
            assert next(messages).text == "b"
            raise RuntimeError("the work on b failed")

    with pytest.raises(RuntimeError):
        work()
    with mq.subscribe(topic, group=group) as messages:
        assert next(messages).text == "b"


def test_without_automatic_commits_only_commit_counts(mq: Client, topic: str, group: str) -> None:
    mq.publish_many(topic, [str(n) for n in range(10)])
    with mq.subscribe(topic, group=group, auto_commit=False) as messages:
        drain(messages, 5)
    with mq.subscribe(topic, group=group, auto_commit=False) as messages:
        found = drain(messages, 6)
        assert found[0].text == "0"
        messages.commit(found[2])
        assert messages.committed() == {TopicPartition(topic, 0): 3}
        messages.commit()
        assert messages.committed() == {TopicPartition(topic, 0): 6}
        messages.commit({TopicPartition(topic, 0): 5})
    with mq.subscribe(topic, group=group) as messages:
        assert next(messages).text == "5"


def test_commits_happen_by_themselves_now_and_then(mq: Client, topic: str, group: str) -> None:
    mq.publish_many(topic, [str(n) for n in range(10)])
    with mq.subscribe(topic, group=group, auto_commit_interval=0.05) as messages:
        drain(messages, 10)
        assert messages.get(0.3) is None
        assert messages.get(0.1) is None
        assert messages.committed() == {TopicPartition(topic, 0): 10}
        assert mq.admin.group(group).total_lag == 0


def test_groups_do_not_disturb_each_other(mq: Client, topic: str) -> None:
    mq.publish_many(topic, ["a", "b"])
    for _ in range(2):
        with mq.subscribe(topic, group=unique("other")) as messages:
            assert texts(drain(messages, 2)) == ["a", "b"]


def test_without_a_group_everybody_sees_everything(mq: Client, wide: str) -> None:
    mq.publish_many(wide, [str(n) for n in range(20)], key_of=lambda n: n)
    with mq.subscribe(wide) as one, mq.subscribe(wide) as two:
        for messages in (one, two):
            assert sorted(texts(drain(messages, 20)), key=int) == [str(n) for n in range(20)]
        mq.publish(wide, "new")
        assert (drain(one, 1)[0].text, drain(two, 1)[0].text) == ("new", "new")
        with pytest.raises(penstock.InvalidArgument, match="group"):
            one.commit()


def test_start_says_where_to_begin(mq: Client, topic: str) -> None:
    early = mq.publish(topic, "early", timestamp=datetime(2024, 1, 1, tzinfo=UTC))
    mq.publish(topic, "late", timestamp=datetime(2024, 6, 1, tzinfo=UTC))
    with mq.subscribe(topic, group=unique("g"), start=datetime(2024, 3, 1, tzinfo=UTC)) as since:
        assert next(since).text == "late"
    with mq.subscribe(topic, group=unique("g"), start="latest") as latest:
        latest.wait_assigned()
        assert latest.get(0.2) is None
        mq.publish(topic, "new")
        assert drain(latest, 1)[0].text == "new"
    with mq.subscribe(topic, start="earliest") as earliest:
        assert next(earliest).offset == early.offset
    with pytest.raises(penstock.InvalidArgument, match='"earliest"'):
        mq.subscribe(topic, start="yesterday")


def test_a_topic_may_come_after_its_subscriber(mq: Client, group: str) -> None:
    name = unique("later")
    with mq.subscribe(name, group=group) as messages:
        assert messages.get(0.2) is None
        mq.publish(name, "hello")
        assert drain(messages, 1)[0].text == "hello"
    with mq.subscribe(name) as alone:
        assert next(alone).text == "hello"


def test_several_topics_and_patterns(mq: Client, group: str) -> None:
    stem = unique("p")
    names = [f"{stem}.a", f"{stem}.b", f"{stem}x"]
    for name in names:
        mq.publish(name, name)
    with mq.subscribe(names[:2], group=group) as two:
        assert sorted(texts(drain(two, 2))) == names[:2]
    pattern = re.escape(stem).replace(r"\-", "-") + r"\..*"
    with mq.subscribe(pattern=pattern, group=unique("g")) as matching:
        assert sorted(texts(drain(matching, 2))) == names[:2]
    with mq.subscribe(pattern=re.compile(pattern)) as alone:
        assert sorted(texts(drain(alone, 2))) == names[:2]


def test_a_subscription_needs_topics_or_a_pattern(mq: Client) -> None:
    for arguments in ({}, {"topics": "a", "pattern": "b"}, {"topics": []}):
        with pytest.raises(penstock.InvalidArgument, match="by name or by pattern"):
            mq.subscribe(**arguments)  # type: ignore[arg-type]
    with pytest.raises(penstock.InvalidArgument, match="cannot be read"):
        mq.subscribe(pattern="(")


def test_seek_goes_back_and_forth(mq: Client, topic: str, group: str) -> None:
    mq.publish_many(topic, [str(n) for n in range(10)])
    with mq.subscribe(topic, group=group) as messages:
        drain(messages, 3)
        assert messages.positions() == {TopicPartition(topic, 0): 3}
        messages.seek(topic, 0, 8)
        assert texts(drain(messages, 2)) == ["8", "9"]
        messages.seek_to_beginning()
        assert texts(drain(messages, 2)) == ["0", "1"]
        messages.seek_to_end()
        assert messages.get(0.3) is None
        messages.replay()
        assert len(drain(messages, 10)) == 10
        with pytest.raises(penstock.InvalidArgument, match="not assigned"):
            messages.seek("elsewhere", 0, 0)


def test_seek_to_a_moment(mq: Client, wide: str, group: str) -> None:
    for month in range(1, 9):
        mq.publish(wide, str(month), timestamp=datetime(2024, month, 1, tzinfo=UTC))
    with mq.subscribe(wide, group=group) as messages:
        drain(messages, 8)
        messages.seek_to_time(datetime(2024, 6, 1, tzinfo=UTC))
        assert sorted(texts(drain(messages, 3))) == ["6", "7", "8"]
        messages.replay(since=datetime(2024, 8, 1, tzinfo=UTC))
        assert texts(drain(messages, 1)) == ["8"]


def test_pause_and_resume(mq: Client, topic: str, group: str) -> None:
    mq.publish(topic, "a")
    with mq.subscribe(topic, group=group) as messages:
        assert next(messages).text == "a"
        messages.pause()
        mq.publish(topic, "b")
        assert messages.get(0.4) is None
        messages.resume()
        assert drain(messages, 1)[0].text == "b"


def test_lag_is_what_is_left(mq: Client, topic: str, group: str) -> None:
    mq.publish_many(topic, [str(n) for n in range(10)])
    with mq.subscribe(topic, group=group) as messages:
        drain(messages, 4)
        assert messages.lag() == {TopicPartition(topic, 0): 6}


def test_batches_give_what_is_there(mq: Client, topic: str, group: str) -> None:
    mq.publish_many(topic, [str(n) for n in range(25)])
    with mq.subscribe(topic, group=group, idle_timeout=1) as messages:
        found = list(messages.batches(10))
    assert [text for batch in found for text in texts(batch)] == [str(n) for n in range(25)]
    assert max(map(len, found)) <= 10


def test_iteration_ends_when_it_is_quiet_for_long(mq: Client, topic: str, group: str) -> None:
    mq.publish_many(topic, ["a", "b"])
    with mq.subscribe(topic, group=group, idle_timeout=1) as messages:
        assert texts(list(messages)) == ["a", "b"]


def test_closing_from_another_thread_ends_the_iteration(mq: Client, topic: str, group: str) -> None:
    messages = mq.subscribe(topic, group=group)
    found: list[Message] = []
    thread = threading.Thread(target=lambda: found.extend(messages))
    thread.start()
    mq.publish(topic, "a")
    eventually(lambda: found)
    messages.close()
    thread.join(10)
    assert not thread.is_alive()
    assert messages.is_closed


def test_content_filters_choose_by_headers_key_and_properties(
    mq: Client, topic: str, group: str
) -> None:
    for n in range(10):
        mq.publish(
            topic,
            str(n),
            key=f"user-{n % 2}",
            headers={"type": "order" if n % 3 else "mail"},
            priority=n,
        )
    wanted = 'headers.type == "order" and key like "%-1" and priority > 2'
    with mq.subscribe(topic, group=group, filter=wanted, idle_timeout=1) as messages:
        assert texts(list(messages)) == ["5", "7"]
    # What was filtered out counts as read.
    assert mq.admin.group(group).total_lag == 0
    with pytest.raises(penstock.InvalidArgument, match="character 9"):
        mq.subscribe(topic, filter="headers.== 1")


def test_expired_messages_are_left_out(mq: Client, topic: str) -> None:
    mq.publish(topic, "short", ttl=0.05)
    mq.publish(topic, "long", ttl=60)
    time.sleep(0.1)
    with mq.subscribe(topic, idle_timeout=1) as messages:
        assert texts(list(messages)) == ["long"]
    with mq.subscribe(topic, idle_timeout=1, include_expired=True) as messages:
        assert texts(list(messages)) == ["short", "long"]


def test_a_delayed_message_comes_when_it_is_due_and_blocks_nobody(
    mq: Client, topic: str, group: str
) -> None:
    with mq.subscribe(topic, group=group) as messages:
        messages.wait_assigned()
        published = time.time()
        mq.publish(topic, "later", delay=2.5)
        mq.publish(topic, "now")
        assert drain(messages, 1)[0].text == "now"
        [later] = drain(messages, 1)
        assert later.text == "later"
        assert time.time() - published >= 2.45


def test_a_message_may_name_the_moment_when_it_is_due(mq: Client, topic: str, group: str) -> None:
    due = time.time() + 1.5
    mq.publish(topic, "later", deliver_at=datetime.fromtimestamp(due, UTC))
    mq.publish(topic, "past", deliver_at=due - 3600)
    with mq.subscribe(topic, group=group) as messages:
        found = {message.text: message for message in drain(messages, 2)}
        later = found.pop("later")
        assert list(found) == ["past"]
        assert time.time() >= due - 0.05
        assert later.deliver_at is not None
        assert abs(later.deliver_at.timestamp() - due) < 0.01
    with pytest.raises(penstock.InvalidArgument, match="not both"):
        mq.publish(topic, "x", delay=1, deliver_at=due)


# --- groups with several members ------------------------------------------------------------------


def read_until_closed(subscription: Subscription, found: list[Message]) -> None:
    with suppress(penstock.Closed):
        found.extend(subscription)


def test_members_in_threads_share_the_partitions(mq: Client, wide: str, group: str) -> None:
    members = [mq.subscribe(wide, group=group) for _ in range(3)]
    found: list[list[Message]] = [[] for _ in members]
    threads = [
        threading.Thread(target=read_until_closed, args=pair)
        for pair in zip(members, found, strict=True)
    ]
    for thread in threads:
        thread.start()
    try:
        eventually(
            lambda: sorted(len(member.assignment) for member in members) == [1, 1, 2],
            within=40,
            what="every member has its share",
        )
        mq.publish_many(wide, [str(n) for n in range(400)], key_of=lambda n: n)
        eventually(lambda: sum(map(len, found)) >= 400, what="all messages came")
    finally:
        for member in members:
            member.close()
        for thread in threads:
            thread.join(15)
    numbers = [int(message.text) for part in found for message in part]
    assert sorted(numbers) == list(range(400))
    assert all(part for part in found)


def test_a_member_that_leaves_gives_its_partitions_to_the_others(
    mq: Client, wide: str, group: str
) -> None:
    told: list[tuple[str, list[TopicPartition]]] = []
    first = mq.subscribe(
        wide,
        group=group,
        on_assigned=lambda _, places: told.append(("assigned", places)),
        on_revoked=lambda _, places: told.append(("revoked", places)),
    )
    with first:
        assert len(first.wait_assigned()) == 4
        second = mq.subscribe(wide, group=group)

        def shared() -> bool:
            first.get(0.05)
            second.get(0.05)
            return len(first.assignment) == 2 and len(second.assignment) == 2

        eventually(shared, within=40, every=0.0)
        second.close()

        def alone() -> bool:
            first.get(0.05)
            return len(first.assignment) == 4

        eventually(alone, within=40, every=0.0)
    changes = [change for change, _ in told]
    assert changes[0] == "assigned"
    assert "revoked" in changes
    assert sum(len(places) for change, places in told if change == "revoked") >= 2


def test_what_was_done_before_a_rebalance_is_not_done_again(
    mq: Client, wide: str, group: str
) -> None:
    mq.publish_many(wide, [str(n) for n in range(100)], key_of=lambda n: n)
    seen: list[str] = []
    with mq.subscribe(wide, group=group, auto_commit_interval=60) as first:
        seen += texts(drain(first, 100))
        with mq.subscribe(wide, group=group, auto_commit_interval=60) as second:

            def shared() -> bool:
                for member in (first, second):
                    message = member.get(0.05)
                    if message is not None:
                        seen.append(message.text)
                return len(second.assignment) == 2

            eventually(shared, within=40, every=0.0)
            mq.publish_many(wide, [str(n) for n in range(100, 120)], key_of=lambda n: n)
            deadline = time.monotonic() + PATIENCE
            while len(seen) < 120 and time.monotonic() < deadline:
                shared()
    assert sorted(map(int, seen)) == list(range(120))


def test_a_listener_may_choose_where_to_begin(mq: Client, wide: str, group: str) -> None:
    for n in range(8):
        mq.publish(wide, str(n), partition=n % 4)

    def skip_first(messages: Subscription, places: list[TopicPartition]) -> None:
        for place in places:
            messages.seek(*place, 1)

    with mq.subscribe(wide, group=group, on_assigned=skip_first) as messages:
        assert sorted(texts(drain(messages, 4))) == ["4", "5", "6", "7"]


def test_a_static_member_takes_over_from_itself(mq: Client, topic: str, group: str) -> None:
    mq.publish_many(topic, ["a", "b"])
    with mq.subscribe(topic, group=group, instance_id="one") as messages:
        assert next(messages).text == "a"
    with mq.subscribe(topic, group=group, instance_id="one") as messages:
        assert next(messages).text == "b"
    with pytest.raises(penstock.InvalidArgument, match="give the group"):
        mq.subscribe(topic, instance_id="one")


def test_offsets_that_are_gone_begin_again(mq: Client, topic: str, group: str) -> None:
    mq.publish_many(topic, [str(n) for n in range(10)])
    with mq.subscribe(topic, group=group) as messages:
        drain(messages, 2)
    mq.admin.delete_records(topic, 0, before=7)
    with mq.subscribe(topic, group=group) as messages:
        assert texts(drain(messages, 3)) == ["7", "8", "9"]


# --- read -----------------------------------------------------------------------------------------


def test_read_gives_a_partition_as_it_is_now(mq: Client, topic: str) -> None:
    mq.publish_many(topic, [str(n) for n in range(10)])
    assert texts(list(mq.read(topic))) == [str(n) for n in range(10)]
    assert texts(list(mq.read(topic, 0, 7))) == ["7", "8", "9"]
    assert texts(list(mq.read(topic, 0, 2, limit=3))) == ["2", "3", "4"]
    assert list(mq.read(topic, 0, "latest")) == []
    assert list(mq.read(topic, 0, 10)) == []
    reading: Iterator[Message] = mq.read(topic)
    assert next(reading).text == "0"


def test_read_from_a_moment(mq: Client, topic: str) -> None:
    for month in (1, 6):
        mq.publish(topic, str(month), timestamp=datetime(2024, month, 1, tzinfo=UTC))
    assert texts(list(mq.read(topic, 0, datetime(2024, 2, 1, tzinfo=UTC)))) == ["6"]


def test_read_says_what_is_not_there(mq: Client, topic: str) -> None:
    with pytest.raises(penstock.NotFound):
        list(mq.read(unique("nowhere")))
    with pytest.raises(penstock.NotFound):
        list(mq.read(topic, 5))
    mq.publish_many(topic, ["a", "b", "c"])
    mq.admin.delete_records(topic, 0, before=2)
    with pytest.raises(penstock.OffsetLost):
        list(mq.read(topic, 0, 0))
