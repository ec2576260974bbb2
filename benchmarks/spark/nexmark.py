"""Nexmark through the broker: JSON events in a topic, a query on Spark, results in a topic.

Persons, auctions and bids come 1:3:46, as in the original. Each query reads the whole topic in
five micro-batches; a figure is events by seconds of all batches but the first, so it includes
planning, reading, parsing, state and writing. Our side writes exactly once, the other side cannot.

    q0 bids as they are    q1 prices in euros    q2 bids on some auctions
    q5 the auction with most bids in each sliding window    q7 the highest bid of each window
    q8 persons who opened an auction in the window they registered in    q11 bids per session
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from benchmarks.spark.bench import OURS, Bench, Done

SCHEMA = (
    "kind STRING, at BIGINT, id BIGINT, auction BIGINT, bidder BIGINT, seller BIGINT, "
    "price BIGINT, name STRING"
)
EVENTS_PER_MS = 5
ROUNDS = 3
WINDOW, SLIDE, LATE = "10 seconds", "2 seconds", "2 seconds"


def events(total: int, seed: int = 1) -> Iterator[tuple[None, bytes]]:
    """Deterministic but for the time, which must be recent enough for the topic's retention."""
    chance = random.Random(seed)
    begin = int(time.time() * 1000) - total // EVENTS_PER_MS
    persons, auctions = 1, 1
    for at in range(total):
        turn, stamp = at % 50, begin + at // EVENTS_PER_MS
        event: dict[str, Any]
        if turn == 0:
            persons += 1
            event = {"kind": "person", "at": stamp, "id": persons, "name": f"person {persons}"}
        elif turn < 4:
            auctions += 1
            seller = chance.randint(max(1, persons - 500), persons)
            event = {"kind": "auction", "at": stamp, "id": auctions, "seller": seller}
        else:
            event = {
                "kind": "bid", "at": stamp,
                "auction": chance.randint(max(1, auctions - 300), auctions),
                "bidder": chance.randint(max(1, persons - 500), persons),
                "price": chance.randint(1, 10_000),
            }  # fmt: skip
        yield None, json.dumps(event).encode()


def measure(bench: Bench) -> Iterator[dict[str, Any]]:
    topic = bench.topic("nexmark")
    bench.fill(topic, events(bench.events))
    for name, query in QUERIES.items():
        jobs: dict[str, Callable[[], Done]] = {
            kind: partial(_run, bench, kind, topic, query) for kind in bench.formats
        }
        yield bench.compare(name, jobs, ROUNDS)


def _run(bench: Bench, kind: str, topic: str, query: Callable[[Any], Any]) -> Done:
    options = {"maxOffsetsPerTrigger": str(max(1, bench.events // 5))}
    if kind == OURS:
        options["columns"] = "value"
    frame = bench.reader(kind, topic, stream=True, **options)
    parsed = frame.selectExpr(f"from_json(CAST(value AS STRING), '{SCHEMA}') e").select("e.*")
    timed = parsed.selectExpr("*", "timestamp_millis(at) time").withWatermark("time", LATE)
    results = query(timed).selectExpr("to_json(struct(*)) value")
    done = bench.stream(results, kind, topic=bench.topic("results", 2))
    # A join reads the topic twice; an event counts once.
    share = done.rows / max(done.all_rows, 1)
    return done._replace(rows=round(bench.events * share), all_rows=bench.events)


def _of(events: Any, kind: str) -> Any:
    return events.where(f"kind = '{kind}'")


def q0(events: Any) -> Any:
    return _of(events, "bid").select("auction", "bidder", "price", "time")


def q1(events: Any) -> Any:
    return _of(events, "bid").selectExpr("auction", "bidder", "price * 0.908 price", "time")


def q2(events: Any) -> Any:
    return _of(events, "bid").where("auction % 123 = 0").select("auction", "price")


def q5(events: Any) -> Any:
    from pyspark.sql import functions as f

    counted = _of(events, "bid").groupBy(f.window("time", WINDOW, SLIDE), "auction").count()
    by_window = counted.groupBy(f.window(f.window_time("window"), SLIDE))
    return by_window.agg(f.max_by("auction", "count").alias("auction"), f.max("count").alias("n"))


def q7(events: Any) -> Any:
    from pyspark.sql import functions as f

    best = f.max_by(f.struct("auction", "bidder", "price"), "price").alias("bid")
    return _of(events, "bid").groupBy(f.window("time", WINDOW)).agg(best)


def q8(events: Any) -> Any:
    persons = _of(events, "person").selectExpr("id person", "name", f"window(time, '{WINDOW}') w")
    auctions = _of(events, "auction").selectExpr("seller", f"window(time, '{WINDOW}') v")
    joined = persons.join(auctions, (persons.person == auctions.seller) & (persons.w == auctions.v))
    return joined.select("person", "name", "w")


def q11(events: Any) -> Any:
    from pyspark.sql import functions as f

    return _of(events, "bid").groupBy(f.session_window("time", "1 second"), "bidder").count()


QUERIES: dict[str, Callable[[Any], Any]] = {
    "q0": q0, "q1": q1, "q2": q2, "q5": q5, "q7": q7, "q8": q8, "q11": q11,
}  # fmt: skip
LINES = len(QUERIES)
