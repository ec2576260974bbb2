"""What every kind of pipeline runs in: a Spark session, a state file, a way to stop."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.spark.errors import SparkConnectorError
from penstock.spark.pipeline.figures import Figures, Metrics
from penstock.spark.pipeline.state import Running, state_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)
T = TypeVar("T")
BUSY_TRIES = 30
_RAISED = re.compile(r"^(?!org\.|java\.|scala\.|py4j\.)[A-Za-z_][\w.]*(Error|Exception)\b")


def spark_for(definition: Any, master: str | None = None) -> SparkSession:
    """A session with the pipeline's own settings; what the JVM says goes into a file."""
    from penstock.spark.launch import session

    with spark_log(state_directory() / f"{definition.name}.log"):
        # In the main thread Spark takes Ctrl-C for itself, even while it starts, and cancels what
        # runs; ours waits for the batch. In another it leaves Ctrl-C alone.
        return in_a_thread(lambda: session(definition.name, master, dict(definition.settings)))


def in_a_thread(action: Callable[[], T]) -> T:
    """Do it in another thread, and wait; signals are handled meanwhile."""
    done: list[T] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            done.append(action())
        except BaseException as failure:
            failed.append(failure)

    thread = threading.Thread(target=work, name="spark-start", daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return done[0]


@contextmanager
def spark_log(path: Path) -> Iterator[None]:
    """A JVM that is started meanwhile writes its own log there, not over what people look at."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    terminal = os.dup(2)
    with path.open("ab") as out:
        os.dup2(out.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(terminal, 2)
        os.close(terminal)


def first_cause(text: str) -> str:
    """The sentence in the middle of Spark's long error that says what happened."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("penstock.spark.")]
    if ours:
        return ours[-1].partition(": ")[2]
    if any("Traceback (most recent call last)" in line for line in lines):
        raised = [line for line in lines if _RAISED.match(line)]
        if raised:
            return raised[-1][:500]
    told = [line for line in lines if not line.startswith(("An error occurred while", "at "))]
    return (told or lines or ["Spark failed"])[0].lstrip(": ")[:500]


def patiently(action: Callable[[], T]) -> T:
    """Do it again when a Python worker of Spark did not come up within its ten seconds, which
    cannot be set and is short on a busy machine. Only for what may be repeated."""
    for _ in range(BUSY_TRIES):
        try:
            return action()
        except Exception as failure:
            if not is_busy(failure):
                raise
            log.info("starting again after: %s", first_cause(str(failure)))
            time.sleep(1)
    return action()


def is_busy(failure: object) -> bool:
    """Whether Spark gave up waiting for one of its own processes."""
    return "failed to connect back" in str(failure)


def reached(checkpoint: Path) -> dict[str, dict[str, int]]:
    """Up to which offsets of the source everything is in the target, by a local checkpoint."""
    done = [int(p.name) for p in (checkpoint / "commits").glob("[0-9]*") if p.name.isdecimal()]
    if not done:
        return {}
    lines = (checkpoint / "offsets" / str(max(done))).read_text(encoding="utf-8").splitlines()
    found: dict[str, dict[str, int]] = json.loads(lines[-1])
    return {topic: parts for topic, parts in found.items() if not topic.startswith("@")}


@contextmanager
def closing_cluster(cluster: Any) -> Iterator[None]:
    """Its connections are closed afterwards, whatever happened."""
    try:
        yield
    finally:
        cluster.forget()


@contextmanager
def explained() -> Iterator[None]:
    """What Spark raises, as a sentence of ours; its own error stays behind it."""
    try:
        yield
    except Exception as failure:
        if not type(failure).__module__.startswith(("pyspark.", "py4j.")):
            raise
        raise SparkConnectorError(first_cause(str(failure))) from failure


@contextmanager
def told_at(where: str) -> Iterator[None]:
    """What Spark refuses while a frame is built, with the place in the file that it is about."""
    try:
        yield
    except Exception as failure:
        if is_busy(failure) or not type(failure).__module__.startswith(("pyspark.", "py4j.")):
            raise
        raise SparkConnectorError(f"{where}: {first_cause(str(failure))}") from failure


@contextmanager
def working(
    definition: Any,
    *,
    master: str | None = None,
    show: Callable[[Figures], None] = lambda figures: None,
    spark: SparkSession | None = None,
    stop: threading.Event | None = None,
    metrics: Metrics | None = None,
) -> Iterator[tuple[Running, SparkSession]]:
    """Spark (a session of its own unless one is given) and the run's record.

    `show` is called with the figures of each batch; setting `stop` ends after the batch.
    """
    with Running(definition.name, show, stop, metrics) as running, explained():
        session = spark or spark_for(definition, master)
        try:
            if hasattr(session, "_jsparkSession"):
                # Spark finds a sink by the session of the thread, which another thread lacks.
                session._jvm.SparkSession.setActiveSession(session._jsparkSession)
            yield running, session
        finally:
            if spark is None:
                session.stop()


def stop_on_signals(stop: threading.Event) -> None:
    """Ctrl-C and SIGTERM ask for a stop after the batch; a second one ends at once."""

    def handle(number: int, frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    signal.signal(signal.SIGINT, handle)
    signal.signal(signal.SIGTERM, handle)
