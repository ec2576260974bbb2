"""What every class here stands on: a client, its own or somebody else's."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from penstock.client.opening import connect
from penstock.client.sync import Client


class Underneath:
    """Has a client, and closes it if it is its own.

    The documents never close anything. So whoever forgets it is forgiven: what is no longer used is
    closed in the background, and what is open when the process ends, then.
    """

    def __init__(self, client: Client, *, owned: bool) -> None:
        self.client = client
        self._owned = owned
        if owned:
            weakref.finalize(self, _close_behind, client).atexit = False

    def close(self) -> None:
        """Stop. A second call does nothing; a client that was lent stays open."""
        if self._owned:
            self.client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


# A broker elsewhere, by its addresses; or one that is open, by its client or what stands on it.
Where = str | Sequence[str] | Client | Underneath

DEFAULT_SERVERS = "127.0.0.1:9092"


def client_of(where: Where) -> tuple[Client, bool]:
    """The client to use, and whether it is ours to close."""
    if isinstance(where, Client):
        return where, False
    if isinstance(where, Underneath):
        return where.client, False
    return connect(where), True


def _close_behind(client: Client) -> None:
    """Called by the garbage collector, on any thread: nothing may wait here."""
    if not client.is_closed:
        threading.Thread(target=client.close, name="penstock-close", daemon=True).start()
