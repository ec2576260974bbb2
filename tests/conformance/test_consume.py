"""Reading: from anywhere, by offset and by time, empty topics, limits and offsets out of range."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaException, TopicPartition

from support.clients import Client, Record
from support.clients.confluent import Confluent, consumer, take

START = 1_650_000_000_000


@pytest.fixture
def filled(confluent: Confluent, make_topic: Callable[..., str]) -> str:
    """A topic of 300 records, a second apart, in three batches, long ago and never deleted."""
    topic = make_topic(retention_ms=-1)
    for first in (0, 100, 200):
        records = [Record(b"%d" % n, timestamp=START + n * 1000) for n in range(first, first + 100)]
        confluent.produce(topic, records, codec="gzip")
    return topic


def test_reading_starts_at_any_offset_and_goes_on_in_order(client: Client, filled: str) -> None:
    for start in (0, 1, 99, 100, 150, 299):
        count = min(5, 300 - start)
        read = client.read(filled, count, start=start)
        assert [record.offset for record in read] == list(range(start, start + count))
        assert [record.value for record in read] == [b"%d" % n for n in range(start, start + count)]


def test_the_same_records_can_be_read_again_and_again(client: Client, filled: str) -> None:
    assert client.read(filled, 300) == client.read(filled, 300)


def test_the_first_record_at_or_after_a_moment_is_found(client: Client, filled: str) -> None:
    assert client.offset_at(filled, START) == 0
    assert client.offset_at(filled, START + 1) == 1
    assert client.offset_at(filled, START + 150_000) == 150
    assert client.offset_at(filled, START + 298_001) == 299
    assert client.offset_at(filled, START - 3_600_000) == 0


def test_there_is_no_record_after_the_last_moment(client: Client, filled: str) -> None:
    assert client.offset_at(filled, START + 299_001) is None


def test_replay_from_a_moment(client: Client, filled: str) -> None:
    offset = client.offset_at(filled, START + 120_500)
    assert offset is not None
    assert [record.value for record in client.read(filled, 2, start=offset)] == [b"121", b"122"]


def test_watermarks_are_the_first_offset_and_the_next(client: Client, filled: str) -> None:
    assert client.watermarks(filled) == (0, 300)


def test_an_empty_topic_has_equal_watermarks_and_no_moment(client: Client, topic: str) -> None:
    assert client.watermarks(topic) == (0, 0)
    assert client.offset_at(topic, 0) is None


def test_a_reader_at_the_end_gets_what_is_written_next(
    confluent: Confluent, bootstrap: str, filled: str
) -> None:
    source = consumer(bootstrap)
    source.assign([TopicPartition(filled, 0, OFFSET_END)])
    assert source.poll(0.5) is None
    confluent.produce(filled, [Record(b"new")])
    (message,) = take(source, 1)
    assert (message.offset(), message.value()) == (300, b"new")
    source.close()


def test_seeking_back_and_forth_while_reading(bootstrap: str, filled: str) -> None:
    source = consumer(bootstrap)
    source.assign([TopicPartition(filled, 0, OFFSET_BEGINNING)])
    assert take(source, 1)[0].offset() == 0
    for offset in (250, 10, 299, 0, 123):
        source.seek(TopicPartition(filled, 0, offset))
        assert take(source, 1)[0].offset() == offset
    source.close()


def test_the_end_of_a_partition_is_told(bootstrap: str, filled: str) -> None:
    source = consumer(bootstrap, enable_partition_eof=True)
    source.assign([TopicPartition(filled, 0, 290)])
    seen = [source.poll(5) for _ in range(11)]
    assert [message.offset() for message in seen] == list(range(290, 301))
    assert seen[-1].error().name() == "_PARTITION_EOF"
    source.close()


@pytest.mark.parametrize(("policy", "first"), [("earliest", 0), ("latest", 300)])
def test_an_offset_out_of_range_is_reset_as_the_reader_asked(
    confluent: Confluent, bootstrap: str, filled: str, policy: str, first: int
) -> None:
    source = consumer(bootstrap, auto_offset_reset=policy)
    source.assign([TopicPartition(filled, 0, 5000)])
    if policy == "latest":
        source.poll(1)
        confluent.produce(filled, [Record(b"new")])
    assert take(source, 1)[0].offset() == first
    source.close()


def test_an_offset_out_of_range_is_an_error_when_there_is_no_reset(
    bootstrap: str, filled: str
) -> None:
    source = consumer(bootstrap, auto_offset_reset="error")
    source.assign([TopicPartition(filled, 0, 5000)])
    with pytest.raises(KafkaException, match=r"_AUTO_OFFSET_RESET|Offset out of range"):
        take(source, 1)
    source.close()


def test_a_small_fetch_limit_still_moves_forward_past_large_batches(
    client: Client, confluent: Confluent, bootstrap: str, topic: str
) -> None:
    """At least one batch comes whatever the limit (KIP-74), or a reader would hang for ever."""
    confluent.produce(topic, [Record(b"z" * 500_000)])
    confluent.produce(topic, [Record(b"z" * 500_000)])
    source = consumer(
        bootstrap, fetch_message_max_bytes=1000, fetch_max_bytes=1000, message_max_bytes=1000
    )
    source.assign([TopicPartition(topic, 0, 0)])
    assert [len(message.value()) for message in take(source, 2)] == [500_000, 500_000]
    source.close()


def test_partitions_are_read_together_and_each_in_order(
    client: Client, confluent: Confluent, make_topic: Callable[..., str], name: Callable[[str], str]
) -> None:
    topic = make_topic(partitions=4)
    records = [Record(b"%d" % n, partition=n % 4) for n in range(400)]
    confluent.produce(topic, records)
    read = client.read_group(topic, name("group"), 400)
    assert len(read) == 400
    for partition in range(4):
        values = [int(one.value or b"") for one in read if one.partition == partition]
        assert values == list(range(partition, 400, 4))


def test_a_group_goes_on_where_it_committed_whatever_the_client(
    client: Client, confluent: Confluent, filled: str, name: Callable[[str], str]
) -> None:
    group = name("group")
    first = client.read_group(filled, group, 300)
    assert [record.offset for record in first] == list(range(300))
    confluent.produce(filled, [Record(b"300"), Record(b"301")])
    second = client.read_group(filled, group, 2)
    assert [record.offset for record in second] == [300, 301]
