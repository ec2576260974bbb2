"""Clients of both doors that go in the middle: nothing they said is left hanging."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

from pamqp import commands

from penstock.app import Broker
from penstock.config import BrokerConfig
from penstock.options.option import Address
from penstock.runtime.memory_disk import MemoryDisk
from support import batches
from support.amqp_wire import AmqpWire, Content
from support.queue_world import SlowDisk
from support.wire import encode_request

ANY = Address("127.0.0.1", 0)


def with_broker(work: Callable[[Broker], Awaitable[None]], disk: MemoryDisk) -> None:
    async def scenario() -> None:
        config = BrokerConfig(memory=True, kafka=ANY, amqp=ANY, http=None)
        broker = Broker(config, disk=disk)
        await broker.open()
        await work(broker)
        await broker.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))


async def until(condition: Callable[[], object]) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came true")


def test_what_was_produced_by_a_client_that_reads_no_answers_and_goes_is_appended() -> None:
    async def check(broker: Broker) -> None:
        services, kafka = broker.services, broker.kafka
        assert kafka is not None
        await services.topics.create("wide", partitions=1000)
        await services.topics.create("orders", partitions=1)
        asked = encode_request("metadata", 4, {"topics": [{"name": "wide"}]})
        produced = encode_request(
            "produce",
            7,
            {
                "acks": 0,
                "timeout": 1000,
                "topic_data": [
                    {
                        "name": "orders",
                        "partition_data": [{"index": 0, "records": batches.batch([b"a"])}],
                    }
                ],
            },
        )
        address = broker.addresses["kafka"]
        assert address is not None
        client = await asyncio.to_thread(socket.create_connection, address)
        await asyncio.to_thread(client.sendall, asked * 400 + produced)
        await until(lambda: kafka.connections)
        (connection,) = kafka.connections
        await until(lambda: connection._waiting and not connection._writable)
        await until(lambda: not connection._replies)
        client.close()
        await until(lambda: not kafka.connections)
        replica = await services.partitions.replica("orders", 0)
        await until(lambda: replica.log.end_offset == 1)
        assert kafka._queued_bytes == 0, "nothing of it counts as waiting any more"

    with_broker(check, MemoryDisk())


def test_what_a_transaction_acknowledged_comes_back_when_its_client_goes_during_the_commit() -> (
    None
):
    disk = SlowDisk()

    def begin(address: tuple[str, int]) -> AmqpWire:
        wire = AmqpWire(*address).handshake().channel()
        for name in ("q", "out"):
            wire.call(1, commands.Queue.Declare(queue=name, durable=True), commands.Queue.DeclareOk)
        wire.publish("", "q", b"a")
        wire.publish("", "out", b"warm")
        wire.call(1, commands.Tx.Select(), commands.Tx.SelectOk)
        wire.send(1, commands.Basic.Get(queue="q"))
        _, got = wire.read()
        assert isinstance(got, Content)
        wire.publish("", "out", b"b")
        wire.send(1, commands.Basic.Ack(1))
        disk.gate.clear()
        wire.send(1, commands.Tx.Commit())
        return wire

    async def check(broker: Broker) -> None:
        address = broker.addresses["amqp"]
        assert address is not None
        wire = await asyncio.to_thread(begin, address)
        out = broker.messaging.queues.by_topic("out")
        await until(lambda: out is not None and out.live is not None and out.live.log.pending)
        wire.close()
        await until(lambda: not broker.amqp.connections)
        disk.gate.set()
        queue = broker.messaging.queues.by_topic("q")
        assert queue is not None
        live = await queue.wake()
        await until(lambda: live.machine.ready == 1)
        assert live.machine.delivered == 0

    with_broker(check, disk)
