"""pika as people use it: `python -m benchmarks.amqp_pika HOST PORT MESSAGES TYPE` prints a rate.

A SelectConnection publishes persistent messages with confirms, up to 1,000 outstanding; a
BlockingConnection in another process consumes with a prefetch of 500 and acknowledges each.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from typing import Any

import pika

QUEUE = "bench-pika"
WINDOW = 1000


def consume(host: str, port: int, count: int, pipe: Any) -> None:
    connection = pika.BlockingConnection(pika.ConnectionParameters(host, port, heartbeat=0))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=500)
    seen = 0

    def take(ch: Any, method: Any, _: Any, __: bytes) -> None:
        nonlocal seen
        seen += 1
        ch.basic_ack(method.delivery_tag)
        if seen == count:
            ch.stop_consuming()

    channel.basic_consume(QUEUE, take)
    pipe.send("ready")
    channel.start_consuming()
    pipe.send(time.perf_counter())
    connection.close()


class Publisher:
    def __init__(self, host: str, port: int, count: int) -> None:
        self.count = count
        self.sent = self.confirmed = 0
        self.properties = pika.BasicProperties(delivery_mode=2)
        self.connection = pika.SelectConnection(
            pika.ConnectionParameters(host, port, heartbeat=0),
            on_open_callback=lambda c: c.channel(on_open_callback=self.opened),
        )

    def opened(self, channel: Any) -> None:
        self.channel = channel
        channel.confirm_delivery(self.acked, callback=lambda _: self.fill())

    def fill(self) -> None:
        while self.sent < self.count and self.sent - self.confirmed < WINDOW:
            self.channel.basic_publish("", QUEUE, b"x" * 100, self.properties)
            self.sent += 1

    def acked(self, frame: Any) -> None:
        if frame.method.multiple:
            self.confirmed = frame.method.delivery_tag
        else:
            self.confirmed += 1
        if self.confirmed >= self.count:
            self.connection.ioloop.stop()
        else:
            self.fill()


def main() -> None:
    host, port, count, kind = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    connection = pika.BlockingConnection(pika.ConnectionParameters(host, port, heartbeat=0))
    channel = connection.channel()
    channel.queue_declare(QUEUE, durable=True, arguments={"x-queue-type": kind})
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    worker = context.Process(target=consume, args=(host, port, count, theirs), daemon=True)
    worker.start()
    ours.recv()
    started = time.perf_counter()
    Publisher(host, port, count).connection.ioloop.start()
    finished = ours.recv()
    worker.join()
    channel.queue_delete(QUEUE)
    connection.close()
    sys.stdout.write(f"{count / (finished - started):.1f}\n")


if __name__ == "__main__":
    main()
