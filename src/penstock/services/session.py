"""What one AMQP connection can do in its virtual host: every verb, with the user's permissions.

A session is also the owner of exclusive queues: they are its own, and go when it is closed. The
verbs check what the user may do, then leave the doing to the services.

    declare, delete                      configure
    publish                              write on the exchange
    consume, get, purge                  read
    bind                                 write on what is bound, read on the exchange
    a dead-letter or alternate exchange  write on it, read on what has it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.errors import AccessRefused, NotForStreams, NotFound, PreconditionFailed
from penstock.machines.exchange import DEFAULT_EXCHANGE
from penstock.model.binding import Destination
from penstock.model.queue_arguments import STREAM, is_integer, not_an_integer
from penstock.model.queue_names import DEFAULT_VHOST
from penstock.model.queue_record import Message
from penstock.services.fetching import Fetched, fetch
from penstock.services.publishing import Publication
from penstock.services.queue import Queue
from penstock.services.queue_checks import check_owner
from penstock.services.queues import QueueInfo, new_name
from penstock.services.replies import REPLY_PREFIX, REPLY_TO, ReplySubscription
from penstock.services.streams import StreamSubscription, subscribe_to_stream
from penstock.services.subscription import Delivery, Subscription
from penstock.services.users import OTHER_NAME, User
from penstock.services.vhost import VirtualHost

if TYPE_CHECKING:
    from penstock.services.messaging import Messaging

__all__ = ["Delivery", "Message", "Publication", "QueueInfo", "Session", "Subscription"]

Arguments = Mapping[str, object]
AnySubscription = Subscription | ReplySubscription | StreamSubscription
_NO_ARGUMENTS: Arguments = {}


class Session:
    """One connection in one virtual host. Made by `Messaging.open_session`."""

    def __init__(
        self, messaging: Messaging, user: User, vhost: VirtualHost, connection: str
    ) -> None:
        self.user = user
        self.vhost = vhost
        self.connection = connection
        self._messaging = messaging
        self._subscriptions: dict[AnySubscription, None] = {}
        self._own_queues: dict[str, None] = {}  # the exclusive ones
        self._allowed: dict[tuple[str, str], bool] = {}
        self._permissions_version = -1
        self._publishable: dict[str, None] = {}  # exchanges known to be open to this session
        self._publishable_version = -1

    def __repr__(self) -> str:
        return f"<Session {self.user.name!r} in {self.vhost.name!r} from {self.connection}>"

    async def close(self) -> None:
        """End the consumers of this session, and delete the queues that are its own."""
        for subscription in list(self._subscriptions):
            subscription.cancel()
        self._subscriptions.clear()
        queues = self._messaging.queues
        for name in list(self._own_queues):
            queue = self.vhost.queues.get(name)
            if queue is not None and queue.owner is self:
                await queues.delete(self.vhost, name, owner=self)
            self._own_queues.pop(name, None)

    # --- exchanges --------------------------------------------------------------------------------

    async def declare_exchange(
        self,
        name: str,
        kind: str = "direct",
        *,
        passive: bool = False,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Arguments = _NO_ARGUMENTS,
    ) -> None:
        if not passive:
            self._check("configure", "exchange", name)
            alternate = arguments.get("alternate-exchange")
            if isinstance(alternate, str):
                self._check("read", "exchange", name)
                self._check("write", "exchange", alternate)
        await self._messaging.routing.declare(
            self.vhost,
            name,
            kind,
            passive=passive,
            durable=durable,
            auto_delete=auto_delete,
            internal=internal,
            arguments=arguments,
        )

    async def delete_exchange(self, name: str, *, if_unused: bool = False) -> None:
        self._check("configure", "exchange", name)
        await self._messaging.routing.delete(self.vhost, name, if_unused=if_unused)

    async def bind_exchange(
        self,
        destination: str,
        source: str,
        routing_key: str,
        arguments: Arguments = _NO_ARGUMENTS,
    ) -> None:
        await self._bind(Destination(destination, is_exchange=True), source, routing_key, arguments)

    async def unbind_exchange(
        self,
        destination: str,
        source: str,
        routing_key: str,
        arguments: Arguments = _NO_ARGUMENTS,
    ) -> None:
        target = Destination(destination, is_exchange=True)
        await self._unbind(target, source, routing_key, arguments)

    async def bind_queue(
        self, queue: str, exchange: str, routing_key: str, arguments: Arguments = _NO_ARGUMENTS
    ) -> None:
        if queue in self.vhost.queues:
            check_owner(self.vhost.queues[queue], self)
        await self._bind(Destination(queue), exchange, routing_key, arguments)

    async def unbind_queue(
        self, queue: str, exchange: str, routing_key: str, arguments: Arguments = _NO_ARGUMENTS
    ) -> None:
        if queue in self.vhost.queues:
            check_owner(self.vhost.queues[queue], self)
        await self._unbind(Destination(queue), exchange, routing_key, arguments)

    async def _bind(
        self, target: Destination, source: str, routing_key: str, arguments: Arguments
    ) -> None:
        self._check_binding(target, source)
        routing = self._messaging.routing
        await routing.bind(self.vhost, source, target, routing_key, arguments)

    async def _unbind(
        self, target: Destination, source: str, routing_key: str, arguments: Arguments
    ) -> None:
        self._check_binding(target, source)
        routing = self._messaging.routing
        await routing.unbind(self.vhost, source, target, routing_key, arguments)

    def _check_binding(self, target: Destination, source: str) -> None:
        self._check("write", "exchange" if target.is_exchange else "queue", target.name)
        self._check("read", "exchange", source)

    # --- queues -----------------------------------------------------------------------------------

    async def declare_queue(
        self,
        name: str,
        *,
        passive: bool = False,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Arguments = _NO_ARGUMENTS,
    ) -> QueueInfo:
        if passive and name.startswith(REPLY_PREFIX):
            # A server asks whether the client it would answer is still there.
            if not self._messaging.replies.knows(name):
                raise NotFound(f"no queue '{name}' in vhost '{self.vhost.name}'")
            return QueueInfo(name, 0, 1)
        named_by_server = not passive and not name
        if named_by_server:
            name = new_name()
        if not passive:
            self._check("configure", "queue", name)
            dead_letters = arguments.get("x-dead-letter-exchange")
            if isinstance(dead_letters, str):
                self._check("read", "queue", name)
                self._check("write", "exchange", dead_letters)
        info = await self._messaging.queues.declare(
            self.vhost,
            name,
            passive=passive,
            durable=durable,
            exclusive=exclusive,
            auto_delete=auto_delete,
            arguments=arguments,
            owner=self,
            named_by_server=named_by_server,
        )
        if exclusive:
            self._own_queues[info.name] = None
        return info

    async def delete_queue(
        self, name: str, *, if_unused: bool = False, if_empty: bool = False
    ) -> int:
        self._check("configure", "queue", name)
        return await self._messaging.queues.delete(
            self.vhost, name, if_unused=if_unused, if_empty=if_empty, owner=self
        )

    async def purge_queue(self, name: str) -> int:
        self._check("read", "queue", name)
        return await self._messaging.queues.purge(self.vhost, name, self)

    # --- publishing -------------------------------------------------------------------------------

    def check_publish(self, exchange: str) -> None:
        """Raises why this session may not publish there. Cheap: called for each message."""
        version = self.vhost.exchanges.version + self._messaging.users.version
        if version != self._publishable_version:
            self._publishable.clear()
            self._publishable_version = version
        if exchange in self._publishable:
            return
        self._check("write", "exchange", exchange)
        if exchange != DEFAULT_EXCHANGE and self.vhost.exchange(exchange).internal:
            raise AccessRefused(
                f"cannot publish to internal exchange '{exchange}' in vhost '{self.vhost.name}'"
            )
        self._publishable[exchange] = None

    def publish(self, messages: Sequence[Message]) -> Publication:
        """Publish messages that `check_publish` let pass."""
        return self._messaging.publishing.publish(self.vhost, messages)

    # --- consuming --------------------------------------------------------------------------------

    async def subscribe(
        self,
        queue: str,
        *,
        tag: str,
        no_ack: bool = False,
        exclusive: bool = False,
        prefetch: int = 0,
        arguments: Arguments = _NO_ARGUMENTS,
    ) -> AnySubscription:
        """Begin to consume; the subscription ends with the session at the latest."""
        if queue == REPLY_TO:
            subscription: AnySubscription = self._messaging.replies.subscribe(tag)
            self._subscriptions[subscription] = None
            return subscription
        self._check("read", "queue", queue)
        found = self.vhost.queue(queue)
        check_owner(found, self)
        if found.rules.kind == STREAM:
            subscription = await subscribe_to_stream(
                found, tag, no_ack=no_ack, prefetch=prefetch, arguments=arguments
            )
        else:
            live = await found.wake()
            subscription = live.subscribe(
                tag,
                no_ack=no_ack,
                exclusive=exclusive,
                prefetch=prefetch,
                priority=_priority(arguments, found.where),
            )
        self._subscriptions[subscription] = None
        return subscription

    def ended(self, subscription: AnySubscription) -> None:
        """The door cancelled a subscription; nothing more need be done at the end."""
        self._subscriptions.pop(subscription, None)

    async def get(
        self, queue: str, *, no_ack: bool = False
    ) -> tuple[Delivery, int, Fetched] | None:
        """The next message of a queue, how many are left, and who is told what became of it."""
        self._check("read", "queue", queue)
        found = self.vhost.queue(queue)
        check_owner(found, self)
        if found.rules.kind == STREAM:
            raise NotForStreams(f"basic.get not supported by stream queues {found.where}")
        live = await found.wake()
        return await fetch(live, no_ack=no_ack)

    def readable(self, queue: str) -> Queue:
        """The queue, if this session may read it; for those who look inside without taking."""
        self._check("read", "queue", queue)
        found = self.vhost.queue(queue)
        check_owner(found, self)
        return found

    # --- permissions ------------------------------------------------------------------------------

    def _check(self, action: str, what: str, name: str) -> None:
        users = self._messaging.users
        if self._permissions_version != users.version:
            self._allowed.clear()
            self._permissions_version = users.version
        allowed = self._allowed.get((action, name))
        if allowed is None:
            allowed = users.may(self.user, self.vhost.name, action, name)
            if len(self._allowed) > 10_000:
                self._allowed.clear()
            self._allowed[action, name] = allowed
        if not allowed:
            raise AccessRefused(
                f"access to {what} '{name or OTHER_NAME}' in vhost '{self.vhost.name}' refused for "
                f"user '{self.user.name}'"
            )


class OwnersSession(Session):
    """The session of the process that the broker lives in: everything is its own."""

    @classmethod
    def of(cls, messaging: Messaging, vhost: str = DEFAULT_VHOST) -> OwnersSession:
        """One in a virtual host."""
        return cls(messaging, User("in-process"), messaging.vhost(vhost), "in-process")

    def _check(self, action: str, what: str, name: str) -> None:
        """Whoever has the process has the disk."""


def _priority(arguments: Arguments, where: str) -> int:
    priority = arguments.get("x-priority", 0)
    if not is_integer(priority):
        raise PreconditionFailed(
            f"invalid arg 'x-priority' for {where}: {not_an_integer(priority)}"
        )
    return priority
