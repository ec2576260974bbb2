"""The walk before kio: counts that lie, tags nobody knows, and requests that are fine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.index import api_key_map, schema_name_map

from penstock.errors import MalformedRequest
from penstock.wire.kafka import codec
from penstock.wire.kafka.guard import guarded, walk_of

METADATA = 3
FETCH = 1


def metadata(topics: bytes, tags: bytes = b"\0") -> memoryview:
    """A Metadata v12 request: topics, two flags, tags."""
    return memoryview(topics + b"\0\0" + tags)


def topic(name: bytes, tags: bytes = b"\0") -> bytes:
    return bytes(16) + bytes([len(name) + 1]) + name + tags


@pytest.mark.parametrize("count", [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\x7f", b"\x20"])
def test_an_array_that_claims_more_items_than_there_are_bytes_is_refused(count: bytes) -> None:
    with pytest.raises(MalformedRequest, match="an array of"):
        codec.decode_request(METADATA, 12, metadata(count))


def test_a_number_without_an_end_is_refused() -> None:
    with pytest.raises(MalformedRequest, match="five bytes"):
        codec.decode_request(METADATA, 12, memoryview(b"\xff" * 9))


def test_a_request_that_ends_too_soon_is_refused() -> None:
    whole = bytes(metadata(b"\2" + topic(b"orders")))
    for length in range(len(whole)):
        with pytest.raises(MalformedRequest):
            codec.decode_request(METADATA, 12, memoryview(whole[:length]))


def test_a_tag_nobody_knows_is_ignored_at_the_end_of_the_request() -> None:
    """KIP-482: so that a newer client can talk to an older broker."""
    body = metadata(b"\2" + topic(b"orders"), tags=b"\1\x63\3abc")
    request = codec.decode_request(METADATA, 12, body)
    assert [one.name for one in request.topics] == ["orders"]


def test_a_tag_nobody_knows_is_ignored_inside_an_array() -> None:
    body = metadata(b"\3" + topic(b"a", tags=b"\1\x63\1x") + topic(b"b", tags=b"\2\x63\0\x64\1y"))
    request = codec.decode_request(METADATA, 12, body)
    assert [one.name for one in request.topics] == ["a", "b"]


def test_known_tags_stay_when_others_are_cut() -> None:
    fixed = bytes(12) + bytes(1) + bytes(4) + b"\xff\xff\xff\xff"  # up to the session epoch
    known = b"\0\4\4abc"  # tag 0: the cluster id
    body = memoryview(fixed + b"\1\1\1" + b"\2" + known + b"\x63\1z")
    request = codec.decode_request(FETCH, 15, body)
    assert request.cluster_id == "abc"


def test_a_tag_that_is_longer_than_the_request_is_refused() -> None:
    with pytest.raises(MalformedRequest, match="tagged field"):
        codec.decode_request(METADATA, 12, metadata(b"\1", tags=b"\1\0\x7fabc"))


def test_a_usual_request_is_passed_on_as_it_is() -> None:
    body = metadata(b"\2" + topic(b"orders"))
    assert guarded(load_request_schema(METADATA, 12), body) is body


def flexible_requests() -> list[tuple[int, int]]:
    return [
        (key, version)
        for key, name in sorted(api_key_map.items())
        for version in sorted(schema_name_map[name])
        if load_request_schema(key, version).__flexible__
    ]


@pytest.mark.parametrize(("key", "version"), flexible_requests())
def test_the_walk_ends_where_the_request_ends(key: int, version: int) -> None:
    """Every flexible request that kio can write is walked to its last byte, and not further."""
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from support.wire import build, encode_request

    schema: Any = load_request_schema(key, version)
    frame = encode_request(api_key_map[key], version, {}, client_id=None)
    body = memoryview(frame)[4 + 8 + 2 + 1 :]
    assert build(schema, {}) is not None
    assert walk_of(schema)(body, 0, []) == len(body)
