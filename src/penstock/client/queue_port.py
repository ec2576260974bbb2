"""What both faces of a queue share: from a payload to what is posted, and the way of delays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.client.amqp_mapping import write_amqp
from penstock.client.arguments import check_text
from penstock.client.errors import InvalidArgument, PenstockError
from penstock.client.home import Home
from penstock.client.message import Receipt
from penstock.client.outgoing import Outgoing, Settle, wishes_of
from penstock.client.properties import read_properties
from penstock.client.queue_home import (
    DEFAULT_OPTIONS,
    DELAY_EXCHANGE,
    Posted,
    QueueConsumer,
    QueueHome,
    QueueOptions,
    Taken,
)
from penstock.client.queue_message import Settlement
from penstock.client.room import Room
from penstock.client.sender import Sender
from penstock.client.serializer import Serializer
from penstock.client.wishes import PublishWishes

_DELAYED_KIND = "x-delayed-message"
_MOST_NAME_BYTES = 255  # AMQP 0-9-1 §4.2.5.3: a short string


class _Landed:
    """What settles a message for which room was taken."""

    __slots__ = ("_message_id", "_room", "_settle", "_size")

    def __init__(self, room: Room, size: int, message_id: str | None, settle: Settle) -> None:
        self._room = room
        self._size = size
        self._message_id = message_id
        self._settle = settle

    def __call__(self, receipt: Receipt | None, failure: PenstockError | None) -> None:
        self._room.give_back(self._size)
        if receipt is not None:
            receipt = Receipt(
                receipt.topic, receipt.partition, -1, receipt.timestamp_ms, self._message_id
            )
        self._settle(receipt, failure)


class QueuePort:
    """Queues of one client."""

    def __init__(self, home: Home, queues: QueueHome, sender: Sender) -> None:
        self.home = home
        self.queues = queues
        self.sender = sender
        self._delayed: set[str] = set()  # queues that the exchange for delays knows

    # --- opening ----------------------------------------------------------------------------------

    async def open(self, name: str, options: QueueOptions) -> tuple[str, str | None]:
        """Declare a queue; its name, and that of its dead letters. Without options an existing
        one is taken as it is."""
        check_text(name, "a queue")
        if len(name.encode("utf-8", "replace")) > _MOST_NAME_BYTES:
            raise InvalidArgument(f"the name of a queue has at most {_MOST_NAME_BYTES} bytes")
        if options == DEFAULT_OPTIONS and await self.queues.queue_exists(name):
            target = options.dead_letter_queue(name)
            exists = target is not None and await self.queues.queue_exists(target)
            return name, target if exists else None
        name = await self.queues.declare_queue(name, options)
        return name, options.dead_letter_queue(name)

    def has_delays(self, queue: str) -> bool:
        """Whether `ensure_delays` was called for it."""
        return queue in self._delayed

    async def ensure_delays(self, queue: str) -> None:
        """Have an exchange that can hold messages of this queue back."""
        if queue in self._delayed:
            return
        await self.queues.declare_exchange(
            DELAY_EXCHANGE,
            _DELAYED_KIND,
            durable=True,
            auto_delete=False,
            arguments={"x-delayed-type": "direct"},
        )
        await self.queues.bind(queue, DELAY_EXCHANGE, queue, {})
        self._delayed.add(queue)

    # --- publishing -------------------------------------------------------------------------------

    def prepare(
        self, queue: str, payload: Any, serializer: Serializer | str | None, wishes: PublishWishes
    ) -> tuple[Outgoing, int]:
        """A message, and by how many milliseconds it is delayed."""
        wanted = wishes_of(wishes)
        if wanted.partition is not None:
            raise InvalidArgument("a queue has no partitions to choose from")
        outgoing = self.sender.prepare(queue, payload, wanted, serializer)
        if not outgoing.headers:
            return outgoing, 0
        due_ms = read_properties(outgoing.headers).due_ms
        return outgoing, 0 if due_ms is None else max(0, due_ms - self.home.now_ms())

    def post(
        self, exchange: str, routing_key: str, outgoing: Outgoing, delay_ms: int, settle: Settle
    ) -> None:
        """Send it; room for it was taken."""
        size = outgoing.size
        if self.sender.watch is not None:
            settle = self.sender.watch.begin(exchange or routing_key, outgoing, settle)
        properties = write_amqp(outgoing, delay_ms=delay_ms)
        landed = _Landed(self.sender.room, size, outgoing.message_id, settle)
        exchange = DELAY_EXCHANGE if delay_ms else exchange
        try:
            self.queues.post(
                Posted(exchange, routing_key, properties, outgoing.value or b"", landed)
            )
        except BaseException:
            self.sender.room.give_back(size)
            raise

    # --- consuming --------------------------------------------------------------------------------

    def settlement(
        self, consumer: QueueConsumer, queue: str, dead_letters: str | None, taken: Taken
    ) -> Settlement:
        return Settlement(self, consumer, queue, dead_letters, taken)


def binding_arguments(
    headers: Mapping[str, str | int | bool] | None, match: str
) -> dict[str, object]:
    """The arguments of a binding to a headers exchange."""
    if headers is None:
        return {}
    if match not in ("all", "any"):
        raise InvalidArgument(f'match is "all" or "any", not {match!r}')
    return {**headers, "x-match": match}
