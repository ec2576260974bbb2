"""The routes of the HTTP door.

    /            what is here, for whoever looks with a browser
    /health      200 while the process runs
    /ready       200 once every door is open and groups are loaded, else 503
    /metrics     Prometheus
    /api/...     what the command line shows, as JSON: cluster, topics, groups; anybody may read it
    /api/...     virtual hosts, users, queues, ...: management.py, for those who log in

Names in paths are looked up, never used as paths.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from penstock import __version__
from penstock.errors import BrokerError, GroupIdNotFound, UnknownTopicOrPartition
from penstock.http.answer import Json
from penstock.http.management import routes
from penstock.http.view import BrokerView

Endpoint = Callable[[Request], Awaitable[Response]]

_SIGNPOST = f"""Penstock {__version__}

/health          ok while the process runs
/ready           ready once every door is open
/metrics         for Prometheus
/api/cluster     the broker, as JSON
/api/topics      its topics, and each at /api/topics/NAME
/api/groups      its groups, and each at /api/groups/NAME
/api/overview    and all else of the management API, for those who log in
"""


def application(view: BrokerView) -> Starlette:
    """The ASGI application over one broker."""

    async def signpost(request: Request) -> Response:
        return PlainTextResponse(_SIGNPOST)

    async def health(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def ready(request: Request) -> Response:
        waiting = view.not_ready_because()
        if waiting:
            return PlainTextResponse(waiting + "\n", status_code=503)
        return PlainTextResponse("ready\n")

    async def metrics(request: Request) -> Response:
        from penstock.http.metrics import exposition  # Prometheus is imported for the first scrape

        text = exposition(view)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def cluster(request: Request) -> Response:
        return Json(view.cluster_summary())

    async def topics(request: Request) -> Response:
        return Json({"topics": [view.topic_summary(name) for name in view.topics.names()]})

    async def topic(request: Request) -> Response:
        return Json(await view.topic_detail(request.path_params["name"]))

    async def groups(request: Request) -> Response:
        return Json({"groups": view.group_summaries()})

    async def group(request: Request) -> Response:
        return Json(view.group_detail(request.path_params["name"]))

    return Starlette(
        routes=[
            Route("/", signpost),
            Route("/health", health),
            Route("/ready", ready),
            Route("/metrics", metrics),
            Route("/api/cluster", cluster),
            Route("/api/topics", topics),
            Route("/api/topics/{name}", topic),
            Route("/api/groups", groups),
            Route("/api/groups/{name:path}", group),
            *routes(view),
        ],
        exception_handlers={
            404: _not_found,
            BrokerError: _refused,
            asyncio.TimeoutError: _late,
        },
    )


async def _refused(request: Request, failure: Exception) -> Response:
    missing = isinstance(failure, (UnknownTopicOrPartition, GroupIdNotFound))
    return Json({"error": str(failure)}, status_code=404 if missing else 400)


async def _not_found(request: Request, failure: Exception) -> Response:
    return Json({"error": f"there is nothing at {request.url.path}"}, status_code=404)


async def _late(request: Request, failure: Exception) -> Response:
    return Json({"error": "the broker did not answer in time"}, status_code=503)
