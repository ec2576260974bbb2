"""The disk as a port: what the log asks of it, and the operating system's answer.

A `Disk` is a directory with files in it, by relative path with `/` between the parts. Two homes:
`OsDisk` here, `MemoryDisk` in `runtime/memory_disk.py` (for `--memory`, tests and simulation).

Promises: a `File.write` puts all bytes at the position or raises; `read_now` never waits for the
device; `replace` makes a small file appear whole, durably, or not at all. Errors are `OSError`
with their errno: what they mean for a request is decided above. Handles belong to one thread. Work
in another one uses a `duplicate()`, or a handle that its owner has put on `hold` until the work is
done: so closing never pulls a file descriptor away under a running system call.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview

# Linux limits one vectored write to this many buffers (IOV_MAX).
_MOST_BUFFERS = 1024
_RWF_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)


class File(Protocol):
    """One open file, read and written by position."""

    def write(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write all buffers, one after the other, from `position` on."""

    def read(self, length: int, position: int) -> Buffer:
        """Up to `length` bytes; fewer only at the end of the file. May wait for the device."""

    def read_now(self, length: int, position: int) -> Buffer | None:
        """The same without waiting; None when the bytes are not in memory."""

    def truncate(self, size: int) -> None: ...

    def size(self) -> int: ...

    def sync(self) -> None:
        """Return when the content is on the medium (fdatasync)."""

    def duplicate(self) -> File:
        """A second handle for another thread, closed on its own."""

    def hold(self) -> None:
        """Put off any `close` until `release`. Both are called by the handle's owner."""

    def release(self) -> None: ...

    def close(self) -> None: ...


class Disk(Protocol):
    """A directory and everything under it."""

    @property
    def syncs_instantly(self) -> bool:
        """True when syncing costs nothing, so that nobody need wait in a thread for it."""

    def open(self, path: str, *, create: bool = False) -> File: ...

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def list(self, path: str = "") -> list[str]:
        """Names in a directory, sorted; empty when there is no such directory."""

    def make_directory(self, path: str) -> None:
        """Create it and its parents; fine if it exists."""

    def read_file(self, path: str) -> bytes: ...

    def write_file(self, path: str, data: bytes) -> None:
        """Write a small file in place, neither atomic nor durable."""

    def replace(self, path: str, data: bytes) -> None:
        """Write a small file so that after a crash it is whole: either the old or the new."""

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, path: str) -> None:
        """Remove a file; fine if it is gone."""

    def remove_tree(self, path: str) -> None: ...

    def sync_directory(self, path: str = "") -> None:
        """Make the names in a directory durable."""

    def lock(self, path: str) -> bool:
        """Take the exclusive lock of that name until `unlock`; False when somebody has it."""

    def unlock(self, path: str) -> None: ...

    def free_bytes(self) -> int: ...

    def boot_id(self) -> str:
        """Names the current boot of the machine: while it is the same, no page cache was lost."""

    def describe(self, path: str) -> str:
        """The path as a person would type it, for messages."""


class OsFile:
    """A file of the operating system."""

    __slots__ = ("_closing", "_disk", "_fd", "_holds")

    def __init__(self, fd: int, disk: OsDisk) -> None:
        self._fd = fd
        self._disk = disk
        self._holds = 0
        self._closing = False

    def __repr__(self) -> str:
        return f"OsFile(fd={self._fd})"

    def write(self, buffers: Sequence[Buffer], position: int) -> None:
        size = 0
        for buffer in buffers:
            size += len(buffer)
        if len(buffers) <= _MOST_BUFFERS:
            written = os.pwritev(self._fd, buffers, position)
            if written == size:
                return
        else:
            written = 0
        # The kernel takes at most IOV_MAX buffers and 2 GiB at a time, and a full disk shows as a
        # short write first: writing the rest then raises ENOSPC.
        rest = memoryview(b"".join(buffers))
        while written < size:
            done = os.pwrite(self._fd, rest[written:], position + written)
            if done == 0:
                raise OSError(errno.EIO, "the kernel wrote nothing")
            written += done

    def read(self, length: int, position: int) -> Buffer:
        data = os.pread(self._fd, length, position)
        if len(data) == length or not data:
            return data
        parts = [data]
        got = len(data)
        while got < length:
            data = os.pread(self._fd, length - got, position + got)
            if not data:
                break
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def read_now(self, length: int, position: int) -> Buffer | None:
        if self._disk.reads_from_memory:
            return self.read(length, position)
        if not self._disk.can_read_without_waiting:
            return None
        buffer = bytearray(length)
        try:
            got = os.preadv(self._fd, (buffer,), position, _RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as failure:
            if failure.errno != errno.EOPNOTSUPP:
                raise
            self._disk.note_no_nowait()
            return self.read_now(length, position)
        if got == length:
            return buffer
        # Short: the rest is not cached, or the file ends here. Only a waiting read can tell.
        return None

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def duplicate(self) -> OsFile:
        return OsFile(os.dup(self._fd), self._disk)

    def hold(self) -> None:
        self._holds += 1

    def release(self) -> None:
        self._holds -= 1
        if self._closing and not self._holds:
            self.close()

    def close(self) -> None:
        if self._holds:
            self._closing = True
            return
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class OsDisk:
    """A directory of the operating system. Created when first written to."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = os.path.abspath(os.fspath(root))
        self._locks: dict[str, int] = {}
        self.can_read_without_waiting = bool(_RWF_NOWAIT)
        self.reads_from_memory = False

    def __repr__(self) -> str:
        return f"OsDisk({self._root!r})"

    @property
    def root(self) -> str:
        return self._root

    @property
    def syncs_instantly(self) -> bool:
        return False

    def note_no_nowait(self) -> None:
        """The file system has no RWF_NOWAIT: tmpfs is memory anyway, others are read in threads."""
        self.can_read_without_waiting = False
        self.reads_from_memory = _is_memory_file_system(self._root)

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    def describe(self, path: str) -> str:
        return self._at(path)

    def open(self, path: str, *, create: bool = False) -> OsFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return OsFile(os.open(self._at(path), flags, 0o644), self)

    def exists(self, path: str) -> bool:
        return os.path.exists(self._at(path))

    def size(self, path: str) -> int:
        return os.stat(self._at(path)).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(self._at(path)).st_mtime_ns // 1_000_000

    def list(self, path: str = "") -> list[str]:
        try:
            return sorted(os.listdir(self._at(path)))
        except FileNotFoundError:
            return []

    def make_directory(self, path: str) -> None:
        os.makedirs(self._at(path), exist_ok=True)

    def read_file(self, path: str) -> bytes:
        with open(self._at(path), "rb") as file:
            return file.read()

    def write_file(self, path: str, data: bytes) -> None:
        with open(self._at(path), "wb", buffering=0) as file:
            _write_all(file.fileno(), data)

    def replace(self, path: str, data: bytes) -> None:
        target = self._at(path)
        temporary = target + ".tmp"
        try:
            with open(temporary, "wb", buffering=0) as file:
                _write_all(file.fileno(), data)
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except OSError:
            # Nothing half-written stays behind, above all not on a full disk.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
        self.sync_directory(os.path.dirname(path))

    def rename(self, old: str, new: str) -> None:
        os.rename(self._at(old), self._at(new))

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._at(path))

    def remove_tree(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self._at(path))

    def sync_directory(self, path: str = "") -> None:
        fd = os.open(self._at(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> bool:
        fd = os.open(self._at(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        self._locks[path] = fd
        return True

    def unlock(self, path: str) -> None:
        fd = self._locks.pop(path, None)
        if fd is not None:
            os.close(fd)

    def free_bytes(self) -> int:
        status = os.statvfs(self._root)
        return status.f_bavail * status.f_frsize

    def boot_id(self) -> str:
        try:
            with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
                return file.read().strip()
        except OSError:
            return ""  # unknown: every start is treated as if the machine had lost power


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _is_memory_file_system(path: str) -> bool:
    """Whether `path` lies on tmpfs or ramfs, where no read can wait."""
    try:
        device = os.stat(path).st_dev
        wanted = f"{os.major(device)}:{os.minor(device)}"
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
            for line in mounts:
                fields = line.split()
                if fields[2] == wanted:
                    return fields[fields.index("-") + 1] in ("tmpfs", "ramfs")
    except (OSError, ValueError, IndexError):
        pass
    return False
