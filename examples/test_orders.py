"""Tests with a real broker: fresh for each test, ready in a moment, no Docker.

pytest examples/test_orders.py
"""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Consumer, Producer

from penstock import Unavailable
from penstock.testing import BrokerForTests


def place_order(bootstrap: str, order: dict[str, object]) -> None:
    """What is to be tested: it knows Kafka, and nothing of Penstock."""
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("orders", json.dumps(order), key=str(order["user"]))
    producer.flush()


def test_an_order_is_published(penstock_broker: BrokerForTests) -> None:
    place_order(penstock_broker.kafka, {"user": 7, "item": "apple"})
    consumer = Consumer(
        {
            "bootstrap.servers": penstock_broker.kafka,
            "group.id": "test",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["orders"])
    message = consumer.poll(30)
    consumer.close()
    assert message is not None
    assert json.loads(message.value()) == {"user": 7, "item": "apple"}


def test_each_test_has_a_broker_of_its_own(penstock_broker: BrokerForTests) -> None:
    assert penstock_broker.client.admin.topics() == []


def test_an_offer_expires_after_an_hour(penstock_broker: BrokerForTests) -> None:
    offers = penstock_broker.client.queue("offers")
    offers.publish("half price", ttl=3600)
    penstock_broker.advance(3601)  # no waiting: the broker's clock is ours
    assert offers.get() is None


def test_a_full_disk_is_told(penstock_broker: BrokerForTests) -> None:
    with penstock_broker.faults.disk_full(), pytest.raises(Unavailable):
        penstock_broker.client.publish("orders", "x")
    penstock_broker.client.publish("orders", "now there is room")
