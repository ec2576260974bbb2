"""What every client may produce, and that another client reads exactly that."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from support.clients import Client, Record, Refused
from support.clients.confluent import Confluent

SOME = [Record(f"value {n}".encode(), f"key {n}".encode()) for n in range(100)]
TOO_LARGE = {"MSG_SIZE_TOO_LARGE", "MessageSizeTooLargeError", "RecordTooLargeException"}


def contents(records: list[Record]) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in records]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_batch_of_every_codec_is_kept_as_sent(
    client: Client, confluent: Confluent, topic: str, codec: str
) -> None:
    offsets = client.produce(topic, SOME, codec=codec)
    assert offsets == ([] if client.name == "kcat" else list(range(100)))
    read = confluent.read(topic, 100)
    assert contents(read) == contents(SOME)
    assert [record.offset for record in read] == list(range(100))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_client_reads_every_codec(
    client: Client, confluent: Confluent, topic: str, codec: str
) -> None:
    confluent.produce(topic, SOME, codec=codec)
    assert contents(client.read(topic, 100)) == contents(SOME)


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_records_arrive_with_every_level_of_acknowledgement(
    client: Client, confluent: Confluent, topic: str, acks: str
) -> None:
    client.produce(topic, SOME, acks=acks)
    assert contents(confluent.read(topic, 100)) == contents(SOME)


def test_an_idempotent_producer_writes_each_record_once_and_in_order(
    client: Client, confluent: Confluent, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(partitions=2)
    records = [record._replace(partition=n % 2) for n, record in enumerate(SOME)]
    client.produce(topic, sorted(records, key=lambda one: one.partition), idempotent=True)
    for partition in range(2):
        expected = [one for one in records if one.partition == partition]
        assert contents(confluent.read(topic, 50, partition=partition)) == contents(expected)
        assert confluent.watermarks(topic, partition=partition) == (0, 50)


def test_headers_survive_with_their_order_and_repeated_names(
    client: Client, confluent: Confluent, topic: str
) -> None:
    headers = (("a", b"1"), ("b", b"2"), ("a", b"3"))
    client.produce(topic, [Record(b"v", b"k", headers)])
    (read,) = confluent.read(topic, 1)
    assert read.headers == headers
    (read,) = client.read(topic, 1)
    assert read.headers == headers


def test_null_keys_and_null_values_stay_null(
    client: Client, confluent: Confluent, topic: str
) -> None:
    records = [Record(b"no key", None), Record(None, b"no value"), Record(b"both", b"both")]
    client.produce(topic, records)
    assert contents(confluent.read(topic, 3)) == contents(records)
    assert contents(client.read(topic, 3)) == contents(records)


def test_empty_keys_and_values_are_not_null(
    client: Client, confluent: Confluent, topic: str
) -> None:
    if client.name != "kcat":  # which can send null or empty in one run, not both
        client.produce(topic, [Record(b"", b"")])
    else:
        confluent.produce(topic, [Record(b"", b"")])
    (read,) = client.read(topic, 1)
    assert (read.key, read.value) == (b"", b"")


def test_a_message_of_almost_a_megabyte_goes_through(
    client: Client, confluent: Confluent, topic: str
) -> None:
    large = bytes(range(32, 127)) * 10_000  # 950,000 bytes under the default max.message.bytes
    client.produce(topic, [Record(large, b"k"), Record(b"after", b"k")])
    assert [record.value for record in client.read(topic, 2)] == [large, b"after"]


def test_a_batch_above_the_topics_limit_is_refused_and_nothing_is_written(
    client: Client, confluent: Confluent, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(max_message_bytes=10_000)
    with pytest.raises(Refused) as refused:
        client.produce(topic, [Record(b"x" * 20_000, b"k")])
    if client.name == "kcat":
        assert "Message size too large" in refused.value.args[0]
    else:
        assert refused.value.args[0] in TOO_LARGE
    assert confluent.watermarks(topic) == (0, 0)
    client.produce(topic, [Record(b"x" * 5_000, b"k")])
    assert confluent.watermarks(topic) == (0, 1)


def test_a_topic_may_allow_messages_far_above_the_default(
    client: Client, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(max_message_bytes=12_000_000)
    large = b"y" * 10_000_000
    client.produce(topic, [Record(large, b"k")])
    (read,) = client.read(topic, 1)
    assert read.value == large


def test_the_producers_timestamp_is_kept(
    client: Client, confluent: Confluent, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(retention_ms=-1)  # or the old ones would soon be deleted
    moments = [1_600_000_000_000, 1_500_000_000_000, 1_700_000_000_123]
    producer = confluent if client.name == "kcat" else client  # kcat cannot set one
    producer.produce(topic, [Record(b"v", b"k", timestamp=moment) for moment in moments])
    assert [record.timestamp for record in client.read(topic, 3)] == moments


def test_log_append_time_replaces_the_producers_timestamp(
    client: Client, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    client.produce(topic, [Record(b"v", b"k", timestamp=None if client.name == "kcat" else 1000)])
    (read,) = client.read(topic, 1)
    assert read.timestamp is not None
    assert before - 1000 <= read.timestamp <= int(time.time() * 1000) + 1000


def test_a_timestamp_too_far_in_the_future_is_refused(
    confluent: Confluent, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(message_timestamp_after_max_ms=60_000)
    late = int(time.time() * 1000) + 3_600_000
    with pytest.raises(Refused, match="INVALID_TIMESTAMP"):
        confluent.produce(topic, [Record(b"v", timestamp=late)])
    assert confluent.watermarks(topic) == (0, 0)


def test_a_timestamp_too_far_in_the_past_is_refused(
    confluent: Confluent, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(message_timestamp_before_max_ms=60_000)
    with pytest.raises(Refused, match="INVALID_TIMESTAMP"):
        confluent.produce(topic, [Record(b"v", timestamp=int(time.time() * 1000) - 3_600_000)])
    confluent.produce(topic, [Record(b"v", timestamp=int(time.time() * 1000))])
    assert confluent.watermarks(topic) == (0, 1)


def test_a_record_without_a_key_is_refused_by_a_compacted_topic(
    client: Client, confluent: Confluent, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(cleanup_policy="compact")
    with pytest.raises(Refused) as refused:
        client.produce(topic, [Record(b"no key", None)])
    expected = {
        "confluent": "INVALID_RECORD",
        "aiokafka": "UnknownError",  # it does not know the code
        "kafka_python": "InvalidRecordError",
        "kcat": "Broker failed to validate record",
        "java": "InvalidRecordException",
    }
    assert expected[client.name] in refused.value.args[0]
    client.produce(topic, [Record(b"v", b"k")])
    assert confluent.watermarks(topic) == (0, 1)


@pytest.mark.parametrize("compression", ["gzip", "uncompressed", "producer"])
def test_a_topics_own_compression_does_not_change_what_is_read(
    client: Client, make_topic: Callable[..., str], compression: str
) -> None:
    topic = make_topic(compression_type=compression)
    client.produce(topic, SOME, codec="lz4")
    assert contents(client.read(topic, 100)) == contents(SOME)


def test_a_topic_that_nobody_created_appears_with_four_partitions_when_written_to(
    client: Client, confluent: Confluent, name: Callable[[str], str]
) -> None:
    """Four is Penstock's default; the oracle is set to the same (Kafka itself ships one)."""
    topic = name("auto")
    client.produce(topic, [Record(b"first", b"k", partition=3)])
    (read,) = confluent.read(topic, 1, partition=3)
    assert read.value == b"first"


def test_a_partition_that_does_not_exist_is_refused(confluent: Confluent, topic: str) -> None:
    with pytest.raises(Refused, match="UNKNOWN_PARTITION"):
        confluent.produce(topic, [Record(b"v", partition=7)])
