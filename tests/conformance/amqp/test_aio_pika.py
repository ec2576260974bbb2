"""aio-pika: its robust connection, confirms, iterators, RPC and patterns, and its errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel, AbstractConnection
from aio_pika.exceptions import ChannelNotFoundEntity, ChannelPreconditionFailed, DeliveryError
from aio_pika.patterns import RPC, Master

from support.naming import unique

Test = Callable[[AbstractConnection, AbstractChannel], Awaitable[None]]


@pytest.fixture
def run(amqp: Any) -> Callable[[Test], None]:
    def start(test: Test) -> None:
        async def main() -> None:
            connection = await aio_pika.connect_robust(amqp.url, timeout=10)
            async with connection, asyncio.timeout(30):
                channel = await connection.channel()
                await test(connection, channel)

        asyncio.run(main())

    return start


def test_messages_are_confirmed_consumed_and_acknowledged(run: Callable[[Test], None]) -> None:
    async def test(_: AbstractConnection, channel: AbstractChannel) -> None:
        await channel.set_qos(prefetch_count=10)
        queue = await channel.declare_queue(unique("aio"), durable=True)
        bodies = [b"%d" % number for number in range(100)]
        await asyncio.gather(
            *(
                channel.default_exchange.publish(
                    aio_pika.Message(body, delivery_mode=2, headers={"n": 1}), queue.name
                )
                for body in bodies
            )
        )
        got = []
        async with queue.iterator() as messages:
            async for message in messages:
                async with message.process():
                    assert message.headers == {"n": 1}
                    got.append(message.body)
                if len(got) == 100:
                    break
        assert got == bodies
        await queue.delete(if_unused=False, if_empty=False)

    run(test)


def test_a_message_that_fails_is_requeued_or_dropped(run: Callable[[Test], None]) -> None:
    async def test(_: AbstractConnection, channel: AbstractChannel) -> None:
        queue = await channel.declare_queue("", exclusive=True)
        await channel.default_exchange.publish(aio_pika.Message(b"x"), queue.name)
        message = await queue.get()
        assert message is not None
        await message.nack(requeue=True)
        message = await queue.get(timeout=5)
        assert message is not None
        assert message.redelivered
        await message.reject(requeue=False)
        assert await queue.get(fail=False) is None

    run(test)


def test_exchanges_of_every_type_are_declared_and_bound(run: Callable[[Test], None]) -> None:
    async def test(_: AbstractConnection, channel: AbstractChannel) -> None:
        queue = await channel.declare_queue("", exclusive=True)
        for kind in ("direct", "fanout", "topic", "headers"):
            exchange = await channel.declare_exchange(unique(kind), kind, auto_delete=True)
            arguments = {"x-match": "all", "a": "1"} if kind == "headers" else {}
            await queue.bind(exchange, "key", arguments=arguments)
            message = aio_pika.Message(kind.encode(), headers={"a": "1"})
            await exchange.publish(message, "key")
            got = await queue.get(timeout=5)
            assert got is not None
            assert got.body == kind.encode()
            await got.ack()

    run(test)


def test_errors_are_exceptions_of_their_own(run: Callable[[Test], None]) -> None:
    async def test(connection: AbstractConnection, channel: AbstractChannel) -> None:
        with pytest.raises(ChannelNotFoundEntity):
            await channel.declare_queue(unique("nope"), passive=True)
        other = await connection.channel()
        name = unique("strict")
        await other.declare_queue(name, auto_delete=True)
        with pytest.raises(ChannelPreconditionFailed):
            await other.declare_queue(name, auto_delete=True, durable=True)

    run(test)


def test_what_cannot_be_delivered_raises(run: Callable[[Test], None]) -> None:
    async def test(connection: AbstractConnection, _: AbstractChannel) -> None:
        channel = await connection.channel(on_return_raises=True)
        with pytest.raises(DeliveryError):
            await channel.default_exchange.publish(aio_pika.Message(b"x"), unique("nowhere"))
        arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
        queue = await channel.declare_queue("", exclusive=True, arguments=arguments)
        await channel.default_exchange.publish(aio_pika.Message(b"1"), queue.name)
        with pytest.raises(DeliveryError):
            await channel.default_exchange.publish(aio_pika.Message(b"2"), queue.name)

    run(test)


def test_a_transaction_commits_or_not(run: Callable[[Test], None]) -> None:
    async def test(connection: AbstractConnection, _: AbstractChannel) -> None:
        channel = await connection.channel(publisher_confirms=False)
        queue = await channel.declare_queue("", exclusive=True)
        async with channel.transaction():
            await channel.default_exchange.publish(aio_pika.Message(b"kept"), queue.name)

        async def fail() -> None:
            async with channel.transaction():
                await channel.default_exchange.publish(aio_pika.Message(b"lost"), queue.name)
                raise RuntimeError

        with pytest.raises(RuntimeError):
            await fail()
        got = await queue.get(timeout=5)
        assert got is not None
        assert got.body == b"kept"
        assert await queue.get(fail=False) is None

    run(test)


def test_its_remote_calls_work(run: Callable[[Test], None]) -> None:
    async def test(_: AbstractConnection, channel: AbstractChannel) -> None:
        rpc = await RPC.create(channel)

        async def multiply(*, x: int, y: int) -> int:
            return x * y

        name = unique("multiply")
        await rpc.register(name, multiply, auto_delete=True)
        assert await asyncio.gather(
            *(rpc.call(name, kwargs={"x": x, "y": 3}) for x in range(10))
        ) == [x * 3 for x in range(10)]
        await rpc.close()

    run(test)


def test_its_master_and_worker_work(run: Callable[[Test], None]) -> None:
    async def test(_: AbstractConnection, channel: AbstractChannel) -> None:
        master, done, name = Master(channel), asyncio.Event(), unique("task")

        async def work(*, task_id: int) -> None:
            if task_id == 9:
                done.set()

        worker = await master.create_worker(name, work, auto_delete=True)
        for number in range(10):
            await master.create_task(name, kwargs={"task_id": number})
        await done.wait()
        await worker.close()

    run(test)


def test_priority_and_expiration_are_kept(run: Callable[[Test], None]) -> None:
    async def test(_: AbstractConnection, channel: AbstractChannel) -> None:
        arguments = {"x-max-priority": 5}
        queue = await channel.declare_queue("", exclusive=True, arguments=arguments)
        for priority in (1, 5, 3):
            message = aio_pika.Message(b"%d" % priority, priority=priority, expiration=60)
            await channel.default_exchange.publish(message, queue.name)
        got = [await queue.get(timeout=5) for _ in range(3)]
        assert [one.body for one in got if one] == [b"5", b"3", b"1"]
        assert all(one is not None and one.expiration == 60 for one in got)

    run(test)


@pytest.mark.own_broker
def test_a_robust_connection_survives_a_restart(start_broker: Callable[..., Any]) -> None:
    broker = start_broker()

    async def main() -> None:
        url = f"amqp://guest:guest@{broker.host}:{broker.amqp_port}/?reconnect_interval=0.3"
        connection = await aio_pika.connect_robust(url)
        async with connection, asyncio.timeout(40):
            channel = await connection.channel()
            queue = await channel.declare_queue("survivor", durable=True)
            got: asyncio.Queue[bytes] = asyncio.Queue()

            async def take(message: aio_pika.abc.AbstractIncomingMessage) -> None:
                async with message.process():
                    await got.put(message.body)

            await queue.consume(take)
            await channel.default_exchange.publish(aio_pika.Message(b"before"), "survivor")
            assert await got.get() == b"before"
            await asyncio.to_thread(broker.restart)
            await connection.connected.wait()
            while True:
                try:
                    await channel.default_exchange.publish(aio_pika.Message(b"after"), "survivor")
                    break
                except (aio_pika.exceptions.AMQPError, ConnectionError, RuntimeError):
                    await asyncio.sleep(0.2)
            assert await got.get() == b"after"

    asyncio.run(main())
