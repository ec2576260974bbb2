"""The scene of the queue: a worker over AMQP and a reader over Kafka, on the same messages.

pika comes with the `dev` extra; without it the scene says so and is left out.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from typing import Any

from penstock.cli.demo.broker import BrokerProcess
from penstock.cli.demo.stage import Stage
from penstock.cli.demo.topics import read_all
from penstock.cli.management import GUEST, Management
from penstock.cli.output import Failure

JOBS = 500
BAD = b"job 13"
WITHIN_S = 10.0
QUEUE, GRAVEYARD = "jobs", "jobs.failed"


def play_queue(stage: Stage, broker: BrokerProcess) -> None:
    stage.scene(
        "A queue is a log", f"pika works off {JOBS} jobs; Kafka reads the same messages, untaken"
    )
    if importlib.util.find_spec("pika") is None:
        stage.note("pika is not installed here (it comes with the dev extra), so this is left out")
        return
    import pika

    api = Management(broker.http, GUEST, GUEST)
    _declare(api)
    host, _, port = broker.amqp.rpartition(":")
    connection = pika.BlockingConnection(pika.ConnectionParameters(host, int(port), heartbeat=0))
    try:
        channel = connection.channel()
        seconds = _publish(channel)
        stage.fact(f"{JOBS} jobs published over AMQP, each confirmed when on disk: {seconds:.2f} s")
        read = [message.value() for message in read_all(broker.kafka, QUEUE)]
        if len(read) != JOBS or BAD not in read:
            raise Failure(f"Kafka's consumer read {len(read)} of {JOBS} jobs")
        stage.fact(f"a Kafka consumer read the topic {QUEUE}: all {len(read)}, none taken away")
        done = _work(channel, broken=True)
        stage.fact(
            f"a pika worker took and acknowledged {len(done)}, and rejected {BAD.decode()!r}"
        )
        _dead_letter(stage, api)
        done += _work(channel, broken=False)
        if len(set(done)) != JOBS:
            raise Failure(f"{len(set(done))} of {JOBS} jobs were done")
        stage.fact(f"redriven to {QUEUE}, and done: all {len(done)} jobs, each once")
    finally:
        connection.close()


def _declare(api: Management) -> None:
    """The two queues, empty: those of an earlier demonstration are deleted first."""
    there = {row["name"] for row in api.get("queues", "/")}
    for name in (QUEUE, GRAVEYARD):
        if name in there:
            api.delete("queues", "/", name)
    api.put("queues", "/", GRAVEYARD)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": GRAVEYARD}
    api.put("queues", "/", QUEUE, body={"arguments": arguments})


def _publish(channel: Any) -> float:
    channel.confirm_delivery()
    begin = time.perf_counter()
    for number in range(JOBS):
        channel.basic_publish("", QUEUE, f"job {number}".encode(), mandatory=True)
    return time.perf_counter() - begin


def _work(channel: Any, *, broken: bool) -> list[bytes]:
    """Work off what is there; a broken worker cannot do one of the jobs."""
    done: list[bytes] = []
    channel.basic_qos(prefetch_count=100)
    for method, _, body in channel.consume(QUEUE, inactivity_timeout=0.5):
        if method is None:
            break
        if broken and body == BAD:
            channel.basic_reject(method.delivery_tag, requeue=False)
        else:
            channel.basic_ack(method.delivery_tag)
            done.append(body)
    channel.cancel()
    return done


def _dead_letter(stage: Stage, api: Management) -> None:
    letters = _until(lambda: api.get("dead-letters", "/", GRAVEYARD), "the dead letter")
    [letter] = letters
    death = letter["death"]
    stage.fact(
        f"dead letter in {GRAVEYARD}: {letter['payload']!r}, {death['reason']} in {death['queue']}"
    )
    moved = api.post("dead-letters", "/", GRAVEYARD, "redrive")["moved"]
    if moved != 1:
        raise Failure(f"{moved} dead letters were sent back, not 1")


def _until(question: Callable[[], Any], what: str) -> Any:
    deadline = time.perf_counter() + WITHIN_S
    while not (answer := question()):
        if time.perf_counter() > deadline:
            raise Failure(f"{what} did not come within {WITHIN_S:.0f} s")
        time.sleep(0.05)
    return answer
