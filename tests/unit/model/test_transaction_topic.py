"""Records of `__transaction_state`, against bytes that Apache Kafka 4.3 wrote."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import CorruptRecord
from penstock.model.ids import TopicPartition
from penstock.model.transaction_topic import (
    TransactionChanged,
    TransactionStatus,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)

T = TransactionStatus

# Taken from the segments of a Kafka 4.3.1 broker: a producer with a time-out of 300 ms writes to
# txp-86e8c1-0, runs out of time, and its transaction is aborted.
FROM_KAFKA = {
    "0001000000000000002900000000012c0000000001a1de777af4ffffffffffffffff0100080000000000000029": (
        TransactionChanged(41, 0, 300, T.EMPTY, (), 0x1A1DE777AF4, -1, 41)
    ),
    "0001000000000000002900000000012c01020b7478702d383665386331020000000000"
    "000001a1de777af7000001a1de777af7020008000000000000002902020002": TransactionChanged(
        41,
        0,
        300,
        T.ONGOING,
        (TopicPartition("txp-86e8c1", 0),),
        0x1A1DE777AF7,
        0x1A1DE777AF7,
        41,
        client_version=2,
    ),
    "0001000000000000002900010000012c0501000001a1de777d8a000001a1de777af702"
    "0008000000000000002902020002": TransactionChanged(
        41, 1, 300, T.COMPLETE_ABORT, (), 0x1A1DE777D8A, 0x1A1DE777AF7, 41, client_version=2
    ),
    "0001000000000000001500000000ea6003020b7478702d646565653030030000000100"
    "00000000000001a1de76db68000001a1de76db3f0100080000000000000015": TransactionChanged(
        21,
        0,
        60000,
        T.PREPARE_ABORT,
        (TopicPartition("txp-deee00", 1), TopicPartition("txp-deee00", 0)),
        0x1A1DE76DB68,
        0x1A1DE76DB3F,
        21,
    ),
}


@pytest.mark.parametrize(("data", "state"), FROM_KAFKA.items())
def test_values_are_byte_for_byte_those_of_kafka(data: str, state: TransactionChanged) -> None:
    assert decode_value(bytes.fromhex(data)) == state
    assert encode_value(state).hex() == data


def test_keys_are_byte_for_byte_those_of_kafka() -> None:
    assert encode_key("tmo2-86e8c1").hex() == "0000000b746d6f322d383665386331"
    assert decode_key(bytes.fromhex("0000000b746d6f322d383665386331")) == "tmo2-86e8c1"


def test_a_key_of_another_kind_is_left_alone() -> None:
    assert decode_key(b"\x00\x01\x00\x00") is None


def test_names_of_states_are_those_that_kafkas_tools_show() -> None:
    assert [status.label for status in T] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]


PARTITIONS = st.lists(
    st.builds(TopicPartition, st.sampled_from(["a", "b", "öl"]), st.integers(0, 99)), unique=True
)
PRODUCER_IDS = st.integers(-1, 2**63 - 1)


@given(
    state=st.builds(
        TransactionChanged,
        PRODUCER_IDS,
        st.integers(-1, 2**15 - 1),
        st.integers(0, 2**31 - 1),
        st.sampled_from([status for status in T if status is not T.EMPTY]),
        PARTITIONS.map(lambda found: tuple(sorted(found))),
        st.integers(-1, 2**62),
        st.integers(-1, 2**62),
        PRODUCER_IDS,
        PRODUCER_IDS,
        st.integers(0, 2),
        last_epoch=st.just(-1),
    )
)
def test_values_come_back_as_they_were(state: TransactionChanged) -> None:
    assert decode_value(encode_value(state)) == state
    old = state._replace(previous_producer_id=-1, next_producer_id=-1, client_version=0)
    assert decode_value(encode_value(old, version=0)) == old


def test_what_is_not_a_transaction_is_refused() -> None:
    good = encode_value(TransactionChanged(1, 0, 1, T.ONGOING, (TopicPartition("a", 0),)))
    for cut in range(len(good)):
        with pytest.raises(CorruptRecord):
            decode_value(good[:cut])
    with pytest.raises(CorruptRecord, match="version 7"):
        decode_value(b"\x00\x07" + good[2:])
    with pytest.raises(CorruptRecord, match="status"):
        decode_value(good[:16] + b"\x09" + good[17:])
