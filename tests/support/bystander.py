"""An innocent client beside a test: it writes and reads all the while and says how it fared."""

from __future__ import annotations

import threading
import time

from support.batches import batch, records
from support.broker import BrokerProcess, ForeignBroker
from support.fetching import fetch_bytes
from support.naming import unique
from support.wire import Wire, create_topic


def produce_request(topic: str, data: bytes) -> dict[str, object]:
    partition = {"index": 0, "records": data}
    topics = [{"name": topic, "partition_data": [partition]}]
    return {"transactional_id": None, "acks": -1, "timeout": 10_000, "topic_data": topics}


def produce(wire: Wire, topic: str, data: bytes) -> str:
    answer = wire.call("produce", 9, produce_request(topic, data))
    return str(answer.responses[0].partition_responses[0].error_code.name)


class Bystander(threading.Thread):
    """An innocent client. `slowest` is the longest it had to wait for anything."""

    def __init__(self, broker: BrokerProcess | ForeignBroker) -> None:
        super().__init__(daemon=True)
        self.wire = Wire(broker.host, broker.port, timeout=15)
        self.topic = unique("bystander")
        create_topic(self.wire, self.topic)
        self.done = threading.Event()
        self.failure: BaseException | None = None
        self.rounds = 0
        self.slowest = 0.0

    def run(self) -> None:
        try:
            while not self.done.wait(0.02):
                started = time.monotonic()
                value = b"%d" % self.rounds
                assert produce(self.wire, self.topic, batch([value])) == "none"
                data = fetch_bytes(self.wire, self.topic, self.rounds)
                assert [one.value for one in records(data)][-1] == value
                self.slowest = max(self.slowest, time.monotonic() - started)
                self.rounds += 1
        except BaseException as failure:
            self.failure = failure
