"""The exchange class: declare, delete, and bindings between exchanges."""

from __future__ import annotations

from pamqp import commands

from penstock.amqp.channel import Channel
from penstock.amqp.names import cleaned, table


async def declare(channel: Channel, method: commands.Exchange.Declare) -> None:
    await channel.session.declare_exchange(
        cleaned(method.exchange),
        method.exchange_type,
        passive=method.passive,
        durable=method.durable,
        auto_delete=method.auto_delete,
        internal=method.internal,
        arguments=table(method.arguments),
    )
    if not method.nowait:
        channel.answer(commands.Exchange.DeclareOk)


async def delete(channel: Channel, method: commands.Exchange.Delete) -> None:
    await channel.session.delete_exchange(cleaned(method.exchange), if_unused=method.if_unused)
    if not method.nowait:
        channel.answer(commands.Exchange.DeleteOk)


async def bind(channel: Channel, method: commands.Exchange.Bind) -> None:
    await channel.session.bind_exchange(
        cleaned(method.destination),
        cleaned(method.source),
        method.routing_key,
        table(method.arguments),
    )
    if not method.nowait:
        channel.answer(commands.Exchange.BindOk)


async def unbind(channel: Channel, method: commands.Exchange.Unbind) -> None:
    await channel.session.unbind_exchange(
        cleaned(method.destination),
        cleaned(method.source),
        method.routing_key,
        table(method.arguments),
    )
    if not method.nowait:
        channel.answer(commands.Exchange.UnbindOk)
