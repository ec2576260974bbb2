"""What a client tells of its work: spans and figures, where somebody wants them.

A client that nobody watches has no `Watch`, and pays one comparison for each message.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.client.errors import PenstockError
from penstock.client.message import Message, Receipt
from penstock.client.outgoing import Outgoing, Settle

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from penstock.client.metrics import Meter
    from penstock.client.properties import RawHeaders
    from penstock.client.tracing import Tracing


def watch_of(tracing: bool | TracerProvider | None, metrics: Any, client_id: str) -> Watch | None:
    """A watch as `open` and `connect` were asked for. Tracing is on by itself (None) in programs
    that have loaded an SDK of OpenTelemetry."""
    meter: Meter | None = None
    if metrics is not False:
        from penstock.client.metrics import meter_of

        meter = meter_of(metrics)
    traces: Tracing | None = None
    if tracing or (tracing is None and "opentelemetry.sdk.trace" in sys.modules):
        from penstock.client.tracing import Tracing

        traces = Tracing(client_id, None if isinstance(tracing, bool | None) else tracing)
    return None if traces is None and meter is None else Watch(traces, meter)


class Watch:
    """Tells of one client's work. Used from any thread."""

    def __init__(self, tracing: Tracing | None, meter: Meter | None) -> None:
        self._tracing = tracing
        self.meter = meter

    # --- publishing -------------------------------------------------------------------------------

    def begin(self, destination: str, outgoing: Outgoing, settle: Settle) -> Settle:
        """A message is about to be sent; what is to be called instead of `settle`."""
        tracing, meter = self._tracing, self.meter
        span = None if tracing is None else tracing.published(destination, outgoing)
        began = time.perf_counter()

        def landed(receipt: Receipt | None, failure: PenstockError | None) -> None:
            if tracing is not None and span is not None:
                tracing.landed(span, receipt, failure)
            if meter is not None:
                meter.landed(destination, time.perf_counter() - began, failure)
            settle(receipt, failure)

        return landed

    @contextmanager
    def many(self, destination: str, count: list[int]) -> Iterator[RawHeaders]:
        """Many messages are sent at once; `count` has how many, at the end."""
        began = time.perf_counter()
        failure: BaseException | None = None
        try:
            if self._tracing is None:
                yield ()
            else:
                with self._tracing.many(destination) as headers:
                    yield headers
        except BaseException as error:
            failure = error
            raise
        finally:
            if self.meter is not None:
                self.meter.landed(destination, time.perf_counter() - began, failure, count[0])

    # --- processing -------------------------------------------------------------------------------

    def working(self, message: Message, group: str | None = None) -> Working:
        """A message is being handled from now on, here, until `Working.end`."""
        if self.meter is not None:
            self.meter.received(message.topic)
        return Working(self._tracing, self.meter, message, group)

    @contextmanager
    def processing(self, message: Message) -> Iterator[None]:
        """The same as a block."""
        work = self.working(message)
        try:
            yield
        except BaseException as failure:
            work.end(failure)
            raise
        work.end(None)


class Working:
    """One message being handled."""

    __slots__ = ("_began", "_meter", "_span", "_token", "_tracing", "_where", "source")

    def __init__(
        self, tracing: Tracing | None, meter: Meter | None, message: Message, group: str | None
    ) -> None:
        self.source = message.topic
        self._tracing = tracing
        self._meter = meter
        self._began = time.perf_counter()
        self._where = _here()
        if tracing is not None:
            self._span, self._token = tracing.processing(message, group)

    def end(self, failure: BaseException | None) -> None:
        if self._tracing is not None:
            # A context can be left only where it was entered.
            token = self._token if self._where == _here() else None
            self._tracing.processed(self._span, token, failure)
        if self._meter is not None:
            self._meter.processed(self.source, time.perf_counter() - self._began, failure)


def _here() -> tuple[int, int]:
    """Which thread and task this is."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return threading.get_ident(), id(task)
