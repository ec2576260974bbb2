"""Connections, channels and consumers over HTTP: listed, and connections closed.

As with RabbitMQ, users see their own; those tagged `monitoring` or `administrator` see all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.errors import AccessRefused, NotFound
from penstock.http.answer import DONE, Answer
from penstock.http.call import Call
from penstock.http.message_json import json_of_value
from penstock.model.amqp_clients import ClientChannel, ClientConnection, ClientConsumer
from penstock.services.users import ADMINISTRATOR

MONITORING = "monitoring"


def visible(call: Call) -> list[ClientConnection]:
    """The connections that the user may see, by name."""
    door = call.view.amqp
    clients = sorted(door.clients(), key=lambda one: one.name) if door is not None else []
    if {ADMINISTRATOR, MONITORING} & set(call.user.tags):
        return clients
    return [one for one in clients if one.user == call.user.name]


def _of_vhost(call: Call) -> list[ClientConnection]:
    vhost = call.visible_vhost(call.names[0]).name
    return [one for one in visible(call) if one.vhost == vhost]


def node_name(call: Call) -> str:
    return f"penstock@{call.view.cluster.node_id}"


# --- connections ----------------------------------------------------------------------------------


def _connection(call: Call, one: ClientConnection) -> dict[str, Any]:
    return {
        "name": one.name,
        "node": node_name(call),
        "protocol": "AMQP 0-9-1",
        "type": "network",
        "host": one.host,
        "port": one.port,
        "peer_host": one.peer_host,
        "peer_port": one.peer_port,
        "user": one.user,
        "user_who_performed_action": one.user,
        "vhost": one.vhost,
        "state": one.state,
        "ssl": False,
        "auth_mechanism": one.mechanism,
        "channels": len(one.channels),
        "channel_max": one.channel_max,
        "frame_max": one.frame_max,
        "timeout": one.heartbeat_s,
        "connected_at": one.connected_at_ms,
        "recv_oct": one.bytes_in,
        "send_oct": one.bytes_out,
        "client_properties": json_of_value(one.properties),
    }


async def list_connections(call: Call) -> Answer:
    return Answer([_connection(call, one) for one in visible(call)])


async def list_connections_of_vhost(call: Call) -> Answer:
    return Answer([_connection(call, one) for one in _of_vhost(call)])


def _find(call: Call) -> ClientConnection:
    for one in visible(call):
        if one.name == call.names[0]:
            return one
    raise NotFound(f"no connection '{call.names[0]}'")


async def show_connection(call: Call) -> Answer:
    return Answer(_connection(call, _find(call)))


async def close_connection(call: Call) -> Answer:
    """Say goodbye to a client; the header X-Reason, if there is one, says why."""
    one = _find(call)
    if ADMINISTRATOR not in call.user.tags and one.user != call.user.name:
        raise AccessRefused(f"the connection is not one of user '{call.user.name}'")
    reason = call.request.headers.get("x-reason", "closed via the management API")
    assert call.view.amqp is not None
    call.view.amqp.end(one.name, reason)
    return DONE


# --- channels -------------------------------------------------------------------------------------


def _channel_name(connection: ClientConnection, channel: ClientChannel) -> str:
    return f"{connection.name} ({channel.number})"


def _channel(call: Call, connection: ClientConnection, one: ClientChannel) -> dict[str, Any]:
    return {
        "name": _channel_name(connection, one),
        "number": one.number,
        "node": node_name(call),
        "user": connection.user,
        "vhost": connection.vhost,
        "state": connection.state,
        "connection_details": {
            "name": connection.name,
            "peer_host": connection.peer_host,
            "peer_port": connection.peer_port,
        },
        "confirm": one.is_confirming,
        "transactional": one.is_transactional,
        "consumer_count": len(one.consumers),
        "prefetch_count": one.prefetch,
        "global_prefetch_count": one.global_prefetch,
        "messages_unacknowledged": one.unacknowledged,
        "messages_unconfirmed": one.unconfirmed,
        "messages_uncommitted": one.uncommitted,
    }


def _channels(call: Call, connections: list[ClientConnection]) -> Answer:
    return Answer(
        [
            _channel(call, connection, channel)
            for connection in connections
            for channel in connection.channels
        ]
    )


async def list_channels(call: Call) -> Answer:
    return _channels(call, visible(call))


async def list_channels_of_connection(call: Call) -> Answer:
    return _channels(call, [_find(call)])


async def list_channels_of_vhost(call: Call) -> Answer:
    return _channels(call, _of_vhost(call))


async def show_channel(call: Call) -> Answer:
    for connection in visible(call):
        for channel in connection.channels:
            if _channel_name(connection, channel) == call.names[0]:
                consumers = [_consumer(call, connection, channel, one) for one in channel.consumers]
                shown = _channel(call, connection, channel)
                return Answer({**shown, "consumer_details": consumers})
    raise NotFound(f"no channel '{call.names[0]}'")


# --- consumers ------------------------------------------------------------------------------------


def _consumer(
    call: Call, connection: ClientConnection, channel: ClientChannel, one: ClientConsumer
) -> dict[str, Any]:
    return {
        "consumer_tag": one.tag,
        "queue": {"name": one.queue, "vhost": connection.vhost},
        "ack_required": one.ack_required,
        "exclusive": one.exclusive,
        "active": one.active,
        "activity_status": "up" if one.active else "waiting",
        "prefetch_count": one.prefetch,
        "arguments": json_of_value(one.arguments),
        "channel_details": {
            "name": _channel_name(connection, channel),
            "number": channel.number,
            "node": node_name(call),
            "user": connection.user,
            "connection_name": connection.name,
            "peer_host": connection.peer_host,
            "peer_port": connection.peer_port,
        },
    }


def each_consumer(
    connections: list[ClientConnection],
) -> Iterator[tuple[ClientConnection, ClientChannel, ClientConsumer]]:
    for connection in connections:
        for channel in connection.channels:
            for consumer in channel.consumers:
                yield connection, channel, consumer


async def list_consumers(call: Call) -> Answer:
    return Answer([_consumer(call, *one) for one in each_consumer(visible(call))])


async def list_consumers_of_vhost(call: Call) -> Answer:
    return Answer([_consumer(call, *one) for one in each_consumer(_of_vhost(call))])
