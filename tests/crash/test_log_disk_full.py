"""A disk that is really full: a small tmpfs where one can be mounted, else files of bounded size.

The log refuses and keeps what it has, readers go on, and when there is room it goes on too.
"""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.errors import StorageError
from penstock.log.flusher import Flusher
from penstock.log.partition_log import PartitionLog
from penstock.runtime.disk import OsDisk
from support.logs import append, make_batch, open_log, open_store, read_all, run

SIZE = 256 * 1024


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[tuple[Path, Callable[[], None]]]:
    """A directory that holds little, and a function that makes room in it."""
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(small)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode == 0:
        ballast = small / "ballast"
        ballast.write_bytes(b"b" * (SIZE // 4))
        yield small, ballast.unlink
        subprocess.run(["umount", "--lazy", str(small)], check=True)
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE, hard))
    yield small, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def write_until_full(log: PartitionLog, flusher: Flusher, size: int) -> int:
    """Append until the disk refuses; how many batches were acknowledged."""
    for acknowledged in range(SIZE):
        try:
            append(log, make_batch([b"x" * size]))
        except StorageError:
            return acknowledged
        await flusher.synced(log)
    raise AssertionError("the disk was never full")


def test_a_full_disk_refuses_writes_serves_reads_and_recovers(
    full_disk: tuple[Path, Callable[[], None]],
) -> None:
    root, make_room = full_disk

    async def check() -> None:
        store = await open_store(OsDisk(root / "data"))
        flusher = Flusher(on_fatal=print)
        log = open_log(store)
        acknowledged = await write_until_full(log, flusher, 5000)
        assert acknowledged > 10
        for _ in range(3):
            with pytest.raises(StorageError):
                append(log, make_batch([b"x" * 9000]))
        assert log.end_offset == acknowledged
        assert len(await read_all(log)) == acknowledged
        assert (root / "data/orders-0/00000000000000000000.log").stat().st_size == log.size_bytes
        await store.checkpoint()
        make_room()
        append(log, make_batch([b"y" * 9000]))
        await flusher.synced(log)
        await store.checkpoint()
        await flusher.close()
        await store.close(clean=False)
        store = await open_store(OsDisk(root / "data"))
        assert not store.damages
        assert len(await read_all(open_log(store))) == acknowledged + 1
        await store.close()

    run(check())


def test_a_broker_can_stop_on_a_full_disk(full_disk: tuple[Path, Callable[[], None]]) -> None:
    root, make_room = full_disk

    async def check() -> None:
        store = await open_store(OsDisk(root / "data"))
        flusher = Flusher(on_fatal=print)
        log = open_log(store)
        written = await write_until_full(log, flusher, 500)
        await flusher.close()
        try:
            await store.close()
        except OSError:
            await store.close(clean=False)
        make_room()
        store = await open_store(OsDisk(root / "data"))
        assert len(await read_all(open_log(store))) == written
        await store.close()

    run(check())
