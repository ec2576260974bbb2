"""The small print of transactions, by raw requests: versions, fencing, errors, what readers get."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.batches import batch, records
from support.fetching import fetch
from support.waiting import eventually
from support.wire import Wire, create_topic

Name = Callable[[str], str]


class Transaction:
    """A transactional producer that does exactly what it is told."""

    def __init__(self, wire: Wire, transactional_id: str, *, version: int = 4) -> None:
        self.wire = wire
        self.id = transactional_id
        self.sequence: dict[str, int] = {}
        self.initialise(version)

    def initialise(self, version: int = 4, *, timeout: int = 60_000) -> Any:
        values = {"transactional_id": self.id, "transaction_timeout": timeout}

        def answered() -> Any:
            answer = self.wire.call("init_producer_id", version, values)
            return None if answer.error_code.name == "concurrent_transactions" else answer

        answer = eventually(answered)
        assert answer.error_code.value == 0, answer
        self.producer, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequence = {}
        return answer

    def _who(self) -> dict[str, Any]:
        return {
            "transactional_id": self.id,
            "producer_id": self.producer,
            "producer_epoch": self.epoch,
        }

    def add(self, *topics: str, version: int = 3) -> list[str]:
        """AddPartitionsToTxn of partition 0 of each topic; the errors."""
        wanted = [{"name": topic, "partitions": [0]} for topic in topics]
        old = {f"v3_and_below_{name}": value for name, value in self._who().items()}
        values = {**self._who(), **old, "topics": wanted, "v3_and_below_topics": wanted}

        def answered() -> list[str] | None:
            answer = self.wire.call("add_partitions_to_txn", version, values)
            results = [
                one.partition_error_code.name
                for each in answer.results_by_topic_v3_and_below
                for one in each.results_by_partition
            ]
            return None if "concurrent_transactions" in results else results

        found = eventually(answered)
        assert found is not None
        return found

    def produce(self, topic: str, *values: bytes, version: int = 9) -> str:
        first = self.sequence.get(topic, 0)
        data = batch(
            list(values), producer=(self.producer, self.epoch), sequence=first, transactional=True
        )
        request = {
            "transactional_id": self.id,
            "acks": -1,
            "timeout": 10_000,
            "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": data}]}],
        }
        answer = self.wire.call("produce", version, request)
        error = answer.responses[0].partition_responses[0].error_code.name
        if error == "none":
            self.sequence[topic] = first + len(values)
        return str(error)

    def end(self, *, commit: bool, version: int = 3) -> str:
        values = {**self._who(), "committed": commit}

        def answered() -> Any:
            answer = self.wire.call("end_txn", version, values)
            return None if answer.error_code.name == "concurrent_transactions" else answer

        answer = eventually(answered)
        if version >= 5 and answer.error_code.value == 0:
            self.producer, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequence = {}
        return str(answer.error_code.name)


@pytest.fixture
def topic(wire: Wire, name: Name) -> str:
    made = name("tx")
    create_topic(wire, made)
    return made


@pytest.fixture
def transaction(wire: Wire, name: Name) -> Transaction:
    return Transaction(wire, name("id"))


def committed(wire: Wire, topic: str) -> list[bytes]:
    """What a reader of committed records keeps, by the list of aborted transactions."""
    partition = fetch(wire, topic, isolation=1, max_wait=0)
    aborted = {one.producer_id for one in partition.aborted_transactions or ()}
    assert not aborted, "use aborted() for topics with aborts"
    return [one.value for one in records(bytes(partition.records or b""))]


def stable_offset(wire: Wire, topic: str, *, version: int = 7, timestamp: int = -1) -> int:
    asked = {"partition_index": 0, "timestamp": timestamp}
    values = {
        "replica_id": -1,
        "isolation_level": 1,
        "topics": [{"name": topic, "partitions": [asked]}],
    }
    return int(wire.call("list_offsets", version, values).topics[0].partitions[0].offset)


@pytest.mark.parametrize("version", range(4))
def test_the_classic_flow_works_in_every_version(
    wire: Wire, topic: str, name: Name, version: int
) -> None:
    one = Transaction(wire, name("id"), version=version)
    assert one.add(topic, version=version) == ["none"]
    assert one.produce(topic, b"a", b"b") == "none"
    assert one.end(commit=True, version=version) == "none"
    eventually(lambda: stable_offset(wire, topic) == 3)
    assert committed(wire, topic) == [b"a", b"b"]


def test_the_second_flow_needs_no_word_before_producing(
    wire: Wire, topic: str, transaction: Transaction
) -> None:
    """Transactions V2 (KIP-890): Produce v12 adds the partition, EndTxn v5 bumps the epoch."""
    for number in range(3):
        before = transaction.epoch
        assert transaction.produce(topic, b"%d" % number, version=12) == "none"
        assert transaction.end(commit=True, version=5) == "none"
        assert transaction.epoch == before + 1
    eventually(lambda: stable_offset(wire, topic) == 6)
    assert committed(wire, topic) == [b"0", b"1", b"2"]


def test_a_late_batch_of_the_last_transaction_does_not_join_the_next(
    wire: Wire, topic: str, transaction: Transaction
) -> None:
    """The anomaly that KIP-890 ends: a delayed write after the markers, with the old epoch."""
    assert transaction.produce(topic, b"in time", version=12) == "none"
    late = Transaction.__new__(Transaction)
    late.__dict__.update(transaction.__dict__, sequence=dict(transaction.sequence))
    assert transaction.end(commit=True, version=5) == "none"
    eventually(lambda: stable_offset(wire, topic) == 2)
    assert late.produce(topic, b"late", version=12) in {"invalid_producer_epoch", "producer_fenced"}
    assert stable_offset(wire, topic) == 2


def test_producing_to_a_partition_that_was_not_added_is_refused(
    wire: Wire, topic: str, transaction: Transaction
) -> None:
    assert transaction.produce(topic, b"v", version=9) == "invalid_txn_state"
    assert transaction.add(topic) == ["none"]
    assert transaction.produce(topic, b"v", version=9) == "none"


def test_the_epoch_grows_with_every_initialisation(transaction: Transaction) -> None:
    first = transaction.producer, transaction.epoch
    transaction.initialise()
    assert (transaction.producer, transaction.epoch) == (first[0], first[1] + 1)


def fenced(transaction: Transaction) -> None:
    """Let somebody else take over the id, unknown to this one."""
    other = Transaction.__new__(Transaction)
    other.__dict__.update(transaction.__dict__)
    other.initialise()


@pytest.mark.parametrize(
    ("version", "expected"),
    [(0, "invalid_producer_epoch"), (1, "invalid_producer_epoch"), (2, "producer_fenced")],
)
def test_a_fenced_producer_hears_so_in_words_its_version_knows(
    wire: Wire, topic: str, transaction: Transaction, version: int, expected: str
) -> None:
    fenced(transaction)
    assert transaction.add(topic, version=version) == [expected]
    assert transaction.end(commit=True, version=version) == expected


def test_a_fenced_producer_cannot_write(wire: Wire, topic: str, transaction: Transaction) -> None:
    assert transaction.add(topic) == ["none"]
    assert transaction.produce(topic, b"v") == "none"
    fenced(transaction)
    eventually(lambda: stable_offset(wire, topic) == 2)
    assert transaction.produce(topic, b"w") in {"invalid_producer_epoch", "producer_fenced"}


def test_ending_what_never_began_is_refused(transaction: Transaction) -> None:
    assert transaction.end(commit=True) == "invalid_txn_state"
    assert transaction.end(commit=False) == "invalid_txn_state"


def test_ending_twice_the_same_way_is_a_repeat_and_the_other_way_an_error(
    wire: Wire, topic: str, transaction: Transaction
) -> None:
    transaction.add(topic)
    transaction.produce(topic, b"v")
    assert transaction.end(commit=True) == "none"
    assert transaction.end(commit=True) == "none"
    assert transaction.end(commit=False) == "invalid_txn_state"


def test_an_unknown_partition_spoils_the_whole_request(
    topic: str, transaction: Transaction, name: Name
) -> None:
    results = transaction.add(topic, name("missing"))
    assert sorted(results) == ["operation_not_attempted", "unknown_topic_or_partition"]


def test_another_producers_id_is_refused(topic: str, transaction: Transaction) -> None:
    transaction.producer += 1_000_000
    assert transaction.add(topic) == ["invalid_producer_id_mapping"]
    assert transaction.end(commit=True) == "invalid_producer_id_mapping"


def test_an_empty_transactional_id_is_refused(wire: Wire) -> None:
    values = {"transactional_id": "", "transaction_timeout": 1000}
    assert wire.call("init_producer_id", 4, values).error_code.name == "invalid_request"


def test_a_time_out_must_be_possible(wire: Wire, name: Name) -> None:
    for timeout in (0, 100_000_000):
        values = {"transactional_id": name("id"), "transaction_timeout": timeout}
        answer = wire.call("init_producer_id", 4, values)
        assert answer.error_code.name == "invalid_transaction_timeout"


def test_aborted_transactions_are_told_to_readers_of_committed_records(
    wire: Wire, topic: str, transaction: Transaction
) -> None:
    for commit, value in [(False, b"no"), (True, b"yes"), (False, b"never")]:
        transaction.add(topic)
        transaction.produce(topic, value)
        transaction.end(commit=commit)
    eventually(lambda: stable_offset(wire, topic) == 6)
    partition = fetch(wire, topic, isolation=1)
    aborted = [(one.producer_id, one.first_offset) for one in partition.aborted_transactions]
    assert aborted == [(transaction.producer, 0), (transaction.producer, 4)]
    assert partition.last_stable_offset == 6
    plain = fetch(wire, topic, isolation=0)
    assert not plain.aborted_transactions
    later = fetch(wire, topic, 2, isolation=1)
    assert [one.first_offset for one in later.aborted_transactions] == [4]


def test_the_last_stable_offset_stops_at_the_oldest_open_transaction(
    wire: Wire, topic: str, name: Name
) -> None:
    one, two = Transaction(wire, name("one")), Transaction(wire, name("two"))
    for each in (one, two):
        each.add(topic)
        each.produce(topic, b"v")
    assert stable_offset(wire, topic) == 0
    two.end(commit=True)
    assert stable_offset(wire, topic) == 0
    partition = fetch(wire, topic, isolation=1, max_wait=0)
    assert not partition.records
    assert (partition.high_watermark, partition.last_stable_offset) == (3, 0)
    one.end(commit=True)
    eventually(lambda: stable_offset(wire, topic) == 4)


def offset_fetch(wire: Wire, group: str, topic: str, *, require_stable: bool) -> tuple[str, int]:
    asked = [{"name": topic, "partition_indexes": [0]}]
    groups = [{"group_id": group, "member_id": None, "member_epoch": -1, "topics": asked}]
    answer = wire.call("offset_fetch", 8, {"groups": groups, "require_stable": require_stable})
    one = answer.groups[0].topics[0].partitions[0]
    return one.error_code.name, one.committed_offset


@pytest.mark.parametrize("version", [0, 3, 5])
def test_offsets_of_an_open_transaction_are_pending(
    wire: Wire, topic: str, transaction: Transaction, name: Name, version: int
) -> None:
    group = name("group")
    who = {
        "transactional_id": transaction.id,
        "producer_id": transaction.producer,
        "producer_epoch": transaction.epoch,
        "group_id": group,
    }
    if version < 5:
        added = wire.call("add_offsets_to_txn", 3, who)
        assert added.error_code.value == 0
    partition = {"partition_index": 0, "committed_offset": 9, "committed_metadata": ""}
    topics = [{"name": topic, "partitions": [partition]}]
    fields = {**who, "generation_id": -1, "member_id": "", "topics": topics}
    answer = wire.call("txn_offset_commit", version, fields)
    assert answer.topics[0].partitions[0].error_code.name == "none"
    pending = offset_fetch(wire, group, topic, require_stable=True)
    assert pending[0] == "unstable_offset_commit"
    assert offset_fetch(wire, group, topic, require_stable=False) == ("none", -1)
    assert transaction.end(commit=True) == "none"
    eventually(lambda: offset_fetch(wire, group, topic, require_stable=True) == ("none", 9))


def test_offsets_from_a_stale_generation_are_refused_in_a_transaction(
    wire: Wire, topic: str, transaction: Transaction, name: Name
) -> None:
    group = name("group")
    who = {
        "transactional_id": transaction.id,
        "producer_id": transaction.producer,
        "producer_epoch": transaction.epoch,
        "group_id": group,
    }
    assert wire.call("add_offsets_to_txn", 3, who).error_code.value == 0
    partition = {"partition_index": 0, "committed_offset": 9, "committed_metadata": ""}
    topics = [{"name": topic, "partitions": [partition]}]
    fields = {**who, "generation_id": 7, "member_id": "nobody", "topics": topics}
    answer = wire.call("txn_offset_commit", 3, fields)
    error = answer.topics[0].partitions[0].error_code.name
    assert error in {"unknown_member_id", "illegal_generation"}


@pytest.mark.parametrize(("group", "partition"), [("part1", 28), ("part10", 30), ("part11", 29)])
def test_a_group_lives_in_the_partition_where_tools_look_for_it(
    wire: Wire, transaction: Transaction, group: str, partition: int
) -> None:
    """The hashes of the last two names are negative, where two ways of counting part."""
    who = {
        "transactional_id": transaction.id,
        "producer_id": transaction.producer,
        "producer_epoch": transaction.epoch,
    }
    assert wire.call("add_offsets_to_txn", 3, {**who, "group_id": group}).error_code.value == 0
    asked = {"transactional_ids": [transaction.id]}
    (state,) = wire.call("describe_transactions", 0, asked).transaction_states
    assert [(each.topic, each.partitions) for each in state.topics] == [
        ("__consumer_offsets", (partition,))
    ]
    assert transaction.end(commit=False) == "none"


def test_the_newest_timestamp_of_an_open_transaction_is_not_shown_to_readers_of_committed_records(
    wire: Wire, topic: str, transaction: Transaction
) -> None:
    newest = -3
    transaction.add(topic)
    assert transaction.produce(topic, b"a") == "none"
    assert stable_offset(wire, topic, timestamp=newest) == -1
    assert transaction.end(commit=True) == "none"
    eventually(lambda: stable_offset(wire, topic, timestamp=newest) >= 0)
