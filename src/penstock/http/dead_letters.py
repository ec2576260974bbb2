"""Dead letters over HTTP: where they lie, what they say, and sending them back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from penstock.errors import InvalidRequest
from penstock.http.answer import Answer
from penstock.http.call import Body, Call
from penstock.http.queues import MOST_BYTES, MOST_MESSAGES, json_of_browsed, json_of_queue
from penstock.services.browsing import browse
from penstock.services.redrive import Filter, grave_of, redrive, resting_places
from penstock.services.vhost import VirtualHost

_MOST = 1 << 62


async def _list(call: Call, vhosts: Iterable[VirtualHost]) -> Answer:
    rows: list[dict[str, Any]] = []
    for vhost in vhosts:
        for name, sources in sorted(resting_places(vhost).items()):
            queue = await json_of_queue(call, vhost.queue(name))
            kept = {key: queue[key] for key in ("vhost", "name", "messages", "messages_ready")}
            rows.append({**kept, "sources": sorted(sources)})
    return Answer(rows)


async def list_all(call: Call) -> Answer:
    return await _list(call, call.visible_vhosts())


async def list_of_vhost(call: Call) -> Answer:
    return await _list(call, [call.visible_vhost(call.names[0])])


async def peek(call: Call) -> Answer:
    """Dead letters that stay where they are, with where and why they died."""
    vhost, name = call.names
    queue = (await call.session(vhost)).readable(name)
    wanted = _filter(Body(call.request.query_params))
    count = call.number("count", 10, MOST_MESSAGES)
    shown: list[dict[str, Any]] = []
    room = MOST_BYTES
    async for message in browse(await queue.wake(), call.number("offset", 0, _MOST)):
        if len(shown) >= count or room <= 0:
            break
        grave = grave_of(message.properties)
        if grave is None or not wanted.accepts(message.offset, message.body, grave):
            continue
        shown.append(json_of_browsed(message) | {"death": asdict(grave)})
        room -= len(message.body)
    return Answer(shown)


async def redrive_letters(call: Call) -> Answer:
    """Send dead letters back: all that are ready, or those that the body describes."""
    vhost, name = call.names
    session = await call.session(vhost)
    queue = session.readable(name)
    session.check_publish("")  # they go straight to a queue, as through the default exchange
    body = await call.body()
    limit = None if body.get("limit") is None else body.number("limit", 1, 1, _MOST)
    done = await redrive(session.vhost, queue, _filter(body), limit=limit, to=body.maybe_text("to"))
    return Answer({"moved": done.moved, "homeless": done.homeless, "refused": done.refused})


def _filter(given: Body) -> Filter:
    text = given.maybe_text("contains")
    return Filter(
        queue=given.maybe_text("queue"),
        reason=given.maybe_text("reason"),
        routing_key=given.maybe_text("routing_key"),
        text=None if text is None else text.encode(),
        offsets=_offsets(given),
    )


def _offsets(given: Body) -> frozenset[int] | None:
    offsets = given.get("offsets")
    if offsets is None:
        return None
    if not isinstance(offsets, list) or not all(type(one) is int for one in offsets):
        raise InvalidRequest("'offsets' must be a list of numbers")
    return frozenset(offsets)
