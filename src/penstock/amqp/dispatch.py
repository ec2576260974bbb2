"""The table of methods a client may call on a channel, and who does them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from pamqp import commands

from penstock.amqp.channel import Channel
from penstock.amqp.handlers import basic, exchange, modes, queue
from penstock.wire.amqp.methods import AccessRequest, BasicRenew, Method

# A handler takes the channel and a method of the type that stands beside it.
Handler = Callable[[Channel, Any], Coroutine[Any, Any, None] | None]

HANDLERS: dict[type[Method], Handler] = {
    AccessRequest: modes.access_request,
    commands.Channel.Flow: modes.flow,
    commands.Exchange.Declare: exchange.declare,
    commands.Exchange.Delete: exchange.delete,
    commands.Exchange.Bind: exchange.bind,
    commands.Exchange.Unbind: exchange.unbind,
    commands.Queue.Declare: queue.declare,
    commands.Queue.Bind: queue.bind,
    commands.Queue.Unbind: queue.unbind,
    commands.Queue.Purge: queue.purge,
    commands.Queue.Delete: queue.delete,
    commands.Basic.Qos: basic.qos,
    commands.Basic.Consume: basic.consume,
    commands.Basic.Cancel: basic.cancel,
    commands.Basic.Get: basic.get,
    commands.Basic.Recover: basic.recover,
    commands.Basic.RecoverAsync: basic.recover_async,
    BasicRenew: basic.renew,
    commands.Confirm.Select: modes.confirm_select,
    commands.Tx.Select: modes.tx_select,
    commands.Tx.Commit: modes.tx_commit,
    commands.Tx.Rollback: modes.tx_rollback,
}
