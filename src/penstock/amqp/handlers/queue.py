"""The queue class: declare, bind, unbind, purge, delete.

An empty queue name stands for the queue that the channel declared last (AMQP 0-9-1 §1.7.2). What
tells or changes how many messages a queue has waits for those that this client published before.
"""

from __future__ import annotations

from pamqp import commands

from penstock.amqp.admission import REPLY_TO_QUEUE
from penstock.amqp.channel import Channel
from penstock.amqp.names import cleaned, table
from penstock.wire.amqp.codes import NOT_FOUND, AmqpError
from penstock.wire.amqp.methods import method_ids

_MOST = 0xFFFFFFFF  # what fits the counts of the answers


async def declare(channel: Channel, method: commands.Queue.Declare) -> None:
    name = cleaned(method.queue)
    if name == REPLY_TO_QUEUE:  # nobody declares it, but some ask whether it is there
        if not method.nowait:
            channel.answer(commands.Queue.DeclareOk, name, 0, 1)
        return
    if not name and method.passive:  # the last declared one is not meant here
        vhost = channel.session.vhost.name
        raise AmqpError(NOT_FOUND, f"no queue '' in vhost '{vhost}'", method_ids(method))
    await channel.connection.publishing.settled()
    queue = await channel.session.declare_queue(
        name,
        passive=method.passive,
        durable=method.durable,
        exclusive=method.exclusive,
        auto_delete=method.auto_delete,
        arguments=table(method.arguments),
    )
    channel.last_queue = queue.name
    if not method.nowait:
        counts = min(queue.message_count, _MOST), min(queue.consumer_count, _MOST)
        channel.answer(commands.Queue.DeclareOk, queue.name, *counts)


async def bind(channel: Channel, method: commands.Queue.Bind) -> None:
    queue = channel.queue_name(cleaned(method.queue), method_ids(method))
    await channel.session.bind_queue(
        queue, cleaned(method.exchange), _routing_key(method, queue), table(method.arguments)
    )
    if not method.nowait:
        channel.answer(commands.Queue.BindOk)


async def unbind(channel: Channel, method: commands.Queue.Unbind) -> None:
    queue = channel.queue_name(cleaned(method.queue), method_ids(method))
    await channel.session.unbind_queue(
        queue, cleaned(method.exchange), _routing_key(method, queue), table(method.arguments)
    )
    channel.answer(commands.Queue.UnbindOk)


async def purge(channel: Channel, method: commands.Queue.Purge) -> None:
    queue = channel.queue_name(cleaned(method.queue), method_ids(method))
    await channel.connection.publishing.settled()
    count = await channel.session.purge_queue(queue)
    if not method.nowait:
        channel.answer(commands.Queue.PurgeOk, min(count, _MOST))


async def delete(channel: Channel, method: commands.Queue.Delete) -> None:
    queue = channel.queue_name(cleaned(method.queue), method_ids(method))
    await channel.connection.publishing.settled()
    count = await channel.session.delete_queue(
        queue, if_unused=method.if_unused, if_empty=method.if_empty
    )
    if not method.nowait:
        channel.answer(commands.Queue.DeleteOk, min(count, _MOST))


def _routing_key(method: commands.Queue.Bind | commands.Queue.Unbind, queue: str) -> str:
    """With neither name nor key given, the key is the queue's name too."""
    return queue if not method.queue and not method.routing_key else method.routing_key
