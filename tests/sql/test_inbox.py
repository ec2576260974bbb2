"""A message that comes again changes nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

import penstock
from penstock import InvalidArgument, Message, NotFound
from penstock.sql import Inbox

Connect = Callable[[], Any]


@pytest.fixture
def inbox(connect: Connect) -> Iterator[Inbox]:
    with Inbox(connect, "billing") as made:
        made.create_table()
        made.create_table()  # does no harm
        with closing(connect()) as database, closing(database.cursor()) as cursor:
            cursor.execute("CREATE TABLE paid (message TEXT)")
            database.commit()
        yield made


def _pay(message: Message) -> Callable[[Any], None]:
    def pay(database: Any) -> None:
        with closing(database.cursor()) as cursor:
            cursor.execute(f"INSERT INTO paid VALUES ('{message.message_id}')")

    return pay


def _paid(connect: Connect) -> list[str]:
    with closing(connect()) as database, closing(database.cursor()) as cursor:
        cursor.execute("SELECT message FROM paid ORDER BY message")
        return [message for (message,) in cursor.fetchall()]


def test_each_message_counts_once(inbox: Inbox, connect: Connect) -> None:
    one, two = Message(b"1", message_id="a"), Message(b"2", message_id="b")
    called = [inbox.handle(message, _pay(message)) for message in (one, two, one, one)]
    assert called == [True, True, False, False]
    assert _paid(connect) == ["a", "b"]


def test_a_failure_leaves_nothing_behind(inbox: Inbox, connect: Connect) -> None:
    message = Message(b"1", message_id="a")

    def fail(database: Any) -> None:
        _pay(message)(database)
        raise RuntimeError("no money")

    with pytest.raises(RuntimeError, match="no money"):
        inbox.handle(message, fail)
    assert _paid(connect) == []
    assert inbox.handle(message, _pay(message))
    assert _paid(connect) == ["a"]


def test_consumers_have_ids_of_their_own(inbox: Inbox, connect: Connect) -> None:
    message = Message(b"1", message_id="a")
    with Inbox(connect, "shipping") as other:
        assert inbox.handle(message, lambda database: None)
        assert other.handle(message, lambda database: None)
        assert not other.handle(message, lambda database: None)


def test_in_a_transaction_of_ones_own(inbox: Inbox, connect: Connect) -> None:
    message = Message(b"1", message_id="a")
    with closing(connect()) as database:
        assert inbox.is_first(database, message)
        database.rollback()
        assert inbox.is_first(database, message)
        database.commit()
        assert not inbox.is_first(database, message)


def test_two_at_the_same_time_wait_for_each_other(inbox: Inbox, connect: Connect) -> None:
    message = Message(b"1", message_id="a")
    is_in, may_end = threading.Event(), threading.Event()
    called: list[bool] = []

    def slow(database: Any) -> None:
        is_in.set()
        assert may_end.wait(60)
        _pay(message)(database)

    def run(process: Callable[[Any], None]) -> None:
        with Inbox(connect, "billing") as mine:
            called.append(mine.handle(message, process))

    first = threading.Thread(target=run, args=(slow,))
    first.start()
    assert is_in.wait(60)
    second = threading.Thread(target=run, args=(_pay(message),))
    second.start()
    may_end.set()
    first.join()
    second.join()
    assert sorted(called) == [False, True]
    assert _paid(connect) == ["a"]


def test_ids_of_long_ago_are_forgotten(inbox: Inbox) -> None:
    message = Message(b"1", message_id="a")
    assert inbox.handle(message, lambda database: None)
    assert inbox.forget(older_than=3600) == 0
    assert inbox.forget(older_than=0) in (0, 1)  # 0 within the same millisecond
    while not inbox.handle(message, lambda database: None):
        inbox.forget(older_than=0)


def test_messages_of_a_stream_have_their_place_for_an_id(inbox: Inbox, connect: Connect) -> None:
    with penstock.open(None) as mq:
        mq.publish_many("orders", ["a", "b"], partition=0)
        for _ in range(2):  # read twice, as after a crash before the commit
            for message in mq.read("orders", 0):
                inbox.handle(message, _pay(message))
    assert _paid(connect) == ["orders-0-0", "orders-0-1"]


def test_a_message_without_an_id_is_refused(inbox: Inbox) -> None:
    with pytest.raises(InvalidArgument, match="message_id"):
        inbox.handle(Message(b"1"), lambda database: None)


def test_whoever_forgot_to_create_the_table_is_told(connect: Connect) -> None:
    with Inbox(connect, "billing") as inbox, pytest.raises(NotFound, match="create_table"):
        inbox.handle(Message(b"1", message_id="a"), lambda database: None)
