"""A process that forgets to close: what is open when the interpreter ends is closed then.

`atexit` would come too late: by then thread pools take no more work, and closing needs them.
`threading._register_atexit` is how concurrent.futures itself does it; without it (it is not public)
nothing is closed: the next start of a broker recovers, and what was on its way may be lost.
"""

from __future__ import annotations

import logging
import sys
import threading
from typing import Protocol

log = logging.getLogger("penstock")


class Closable(Protocol):
    """A home, wherever it is."""

    def close(self) -> None: ...


_open: set[Closable] = set()
_registered: list[bool] = []


def close_at_exit(home: Closable) -> None:
    """Close it when the interpreter ends, unless somebody has before."""
    register = getattr(threading, "_register_atexit", None)
    if register is not None and not _registered:
        register(_close_all)
        _registered.append(True)
    _open.add(home)


def is_closed_now(home: Closable) -> None:
    """It need not be closed any more."""
    _open.discard(home)


def close_in_background(home: Closable) -> None:
    """Close it when nobody is left who could wait for it; not at the very end, when a thread that
    is started does not begin and whoever starts it waits for ever."""
    if not sys.is_finalizing():
        threading.Thread(target=home.close, name="penstock-close", daemon=True).start()


def _close_all() -> None:
    for home in list(_open):
        try:
            home.close()
        except Exception as failure:
            log.warning("%r was not closed cleanly: %s", home, failure)
