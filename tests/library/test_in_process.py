"""What only the home in this process can do, or get wrong."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pika
import pytest
from confluent_kafka import Consumer

import penstock
from penstock.runtime.memory_disk import MemoryDisk
from support.broker import SOURCES
from support.waiting import eventually


def run_python(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_everything_is_there_after_closing_and_opening_again(tmp_path: Path) -> None:
    with penstock.open(tmp_path, num_partitions=1) as mq:
        mq.publish_many("log", [str(n) for n in range(1000)])
        with mq.subscribe("log", group="g") as messages:
            for _ in range(400):
                next(messages)
    with penstock.open(tmp_path) as mq:
        assert mq.admin.topic("log").message_count == 1000
        with mq.subscribe("log", group="g") as messages:
            assert next(messages).text == "400"
        with mq.transaction("t") as tx:
            tx.publish("log", "more", partition=0)
    with penstock.open(tmp_path) as mq:
        assert [message.text for message in mq.read("log", 0, 1000)] == ["more"]


def test_memory_forgets_when_it_is_closed() -> None:
    with penstock.open() as mq:
        mq.publish("log", "a")
    with penstock.open(None) as mq:
        assert mq.admin.topics() == []


def test_two_cannot_have_one_directory(tmp_path: Path) -> None:
    with penstock.open(tmp_path), pytest.raises(penstock.DataDirectoryInUse):
        penstock.open(tmp_path)
    penstock.open(tmp_path).close()


def test_wrong_options_are_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(penstock.ConfigurationError, match=r"num\.partitions"):
        penstock.open(tmp_path, num_partitions=-3)
    with pytest.raises(penstock.ConfigurationError, match=r"num\.partitons"):
        penstock.open(tmp_path, num_partitons=3)
    with pytest.raises(penstock.InvalidArgument, match="backpressure"):
        penstock.open(tmp_path, backpressure="explode")
    penstock.open(tmp_path).close()  # the one that was refused left no lock behind


def test_a_directory_whose_catalogue_is_lost_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    """Also Apache Kafka's own: without the catalogue every topic in it would look deleted."""
    with penstock.open(tmp_path, num_partitions=1) as mq:
        mq.publish("orders", "kept")
    catalogue = (tmp_path / "catalogue.sqlite").read_bytes()
    (tmp_path / "catalogue.sqlite").unlink()
    for _ in range(2):  # nor did the first try leave an empty catalogue behind
        with pytest.raises(penstock.DataDirectoryDamaged, match=r"put catalogue\.sqlite back"):
            penstock.open(tmp_path)
    (tmp_path / "catalogue.sqlite").touch()
    with pytest.raises(penstock.DataDirectoryDamaged, match=r"put catalogue\.sqlite back"):
        penstock.open(tmp_path)
    (tmp_path / "catalogue.sqlite").write_bytes(catalogue)
    with penstock.open(tmp_path) as mq:
        assert [message.text for message in mq.read("orders")] == ["kept"]


def test_a_file_is_no_data_directory(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("precious")
    for place in (tmp_path / "data", tmp_path / "data" / "below"):
        with pytest.raises(penstock.ConfigurationError, match="there is a file where"):
            penstock.open(place)
    assert (tmp_path / "data").read_text() == "precious"
    with pytest.raises(penstock.ConfigurationError, match="it must be a path"):
        penstock.open("")


def test_a_broker_that_cannot_open_a_door_says_so_and_leaves_nothing_locked(tmp_path: Path) -> None:
    with penstock.open(None, kafka="127.0.0.1:0") as other:
        for door in ("kafka", "amqp", "http"):
            with pytest.raises(penstock.ConfigurationError, match=r"(?i)address already in use"):
                penstock.open(tmp_path, **{"kafka": "127.0.0.1:0", door: other.kafka})
    penstock.open(tmp_path).close()
    with pytest.raises(penstock.DataDirectoryDamaged, match=r"node\.id=1"):
        penstock.open(tmp_path, node_id=7)
    penstock.open(tmp_path).close()


def test_forgetting_to_close_loses_nothing_and_is_mentioned(tmp_path: Path) -> None:
    mq = penstock.open(tmp_path, num_partitions=1)
    mq.publish("log", "kept")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del mq
        gc.collect()
    assert any("was not closed" in str(each.message) for each in caught)

    def again() -> bool:
        try:
            with penstock.open(tmp_path) as mq:
                return [message.text for message in mq.read("log")] == ["kept"]
        except penstock.DataDirectoryInUse:
            return False

    eventually(again)


def test_a_program_that_just_ends_is_closed_cleanly(tmp_path: Path) -> None:
    script = """
        import sys, penstock
        mq = penstock.open(sys.argv[1], num_partitions=1)
        for n in range(100):
            mq.send("log", str(n))
        mq.flush()
    """
    done = run_python(script, str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    with penstock.open(tmp_path) as mq:
        assert len(list(mq.read("log"))) == 100


def test_what_was_acknowledged_survives_sigkill(tmp_path: Path) -> None:
    script = """
        import sys, penstock
        mq = penstock.open(sys.argv[1], num_partitions=1)
        n = 0
        while True:
            print(mq.publish("log", str(n)).offset, flush=True)
            n += 1
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    acknowledged = [int(process.stdout.readline()) for _ in range(50)]
    process.send_signal(signal.SIGKILL)
    acknowledged += [int(line) for line in process.stdout.read().splitlines() if line.strip()]
    process.stdout.close()
    process.wait()
    with penstock.open(tmp_path) as mq:
        texts = [message.text for message in mq.read("log")]
    assert len(texts) >= len(acknowledged)
    assert texts == [str(n) for n in range(len(texts))]


def close_amid_calls(mq: penstock.Client, after_s: float) -> list[BaseException]:
    """Close it while six threads call it; how their work ended."""
    mq.publish("log", "first")
    queue = mq.queue("work")
    calls: list[Callable[[], object]] = [
        lambda: mq.publish("log", "one"),
        lambda: mq.publish_many("log", ["many"] * 50),
        lambda: list(mq.read("log", 0, limit=20)),
        lambda: queue.publish("work"),
        lambda: queue.get(timeout=0),
        lambda: mq.admin.topic("log"),
    ]
    ends: list[BaseException] = []

    def work(call: Callable[[], object]) -> None:
        try:
            while True:
                call()
        except BaseException as end:
            ends.append(end)

    threads = [threading.Thread(target=work, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    time.sleep(after_s)
    mq.close()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    return ends


@pytest.mark.parametrize("memory", [True, False])
def test_calls_of_other_threads_end_when_it_is_closed(tmp_path: Path, memory: bool) -> None:
    """At whatever point they are, they are told."""
    for turn in range(10):
        mq = penstock.open(None if memory else tmp_path / str(turn), num_partitions=1)
        ends = close_amid_calls(mq, 0.02 * turn)
        assert all(isinstance(end, penstock.PenstockError) for end in ends), ends


def test_a_forked_child_is_told_instead_of_hanging(tmp_path: Path) -> None:
    script = """
        import os, sys, penstock
        mq = penstock.open(sys.argv[1])
        mq.publish("log", "parent")
        child = os.fork()
        if not child:
            try:
                mq.admin.topics()
            except penstock.Closed as failure:
                os.write(1, str(failure).encode())
            mq.close()  # as leaving a `with` block would: it is the parent's, and stays open there
            sys.exit(0)
        print(os.waitpid(child, 0)[1], mq.publish("log", "still there", partition=0).offset >= 0)
        mq.close()
    """
    done = run_python(script, str(tmp_path))
    assert "before the process forked" in done.stdout, done
    assert "0 True" in done.stdout, done
    assert done.stderr == "" or "DeprecationWarning" in done.stderr  # of forking, since 3.12


def test_the_kafka_door_lets_others_in(tmp_path: Path) -> None:
    quick = {"group_initial_rebalance_delay_ms": 0}
    with penstock.open(tmp_path, kafka="127.0.0.1:0", http="127.0.0.1:0", **quick) as mq:
        assert mq.kafka is not None
        assert mq.http is not None
        mq.publish("log", "from inside", key="k", partition=0)
        consumer = Consumer(
            {"bootstrap.servers": mq.kafka, "group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["log"])
        message = consumer.poll(20)
        assert message is not None
        assert (message.key(), message.value()) == (b"k", b"from inside")
        consumer.close()
        with penstock.connect(mq.kafka) as other:
            other.publish("log", "from outside", partition=1)
        assert [message.text for message in mq.read("log", 1)] == ["from outside"]
        assert list(mq.admin.cluster().brokers.values()) == [mq.kafka]


def test_queues_are_there_after_closing_and_opening_again(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as mq:
        queue = mq.queue("work", max_priority=5)
        queue.publish_many(["a", "b", "c", "d"])
        queue.publish("later", delay=60)
        held, done, dead = (queue.get() for _ in range(3))
        assert held is not None
        assert done is not None
        assert dead is not None
        done.ack()
        dead.reject("no")
        mq.exchange("events")
        queue.bind("events", "order.#")
    with penstock.open(tmp_path) as mq:
        queue = mq.queue("work", max_priority=5)
        stats = queue.stats()
        assert (stats.ready, stats.scheduled, stats.in_flight) == (2, 1, 0)
        first = queue.get()
        assert first is not None
        assert (first.text, first.delivery_count) == ("a", 1)
        lying = queue.dead_letters.get(timeout=20)
        assert lying is not None
        assert (lying.text, lying.error) == ("c", "no")
        mq.exchange("events").publish("order.paid", "e")
        assert queue.stats().ready == 2


def test_the_amqp_door_lets_others_in(tmp_path: Path) -> None:
    with penstock.open(tmp_path, amqp="127.0.0.1:0") as mq:
        assert mq.amqp is not None
        queue = mq.queue("work")
        queue.publish("from inside", headers={"h": "1"}, correlation_id="c-1", priority=3)
        parameters = pika.URLParameters(f"amqp://guest:guest@{mq.amqp}/")
        with pika.BlockingConnection(parameters) as connection:
            channel = connection.channel()
            method, properties, body = channel.basic_get("work")
            assert body == b"from inside"
            assert properties.correlation_id == "c-1"
            assert properties.priority == 3
            assert properties.headers["h"] in ("1", b"1")
            channel.basic_ack(method.delivery_tag)
            channel.basic_publish(
                "", "work", b"from outside", pika.BasicProperties(headers={"n": 7})
            )
        message = queue.get(timeout=20)
        assert message is not None
        assert (message.text, message.headers) == ("from outside", {"n": "7"})
        message.ack()


def test_members_here_and_at_the_door_share_a_group(tmp_path: Path) -> None:
    quick = {
        "group_consumer_heartbeat_interval_ms": 200,
        "group_consumer_min_heartbeat_interval_ms": 100,
    }
    with penstock.open(tmp_path, kafka="127.0.0.1:0", num_partitions=4, **quick) as mq:
        mq.admin.create_topic("log")
        assert mq.kafka is not None
        with (
            penstock.connect(mq.kafka) as other,
            mq.subscribe("log", group="g") as inside,
            other.subscribe("log", group="g") as outside,
        ):

            def shared() -> bool:
                inside.get(0.05)
                outside.get(0.05)
                return len(inside.assignment) == 2 and len(outside.assignment) == 2

            eventually(shared, within=40, every=0.0)


def test_a_zombie_at_the_door_is_fenced_from_inside(tmp_path: Path) -> None:
    with penstock.open(tmp_path, kafka="127.0.0.1:0", num_partitions=1) as mq:
        assert mq.kafka is not None
        with penstock.connect(mq.kafka) as other:
            zombie = other.transaction("t")
            zombie.begin()
            zombie.publish("log", "zombie")
            with mq.transaction("t") as tx:
                tx.publish("log", "new")
            with pytest.raises((penstock.Fenced, penstock.TransactionAborted)):
                zombie.commit()
        assert [message.text for message in mq.read("log")] == ["new"]


def test_a_topic_that_is_deleted_and_made_again_is_another_one(tmp_path: Path) -> None:
    with (
        penstock.open(None, num_partitions=1) as mq,
        mq.subscribe("log", group="g") as grouped,
        mq.subscribe("log") as alone,
    ):
        mq.publish_many("log", ["a", "b"])
        for messages in (grouped, alone):
            assert [next(messages).text, next(messages).text] == ["a", "b"]
        mq.admin.delete_topic("log")
        mq.publish("log", "new")
        assert next(grouped).text == "new"
        assert next(alone).text == "new"


def test_a_blocking_call_inside_a_callback_is_refused_not_hung(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with penstock.open(None) as mq:
        mq.send("log", "a", on_delivery=lambda *_: mq.publish("log", "b") and None).result(10)
        eventually(lambda: "would wait for ever" in caplog.text)


def home_on(disk: MemoryDisk) -> penstock.LocalClient:
    from penstock.client.local import LocalHome, broker_config
    from penstock.client.opening import LocalClient
    from penstock.client.partitioner import Sticky
    from penstock.client.sender import PublishOptions

    home = LocalHome(broker_config(None, None, None, {"num_partitions": 1}), Sticky(), disk=disk)
    return LocalClient(home, PublishOptions(), "test")


def test_a_full_disk_refuses_and_later_takes_again() -> None:
    disk = MemoryDisk()
    with home_on(disk) as mq:
        mq.publish("log", "before")
        disk.capacity_bytes = disk.used_bytes + 100
        with pytest.raises(penstock.Unavailable, match="space"):
            mq.publish("log", b"x" * 1000)
        with pytest.raises(penstock.Unavailable):
            mq.publish_many("log", [b"x" * 1000] * 3)
        disk.capacity_bytes = None
        mq.publish("log", "after")
        assert [message.text for message in mq.read("log")] == ["before", "after"]


def test_a_failed_sync_stops_this_broker_and_not_the_process() -> None:
    import errno

    disk = MemoryDisk()
    mq = home_on(disk)
    mq.publish("log", "before")
    disk.fail("sync", errno.EIO)
    with pytest.raises(penstock.Unavailable):
        mq.publish("log", "never acknowledged")
    with pytest.raises(penstock.Unavailable, match="has stopped"):
        mq.publish("log", "nor this")
    mq.close()


def test_importing_costs_next_to_nothing() -> None:
    script = """
        import sys
        before = set(sys.modules)
        import penstock
        new = set(sys.modules) - before
        print([name for name in new if "penstock" in name], "asyncio" in new)
    """
    assert run_python(script).stdout.strip() == "['penstock'] False"


def test_a_client_of_the_network_loads_nothing_of_the_broker() -> None:
    script = """
        import sys
        from penstock.client.opening import connect
        import penstock.client.remote, penstock.client.sync
        rooms = ("app", "services", "log", "machines", "catalogue", "kafka", "http", "wire")
        print([m for m in sys.modules if m.startswith(tuple(f"penstock.{r}" for r in rooms))])
    """
    assert run_python(script).stdout.strip() == "[]"


def test_nobody_listens_is_said_at_once() -> None:
    started = time.monotonic()
    with pytest.raises(penstock.Unavailable, match="penstock serve"):
        penstock.connect("127.0.0.1:1", timeout=5)
    assert time.monotonic() - started < 5
    with pytest.raises(penstock.InvalidArgument, match="not an address"):
        penstock.connect("somewhere")


def test_security_options_are_checked_before_anything_is_sent(tmp_path: Path) -> None:
    with pytest.raises(penstock.InvalidArgument, match="username and password"):
        penstock.connect("127.0.0.1:1", username="me")
    with pytest.raises(penstock.InvalidArgument, match="no file"):
        penstock.connect("127.0.0.1:1", ca=tmp_path / "ca.pem")
    with pytest.raises(penstock.InvalidArgument, match="sasl_mechanism"):
        penstock.connect("127.0.0.1:1", username="me", password="x", sasl_mechanism="MAGIC")


def test_what_is_not_kafka_is_noticed(tmp_path: Path) -> None:
    with (
        penstock.open(None, http="127.0.0.1:0") as mq,
        pytest.raises(penstock.Unavailable, match=r"not a Kafka server|closed the connection"),
    ):
        penstock.connect(mq.http or "", timeout=5)


def test_members_that_do_not_poll_lose_their_partitions(tmp_path: Path) -> None:
    lost: list[object] = []
    with penstock.open(None, num_partitions=1) as mq:
        mq.publish("log", "a")
        with mq.subscribe(
            "log", group="g", max_poll_interval=0.5, on_lost=lambda _, places: lost.append(places)
        ) as slow:
            assert next(slow).text == "a"
            with mq.subscribe("log", group="g") as other:
                assert [m.text for m in [other.get(20)] if m] == ["a"]  # it was never committed
            eventually(lambda: slow.get(0.05) is not None or bool(lost))
            assert lost


def test_threads_wait_for_each_other_no_longer_than_needed() -> None:
    """Four members come and go while others read: nothing is lost, and it ends."""
    with penstock.open(None, num_partitions=4) as mq:
        mq.admin.create_topic("log")
        seen: set[str] = set()
        stop = threading.Event()

        def member() -> None:
            while not stop.is_set():
                with mq.subscribe("log", group="g") as messages:
                    for message in messages.batch(20, timeout=0.2):
                        seen.add(message.text)

        threads = [threading.Thread(target=member) for _ in range(4)]
        for thread in threads:
            thread.start()
        names = [str(n) for n in range(300)]
        for start in range(0, 300, 30):
            mq.publish_many("log", names[start : start + 30], key_of=lambda n: n)
        try:
            eventually(lambda: len(seen) == 300, within=60)
        finally:
            stop.set()
            for thread in threads:
                thread.join(20)
