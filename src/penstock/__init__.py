"""Penstock: a durable, partitioned log that speaks Kafka's wire protocol, in one `pip install`.

    import penstock
    with penstock.open("data") as mq: ...                # a broker in this process
    with penstock.connect("127.0.0.1:9092") as mq: ...   # the same calls over the network

Everything is loaded when it is first asked for: `import penstock` costs a few milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from penstock import aio, embedded, sql, testing
    from penstock.client.errors import (
        AlreadyExists,
        Closed,
        ConfigurationError,
        Conflict,
        DataDirectoryDamaged,
        DataDirectoryInUse,
        Denied,
        Fenced,
        InvalidArgument,
        MessageTooLarge,
        NotFound,
        NotSupported,
        OffsetLost,
        PenstockError,
        QueueFull,
        RequestFailed,
        TimedOut,
        TransactionAborted,
        Unavailable,
    )
    from penstock.client.exchange import Exchange
    from penstock.client.filter import Filter
    from penstock.client.message import Message, Receipt
    from penstock.client.opening import LocalClient, connect, open
    from penstock.client.partitioner import Partitioner, partition_of_key
    from penstock.client.queue import Consumption, Queue
    from penstock.client.queue_home import QueueStats, Redriven
    from penstock.client.queue_message import QueueMessage
    from penstock.client.subscription import Subscription
    from penstock.client.sync import Client
    from penstock.client.transaction import Transaction
    from penstock.client.views import (
        ClusterInfo,
        GroupInfo,
        MemberInfo,
        PartitionInfo,
        TopicInfo,
        TopicPartition,
    )
    from penstock.client.worker import Worker

__all__ = [
    "AlreadyExists",
    "Client",
    "Closed",
    "ClusterInfo",
    "ConfigurationError",
    "Conflict",
    "Consumption",
    "DataDirectoryDamaged",
    "DataDirectoryInUse",
    "Denied",
    "Exchange",
    "Fenced",
    "Filter",
    "GroupInfo",
    "InvalidArgument",
    "LocalClient",
    "MemberInfo",
    "Message",
    "MessageTooLarge",
    "NotFound",
    "NotSupported",
    "OffsetLost",
    "PartitionInfo",
    "Partitioner",
    "PenstockError",
    "Queue",
    "QueueFull",
    "QueueMessage",
    "QueueStats",
    "Receipt",
    "Redriven",
    "RequestFailed",
    "Subscription",
    "TimedOut",
    "TopicInfo",
    "TopicPartition",
    "Transaction",
    "TransactionAborted",
    "Unavailable",
    "Worker",
    "aio",
    "connect",
    "embedded",
    "open",
    "partition_of_key",
    "sql",
    "testing",
]

_HOMES = {
    "penstock.client.exchange": ("Exchange",),
    "penstock.client.filter": ("Filter",),
    "penstock.client.message": ("Message", "Receipt"),
    "penstock.client.partitioner": ("Partitioner", "partition_of_key"),
    "penstock.client.queue": ("Consumption", "Queue"),
    "penstock.client.queue_home": ("QueueStats", "Redriven"),
    "penstock.client.queue_message": ("QueueMessage",),
    "penstock.client.subscription": ("Subscription",),
    "penstock.client.opening": ("LocalClient", "connect", "open"),
    "penstock.client.sync": ("Client",),
    "penstock.client.transaction": ("Transaction",),
    "penstock.client.views": (
        "ClusterInfo",
        "GroupInfo",
        "MemberInfo",
        "PartitionInfo",
        "TopicInfo",
        "TopicPartition",
    ),
    "penstock.client.worker": ("Worker",),
}
_MODULES = ("aio", "embedded", "sql", "testing")
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Load what is asked for, once (PEP 562). The rest of `__all__` are errors."""
    if name not in __all__:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"penstock.{name}")
    module = import_module(_MODULE_OF.get(name, "penstock.client.errors"))
    found: object = getattr(module, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
