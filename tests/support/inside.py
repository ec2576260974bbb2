"""A whole broker in this process, without a door: requests go through bytes to its dispatch."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from penstock.app import Broker
from penstock.config import BrokerConfig
from penstock.kafka import dispatch
from penstock.kafka.context import BrokerServices, RequestContext
from support.wire import KEYS, build


class Inside:
    """Every service of a broker, and a client of them."""

    def __init__(self, services: BrokerServices) -> None:
        self.services = services

    async def ask(self, api: str, version: int, **request: Any) -> Any:
        """The answer as kio's dataclass, after a round trip through bytes both ways."""
        body = await self.ask_raw(api, version, **request)
        answer, size = entity_reader(load_response_schema(KEYS[api], version))(body, 0)
        assert size == len(body)
        return answer

    async def ask_raw(self, api: str, version: int, **request: Any) -> bytes:
        """The bytes of the answer, without a header."""
        out = io.BytesIO()
        schema = load_request_schema(KEYS[api], version)
        entity_writer(schema)(out, build(schema, request))
        ctx = RequestContext(
            broker=self.services,
            api_key=KEYS[api],
            api_version=version,
            client_id="test",
            client_host="127.0.0.1",
        )
        buffers = await dispatch.answer(ctx, memoryview(bytearray(out.getvalue())))
        assert buffers is not None
        return b"".join(buffers)


@asynccontextmanager
async def inside(**options: Any) -> AsyncIterator[Inside]:
    """A broker in memory, for as long as the block lasts."""
    broker = Broker(BrokerConfig(memory=True, kafka=None, amqp=None, http=None, **options))
    await broker.open()
    try:
        yield Inside(broker.services)
    finally:
        await broker.close()
