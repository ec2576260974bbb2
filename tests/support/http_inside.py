"""The HTTP door of a broker in this process, without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx

from penstock.app import Broker
from penstock.config import BrokerConfig
from penstock.http.api import application
from penstock.http.view import BrokerView
from penstock.model.histogram import Histogram

Story = Callable[[httpx.AsyncClient], Awaitable[None]]


@asynccontextmanager
async def management(client_host: str = "127.0.0.1", **options: Any) -> AsyncIterator[Any]:
    """A client of the HTTP door of a broker in memory, logged in as the guest."""
    broker = Broker(BrokerConfig(memory=True, kafka=None, amqp=None, http=None))
    await broker.open()
    view = BrokerView(
        cluster=broker.services.cluster,
        topics=broker.services.topics,
        partitions=broker.services.partitions,
        groups=broker.services.groups,
        messaging=broker.messaging,
        kafka=None,
        amqp=None,
        config=lambda: broker.config,
        addresses={},
        api_name=str,
        flush_histogram=Histogram(),
        loop_delay=Histogram(),
        disk_free_bytes=lambda: None,
        is_ready=lambda: True,
    )
    transport = httpx.ASGITransport(application(view), client=(client_host, 4711))
    settings: dict[str, Any] = {"auth": ("guest", "guest"), "base_url": "http://127.0.0.1:8080"}
    async with httpx.AsyncClient(transport=transport, **{**settings, **options}) as client:
        client.broker = broker  # type: ignore[attr-defined]
        yield client
    await broker.close()


def play(story: Story, **options: Any) -> None:
    async def run() -> None:
        async with management(**options) as client:
            await story(client)

    asyncio.run(run())
