"""Group commit: the one place where written becomes safe.

Whoever must answer "it is on disk" asks `synced(log)` and waits. All who ask while a round of
syncing runs are served together by the next round, whatever partitions they wrote to, so the number
of syncs follows the speed of the disk and not the number of requests. A round syncs its files in a
few threads at once, because a journaling file system commits what waits together as one.

    submit(a) ──┐                         ┌── round 2 serves everything submitted here
    submit(b) ──┤  round 1 in threads     │
                ▼▼▼▼▼▼▼▼▼▼▼▼▼▼▼▼▼▼▼▼▼▼▼▼▼▼▼

A failed sync is never tried again: the kernel may have dropped the pages and would then report
success about nothing (the "fsyncgate" of 2018). `on_fatal` is called, once; nothing that waits is
ever told that it is safe.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable
from functools import partial

from penstock.errors import StorageError
from penstock.log.partition_log import PartitionLog
from penstock.log.sync_job import SyncJob
from penstock.log.sync_threads import SyncThreads

# Measured on ext4: 64 files written at once are safe after 23 ms with one thread, 11 with two, 8
# with four, 6 with eight, and no sooner with sixteen: the journal commits once for all that wait.
DEFAULT_THREADS = 8
BACKGROUND_SECONDS = 1.0  # how long a log with durability "os" may stay unsynced

_Waiter = asyncio.Future[None]


class Flusher:
    """Syncs logs in rounds. Lives on one event loop."""

    def __init__(
        self,
        *,
        on_fatal: Callable[[BaseException], None],
        on_round: Callable[[float, int], None] | None = None,
        threads: int = DEFAULT_THREADS,
        background_seconds: float = BACKGROUND_SECONDS,
    ) -> None:
        self._on_fatal = on_fatal
        self._on_round = on_round  # (seconds, files) of every round, for metrics
        self._background_seconds = background_seconds
        self._threads = SyncThreads(threads)
        self._waiting: dict[PartitionLog, list[_Waiter]] = {}
        self._lazy: dict[PartitionLog, None] = {}
        self._lazy_timer: asyncio.TimerHandle | None = None
        self._running = False
        self._failed: BaseException | None = None
        self.rounds = 0

    def __repr__(self) -> str:
        return f"Flusher({self.rounds} rounds, {len(self._waiting)} logs waiting)"

    @property
    def failure(self) -> BaseException | None:
        """The sync that failed, after which nothing becomes safe any more."""
        return self._failed

    async def synced(self, log: PartitionLog) -> None:
        """Return when everything appended to `log` before this call is on the medium.

        With durability "os" that is at once: the log is synced in the background, soon.
        """
        await self.submit(log)

    def submit(self, log: PartitionLog) -> _Waiter:
        """`synced` as a future, for those who wait for several logs or do something else."""
        waiter: _Waiter = asyncio.get_running_loop().create_future()
        if self._failed is not None:
            waiter.set_exception(StorageError(f"a sync has failed: {self._failed}"))
        elif log.settings.durability == "os":
            waiter.set_result(None)
            self._sync_soon(log)
        elif log.synced_offset >= log.end_offset and log.is_synced:
            waiter.set_result(None)
        elif log.disk.syncs_instantly:
            self._sync_inline(log, waiter)
        else:
            self._waiting.setdefault(log, []).append(waiter)
            if not self._running:
                self._running = True
                # Not this instant: whatever else is ready in this turn of the loop joins in.
                asyncio.get_running_loop().call_soon(self._begin_round)
        return waiter

    async def close(self) -> None:
        """Sync what is left and stop."""
        if self._lazy_timer is not None:
            self._lazy_timer.cancel()
            self._lazy_timer = None
        await asyncio.gather(*[self._now(log) for log in list(self._lazy)])
        while self._running:
            await asyncio.sleep(0.001)
        self._threads.close()

    # --- rounds -----------------------------------------------------------------------------------

    def _begin_round(self) -> None:
        waiting, self._waiting = self._waiting, {}
        started = time.perf_counter()
        try:
            jobs = [(log, log.begin_sync()) for log in waiting]
        except OSError as failure:
            self._finish_round(waiting, [], failure, started)
            return
        loop = asyncio.get_running_loop()
        todo = [job for _, job in jobs]
        left = workers = min(len(todo), self._threads.most)

        worst: BaseException | None = None

        def finished(failure: BaseException | None) -> None:
            nonlocal left, worst
            worst = worst or failure
            left -= 1
            if not left:
                self._finish_round(waiting, jobs, worst, started)

        self._threads.run(partial(_work, todo, loop, finished), workers)

    def _finish_round(
        self,
        waiting: dict[PartitionLog, list[_Waiter]],
        jobs: Iterable[tuple[PartitionLog, SyncJob]],
        failure: BaseException | None,
        started: float,
    ) -> None:
        if failure is not None:
            for _, job in jobs:
                job.done()
            self._fail(failure, [waiter for waiters in waiting.values() for waiter in waiters])
            return
        self.rounds += 1
        for log, job in jobs:
            log.finish_sync(job)
            for waiter in waiting[log]:
                if not waiter.done():
                    waiter.set_result(None)
        if self._on_round is not None:
            self._on_round(time.perf_counter() - started, len(waiting))
        if self._waiting:
            self._begin_round()
        else:
            self._running = False

    def _sync_inline(self, log: PartitionLog, waiter: _Waiter) -> None:
        try:
            job = log.begin_sync()
            job.run()
        except OSError as failure:
            self._fail(failure, [waiter])
            return
        log.finish_sync(job)
        waiter.set_result(None)

    def _fail(self, failure: BaseException, waiters: Iterable[_Waiter]) -> None:
        self._running = False
        first = self._failed is None
        self._failed = failure
        error = StorageError(f"a sync has failed: {failure}")
        for waiter in [*waiters, *(w for ws in self._waiting.values() for w in ws)]:
            if not waiter.done():
                waiter.set_exception(error)
        self._waiting.clear()
        if first:
            self._on_fatal(failure)

    # --- durability "os" --------------------------------------------------------------------------

    def _sync_soon(self, log: PartitionLog) -> None:
        self._lazy[log] = None
        if self._lazy_timer is None:
            loop = asyncio.get_running_loop()
            self._lazy_timer = loop.call_later(self._background_seconds, self._sync_lazy)

    def _sync_lazy(self) -> None:
        self._lazy_timer = None
        for log in list(self._lazy):
            self._now(log).add_done_callback(_look_at)
        self._lazy.clear()

    def _now(self, log: PartitionLog) -> _Waiter:
        waiter: _Waiter = asyncio.get_running_loop().create_future()
        self._lazy.pop(log, None)
        if log.disk.syncs_instantly:
            self._sync_inline(log, waiter)
            return waiter
        self._waiting.setdefault(log, []).append(waiter)
        if not self._running:
            self._running = True
            self._begin_round()
        return waiter


def _work(
    todo: list[SyncJob],
    loop: asyncio.AbstractEventLoop,
    finished: Callable[[BaseException | None], None],
) -> None:
    """In a thread: run jobs from the shared list until it is empty, then say so on the loop."""
    failure: BaseException | None = None
    while failure is None:
        try:
            job = todo.pop()
        except IndexError:
            break
        try:
            job.run()
        except Exception as error:
            failure = error
    with contextlib.suppress(RuntimeError):  # the loop is gone, and with it whoever waited
        loop.call_soon_threadsafe(finished, failure)


def _look_at(waiter: _Waiter) -> None:
    """A background sync's failure has been reported to `on_fatal`; nobody else waits for it."""
    if not waiter.cancelled():
        waiter.exception()
