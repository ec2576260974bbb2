"""Messages to batches and back, for the home in this process."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.client.decode import FetchedChunk
from penstock.client.encode import Producer, encode_batches
from penstock.client.outgoing import Row
from penstock.model.batch import read_header, stamp
from penstock.model.ids import TopicPartition
from penstock.model.producer import AbortedTransaction
from penstock.model.records import build_marker

PLACE = TopicPartition("t", 0)
NOW = 1_700_000_000_000

rows = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=20),
        st.none() | st.binary(max_size=300),
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=3),
        st.just(-1) | st.integers(0, 2 * NOW),
        st.just(-1),
    ),
    max_size=30,
)


def log_of(*batches: bytearray) -> tuple[bytes, int]:
    """Batches as they would lie one after the other, and the offset after them."""
    offset = 0
    for batch in batches:
        stamp(batch, 0, offset, 0)
        offset = read_header(batch).next_offset
    return b"".join(batches), offset


@given(rows, st.integers(200, 5_000))
def test_every_row_comes_back_in_order(rows: list[Row], max_bytes: int) -> None:
    batches = list(encode_batches(rows, NOW, max_bytes=max_bytes))
    assert sum(batch.record_count for batch in batches) == len(rows)
    for batch in batches:
        assert len(batch.data) <= max_bytes or batch.record_count == 1
    data, end = log_of(*[batch.data for batch in batches])
    messages = FetchedChunk(PLACE, data, end, ()).messages()
    assert [m.offset for m in messages] == list(range(len(rows)))
    for message, (key, value, headers, timestamp, _) in zip(messages, rows, strict=True):
        assert (message.key, message.value, list(message.raw_headers)) == (key, value, headers)
        assert message.timestamp_ms == (NOW if timestamp < 0 else timestamp)


def test_sequences_go_on_from_batch_to_batch() -> None:
    rows: list[Row] = [(None, b"x" * 100, (), -1, -1)] * 20
    producer = Producer(7, 1, True)
    batches = list(encode_batches(rows, NOW, max_bytes=500, producer=producer, sequence=5))
    assert len(batches) > 2
    sequence = 5
    for batch in batches:
        header = read_header(batch.data)
        assert (header.producer_id, header.producer_epoch) == (7, 1)
        assert header.is_transactional
        assert header.base_sequence == sequence
        sequence += batch.record_count


def transactional(producer_id: int, text: bytes) -> bytearray:
    [batch] = encode_batches(
        [(None, text, (), -1, -1)], NOW, producer=Producer(producer_id, 0, True), sequence=0
    )
    return batch.data


def marker(producer_id: int, *, commit: bool) -> bytearray:
    return build_marker(
        producer_id=producer_id,
        producer_epoch=0,
        commit=commit,
        coordinator_epoch=0,
        timestamp_ms=NOW,
    )


def test_aborted_transactions_and_markers_are_left_out() -> None:
    data, end = log_of(
        transactional(1, b"aborted"),  # 0
        transactional(2, b"committed"),  # 1
        marker(1, commit=False),  # 2
        transactional(1, b"committed later"),  # 3
        marker(2, commit=True),  # 4
        marker(1, commit=True),  # 5
        transactional(1, b"aborted again"),  # 6
        marker(1, commit=False),  # 7
    )
    aborted = [AbortedTransaction(1, 6, 7, 8), AbortedTransaction(1, 0, 2, 1)]
    messages = FetchedChunk(PLACE, data, end, aborted).messages()
    assert [m.text for m in messages] == ["committed", "committed later"]


def test_a_chunk_that_begins_with_the_marker_of_an_aborted_transaction() -> None:
    data, end = log_of(
        marker(1, commit=False),
        transactional(1, b"of the next transaction"),
        marker(1, commit=True),
    )
    aborted = [AbortedTransaction(1, 0, 0, 1)]
    messages = FetchedChunk(PLACE, data, end, aborted).messages()
    assert [m.text for m in messages] == ["of the next transaction"]
