"""The keyword arguments that every way of publishing shares, for the type checker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from penstock.client.message import Moment, Seconds
from penstock.client.properties import HeaderValue, RawHeaders


class PublishWishes(TypedDict, total=False):
    """Everything that can be said of a message beside its topic and payload."""

    key: str | bytes | None
    headers: Mapping[str, HeaderValue] | RawHeaders | None
    partition: int | None
    timestamp: Moment | None
    priority: int
    ttl: Seconds | None
    delay: Seconds | None
    deliver_at: Moment | None
    message_id: str | None
    correlation_id: str | None
    reply_to: str | None
