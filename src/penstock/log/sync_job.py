"""What a partition has written but not synced, and one partition's share of a round of syncing.

`Unsynced` gathers on the event loop. `SyncJob` is made from it, run in a thread, and reported back
on the event loop. A job keeps its files from being closed, so the log may roll or delete them
meanwhile.
"""

from __future__ import annotations

from penstock.log.segment import Segment
from penstock.runtime.disk import Disk, File


class SyncJob:
    """Files, small files and directories to sync, so that offsets below `offset` are safe."""

    __slots__ = (
        "_directories",
        "_disk",
        "_files",
        "_paths",
        "_replacements",
        "generation",
        "offset",
    )

    def __init__(self, disk: Disk, offset: int, generation: int) -> None:
        self.offset = offset
        self.generation = generation  # of the log: a truncation since makes the result worthless
        self._disk = disk
        self._files: list[File] = []
        self._paths: list[str] = []
        self._directories: list[str] = []
        self._replacements: list[tuple[str, bytes]] = []

    def __repr__(self) -> str:
        return f"SyncJob(below {self.offset}, {len(self._files)} files)"

    def add_file(self, file: File) -> None:
        """An open file, kept open until `done`."""
        file.hold()
        self._files.append(file)

    def add_path(self, path: str) -> None:
        self._paths.append(path)

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(self._files or self._paths or self._directories or self._replacements)

    @property
    def has_paths(self) -> bool:
        return bool(self._paths)

    def add_replacement(self, path: str, data: bytes) -> None:
        """A small file to be written whole."""
        self._replacements.append((path, data))

    def add_directory(self, path: str) -> None:
        self._directories.append(path)

    def run(self) -> None:
        """Sync everything; the first failure is raised. Data first, then the names it is under.

        This may run in a thread; everything else belongs to the event loop.
        """
        for file in self._files:
            file.sync()
        for path in self._paths:
            self._sync_path(path)
        for directory in self._directories:
            self._sync_directory(directory)
        for path, data in self._replacements:
            self._replace(path, data)

    def done(self) -> None:
        """The job has run, or never will: let go of the files."""
        for file in self._files:
            file.release()
        self._files.clear()

    def _sync_path(self, path: str) -> None:
        try:
            file = self._disk.open(path)
        except FileNotFoundError:
            return  # of a segment or a partition that has been deleted since
        try:
            file.sync()
        finally:
            file.close()

    def _replace(self, path: str, data: bytes) -> None:
        try:
            self._disk.replace(path, data)
        except FileNotFoundError:
            return  # the partition has been deleted since

    def _sync_directory(self, path: str) -> None:
        try:
            self._disk.sync_directory(path)
        except FileNotFoundError:
            if not path:
                raise  # the data directory itself; a partition's may have been deleted since


class Unsynced:
    """What of a partition is not known to be on the medium."""

    __slots__ = ("_directory", "_names", "_paths", "_segments")

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._segments: list[Segment] = []
        self._paths: list[str] = []
        self._names = False

    def __bool__(self) -> bool:
        return bool(self._segments or self._paths or self._names)

    def __repr__(self) -> str:
        return f"Unsynced({self._directory}, {self._segments})"

    def add(self, segment: Segment) -> None:
        """The segment has been written to."""
        if not segment.unsynced:
            segment.unsynced = True
            self._segments.append(segment)

    def discard(self, segment: Segment) -> None:
        """The segment is gone."""
        if segment.unsynced:
            segment.unsynced = False
            self._segments.remove(segment)

    def add_paths(self, paths: list[str]) -> None:
        """Small files have been written, perhaps for the first time."""
        if paths:
            self._paths += paths
            self._names = True

    def names_changed(self) -> None:
        """Files have been created, renamed or removed in the partition's directory."""
        self._names = True

    def clear(self) -> None:
        """The partition is deleted: nothing of it need be kept."""
        for segment in self._segments:
            segment.unsynced = False
        self._segments.clear()
        self._paths.clear()
        self._names = False

    def take(self, disk: Disk, offset: int, generation: int) -> SyncJob:
        """A job that syncs all of it; from now on nothing is unsynced that is not written anew."""
        job = SyncJob(disk, offset, generation)
        for segment in self._segments:
            job.add_file(segment.file())
            segment.unsynced = False
        self._segments.clear()
        for path in self._paths:
            job.add_path(path)
        self._paths.clear()
        if self._names:
            job.add_directory(self._directory)
            job.add_directory("")
            self._names = False
        return job
