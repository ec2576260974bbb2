"""One consumer of the demonstration's group, as a process that can be killed.

Run as `python -m penstock.cli.demo.worker BOOTSTRAP GROUP TOPIC`. Each line it prints is JSON:
`{"holds": [0, 3]}` when its partitions change, `{"seen": [[0, 17], ...]}` for records processed,
written before they are committed. It ends when standard input does.
"""

from __future__ import annotations

import json
import select
import sys
from typing import Any

from confluent_kafka import Consumer


def _tell(**news: Any) -> None:
    sys.stdout.write(json.dumps(news) + "\n")
    sys.stdout.flush()


def main(bootstrap: str, group: str, topic: str) -> None:
    """Process records until nobody listens any more."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "log_level": 0,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": 2000,
            "heartbeat.interval.ms": 300,
            "auto.commit.interval.ms": 200,
            "enable.auto.offset.store": False,
        }
    )
    consumer.subscribe([topic])
    held: list[int] = []
    while not select.select([sys.stdin], [], [], 0)[0]:
        messages = [m for m in consumer.consume(500, timeout=0.1) if m.error() is None]
        if messages:
            _tell(seen=[[m.partition(), m.offset()] for m in messages])
            for message in messages:
                consumer.store_offsets(message=message)
        now = sorted(place.partition for place in consumer.assignment())
        if now != held:
            held = now
            _tell(holds=held)
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
