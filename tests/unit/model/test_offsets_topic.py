"""Records of `__consumer_offsets`: Kafka's bytes, and back."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from penstock.errors import CorruptRecord
from penstock.model import consumer_group_records as modern
from penstock.model import share_group_records as sharing
from penstock.model.offsets_topic import (
    CommittedOffset,
    GroupStored,
    OffsetCommitted,
    StoredGroup,
    StoredMember,
    decode,
    encode,
)

TOPIC = uuid.UUID("12345678-1234-1234-1234-123456789abc")
MEMBER = StoredMember("m", "i", "c", "/h", 60_000, 10_000, b"sub", b"asg")

RECORDS: list[Any] = [
    OffsetCommitted("g", "t", 3, CommittedOffset(42, 7, "meta", 1000)),
    OffsetCommitted("g", "t", 3, CommittedOffset(42, -1, "", 1000, 2000)),
    OffsetCommitted("g", "t", 3, None),
    GroupStored("g", StoredGroup("consumer", 5, "range", "m", 123, (MEMBER,))),
    GroupStored("g", StoredGroup("consumer", 6, None, None, 124, ())),
    GroupStored("g", None),
    modern.GroupEpochBumped("g", 4),
    modern.GroupEpochBumped("g", None),
    modern.SubscribedTopicsChanged("g", (modern.SubscribedTopic(TOPIC, "t", 12),)),
    modern.MemberSubscribed(
        "g", "m", modern.Subscription(None, "r", "c", "/h", ("a", "b"), "x.*", 300, "uniform")
    ),
    modern.MemberSubscribed(
        "g",
        "m",
        modern.Subscription(
            "i", None, "c", "/h", (), None, 300, None, modern.ClassicMetadata(9, (("range", b"x"),))
        ),
    ),
    modern.TargetEpochReached("g", 4),
    modern.TargetAssigned("g", "m", {TOPIC: (0, 1, 200)}),
    modern.TargetAssigned("g", "m", {}),
    modern.TargetAssigned("g", "m", None),
    modern.MemberReconciled(
        "g", "m", modern.CurrentAssignment(4, 3, 1, {TOPIC: (0,)}, {TOPIC: (1,)})
    ),
    modern.MemberReconciled("g", "m", modern.CurrentAssignment(-2, 3, 0, {}, {})),
    modern.MemberReconciled(
        "g",
        "m",
        modern.CurrentAssignment(
            4, 3, 1, {TOPIC: (0, 2)}, {TOPIC: (1,)}, {(TOPIC, 0): 1, (TOPIC, 2): 4, (TOPIC, 1): 2}
        ),
    ),
    modern.RegexResolved("g", "t.*", modern.ResolvedRegex(("t1", "t2"), 8, 999)),
    sharing.ShareMemberSubscribed("g", "m", sharing.ShareSubscription("r", "c", "/h", ("a", "b"))),
    sharing.ShareMemberSubscribed("g", "m", None),
    sharing.ShareGroupEpochBumped("g", 4),
    sharing.ShareTargetEpochReached("g", 4),
    sharing.ShareTargetAssigned("g", "m", {TOPIC: (0, 2)}),
    sharing.ShareMemberAssigned("g", "m", sharing.ShareAssignment(4, 3, {TOPIC: (0, 2)})),
    sharing.SharePartitionsStarted("g", {TOPIC: sharing.StartedTopic("t", (0, 1))}),
    sharing.SharePartitionsStarted("g", None),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: type(r).__name__)
def test_a_record_reads_back_as_it_was_written(record: Any) -> None:
    assert decode(*encode(record)) == record


def test_an_offset_commit_has_kafkas_bytes() -> None:
    key, value = encode(OffsetCommitted("grp", "top", 1, CommittedOffset(5, 2, "m", 1000)))
    assert key.hex(" ") == "00 01 00 03 67 72 70 00 03 74 6f 70 00 00 00 01"
    assert value is not None
    assert value.hex(" ") == (
        "00 03 00 00 00 00 00 00 00 05 00 00 00 02 00 01 6d 00 00 00 00 00 00 03 e8"
    )


def test_a_group_has_kafkas_bytes() -> None:
    stored = StoredGroup("consumer", 1, "range", "m", 7, (MEMBER,))
    key, value = encode(GroupStored("g", stored))
    assert key.hex() == "0002" + "000167"
    assert value is not None
    assert value.hex() == (
        "0003" + "0008636f6e73756d6572" + "00000001" + "000572616e6765" + "00016d"
        "0000000000000007" + "00000001" + "00016d" + "000169" + "000163" + "00022f68"
        "0000ea60" + "00002710" + "00000003737562" + "00000003617367"
    )


def test_a_target_assignment_has_kafkas_bytes() -> None:
    key, value = encode(modern.TargetAssigned("g", "m", {TOPIC: (1, 2)}))
    assert key.hex() == "0007" + "000167" + "00016d"
    assert value is not None
    assert value.hex() == "0000" + "02" + TOPIC.hex + "03" + "00000001" + "00000002" + "00" + "00"


@pytest.mark.parametrize("version", [0, 1, 2])
def test_older_offset_commits_are_read(version: int) -> None:
    key = bytes.fromhex("0001" + "000167" + "000174" + "00000000")
    value = version.to_bytes(2, "big") + bytes.fromhex("0000000000000009" + "00016d")
    value += (1000).to_bytes(8, "big") + ((2000).to_bytes(8, "big") if version == 1 else b"")
    record = decode(key, value)
    assert isinstance(record, OffsetCommitted)
    assert record.value == CommittedOffset(9, -1, "m", 1000, 2000 if version == 1 else -1)


def test_records_of_unknown_kinds_are_left_alone() -> None:
    assert decode(bytes.fromhex("0011" + "000167"), b"\x00\x00") is None


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: type(r).__name__)
def test_bytes_that_are_cut_off_are_refused_and_never_misread(record: Any) -> None:
    key, value = encode(record)
    for end in range(len(key)):
        with pytest.raises(CorruptRecord):
            decode(key[:end], value)
    for end in range(len(value or b"") - 1):
        try:
            decode(key, (value or b"")[:end])
        except CorruptRecord:
            continue
        # What is missing may only be the tag section at the end, which holds nothing we need.
        assert end >= len(value or b"") - 2
