"""Transactional producers of four clients behind the same verbs.

kcat is not here: it can run one transaction per process, which test_kcat.py does.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Any, Protocol

from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import KafkaError as AioError
from confluent_kafka import KafkaException, TopicPartition

from support.clients import Refused, confluent, kafka_python
from support.clients.confluent import producer
from support.clients.java import Jvm

FENCED = {
    "_FENCED",
    "PRODUCER_FENCED",
    "INVALID_PRODUCER_EPOCH",
    "_PURGE_QUEUE",
    "ProducerFenced",
    "InvalidProducerEpoch",
    "ProducerFencedError",
    "InvalidProducerEpochError",
    "ProducerFencedException",
    "InvalidProducerEpochException",
}


class Fenced(Exception):
    """The broker said that a newer producer of this transactional id has taken over."""


class Transactions(Protocol):
    """A producer with a transactional id, initialised. Every verb waits until it is done."""

    def begin(self) -> None: ...
    def send(self, topic: str, *values: bytes, partition: int = 0) -> None: ...
    def send_offset(self, group: str, topic: str, offset: int, partition: int = 0) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


def _failed(name: str, error: Exception) -> Exception:
    return Fenced(name) if name in FENCED else Refused(name, str(error))


class ConfluentTransactions:
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self.bootstrap = bootstrap
        self.producer = producer(
            bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            error_cb=self._on_error,
        )
        self._call(self.producer.init_transactions, 15)

    def _on_error(self, error: Any) -> None:
        """A fatal error without a listener would be raised in the middle of a callback."""

    def _call(self, verb: Any, *words: Any) -> None:
        try:
            verb(*words)
        except KafkaException as error:
            raise _failed(error.args[0].name(), error) from error

    def begin(self) -> None:
        self._call(self.producer.begin_transaction)

    def send(self, topic: str, *values: bytes, partition: int = 0) -> None:
        """An error is raised here or, librdkafka being asynchronous, when the transaction ends."""
        for value in values:
            self._call(self.producer.produce, topic, value, None, partition)
        self._call(self.producer.flush, 15)

    def send_offset(self, group: str, topic: str, offset: int, partition: int = 0) -> None:
        member = confluent.consumer(self.bootstrap, group)
        place = TopicPartition(topic, partition, offset)
        metadata = member.consumer_group_metadata()
        self._call(self.producer.send_offsets_to_transaction, [place], metadata, 15)
        member.close()

    def commit(self) -> None:
        self._call(self.producer.commit_transaction, 15)

    def abort(self) -> None:
        self._call(self.producer.abort_transaction, 15)

    def close(self) -> None:
        """librdkafka has no close for producers."""


class AioTransactions:
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self.loop = asyncio.new_event_loop()

        async def start() -> AIOKafkaProducer:
            made = AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
            )
            try:
                await made.start()
            except AioError:
                await made.stop()
                raise
            return made

        try:
            self.producer = self._run(start())
        except BaseException:
            self.loop.close()
            raise

    def _run(self, work: Any) -> Any:
        try:
            return self.loop.run_until_complete(asyncio.wait_for(work, 15))
        except AioError as error:
            raise _failed(type(error).__name__, error) from error

    def begin(self) -> None:
        self._run(self.producer.begin_transaction())

    def send(self, topic: str, *values: bytes, partition: int = 0) -> None:
        async def work() -> None:
            futures = [await self.producer.send(topic, one, partition=partition) for one in values]
            await asyncio.gather(*futures)

        self._run(work())

    def send_offset(self, group: str, topic: str, offset: int, partition: int = 0) -> None:
        place = {AioPartition(topic, partition): offset}
        self._run(self.producer.send_offsets_to_transaction(place, group))

    def commit(self) -> None:
        self._run(self.producer.commit_transaction())

    def abort(self) -> None:
        self._run(self.producer.abort_transaction())

    def close(self) -> None:
        try:
            self._run(self.producer.stop())
        finally:
            left = asyncio.all_tasks(self.loop)
            for task in left:
                task.cancel()
            if left:
                self.loop.run_until_complete(asyncio.wait(left))
            self.loop.close()


class KafkaPythonTransactions:
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self.producer = kafka_python.KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
        )
        self._call(self.producer.init_transactions)

    def _call(self, verb: Any, *words: Any) -> Any:
        try:
            return verb(*words)
        except kafka_python.KafkaError as error:
            raise _failed(type(error).__name__, error) from error

    def begin(self) -> None:
        self._call(self.producer.begin_transaction)

    def send(self, topic: str, *values: bytes, partition: int = 0) -> None:
        def work() -> None:
            futures = [self.producer.send(topic, one, partition=partition) for one in values]
            for future in futures:
                future.get(timeout=15)

        self._call(work)

    def send_offset(self, group: str, topic: str, offset: int, partition: int = 0) -> None:
        place = kafka_python.TopicPartition(topic, partition)
        offsets = {place: kafka_python.OffsetAndMetadata(offset, "", -1)}
        self._call(self.producer.send_offsets_to_transaction, offsets, group)

    def commit(self) -> None:
        self._call(self.producer.commit_transaction)

    def abort(self) -> None:
        self._call(self.producer.abort_transaction)

    def close(self) -> None:
        self.producer.close(timeout=5)


class JavaTransactions:
    _numbers = itertools.count()

    def __init__(
        self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000, *, jvm: Jvm
    ) -> None:
        self.jvm = jvm
        self.handle = str(next(self._numbers))
        self._do("open", bootstrap, transactional_id, str(timeout_ms))

    def _do(self, verb: str, *words: str) -> None:
        try:
            self.jvm.do(f"Transactions.{verb}", self.handle, *words)
        except Refused as error:
            raise _failed(error.args[0], error) from error

    def begin(self) -> None:
        self._do("begin")

    def send(self, topic: str, *values: bytes, partition: int = 0) -> None:
        self._do("send", topic, str(partition), *(value.decode() for value in values))

    def send_offset(self, group: str, topic: str, offset: int, partition: int = 0) -> None:
        self._do("send_offset", group, topic, str(offset), str(partition))

    def commit(self) -> None:
        self._do("commit")

    def abort(self) -> None:
        self._do("abort")

    def close(self) -> None:
        self._do("close")
