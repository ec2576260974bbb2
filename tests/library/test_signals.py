"""A program of workers that is told to stop: SIGTERM and Ctrl-C, in both homes, sync and async.

The handlers that run finish and are acknowledged; what was not begun is left. Each program notes
what it has begun and what it has done, a line each; a second one does the rest, and then
everything was done once.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import penstock
from support.broker import BrokerProcess, doors
from support.command import environment
from support.naming import unique
from support.waiting import eventually

pytestmark = pytest.mark.own_broker

JOBS = [str(number) for number in range(24)]
AT_ONCE = 3

SYNC = """
    import sys, time, threading, penstock
    where, name, way = sys.argv[1:]
    lock = threading.Lock()

    def note(*words):
        with lock:
            print(*words, flush=True)

    def opened():
        if where.startswith("kafka="):
            words = dict(word.split("=") for word in where.split(" "))
            return penstock.connect(words.pop("kafka"), **words)
        return penstock.open(where)

    def main():
        with opened() as mq:
            @mq.worker(name, concurrency=3, prefetch=6)
            def handle(message):
                note("begun", message.text)
                time.sleep(0.3)
                note("done", message.text)

            if way == "run":
                mq.run()
            else:
                time.sleep(3600)
        note("closed", mq.is_closed)

    try:
        main()
    except KeyboardInterrupt:
        note("interrupted")
"""

ASYNC = """
    import asyncio, sys, penstock
    where, name, way = sys.argv[1:]

    def note(*words):
        print(*words, flush=True)

    def opened():
        if where.startswith("kafka="):
            words = dict(word.split("=") for word in where.split(" "))
            return penstock.aio.connect(words.pop("kafka"), **words)
        return penstock.aio.open(where)

    async def main():
        async with opened() as mq:
            @mq.worker(name, concurrency=3, prefetch=6)
            async def handle(message):
                note("begun", message.text)
                await asyncio.sleep(0.3)
                note("done", message.text)

            if way == "run":
                await mq.run()
            else:
                await asyncio.sleep(3600)
        note("closed", mq.is_closed)

    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        note("interrupted")
"""


class Program:
    """One process of workers, and what it noted."""

    def __init__(self, script: str, where: str, name: str, way: str, journal: Path) -> None:
        self._journal = journal
        with journal.open("w") as notes:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "error", "-c", textwrap.dedent(script), where, name, way],
                env=environment(),
                stdout=notes,
                stderr=subprocess.PIPE,
                text=True,
            )

    def noted(self, word: str) -> list[str]:
        lines = [line.split() for line in self._journal.read_text().splitlines()]
        return [words[-1] for words in lines if words[0] == word]

    def end(self, number: signal.Signals) -> str:
        """Tell it to stop, and what it complained of."""
        self.process.send_signal(number)
        return self.process.communicate(timeout=60)[1]


@pytest.fixture(params=["in-process", "network"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a program finds its queue."""
    if request.param == "in-process":
        return str(tmp_path / "data")
    broker: BrokerProcess = request.getfixturevalue("broker")
    return " ".join(
        f"{name}={address}"
        for name, address in {"kafka": broker.bootstrap, **doors(broker)}.items()
    )


def opened(place: str) -> penstock.Client:
    if not place.startswith("kafka="):
        return penstock.open(place)
    words = dict(word.split("=") for word in place.split(" "))
    return penstock.connect(words["kafka"], amqp=words["amqp"], http=words["http"])


@pytest.mark.parametrize("script", [SYNC, ASYNC], ids=["sync", "async"])
@pytest.mark.parametrize(
    ("number", "way"),
    [(signal.SIGTERM, "run"), (signal.SIGINT, "run"), (signal.SIGINT, "block")],
    ids=["SIGTERM", "SIGINT", "SIGINT in a with block"],
)
def test_what_runs_is_finished_and_the_rest_is_left(
    script: str, number: signal.Signals, way: str, place: str, tmp_path: Path
) -> None:
    name = unique("work")
    with opened(place) as mq:
        mq.queue(name).publish_many(JOBS)
    first = Program(script, place, name, way, tmp_path / "first")
    try:
        eventually(lambda: len(first.noted("done")) >= AT_ONCE, within=60)
        complaints = first.end(number)
    finally:
        first.process.kill()
    assert complaints == ""
    assert first.process.returncode == 0
    assert first.noted("closed" if way == "run" else "interrupted")
    done = first.noted("done")
    assert sorted(first.noted("begun")) == sorted(done)  # whatever it had begun it has finished
    assert len(done) < len(JOBS)
    with opened(place) as mq:
        left = mq.queue(name)
        eventually(lambda: left.stats().ready == len(JOBS) - len(done))
        with left.consume(idle_timeout=0.3) as messages:
            rest = []
            for message in messages:
                rest.append(message.text)
                message.ack()
        mq.queue(name).delete()
    assert sorted(done + rest, key=int) == JOBS  # nothing is lost, nothing was done twice


WAITING = """
    import sys, penstock
    where, name, way = sys.argv[1:]
    words = dict(word.split("=") for word in where.split(" ")) if "=" in where else {}
    mq = penstock.connect(words.pop("kafka"), **words) if words else penstock.open(where)
    queue = mq.queue(name)
    mq.publish(name + ".log", "a", partition=0)
    print("ready", flush=True)
    try:
        if way == "consume":
            list(queue.consume())
        elif way == "subscribe":
            list(mq.subscribe(name + ".log", group=name))
        else:
            mq.request(name, "anybody?", timeout=3600)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    mq.publish(name + ".log", "it still works", partition=0)
    queue.delete()
    mq.close()
    print("closed", flush=True)
"""


@pytest.mark.parametrize("way", ["consume", "subscribe", "request"])
def test_ctrl_c_ends_a_call_that_waits_and_nothing_else(
    way: str, place: str, tmp_path: Path
) -> None:
    program = Program(WAITING, place, unique("name"), way, tmp_path / "notes")
    try:
        eventually(lambda: program.noted("ready"), within=60)
        time.sleep(0.3)  # so that it waits
        complaints = program.end(signal.SIGINT)
    finally:
        program.process.kill()
    assert complaints == ""
    assert program.noted("interrupted")
    assert program.noted("closed")


def test_a_forked_child_is_told_that_the_connection_is_not_its_own(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    script = """
        import os, sys, warnings, penstock
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads, since 3.12
        where, name, way = sys.argv[1:]
        words = dict(word.split("=") for word in where.split(" "))
        mq = penstock.connect(words.pop("kafka"), **words)
        mq.publish(name, "a", partition=0)
        queue = mq.queue(name + ".work")
        child = os.fork()
        if not child:
            for call in (
                lambda: mq.publish(name, "b"),
                lambda: mq.publish_many(name, ["b"]),
                lambda: mq.subscribe(name),
                lambda: list(mq.read(name)),
                lambda: mq.admin.topics(),
                lambda: queue.publish("b"),
                lambda: queue.get(1),
                lambda: mq.transaction("t").begin(),
            ):
                try:
                    call()
                except penstock.Closed as told:
                    print("told", "forked" in str(told), flush=True)
            mq.close()
            os._exit(0)
        os.waitpid(child, 0)
        print("parent", mq.publish(name, "c", partition=0).offset, flush=True)
        queue.delete()
        mq.close()
    """
    here = {"kafka": broker.bootstrap, **doors(broker)}
    where = " ".join(f"{name}={address}" for name, address in here.items())
    program = Program(script, where, unique("fork"), "", tmp_path / "notes")
    try:
        complaints = program.process.communicate(timeout=60)[1]
    finally:
        program.process.kill()
    assert complaints == ""
    assert program.noted("told") == ["True"] * 8
    assert program.noted("parent") == ["1"]


def test_a_process_that_forgets_to_close_ends_and_has_sent_everything(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    script = """
        import sys, penstock
        where, name, way = sys.argv[1:]
        mq = penstock.connect(where)
        for number in range(500):
            mq.send(name, str(number))
        print("sent", flush=True)
    """
    topic = unique("forgotten")
    program = Program(script, broker.bootstrap, topic, "", tmp_path / "notes")
    try:
        complaints = program.process.communicate(timeout=60)[1]
    finally:
        program.process.kill()
    assert complaints == ""
    assert program.process.returncode == 0
    with penstock.connect(broker.bootstrap) as mq:
        assert mq.admin.topic(topic).message_count == 500
