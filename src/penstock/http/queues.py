"""Queues over HTTP: listed, declared, deleted, purged; messages looked at and taken."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from penstock.errors import InvalidRequest
from penstock.http.answer import Answer, put
from penstock.http.call import Call
from penstock.http.message_json import (
    json_of_body,
    json_of_properties,
    json_of_value,
    table_from_json,
)
from penstock.services.browsing import Browsed, browse, oldest_age
from penstock.services.queue import Queue, QueueCounts
from penstock.services.session import Delivery

MOST_MESSAGES = 1000  # in one answer
MOST_BYTES = 16 << 20  # of bodies in one answer, but always one message
_AT_ONCE = 200  # queues in a list, before others have their turn
MOST_WOKEN = 1000  # queues that one list reads from disk


# --- queues ---------------------------------------------------------------------------------------


async def json_of_queue(call: Call, queue: Queue, *, wake: bool = True) -> dict[str, Any]:
    """A queue; what only its working part knows is null while it sleeps and is not to be woken."""
    queues = call.messaging.queues
    counts = queue.counts
    if counts is None and wake:
        ready = (await queues.info(queue)).message_count
        counts = queue.counts or QueueCounts(ready, ready, 0, 0)
    size = call.view.partitions.size_bytes(queue.topic, 0)
    empty = 0 if counts is not None and not counts.messages else None
    return {
        "vhost": queue.vhost,
        "name": queue.name,
        "type": queue.rules.kind,
        "durable": queue.durable,
        "exclusive": queue.exclusive,
        "auto_delete": queue.auto_delete,
        "arguments": json_of_value(queue.arguments),
        "policy": queue.policy,
        "topic": queue.topic,
        "state": "running" if queue.live is not None else "idle",
        "messages": counts and counts.messages,
        "messages_ready": counts and counts.ready,
        "messages_unacknowledged": counts and counts.unacknowledged,
        "messages_scheduled": counts and counts.scheduled,
        "message_bytes": empty if size is None else size,
        "consumers": queue.consumer_count,
        "message_stats": {
            "publish": queue.published,
            "deliver": queue.delivered,
            "ack": queue.acknowledged,
        },
    }


async def _list(call: Call, queues: Iterable[Queue]) -> Answer:
    """All of them, or a page: `?page=1&page_size=100&name=part-of-the-name`."""
    shown = sorted(queues, key=lambda one: (one.vhost, one.name))
    total, page = len(shown), call.number("page", 0, 1 << 31)
    size = call.number("page_size", 100, 500) or 100
    if page:
        wanted = call.request.query_params.get("name", "")
        shown = [queue for queue in shown if wanted in queue.name]
    fitting = len(shown)
    if page:
        shown = shown[(page - 1) * size : page * size]
    rows: list[dict[str, Any]] = []
    woken = 0
    for queue in shown:
        if len(rows) % _AT_ONCE == 0:
            await asyncio.sleep(0)
        slept = queue.live is None
        rows.append(await json_of_queue(call, queue, wake=woken < MOST_WOKEN))
        woken += slept and queue.live is not None
    if not page:
        return Answer(rows)
    return Answer(
        {
            "items": rows,
            "item_count": len(rows),
            "page": page,
            "page_count": -(-fitting // size),
            "page_size": size,
            "filtered_count": fitting,
            "total_count": total,
        }
    )


async def list_all(call: Call) -> Answer:
    vhosts = call.visible_vhosts()
    return await _list(call, [queue for vhost in vhosts for queue in vhost.queues.values()])


async def list_of_vhost(call: Call) -> Answer:
    vhost = call.visible_vhost(call.names[0])
    return await _list(call, list(vhost.queues.values()))


async def show(call: Call) -> Answer:
    vhost, name = call.names
    queue = call.visible_vhost(vhost).queue(name)
    await call.messaging.queues.info(queue)
    row = await json_of_queue(call, queue)
    now_ms = queue.host.clock.now_ms()
    row["oldest_age"] = None if queue.live is None else await oldest_age(queue.live, now_ms)
    return Answer(row)


async def declare(call: Call) -> Answer:
    vhost, name = call.names
    if not name:
        raise InvalidRequest("a queue needs a name")
    session = await call.session(vhost)
    body = await call.body()
    was_there = name in session.vhost.queues
    await session.declare_queue(
        name,
        durable=body.flag("durable", True),
        auto_delete=body.flag("auto_delete", False),
        arguments=table_from_json(body.table("arguments"), "arguments"),
    )
    return put(was_there)


async def delete(call: Call) -> Answer:
    vhost, name = call.names
    session = await call.session(vhost)
    session.vhost.queue(name)
    unused, empty = call.flag("if-unused"), call.flag("if-empty")
    count = await session.delete_queue(name, if_unused=unused, if_empty=empty)
    return Answer({"messages": count})


async def purge(call: Call) -> Answer:
    vhost, name = call.names
    session = await call.session(vhost)
    return Answer({"messages": await session.purge_queue(name)})


# --- messages -------------------------------------------------------------------------------------


def json_of_browsed(
    message: Browsed, encoding: str = "auto", truncate: int | None = None
) -> dict[str, Any]:
    return {
        "offset": message.offset,
        "state": message.state,
        "redelivered": message.delivery_count > 0,
        "delivery_count": message.delivery_count,
        "timestamp_ms": message.timestamp_ms,
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "properties": json_of_properties(message.properties),
        **json_of_body(message.body, encoding, truncate),
    }


def _truncate(call: Call) -> int | None:
    most = 1 << 31
    length = call.number("truncate", most, most)
    return None if length == most else length


async def peek(call: Call) -> Answer:
    """Messages that stay where they are: `?count=10&offset=0&truncate=1000`."""
    vhost, name = call.names
    queue = (await call.session(vhost)).readable(name)
    count = call.number("count", 10, MOST_MESSAGES)
    truncate, encoding = _truncate(call), call.request.query_params.get("encoding", "auto")
    shown: list[dict[str, Any]] = []
    room = MOST_BYTES
    if count:
        async for message in browse(await queue.wake(), call.number("offset", 0, 1 << 62)):
            shown.append(json_of_browsed(message, encoding, truncate))
            room -= len(message.body)
            if len(shown) >= count or room <= 0:
                break
    return Answer(shown)


_ACK_MODES = {  # RabbitMQ's words: what becomes of a message that was got
    "ack_requeue_true": "requeue",
    "reject_requeue_true": "requeue",
    "ack_requeue_false": "ack",
    "reject_requeue_false": "reject",
}


async def get(call: Call) -> Answer:
    """Take messages out of a queue, or take them and put them back, as the body says."""
    vhost, name = call.names
    session = await call.session(vhost)
    body = await call.body()
    count = body.number("count", 1, 1, MOST_MESSAGES)
    mode = body.text("ackmode", "ack_requeue_true")
    if mode not in _ACK_MODES:
        raise InvalidRequest(f"'ackmode' is one of {', '.join(_ACK_MODES)}")
    truncate = body.number("truncate", 1 << 31, 0, 1 << 31)
    encoding = body.text("encoding", "auto")
    shown: list[dict[str, Any]] = []
    settlements = []
    room = MOST_BYTES
    try:
        while len(shown) < count and room > 0:
            got = await session.get(name)
            if got is None:
                break
            delivery, remaining, holder = got
            settlements.append((holder, delivery.offset))
            room -= len(delivery.body)
            shown.append(_json_of_delivery(delivery, remaining, encoding, truncate))
    except BaseException:
        for holder, offset in settlements:
            holder.requeue([offset])
        raise
    for holder, offset in settlements:
        getattr(holder, _ACK_MODES[mode])([offset])
    return Answer(shown)


def _json_of_delivery(
    delivery: Delivery, remaining: int, encoding: str, truncate: int
) -> dict[str, Any]:
    return {
        "offset": delivery.offset,
        "redelivered": delivery.redelivered,
        "delivery_count": delivery.delivery_count,
        "exchange": delivery.exchange,
        "routing_key": delivery.routing_key,
        "message_count": remaining,
        "properties": json_of_properties(delivery.properties),
        **json_of_body(delivery.body, encoding, truncate),
    }
