"""The process the broker runs in, as the operating system sees it."""

from __future__ import annotations

import contextlib
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
