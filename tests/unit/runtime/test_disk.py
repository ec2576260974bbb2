"""Both disks keep the same promises; the one made of memory can also have accidents."""

from __future__ import annotations

import errno
import os
import random
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.runtime.disk import Disk, OsDisk
from penstock.runtime.memory_disk import MemoryDisk


@pytest.fixture(params=["files", "memory"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    disk: Disk = OsDisk(tmp_path / "data") if request.param == "files" else MemoryDisk()
    disk.make_directory("")
    return disk


def test_what_is_written_can_be_read_by_position(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.write([b"hello ", memoryview(b"big"), bytearray(b" world")], 0)
    file.write([b"BIG"], 6)
    assert bytes(file.read(100, 0)) == b"hello BIG world"
    assert bytes(file.read(3, 6)) == b"BIG"
    assert file.size() == disk.size("a") == 15
    file.close()


def test_a_read_of_what_was_just_written_does_not_wait(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.write([b"x" * 100_000], 0)
    data = file.read_now(1000, 500)
    assert data is not None
    assert bytes(data) == b"x" * 1000
    file.close()


def test_more_buffers_than_the_kernel_takes_at_once_are_all_written(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.write([b"%04d" % at for at in range(3000)], 8)
    assert bytes(file.read(4, 8 + 4 * 2999)) == b"2999"
    assert file.size() == 8 + 4 * 3000
    file.close()


def test_truncate_cuts_and_extends(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.write([b"hello"], 0)
    file.truncate(2)
    file.truncate(4)
    assert bytes(file.read(10, 0)) == b"he\0\0"
    file.close()


def test_opening_what_is_not_there_is_refused(disk: Disk) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open("nothing")
    with pytest.raises(FileNotFoundError):
        disk.read_file("nothing")
    assert disk.list("nowhere") == []
    assert not disk.exists("nothing")


def test_a_duplicate_outlives_the_handle_it_came_from(disk: Disk) -> None:
    file = disk.open("a", create=True)
    other = file.duplicate()
    file.write([b"abc"], 0)
    file.close()
    other.sync()
    assert bytes(other.read(3, 0)) == b"abc"
    other.close()


def test_an_open_file_survives_its_removal(disk: Disk) -> None:
    disk.write_file("a", b"abc")
    file = disk.open("a")
    disk.remove("a")
    disk.remove("a")
    assert bytes(file.read(3, 0)) == b"abc"
    assert not disk.exists("a")
    file.close()


def test_directories_are_made_listed_renamed_and_removed(disk: Disk) -> None:
    disk.make_directory("orders-0")
    disk.make_directory("orders-0")
    disk.write_file("orders-0/b", b"1")
    disk.write_file("orders-0/a", b"2")
    assert disk.list("orders-0") == ["a", "b"]
    disk.rename("orders-0", "gone-delete")
    disk.sync_directory()
    assert disk.list() == ["gone-delete"]
    assert disk.read_file("gone-delete/a") == b"2"
    disk.remove_tree("gone-delete")
    disk.remove_tree("gone-delete")
    assert disk.list() == []


def test_replace_swaps_the_content_and_leaves_nothing_else(disk: Disk) -> None:
    disk.replace("checkpoint", b"one")
    disk.replace("checkpoint", b"two")
    assert disk.read_file("checkpoint") == b"two"
    assert disk.list() == ["checkpoint"]


def test_a_lock_is_held_by_one(disk: Disk, tmp_path: Path) -> None:
    other: Disk = OsDisk(tmp_path / "data") if isinstance(disk, OsDisk) else disk
    assert disk.lock(".lock")
    assert not other.lock(".lock")
    disk.unlock(".lock")
    assert other.lock(".lock")
    other.unlock(".lock")


def test_the_boot_has_a_name_that_stays(disk: Disk) -> None:
    assert disk.boot_id() == disk.boot_id() != ""
    assert disk.free_bytes() > 0


# --- a full disk ----------------------------------------------------------------------------------


@pytest.fixture
def small_files() -> Iterator[None]:
    """The kernel refuses to let any file grow over 64 KiB, after writing what fits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.usefixtures("small_files")
def test_a_write_that_only_partly_fits_raises(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    file = disk.open("a", create=True)
    file.write([b"x" * 60_000], 0)
    with pytest.raises(OSError, match="File too large"):
        file.write([b"y" * 5000, b"z" * 5000], 60_000)
    assert bytes(file.read(2, 59_999)) == b"xy"
    file.close()


@pytest.mark.usefixtures("small_files")
def test_a_replace_that_does_not_fit_leaves_the_old_content_and_no_litter(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    disk.replace("a", b"old")
    with pytest.raises(OSError, match="File too large"):
        disk.replace("a", b"n" * 70_000)
    assert disk.read_file("a") == b"old"
    assert disk.list() == ["a"]


def test_a_memory_disk_runs_full_as_a_real_one_does() -> None:
    disk = MemoryDisk(capacity_bytes=10)
    file = disk.open("a", create=True)
    file.write([b"12345678"], 0)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        file.write([b"abcd"], 8)
    assert bytes(file.read(20, 0)) == b"12345678ab"
    file.truncate(8)
    assert disk.free_bytes() == 2
    disk.remove("a")
    assert disk.free_bytes() == 10


# --- accidents ------------------------------------------------------------------------------------


def test_a_power_loss_takes_what_was_not_synced() -> None:
    disk = MemoryDisk(volatile=True)
    disk.make_directory("d")
    disk.sync_directory()
    file = disk.open("d/a", create=True)
    file.write([b"safe"], 0)
    file.sync()
    disk.sync_directory("d")
    file.write([b" lost"], 4)
    disk.open("d/b", create=True).sync()
    disk.lose_power()
    assert disk.read_file("d/a") == b"safe"
    assert disk.list("d") == ["a"], "the name b was never synced"


def test_a_power_loss_undoes_an_unsynced_rename_and_removal() -> None:
    disk = MemoryDisk(volatile=True)
    disk.replace("a", b"1")
    disk.replace("b", b"2")
    disk.rename("a", "c")
    disk.remove("b")
    disk.lose_power()
    assert disk.list() == ["a", "b"]


def test_a_power_loss_with_dice_keeps_torn_pieces_and_never_touches_what_was_synced() -> None:
    outcomes = set()
    for seed in range(200):
        disk = MemoryDisk(volatile=True)
        file = disk.open("a", create=True)
        file.write([b"s" * 1000], 0)
        file.sync()
        disk.sync_directory()
        file.write([b"u" * 2000], 1000)
        disk.lose_power(random.Random(seed))
        content = disk.read_file("a")
        assert content.startswith(b"s" * 1000)
        outcomes.add(content)
    assert len(outcomes) > 5


def test_a_fault_happens_as_often_as_it_was_ordered() -> None:
    disk = MemoryDisk()
    disk.fail("sync", errno.EIO, path="orders", times=1)
    disk.open("users", create=True).sync()
    file = disk.open("orders", create=True)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        file.sync()
    file.sync()


def test_another_boot_has_another_name() -> None:
    disk = MemoryDisk(volatile=True)
    before = disk.boot_id()
    disk.kill_owner()
    assert disk.boot_id() == before
    disk.lose_power()
    assert disk.boot_id() != before
