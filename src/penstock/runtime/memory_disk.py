"""A disk made of memory: the home of `--memory`, of fast tests and of simulated accidents.

As `MemoryDisk()` it only stores. As `MemoryDisk(volatile=True)` it also remembers what has been
synced, file by file and directory by directory, so that `lose_power` leaves exactly what a cruel
but lawful machine would: synced content, plus any mixture of the writes since, sector by sector;
synced names, and no others. `capacity_bytes` makes it run full, `fail` makes the next calls fail.

It is stricter than most file systems: a new name is gone after a power loss unless its directory
was synced, even when the file itself was.
"""

from __future__ import annotations

import errno
import itertools
import os
import random
import threading
from collections.abc import Sequence

from penstock.runtime.disk import Buffer

_SECTOR_BYTES = 512
_boots = itertools.count(1)


class _Inode:
    """The content of one file, now and as last synced."""

    __slots__ = ("content", "durable", "modified_ms", "pending")

    def __init__(self) -> None:
        self.content = bytearray()
        self.durable = b""
        # Writes since the last sync, in order: (position, bytes), or (size, None) for a cut.
        self.pending: list[tuple[int, bytes | None]] = []
        self.modified_ms = 0

    def power_loss(self, dice: random.Random | None) -> None:
        content = bytearray(self.durable)
        if dice is not None:
            for position, data in self.pending:
                if data is None:
                    if dice.random() < 0.5:
                        del content[position:]
                    continue
                self._tear(content, position, data, dice)
        self.content = content
        self.durable = bytes(content)
        self.pending.clear()

    @staticmethod
    def _tear(content: bytearray, position: int, data: bytes, dice: random.Random) -> None:
        fate = dice.random()
        if fate < 0.4:
            return
        for start in range(0, len(data), _SECTOR_BYTES):
            if fate < 0.7 and dice.random() < 0.5:
                continue
            piece = data[start : start + _SECTOR_BYTES]
            if fate > 0.9:
                piece = piece[: dice.randrange(len(piece) + 1)]
            _put(content, position + start, piece)


class _Directory:
    __slots__ = ("durable", "names")

    def __init__(self) -> None:
        self.names: dict[str, _Inode | _Directory] = {}
        self.durable: dict[str, _Inode | _Directory] = {}

    def power_loss(self, dice: random.Random | None) -> None:
        self.names = dict(self.durable)
        for _, node in sorted(self.names.items()):
            node.power_loss(dice)


def _put(content: bytearray, position: int, data: Buffer) -> None:
    if len(content) < position:
        content.extend(bytes(position - len(content)))
    content[position : position + len(data)] = data


class MemoryFile:
    """A handle on one file of a `MemoryDisk`."""

    __slots__ = ("_disk", "_inode", "_path")

    def __init__(self, inode: _Inode, disk: MemoryDisk, path: str) -> None:
        self._inode = inode
        self._disk = disk
        self._path = path

    def __repr__(self) -> str:
        return f"MemoryFile({self._path!r})"

    def write(self, buffers: Sequence[Buffer], position: int) -> None:
        disk, inode = self._disk, self._inode
        disk.maybe_fail("write", self._path)
        data = buffers[0] if len(buffers) == 1 else b"".join(buffers)
        with disk.guard:
            growth = position + len(data) - len(inode.content)
            room = disk.room_bytes()
            if room is not None and growth > room:
                # As the kernel does: what fits is written, then the disk is full.
                data = data[: max(0, len(data) - (growth - room))]
                self._put(position, data)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._put(position, data)

    def _put(self, position: int, data: Buffer) -> None:
        inode, before = self._inode, len(self._inode.content)
        if position == before:
            inode.content += data
        else:
            _put(inode.content, position, data)
        self._disk.used_bytes += len(inode.content) - before
        if self._disk.volatile:
            inode.pending.append((position, bytes(data)))

    def read(self, length: int, position: int) -> Buffer:
        self._disk.maybe_fail("read", self._path)
        with self._disk.guard:
            return bytes(self._inode.content[position : position + length])

    def read_now(self, length: int, position: int) -> Buffer | None:
        return self.read(length, position)

    def truncate(self, size: int) -> None:
        self._disk.maybe_fail("truncate", self._path)
        with self._disk.guard:
            content = self._inode.content
            self._disk.used_bytes -= len(content) - size
            if size <= len(content):
                del content[size:]
            else:
                content.extend(bytes(size - len(content)))
            if self._disk.volatile:
                self._inode.pending.append((size, None))

    def size(self) -> int:
        return len(self._inode.content)

    def sync(self) -> None:
        self._disk.maybe_fail("sync", self._path)
        if self._disk.volatile:
            with self._disk.guard:
                self._inode.durable = bytes(self._inode.content)
                self._inode.pending.clear()

    def duplicate(self) -> MemoryFile:
        return MemoryFile(self._inode, self._disk, self._path)

    def hold(self) -> None:
        return None

    def release(self) -> None:
        return None

    def close(self) -> None:
        return None


class MemoryDisk:
    """Files in memory; see the module's text for what it can be made to do."""

    def __init__(self, *, volatile: bool = False, capacity_bytes: int | None = None) -> None:
        self.volatile = volatile
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self.guard = threading.RLock()
        self._top = _Directory()
        self._faults: list[tuple[str, str, int]] = []
        self._locked: set[str] = set()
        self._boot = next(_boots)

    def __repr__(self) -> str:
        return f"MemoryDisk({self.used_bytes} bytes)"

    # --- accidents --------------------------------------------------------------------------------

    def lose_power(self, dice: random.Random | None = None) -> None:
        """Forget what was not synced. With dice, keep a random, torn part of it."""
        assert self.volatile, "only a MemoryDisk(volatile=True) knows what was synced"
        self._top.power_loss(dice)
        self._locked.clear()
        self._boot = next(_boots)
        self.used_bytes = _used(self._top)

    def kill_owner(self) -> None:
        """The process is gone, the machine is not: every byte written stays, locks are free."""
        self._locked.clear()

    def fail(self, operation: str, error: int, *, path: str = "", times: int = 1) -> None:
        """Let the next `times` calls of `operation` (on paths containing `path`) raise."""
        self._faults.extend([(operation, path, error)] * times)

    def mend(self) -> None:
        """Nothing fails any more."""
        self._faults.clear()

    def maybe_fail(self, operation: str, path: str) -> None:
        for fault in self._faults:
            if fault[0] == operation and fault[1] in path:
                self._faults.remove(fault)
                raise OSError(fault[2], os.strerror(fault[2]), path)

    def room_bytes(self) -> int | None:
        if self.capacity_bytes is None:
            return None
        return max(0, self.capacity_bytes - self.used_bytes)

    # --- the port ---------------------------------------------------------------------------------

    @property
    def syncs_instantly(self) -> bool:
        return True

    def describe(self, path: str) -> str:
        return f"memory:{path}"

    def _node(self, path: str) -> _Inode | _Directory | None:
        node: _Inode | _Directory | None = self._top
        for part in path.split("/") if path else ():
            if not isinstance(node, _Directory):
                return None
            node = node.names.get(part)
        return node

    def _parent(self, path: str) -> tuple[_Directory, str]:
        above, _, name = path.rpartition("/")
        parent = self._node(above)
        if not isinstance(parent, _Directory):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return parent, name

    def _file(self, path: str) -> _Inode:
        node = self._node(path)
        if not isinstance(node, _Inode):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        self.maybe_fail("open", path)
        node = self._node(path)
        if node is None and create:
            parent, name = self._parent(path)
            node = parent.names[name] = _Inode()
        if not isinstance(node, _Inode):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return MemoryFile(node, self, path)

    def exists(self, path: str) -> bool:
        return self._node(path) is not None

    def size(self, path: str) -> int:
        return len(self._file(path).content)

    def modified_ms(self, path: str) -> int:
        return self._file(path).modified_ms

    def list(self, path: str = "") -> list[str]:
        node = self._node(path)
        return sorted(node.names) if isinstance(node, _Directory) else []

    def make_directory(self, path: str) -> None:
        self.maybe_fail("mkdir", path)
        node = self._top
        for part in path.split("/") if path else ():
            below = node.names.setdefault(part, _Directory())
            assert isinstance(below, _Directory), path
            node = below

    def read_file(self, path: str) -> bytes:
        self.maybe_fail("read", path)
        return bytes(self._file(path).content)

    def write_file(self, path: str, data: bytes) -> None:
        file = self.open(path, create=True)
        file.truncate(0)
        file.write([data], 0)

    def replace(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        try:
            self.write_file(temporary, data)
            self.open(temporary).sync()
            self.rename(temporary, path)
        except OSError:
            self.remove(temporary)
            raise
        self.sync_directory(path.rpartition("/")[0])

    def rename(self, old: str, new: str) -> None:
        self.maybe_fail("rename", old)
        source, old_name = self._parent(old)
        target, new_name = self._parent(new)
        if old_name not in source.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
        replaced = target.names.get(new_name)
        if replaced is not None:
            self.used_bytes -= _used(replaced)
        target.names[new_name] = source.names.pop(old_name)

    def remove(self, path: str) -> None:
        node = self._node(path)
        if isinstance(node, _Inode):
            parent, name = self._parent(path)
            del parent.names[name]
            self.used_bytes -= len(node.content)

    def remove_tree(self, path: str) -> None:
        node = self._node(path)
        if isinstance(node, _Directory):
            parent, name = self._parent(path)
            del parent.names[name]
            self.used_bytes -= _used(node)

    def sync_directory(self, path: str = "") -> None:
        self.maybe_fail("sync", path)
        node = self._node(path)
        if not isinstance(node, _Directory):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        node.durable = dict(node.names)

    def lock(self, path: str) -> bool:
        if path in self._locked:
            return False
        self._locked.add(path)
        return True

    def unlock(self, path: str) -> None:
        self._locked.discard(path)

    def free_bytes(self) -> int:
        room = self.room_bytes()
        return 1 << 62 if room is None else room

    def boot_id(self) -> str:
        return f"boot-{self._boot}"


def _used(node: _Inode | _Directory) -> int:
    if isinstance(node, _Inode):
        return len(node.content)
    return sum(_used(below) for below in node.names.values())
