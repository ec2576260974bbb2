"""The message of `SimpleQueue` and `MessageBroker`: an id, a topic, and data that JSON can say."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

from penstock.client.errors import InvalidArgument
from penstock.client.message import Message as LogMessage
from penstock.client.queue_message import ERROR

_MAX_RETRIES = "max-retries"
_TOPIC = "topic"


@dataclass
class Message:
    """A message. `max_retries` is how often it is tried before it counts as dead.

    >>> Message(id="msg1", topic="orders", data={"order_id": 123}, priority=1).retry_count
    0
    """

    id: str
    topic: str
    data: Any
    priority: int = 0
    timestamp: float = field(default_factory=time.time)
    retry_count: int = 0
    max_retries: int = 3
    error: str | None = None

    def payload(self) -> bytes:
        """The data as it is stored.

        >>> Message("msg1", "orders", {"order_id": 123}).payload()
        b'{"order_id": 123}'
        """
        try:
            return json.dumps(self.data).encode()
        except TypeError as failure:
            raise InvalidArgument(f"the data of message {self.id} is not JSON: {failure}") from None

    def headers(self) -> dict[str, str]:
        """What is stored beside the data.

        >>> Message("msg1", "orders", {}).headers()
        {'topic': 'orders', 'max-retries': '3'}
        """
        return {_TOPIC: self.topic, _MAX_RETRIES: str(self.max_retries)}

    @classmethod
    def read(cls, stored: LogMessage) -> Message:
        """The message that is stored so."""
        headers = stored.headers
        retries = headers.get(_MAX_RETRIES, "")
        return cls(
            id=stored.message_id,
            topic=headers.get(_TOPIC, stored.topic),
            data=stored.json(),
            priority=stored.priority,
            timestamp=stored.timestamp_ms / 1000,
            retry_count=stored.retry_count,
            max_retries=int(retries) if retries.isdigit() else 3,
            error=headers.get(ERROR),
        )
