"""The broker with topics and groups of the textbook, over the real one."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from penstock import InvalidArgument
from penstock.embedded import Message, MessageBroker
from support.waiting import eventually


def test_the_example_of_the_document_runs() -> None:
    analytics: list[Message] = []
    notifications: list[Message] = []
    with MessageBroker() as broker:
        broker.create_topic("orders", num_partitions=3)
        broker.subscribe("orders", "analytics", analytics.append)
        broker.subscribe("orders", "notifications", notifications.append)
        for i in range(10):
            broker.publish(
                "orders", {"order_id": i, "amount": 100 * i}, partition_key=f"user_{i % 3}"
            )
        eventually(
            lambda: len(analytics) == len(notifications) == 10,
            what="ten messages in each group",
            within=60,
        )
    for seen in (analytics, notifications):
        assert sorted(message.data["order_id"] for message in seen) == list(range(10))
        by_user: dict[int, list[int]] = defaultdict(list)
        for message in seen:
            by_user[message.data["order_id"] % 3].append(message.data["order_id"])
        assert all(orders == sorted(orders) for orders in by_user.values())


def test_messages_without_a_key_go_to_all_partitions() -> None:
    with MessageBroker() as broker:
        receipts = [broker.publish("spread", number) for number in range(60)]
        assert broker.topics == ["spread"]
        assert {receipt.partition for receipt in receipts} == {0, 1, 2}


def test_two_subscribers_of_one_group_share_the_messages() -> None:
    seen: list[tuple[str, int]] = []
    with MessageBroker() as broker:
        broker.create_topic("jobs", num_partitions=4)
        for name in ("one", "two"):
            broker.subscribe("jobs", "workers", lambda m, name=name: seen.append((name, m.data)))
        eventually(
            lambda: (
                len(broker.client.admin.group("workers").members) == 2
                and all(
                    member.assignment for member in broker.client.admin.group("workers").members
                )
            ),
            what="both to have partitions",
        )
        for number in range(40):
            broker.publish("jobs", number)
        eventually(lambda: len({data for _, data in seen}) == 40, what="all messages", within=60)
    assert {name for name, _ in seen} == {"one", "two"}


def test_a_message_that_always_fails_steps_aside() -> None:
    tries: Counter[int] = Counter()

    def fail(message: Message) -> None:
        tries[message.data] += 1
        if message.data == 1:
            raise ValueError("not this one")

    with MessageBroker(backoff=0.01) as broker:
        broker.create_topic("orders", num_partitions=1)
        broker.subscribe("orders", "billing", fail)
        for number in range(3):
            broker.publish("orders", number)
        eventually(lambda: tries[2] == 1, what="the message behind it", within=60)
        assert tries == {0: 1, 1: 3, 2: 1}
        with broker.client.subscribe("orders.dlq", idle_timeout=5) as letters:
            dead = next(letters)
        assert dead.json() == 1
        assert dead.headers["penstock.error"] == "not this one"
        assert dead.headers["penstock.error-type"] == "ValueError"
        assert dead.headers["penstock.source-topic"] == "orders"
        assert dead.headers["penstock.source-group"] == "billing"


def test_with_a_path_groups_go_on_where_they_were(tmp_path: Path) -> None:
    seen: list[int] = []
    for round_ in range(2):
        done = threading.Event()
        with MessageBroker(path=tmp_path / "data") as broker:
            broker.create_topic("orders")
            broker.subscribe("orders", "g", lambda m, d=done: (seen.append(m.data), d.set()))
            broker.publish("orders", round_)
            assert done.wait(30)
    assert seen == [0, 1]


def test_what_cannot_be_is_said() -> None:
    with MessageBroker() as broker, pytest.raises(ValueError, match="no topic 'nothing'"):
        broker.subscribe("nothing", "group", print)
    assert issubclass(InvalidArgument, ValueError)
