"""The scene of the pipeline: orders come in by two doors; Spark makes a table and totals of them.

Spark comes with the extra `spark`; without it, or without any Java, the scene says so.
"""

from __future__ import annotations

import importlib.util
import json
import random
import threading
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from rich import box
from rich.table import Table
from rich.text import Text

from penstock.cli.demo.broker import BrokerProcess
from penstock.cli.demo.stage import Stage
from penstock.cli.demo.topics import fresh_topic, read_all
from penstock.cli.management import GUEST, Management
from penstock.cli.output import Failure
from penstock.spark.pipeline.figures import Figures

WEB, TILL, BAD, TOTALS = "shop.web", "shop.till", "shop.bad", "shop.totals"
PRICES = {"tea": 4.5, "coffee": 7.0, "cocoa": 5.2, "honey": 9.9, "jam": 3.8}
RATE = 400
FLOWING_S = 5.0  # how long orders go on after the first of them came through
WITHIN_S = 240.0
SCHEMA = "id BIGINT, item STRING, pieces INT, price DOUBLE"
ORDERS = f"""[source]
bootstrap = "BOOTSTRAP"
topic = "{WEB},{TILL}"

[decode]
schema = "{SCHEMA}"

[[quality]]
name = "the price is positive"
rule = "price > 0"

[quarantine]
topic = "{BAD}"

[[steps]]
sql = "SELECT id, item, round(pieces * price, 2) AS amount FROM input"

[sink]
kind = "delta"
path = "LAKE"
"""
SUMS = f"""output = "update"

[source]
bootstrap = "BOOTSTRAP"
topic = "{WEB},{TILL}"

[decode]
schema = "{SCHEMA}"
on_error = "drop"

[aggregate]
by = ["item"]
select = {{ sold = "sum(CASE WHEN price > 0 THEN round(pieces * price, 2) END)" }}

[sink]
kind = "topic"
topic = "{TOTALS}"
key = "item"
topic_settings = {{ "cleanup.policy" = "compact" }}
"""
# A short run: starting quickly matters more than running fast.
SETTINGS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.memory": "700m",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}


def play_pipeline(stage: Stage, broker: BrokerProcess) -> None:
    stage.scene(
        "A pipeline on Spark",
        "orders over Kafka and AMQP are cleaned into a table; bad ones are kept apart",
    )
    missing = _missing()
    if missing:
        stage.note(f"{missing}, so this is left out")
        return
    from penstock.spark.launch import session
    from penstock.spark.pipeline.work import spark_log

    begin = time.perf_counter()
    with warnings.catch_warnings(), spark_log(_home(broker).with_suffix(".log")):
        warnings.simplefilter("ignore")
        spark = session("demo", "local[2]", SETTINGS)
    stage.fact(f"Spark {spark.version} started in {time.perf_counter() - begin:.1f} s")
    try:
        _play(stage, broker, spark)
    finally:
        spark.stop()


def _missing() -> str:
    for name in ("pyspark", "deltalake", "pika"):
        if importlib.util.find_spec(name) is None:
            return f"{name} is not installed here (pip install 'penstock[spark]')"
    from penstock.spark.launch import NO_JAVA, find_java

    return "" if find_java() is not None else NO_JAVA


def _play(stage: Stage, broker: BrokerProcess, spark: Any) -> None:
    _prepare(broker)
    home = _home(broker)
    flows = [Flow(home, name, text, broker, spark) for name, text in _files().items()]
    stage.note("a pipeline is a short file, checked before Spark sees it:")
    for line in ORDERS.splitlines():
        if line:
            stage.console.print(Text(f"     {line}", style="dim"), no_wrap=True)
    shop = Shop(broker)
    try:
        _watch(stage, shop, flows)
    finally:
        shop.close()
    for flow in flows:
        flow.end()
    _check(stage, broker, shop, home)


def _watch(stage: Stage, shop: Shop, flows: list[Flow]) -> None:
    """Until everything that was sold has come through both pipelines."""
    with stage.live() as live:
        deadline = time.monotonic() + WITHIN_S
        enough: float | None = None
        while shop.selling or any(flow.rows < shop.sent for flow in flows):
            if enough is None and all(flow.rows for flow in flows):
                enough = time.monotonic() + FLOWING_S
            if enough is not None and time.monotonic() > enough:
                shop.close()
            live.update(_picture(shop, flows))
            failed = next((flow.failure for flow in flows if flow.failure), None)
            if failed is not None or time.monotonic() > deadline:
                raise Failure(f"the pipeline: {failed or 'not done in time'}")
            time.sleep(0.1)
        live.update(_picture(shop, flows))


def _files() -> dict[str, str]:
    return {"orders": ORDERS, "totals": SUMS}


def _prepare(broker: BrokerProcess) -> None:
    """Two topics with orders, one of them a queue; what an earlier demonstration left is gone."""
    import shutil

    api = Management(broker.http, GUEST, GUEST)
    if TILL in {row["name"] for row in api.get("queues", "/")}:
        api.delete("queues", "/", TILL)
    fresh_topic(broker.kafka, WEB, 2)
    fresh_topic(broker.kafka, BAD, 1)
    fresh_topic(broker.kafka, TOTALS, 1)
    api.put("queues", "/", TILL)
    shutil.rmtree(_home(broker), ignore_errors=True)


def _home(broker: BrokerProcess) -> Path:
    return broker.data.with_name(f"{broker.data.name}-demo-pipelines")


class Shop:
    """Sells through both doors until it is closed; one order in fifty is wrong."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.sent = 0
        self.bad = 0
        self.sums: Counter[str] = Counter()  # in cents, so that sums are exact
        self._ids = iter(range(1, 1 << 40))
        self._lock = threading.Lock()
        self._closed = threading.Event()
        doors = (self._web, self._till)
        self._threads = [
            threading.Thread(target=door, args=(broker,), daemon=True) for door in doors
        ]
        for thread in self._threads:
            thread.start()

    @property
    def selling(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def close(self) -> None:
        self._closed.set()

    def _order(self) -> bytes:
        with self._lock:
            self.sent += 1
            number = next(self._ids)
            item, pieces = random.choice(list(PRICES)), random.randint(1, 5)
            order = {"id": number, "item": item, "pieces": pieces, "price": PRICES[item]}
            if number % 50 == 0:
                self.bad += 1
                return (
                    b"{broken" if number % 100 == 0 else json.dumps({**order, "price": -1}).encode()
                )
            self.sums[item] += round(pieces * PRICES[item] * 100)
            return json.dumps(order).encode()

    def _web(self, broker: BrokerProcess) -> None:
        producer = Producer({"bootstrap.servers": broker.kafka, "acks": "all", "log_level": 0})
        while not self._closed.wait(0.05):
            for _ in range(RATE // 20):
                producer.produce(WEB, self._order())
            producer.poll(0)
        producer.flush(15)

    def _till(self, broker: BrokerProcess) -> None:
        import pika

        host, _, port = broker.amqp.rpartition(":")
        place = pika.ConnectionParameters(host, int(port), heartbeat=0)
        connection = pika.BlockingConnection(place)
        channel = connection.channel()
        channel.confirm_delivery()
        while not self._closed.wait(0.05):
            for _ in range(RATE // 40):
                channel.basic_publish("", TILL, self._order(), mandatory=True)
        connection.close()


class Flow:
    """One pipeline file, running in a thread."""

    def __init__(self, home: Path, name: str, text: str, broker: BrokerProcess, spark: Any) -> None:
        from penstock.spark.pipeline import load

        home.mkdir(parents=True, exist_ok=True)
        self.file = home / f"{name}.toml"
        said = text.replace("BOOTSTRAP", broker.kafka).replace("LAKE", str(home / "lake"))
        # On a busy machine Spark gives up when a Python worker takes ten seconds to come up.
        head = f'checkpoint = "{home / "checkpoints" / name}"\nrestarts = 20\n'
        self.file.write_text(f'{head}{said}\n[trigger]\nevery = "500 ms"\n')
        self.name = name
        self.figures: Figures | None = None
        self.rows = 0
        self.bad = 0
        self.failure: Exception | None = None
        self._stop = threading.Event()
        self._pipeline = load(self.file)
        self._thread = threading.Thread(target=self._run, args=(spark,), daemon=True)
        self._thread.start()

    def _run(self, spark: Any) -> None:
        from penstock.spark.pipeline.flow import run

        try:
            run(self._pipeline, spark=spark, show=self._show, stop=self._stop)
        except Exception as failure:  # told by the scene
            self.failure = failure

    def _show(self, figures: Figures) -> None:
        self.rows += figures.rows
        self.bad += figures.bad
        self.figures = figures

    def end(self) -> None:
        self._stop.set()
        self._thread.join()
        if self.failure is not None:
            raise Failure(f"the pipeline {self.name}: {self.failure}")


def _picture(shop: Shop, flows: list[Flow]) -> Table:
    table = Table(box=box.SIMPLE, title=f"   {shop.sent:,} orders sent", title_justify="left",
                  title_style="")  # fmt: skip
    for name in ("pipeline", "rows", "rows/s", "batch", "lag", "bad"):
        table.add_column(name, justify="left" if name == "pipeline" else "right", min_width=8)
    for flow in flows:
        now = flow.figures
        cells = ["", "", ""] if now is None else [
            f"{now.rows_per_s:,.0f}", f"{now.seconds:.1f} s", f"{max(0, shop.sent - flow.rows):,}"
        ]  # fmt: skip
        table.add_row(flow.name, f"{flow.rows:,}", *cells, f"{flow.bad:,}")
    return table


def _check(stage: Stage, broker: BrokerProcess, shop: Shop, home: Path) -> None:
    """The table, the quarantine and the totals say what was sold, to the cent."""
    from deltalake import DeltaTable

    rows = DeltaTable(str(home / "lake")).to_pyarrow_table().to_pylist()
    if len({row["id"] for row in rows}) != len(rows) or len(rows) != shop.sent - shop.bad:
        raise Failure(f"the table has {len(rows)} rows of {shop.sent - shop.bad} good orders")
    stage.fact(f"{len(rows):,} good orders are in the Delta table, each once")
    bad = read_all(broker.kafka, BAD)
    reasons = Counter(dict(m.headers())["penstock.reason"].decode() for m in bad)
    if len(bad) != shop.bad:
        raise Failure(f"{len(bad)} of {shop.bad} bad orders are in quarantine")
    said = ", ".join(f"{count} {why!r}" for why, count in sorted(reasons.items()))
    stage.fact(f"{len(bad):,} bad ones are in {BAD}, with the reason: {said}")
    totals = {
        m.key().decode(): json.loads(m.value())["sold"] for m in read_all(broker.kafka, TOTALS)
    }
    if {item: round(sold * 100) for item, sold in totals.items()} != dict(shop.sums):
        raise Failure(f"the totals are {totals}")
    stage.fact(f"the compacted topic {TOTALS} has the running totals, right to the cent")
    most = max(totals.values())
    count = Counter(row["item"] for row in rows)
    told = sorted(totals.items(), key=lambda pair: -pair[1])
    stage.table(
        ("item", "orders", "sold", ""),
        [[item, count[item], f"{sold:,.2f}", _bar(sold / most)] for item, sold in told],
    )


def _bar(share: float) -> str:
    return ("█" * round(28 * share)).ljust(28, "░")
