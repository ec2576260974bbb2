"""Exchanges over HTTP: listed, declared, deleted, published to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.errors import InvalidRequest, StorageError
from penstock.http.answer import DONE, Answer, put
from penstock.http.call import MESSAGE_BODY_BYTES, Call
from penstock.http.message_json import (
    body_from_json,
    json_of_value,
    properties_from_json,
    table_from_json,
)
from penstock.model.queue_record import Message
from penstock.services.vhost import Exchange, VirtualHost

DEFAULT_EXCHANGE = ""
DEFAULT_NAME = "amq.default"  # what the exchange without a name is called in paths
_DEFAULT = Exchange(DEFAULT_EXCHANGE, "direct", arguments={})


def exchange_named(name: str) -> str:
    """The exchange that a path means."""
    return DEFAULT_EXCHANGE if name == DEFAULT_NAME else name


def _exchange(vhost: str, exchange: Exchange) -> dict[str, Any]:
    return {
        "vhost": vhost,
        "name": exchange.name,
        "type": exchange.kind,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": json_of_value(exchange.arguments),
    }


def _list(vhosts: Iterable[VirtualHost]) -> Answer:
    return Answer(
        [
            _exchange(vhost.name, exchange)
            for vhost in vhosts
            for exchange in (_DEFAULT, *sorted(vhost.exchanges, key=lambda one: one.name))
        ]
    )


async def list_all(call: Call) -> Answer:
    return _list(call.visible_vhosts())


async def list_of_vhost(call: Call) -> Answer:
    return _list([call.visible_vhost(call.names[0])])


async def show(call: Call) -> Answer:
    vhost = call.visible_vhost(call.names[0])
    name = exchange_named(call.names[1])
    exchange = _DEFAULT if name == DEFAULT_EXCHANGE else vhost.exchange(name)
    return Answer(_exchange(vhost.name, exchange))


async def declare(call: Call) -> Answer:
    vhost, name = call.names
    session = await call.session(vhost)
    body = await call.body()
    was_there = session.vhost.exchanges.get(name) is not None
    await session.declare_exchange(
        exchange_named(name),
        body.text("type", "direct"),
        durable=body.flag("durable", True),
        auto_delete=body.flag("auto_delete", False),
        internal=body.flag("internal", False),
        arguments=table_from_json(body.table("arguments"), "arguments"),
    )
    return put(was_there)


async def delete(call: Call) -> Answer:
    vhost, given = call.names
    name = exchange_named(given)
    session = await call.session(vhost)
    if name != DEFAULT_EXCHANGE:
        session.vhost.exchange(name)
    await session.delete_exchange(name, if_unused=call.flag("if-unused"))
    return DONE


async def publish(call: Call) -> Answer:
    """Publish one message; the answer comes when it is safe, and says whether a queue took it."""
    vhost, given = call.names
    session = await call.session(vhost)
    body = await call.body(MESSAGE_BODY_BYTES)
    exchange, key = exchange_named(given), body.text("routing_key", "")
    if len(key.encode()) > 255:
        raise InvalidRequest("a routing key has at most 255 bytes")
    properties = properties_from_json(body.table("properties"), call.user.name)
    session.check_publish(exchange)
    if call.messaging.alarm.blocked is not None:
        raise StorageError(f"nothing can be published now: {call.messaging.alarm.blocked}")
    publication = session.publish([Message(exchange, key, properties, body_from_json(body))])
    refused = await publication.settled()
    return Answer({"routed": not publication.unrouted, "refused": bool(refused)})
