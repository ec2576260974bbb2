"""`penstock` for code with an event loop.

    async with penstock.aio.open("data") as mq:
        await mq.publish("orders", b"...")
        async for message in mq.subscribe("orders", group="billing"): ...

The arguments of `open` and `connect` are those of `penstock.open` and `penstock.connect`.
"""

from __future__ import annotations

from functools import partial, wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from penstock.client import opening
from penstock.client.aio import AsyncClient, AsyncLocalClient, Opening
from penstock.client.aio_queue import AsyncConsumption, AsyncExchange, AsyncQueue
from penstock.client.aio_subscription import AsyncSubscription
from penstock.client.aio_transaction import AsyncTransaction
from penstock.client.aio_worker import AsyncWorker
from penstock.client.queue_message import AsyncQueueMessage

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.client.sync import Client

__all__ = [
    "AsyncClient",
    "AsyncConsumption",
    "AsyncExchange",
    "AsyncLocalClient",
    "AsyncQueue",
    "AsyncQueueMessage",
    "AsyncSubscription",
    "AsyncTransaction",
    "AsyncWorker",
    "connect",
    "open",
]

P = ParamSpec("P")
A = TypeVar("A", bound=AsyncClient)


def _awaited(make: Callable[P, Client], kind: Callable[[Any], A]) -> Callable[P, Opening[A]]:
    """The same function, whose result is awaited or used with `async with`."""

    @wraps(make)
    def opened(*arguments: P.args, **options: P.kwargs) -> Opening[A]:
        return Opening(partial(make, *arguments, **options), kind)

    return opened


open = _awaited(opening.open, AsyncLocalClient)
connect = _awaited(opening.connect, AsyncClient)
