"""Names and tables as clients send them, made fit for the service."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping


def cleaned(name: str) -> str:
    """A name without line breaks, which some clients let through from files they read."""
    return name.replace("\r", "").replace("\n", "") if "\r" in name or "\n" in name else name


def table(arguments: Mapping[str, object] | None) -> Mapping[str, object]:
    """An arguments table; pamqp says None for one that is absent."""
    return arguments or {}


def new_consumer_tag() -> str:
    """A tag for a consumer that did not choose one, in the form RabbitMQ gives it."""
    return "amq.ctag-" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
