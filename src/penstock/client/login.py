"""Logging in once, before anything else: librdkafka does not give up when it is refused.

It tries again for as long as a call may take, and then says that the call took too long. Here the
first refusal is the answer.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from penstock.client.errors import Denied, TimedOut
from penstock.client.remote_errors import kafka_errors, of_kafka_error

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from penstock.client.remote_settings import RemoteSettings

_LOOK_SECONDS = 0.02


def log_in(settings: RemoteSettings) -> AdminClient:
    """A client that has been let in; `Denied` when it was not."""
    from confluent_kafka.admin import AdminClient

    refusals: list[Any] = []
    configuration = settings.common()
    tell = configuration["error_cb"]

    def noted(error: Any) -> None:
        if error.name() in ("_AUTHENTICATION", "_SSL") and not refusals:
            refusals.append(error)
        tell(error)

    configuration["error_cb"] = noted
    with kafka_errors("connecting"):
        client = AdminClient(configuration)
        answer = client.describe_cluster(request_timeout=settings.timeout)
        deadline = time.monotonic() + settings.timeout
        while not answer.done() and not refusals:
            if time.monotonic() > deadline:
                raise TimedOut(f"{settings.servers} did not let us in in {settings.timeout} s")
            client.poll(_LOOK_SECONDS)
        if refusals:
            raise Denied(_reason(settings, refusals[0])) from of_kafka_error(refusals[0])
        answer.result()
    return client


def _reason(settings: RemoteSettings, error: Any) -> str:
    """librdkafka's sentence without its address and its stopwatch."""
    text = str(error.str()).split(": ", 1)[-1].rsplit(" (after", 1)[0]
    user = settings.security.username
    if "not valid in current SASL state" in text:
        return f"{settings.servers} wants no login here; leave username and password out"
    return f"{settings.servers} does not let {user or 'us'} in: {text}"
