"""The process the broker runs in, as the operating system sees it."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import time


def allow_open_files() -> None:
    """Take as many open files as the system gives: connections and segments both need them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):  # some systems call a hard limit unlimited
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def process_age() -> float:
    """Seconds since this process began, Python's own start included; 0 where nobody can tell."""
    try:
        with open("/proc/self/stat", encoding="ascii") as stat:
            began_ticks = int(stat.read().rpartition(")")[2].split()[19])
        since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    except (OSError, AttributeError):  # macOS
        return 0.0
    return max(0.0, since_boot - began_ticks / os.sysconf("SC_CLK_TCK"))


def resident_bytes() -> int | None:
    """Memory of this process that is in use; None where nobody can tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # macOS
        return None


def open_files() -> int | None:
    """How many files and sockets this process has open; None where nobody can tell."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return None


def calm_collector() -> None:
    """Look for cycles less often: what serving makes by the million has none.

    By default the collector walks all young objects after every 700 that were made, which costs a
    busy broker an eighth of its time. What was imported and loaded so far stays for ever, so it is
    not walked at all.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
