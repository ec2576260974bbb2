"""A producer whose messages count together or not at all, for code with an event loop."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Mapping

from penstock.client.errors import Conflict
from penstock.client.transaction import Transaction
from penstock.embedded.message_consumer import MessageConsumer
from penstock.embedded.message_producer import RecordMetadata, metadata
from penstock.embedded.underneath import DEFAULT_SERVERS, Underneath, Where, client_of


class TransactionState(enum.Enum):
    """How far the latest transaction is."""

    NOT_STARTED = "not started"
    IN_PROGRESS = "in progress"
    COMMITTED = "committed"
    ABORTED = "aborted"


class TransactionalProducer(Underneath):
    """Publishes in transactions. Whoever begins with the same id fences the one before.

    >>> import asyncio, penstock
    >>> async def main():
    ...     with penstock.open(None) as mq:
    ...         producer = TransactionalProducer("billing-1", servers=mq)
    ...         await producer.begin_transaction()
    ...         await producer.send("invoices", b"paid")
    ...         await producer.commit_transaction()
    ...         return producer.transaction_state
    >>> asyncio.run(main())
    <TransactionState.COMMITTED: 'committed'>
    """

    def __init__(self, transaction_id: str, *, servers: Where = DEFAULT_SERVERS) -> None:
        client, owned = client_of(servers)
        super().__init__(client, owned=owned)
        self.transaction_id = transaction_id
        self.transaction_state = TransactionState.NOT_STARTED
        self._transaction: Transaction | None = None

    def __repr__(self) -> str:
        return f"<TransactionalProducer {self.transaction_id}, {self.transaction_state.value}>"

    def _open(self) -> Transaction:
        if self._transaction is None:
            raise Conflict("there is no transaction: call begin_transaction first")
        return self._transaction

    async def begin_transaction(self) -> None:
        """Begin one."""
        if self._transaction is not None:
            raise Conflict("there is a transaction already: commit or abort it first")
        begun = self.client.transaction(self.transaction_id)
        await asyncio.to_thread(begun.begin)
        self._transaction = begun
        self.transaction_state = TransactionState.IN_PROGRESS

    async def send(
        self,
        topic: str,
        value: bytes,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> RecordMetadata:
        """Send a message as part of it: nobody sees it before the commit."""
        receipt = await asyncio.to_thread(
            self._open().publish, topic, value, key=key, headers=headers
        )
        return metadata(receipt)

    async def send_offsets(self, consumer: MessageConsumer) -> None:
        """Make what a consumer has polled part of it, in place of the consumer's own commit.

        >>> import asyncio, penstock
        >>> async def main(mq):
        ...     producer = TransactionalProducer("convert-1", servers=mq)
        ...     with MessageConsumer("convert", mq) as consumer:
        ...         await consumer.subscribe(["cents"])
        ...         (record,) = await consumer.poll(timeout_ms=10_000)
        ...         await producer.begin_transaction()
        ...         await producer.send("euros", b"1.00")
        ...         await producer.send_offsets(consumer)
        ...         await producer.commit_transaction()
        >>> with penstock.open(None) as mq:
        ...     _ = mq.publish("cents", "100")
        ...     asyncio.run(main(mq))
        ...     sum(mq.admin.group("convert").offsets.values())
        1
        """
        await asyncio.to_thread(self._open().commit_offsets, consumer.joined())

    async def commit_transaction(self) -> None:
        """Make all of it count; returns when that is safe. If it fails, none of it counts."""
        transaction, self._transaction = self._open(), None
        self.transaction_state = TransactionState.ABORTED
        await asyncio.to_thread(transaction.commit)
        self.transaction_state = TransactionState.COMMITTED

    async def abort_transaction(self) -> None:
        """Make none of it count.

        >>> import asyncio, penstock
        >>> async def main(mq):
        ...     producer = TransactionalProducer("billing-1", servers=mq)
        ...     await producer.begin_transaction()
        ...     await producer.send("invoices", b"wrong")
        ...     await producer.abort_transaction()
        ...     return producer.transaction_state
        >>> with penstock.open(None) as mq:
        ...     asyncio.run(main(mq))
        <TransactionState.ABORTED: 'aborted'>
        """
        transaction, self._transaction = self._open(), None
        self.transaction_state = TransactionState.ABORTED
        await asyncio.to_thread(transaction.abort)
