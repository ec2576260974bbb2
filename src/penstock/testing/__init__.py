"""For the tests of those who use Penstock, or any Kafka or AMQP client.

    def test_orders(penstock_broker):                  # pytest: a fresh broker, ready in no time
        producer = Producer({"bootstrap.servers": penstock_broker.kafka})

    class OrdersTest(unittest.TestCase):               # unittest
        def setUp(self):
            self.broker = self.enterContext(penstock.testing.broker())

The broker is the real one, in this process and in memory. Its clock can be moved
(`broker.advance(60)`), and it can be made to fail as real ones do (`broker.faults`).
"""

from __future__ import annotations

from penstock.testing.broker import BrokerForTests, broker
from penstock.testing.faults import Faults

__all__ = ["BrokerForTests", "Faults", "broker"]
