"""How topics are created, and what a topic that says nothing gets."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.options.option import boolean, integer, text


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class TopicsOptions:
    """Topics."""

    num_partitions: int = integer(
        4, "Partitions of a topic created without a count.", minimum=1, dynamic=True
    )
    default_replication_factor: int = integer(
        1, "Replicas of a topic created without a count.", minimum=1, maximum=32767, dynamic=True
    )
    auto_create_topics_enable: bool = boolean(
        True, "Create a topic when a client first asks for it.", dynamic=True
    )
    delete_topic_enable: bool = boolean(True, "Whether topics may be deleted.")
    message_max_bytes: int = integer(
        1_048_588,
        "Largest record batch accepted, as sent.",
        minimum=0,
        unit="bytes",
        dynamic=True,
        topic="max.message.bytes",
    )
    compression_type: str = text(
        "producer",
        "Codec of stored batches; producer keeps each as it was sent.",
        choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        dynamic=True,
        topic="compression.type",
    )
    min_insync_replicas: int = integer(
        1,
        "Replicas that must have a record before acks=all answers.",
        minimum=1,
        dynamic=True,
        topic="min.insync.replicas",
    )
    unclean_leader_election_enable: bool = boolean(
        False,
        "Let a replica that lags behind lead when no other is left.",
        dynamic=True,
        topic="unclean.leader.election.enable",
    )
