"""The basic class, less what comes with every message: qos, consume, cancel, get, renew,
recover."""

from __future__ import annotations

from pamqp import commands

from penstock.amqp.admission import REPLY_TO_QUEUE
from penstock.amqp.channel import Channel
from penstock.amqp.consumer import Consumer, Fetched
from penstock.amqp.names import cleaned, new_consumer_tag, table
from penstock.wire.amqp import content
from penstock.wire.amqp.codes import (
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    AmqpError,
)
from penstock.wire.amqp.methods import BasicRenew, method_ids


def qos(channel: Channel, method: commands.Basic.Qos) -> None:
    if method.prefetch_size:
        text = f"prefetch_size!=0 ({method.prefetch_size})"
        raise AmqpError(NOT_IMPLEMENTED, text, method_ids(method))
    if method.global_:
        channel.limit_room(method.prefetch_count)
    else:
        channel.limit_consumers(method.prefetch_count)
    channel.answer(commands.Basic.QosOk)


async def consume(channel: Channel, method: commands.Basic.Consume) -> None:
    ids = method_ids(method)
    tag = method.consumer_tag or new_consumer_tag()
    if tag in channel.consumers:
        raise AmqpError(NOT_ALLOWED, f"attempt to reuse consumer tag '{tag}'", ids)
    queue = channel.queue_name(cleaned(method.queue), ids)
    if queue == REPLY_TO_QUEUE:
        if not method.no_ack:
            raise AmqpError(PRECONDITION_FAILED, "reply consumer cannot acknowledge", ids)
        if channel.reply_consumer() is not None:
            raise AmqpError(PRECONDITION_FAILED, "reply consumer already set", ids)
    arguments = table(method.arguments)
    subscription = await channel.session.subscribe(
        queue,
        tag=tag,
        no_ack=method.no_ack,
        exclusive=method.exclusive,
        prefetch=channel.prefetch,
        arguments=arguments,
    )
    if channel.is_closed:
        subscription.cancel()
        return
    if not method.nowait:
        channel.answer(commands.Basic.ConsumeOk, tag)
    exclusive = bool(method.exclusive)
    channel.add_consumer(
        Consumer(channel, tag, subscription, exclusive=exclusive, arguments=arguments)
    )


def cancel(channel: Channel, method: commands.Basic.Cancel) -> None:
    """An unknown tag is no error: the queue may have been deleted a moment ago."""
    tag = method.consumer_tag or ""
    channel.remove_consumer(tag)
    if not method.nowait:
        channel.answer(commands.Basic.CancelOk, tag)


async def get(channel: Channel, method: commands.Basic.Get) -> None:
    queue = channel.queue_name(cleaned(method.queue), method_ids(method))
    connection = channel.connection
    # One at a time and only into a socket that drains: a client cannot ask for more messages than
    # it reads.
    async with connection.fetching:
        await connection.publishing.settled()
        await connection.flow.drained()
        found = await channel.session.get(queue, no_ack=method.no_ack)
        if found is None:
            channel.answer(commands.Basic.GetEmpty, "")
            return
        delivery, remaining, holder = found
        if method.no_ack:
            tag = channel.unsettled.skip(1)
        else:
            tag = channel.unsettled.add(Fetched(holder), (delivery.offset,))
        wire = connection.wire
        wire.out += content.get_ok(channel.number, wire.frame_max, delivery, tag, remaining)
        connection.stats.delivered += 1
        connection.flush()


def recover(channel: Channel, method: commands.Basic.Recover) -> None:
    _recover(channel, method)
    channel.answer(commands.Basic.RecoverOk)


def renew(channel: Channel, method: BasicRenew) -> None:
    """A delivery takes longer. One that is settled, or came back, is no error."""
    found = channel.unsettled.find(method.delivery_tag)
    if found is not None:
        source, offset = found
        source.holder.renew([offset])


def recover_async(channel: Channel, method: commands.Basic.RecoverAsync) -> None:
    """The deprecated form, which is not answered."""
    _recover(channel, method)


def _recover(
    channel: Channel, method: commands.Basic.Recover | commands.Basic.RecoverAsync
) -> None:
    if not method.requeue:
        raise AmqpError(NOT_IMPLEMENTED, "requeue=false", method_ids(method))
    channel.recover()
