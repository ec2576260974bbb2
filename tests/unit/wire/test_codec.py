"""Our writers against kio's own readers, for every API and version that there is."""

from __future__ import annotations

import io
import uuid
from datetime import timedelta

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from penstock.errors import MalformedRequest, UnsupportedVersion
from penstock.wire.kafka import codec, fetch, framing, produce

EVERY_VERSION = [
    (key, version)
    for key, name in api_key_map.items()
    for version, types in schema_name_map[name].items()
    if EntityType.response in types and EntityType.request in types
]


@pytest.mark.parametrize(("api_key", "version"), EVERY_VERSION)
def test_an_empty_payload_is_written_as_every_fields_default(api_key: int, version: int) -> None:
    written = bytes(codec.encode_response(api_key, version, {}))
    _, end = entity_reader(load_response_schema(api_key, version))(written, 0)
    assert end == len(written)


@pytest.mark.parametrize("version", range(14))
def test_a_metadata_response_reads_back_what_was_written(version: int) -> None:
    topic_id = uuid.uuid4()
    payload = {
        "throttle_time": 7,
        "brokers": [{"node_id": 1, "host": "h", "port": 9092, "rack": None}],
        "cluster_id": "c",
        "controller_id": 1,
        "topics": [
            {
                "error_code": 0,
                "name": "orders",
                "topic_id": topic_id,
                "is_internal": False,
                "partitions": [
                    {
                        "error_code": 0,
                        "partition_index": 3,
                        "leader_id": 1,
                        "leader_epoch": 5,
                        "replica_nodes": [1],
                        "isr_nodes": [1],
                    }
                ],
            }
        ],
    }
    written = bytes(codec.encode_response(3, version, payload))
    response, end = entity_reader(load_response_schema(3, version))(written, 0)
    assert end == len(written)
    assert response.topics[0].partitions[0].partition_index == 3
    assert response.topics[0].name == "orders"
    if version >= 3:
        assert response.throttle_time == timedelta(milliseconds=7)
    if version >= 10:
        assert response.topics[0].topic_id == topic_id


def test_tagged_fields_are_written_only_when_they_say_something() -> None:
    payload = {
        "api_keys": [{"api_key": 18, "min_version": 0, "max_version": 4}],
        "finalized_features_epoch": 3,
        "finalized_features": [
            {"name": "transaction.version", "max_version_level": 2, "min_version_level": 2}
        ],
    }
    written = bytes(codec.encode_response(18, 4, payload))
    response, _ = entity_reader(load_response_schema(18, 4))(written, 0)
    assert response.finalized_features_epoch == 3
    assert response.finalized_features[0].name == "transaction.version"
    assert response.supported_features == ()


def test_bytes_after_a_request_are_ignored() -> None:
    """librdkafka 2.16 asks for all topics with `count i32 = 0` in a version with compact arrays."""
    request = codec.decode_request(3, 13, memoryview(b"\0\0\0\0\1\0\0"))
    assert request.topics is None


def test_an_unknown_version_is_refused() -> None:
    with pytest.raises(UnsupportedVersion):
        codec.schema(3, 99)


def _kio_bytes(entity: object) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)  # type: ignore[type-var]
    return buffer.getvalue()


@pytest.mark.parametrize("version", range(3, 14))
def test_produce_requests_are_read_as_kio_writes_them(version: int) -> None:
    schema = load_request_schema(0, version)
    module = __import__(schema.__module__, fromlist=["x"])
    topic_id = uuid.uuid4()
    named = {"topic_id": topic_id} if version >= 13 else {"name": "orders"}
    request = schema(
        transactional_id="tx",
        acks=-1,
        timeout=timedelta(seconds=3),
        topic_data=(
            module.TopicProduceData(
                **named,
                partition_data=(
                    module.PartitionProduceData(index=2, records=b"abc"),
                    module.PartitionProduceData(index=3, records=None),
                ),
            ),
        ),
    )
    decoded = produce.decode(memoryview(_kio_bytes(request)), version)
    assert decoded.transactional_id == "tx"
    assert (decoded.acks, decoded.timeout_ms) == (-1, 3000)
    assert decoded.topics[0].topic == (topic_id if version >= 13 else "orders")
    first, second = decoded.topics[0].partitions
    assert (first.partition, bytes(first.records or b"")) == (2, b"abc")
    assert (second.partition, second.records) == (3, None)


@pytest.mark.parametrize("version", range(3, 14))
def test_produce_responses_are_written_as_kio_reads_them(version: int) -> None:
    topic = uuid.uuid4() if version >= 13 else "orders"
    results = [
        produce.PartitionResult(0, 0, 100, -1, 5),
        produce.PartitionResult(1, 87, record_errors=[(4, "no key")], error_message="refused"),
    ]
    written = bytes(produce.encode(version, [(topic, results)], 9))
    response, end = entity_reader(load_response_schema(0, version))(written, 0)
    assert end == len(written)
    first, second = response.responses[0].partition_responses
    assert (first.index, first.error_code, first.base_offset) == (0, 0, 100)
    assert second.error_code == 87
    if version >= 8:
        assert second.record_errors[0].batch_index == 4
        assert second.error_message == "refused"


@pytest.mark.parametrize("version", range(4, 19))
def test_fetch_responses_are_written_as_kio_reads_them(version: int) -> None:
    topic = uuid.uuid4() if version >= 13 else "orders"
    data = [
        fetch.PartitionData(0, 0, 10, 9, 1, aborted=[(7, 3)], records=b"x" * 10_000),
        fetch.PartitionData(1, 1),
    ]
    written = b"".join(fetch.encode(version, [(topic, data)], throttle_ms=2, session_id=4))
    response, end = entity_reader(load_response_schema(1, version))(written, 0)
    assert end == len(written)
    first, second = response.responses[0].partitions
    assert bytes(first.records) == b"x" * 10_000
    assert (first.high_watermark, first.last_stable_offset) == (10, 9)
    assert first.aborted_transactions[0].producer_id == 7
    assert second.error_code == 1


def test_frames_are_cut_wherever_the_reads_happen_to_end() -> None:
    payloads = [bytes([n]) * size for n, size in enumerate((1, 5, 70_000, 300_000, 3))]
    stream = b"".join(len(p).to_bytes(4, "big") + p for p in payloads)
    for step in (1, 7, 4096, 100_000, len(stream)):
        frames = framing.Frames(bytearray(framing.SCRATCH_BYTES), 1 << 20)
        found: list[bytes] = []
        position = 0
        while position < len(stream):
            space = frames.space()
            count = min(step, len(space), len(stream) - position)
            space[:count] = stream[position : position + count]
            found += [bytes(frame) for frame in frames.wrote(count)]
            position += count
        assert found == payloads


def test_a_claimed_length_allocates_nothing_until_bytes_arrive() -> None:
    frames = framing.Frames(bytearray(framing.SCRATCH_BYTES), 100 << 20)
    frames.space()[:5] = (100 << 20).to_bytes(4, "big") + b"x"
    assert frames.wrote(5) == []
    assert frames.buffered_bytes <= 64 * 1024


@pytest.mark.parametrize("size", [-1, 0, 2**31 - 1, (1 << 20) + 1])
def test_an_impossible_length_is_refused_before_anything_is_allocated(size: int) -> None:
    frames = framing.Frames(bytearray(framing.SCRATCH_BYTES), 1 << 20)
    frames.space()[:4] = size.to_bytes(4, "big", signed=True)
    with pytest.raises(MalformedRequest):
        frames.wrote(4)


def test_header_reads_back_its_client_id() -> None:
    raw = b"\0\x03\0\x0c\0\0\0\x09\0\x03abc\0rest"
    header = framing.read_header(memoryview(raw))
    assert header == (3, 12, 9, "abc", 13)
    assert framing.skip_tags(memoryview(raw), header.body_at) == 14
