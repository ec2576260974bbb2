"""Letting a client in: who it is, and which virtual host it may use."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from pamqp import commands

from penstock.amqp.errors import amqp_error
from penstock.amqp.login import MECHANISMS, credentials
from penstock.errors import BrokerError, LoginRefused
from penstock.wire.amqp.codes import ACCESS_REFUSED, COMMAND_INVALID, AmqpError
from penstock.wire.amqp.events import LoginAttempted, VirtualHostWanted

if TYPE_CHECKING:
    from penstock.amqp.connection import Connection

log = logging.getLogger("penstock.amqp")

REFUSAL_DELAY_S = 1.0  # so that guessing passwords takes time
_OPEN_IDS = (10, 40)
_SECRET_IDS = (10, 70)


async def log_in(connection: Connection, event: LoginAttempted) -> None:
    """Answer start-ok: tune, or the end."""
    if event.mechanism not in MECHANISMS:
        text = f"unknown authentication mechanism '{event.mechanism}'"
        connection.fail(AmqpError(COMMAND_INVALID, text))
        return
    messaging = connection.server.messaging
    try:
        user, password = credentials(event.mechanism, event.response)
        connection.user = await messaging.authenticate(
            user, password, loopback=connection.is_loopback
        )
    except LoginRefused as refusal:
        connection.server.stats.refused += 1
        log.warning("refused a login from %s: %s", connection.peer, refusal)
        await asyncio.sleep(REFUSAL_DELAY_S)
        if connection.wire.handshake.client_capabilities.get("authentication_failure_close"):
            text = (
                f"Login was refused using authentication mechanism {event.mechanism}."
                " For details see the broker logfile."
            )
            connection.fail(AmqpError(ACCESS_REFUSED, text))
        else:
            # Clients that do not announce it take a closed socket for a wrong password.
            connection.close()
        return
    connection.wire.accept_login()
    connection.flush()


async def open_virtual_host(connection: Connection, event: VirtualHostWanted) -> None:
    """Answer connection.open: open-ok, or 530."""
    assert connection.user is not None
    try:
        connection.session = await connection.server.messaging.open_session(
            connection.user, event.name, connection=connection.peer
        )
    except BrokerError as failure:
        connection.fail(amqp_error(failure, _OPEN_IDS))
        return
    connection.wire.open_virtual_host()
    connection.flush()
    connection.opened(event.name)


def update_secret(connection: Connection) -> None:
    """connection.update-secret: meant for tokens that expire, which passwords do not.

    The user logged in and stays who they are, whatever the new secret is; as with RabbitMQ.
    """
    connection.wire.send(None, commands.Connection.UpdateSecretOk)
    connection.flush()
