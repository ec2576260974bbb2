"""What may be asked of a transaction, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from penstock.errors import BrokerError
from penstock.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from penstock.model.transaction_topic import TransactionChanged, TransactionForgotten

CLASSIC = 0
EPOCH_PER_TRANSACTION = 2  # Kafka's transaction.version 2 (KIP-890)


class InitProducer(NamedTuple):
    """A producer starts, or goes on after an error if it says who it was (KIP-360).

    `fresh_producer_id` is used if the machine asks for one (`needs_producer_id`).
    """

    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    fresh_producer_id: int = NO_PRODUCER_ID


class AddPartitions(NamedTuple):
    """Make partitions part of the transaction; the first ones begin it."""

    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    client_version: int = CLASSIC


class VerifyPartitions(NamedTuple):
    """Are these partitions part of the ongoing transaction?"""

    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


class EndTransaction(NamedTuple):
    """Commit or abort."""

    producer_id: int
    producer_epoch: int
    commit: bool
    client_version: int = CLASSIC
    fresh_producer_id: int = NO_PRODUCER_ID


class AbortIfOutOfTime(NamedTuple):
    """Abort the transaction if it has been open longer than its producer wanted."""

    fresh_producer_id: int = NO_PRODUCER_ID


class CompleteTransaction(NamedTuple):
    """Every partition has its marker."""


class ForgetIfIdle(NamedTuple):
    """Forget the transactional id if nothing has happened for this long."""

    expiration_ms: int


Command = (
    InitProducer
    | AddPartitions
    | VerifyPartitions
    | EndTransaction
    | AbortIfOutOfTime
    | CompleteTransaction
    | ForgetIfIdle
)
TransactionRecord = TransactionChanged | TransactionForgotten


class ProducerIdentity(NamedTuple):
    """Who the producer is from now on."""

    producer_id: int
    producer_epoch: int


class WriteMarkers(NamedTuple):
    """End the producer's transaction in each of these partitions, then `CompleteTransaction`."""

    producer_id: int
    producer_epoch: int
    commit: bool
    partitions: tuple[TopicPartition, ...]


Verification = Mapping[TopicPartition, BrokerError | None]
Reply = ProducerIdentity | Verification | BrokerError | None


class Verdict(NamedTuple):
    """Persist the records, apply them, perform the effects, then reply.

    A reply that is an error comes with records all the same: InitProducerId first has to abort
    what the producer's predecessor left open, and is to be asked again.
    """

    records: tuple[TransactionRecord, ...] = ()
    effects: tuple[WriteMarkers, ...] = ()
    reply: Reply = None
