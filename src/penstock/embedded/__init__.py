"""The classes of the textbooks, over the real broker.

Whoever has read how a message queue is built knows these names: a `Broker` with partitions, a
`Producer`, a `Consumer`, a `SimpleQueue`, a `MessageBroker` with groups, and so on. Here they can
be typed as they were read, and behind them is not a list with a lock but the log, the groups, the
queues and the transactions of Penstock. Give them a `path` and what they hold survives.

They are a thin layer: `.client` of each is the `penstock.Client` that does the work.
"""

from __future__ import annotations

from penstock.embedded.broker import Broker, Consumer, Partition, Producer
from penstock.embedded.dead_letters import DeadLetterQueueHandler, Handled
from penstock.embedded.message import Message
from penstock.embedded.message_broker import MessageBroker
from penstock.embedded.message_consumer import ConsumerConfig, ConsumerRecord, MessageConsumer
from penstock.embedded.message_producer import (
    HashPartitioner,
    MessageProducer,
    PartitionedProducer,
    ProducerConfig,
    RecordMetadata,
)
from penstock.embedded.simple_queue import SimpleQueue
from penstock.embedded.transactional_producer import TransactionalProducer, TransactionState

__all__ = [
    "Broker",
    "Consumer",
    "ConsumerConfig",
    "ConsumerRecord",
    "DeadLetterQueueHandler",
    "Handled",
    "HashPartitioner",
    "Message",
    "MessageBroker",
    "MessageConsumer",
    "MessageProducer",
    "Partition",
    "PartitionedProducer",
    "Producer",
    "ProducerConfig",
    "RecordMetadata",
    "SimpleQueue",
    "TransactionState",
    "TransactionalProducer",
]
