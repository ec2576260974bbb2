"""Uvicorn inside the broker's own event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from typing import Any

import uvicorn

logging.getLogger("uvicorn.error").setLevel(logging.WARNING)  # its comings and goings are ours


class HttpServer:
    """Serves one ASGI application until closed."""

    def __init__(self, application: Any) -> None:
        self._server = uvicorn.Server(
            uvicorn.Config(
                application,
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                h11_max_incomplete_event_size=64 * 1024,
                timeout_keep_alive=30,
                limit_concurrency=512,
            )
        )
        self._task: asyncio.Task[None] | None = None

    async def open(self, host: str, port: int) -> tuple[str, int]:
        """Listen; returns the address really bound."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        config = self._server.config
        config.load()
        self._server.lifespan = config.lifespan_class(config)
        await self._server.startup(sockets=[listener])
        self._task = asyncio.create_task(self._server.main_loop(), name="http")
        bound = listener.getsockname()
        return bound[0], bound[1]

    async def close(self) -> None:
        """Stop at once: nothing here takes long, and scrapers come back."""
        self._server.should_exit = True
        self._server.force_exit = True
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            await self._server.shutdown()
