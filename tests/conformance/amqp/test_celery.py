"""A real Celery worker: ETA, countdown, priorities, late acks, revoke, autoscale, events."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from kombu import pools

from support.naming import unique
from support.waiting import eventually

TESTS = Path(__file__).resolve().parents[2]


class Worker:
    """`celery worker` in a process group of its own, and the application that talks to it."""

    def __init__(self, url: str, log: Path, *arguments: str, queue_type: str = "classic") -> None:
        self.name = unique("celery")
        self.environment = {
            **os.environ,
            "AMQP_URL": url,
            "CELERY_NAME": self.name,
            "CELERY_QUEUE_TYPE": queue_type,
            "PYTHONPATH": str(TESTS),
        }
        self.log = log
        self.arguments = arguments
        self.process: subprocess.Popen[bytes] | None = None
        self.app = self._application()

    def _application(self) -> Any:
        """The application of the worker, imported anew with its environment."""
        sys.modules.pop("support.celery_tasks", None)
        before = dict(os.environ)
        os.environ.update(self.environment)
        try:
            import support.celery_tasks as tasks
        finally:
            os.environ.clear()
            os.environ.update(before)
        self.tasks = tasks
        return tasks.app

    def start(self) -> Worker:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable, "-m", "celery", "-A", "support.celery_tasks", "worker",
                    "-l", "INFO", "-n", f"{self.name}@localhost", *self.arguments,
                ],
                env=self.environment, cwd=TESTS, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        eventually(self.is_ready, within=40, what="the worker is ready")
        return self

    def is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.words()
        return " ready." in self.words()

    def words(self) -> str:
        return self.log.read_text(errors="replace")

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """The worker and its children, without a word."""
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        self.stop()
        with self.app.connection_for_write() as connection:
            channel = connection.channel()
            channel.queue_delete(self.name)
            for exchange in (self.name, f"{self.name}-events"):
                channel.exchange_delete(exchange)
        results = self.app.backend.result_consumer
        if results._connection is not None:  # it begins with the first result that is waited for
            results.stop()
        pools.reset()
        self.app.close()


@pytest.fixture(scope="module")
def worker(amqp: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    log = tmp_path_factory.mktemp("celery") / "worker.log"
    one = Worker(amqp.url + "/", log, "-c", "2", "-E").start()
    yield one
    one.close()


@pytest.fixture
def start(amqp: Any, tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    made: list[Worker] = []

    def start_one(*arguments: str, **options: Any) -> Worker:
        log = tmp_path / f"worker-{len(made)}.log"
        made.append(Worker(amqp.url + "/", log, *arguments, **options))
        return made[-1].start()

    yield start_one
    for one in made:
        one.close()


def test_tasks_are_done_and_answered(worker: Worker) -> None:
    results = [worker.tasks.add.delay(number, number) for number in range(20)]
    assert [result.get(timeout=20) for result in results] == [2 * n for n in range(20)]


def test_a_countdown_is_waited_for(worker: Worker) -> None:
    asked = time.time()
    result = worker.tasks.finished_at.apply_async(countdown=1.5)
    assert result.get(timeout=20) - asked >= 1.5


def test_an_eta_is_waited_for(worker: Worker) -> None:
    eta = datetime.now(UTC) + timedelta(seconds=1.5)
    result = worker.tasks.finished_at.apply_async(eta=eta)
    assert result.get(timeout=20) >= eta.timestamp()


def test_many_tasks_with_an_eta_do_not_stop_others(worker: Worker) -> None:
    """Celery raises its prefetch for each ETA task it holds (notes on basic.qos)."""
    held = [worker.tasks.finished_at.apply_async(countdown=4) for _ in range(12)]
    started = time.monotonic()
    assert worker.tasks.add.delay(1, 1).get(timeout=20) == 2
    assert time.monotonic() - started < 3.5
    assert all(result.get(timeout=20) for result in held)


def test_a_task_is_tried_again(worker: Worker) -> None:
    assert worker.tasks.third_time.delay().get(timeout=20) == 2


def test_an_expired_task_is_not_done(worker: Worker) -> None:
    result = worker.tasks.add.apply_async((1, 1), expires=datetime.now(UTC) - timedelta(seconds=9))
    with pytest.raises(Exception, match=r"expired|revoked"):
        result.get(timeout=20)


def test_a_revoked_task_is_not_done(worker: Worker) -> None:
    result = worker.tasks.add.apply_async((1, 1), countdown=1.5)
    result.revoke()
    with pytest.raises(Exception, match="revoked"):
        result.get(timeout=20)


def test_a_running_task_is_terminated(worker: Worker) -> None:
    result = worker.tasks.nap.delay(30)
    eventually(lambda: result.id in str(worker.app.control.inspect(timeout=2).active()), within=15)
    result.revoke(terminate=True)
    with pytest.raises(Exception, match="terminated"):
        result.get(timeout=20)


@pytest.mark.filterwarnings("default:Received multiple replies")  # a worker may say it twice
def test_the_worker_answers_broadcasts(worker: Worker) -> None:
    inspect = worker.app.control.inspect(timeout=3)
    node = f"{worker.name}@localhost"
    assert inspect.ping() == {node: {"ok": "pong"}}
    assert "support.celery_tasks.add" in inspect.registered()[node]
    assert inspect.stats()[node]["prefetch_count"] >= 2
    assert worker.app.control.rate_limit("support.celery_tasks.add", "1000/s", reply=True)


def test_events_tell_what_happens(worker: Worker) -> None:
    seen: list[str] = []
    with worker.app.connection_for_read() as connection:
        receiver = worker.app.events.Receiver(
            connection, handlers={"*": lambda event: seen.append(event["type"])}
        )

        def listen() -> None:
            with contextlib.suppress(TimeoutError, OSError):
                receiver.capture(limit=None, timeout=8, wakeup=True)

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        time.sleep(1)
        worker.tasks.add.delay(1, 1).get(timeout=20)
        eventually(
            lambda: {"task-received", "task-started", "task-succeeded"} <= set(seen), within=10
        )
        receiver.should_stop = True
        thread.join(12)


def test_priorities_decide_who_goes_first(start: Callable[..., Worker], tmp_path: Path) -> None:
    worker = start("-c", "1", "--prefetch-multiplier", "1")
    trace = tmp_path / "order"
    worker.tasks.nap.delay(2)
    time.sleep(0.5)
    for priority in (1, 9, 5, 0, 9):
        worker.tasks.note.apply_async((str(trace), str(priority)), priority=priority)
    eventually(lambda: trace.exists() and len(trace.read_text().split()) == 5, within=20)
    order = trace.read_text().split()
    # One of the first may already have been prefetched while the worker slept.
    assert order[-2:] == ["1", "0"] or order[-1] == "0"
    assert order.index("9") < order.index("5")


def test_a_late_ack_means_somebody_else_finishes(
    start: Callable[..., Worker], tmp_path: Path
) -> None:
    worker = start("-c", "1")
    trace = tmp_path / "trace"
    result = worker.tasks.late.delay(str(trace), 3)
    eventually(trace.exists, within=20)
    worker.kill()
    worker.log.write_text("")
    worker.start()
    assert result.get(timeout=30) == "done"
    assert trace.read_text().split() == ["started", "started"]


def test_a_worker_scales_with_its_load(start: Callable[..., Worker]) -> None:
    worker = start("--autoscale=4,1")
    node = f"{worker.name}@localhost"
    results = [worker.tasks.nap.delay(1.5) for _ in range(10)]

    def processes() -> int:
        stats = worker.app.control.inspect(timeout=2).stats() or {}
        return len(stats.get(node, {}).get("pool", {}).get("processes", ()))

    eventually(lambda: processes() >= 3, within=20, every=0.2)
    assert [result.get(timeout=40) for result in results] == [1.5] * 10


def test_a_worker_keeps_its_tasks_when_it_stops_warmly(
    start: Callable[..., Worker], tmp_path: Path
) -> None:
    worker = start("-c", "1")
    trace = tmp_path / "trace"
    for number in range(6):
        worker.tasks.note.delay(str(trace), str(number), 0.4)
    eventually(trace.exists, within=20)
    worker.stop()
    worker.log.write_text("")
    worker.start()
    eventually(lambda: len(trace.read_text().split()) >= 6, within=30)
    assert sorted(trace.read_text().split()) == [str(number) for number in range(6)]


def test_quorum_queues_with_native_delays(start: Callable[..., Worker]) -> None:
    """Celery then builds its own delays of 28 levels of time to live and dead letters."""
    worker = start("-c", "1", queue_type="quorum")
    asked = time.time()
    result = worker.tasks.finished_at.apply_async(countdown=2)
    assert worker.tasks.add.delay(2, 3).get(timeout=20) == 5
    assert result.get(timeout=30) - asked >= 2
