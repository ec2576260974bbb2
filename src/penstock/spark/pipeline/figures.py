"""The figures of a pipeline: one batch for people, and all of them for Prometheus.

penstock_pipeline_rows_total{pipeline}               rows read
penstock_pipeline_bad_rows_total{pipeline, reason}   rows that went to quarantine
penstock_pipeline_batches_total{pipeline}
penstock_pipeline_batch_seconds{pipeline}            how long the last batch took
penstock_pipeline_lag_records{pipeline}              what waits in the source
penstock_pipeline_watermark_seconds{pipeline}        event time up to which windows are closed
penstock_pipeline_last_batch_time_seconds{pipeline}  when the last batch ended
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from penstock.spark.errors import OptionError, SparkConnectorError

QUALITY = "quality"  # the name of the counters of good and bad rows


@dataclass(frozen=True)
class Figures:
    """One batch, or one round of a pipeline that has no batches."""

    batch: int
    rows: int
    rows_per_s: float = 0.0
    seconds: float = 0.0
    lag: int = 0
    bad: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    watermark: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def figures_of(progress: Any, reasons: Sequence[str] = ()) -> Figures:
    """From Spark's progress: lag is the ends of the topics minus what is read."""
    said = json.loads(progress.json)
    lag = 0
    for source in said["sources"]:
        latest, end = (offsets_in(source.get(name)) for name in ("latestOffset", "endOffset"))
        lag += sum(max(0, offset - end.get(tp, 0)) for tp, offset in latest.items())
    seconds = said.get("durationMs", {}).get("triggerExecution", 0) / 1000
    counted = said.get("observedMetrics", {}).get(QUALITY, {})
    rows = counted.get("rows", said["numInputRows"])
    why = {reason: counted.get(f"bad{at}", 0) for at, reason in enumerate(reasons)}
    return Figures(
        batch=said["batchId"],
        rows=rows,
        rows_per_s=rows / seconds if seconds else 0.0,
        seconds=seconds,
        lag=lag,
        bad=counted.get("bad", 0),
        reasons={reason: count for reason, count in why.items() if count},
        watermark=said.get("eventTime", {}).get("watermark", ""),
    )


def offsets_in(text: Any) -> dict[tuple[str, str], int]:
    """The offsets of Spark's progress by topic and partition."""
    nested = (json.loads(text) if isinstance(text, str) else text) or {}
    return {
        (topic, partition): offset
        for topic, parts in nested.items()
        if not topic.startswith("@")
        for partition, offset in parts.items()
    }


class Metrics:
    """What Prometheus reads from a running pipeline."""

    def __init__(self, pipeline: str) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge

        self.registry = CollectorRegistry()
        self._name = pipeline

        def counter(name: str, words: str, *labels: str) -> Any:
            names = ["pipeline", *labels]
            return Counter(f"penstock_pipeline_{name}", words, names, registry=self.registry)

        def gauge(name: str, words: str) -> Any:
            full = f"penstock_pipeline_{name}"
            return Gauge(full, words, ["pipeline"], registry=self.registry).labels(pipeline)

        self._rows = counter("rows", "Rows read.").labels(pipeline)
        self._bad = counter("bad_rows", "Rows that went to quarantine.", "reason")
        self._batches = counter("batches", "Batches done.").labels(pipeline)
        self._seconds = gauge("batch_seconds", "How long the last batch took.")
        self._lag = gauge("lag_records", "Records that wait in the source.")
        self._watermark = gauge("watermark_seconds", "Event time up to which windows are closed.")
        self._last = gauge("last_batch_time_seconds", "When the last batch ended.")

    def add(self, figures: Figures) -> None:
        self._rows.inc(figures.rows)
        self._batches.inc()
        self._seconds.set(figures.seconds)
        self._lag.set(figures.lag)
        self._last.set(time.time())
        for reason, count in figures.reasons.items():
            self._bad.labels(self._name, reason).inc(count)
        if figures.watermark:
            when = datetime.fromisoformat(figures.watermark.replace("Z", "+00:00"))
            self._watermark.set(when.timestamp())

    def serve(self, address: str) -> tuple[str, Any]:
        """Answer GET /metrics at HOST:PORT; where, and a function that ends it."""
        from prometheus_client import start_http_server

        host, _, port = address.rpartition(":")
        if not port.isdecimal():
            raise OptionError(f"metrics: {address!r} is not HOST:PORT")
        try:
            server, thread = start_http_server(int(port), host or "127.0.0.1", self.registry)
        except OSError as failure:
            raise SparkConnectorError(f"metrics at {address}: {failure.strerror}") from None

        def end() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return f"{host or '127.0.0.1'}:{server.server_address[1]}", end
