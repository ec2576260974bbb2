"""The picture of who is connected, for the management API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.model.amqp_clients import ClientChannel, ClientConnection, ClientConsumer
from penstock.services.subscription import Subscription

if TYPE_CHECKING:
    from penstock.amqp.channel import Channel
    from penstock.amqp.connection import Connection
    from penstock.amqp.consumer import Consumer


def picture(connection: Connection) -> ClientConnection:
    """What one client has agreed on and opened. Only of those whose handshake is over."""
    assert connection.session is not None
    handshake = connection.wire.handshake
    (host, port), (peer_host, peer_port) = connection.ends
    return ClientConnection(
        name=connection.name,
        host=host,
        port=port,
        peer_host=peer_host,
        peer_port=peer_port,
        user=connection.session.user.name,
        vhost=connection.session.vhost.name,
        state=connection.flow.state,
        mechanism=handshake.mechanism,
        connected_at_ms=connection.connected_at_ms,
        channel_max=handshake.channel_max,
        frame_max=handshake.frame_max,
        heartbeat_s=handshake.heartbeat_s,
        bytes_in=connection.bytes_in,
        bytes_out=connection.bytes_out,
        properties=handshake.client_properties,
        channels=[_channel(one) for one in sorted(connection.channels, key=lambda c: c.number)],
    )


def _channel(channel: Channel) -> ClientChannel:
    transaction = channel.transaction
    return ClientChannel(
        number=channel.number,
        is_transactional=transaction is not None,
        is_confirming=channel.confirms,
        prefetch=channel.prefetch,
        global_prefetch=channel.room_limit,
        unacknowledged=len(channel.unsettled),
        unconfirmed=channel.published - channel.confirmed,
        uncommitted=len(transaction) if transaction is not None else 0,
        consumers=[_consumer(one) for one in channel.consumers.values()],
    )


def _consumer(consumer: Consumer) -> ClientConsumer:
    subscription = consumer.subscription
    is_active = not isinstance(subscription, Subscription) or subscription.is_active
    return ClientConsumer(
        tag=consumer.tag,
        queue=subscription.queue_name,
        ack_required=not subscription.no_ack,
        exclusive=consumer.exclusive,
        active=is_active,
        prefetch=subscription.prefetch,
        arguments=consumer.arguments,
    )
