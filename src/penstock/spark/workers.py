"""How to be at home in Spark's Python workers, which run one task after the other.

Two habits of theirs cost more than reading some thousand rows, and nothing in Spark's settings
turns them off without drawbacks (docs/decisions/0013-tasks-of-spark-are-made-cheap.md):

- Spark's daemon runs a full garbage collection after every task. It goes through every object of
  the modules that are loaded (Spark, pandas, Arrow, numpy: some ninety thousand), which takes about
  45 ms of processor time. `gc.freeze` takes them out of it.
- The JVM sends a task in several small pieces and leaves Nagle's algorithm on, so the second waits
  until the first is acknowledged, which Linux does after 40 ms. A worker that asks for quick
  acknowledgements does not wait.
"""

from __future__ import annotations

import gc
import os
import socket
from typing import Any

MOST_FREEZES = 4  # cycles that die after a freeze are not found again, so it is done seldom
WORTH_IT = 20_000  # objects
_freezes = 0


def keep_what_is_loaded() -> None:
    """At the end of a task: what is in memory now stays, so later collections may pass it by.

    Something is done only when much has been loaded since the last time, and a few times at most.
    """
    global _freezes
    if _freezes < MOST_FREEZES and len(gc.get_objects()) > WORTH_IT:
        _freezes += 1
        gc.collect()
        gc.freeze()


class Delivered:
    """What Spark pickles and sends to a worker: when it arrives, the next piece is on its way."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        acknowledge_at_once()


def acknowledge_at_once() -> None:
    """Send the acknowledgements that the kernel holds back, on every TCP connection we have.

    Which of them is the JVM's is not told to us, and for the others it does no harm. Elsewhere than
    on Linux there is nothing to do.
    """
    if not hasattr(socket, "TCP_QUICKACK") or socket.getdefaulttimeout() is not None:
        return  # with a default timeout, looking at a socket would make it non-blocking
    for name in os.listdir("/proc/self/fd"):
        try:
            borrowed = socket.socket(fileno=int(name))
        except OSError:  # a file, or the listing itself, which is closed by now
            continue
        try:
            if borrowed.family in (socket.AF_INET, socket.AF_INET6):
                borrowed.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        except OSError:  # not TCP, or not connected
            pass
        finally:
            borrowed.detach()
