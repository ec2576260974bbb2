"""How much the log adds to the system calls under it: append and read, without broker or network.

    python benchmarks/log_append.py [directory]

Prints microseconds for each operation; the raw system call beside it is the floor. The last lines
show what group commit makes of many partitions that wait for the disk together.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Callable

from penstock.log.flusher import Flusher
from penstock.log.partition_log import PartitionLog
from penstock.log.settings import LogSettings
from penstock.log.store import LogStore
from penstock.model.batch import read_header, stamp
from penstock.model.records import build_batch
from penstock.runtime.clock import SystemClock
from penstock.runtime.disk import OsDisk

TOPIC = uuid.UUID(int=1)


def microseconds(work: Callable[[], object], times: int) -> float:
    """Best of five runs, for each call."""
    best = float("inf")
    for _ in range(5):
        started = time.perf_counter()
        for _ in range(times):
            work()
        best = min(best, (time.perf_counter() - started) / times)
    return best * 1e6


def batch_of(size: int) -> bytearray:
    return build_batch([(None, b"x" * (size - 72), ())], timestamp_ms=1)


def measure_append(log: PartitionLog, directory: str, size: int, times: int) -> None:
    batch = batch_of(size)

    def append() -> None:
        stamp(batch, 0, log.end_offset, 0)
        log.append((batch,), (read_header(batch),), 1)

    fd = os.open(os.path.join(directory, "raw"), os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    position = 0

    def raw() -> None:
        nonlocal position
        os.pwritev(fd, (batch,), position)
        position += len(batch)

    ours, floor = microseconds(append, times), microseconds(raw, times)
    os.close(fd)
    print(f"append {len(batch):>8} bytes  {ours:8.1f} us   pwritev alone {floor:8.1f} us")


def measure_read(log: PartitionLog, max_bytes: int, times: int) -> None:
    offset = log.start_offset

    def read() -> None:
        nonlocal offset
        chunk = log.try_read(offset, max_bytes, upper_offset=log.end_offset)
        assert chunk is not None, "not in the page cache"
        assert chunk.batch_count
        offset = chunk.next_offset if chunk.next_offset < log.end_offset else log.start_offset

    taken = microseconds(read, times)
    print(f"read   {max_bytes:>8} bytes  {taken:8.1f} us   of {log.name}")


async def measure_sync(store: LogStore, partitions: int, rounds: int) -> None:
    flusher = Flusher(on_fatal=print)
    logs = [store.get("sync", TOPIC, at, LogSettings()) for at in range(partitions)]
    batch = batch_of(1000)

    async def write(log: PartitionLog) -> None:
        for _ in range(rounds):
            mine = bytearray(batch)
            stamp(mine, 0, log.end_offset, 0)
            log.append((mine,), (read_header(mine),), 1)
            await flusher.synced(log)

    started = time.perf_counter()
    await asyncio.gather(*[write(log) for log in logs])
    seconds = time.perf_counter() - started
    print(
        f"sync   {partitions:>8} logs   {seconds / rounds * 1e3:8.2f} ms until all are safe, "
        f"{partitions * rounds / seconds:8.0f} confirmed appends/s"
    )
    await flusher.close()


async def main(directory: str) -> None:
    store = LogStore(OsDisk(os.path.join(directory, "data")), SystemClock())
    await store.open({})
    for partition, (size, times) in enumerate(((200, 20000), (16_384, 2000), (1 << 20, 50))):
        log = store.get("bench", TOPIC, partition, LogSettings())
        measure_append(log, directory, size, times)
        for max_bytes in (16_384, 1 << 20):
            measure_read(log, max_bytes, 50)
    for partitions in (1, 4, 16, 64):
        await measure_sync(store, partitions, 50)
    await store.close(clean=False)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as directory:
        asyncio.run(main(directory))
