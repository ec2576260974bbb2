"""What changes how a channel works: confirm, tx, flow, and the access request of old clients."""

from __future__ import annotations

from pamqp import commands

from penstock.amqp.channel import Channel
from penstock.amqp.transaction import Transaction
from penstock.wire.amqp.codes import NOT_IMPLEMENTED, PRECONDITION_FAILED, AmqpError
from penstock.wire.amqp.methods import AccessRequest, encode_access_request_ok, method_ids


def confirm_select(channel: Channel, method: commands.Confirm.Select) -> None:
    if channel.transaction is not None:
        text = "cannot switch from tx to confirm mode"
        raise AmqpError(PRECONDITION_FAILED, text, method_ids(method))
    channel.confirms = True
    if not method.nowait:
        channel.answer(commands.Confirm.SelectOk)


def tx_select(channel: Channel, method: commands.Tx.Select) -> None:
    if channel.confirms:
        text = "cannot switch from confirm to tx mode"
        raise AmqpError(PRECONDITION_FAILED, text, method_ids(method))
    if channel.transaction is None:
        channel.transaction = Transaction(channel)
    channel.answer(commands.Tx.SelectOk)


async def tx_commit(channel: Channel, method: commands.Tx.Commit) -> None:
    await _transaction(channel, method).commit()
    channel.answer(commands.Tx.CommitOk)


def tx_rollback(channel: Channel, method: commands.Tx.Rollback) -> None:
    _transaction(channel, method).roll_back()
    channel.answer(commands.Tx.RollbackOk)


def flow(channel: Channel, method: commands.Channel.Flow) -> None:
    if not method.active:
        raise AmqpError(NOT_IMPLEMENTED, "active=false", method_ids(method))
    channel.answer(commands.Channel.FlowOk, True)


def access_request(channel: Channel, method: AccessRequest) -> None:
    channel.connection.wire.out.append(encode_access_request_ok(channel.number))


def _transaction(
    channel: Channel, method: commands.Tx.Commit | commands.Tx.Rollback
) -> Transaction:
    if channel.transaction is None:
        raise AmqpError(PRECONDITION_FAILED, "channel is not transactional", method_ids(method))
    return channel.transaction
