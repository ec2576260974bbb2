"""What a message must fulfil before it is published, and the few properties the broker rewrites.

Everything a queue does not need to know is decided here: the exchange may be written to, the
properties are well formed, the user is who they say, the expiration is a number, CC and BCC are
lists (what is no string in them is no key). A message that fails ends its channel with 406, as with
RabbitMQ.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock.amqp.errors import amqp_error
from penstock.errors import BrokerError, MalformedRequest
from penstock.model import message_properties
from penstock.model.message_properties import (
    EXPIRATION,
    HEADERS,
    REPLY_TO,
    USER_ID,
    MessageProperties,
)
from penstock.model.queue_arguments import MOST_MS, type_of
from penstock.wire.amqp.codes import (
    FRAME_ERROR,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    AmqpError,
)
from penstock.wire.amqp.content import PUBLISH_IDS, PublishTarget

if TYPE_CHECKING:
    from penstock.amqp.channel import Channel

_NUMBER = re.compile(r"[+-]?[0-9]{1,40}")
REPLY_TO_QUEUE = "amq.rabbitmq.reply-to"
_LOOKED_AT = EXPIRATION | HEADERS | REPLY_TO | USER_ID


def admit(channel: Channel, target: PublishTarget, raw: bytes) -> bytes:
    """The properties to publish with; AmqpError when the message is refused."""
    if target.immediate:
        raise AmqpError(NOT_IMPLEMENTED, "immediate=true", PUBLISH_IDS)
    try:
        channel.session.check_publish(target.exchange)
        properties = message_properties.parse(raw)
    except MalformedRequest as failure:
        raise AmqpError(FRAME_ERROR, str(failure), PUBLISH_IDS) from None
    except BrokerError as failure:
        raise amqp_error(failure, PUBLISH_IDS) from None
    if properties.flags & _LOOKED_AT:
        return _examine(channel, properties)
    return raw


def _examine(channel: Channel, properties: MessageProperties) -> bytes:
    flags = properties.flags
    if flags & USER_ID:
        _check_user(channel, properties.user_id or "")
    if flags & EXPIRATION:
        _check_expiration(properties.expiration or "")
    if flags & HEADERS and b"CC" in properties.raw:
        _check_copies(properties)
    if flags & REPLY_TO and properties.reply_to == REPLY_TO_QUEUE:
        consumer = channel.reply_consumer()
        if consumer is None:
            raise _refused("fast reply consumer does not exist")
        return properties.with_text(REPLY_TO, consumer.subscription.reply_to)
    return properties.raw


def _check_user(channel: Channel, user_id: str) -> None:
    session = channel.connection.session
    assert session is not None
    if user_id != session.user.name and "impersonator" not in session.user.tags:
        raise _refused(
            f"user_id property set to '{user_id}' but authenticated user was '{session.user.name}'"
        )


def _check_expiration(expiration: str) -> None:
    found = _NUMBER.match(expiration)
    problem = ""
    if found is None:
        problem = "no_integer"
    elif found.end() < len(expiration):
        problem = f'{{leftover_string,"{expiration[found.end() :]}"}}'
    elif (number := int(found[0])) < 0:
        problem = f"{{value_negative,{number}}}"
    elif number > MOST_MS:
        problem = f"{{value_too_large,{number}}}"
    if problem:
        raise _refused(f"invalid expiration '{expiration}': {problem}")


def _check_copies(properties: MessageProperties) -> None:
    headers = properties.headers
    for name in ("CC", "BCC"):
        keys = headers.get(name, [])
        if not isinstance(keys, list):
            raise _refused(
                f'invalid message: {{unacceptable_type_in_header,"{name}",{type_of(keys)}}}'
            )


def _refused(text: str) -> AmqpError:
    return AmqpError(PRECONDITION_FAILED, text, PUBLISH_IDS)
