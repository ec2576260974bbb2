"""What publishing, delivering and acknowledging cost in the services, without a door.

    python -m benchmarks.queue_services [messages]

One process on a real disk, messages of 100 bytes in calls of 100, every call awaited until its
messages are on the medium while up to ten are under way, one consumer that acknowledges all it
takes. Prints messages a second and microseconds of CPU a message.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections import deque
from pathlib import Path

from penstock.catalogue.sqlite import SqliteCatalogue
from penstock.catalogue.sqlite_messaging import SqliteMessagingCatalogue
from penstock.log.flusher import Flusher
from penstock.log.store import LogStore
from penstock.model.queue_record import Message
from penstock.runtime.clock import SystemClock
from penstock.runtime.disk import OsDisk
from penstock.services.messaging import Messaging
from penstock.services.partitions import Partitions
from penstock.services.topics import Topics
from penstock.services.users import User

PERSISTENT = b"\x10\x00\x02"
UNDER_WAY = 10


async def run(count: int, directory: Path, arguments: dict[str, object]) -> None:
    clock = SystemClock()
    catalogue = SqliteCatalogue.open(directory / "catalogue.sqlite")
    store = LogStore(OsDisk(directory), clock)
    await store.open({})
    topics = Topics(catalogue, clock)
    flusher = Flusher(on_fatal=lambda failure: sys.exit(str(failure)))
    partitions = Partitions(topics, store, flusher, clock, 0)
    messaging = Messaging(
        SqliteMessagingCatalogue(catalogue), topics, partitions, store, flusher, clock
    )
    await messaging.load()
    session = await messaging.open_session(User("guest"), "/", connection="benchmark")
    await session.declare_queue("q", durable=True, arguments=arguments)
    subscription = await session.subscribe("q", tag="c", prefetch=500)
    taken = 0

    async def consume() -> None:
        nonlocal taken
        while taken < count:
            await subscription.ready()
            deliveries = subscription.try_take(500, 1 << 20)
            taken += len(deliveries)
            subscription.ack([one.offset for one in deliveries])

    began, cpu = time.perf_counter(), time.process_time()
    consuming = asyncio.create_task(consume())
    waiting: deque[asyncio.Future[object]] = deque()
    for _ in range(count // 100):
        messages = [Message("", "q", PERSISTENT, b"x" * 100) for _ in range(100)]
        publication = session.publish(messages)
        if publication.future is not None:
            waiting.append(publication.future)
        if len(waiting) >= UNDER_WAY:
            await waiting.popleft()
        else:
            await asyncio.sleep(0)
    await consuming
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    print(f"{count / seconds:10,.0f} messages/s  {cpu / count * 1e6:6.2f} us of CPU  {arguments}")
    await session.close()
    await messaging.close()
    await partitions.close()
    await flusher.close()
    await store.close()
    await catalogue.close()


def main() -> None:
    import uvloop

    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    for arguments in (
        {},
        {"x-max-priority": 9},
        {"x-message-ttl": 60_000},
        {"x-max-length": 10**6},
    ):
        with tempfile.TemporaryDirectory() as directory:
            uvloop.run(run(count, Path(directory), dict(arguments)))


if __name__ == "__main__":
    main()
