"""What the queue machine costs: microseconds a message, bytes a waiting message.

    python -m benchmarks.queue_machine

One process, no disk, no sockets: the state of a queue alone. Each figure is the best of five runs
of CPU time. The bars are those of the design: acknowledging well under a microsecond, ten million
waiting messages under 200 MB.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

from penstock.machines.queue import Queue
from penstock.machines.queue_outcome import Marks
from penstock.model.queue_settings import QueueSettings

COUNT = 200_000


def new_queue(settings: QueueSettings | None = None) -> Queue:
    queue = Queue(settings or QueueSettings())
    queue.recovered()
    return queue


def perform(queue: Queue, outcome: object) -> None:
    for record in outcome.records:  # type: ignore[attr-defined]
        queue.apply(record)


def flow(batch: int, settings: QueueSettings | None = None, marks: bool = False) -> None:
    """Publish, take and acknowledge in batches, as a consumer that keeps up does."""
    queue = new_queue(settings)
    end = 0
    priorities = bytes(i % 10 for i in range(batch))
    while end < COUNT:
        end += batch
        queue.extend(end, end, Marks(priorities) if marks else Marks())
        taken = queue.take(batch)
        offsets = [offset for low, high in taken for offset in range(low, high)]
        perform(queue, queue.ack(offsets))


def acks_only(batch: int, step: int) -> Callable[[], None]:
    """Acknowledge what was delivered, `batch` at a time, in an order that jumps by `step`."""

    def run() -> None:
        queue = new_queue()
        queue.extend(COUNT, 0)
        queue.take(COUNT)
        order = [offset for start in range(step) for offset in range(start, COUNT, step)]
        begin = time.process_time()
        for at in range(0, COUNT, batch):
            perform(queue, queue.ack(order[at : at + batch]))
        run.elapsed = time.process_time() - begin  # type: ignore[attr-defined]
        assert queue.unsettled == 0

    return run


def best(run: Callable[[], None]) -> float:
    """Microseconds a message."""
    times = []
    for _ in range(5):
        begin = time.process_time()
        run()
        times.append(getattr(run, "elapsed", time.process_time() - begin))
    return min(times) / COUNT * 1e6


MEMORY = {
    "FIFO, batches of 100": "new_queue(); [q.extend(n, n) for n in range(100, N + 1, 100)]",
    "FIFO, one by one, with a time-to-live": (
        "new_queue(QueueSettings(message_ttl_ms=10**9));[q.extend(n + 1, n // 5) for n in range(N)]"
    ),
    "10 priorities": (
        "new_queue(QueueSettings(max_priority=9)); p = bytes(i % 10 for i in range(100));"
        "[q.extend(n, n, Marks(p)) for n in range(100, N + 1, 100)]"
    ),
    "each with its own expiration": (
        "new_queue();"
        "[q.extend(n, n, Marks(None, [(o, 10**6 + o // 3) for o in range(n - 100, n)]))"
        " for n in range(100, N + 1, 100)]"
    ),
    "each scheduled": (
        "new_queue();"
        "[q.extend(n, n, Marks(None, (), [(o, 10**6 + o // 3) for o in range(n - 100, n)]))"
        " for n in range(100, N + 1, 100)]"
    ),
    "every second one acknowledged": (
        "new_queue(); q.extend(N, 0); q.take(N);"
        "[perform(q, q.ack(range(n, n + 1000, 2))) for n in range(0, N, 1000)]"
    ),
    "all but the first acknowledged": (
        "new_queue(); q.extend(N, 0); q.take(N);"
        "[perform(q, q.ack(range(n, n + 1000))) for n in range(1, N - 1000, 1000)]"
    ),
}


def resident() -> float:
    """Megabytes this process has in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6


def megabytes(what: str) -> float:
    """Memory that ten million messages add, measured in a process of its own."""
    program = (
        "from benchmarks.queue_machine import *\n"
        "N = 10_000_000\n"
        "before = resident()\n"
        f"q = {what}\n"
        "print(resident() - before)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return float(done.stdout)


def main() -> None:
    print("microseconds a message")
    for batch in (1, 10, 100, 1000):
        print(f"  publish, take, ack in batches of {batch:4}: {best(lambda b=batch: flow(b)):6.3f}")
    ten = QueueSettings(max_priority=9)
    print(f"  the same with 10 priorities, by 100:   {best(lambda: flow(100, ten, True)):6.3f}")
    for batch in (1, 50, 500):
        for step, how in ((1, "in order"), (7, "out of order")):
            figure = best(acks_only(batch, step))
            print(f"  ack, {batch:3} at a time, {how:12}:       {figure:6.3f}")
    print("megabytes that 10,000,000 waiting messages add")
    for name, what in MEMORY.items():
        print(f"  {name:40} {megabytes(what):7.1f}")


if __name__ == "__main__":
    main()
