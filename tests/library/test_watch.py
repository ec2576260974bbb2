"""Spans, figures and logs of a client, in both homes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind
from prometheus_client import CollectorRegistry

import penstock
from penstock import Client, QueueMessage, aio
from penstock.aio import AsyncQueueMessage
from penstock.client.aio import Opening
from support.broker import doors
from support.naming import unique
from support.waiting import eventually

OpenMq = Callable[..., Client]


class Spans:
    """What was exported, by name."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def named(self, name: str, count: int = 1) -> list[ReadableSpan]:
        def found() -> list[ReadableSpan]:
            return [span for span in self._exporter.get_finished_spans() if span.name == name]

        eventually(lambda: len(found()) >= count, what=f"{count} spans {name!r}")
        return found()


@pytest.fixture
def spans() -> Spans:
    return Spans()


def current() -> int:
    return trace.get_current_span().get_span_context().span_id


def ids(span: ReadableSpan) -> tuple[int, int]:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


def parents(spans: Sequence[ReadableSpan]) -> list[int]:
    return [0 if span.parent is None else span.parent.span_id for span in spans]


# --- spans ----------------------------------------------------------------------------------------


def test_publishing_and_processing_are_one_trace(open_mq: OpenMq, spans: Spans) -> None:
    mq, topic = open_mq(tracing=spans.provider), unique("topic")
    tracer = spans.provider.get_tracer("mine")
    with tracer.start_as_current_span("order"):
        mq.publish(topic, "a", message_id="m-1")
    during: list[int] = []
    with mq.subscribe(topic, group=unique("group")) as messages:
        message = next(messages)
        during.append(current())
        with tracer.start_as_current_span("inner"):
            pass
    assert current() == 0  # it was only current while the message was
    [order], [sent] = spans.named("order"), spans.named(f"publish {topic}")
    [processed], [inner] = spans.named(f"process {topic}"), spans.named("inner")
    assert sent.parent is not None
    assert sent.parent.span_id == ids(order)[1]
    assert sent.kind is SpanKind.PRODUCER
    assert processed.parent is not None
    assert processed.parent.span_id == ids(sent)[1]
    assert processed.kind is SpanKind.CONSUMER
    assert during == [ids(processed)[1]]
    assert inner.parent is not None
    assert inner.parent.span_id == ids(processed)[1]
    assert len({ids(span)[0] for span in (order, sent, processed, inner)}) == 1
    assert sent.attributes is not None
    assert sent.attributes["messaging.destination.name"] == topic
    assert sent.attributes["messaging.message.id"] == "m-1"
    assert sent.attributes["messaging.kafka.offset"] == 0
    assert "traceparent" in message.headers


def test_each_message_has_its_span_while_it_is_handled(open_mq: OpenMq, spans: Spans) -> None:
    mq, topic = open_mq(tracing=spans.provider), unique("topic")
    receipts = mq.publish_many(topic, ["a", "b", "c"], partition=0)
    assert len(receipts) == 3
    during: list[int] = []
    with mq.subscribe(topic, group=unique("group"), idle_timeout=1) as messages:
        for _ in messages:
            during.append(current())
    processed = spans.named(f"process {topic}", 3)
    assert [ids(span)[1] for span in processed] == during
    [sent] = spans.named(f"publish {topic}")  # one for all of them
    assert {span.parent.span_id for span in processed if span.parent} == {ids(sent)[1]}


def test_a_transaction_is_traced_too(open_mq: OpenMq, spans: Spans) -> None:
    mq, topic = open_mq(tracing=spans.provider), unique("topic")
    with mq.transaction(unique("tx")) as tx:
        tx.publish(topic, "a", partition=0)
    [sent] = spans.named(f"publish {topic}")
    [message] = mq.read(topic)
    assert f"{ids(sent)[1]:016x}" in message.headers["traceparent"]


@pytest.mark.own_broker
def test_workers_handle_in_the_context_of_the_message(open_mq: OpenMq, spans: Spans) -> None:
    mq, name = open_mq(tracing=spans.provider), unique("work")
    during: list[int] = []

    @mq.worker(name, concurrency=2, max_retries=1, backoff=0.05)
    def handle(message: QueueMessage) -> None:
        during.append(current())
        if message.retry_count == 0:
            raise ValueError("not yet")

    mq.queue(name).publish("a")
    first, second = spans.named(f"process {name}", 2)
    [sent] = spans.named(f"publish {name}")
    assert [ids(first)[1], ids(second)[1]] == during
    assert {span.parent.span_id for span in (first, second) if span.parent} == {ids(sent)[1]}
    assert not first.status.is_ok
    assert first.attributes is not None
    assert first.attributes["error.type"] == "ValueError"
    assert any(event.name == "exception" for event in first.events)
    assert second.status.is_unset
    handle.stop()


@pytest.mark.own_broker
def test_a_loop_over_a_queue_and_a_request(open_mq: OpenMq, spans: Spans) -> None:
    mq, name = open_mq(tracing=spans.provider), unique("rpc")

    @mq.reply(name)
    def answer(message: QueueMessage) -> str:
        return str(current())

    seen = int(mq.request(name, "x", timeout=20).text)
    assert [ids(span)[1] for span in spans.named(f"process {name}")] == [seen]
    answer.stop()
    queue = mq.queue(unique("queue"))
    queue.publish("a")
    with queue.consume() as messages:
        next(messages).ack()
        inside = current()
    assert [ids(span)[1] for span in spans.named(f"process {queue.name}")] == [inside]


# --- spans of the asynchronous twin ---------------------------------------------------------------


@pytest.fixture
def open_aio(
    home: str, tmp_path: Path, request: pytest.FixtureRequest, spans: Spans
) -> Callable[[], Opening[Any]]:
    """open_aio() is an asynchronous client of this home, to be used with `async with`."""

    def make() -> Opening[Any]:
        if home == "in-process":
            return aio.open(tmp_path / "data", num_partitions=1, tracing=spans.provider)
        broker = request.getfixturevalue("broker")
        return aio.connect(broker.bootstrap, tracing=spans.provider, **doors(broker))

    return make


def test_async_publishing_and_processing_are_one_trace(
    open_aio: Callable[[], Opening[Any]], spans: Spans
) -> None:
    tracer, topic = spans.provider.get_tracer("mine"), unique("topic")
    during: list[int] = []

    async def scenario() -> None:
        async with open_aio() as mq:
            with tracer.start_as_current_span("order"):
                await mq.publish(topic, "a", partition=0)
                async with mq.transaction(unique("tx")) as tx:
                    await tx.publish(topic, "b", partition=0)
            async with mq.subscribe(topic, group=unique("group")) as messages:
                for _ in range(2):
                    await anext(messages)
                    await asyncio.sleep(0)  # still there after the loop had a turn
                    during.append(current())
                    with tracer.start_as_current_span("inner"):
                        await asyncio.sleep(0)
            assert current() == 0

    asyncio.run(scenario())
    [order], sent = spans.named("order"), spans.named(f"publish {topic}", 2)
    processed, inner = spans.named(f"process {topic}", 2), spans.named("inner", 2)
    assert parents(sent) == [ids(order)[1]] * 2
    assert parents(processed) == [ids(span)[1] for span in sent]
    assert parents(inner) == during == [ids(span)[1] for span in processed]
    assert {ids(span)[0] for span in (*sent, *processed, *inner)} == {ids(order)[0]}
    assert {span.kind for span in processed} == {SpanKind.CONSUMER}


@pytest.mark.own_broker
def test_async_workers_handle_each_in_the_context_of_its_message(
    open_aio: Callable[[], Opening[Any]], spans: Spans
) -> None:
    tracer, name = spans.provider.get_tracer("mine"), unique("work")
    inside: dict[str, tuple[int, int]] = {}

    async def scenario() -> None:
        async with open_aio() as mq:
            together = asyncio.Barrier(3)

            @mq.worker(name, concurrency=3, max_retries=0)
            async def handle(message: AsyncQueueMessage) -> None:
                before = current()
                async with asyncio.timeout(30):
                    await together.wait()  # all three are under way, each with a span of its own
                inside[message.text] = (before, current())
                with tracer.start_as_current_span(f"inner {message.text}"):
                    if message.text == "2":
                        raise ValueError("not this one")

            queue = await mq.queue(name)
            for text in ("0", "1", "2"):
                with tracer.start_as_current_span(f"order {text}"):
                    await queue.publish(text)
            async with asyncio.timeout(60):
                while handle.handled + handle.failed < 3:
                    await asyncio.sleep(0.02)
            assert current() == 0

    asyncio.run(scenario())
    sent, processed = spans.named(f"publish {name}", 3), spans.named(f"process {name}", 3)
    by_id = {ids(span)[1]: span for span in (*sent, *processed)}
    for text in ("0", "1", "2"):
        [order], [inner] = spans.named(f"order {text}"), spans.named(f"inner {text}")
        before, after = inside[text]
        assert before == after == parents([inner])[0]
        publishing = by_id[parents([by_id[before]])[0]]
        assert publishing.name == f"publish {name}"
        assert parents([publishing]) == [ids(order)[1]]
        assert ids(inner)[0] == ids(order)[0]
        assert by_id[before].status.is_unset == (text != "2")


@pytest.mark.own_broker
def test_an_async_request_and_its_answer_are_one_trace(
    open_aio: Callable[[], Opening[Any]], spans: Spans
) -> None:
    tracer, name = spans.provider.get_tracer("mine"), unique("rpc")

    async def scenario() -> int:
        async with open_aio() as mq:

            @mq.reply(name)
            async def answer(message: AsyncQueueMessage) -> str:
                return str(current())

            with tracer.start_as_current_span("question"):
                return int((await mq.request(name, "x", timeout=30)).text)

    seen = asyncio.run(scenario())
    [question], [processed] = spans.named("question"), spans.named(f"process {name}")
    assert ids(processed) == (ids(question)[0], seen)


def test_without_tracing_nothing_is_added(open_mq: OpenMq) -> None:
    mq, topic = open_mq(tracing=False), unique("topic")
    mq.publish(topic, "a", partition=0)
    assert [message.headers for message in mq.read(topic)] == [{}]


# --- figures --------------------------------------------------------------------------------------


def test_figures_for_prometheus(open_mq: OpenMq) -> None:
    registry = CollectorRegistry()
    mq, topic = open_mq(metrics=registry), unique("topic")

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"penstock_client_{name}", labels)

    mq.admin.create_topic(topic, 1)
    mq.publish(topic, "a")
    mq.publish_many(topic, ["b", "c"])
    with pytest.raises(penstock.PenstockError):
        mq.publish(topic, "x", partition=99)
    assert value("published_messages_total", destination=topic) == 3
    assert value("publish_seconds_count", destination=topic) == 2
    with mq.subscribe(topic, group=unique("group"), idle_timeout=1) as messages:
        assert len(list(messages)) == 3
    assert value("received_messages_total", source=topic) == 3
    assert value("processed_messages_total", source=topic, outcome="ok") == 3
    assert value("process_seconds_count", source=topic) == 3
    assert value("pending_messages") == 0
    assert value("pending_bytes") == 0
    open_mq(metrics=registry)  # another client counts in the same figures


@pytest.mark.own_broker
def test_figures_of_workers(open_mq: OpenMq) -> None:
    registry = CollectorRegistry()
    mq, name = open_mq(metrics=registry), unique("work")

    @mq.worker(name, max_retries=0)
    def handle(message: QueueMessage) -> None:
        if message.text == "bad":
            raise ValueError

    mq.queue(name).publish_many(["good", "bad", "good"])

    def processed(outcome: str) -> float | None:
        labels = {"source": name, "outcome": outcome}
        return registry.get_sample_value("penstock_client_processed_messages_total", labels)

    eventually(lambda: (processed("ok"), processed("error")) == (2, 1))
    handle.stop()


# --- logs -----------------------------------------------------------------------------------------


def test_logs_go_where_logs_go(mq: Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="penstock"):
        mq.send(unique("topic"), "a", on_delivery=lambda *_: 1 / 0 and None).result(20)
        eventually(lambda: "the delivery callback" in caplog.text)
    assert all(record.name.startswith("penstock") for record in caplog.records)
