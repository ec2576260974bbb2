"""tx: publishes and settlements of a channel, held back until commit (AMQP 0-9-1 §1.9).

A commit publishes everything, waits until it is on disk, then settles. As with RabbitMQ it is not
atomic across queues when the broker dies in between: what was published twice then is redelivered,
never lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.amqp.unsettled import Taken
from penstock.model.queue_record import shown
from penstock.services.session import Message
from penstock.wire.amqp import content
from penstock.wire.amqp.codes import NO_ROUTE, PRECONDITION_FAILED, RESOURCE_ERROR, AmqpError
from penstock.wire.amqp.content import PublishTarget

if TYPE_CHECKING:
    from penstock.amqp.channel import Channel

MAX_HELD_BYTES = 64 * 1024 * 1024
_COMMIT_IDS = (90, 20)
_MESSAGE_OVERHEAD = 200


class Transaction:
    """What a transactional channel holds back."""

    __slots__ = ("_channel", "_held_bytes", "_messages", "_settlements", "_targets")

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._messages: list[Message] = []
        self._targets: list[PublishTarget] = []
        self._settlements: list[tuple[str, Taken]] = []
        self._held_bytes = 0

    def __len__(self) -> int:
        """How many messages wait for the commit."""
        return len(self._messages)

    def publish(self, messages: list[Message], target: PublishTarget) -> None:
        self._held_bytes += sum(
            [len(one.body) + len(one.properties) + _MESSAGE_OVERHEAD for one in messages]
        )
        if self._held_bytes > MAX_HELD_BYTES:
            text = f"a transaction of more than {MAX_HELD_BYTES} bytes"
            raise AmqpError(RESOURCE_ERROR, text, content.PUBLISH_IDS)
        self._messages += messages
        self._targets += [target] * len(messages)

    def settle(self, verb: str, taken: Taken) -> None:
        self._settlements.append((verb, taken))

    async def commit(self) -> None:
        channel, messages, targets = self._channel, self._messages, self._targets
        self._messages, self._targets = [], []
        # The settlements stay where a channel that closes meanwhile finds them, to roll them back.
        refused = await self._publish(messages, targets) if messages else ()
        settlements = self._settlements
        self._begin()
        for verb, taken in settlements:
            channel.settle(verb, taken)
        channel.unsettled.forget_settled()
        if refused:
            raise AmqpError(PRECONDITION_FAILED, "partial tx completion", _COMMIT_IDS)

    async def _publish(self, messages: list[Message], targets: list[PublishTarget]) -> object:
        connection = self._channel.connection
        session = connection.session
        assert session is not None
        for exchange in dict.fromkeys(target.exchange for target in targets):
            session.check_publish(exchange)
        publication = session.publish(messages)
        connection.stats.published += len(messages)
        for index in publication.unrouted:
            if targets[index].mandatory:
                connection.wire.out += content.returned(
                    self._channel.number,
                    connection.wire.frame_max,
                    (NO_ROUTE, "NO_ROUTE"),
                    shown(messages[index]),
                )
        return await publication.settled()

    def roll_back(self) -> None:
        """Forget the publishes; what was settled is unsettled again."""
        for _, taken in reversed(self._settlements):
            self._channel.unsettled.put_back(taken)
        self._begin()

    def _begin(self) -> None:
        self._messages, self._targets, self._settlements = [], [], []
        self._held_bytes = 0
