"""Opening a partition's log from its directory, when it is first asked for.

After a clean stop, or after recovery, the files are in order: it is enough to look at names and
sizes, at the indexes of the last segment, and at the few batches behind its last index entry.
"""

from __future__ import annotations

from penstock.log import layout, recovery
from penstock.log.open_files import OpenFiles
from penstock.log.partition_directory import PartitionDirectory
from penstock.log.segment import Segment
from penstock.model.batch import HEADER_BYTES, read_header


class LoadedFiles:
    """What a directory holds: its segments, where they end, whether the end is sound."""

    __slots__ = ("end_offset", "segments", "sound")

    def __init__(self, segments: list[Segment], end_offset: int, sound: bool) -> None:
        self.segments = segments
        self.end_offset = end_offset
        self.sound = sound


def load_segments(directory: PartitionDirectory, files: OpenFiles) -> LoadedFiles:
    """The segments of a directory, the active one ready to be written to."""
    disk = directory.disk
    segments = []
    for base in recovery.base_offsets(recovery.tidy(disk, directory.name)):
        path = directory.path(layout.file_name(base, layout.LOG))
        segments.append(Segment(directory.name, base, files, disk.size(path)))
    if not segments:
        return LoadedFiles([], 0, True)
    active = segments[-1]
    active.created_ms = disk.modified_ms(active.path(layout.LOG))
    if not active.size:
        active.ensure_indexes()
        return LoadedFiles(segments, active.base_offset, True)
    end_offset, position = active.find_end()
    if active.size >= HEADER_BYTES:
        head = active.file().read(HEADER_BYTES, 0)
        active.first_timestamp = read_header(head).max_timestamp
    return LoadedFiles(segments, end_offset, position == active.size)
