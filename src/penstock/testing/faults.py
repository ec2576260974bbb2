"""How a broker can be made to fail, so that error handling can be tested.

Each fault lasts as long as its `with` block. They meet clients at the broker's doors; the
in-process client of the broker has no connection that could be cut, but shares the disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.runtime.memory_disk import MemoryDisk
from penstock.testing.proxy import Proxy

if TYPE_CHECKING:
    from penstock.client.local import LocalHome


class Faults:
    """The faults of one broker."""

    def __init__(self, home: LocalHome, proxies: Sequence[Proxy], disk: MemoryDisk) -> None:
        self._home = home
        self._proxies = proxies
        self._disk = disk

    def drop_connections(self) -> int:
        """Cut every connection of every client now; returns how many there were.

        >>> from penstock.testing import broker
        >>> with broker() as made:
        ...     made.faults.drop_connections()
        0
        """
        return self._home.run(self._drop())

    async def _drop(self) -> int:
        return sum(proxy.cut() for proxy in self._proxies)

    @contextmanager
    def refuse(self) -> Iterator[None]:
        """Nobody can connect, and those who are connected are cut off: the broker is down.

        >>> import penstock
        >>> from penstock.testing import broker
        >>> with broker() as made, made.faults.refuse():
        ...     try:
        ...         penstock.connect(made.kafka, timeout=1)
        ...     except penstock.Unavailable:
        ...         print("nobody there")
        nobody there
        """
        self._home.run(self._refuse())
        try:
            yield
        finally:
            self._home.run(self._accept())

    async def _refuse(self) -> None:
        for proxy in self._proxies:
            await proxy.refuse()

    async def _accept(self) -> None:
        for proxy in self._proxies:
            await proxy.accept()

    @contextmanager
    def delay(self, seconds: float) -> Iterator[None]:
        """Every answer of the broker comes that much later.

        >>> from penstock.testing import broker
        >>> with broker() as made, made.faults.delay(0.05):
        ...     _ = made.connect().publish("orders", "late")
        """
        for proxy in self._proxies:
            proxy.delay_s = seconds
        try:
            yield
        finally:
            for proxy in self._proxies:
                proxy.delay_s = 0.0

    @contextmanager
    def disk_full(self, *, room: int = 0) -> Iterator[None]:
        """The disk has `room` bytes left and no more: publishing is refused, reading goes on.

        >>> import penstock
        >>> from penstock.testing import broker
        >>> with broker() as made, made.faults.disk_full():
        ...     try:
        ...         made.client.publish("orders", "a" * 100)
        ...     except penstock.Unavailable:
        ...         print("no room")
        no room
        """
        self._disk.capacity_bytes = self._disk.used_bytes + room
        try:
            yield
        finally:
            self._disk.capacity_bytes = None
