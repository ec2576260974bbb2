"""Bindings over HTTP. One of several between the same two is named by its `properties_key`.

As with RabbitMQ the key is `~` for the empty routing key without arguments, the routing key itself,
or routing key, `~` and a digest when there are arguments. It is made anew from each binding, so it
need not be remembered by anybody.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from penstock.http.answer import DONE, Answer
from penstock.http.call import Call, found
from penstock.http.exchanges import exchange_named
from penstock.http.message_json import json_of_value, table_from_json
from penstock.model.binding import Binding, Destination
from penstock.model.field_table import decode_table, encode_table
from penstock.services.vhost import VirtualHost

_NO_ARGUMENTS = encode_table({})


def properties_key(binding: Binding) -> str:
    """What tells a binding from the others between the same two, in a path."""
    if binding.arguments == _NO_ARGUMENTS:
        return binding.routing_key or "~"
    digest = hashlib.blake2b(binding.arguments, digest_size=9).hexdigest()
    return f"{binding.routing_key}~{digest}"


def _binding(vhost: str, binding: Binding) -> dict[str, Any]:
    target = binding.destination
    return {
        "vhost": vhost,
        "source": binding.source,
        "destination": target.name,
        "destination_type": "exchange" if target.is_exchange else "queue",
        "routing_key": binding.routing_key,
        "arguments": json_of_value(decode_table(binding.arguments)),
        "properties_key": properties_key(binding),
    }


def _rows(vhost: VirtualHost, bindings: Iterable[Binding]) -> list[dict[str, Any]]:
    return [_binding(vhost.name, binding) for binding in sorted(bindings)]


def _all(vhost: VirtualHost) -> list[Binding]:
    return [binding for exchange in vhost.exchanges for binding in exchange.bindings]


# --- lists ----------------------------------------------------------------------------------------


async def list_all(call: Call) -> Answer:
    vhosts = call.visible_vhosts()
    return Answer([row for vhost in vhosts for row in _rows(vhost, _all(vhost))])


async def list_of_vhost(call: Call) -> Answer:
    vhost = call.visible_vhost(call.names[0])
    return Answer(_rows(vhost, _all(vhost)))


async def list_to_queue(call: Call) -> Answer:
    vhost = call.visible_vhost(call.names[0])
    queue = vhost.queue(call.names[1])
    return Answer(_rows(vhost, vhost.exchanges.bindings_to(Destination(queue.name))))


async def list_from_exchange(call: Call) -> Answer:
    vhost = call.visible_vhost(call.names[0])
    return Answer(_rows(vhost, vhost.exchange(call.names[1]).bindings))


async def list_to_exchange(call: Call) -> Answer:
    vhost = call.visible_vhost(call.names[0])
    target = Destination(vhost.exchange(call.names[1]).name, is_exchange=True)
    return Answer(_rows(vhost, vhost.exchanges.bindings_to(target)))


def _between(call: Call, *, is_exchange: bool) -> tuple[VirtualHost, list[Binding]]:
    vhost = call.visible_vhost(call.names[0])
    target = Destination(call.names[2], is_exchange)
    source = vhost.exchange(exchange_named(call.names[1]))
    return vhost, [one for one in source.bindings if one.destination == target]


async def list_between(call: Call) -> Answer:
    vhost, bindings = _between(call, is_exchange=False)
    return Answer(_rows(vhost, bindings))


async def list_between_exchanges(call: Call) -> Answer:
    vhost, bindings = _between(call, is_exchange=True)
    return Answer(_rows(vhost, bindings))


# --- one ------------------------------------------------------------------------------------------


def _one(call: Call, *, is_exchange: bool) -> Binding:
    _, bindings = _between(call, is_exchange=is_exchange)
    key = call.names[3]
    by_key = {properties_key(binding): binding for binding in bindings}
    binding: Binding = found(by_key.get(key), f"no binding {key!r} between these two")
    return binding


async def show_to_queue(call: Call) -> Answer:
    return Answer(_binding(call.names[0], _one(call, is_exchange=False)))


async def show_to_exchange(call: Call) -> Answer:
    return Answer(_binding(call.names[0], _one(call, is_exchange=True)))


async def add_to_queue(call: Call) -> Answer:
    return await _add(call, is_exchange=False)


async def add_to_exchange(call: Call) -> Answer:
    return await _add(call, is_exchange=True)


async def _add(call: Call, *, is_exchange: bool) -> Answer:
    vhost, source, target = call.names
    session = await call.session(vhost)
    body = await call.body()
    key = body.text("routing_key", "")
    arguments = table_from_json(body.table("arguments"), "arguments")
    bind = session.bind_exchange if is_exchange else session.bind_queue
    await bind(target, exchange_named(source), key, arguments)
    binding = Binding.of(source, Destination(target, is_exchange), key, arguments)
    return Answer({"properties_key": quote(properties_key(binding), safe="~")}, 201)


async def remove_to_queue(call: Call) -> Answer:
    return await _remove(call, is_exchange=False)


async def remove_to_exchange(call: Call) -> Answer:
    return await _remove(call, is_exchange=True)


async def _remove(call: Call, *, is_exchange: bool) -> Answer:
    session = await call.session(call.names[0])
    binding = _one(call, is_exchange=is_exchange)
    unbind = session.unbind_exchange if is_exchange else session.unbind_queue
    arguments = decode_table(binding.arguments)
    await unbind(binding.destination.name, binding.source, binding.routing_key, arguments)
    return DONE
