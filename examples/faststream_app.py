"""FastStream on a broker in the same process: no installation, no container."""

from __future__ import annotations

import asyncio

from faststream import FastStream
from faststream.kafka import KafkaBroker

import penstock


async def main() -> None:
    async with penstock.aio.open(None, kafka="127.0.0.1:0", num_partitions=1) as mq:
        broker = KafkaBroker(mq.kafka)
        app = FastStream(broker)
        is_done = asyncio.Event()

        @broker.subscriber("orders", group_id="billing", auto_offset_reset="earliest")
        @broker.publisher("bills")
        async def bill(order: dict[str, int]) -> str:
            return f"{order['amount']} euros"

        @broker.subscriber("bills", group_id="printing", auto_offset_reset="earliest")
        async def show(bill: str) -> None:
            print("a bill of", bill)
            is_done.set()

        running = asyncio.create_task(app.run())
        await mq.publish("orders", {"amount": 42}, serializer="json")
        await asyncio.wait_for(is_done.wait(), 60)
        app.exit()
        await running


if __name__ == "__main__":
    asyncio.run(main())
