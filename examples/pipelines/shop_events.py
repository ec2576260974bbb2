"""A shop's events as they come in reality: some late, some twice, some wrong, not all paid.

    python examples/pipelines/shop_events.py 127.0.0.1:9092 2000

fills the topics `orders` and `payments` with two hours of them, up to now.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import Producer

ITEMS = {"tea": 4.5, "coffee": 7.0, "cocoa": 5.2, "honey": 9.9, "jam": 3.8, "oil": 12.0}
CUSTOMERS = [f"customer-{number}" for number in range(40)]
SPAN_S = 7200


def events(count: int, now_s: float, seed: int = 7) -> Iterator[dict[str, Any]]:
    """Arguments of `produce`, in the order in which they arrive."""
    chance = random.Random(seed)
    waiting: list[tuple[float, dict[str, Any]]] = []
    for number in range(1, count + 1):
        at = now_s - SPAN_S + SPAN_S * number / count
        item = chance.choices(list(ITEMS), weights=[8, 6, 3, 2, 2, 1])[0]
        amount = round(ITEMS[item] * chance.randint(1, 4), 2)
        customer = chance.choice(CUSTOMERS)
        order = {
            "id": number,
            "customer": customer,
            "item": item,
            "amount": amount,
            "time": _iso(at),
        }
        late_s = chance.expovariate(1 / 120) if chance.random() < 0.05 else 0.0
        waiting.append((at + late_s, _event("orders", customer, order, at + late_s)))
        if chance.random() < 0.02:  # a retry of the web shop
            waiting.append((at + 3, _event("orders", customer, order, at + 3)))
        if chance.random() < 0.01:
            wrong = {**order, "amount": -amount}
            waiting.append((at, _event("orders", customer, wrong, at)))
        if chance.random() < 0.005:
            waiting.append((at, {**_event("orders", customer, order, at), "value": b"{half an or"}))
        if chance.random() < 0.9:
            paid = at + chance.uniform(5, 400)
            payment = {
                "order_id": number,
                "method": chance.choice(["card", "bank"]),
                "paid_at": _iso(paid),
            }
            waiting.append((paid, _event("payments", str(number), payment, paid)))
    for _, event in sorted(waiting, key=lambda pair: pair[0]):
        yield event


def _event(topic: str, key: str, body: dict[str, Any], at: float) -> dict[str, Any]:
    value = json.dumps(body).encode()
    return {"topic": topic, "key": key, "value": value, "timestamp": int(at * 1000)}


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def fill(bootstrap: str, count: int) -> int:
    """Send them; how many there were."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    sent = 0
    for event in events(count, time.time()):
        producer.produce(**event)
        producer.poll(0)
        sent += 1
    producer.flush(30)
    return sent


if __name__ == "__main__":
    print(fill(sys.argv[1], int(sys.argv[2])), "events sent")
