"""Queues move between AMQP brokers with every property; RabbitMQ on either side where it is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pika
import pytest

from penstock.spark.errors import SparkConnectorError
from penstock.spark.pipeline import dry_run, run
from support.waiting import eventually

pytestmark = pytest.mark.own_broker
COUNT = 700  # more than one batch
LONG_AGO = datetime(2026, 1, 2, tzinfo=UTC)
SOME = {"list": [1, "two", None], "table": {"deep": {"er": True}}, "when": LONG_AGO}
Channel = Any


def _address(port: int, host: str = "127.0.0.1") -> str:
    return f"amqp://guest:guest@{host}:{port}/%2F"


@contextmanager
def _channel(address: str) -> Iterator[Channel]:
    connection = pika.BlockingConnection(pika.URLParameters(address))
    yield connection.channel()
    connection.close()


def _properties(at: int) -> pika.BasicProperties:
    """All of AMQP's properties, and headers of many types."""
    return pika.BasicProperties(
        content_type="text/plain",
        content_encoding="utf-8",
        headers={"n": at, "big": 1 << 40, "price": Decimal("12.34"), "raw": b"\x00\xff", **SOME},
        delivery_mode=2 if at % 2 else 1,
        priority=at % 5,
        correlation_id=f"c{at}",
        reply_to="answers",
        expiration="86400000",
        message_id=f"m{at}",
        timestamp=int(LONG_AGO.timestamp()) + at,
        type="job",
        user_id="guest",
        app_id="tests",
    )


def _publish(address: str, queue: str, low: int, high: int) -> None:
    with _channel(address) as channel:
        channel.queue_declare(queue, durable=True)
        channel.confirm_delivery()
        for at in range(low, high):
            channel.basic_publish("", queue, b"job %d" % at, _properties(at))


def _drain(address: str, queue: str, count: int) -> list[tuple[bytes, dict[str, Any]]]:
    """All messages of a queue, in order."""
    found = []
    with _channel(address) as channel:
        for method, properties, body in channel.consume(queue, inactivity_timeout=20):
            assert method is not None, f"only {len(found)} of {count} messages"
            found.append((body, vars(properties)))
            if len(found) == count:
                break
        channel.basic_ack(method.delivery_tag, multiple=True)
        channel.cancel()
        assert channel.queue_declare(queue, passive=True).method.message_count == 0
    return found


def _shovel(here: str, there: str, more: str = "") -> str:
    return f"""
kind = "mirror"
queues = ["work"]
{more}
[source]
amqp = "{here}"
[target]
amqp = "{there}"
"""


def _check_shovel(here: str, there: str, pipeline: Any) -> None:
    """What must hold between any two brokers."""
    _publish(here, "work", 0, COUNT)
    said = pipeline(_shovel(here, there))
    assert dry_run(said) == {"queues": {"work": COUNT}}
    assert run(said).rows == COUNT
    assert dry_run(said) == {"queues": {"work": 0}}
    expected = [(b"job %d" % at, vars(_properties(at))) for at in range(COUNT)]
    assert _drain(there, "work", COUNT) == expected


def test_a_queue_moves_to_another_penstock_with_all_properties(
    start_broker: Callable[..., Any], tmp_path: Path, pipeline: Any
) -> None:
    here, there = (_address(start_broker(tmp_path / name).amqp_port) for name in ("a", "b"))
    _check_shovel(here, there, pipeline)


@pytest.mark.timeout(400)
def test_a_queue_moves_from_rabbitmq_and_back_with_all_properties(
    start_broker: Callable[..., Any],
    tmp_path: Path,
    pipeline: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from benchmarks.amqp_peers import rabbitmq
    from benchmarks.peers import Unavailable

    ours = _address(start_broker(tmp_path / "ours").amqp_port)
    monkeypatch.chdir(tmp_path)
    try:
        with rabbitmq() as running:
            theirs = _address(running.port, running.host)
            _check_shovel(theirs, ours, pipeline)
            _check_shovel(ours, theirs, pipeline)
    except Unavailable as why:
        pytest.skip(f"queues from and to RabbitMQ: {why}")


def test_a_mirror_that_goes_on_waits_for_brokers_that_restart(
    start_broker: Callable[..., Any], tmp_path: Path, pipeline: Any
) -> None:
    source, target = (start_broker(tmp_path / name) for name in ("a", "b"))
    here, there = _address(source.amqp_port), _address(target.amqp_port)
    _publish(here, "work", 1, 100)  # the odd ones survive a broker: their delivery mode says so
    stop = threading.Event()
    moved: list[int] = []
    said = pipeline(_shovel(here, there, 'every = "100 ms"'))
    failed: list[BaseException] = []

    def work() -> None:
        try:
            run(said, show=lambda figures: moved.append(figures.rows), stop=stop)
        except BaseException as failure:
            failed.append(failure)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        eventually(lambda: failed or sum(moved) >= 99, within=60)
        for broker in (source, target):
            broker.kill()
            broker.start()
        _publish(here, "work", 100, 150)
        eventually(lambda: failed or sum(moved) >= 149, within=90)
    finally:
        stop.set()
        thread.join(60)
    assert failed == []
    with _channel(there) as channel:
        found = set()
        for method, _, body in channel.consume("work", auto_ack=True, inactivity_timeout=3):
            if method is None:
                break
            found.add(body)
        channel.cancel()
    durable = {b"job %d" % at for at in range(1, 100, 2)}
    assert durable | {b"job %d" % at for at in range(100, 150)} <= found


def test_a_queue_of_the_target_is_taken_as_it_is_and_one_that_is_missing_here_is_told(
    start_broker: Callable[..., Any], tmp_path: Path, pipeline: Any
) -> None:
    here, there = (_address(start_broker(tmp_path / name).amqp_port) for name in ("a", "b"))
    with _channel(there) as channel:
        channel.queue_declare("work", durable=True, arguments={"x-max-length": 5})
    said = pipeline(_shovel(here, there))
    with pytest.raises(SparkConnectorError, match=r"queue work: .*NOT_FOUND"):
        run(said)
    _publish(here, "work", 0, 8)
    assert run(said).rows == 8
    assert [body for body, _ in _drain(there, "work", 5)] == [b"job %d" % at for at in range(3, 8)]
