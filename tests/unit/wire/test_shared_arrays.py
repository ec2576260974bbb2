"""Arrays that are encoded once and written many times."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.wire.kafka.codec import Shared, encode_response

METADATA = 3


@pytest.mark.parametrize("version", range(14))
def test_a_shared_array_has_the_bytes_of_a_plain_one_in_every_version(version: int) -> None:
    rows = [{"partition_index": n, "leader_id": 1, "isr_nodes": (1,)} for n in range(200)]

    def answer(partitions: Any) -> bytes:
        topics = [{"name": name, "partitions": partitions} for name in ("a", "b")]
        return bytes(encode_response(METADATA, version, {"topics": topics}))

    shared = Shared(rows)
    assert answer(shared) == answer(rows)
    assert answer(shared) == answer(rows)


def test_an_empty_one_too() -> None:
    payload = {"topics": [{"name": "a", "partitions": Shared([])}]}
    plain = {"topics": [{"name": "a", "partitions": []}]}
    assert encode_response(METADATA, 12, payload) == encode_response(METADATA, 12, plain)
