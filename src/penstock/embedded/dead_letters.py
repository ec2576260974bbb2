"""What to do with a message of a stream that could not be processed: later again, or aside.

handler = DeadLetterQueueHandler("orders.dlq", max_retries=3, servers=broker)
try:
    process(message)
except Exception as error:
    await handler.handle_failed_message(message, error)
"""

from __future__ import annotations

import asyncio
import enum
import traceback

from penstock.client.errors import InvalidArgument
from penstock.client.message import Message
from penstock.client.queue_message import ERROR, ERROR_TRACE, ERROR_TYPE
from penstock.client.worker import Retry
from penstock.embedded.message_consumer import ConsumerRecord
from penstock.embedded.underneath import DEFAULT_SERVERS, Underneath, Where, client_of

SOURCE_TOPIC = "penstock.source-topic"
SOURCE_PARTITION = "penstock.source-partition"
SOURCE_OFFSET = "penstock.source-offset"
SOURCE_GROUP = "penstock.source-group"

_MOST_TRACE = 4_000


class Handled(enum.Enum):
    """What became of a message that failed."""

    RETRY = "it comes again"
    DEAD = "it is a dead letter"


class DeadLetterQueueHandler(Underneath):
    """Publishes a failed message anew: to its own topic, for later, or among the dead letters.

    A message that has failed `max_retries` times goes to `dlq_topic` with the error, and where it
    came from, in its headers. Before that it goes to its topic again with its `retry_count` one
    higher, to be seen after `backoff` seconds, then twice that, and so on. The copy is safe when
    the call returns, so commit the message afterwards: if the process dies in between, there are
    two.

    >>> import asyncio, penstock
    >>> with penstock.open(None, num_partitions=1) as mq:
    ...     handler = DeadLetterQueueHandler("orders.dlq", max_retries=2, servers=mq, backoff=0)
    ...     _ = mq.publish("orders", "poison")
    ...     with mq.subscribe("orders") as messages:
    ...         print(handler.handle(next(messages), ValueError("bad")))
    ...         handled = handler.handle_failed_message(next(messages), ValueError("bad"))
    ...         print(asyncio.run(handled))
    ...     next(mq.subscribe("orders.dlq")).headers["penstock.error"]
    Handled.RETRY
    Handled.DEAD
    'bad'
    """

    def __init__(
        self,
        dlq_topic: str,
        max_retries: int = 3,
        *,
        servers: Where = DEFAULT_SERVERS,
        backoff: float = 1.0,
    ) -> None:
        if max_retries < 0:
            raise InvalidArgument(f"max_retries is 0 or more, not {max_retries}")
        client, owned = client_of(servers)
        super().__init__(client, owned=owned)
        self.dlq_topic = dlq_topic
        self.max_retries = max_retries
        self._retry = Retry(max_retries=max_retries, backoff=backoff)

    def __repr__(self) -> str:
        return f"<DeadLetterQueueHandler {self.dlq_topic} after {self.max_retries} retries>"

    async def handle_failed_message(
        self, message: Message | ConsumerRecord, error: BaseException
    ) -> Handled:
        """Decide, publish the copy and wait until it is safe."""
        return await asyncio.to_thread(self.handle, message, error)

    def handle(self, message: Message | ConsumerRecord, error: BaseException) -> Handled:
        """The same for code without an event loop."""
        stored = message.message if isinstance(message, ConsumerRecord) else message
        tried = stored.retry_count + 1
        if tried >= self.max_retries:
            headers = stored.headers | error_headers(stored, error)
            self._publish(self.dlq_topic, _copy(stored, headers, tried, None))
            return Handled.DEAD
        pause = self._retry.pause(stored.retry_count)
        self._publish(stored.topic, _copy(stored, stored.headers, tried, pause))
        return Handled.RETRY

    def _publish(self, topic: str, copy: Message) -> None:
        self.client.publish_many(topic, [copy])


def _copy(
    stored: Message, headers: dict[str, str], retry_count: int, delay: float | None
) -> Message:
    # It has no message id: within the window of deduplication the first copy would be the last.
    return Message(
        stored.value,
        key=stored.key,
        headers=headers,
        priority=stored.priority,
        correlation_id=stored.correlation_id,
        reply_to=stored.reply_to,
        retry_count=retry_count,
        delay=delay,
    )


def error_headers(
    stored: Message, error: BaseException, *, group: str | None = None
) -> dict[str, str]:
    """What a dead letter says about its death."""
    headers = {
        ERROR: str(error) or type(error).__name__,
        ERROR_TYPE: type(error).__qualname__,
        ERROR_TRACE: "".join(traceback.format_exception(error))[-_MOST_TRACE:],
        SOURCE_TOPIC: stored.topic,
        SOURCE_PARTITION: str(stored.partition),
        SOURCE_OFFSET: str(stored.offset),
    }
    return headers if group is None else {**headers, SOURCE_GROUP: group}
