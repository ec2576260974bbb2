"""Background jobs of a FastAPI application: in its own process, and not lost when it restarts.

uvicorn examples.fastapi_jobs:app
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from fastapi import FastAPI

import penstock

thumbnails: dict[str, str] = {}


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """A broker and workers that live as long as the application."""
    async with penstock.aio.open(os.environ.get("JOBS", "jobs-data")) as mq:

        @mq.worker("thumbnails", concurrency=4, max_retries=3)
        async def make_thumbnail(message: penstock.Message) -> None:
            thumbnails[message.text] = f"{message.text}.small"

        app.state.mq = mq
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/images/{name}", status_code=202)
async def upload(name: str) -> dict[str, str]:
    """Answered when the job is on disk: from here on it will be done."""
    queue = await app.state.mq.queue("thumbnails")
    receipt = await queue.publish(name)
    return {"job": receipt.message_id}


@app.get("/images")
async def images() -> dict[str, str]:
    return thumbnails


async def main() -> None:
    transport = httpx.ASGITransport(app=app)
    async with lifespan(app), httpx.AsyncClient(transport=transport, base_url="http://app") as web:
        for name in ("cat.png", "dog.png"):
            print(name, (await web.post(f"/images/{name}")).status_code)
        while len(found := (await web.get("/images")).json()) < 2:
            await asyncio.sleep(0.05)
        print(dict(sorted(found.items())))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        os.environ["JOBS"] = directory
        asyncio.run(main())
