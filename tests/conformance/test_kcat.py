"""What people do with kcat, as its manual shows it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from support.batches import batch_attributes
from support.clients import Record
from support.clients.confluent import Confluent
from support.clients.kcat import install, run
from support.fetching import fetch_bytes
from support.wire import Wire

Name = Callable[[str], str]
MakeTopic = Callable[..., str]


@pytest.fixture(autouse=True)
def kcat_is_here() -> None:
    if why := install():
        pytest.skip(why)


def test_the_cluster_is_listed(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=3)
    listed = json.loads(run("-L", "-J", "-b", bootstrap))
    (found,) = [one for one in listed["topics"] if one["topic"] == topic]
    assert [partition["partition"] for partition in found["partitions"]] == [0, 1, 2]
    assert [broker["name"] for broker in listed["brokers"]] == [bootstrap]


def test_lines_go_in_and_come_out(bootstrap: str, topic: str) -> None:
    run("-P", "-b", bootstrap, "-t", topic, feed=b"one\ntwo\nthree\n")
    printed = run("-C", "-b", bootstrap, "-t", topic, "-e", "-q")
    assert printed == b"one\ntwo\nthree\n"


def test_the_last_records_can_be_asked_for(bootstrap: str, topic: str) -> None:
    run("-P", "-b", bootstrap, "-t", topic, feed=b"\n".join(b"%d" % n for n in range(100)))
    printed = run("-C", "-b", bootstrap, "-t", topic, "-o", "-3", "-e", "-q")
    assert printed == b"97\n98\n99\n"


def test_records_between_two_moments(
    bootstrap: str, make_topic: MakeTopic, confluent: Confluent
) -> None:
    topic = make_topic(retention_ms=-1)
    stamps = range(1_600_000_000_000, 1_600_000_010_000, 1000)
    confluent.produce(topic, [Record(b"%d" % n, timestamp=at) for n, at in enumerate(stamps)])
    window = ("-o", f"s@{stamps[3]}", "-o", f"e@{stamps[6]}")
    printed = run("-C", "-b", bootstrap, "-t", topic, *window, "-e", "-q")
    assert printed == b"3\n4\n5\n"


def test_a_transaction(bootstrap: str, topic: str, name: Name, confluent: Confluent) -> None:
    transactional = ("-X", f"transactional.id={name('tx')}")
    run("-P", "-b", bootstrap, "-t", topic, *transactional, feed=b"one\ntwo\n")
    read = confluent.read(topic, 2, committed_only=True)
    assert [record.value for record in read] == [b"one", b"two"]
    assert confluent.watermarks(topic)[1] == 3


def test_an_old_client_still_compresses(bootstrap: str, topic: str, wire: Wire) -> None:
    """librdkafka before 2.11.1 looks for Produce v0 before it compresses (KAFKA-18659)."""
    run("-P", "-b", bootstrap, "-t", topic, "-z", "zstd", feed=b"a" * 10_000)
    data = fetch_bytes(wire, topic)
    assert batch_attributes(data) & 7 == 4
    assert len(data) < 1000
