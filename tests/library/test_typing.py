"""The library as a type checker sees it: code of users passes mypy's strict mode."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import penstock
from penstock.client.admin import Admin
from support.broker import SOURCES

GOOD = """
    import asyncio
    from concurrent.futures import Future
    from datetime import timedelta

    import penstock
    from penstock import Client, Message, Queue, QueueMessage, Receipt, Subscription, TopicPartition
    from penstock.testing import BrokerForTests


    def publish(mq: Client) -> list[int]:
        receipt: Receipt = mq.publish("orders", {"id": 1}, serializer="json", key="k", ttl=60)
        future: Future[Receipt] = mq.send("orders", b"x", delay=timedelta(seconds=1))
        many = mq.publish_many("orders", ["a", "b"], key_of=lambda text: text)
        return [receipt.offset, future.result().offset, *(each.partition for each in many)]


    def read(mq: Client) -> dict[TopicPartition, int]:
        def assigned(subscription: Subscription, places: list[TopicPartition]) -> None:
            subscription.seek(places[0].topic, places[0].partition, 0)

        with mq.subscribe("orders", group="billing", on_assigned=assigned) as messages:
            for message in messages:
                text: str = message.text
                headers: dict[str, str] = message.headers
                print(text, headers, message.timestamp)
            return messages.lag()


    def exactly_once(mq: Client, messages: Subscription) -> None:
        with mq.transaction("billing-1") as tx:
            for message in messages.batch(100, timeout=1):
                tx.publish("invoices", message.payload)
            tx.commit_offsets(messages)


    def work(mq: Client) -> None:
        queue: Queue = mq.queue("work", max_priority=9, dead_letter=True, max_deliveries=3)
        queue.publish("a", priority=5)
        message = queue.get(timeout=1)
        if message is not None:
            message.nack(delay=2.5)

        @mq.worker("work", concurrency=8)
        def handle(message: QueueMessage) -> None:
            print(message.text)

        @mq.reply("rpc.price")
        def price(message: QueueMessage) -> bytes:
            return b"42"

        handle.stop()
        answer: str = mq.request("rpc.price", "x", timeout=2).text
        print(answer, price.handled)


    async def twin() -> None:
        async with penstock.aio.open("data", num_partitions=1) as mq:
            receipt: Receipt = await mq.publish("orders", b"x")
            print(receipt.offset, mq.kafka)
            async with mq.subscribe("orders", group="g") as messages:
                async for message in messages:
                    one: Message = message
                    print(one.key)
            queue = await mq.queue("work")
            async with queue.consume(prefetch=10) as work:
                async for job in work:
                    await job.ack()
        async with penstock.aio.connect("127.0.0.1:9092", username="me", password="x") as other:
            await other.admin.create_topic("orders", 3)


    def test_mine(penstock_broker: BrokerForTests) -> None:
        penstock_broker.client.publish("orders", "x")
        penstock_broker.advance(60)
        with penstock_broker.faults.refuse():
            pass


    with penstock.open("data", kafka="127.0.0.1:0") as local:
        publish(local)
        address: str | None = local.kafka
    with penstock.connect("127.0.0.1:9092", tls=True) as remote:
        read(remote)
    try:
        pass
    except penstock.QueueFull as full:
        print(full)
    asyncio.run(twin())
"""

BAD = """
    import penstock

    with penstock.open(None) as mq:
        mq.publish("orders", "x", kee="k")
        mq.publish("orders", "x", ttl="soon")
        mq.queue("work").publish("x").nothing
        offset: str = mq.publish("orders", "x").offset
        for message in mq.subscribe("orders"):
            message.ack()
"""


# Silent is what mypy is about the insides of a package that is installed.
OPTIONS = ["--strict", "--config-file=", "--follow-imports=silent", "--cache-dir=cache"]


def mypy(directory: Path, *files: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mypy", *OPTIONS, *files],
        env={**os.environ, "MYPYPATH": str(SOURCES)},
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def test_code_of_users_passes_strict_checks_and_mistakes_are_found(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(textwrap.dedent(GOOD))
    (tmp_path / "bad.py").write_text(textwrap.dedent(BAD))
    done = mypy(tmp_path, "good.py", "bad.py")
    wrong = [line.split(":")[:2] for line in done.stdout.splitlines() if "error:" in line]
    assert wrong == [["bad.py", line] for line in ("5", "6", "7", "8", "10")], done.stdout


EVERY_CALL = Path(__file__).with_name("typed_user.py")
FACES: list[type[Any]] = [
    *(penstock.Client, penstock.Subscription, penstock.Transaction, penstock.Queue, Admin),
    *(penstock.QueueMessage, penstock.Consumption, penstock.Exchange, penstock.Worker),
]
OURS = {"stored", "allow_delays"}  # for the library itself


def test_a_file_with_every_public_call_passes_strict_checks(tmp_path: Path) -> None:
    text = EVERY_CALL.read_text()
    sync, twin = text.split("async def twin_publishing")
    called = [set(re.findall(r"\.(\w+)\(", half)) for half in (sync, twin)]
    for face in FACES:
        public = {
            name
            for name in dir(face)
            if not name.startswith("_") and inspect.isfunction(getattr(face, name))
        }
        assert public - OURS - called[0] == set(), face
        asynchronous = {"send", "is_expired", "json"}  # a transaction has none; as in the sync half
        assert public - OURS - asynchronous - called[1] == set(), face
    (tmp_path / "user.py").write_text(text)
    done = mypy(tmp_path, "user.py")
    assert done.returncode == 0, done.stdout


def test_the_package_says_that_it_is_typed() -> None:
    assert (SOURCES / "penstock" / "py.typed").exists()
