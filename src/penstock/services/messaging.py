"""The world of AMQP in one object: virtual hosts with exchanges and queues, users, policies.

The composition root makes one; the AMQP door opens a `Session` in it for each connection, and the
command line and the HTTP API look at it and change it through the same services.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from penstock.catalogue.messaging import (
    BindingRow,
    ExchangeRow,
    MessagingCatalogue,
    MessagingContents,
    Row,
    VhostRow,
)
from penstock.errors import BrokerError, NotAllowed, NotFound, PreconditionFailed
from penstock.log.flusher import Flusher
from penstock.log.store import LogStore
from penstock.machines.exchange import Exchange
from penstock.model.queue_names import DEFAULT_VHOST
from penstock.runtime.clock import Clock
from penstock.services.deduplication import Deduplication
from penstock.services.delays import Delays
from penstock.services.partitions import Partitions
from penstock.services.policies import EXCHANGES, Policies
from penstock.services.publishing import Publishing
from penstock.services.queues import Queues
from penstock.services.replies import Replies
from penstock.services.routing import Routing
from penstock.services.session import Session
from penstock.services.topics import Topics
from penstock.services.users import User, Users
from penstock.services.vhost import VirtualHost

_log = logging.getLogger("penstock")


class Alarm:
    """Whether publishers must wait, and why."""

    __slots__ = ("blocked", "listeners")

    def __init__(self) -> None:
        self.blocked: str | None = None
        self.listeners: list[Callable[[str | None], None]] = []

    def set(self, reason: str | None) -> None:
        """Publishers must wait for that reason; None: they need not."""
        if reason != self.blocked:
            self.blocked = reason
            for listener in list(self.listeners):
                listener(reason)


class Messaging:
    """Every virtual host of a broker, and who may use it."""

    def __init__(
        self,
        catalogue: MessagingCatalogue,
        topics: Topics,
        partitions: Partitions,
        store: LogStore,
        flusher: Flusher,
        clock: Clock,
    ) -> None:
        self.alarm = Alarm()
        self.users = Users(catalogue)
        self.policies = Policies(catalogue)
        self.routing = Routing(catalogue)
        self.replies = Replies()
        self._vhosts: dict[str, VirtualHost] = {}
        self.queues = Queues(
            catalogue,
            self.routing,
            self.policies,
            topics,
            partitions,
            store,
            flusher,
            clock,
            self._vhosts,
        )
        self.delays = Delays(self.queues, self._vhosts.get)
        self.deduplication = Deduplication(clock, partitions)
        self.publishing = Publishing(clock, self.deduplication, self.delays, self.replies)
        self._catalogue = catalogue
        self._clock = clock
        self.policies.on_changed.append(self._policies_changed)

    def __repr__(self) -> str:
        return f"<Messaging {len(self._vhosts)} virtual hosts>"

    @property
    def vhosts(self) -> Mapping[str, VirtualHost]:
        return self._vhosts

    # --- starting and stopping --------------------------------------------------------------------

    async def load(self) -> None:
        """Take over what the catalogue holds."""
        contents = await self._catalogue.load()
        for row in contents.vhosts:
            self._vhosts[row.name] = VirtualHost(row.name, row.created_at_ms)
        if DEFAULT_VHOST not in self._vhosts:
            await self.create_vhost(DEFAULT_VHOST)
        await self.users.load(contents.users, contents.permissions)
        self.policies.load(contents.policies)
        gone: list[Row] = self._load_exchanges(contents)
        await self.queues.adopt_rows(contents.queues)
        gone += self._load_bindings(contents)
        if gone:
            await self._catalogue.delete(*gone)
        for vhost in self._vhosts.values():
            self._set_alternates(vhost)
            await self.deduplication.recall(vhost)
        self.delays.start()

    def _load_exchanges(self, contents: MessagingContents) -> list[Row]:
        gone: list[Row] = []
        for row in contents.exchanges:
            vhost = self._vhosts.get(row.vhost)
            if vhost is None or not row.durable:
                gone.append(row)
                continue
            try:
                vhost.exchanges.add(_exchange(row))
            except BrokerError as problem:  # a kind that an older or newer version knows
                _log.error("exchange %r of %r is not usable: %s", row.name, row.vhost, problem)
        return gone

    def _load_bindings(self, contents: MessagingContents) -> list[Row]:
        gone: list[Row] = []
        for row in contents.bindings:
            vhost = self._vhosts.get(row.vhost)
            if vhost is None or not _can_bind(vhost, row):
                gone.append(row)
            else:
                vhost.exchanges.bind(row.binding)
        return gone

    async def close(self) -> None:
        await self.delays.close()
        await self.queues.close()

    # --- connections ------------------------------------------------------------------------------

    async def authenticate(self, name: str, password: bytes | str, *, loopback: bool) -> User:
        """The user who has that name and password; LoginRefused."""
        return await self.users.authenticate(name, password, loopback=loopback)

    async def open_session(self, user: User, vhost: str, *, connection: str) -> Session:
        """A session in a virtual host; NotAllowed when it is none or not the user's."""
        found = self._vhosts.get(vhost)
        if found is None:
            raise NotAllowed(f"vhost {vhost} not found")
        if not self.users.may_enter(user, vhost):
            raise NotAllowed(f"access to vhost '{vhost}' refused for user '{user.name}'")
        return Session(self, user, found, connection)

    # --- virtual hosts ----------------------------------------------------------------------------

    def vhost(self, name: str) -> VirtualHost:
        found = self._vhosts.get(name)
        if found is None:
            raise NotFound(f"no vhost '{name}'")
        return found

    async def create_vhost(self, name: str) -> VirtualHost:
        """Create a virtual host, or find it."""
        if not name or len(name.encode()) > 255:
            raise PreconditionFailed("the name of a virtual host has 1 to 255 bytes")
        found = self._vhosts.get(name)
        if found is None:
            row = VhostRow(name, self._clock.now_ms())
            await self._catalogue.put(row)
            found = self._vhosts.setdefault(name, VirtualHost(name, row.created_at_ms))
        return found

    async def delete_vhost(self, name: str) -> None:
        """Delete a virtual host with everything in it."""
        vhost = self.vhost(name)
        for queue in list(vhost.queues):
            await self.queues.delete(vhost, queue, owner=vhost.queues[queue].owner)
        await self._catalogue.delete_vhost(name)
        del self._vhosts[name]
        self.users.vhost_gone(name)
        self.policies.vhost_gone(name)

    def _policies_changed(self, name: str) -> None:
        vhost = self._vhosts.get(name)
        if vhost is not None:
            self.queues.apply_policies(vhost)
            self._set_alternates(vhost)

    def _set_alternates(self, vhost: VirtualHost) -> None:
        """The alternate exchange of each exchange: its argument, or else the policy's."""
        for exchange in vhost.exchanges:
            policy = self.policies.fitting(vhost.name, exchange.name, EXCHANGES)
            wanted = policy.definition.get("alternate-exchange") if policy is not None else None
            alternate = exchange.arguments.get("alternate-exchange", wanted)
            exchange.alternate = alternate if isinstance(alternate, str) else None
        vhost.exchanges.changed()


def _exchange(row: ExchangeRow) -> Exchange:
    return Exchange(
        row.name,
        row.kind,
        durable=row.durable,
        auto_delete=row.auto_delete,
        internal=row.internal,
        arguments=row.arguments,
    )


def _can_bind(vhost: VirtualHost, row: BindingRow) -> bool:
    target = row.binding.destination
    if vhost.exchanges.get(row.binding.source) is None:
        return False
    if target.is_exchange:
        return vhost.exchanges.get(target.name) is not None
    return target.name in vhost.queues
