"""Uvicorn inside the broker's own event loop.

The socket listens at once; the server behind it is imported in a thread and takes over what waits,
so that a broker need not wait for libraries that serve one scrape in fifteen seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from typing import Any

_BACKLOG = 128


class HttpServer:
    """Serves one ASGI application until closed."""

    def __init__(self, make_application: Callable[[], Any]) -> None:
        self._make_application = make_application  # called in a thread: it may import
        self._server: Any = None
        self._task: asyncio.Task[None] | None = None

    async def open(self, host: str, port: int) -> tuple[str, int]:
        """Listen; returns the address really bound."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
        self._task = asyncio.create_task(self._serve(listener), name="http")
        bound = listener.getsockname()
        return bound[0], bound[1]

    async def _serve(self, listener: socket.socket) -> None:
        try:
            self._server = await asyncio.to_thread(self._make_server)
            config = self._server.config
            self._server.lifespan = config.lifespan_class(config)
            await self._server.startup(sockets=[listener])
            await self._server.main_loop()
        finally:
            listener.close()

    def _make_server(self) -> Any:
        import uvicorn

        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        config = uvicorn.Config(
            self._make_application(),
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
        config.load()
        return uvicorn.Server(config)

    async def close(self) -> None:
        """Stop at once: nothing here takes long, and scrapers come back."""
        if self._task is None:
            return
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        if self._server is not None and self._server.started:
            self._server.should_exit = True
            self._server.force_exit = True
            await self._server.shutdown()
