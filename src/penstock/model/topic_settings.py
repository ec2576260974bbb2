"""The table of topic settings: Kafka's names, types, defaults and bounds, and our words for them.

Only declarations live here, and this is the only place where a topic setting is declared;
`topic_config` gives them meaning. Settings that steer a second broker (throttles, unclean election)
or a remote store are listed as Kafka lists them and have no effect on one node; a remote store
cannot be switched on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from penstock.model.setting import LONG_MAX, Setting, SettingType, Value, table_of

BOOLEAN, STRING, INT = SettingType.BOOLEAN, SettingType.STRING, SettingType.INT
LONG, DOUBLE, LIST = SettingType.LONG, SettingType.DOUBLE, SettingType.LIST

_THROTTLED = re.compile(r"\d+:\d+")


def _throttled_replicas(value: Value) -> str | None:
    assert isinstance(value, tuple)
    if value in ((), ("*",)) or all(_THROTTLED.fullmatch(entry) for entry in value):
        return None
    return "it must be '*' or a list of partition:broker pairs"


def _no_remote_store(value: Value) -> str | None:
    return "this broker has no remote storage to switch on" if value is True else None


def _gzip_level(value: Value) -> str | None:
    return "it must be between 1 and 9, or -1 for the codec's own" if value == 0 else None


SETTINGS: Mapping[str, Setting] = table_of(
    [
        Setting(
            "cleanup.policy",
            LIST,
            "delete",
            "What becomes of old data: delete drops whole segments past retention, compact keeps "
            "the newest record of each key, both may be given, and none keeps everything.",
            choices=("compact", "delete"),
        ),
        Setting(
            "compression.type",
            STRING,
            "producer",
            "The codec of the topic. Batches are always kept as the producer sent them; any other "
            "value than producer is recorded for tools to see, and nothing is recompressed.",
            choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        ),
        Setting(
            "compression.gzip.level",
            INT,
            "-1",
            "The gzip level a recompressing broker would use; -1 is the codec's own. Recorded.",
            minimum=-1,
            maximum=9,
            check=_gzip_level,
        ),
        Setting(
            "compression.lz4.level",
            INT,
            "9",
            "The lz4 level a recompressing broker would use. Recorded.",
            minimum=1,
            maximum=17,
        ),
        Setting(
            "compression.zstd.level",
            INT,
            "3",
            "The zstd level a recompressing broker would use. Recorded.",
            minimum=-131072,
            maximum=22,
        ),
        Setting(
            "delete.retention.ms",
            LONG,
            "86400000",
            "How long a compacted topic keeps a tombstone or transaction marker after its last "
            "chance to be seen, so that readers from the beginning learn of the deletion.",
            minimum=0,
        ),
        Setting(
            "errors.deadletterqueue.group.enable",
            BOOLEAN,
            "false",
            "Whether share groups may write their dead letters to this topic (KIP-1191).",
        ),
        Setting(
            "file.delete.delay.ms",
            LONG,
            "60000",
            "How long a file waits between being dropped from the log and being removed.",
            minimum=0,
        ),
        Setting(
            "flush.messages",
            LONG,
            str(LONG_MAX),
            "With penstock.durability=os: sync after this many records. With fsync every "
            "acknowledged record is synced already.",
            minimum=1,
        ),
        Setting(
            "flush.ms",
            LONG,
            str(LONG_MAX),
            "With penstock.durability=os: sync at least this often while there is something new.",
            minimum=0,
        ),
        Setting(
            "follower.replication.throttled.replicas",
            LIST,
            "",
            "Replicas whose following is throttled: '*' or partition:broker pairs.",
            check=_throttled_replicas,
        ),
        Setting(
            "index.interval.bytes",
            INT,
            "4096",
            "An index entry is written about every so many bytes of log.",
            minimum=0,
        ),
        Setting(
            "leader.replication.throttled.replicas",
            LIST,
            "",
            "Replicas whose serving of followers is throttled: '*' or partition:broker pairs.",
            check=_throttled_replicas,
        ),
        Setting(
            "local.retention.bytes",
            LONG,
            "-2",
            "Bytes to keep on this disk when older ones are in remote storage; -2 means "
            "retention.bytes. Without remote storage it has no effect.",
            minimum=-2,
        ),
        Setting(
            "local.retention.ms",
            LONG,
            "-2",
            "Time to keep data on this disk when it is also in remote storage; -2 means "
            "retention.ms. Without remote storage it has no effect.",
            minimum=-2,
        ),
        Setting(
            "max.compaction.lag.ms",
            LONG,
            str(LONG_MAX),
            "A record becomes eligible for compaction at the latest after this time.",
            minimum=1,
        ),
        Setting(
            "max.message.bytes",
            INT,
            "1048588",
            "The largest record batch accepted, as compressed by the producer.",
            minimum=0,
        ),
        Setting(
            "message.timestamp.after.max.ms",
            LONG,
            "3600000",
            "How far a record's timestamp may be ahead of the broker's clock (CreateTime only).",
            minimum=0,
        ),
        Setting(
            "message.timestamp.before.max.ms",
            LONG,
            str(LONG_MAX),
            "How far a record's timestamp may be behind the broker's clock (CreateTime only).",
            minimum=0,
        ),
        Setting(
            "message.timestamp.type",
            STRING,
            "CreateTime",
            "Whose clock stamps records: the producer's (CreateTime) or the broker's at the moment "
            "of the append (LogAppendTime).",
            choices=("CreateTime", "LogAppendTime"),
        ),
        Setting(
            "min.cleanable.dirty.ratio",
            DOUBLE,
            "0.5",
            "A log is compacted when this share of it has not been compacted yet.",
            minimum=0,
            maximum=1,
        ),
        Setting(
            "min.compaction.lag.ms",
            LONG,
            "0",
            "A record is safe from compaction for at least this time.",
            minimum=0,
        ),
        Setting(
            "min.insync.replicas",
            INT,
            "1",
            "With acks=all, how many replicas must have a record before it is acknowledged; "
            "never more than there are.",
            minimum=1,
        ),
        Setting(
            "preallocate",
            BOOLEAN,
            "false",
            "Whether a new segment's space is reserved at once. Recorded; files grow as needed.",
        ),
        Setting(
            "remote.log.copy.disable",
            BOOLEAN,
            "false",
            "Stops copying to remote storage. Without remote storage it has no effect.",
        ),
        Setting(
            "remote.log.delete.on.disable",
            BOOLEAN,
            "false",
            "Deletes remote data when remote storage is switched off. It has no effect here.",
        ),
        Setting(
            "remote.storage.enable",
            BOOLEAN,
            "false",
            "Remote storage of old segments, which this broker does not have: only false is "
            "accepted.",
            check=_no_remote_store,
        ),
        Setting(
            "retention.bytes",
            LONG,
            "-1",
            "With cleanup.policy=delete: old segments go when a partition is larger than this; "
            "-1 means no limit.",
        ),
        Setting(
            "retention.ms",
            LONG,
            "604800000",
            "With cleanup.policy=delete: segments go when their newest record is older than this; "
            "-1 means never.",
            minimum=-1,
        ),
        Setting(
            "segment.bytes",
            INT,
            "1073741824",
            "A new segment file begins when this one would grow beyond this size. Retention and "
            "compaction work on whole finished segments.",
            minimum=1024 * 1024,
        ),
        Setting(
            "segment.index.bytes",
            INT,
            "10485760",
            "The most an index file may grow to before a new segment begins.",
            minimum=4,
        ),
        Setting(
            "segment.jitter.ms",
            LONG,
            "0",
            "Up to this much is taken off segment.ms, at random, so that segments of many "
            "partitions do not end at the same moment.",
            minimum=0,
        ),
        Setting(
            "segment.ms",
            LONG,
            "604800000",
            "A new segment begins after this time even when the file is small.",
            minimum=1,
        ),
        Setting(
            "unclean.leader.election.enable",
            BOOLEAN,
            "false",
            "Whether a replica that was not in sync may lead as a last resort, losing data.",
        ),
        Setting(
            "penstock.durability",
            STRING,
            "fsync",
            "What acknowledged means: fsync, the record is on disk; os, it is in the operating "
            "system's page cache and a power failure may lose the last moments.",
            choices=("fsync", "os"),
        ),
    ]
)
