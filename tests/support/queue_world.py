"""Queues, exchanges and users over a log in memory: the services as a broker has them, no sockets.

The clock stands still until a test moves it. A world can be stopped, killed, or lose its power, and
started again on the same disk and catalogue.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from penstock.catalogue.sqlite import SqliteCatalogue
from penstock.catalogue.sqlite_messaging import SqliteMessagingCatalogue
from penstock.log.flusher import Flusher
from penstock.log.store import LogStore
from penstock.model import message_properties
from penstock.model.queue_record import Message
from penstock.runtime.clock import ManualClock
from penstock.runtime.memory_disk import MemoryDisk
from penstock.services.live_queue import LiveQueue
from penstock.services.messaging import Messaging
from penstock.services.partitions import Partitions
from penstock.services.session import AnySubscription, Session
from penstock.services.subscription import Delivery
from penstock.services.topics import Topics
from penstock.services.users import User

LOTS = 1 << 30


class World:
    """One broker's queues."""

    def __init__(self, disk: MemoryDisk | None = None) -> None:
        self.disk = disk or MemoryDisk(volatile=True)
        self.clock = ManualClock()
        self.catalogue = SqliteCatalogue.open(":memory:")
        self.store: LogStore
        self.topics: Topics
        self.partitions: Partitions
        self.messaging: Messaging
        self.session: Session
        self._flusher: Flusher

    async def start(self) -> None:
        contents = await self.catalogue.load()
        self.store = LogStore(self.disk, self.clock)
        await self.store.open({row.topic.name: row.topic.id for row in contents.topics})
        self.topics = Topics(self.catalogue, self.clock)
        await self.topics.load(contents.topics)
        self._flusher = Flusher(on_fatal=_fatal)
        self.partitions = Partitions(
            self.topics, self.store, self._flusher, self.clock, self.store.leader_epoch
        )
        self.messaging = Messaging(
            SqliteMessagingCatalogue(self.catalogue),
            self.topics,
            self.partitions,
            self.store,
            self._flusher,
            self.clock,
        )
        await self.messaging.load()
        self.session = await self.open()

    async def open(self, user: str = "guest", vhost: str = "/") -> Session:
        return await self.messaging.open_session(User(user), vhost, connection="test")

    async def stop(self) -> None:
        """A clean stop."""
        await self.session.close()
        await self.messaging.close()
        await self.partitions.close()
        await self._flusher.close()
        await self.store.close()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def kill(self, *, power: bool = False) -> None:
        """The process dies; with `power`, what was not synced dies, too. Then it starts again."""
        for queue in self.messaging.queues.all():
            if queue.live is not None:
                queue.live.is_closed = True
                queue.live.journal.close(write=False)
        await self.messaging.delays.close()
        await self.messaging.queues.dead_letters.close()
        if power:
            self.disk.lose_power()
        else:
            self.disk.kill_owner()
        await self.start()

    # --- short cuts -------------------------------------------------------------------------------

    async def declare(self, name: str, **arguments: Any) -> None:
        """A durable queue; `x_max_length=5` and the like are its arguments."""
        names = {key.replace("_", "-"): value for key, value in arguments.items()}
        await self.session.declare_queue(name, durable=True, arguments=names)

    async def publish(
        self,
        queue: str,
        *bodies: bytes | str,
        exchange: str = "",
        headers: Mapping[str, object] | None = None,
        **properties: Any,
    ) -> list[int]:
        """Publish and wait until it is safe; indexes of what was refused."""
        raw = message_properties.build(headers=headers, **properties)
        messages = [
            Message(exchange, queue, raw, one if isinstance(one, bytes) else one.encode())
            for one in bodies
        ]
        publication = self.session.publish(messages)
        refused = list(await publication.settled())
        await self.settle()
        return refused

    async def live(self, queue: str, vhost: str = "/") -> LiveQueue:
        return await self.messaging.vhosts[vhost].queue(queue).wake()

    async def consume(self, queue: str, tag: str = "c", **options: Any) -> AnySubscription:
        return await self.session.subscribe(queue, tag=tag, **options)

    async def pass_time(self, milliseconds: int) -> None:
        """Move the clock and let the queues notice."""
        self.clock.advance(milliseconds)
        for queue in self.messaging.queues.all():
            if queue.live is not None:
                queue.live.wake()
        await self.settle()

    async def settle(self) -> None:
        """Let everything that is ready to run do so."""
        for _ in range(12):
            await asyncio.sleep(0)

    async def eventually(self, condition: Callable[[], object], what: str) -> None:
        for _ in range(400):
            if condition():
                return
            await asyncio.sleep(0.005)
        raise AssertionError(what)


async def take(
    subscription: AnySubscription, limit: int = 100, *, wait: bool = True
) -> list[Delivery]:
    """What the consumer gets; without `wait`, [] when there is nothing now."""
    if wait:
        await asyncio.wait_for(subscription.ready(), 5)
    else:
        try:
            await asyncio.wait_for(subscription.ready(), 0.05)
        except TimeoutError:
            return []
    return subscription.try_take(limit, LOTS)


def bodies(deliveries: list[Delivery]) -> list[str]:
    return [bytes(delivery.body).decode() for delivery in deliveries]


class SlowDisk(MemoryDisk):
    """A disk whose syncs wait in a thread until `gate` is set; its reads wait in one, too."""

    def __init__(self) -> None:
        super().__init__(volatile=True)
        self.gate = threading.Event()
        self.gate.set()

    @property
    def syncs_instantly(self) -> bool:
        return False

    def maybe_fail(self, operation: str, path: str) -> None:
        super().maybe_fail(operation, path)
        if operation == "sync":
            assert self.gate.wait(30)


def in_world(
    test: Callable[[World], Coroutine[Any, Any, None]],
    disk: Callable[[], MemoryDisk] | None = None,
) -> Callable[[], None]:
    """Run a test that is a coroutine in a world of its own."""

    def run() -> None:
        async def scenario() -> None:
            world = World(disk and disk())
            await world.start()
            await test(world)
            await world.stop()
            await world.catalogue.close()

        asyncio.run(scenario())

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    return run


def _fatal(failure: BaseException) -> None:
    raise AssertionError(f"a sync failed: {failure}")
