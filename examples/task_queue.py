"""A task queue: functions that work in threads, retries, and dead letters."""

from __future__ import annotations

import tempfile
import threading

import penstock


def main(directory: str) -> None:
    with penstock.open(directory) as mq:
        mails = mq.queue("mails", max_priority=9)
        everything_is_done = threading.Barrier(4 + 1)

        @mq.worker(mails, concurrency=4, max_retries=2, backoff=0.1)
        def send_mail(message: penstock.Message) -> None:
            address = message.json()["to"]
            if "@" not in address:
                raise ValueError(f"{address!r} is no address")
            print(f"mail to {address}")
            everything_is_done.wait()

        mails.publish({"to": "anna@example.org"}, serializer="json")
        mails.publish({"to": "ben@example.org"}, serializer="json", priority=9)
        mails.publish({"to": "clara@example.org"}, serializer="json", delay=0.2)
        mails.publish({"to": "dora@example.org"}, serializer="json")
        mails.publish({"to": "nobody"}, serializer="json")
        everything_is_done.wait(30)

        dead = mails.dead_letters.get(timeout=30)
        assert dead is not None
        print(f"dead letter {dead.json()}: {dead.error}")
        dead.ack()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(directory)
