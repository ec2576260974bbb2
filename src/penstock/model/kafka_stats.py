"""Counters of the Kafka door: plain integers, so that counting costs next to nothing.

The HTTP door reads them when somebody scrapes; nothing here knows of Prometheus.
"""

from __future__ import annotations

from penstock.model.histogram import Histogram


class KafkaStats:
    """What the door has done since it was opened."""

    __slots__ = ("apis", "bytes_in", "bytes_out", "connections_made", "malformed", "refused")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.connections_made = 0
        self.malformed = 0
        self.refused = 0
        self.apis: dict[int, Histogram] = {}

    def answered(self, api_key: int, seconds: float) -> None:
        histogram = self.apis.get(api_key)
        if histogram is None:
            histogram = self.apis[api_key] = Histogram()
        histogram.observe(seconds)
