"""Transactions over the network: one of librdkafka's producers for each transactional id."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.client.errors import (
    Denied,
    Fenced,
    InvalidArgument,
    PenstockError,
    TransactionAborted,
    Unavailable,
)
from penstock.client.home import GroupProgress
from penstock.client.message import Receipt
from penstock.client.outgoing import Outgoing
from penstock.client.remote_errors import of_kafka_error
from penstock.client.remote_settings import RemoteSettings
from penstock.client.remote_stream import RemoteStream

if TYPE_CHECKING:
    from confluent_kafka import Producer

_LAST_WORDS_SECONDS = 0.2
_GIVEN_UP = ("_PURGE_QUEUE", "_PURGE_INFLIGHT")  # messages of a producer that was fenced
_FINAL = (Fenced, Denied, InvalidArgument)  # what a producer does not recover from

Choose = Callable[[str, int, "bytes | None"], int]


class RemoteTransactions:
    """The transactional ids of this home, each with a producer that is kept for the next time."""

    def __init__(self, settings: RemoteSettings, choose: Choose) -> None:
        self._settings = settings
        self._choose = choose
        self._idle: dict[str, Producer] = {}
        self._lock = threading.Lock()

    def begin(self, transactional_id: str, timeout: float) -> RemoteTransaction:
        if not isinstance(transactional_id, str) or not transactional_id:
            raise InvalidArgument("a transaction needs an id, a text: who has it takes over")
        with self._lock:
            producer = self._idle.pop(transactional_id, None)
        if producer is None:
            producer = self._new(transactional_id, timeout)
        try:
            _call(producer.begin_transaction)
        except Fenced:  # somebody has taken over since the last time; now we take over from them
            producer = self._new(transactional_id, timeout)
            _call(producer.begin_transaction)
        return RemoteTransaction(self, transactional_id, producer)

    def _new(self, transactional_id: str, timeout: float) -> Producer:
        from confluent_kafka import KafkaException, Producer

        timeout_ms = max(1, round(timeout * 1000))
        config = self._settings.producer()
        config |= {
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "message.timeout.ms": min(config["message.timeout.ms"], timeout_ms),
        }
        try:
            producer = Producer(config)
        except KafkaException as failure:
            raise of_kafka_error(failure.args[0], "beginning a transaction") from failure
        _call(producer.init_transactions, self._settings.timeout)
        return producer

    def choose(self, outgoing: Outgoing) -> int:
        return self._choose(outgoing.topic, outgoing.partition, outgoing.key)

    def give_back(self, transactional_id: str, producer: Producer) -> None:
        with self._lock:
            self._idle.setdefault(transactional_id, producer)

    @property
    def timeout(self) -> float:
        return self._settings.timeout

    def close(self) -> None:
        with self._lock:
            self._idle.clear()


class RemoteTransaction:
    """One transaction that has begun."""

    def __init__(
        self, transactions: RemoteTransactions, transactional_id: str, producer: Producer
    ) -> None:
        self._transactions = transactions
        self._id = transactional_id
        self._producer = producer
        self._is_over = False

    def __repr__(self) -> str:
        return f"<RemoteTransaction {self._id}>"

    async def write(self, outgoings: Sequence[Outgoing]) -> None:
        self._check()
        waiting = set(outgoings)
        for outgoing in outgoings:
            try:
                self._produce(outgoing, partial(_report, waiting, outgoing))
            except PenstockError as refusal:
                waiting.discard(outgoing)
                outgoing.settle(None, refusal)
        failure: PenstockError = Unavailable("publishing: no answer in time")
        deadline = time.monotonic() + self._transactions.timeout
        while waiting and time.monotonic() < deadline:
            try:
                _call(self._producer.poll, 0.05)
            except _FINAL as final:  # the reports of what was under way may still come, or not
                failure = final
                deadline = min(deadline, time.monotonic() + _LAST_WORDS_SECONDS)
        for outgoing in list(waiting):
            waiting.discard(outgoing)
            outgoing.settle(None, failure)

    def _produce(self, outgoing: Outgoing, report: Callable[[Any, Any], None]) -> None:
        partition = self._transactions.choose(outgoing)
        while True:
            try:
                return _call(
                    self._producer.produce,
                    outgoing.topic,
                    outgoing.value,
                    outgoing.key,
                    partition,
                    report,
                    timestamp=max(outgoing.timestamp_ms, 0),
                    headers=list(outgoing.headers) or None,
                )
            except BufferError:
                self._producer.poll(0.01)

    async def commit_offsets(self, progress: GroupProgress) -> None:
        self._check()
        from confluent_kafka import TopicPartition as KafkaPartition

        stream = progress.stream
        if not isinstance(stream, RemoteStream):
            raise InvalidArgument("offsets are committed by the home they were read from")
        offsets = [KafkaPartition(*place, offset) for place, offset in progress.offsets.items()]
        _call(
            self._producer.send_offsets_to_transaction,
            offsets,
            stream.group_metadata(),
            self._transactions.timeout,
        )

    async def end(self, *, commit: bool) -> None:
        self._check()
        end = self._producer.commit_transaction if commit else self._producer.abort_transaction
        try:
            _call(end, self._transactions.timeout)
        except _FINAL:
            self._is_over = True
            raise
        self._is_over = True
        self._transactions.give_back(self._id, self._producer)

    def _check(self) -> None:
        if self._is_over:
            raise TransactionAborted("the transaction has ended already")


def _report(waiting: set[Outgoing], outgoing: Outgoing, error: Any, message: Any) -> None:
    if outgoing not in waiting:
        return
    waiting.discard(outgoing)
    if error is not None:
        failure = of_kafka_error(error, f"publishing to {outgoing.topic}")
        if error.name() in _GIVEN_UP:
            failure = TransactionAborted("the transaction was given up: somebody took over its id")
        outgoing.settle(None, failure)
        return
    outgoing.settle(
        Receipt(
            outgoing.topic,
            message.partition(),
            message.offset(),
            message.timestamp()[1],
            outgoing.message_id,
        ),
        None,
    )


def _call(verb: Callable[..., Any], *arguments: Any, **more: Any) -> None:
    """Call the producer; what may be tried again is, for a while."""
    from confluent_kafka import KafkaException

    for attempt in range(100):
        try:
            verb(*arguments, **more)
            return
        except KafkaException as failure:
            error = failure.args[0]
            if error.txn_requires_abort():
                raise TransactionAborted(
                    f"{error.str()}: the transaction must be aborted"
                ) from failure
            if error.fatal():
                ours = of_kafka_error(error)
                raise (ours if isinstance(ours, _FINAL) else Fenced(str(error.str()))) from failure
            if not error.retriable() or attempt == 99:
                raise of_kafka_error(error) from failure
        time.sleep(0.05)
