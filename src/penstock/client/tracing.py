"""Spans of OpenTelemetry: who published a message, and who processed it, in one trace.

The context travels in the headers of a message, as the global propagator writes it (`traceparent`).
A span for processing is the child of the one that published, and is current while the message is
being handled: what the handler does is part of the trace. Names and attributes follow the semantic
conventions for messaging.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from opentelemetry import context, propagate, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider

import penstock

if TYPE_CHECKING:
    from penstock.client.message import Message, Receipt
    from penstock.client.outgoing import Outgoing
    from penstock.client.properties import RawHeaders


class Tracing:
    """Starts and ends the spans of one client."""

    def __init__(self, client_id: str, provider: TracerProvider | None) -> None:
        self._tracer = trace.get_tracer("penstock", penstock.__version__, provider)
        self._client_id = client_id

    def _attributes(self, operation: str, kind: str, destination: str) -> dict[str, Any]:
        return {
            "messaging.system": "penstock",
            "messaging.operation.name": operation,
            "messaging.operation.type": kind,
            "messaging.destination.name": destination,
            "messaging.client.id": self._client_id,
        }

    # --- publishing -------------------------------------------------------------------------------

    def published(self, destination: str, outgoing: Outgoing) -> Span:
        """A message is being sent: its headers carry the context from here on."""
        attributes = self._attributes("publish", "send", destination)
        attributes["messaging.message.body.size"] = len(outgoing.value or b"")
        if outgoing.message_id is not None:
            attributes["messaging.message.id"] = outgoing.message_id
        span = self._tracer.start_span(
            f"publish {destination}", kind=SpanKind.PRODUCER, attributes=attributes
        )
        outgoing.headers = [*outgoing.headers, *_injected(span)]
        return span

    def landed(self, span: Span, receipt: Receipt | None, failure: BaseException | None) -> None:
        """What became of it."""
        if receipt is not None and receipt.offset >= 0:
            span.set_attribute("messaging.destination.partition.id", str(receipt.partition))
            span.set_attribute("messaging.kafka.offset", receipt.offset)
        _end(span, failure)

    @contextmanager
    def many(self, destination: str) -> Iterator[RawHeaders]:
        """One span for many messages; the headers that each of them gets."""
        attributes = self._attributes("publish", "send", destination)
        span = self._tracer.start_span(
            f"publish {destination}", kind=SpanKind.PRODUCER, attributes=attributes
        )
        failure: BaseException | None = None
        try:
            yield _injected(span)
        except BaseException as error:
            failure = error
            raise
        finally:
            _end(span, failure)

    # --- processing -------------------------------------------------------------------------------

    def processing(self, message: Message, group: str | None) -> tuple[Span, Any]:
        """A message is being handled, here: the span, and the context that is current now."""
        attributes = self._attributes("process", "process", message.topic)
        attributes["messaging.message.id"] = message.message_id
        attributes["messaging.message.body.size"] = len(message.payload)
        if group is not None:
            attributes["messaging.consumer.group.name"] = group
        if message.offset >= 0:
            attributes["messaging.destination.partition.id"] = str(message.partition)
            attributes["messaging.kafka.offset"] = message.offset
        span = self._tracer.start_span(
            f"process {message.topic}",
            context=propagate.extract(message.headers),
            kind=SpanKind.CONSUMER,
            attributes=attributes,
        )
        return span, context.attach(trace.set_span_in_context(span))

    def processed(self, span: Span, token: Any, failure: BaseException | None) -> None:
        """It was handled; without a `token`, somewhere else than it began."""
        if token is not None:
            context.detach(token)
        _end(span, failure)


def _injected(span: Span) -> list[tuple[str, bytes | None]]:
    carrier: dict[str, str] = {}
    propagate.inject(carrier, trace.set_span_in_context(span))
    return [(name, value.encode()) for name, value in carrier.items()]


def _end(span: Span, failure: BaseException | None) -> None:
    if failure is not None:
        span.record_exception(failure)
        span.set_attribute("error.type", type(failure).__qualname__)
        span.set_status(Status(StatusCode.ERROR, str(failure)))
    span.end()
