"""What was committed to the database is published, once; what was not, never."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import Client, Fenced, InvalidArgument, Message, NotFound, NotSupported
from penstock.sql import Columns, Outbox
from penstock.sql.outbox_table import OutboxTable
from support.command import environment
from support.naming import unique
from support.waiting import eventually

Connect = Callable[[], Any]


class Crash(BaseException):
    """The process ends here, as it were."""


@pytest.fixture
def topic() -> str:
    return unique("orders")


@pytest.fixture
def make(mq: Client, connect: Connect) -> Any:
    """make() is an outbox of this test, as often as wanted."""
    made: list[Outbox] = []
    name = unique("outbox")

    def outbox(**options: Any) -> Outbox:
        made.append(Outbox(mq, connect, **{"name": name, **options}))
        return made[-1]

    yield outbox
    for each in made:
        each.close()


def _write(outbox: Outbox, connect: Connect, topic: str, numbers: Any) -> None:
    with closing(connect()) as database:
        for number in numbers:
            outbox.add(database, topic, f"order {number}", key=f"user-{number % 3}")
        database.commit()


def _published(mq: Client, topic: str) -> list[Message]:
    partitions = mq.admin.topic(topic).partitions
    found = [message for each in partitions for message in mq.read(topic, each.partition)]
    return sorted(found, key=lambda message: int(message.text.split()[1]))


def _texts(mq: Client, topic: str) -> list[str]:
    return [message.text for message in _published(mq, topic)]


def _count(connect: Connect, table: str = "outbox") -> int:
    with closing(connect()) as database, closing(database.cursor()) as cursor:
        cursor.execute(f"SELECT count(*) FROM {table}")
        (found,) = cursor.fetchone()
        return int(found)


def test_rows_become_messages_and_are_gone(
    make: Any, mq: Client, connect: Connect, topic: str
) -> None:
    outbox = make(batch_size=10)
    outbox.create_tables()
    outbox.create_tables()  # does no harm
    _write(outbox, connect, topic, range(25))
    assert outbox.move() == 25
    assert outbox.move() == 0
    assert _texts(mq, topic) == [f"order {number}" for number in range(25)]
    assert _count(connect) == 0
    _write(outbox, connect, topic, range(25, 30))
    assert outbox.move() == 5
    assert _texts(mq, topic) == [f"order {number}" for number in range(30)]


def test_a_message_has_all_that_its_row_says(
    make: Any, mq: Client, connect: Connect, topic: str
) -> None:
    outbox = make()
    outbox.create_tables()
    with closing(connect()) as database:
        outbox.add(database, topic, {"id": 7}, key=b"\xff", headers={"a": "ä"}, serializer="json")
        database.commit()
    outbox.move()
    with mq.subscribe(topic, idle_timeout=10) as messages:
        message = next(messages)
    assert (message.json(), message.key, message.headers) == ({"id": 7}, b"\xff", {"a": "ä"})
    assert message.message_id == f"{outbox.name}-1"


def test_what_is_rolled_back_is_never_published(
    make: Any, mq: Client, connect: Connect, topic: str
) -> None:
    outbox = make()
    outbox.create_tables()
    _write(outbox, connect, topic, [1])
    with closing(connect()) as database:
        outbox.add(database, topic, "order 2")
        database.rollback()
    assert outbox.move() == 1
    assert _texts(mq, topic) == ["order 1"]


@pytest.mark.parametrize("step", ["after the claim", "after the commit"])
def test_whoever_dies_between_two_steps_is_followed_by_one_who_goes_on(
    make: Any,
    mq: Client,
    connect: Connect,
    topic: str,
    step: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outbox = make(batch_size=4)
    outbox.create_tables()
    _write(outbox, connect, topic, range(10))

    def crash(*_: object) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        if step == "after the claim":
            patch.setattr(Outbox, "_publish", crash)
        else:
            patch.setattr(OutboxTable, "finish", crash)
        with pytest.raises(Crash):
            outbox.move()
    assert _count(connect) == 10
    _write(outbox, connect, topic, range(10, 12))
    follower = make(batch_size=4)
    assert follower.move() == (12 if step == "after the claim" else 8)
    assert _texts(mq, topic) == [f"order {number}" for number in range(12)]
    assert _count(connect) == 0


def test_the_same_one_goes_on_after_a_failure(
    make: Any, mq: Client, connect: Connect, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox = make()
    outbox.create_tables()
    _write(outbox, connect, topic, range(3))

    def fail(*_: object) -> None:
        raise OSError("the database is away")

    with monkeypatch.context() as patch:
        patch.setattr(OutboxTable, "finish", fail)
        with pytest.raises(OSError, match="away"):
            outbox.move()
    assert outbox.move() == 0  # it was published already
    assert _texts(mq, topic) == ["order 0", "order 1", "order 2"]
    assert _count(connect) == 0


def test_the_newer_of_two_takes_over_while_the_older_is_at_it(
    make: Any, mq: Client, connect: Connect, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    older, newer = make(), make()
    older.create_tables()
    _write(older, connect, topic, range(5))
    publish = Outbox._publish
    is_claimed, may_go_on = threading.Event(), threading.Event()

    def slow(self: Outbox, *arguments: Any) -> None:
        if self is older:
            is_claimed.set()
            assert may_go_on.wait(60)
        publish(self, *arguments)

    monkeypatch.setattr(Outbox, "_publish", slow)
    failures: list[BaseException] = []

    def move() -> None:
        try:
            older.move()
        except BaseException as failure:
            failures.append(failure)
        finally:
            older.close()

    thread = threading.Thread(target=move)
    thread.start()
    assert is_claimed.wait(60)
    assert newer.move() == 5
    may_go_on.set()
    thread.join(60)
    (failure,) = failures
    assert isinstance(failure, Fenced), failure
    assert _texts(mq, topic) == [f"order {number}" for number in range(5)]


def test_one_that_was_taken_over_between_two_rounds_is_fenced(
    make: Any, mq: Client, connect: Connect, topic: str
) -> None:
    older, newer = make(), make()
    older.create_tables()
    _write(older, connect, topic, range(2))
    assert older.move() == 2
    _write(older, connect, topic, range(2, 4))
    assert newer.move() == 2
    _write(older, connect, topic, range(4, 6))
    with pytest.raises(Fenced):
        older.move()
    assert newer.move() == 2
    assert _texts(mq, topic) == [f"order {number}" for number in range(6)]


def test_a_table_of_the_users_own(make: Any, mq: Client, connect: Connect, topic: str) -> None:
    with closing(connect()) as database, closing(database.cursor()) as cursor:
        cursor.execute("CREATE TABLE events (event_id VARCHAR(40) PRIMARY KEY, body TEXT)")
        for number in range(3):
            cursor.execute(f"INSERT INTO events VALUES ('e-{number}', 'order {number}')")
        database.commit()
    columns = Columns(id="event_id", payload="body", topic=None, key=None, headers=None)
    outbox = make(table="events", columns=columns, topic=topic)
    outbox.create_tables()
    assert outbox.move() == 3
    assert [m.message_id for m in _published(mq, topic)] == [f"{outbox.name}-e-{n}" for n in "012"]
    assert _count(connect, "events") == 0
    with closing(connect()) as database, pytest.raises(InvalidArgument, match="your own"):
        outbox.add(database, topic, "order 3")


def test_in_the_background_rows_are_moved_as_they_come(
    make: Any, mq: Client, connect: Connect, topic: str
) -> None:
    outbox = make()
    outbox.create_tables()
    mq.admin.create_topic(topic, partitions=1)
    outbox.start(interval=0.02)
    for number in range(3):
        _write(outbox, connect, topic, [number])
        eventually(lambda n=number: len(_texts(mq, topic)) == n + 1, within=60)
    assert outbox.is_running
    outbox.stop()
    assert not outbox.is_running


def test_whoever_forgot_to_create_the_tables_is_told(make: Any, connect: Connect) -> None:
    outbox = make()
    with pytest.raises(NotFound, match="create_tables"):
        outbox.move()
    with closing(connect()) as database, pytest.raises(NotFound, match="create_tables"):
        outbox.add(database, "orders", "order 1")


def test_what_could_never_be_published_does_not_come_into_the_table(
    make: Any, mq: Client, connect: Connect, topic: str
) -> None:
    """There it would hold up all others for ever."""
    outbox = make()
    outbox.create_tables()
    with closing(connect()) as database:
        for wrong, words in (
            ({"topic": "a b"}, "cannot name a topic"),
            ({"topic": ""}, "not empty"),
            ({"headers": {"a": object()}}, "header 'a' is a object"),
            ({"headers": {"a": b"b"}}, "texts or numbers"),
            ({"payload": 5}, "a payload is bytes or text"),
        ):
            with pytest.raises(InvalidArgument, match=words):
                outbox.add(database, **{"topic": topic, "payload": "x", **wrong})
        outbox.add(database, topic, "right")
        database.commit()
    assert outbox.move() == 1
    with pytest.raises(InvalidArgument, match="cannot name a topic"):
        make(name="a b")
    with pytest.raises(InvalidArgument, match="connect is a function"):
        Outbox(mq, "app.db")  # type: ignore[arg-type]


def test_a_row_that_cannot_be_published_is_named(make: Any, connect: Connect, topic: str) -> None:
    outbox = make()
    outbox.create_tables()
    with closing(connect()) as database:
        outbox.add(database, topic, "x")
        database.cursor().execute("UPDATE outbox SET topic = 'a b'")
        database.commit()
    with pytest.raises(InvalidArgument, match=r"row \d+ of outbox cannot be published: 'a b'"):
        outbox.move()
    with closing(connect()) as database:
        database.cursor().execute("DELETE FROM outbox")
        database.commit()


def test_databases_that_are_not_known_are_refused() -> None:
    class Stranger:
        pass

    with penstock.open(None) as mq, pytest.raises(NotSupported, match="PostgreSQL"):
        Outbox(mq, Stranger).create_tables()


def test_names_cannot_smuggle_statements(connect: Connect) -> None:
    with (
        penstock.open(None) as mq,
        Outbox(mq, connect, table='x"; DROP TABLE y; --') as outbox,
        pytest.raises(InvalidArgument, match="no name"),
    ):
        outbox.create_tables()


WORKER = """
import sqlite3, sys
import penstock
from penstock.sql import Outbox
path, bootstrap, name = sys.argv[1:]
with penstock.connect(bootstrap) as mq:
    with Outbox(mq, lambda: sqlite3.connect(path, timeout=60), name=name, batch_size=3) as outbox:
        print("go", flush=True)
        while True:
            outbox.move()
"""


@pytest.mark.timeout(240)
def test_killed_again_and_again_it_publishes_each_row_once(
    broker: Any, tmp_path: Path, topic: str
) -> None:
    path, name = tmp_path / "app.db", unique("outbox")
    with penstock.connect(broker.bootstrap) as mq:
        with Outbox(mq, lambda: sqlite3.connect(path, timeout=60), name=name) as outbox:
            outbox.create_tables()
            for round_ in range(4):
                worker = subprocess.Popen(
                    [sys.executable, "-c", WORKER, str(path), broker.bootstrap, name],
                    stdout=subprocess.PIPE,
                    env=environment(),
                )
                assert worker.stdout is not None
                worker.stdout.readline()
                with closing(sqlite3.connect(path, timeout=60)) as database:
                    for number in range(round_ * 30, round_ * 30 + 30):
                        outbox.add(database, topic, f"order {number}")
                        database.commit()
                worker.kill()
                worker.wait()
                worker.stdout.close()
            outbox.move()
        assert _texts(mq, topic) == [f"order {number}" for number in range(120)]
