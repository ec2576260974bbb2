"""aiokafka behind the shape of `support.clients`: each verb runs an event loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from support.clients import Record, Refused

PATIENCE_S = 10.0
T = TypeVar("T")


async def take(source: AIOKafkaConsumer, count: int, *, within: float = PATIENCE_S) -> list[Any]:
    taken: list[Any] = []
    async with asyncio.timeout(within):
        while len(taken) < count:
            got = await source.getmany(timeout_ms=100, max_records=count - len(taken))
            for messages in got.values():
                taken += messages
    return taken


def as_record(message: Any) -> Record:
    headers = tuple((name, value) for name, value in message.headers)
    return Record(
        message.value,
        message.key,
        headers,
        message.timestamp,
        message.partition,
        message.offset,
    )


class AioKafka:
    name = "aiokafka"

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> list[int]:
        async def run() -> list[int]:
            sender = AIOKafkaProducer(
                bootstrap_servers=self.bootstrap,
                compression_type=None if codec == "none" else codec,
                acks="all" if acks == "all" else int(acks),
                enable_idempotence=idempotent,
                max_request_size=20_000_000,
                linger_ms=5,
            )
            await sender.start()
            try:
                futures = [
                    await sender.send(
                        topic,
                        record.value,
                        record.key,
                        partition=record.partition,
                        timestamp_ms=record.timestamp,
                        headers=list(record.headers),
                    )
                    for record in records
                ]
                try:
                    done = await asyncio.wait_for(asyncio.gather(*futures), PATIENCE_S)
                except KafkaError as error:
                    raise Refused(type(error).__name__, str(error)) from error
                return [] if acks == "0" else [one.offset for one in done]
            finally:
                await sender.stop()

        return asyncio.run(run())

    def _with_consumer(self, work: Callable[[AIOKafkaConsumer], Awaitable[T]], **options: Any) -> T:
        async def run() -> T:
            source = AIOKafkaConsumer(
                bootstrap_servers=self.bootstrap,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                fetch_max_wait_ms=100,
                fetch_max_bytes=52_428_800,
                max_partition_fetch_bytes=1_048_576,
                **options,
            )
            await source.start()
            try:
                return await work(source)
            finally:
                await source.stop()

        return asyncio.run(run())

    def read(
        self,
        topic: str,
        count: int,
        *,
        start: int = 0,
        partition: int = 0,
        committed_only: bool = False,
    ) -> list[Record]:
        async def work(source: AIOKafkaConsumer) -> list[Record]:
            where = TopicPartition(topic, partition)
            source.assign([where])
            source.seek(where, start)
            return [as_record(message) for message in await take(source, count)]

        level = "read_committed" if committed_only else "read_uncommitted"
        return self._with_consumer(work, isolation_level=level)

    def offset_at(self, topic: str, timestamp: int, *, partition: int = 0) -> int | None:
        async def work(source: AIOKafkaConsumer) -> int | None:
            where = TopicPartition(topic, partition)
            source.assign([where])
            found = (await source.offsets_for_times({where: timestamp}))[where]
            return None if found is None else int(found.offset)

        return self._with_consumer(work)

    def watermarks(self, topic: str, *, partition: int = 0) -> tuple[int, int]:
        async def work(source: AIOKafkaConsumer) -> tuple[int, int]:
            where = TopicPartition(topic, partition)
            source.assign([where])
            low = await source.beginning_offsets([where])
            high = await source.end_offsets([where])
            return low[where], high[where]

        return self._with_consumer(work)

    def read_group(self, topic: str, group: str, count: int) -> list[Record]:
        async def work(source: AIOKafkaConsumer) -> list[Record]:
            source.subscribe([topic])
            taken = [as_record(message) for message in await take(source, count, within=20)]
            await source.commit()
            return taken

        return self._with_consumer(work, group_id=group, session_timeout_ms=6000)
