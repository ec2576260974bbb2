"""The names of a partition's files, as Kafka spells them.

    orders-0/                               one directory for each partition
        partition.metadata                  the topic's id
        leader-epoch-checkpoint             where each leader's reign began
        00000000000000000000.log            record batches from that offset on
        00000000000000000000.index          offset -> position, sparse
        00000000000000000000.timeindex      timestamp -> offset, sparse
        00000000000000000000.txnindex       aborted transactions, only if there are any
        00000000000000000042.snapshot       producers as of that offset

Beside it may lie journals of what became of its records, for queues and share groups: logs of their
own, named by the topic's id and what the journal is for, `~<topic id>.<purpose>-0/`. No topic can
have such a name, and they go when the topic goes.

Suffixes on top of these: `.cleaned` a compaction's unfinished work, `.swap` its finished work on
the way to its place, `.deleted` on the way out, `.damaged` set aside by recovery for people to look
at. A directory that ends in `.<32 hex digits>-delete` is on its way out too.
"""

from __future__ import annotations

import re

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
SEGMENT_SUFFIXES = (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX)

CLEANED = ".cleaned"
SWAP = ".swap"
DELETED = ".deleted"
DAMAGED = ".damaged"

DELETE_DIRECTORY = "-delete"
_ON_ITS_WAY_OUT = re.compile(r".+\.[0-9a-f]{32}-delete")
PARTITION_METADATA = "partition.metadata"
LEADER_EPOCHS = "leader-epoch-checkpoint"


def file_name(offset: int, suffix: str) -> str:
    """`00000000000000000042.log` for 42 and `.log`."""
    return f"{offset:020d}{suffix}"


def offset_of(name: str, suffix: str) -> int | None:
    """The offset in a file name with that suffix, else None."""
    if not name.endswith(suffix):
        return None
    digits = name[: -len(suffix)]
    return int(digits) if len(digits) == 20 and digits.isdigit() else None


def split_directory(name: str) -> tuple[str, int] | None:
    """(topic, partition) of a partition directory's name, else None."""
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not partition.isdigit() or str(int(partition)) != partition:
        return None
    return topic, int(partition)


def is_on_its_way_out(name: str) -> bool:
    """Whether it is what a partition's directory is renamed to before it is removed."""
    return _ON_ITS_WAY_OUT.fullmatch(name) is not None


def journal_name(topic_id: str, purpose: str) -> str:
    """The name of a journal that lies beside the partitions of a topic, given its id as text."""
    return f"~{topic_id}.{purpose}"


def journal_owner(name: str) -> str | None:
    """The topic's id in a journal's name; None when it is not one."""
    return name[1:].partition(".")[0] if name.startswith("~") else None
