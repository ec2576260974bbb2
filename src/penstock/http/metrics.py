"""Prometheus metrics, gathered when somebody scrapes.

The hot paths keep plain integers; this module turns them into samples. Names are listed in
docs/reference/metrics.md. Only partitions that are open are counted: one that was not touched since
the start has nothing to tell.
"""

from __future__ import annotations

import resource
from collections import defaultdict
from collections.abc import Iterable, Iterator
from heapq import nlargest
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from penstock import __version__
from penstock.model.histogram import BOUNDS, Histogram
from penstock.runtime.process import open_files, resident_bytes

if TYPE_CHECKING:
    from penstock.http.view import BrokerView


MOST_QUEUES = 1000  # that are shown one by one: those with the most messages


def exposition(view: BrokerView) -> bytes:
    """The text that Prometheus reads."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_BrokerCollector(view))
    return generate_latest(registry)


class _BrokerCollector(Collector):
    def __init__(self, view: BrokerView) -> None:
        self._view = view

    def collect(self) -> Iterable[Metric]:
        yield _gauge("penstock_info", "Version of the broker.", [((__version__,), 1)], ["version"])
        yield from _topics(self._view)
        yield from _requests(self._view)
        yield from _groups(self._view)
        yield from _amqp(self._view)
        yield from _queues(self._view)
        yield from _storage(self._view)
        yield from _process(self._view)


def _gauge(
    name: str,
    doc: str,
    samples: Iterable[tuple[tuple[str, ...], float]],
    labels: list[str] | None = None,
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, doc, labels=labels or [])
    for values, number in samples:
        family.add_metric(values, number)
    return family


def _counter(
    name: str,
    doc: str,
    samples: Iterable[tuple[tuple[str, ...], float]],
    labels: list[str] | None = None,
) -> CounterMetricFamily:
    family = CounterMetricFamily(name, doc, labels=labels or [])
    for values, number in samples:
        family.add_metric(values, number)
    return family


def _histogram(
    name: str,
    doc: str,
    samples: Iterable[tuple[tuple[str, ...], Histogram]],
    labels: list[str] | None = None,
) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, doc, labels=labels or [])
    for values, histogram in samples:
        cumulative, buckets = 0, []
        for bound, count in zip((*map(str, BOUNDS), "+Inf"), histogram.buckets, strict=True):
            cumulative += count
            buckets.append((bound, float(cumulative)))
        family.add_metric(values, buckets, histogram.seconds)
    return family


def _topics(view: BrokerView) -> Iterator[Metric]:
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for replica in view.partitions:
        row = sums[replica.topic]
        row[0] += replica.messages_in
        row[1] += replica.bytes_in
        row[2] += replica.messages_out
        row[3] += replica.bytes_out
    for column, (name, doc) in enumerate(
        (
            ("penstock_topic_messages_in", "Records written, by topic."),
            ("penstock_topic_bytes_in", "Bytes of record batches written, by topic."),
            ("penstock_topic_messages_out", "Records read, by topic."),
            ("penstock_topic_bytes_out", "Bytes of record batches read, by topic."),
        )
    ):
        rows = (((topic,), row[column]) for topic, row in sums.items())
        yield _counter(name, doc, rows, ["topic"])
    yield _gauge("penstock_topics", "Topics that exist.", [((), len(view.topics))])


def _requests(view: BrokerView) -> Iterator[Metric]:
    kafka = view.kafka
    if kafka is None:
        return
    stats = kafka.stats
    yield _histogram(
        "penstock_kafka_request_seconds",
        "Time from a whole request to its answer, by API.",
        (((view.api_name(key),), histogram) for key, histogram in stats.apis.items()),
        ["api"],
    )
    yield _counter(
        "penstock_network_bytes",
        "Bytes over the sockets of the Kafka door.",
        [(("in",), stats.bytes_in), (("out",), stats.bytes_out)],
        ["direction"],
    )
    yield _gauge(
        "penstock_kafka_connections", "Kafka clients connected.", [((), len(kafka.connections))]
    )
    yield _counter(
        "penstock_kafka_connections_made", "Connections accepted.", [((), stats.connections_made)]
    )
    yield _counter(
        "penstock_kafka_connections_refused",
        "Connections closed, by reason.",
        [(("limit",), stats.refused), (("malformed",), stats.malformed)],
        ["reason"],
    )


def _groups(view: BrokerView) -> Iterator[Metric]:
    lags = view.group_lags()
    yield _gauge(
        "penstock_group_lag",
        "Records between a group's committed offset and the end of the partition.",
        (
            ((group, topic, str(partition)), lag)
            for group, topic, partition, _, lag in lags
            if lag >= 0
        ),
        ["group", "topic", "partition"],
    )
    yield _gauge("penstock_groups", "Consumer groups.", [((), view.group_count())])


def _amqp(view: BrokerView) -> Iterator[Metric]:
    door = view.amqp
    if door is None:
        return
    stats = door.stats
    yield _gauge(
        "penstock_amqp_connections", "AMQP clients connected.", [((), len(door.connections))]
    )
    yield _counter(
        "penstock_amqp_connections_made", "Connections accepted.", [((), stats.connections_made)]
    )
    yield _counter(
        "penstock_amqp_connections_refused",
        "Connections closed by the broker, by reason.",
        [(("limit or login",), stats.refused), (("broken rule",), stats.failed)],
        ["reason"],
    )
    yield _gauge("penstock_amqp_channels", "Open channels.", [((), stats.channels)])
    yield _counter(
        "penstock_amqp_bytes",
        "Bytes over the sockets of the AMQP door.",
        [(("in",), stats.bytes_in), (("out",), stats.bytes_out)],
        ["direction"],
    )
    yield _counter(
        "penstock_amqp_messages",
        "Messages through the AMQP door, by what happened to them.",
        [
            (("published",), stats.published),
            (("returned",), stats.returned),
            (("delivered",), stats.delivered),
            (("acknowledged",), stats.acknowledged),
            (("requeued",), stats.requeued),
            (("rejected",), stats.rejected),
        ],
        ["what"],
    )


def _queues(view: BrokerView) -> Iterator[Metric]:
    queues = view.messaging.queues
    awake = [(queue, queue.live) for queue in queues.all() if queue.live is not None]
    consumers = sum(queue.consumer_count for queue, _ in awake)
    yield _gauge("penstock_queues", "Queues that are declared.", [((), len(queues.all()))])
    yield _gauge("penstock_queue_consumers", "Consumers of all queues.", [((), consumers)])
    buried = queues.dead_letters.buried
    yield _counter("penstock_dead_letters", "Messages that were dead-lettered.", [((), buried)])
    # So many label values that a scrape stays small, whatever names clients invent.
    shown = nlargest(
        MOST_QUEUES, awake, key=lambda pair: (pair[1].machine.unsettled, pair[0].published)
    )
    for name, doc, verb in (
        ("ready", "Messages that could be delivered.", "ready"),
        ("unacknowledged", "Messages that consumers hold.", "delivered"),
    ):
        rows = (((queue.vhost, queue.name), getattr(live.machine, verb)) for queue, live in shown)
        yield _gauge(f"penstock_queue_messages_{name}", doc, rows, ["vhost", "queue"])
    for name, doc in (
        ("published", "Messages put into the queue."),
        ("delivered", "Messages given to consumers, each time."),
        ("acknowledged", "Messages acknowledged."),
    ):
        counts = (((queue.vhost, queue.name), getattr(queue, name)) for queue, _ in shown)
        yield _counter(f"penstock_queue_messages_{name}", doc, counts, ["vhost", "queue"])


def _storage(view: BrokerView) -> Iterator[Metric]:
    yield _histogram(
        "penstock_flush_seconds",
        "Time of one round of the flusher, in which waiting appends reach the disk together.",
        [((), view.flush_histogram)],
    )
    yield _gauge("penstock_log_bytes", "Bytes in all logs.", [((), view.log_bytes())])
    free = view.disk_free_bytes()
    if free is not None:
        yield _gauge("penstock_disk_free_bytes", "Free bytes on the data disk.", [((), free)])


def _process(view: BrokerView) -> Iterator[Metric]:
    yield _histogram(
        "penstock_loop_delay_seconds",
        "How late the event loop runs what is due.",
        [((), view.loop_delay)],
    )
    usage = resource.getrusage(resource.RUSAGE_SELF)
    yield _counter(
        "process_cpu_seconds", "Processor time used.", [((), usage.ru_utime + usage.ru_stime)]
    )
    resident, files = resident_bytes(), open_files()
    if resident is not None:
        yield _gauge(
            "process_resident_memory_bytes", "Resident memory of the broker.", [((), resident)]
        )
    if files is not None:
        yield _gauge("process_open_fds", "Open files.", [((), files)])
