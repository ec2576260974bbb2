"""What declaring and using a queue asks first: whose it is, and whether it is as declared.

The rules and the words are RabbitMQ's.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.errors import PreconditionFailed, ResourceLocked
from penstock.model.queue_arguments import (
    CLASSIC,
    STREAM,
    check_equivalent,
    check_same_arguments,
)
from penstock.services.queue import Queue

_MOST_NAME_BYTES = 255


def check_owner(queue: Queue, owner: object) -> None:
    """ResourceLocked unless the queue is everybody's or the owner's."""
    if queue.exclusive and queue.owner is not owner:
        raise _locked(queue)


def _locked(queue: Queue) -> ResourceLocked:
    return ResourceLocked(
        f"cannot obtain exclusive access to locked {queue.where}. It could be originally "
        "declared on another connection or the exclusive property value does not match that "
        "of the original declaration."
    )


def check_same(
    queue: Queue,
    durable: bool,
    exclusive: bool,
    auto_delete: bool,
    arguments: Mapping[str, object],
) -> None:
    """Raises unless a declaration says of the queue what the first one said."""
    if exclusive != queue.exclusive:
        raise _locked(queue)
    check_equivalent("durable", durable, queue.durable, queue.where)
    check_equivalent("auto_delete", auto_delete, queue.auto_delete, queue.where)
    check_same_arguments(arguments, queue.arguments, queue.where)


_NOT_OF_STREAMS = (
    "x-message-ttl", "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-max-length",
    "x-overflow", "x-max-priority", "x-single-active-consumer", "x-delivery-limit",
    "x-dead-letter-strategy", "x-queue-mode",
)  # fmt: skip


def check_kind(
    arguments: Mapping[str, object], durable: bool, exclusive: bool, auto_delete: bool, where: str
) -> None:
    """Quorum queues and streams last, as with RabbitMQ; nothing happens to a stream's messages."""
    kind = arguments.get("x-queue-type", CLASSIC)
    if kind == CLASSIC:
        return
    for wrong, name in (
        (not durable, "non-durable"),
        (exclusive, "exclusive-owner"),
        (auto_delete and kind == STREAM, "auto-delete"),
    ):
        if wrong:
            raise PreconditionFailed(f"invalid property '{name}' for {where}")
    for name in _NOT_OF_STREAMS if kind == STREAM else ():
        if name in arguments:
            raise PreconditionFailed(
                f"invalid arg '{name}' for {where} of queue type rabbit_stream_queue"
            )


def check_name(name: str) -> None:
    """PreconditionFailed when a queue cannot have that name."""
    try:
        length = len(name.encode())
    except UnicodeEncodeError:
        raise PreconditionFailed("the name of a queue must be UTF-8") from None
    if length > _MOST_NAME_BYTES:
        raise PreconditionFailed(f"the name of a queue has at most {_MOST_NAME_BYTES} bytes")
