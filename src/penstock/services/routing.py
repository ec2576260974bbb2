"""Exchanges and bindings: declared, deleted, bound and unbound, in memory and in the catalogue.

The rules of equivalence and the reserved names are RabbitMQ's. Changes of one virtual host happen
one after the other, each in the catalogue before anybody sees it.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.catalogue.messaging import BindingRow, ExchangeRow, MessagingCatalogue, Row
from penstock.errors import AccessRefused, PreconditionFailed
from penstock.machines.exchange import DEFAULT_EXCHANGE, Exchange, Removed
from penstock.model.binding import Binding, Destination
from penstock.model.queue_arguments import check_equivalent, type_of
from penstock.runtime.turns import Turns
from penstock.services.vhost import VirtualHost

RESERVED = "amq."


class Routing:
    """The verbs of exchanges and bindings."""

    def __init__(self, catalogue: MessagingCatalogue) -> None:
        self._catalogue = catalogue
        self._turns = Turns()

    async def declare(
        self,
        vhost: VirtualHost,
        name: str,
        kind: str,
        *,
        passive: bool = False,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Mapping[str, object],
    ) -> None:
        """Declare an exchange, or find it as declared."""
        if name == DEFAULT_EXCHANGE:
            raise AccessRefused("operation not permitted on the default exchange")

        async def work() -> None:
            found = vhost.exchanges.get(name)
            if passive:
                vhost.exchange(name)
                return
            if found is not None:
                _check_same(vhost, found, kind, durable, auto_delete, internal, arguments)
                return
            if name.startswith(RESERVED):
                raise AccessRefused(f"exchange name '{name}' contains reserved prefix 'amq.*'")
            _check_arguments(f"exchange '{name}' in vhost '{vhost.name}'", kind, arguments)
            exchange = Exchange(
                name,
                kind,
                durable=durable,
                auto_delete=auto_delete,
                internal=internal,
                arguments=dict(arguments),
            )
            await self._catalogue.put(row_of(vhost, exchange))
            vhost.exchanges.add(exchange)

        await self._turns.take(vhost.name, work())

    async def delete(self, vhost: VirtualHost, name: str, *, if_unused: bool = False) -> None:
        """Delete an exchange; one that is missing is as good as deleted."""
        if name == DEFAULT_EXCHANGE:
            raise AccessRefused("operation not permitted on the default exchange")
        if name.startswith(RESERVED):
            raise AccessRefused(
                f"deletion of system exchange '{name}' in vhost '{vhost.name}' not allowed"
            )

        async def work() -> None:
            exchange = vhost.exchanges.get(name)
            if exchange is None:
                return
            if if_unused and exchange.bindings:
                raise PreconditionFailed(f"exchange '{name}' in vhost '{vhost.name}' in use")
            vhost.seen.pop(name, None)
            await self._forget(vhost, vhost.exchanges.remove(name))

        await self._turns.take(vhost.name, work())

    async def bind(
        self,
        vhost: VirtualHost,
        source: str,
        destination: Destination,
        routing_key: str,
        arguments: Mapping[str, object],
    ) -> None:
        """Bind; a binding that is there already stays."""
        binding = self._binding(source, destination, routing_key, arguments)

        async def work() -> None:
            exchange = vhost.exchange(source)
            if destination.is_exchange:
                vhost.exchange(destination.name)
            else:
                vhost.queue(destination.name)
            if binding in exchange.bindings:
                return
            exchange.matcher.check(binding)
            await self._catalogue.put(BindingRow(vhost.name, binding))
            if vhost.exchanges.get(source) is exchange and _exists(vhost, destination):
                vhost.exchanges.bind(binding)
                return
            # One of the two was deleted while the row was written.
            await self._catalogue.delete(BindingRow(vhost.name, binding))
            vhost.exchange(source)
            vhost.queue(destination.name)

        await self._turns.take(vhost.name, work())

    async def unbind(
        self,
        vhost: VirtualHost,
        source: str,
        destination: Destination,
        routing_key: str,
        arguments: Mapping[str, object],
    ) -> None:
        """Unbind; what is not bound is as good as unbound."""
        binding = self._binding(source, destination, routing_key, arguments)

        async def work() -> None:
            await self._forget(vhost, vhost.exchanges.unbind(binding))

        await self._turns.take(vhost.name, work())

    async def destination_gone(self, vhost: VirtualHost, destination: Destination) -> None:
        """A queue was deleted: its bindings go, and exchanges that lived only for them."""
        if any(vhost.exchanges.bindings_to(destination)):
            await self._forget(vhost, vhost.exchanges.remove_destination(destination))

    def _binding(
        self,
        source: str,
        destination: Destination,
        routing_key: str,
        arguments: Mapping[str, object],
    ) -> Binding:
        if DEFAULT_EXCHANGE in (source, destination.name if destination.is_exchange else source):
            raise AccessRefused("operation not permitted on the default exchange")
        return Binding.of(source, destination, routing_key, arguments)

    async def _forget(self, vhost: VirtualHost, removed: Removed) -> None:
        rows: list[Row] = [BindingRow(vhost.name, binding) for binding in removed.bindings]
        rows += [
            ExchangeRow(vhost.name, name, "", False, False, False, {}) for name in removed.exchanges
        ]
        if rows:
            await self._catalogue.delete(*rows)


def _exists(vhost: VirtualHost, destination: Destination) -> bool:
    if destination.is_exchange:
        return vhost.exchanges.get(destination.name) is not None
    return destination.name in vhost.queues


def row_of(vhost: VirtualHost, exchange: Exchange) -> ExchangeRow:
    return ExchangeRow(
        vhost.name,
        exchange.name,
        exchange.kind,
        exchange.durable,
        exchange.auto_delete,
        exchange.internal,
        exchange.arguments,
    )


def _check_same(
    vhost: VirtualHost,
    found: Exchange,
    kind: str,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    arguments: Mapping[str, object],
) -> None:
    where = f"exchange '{found.name}' in vhost '{vhost.name}'"
    check_equivalent("type", kind, found.kind, where)
    check_equivalent("durable", durable, found.durable, where)
    check_equivalent("auto_delete", auto_delete, found.auto_delete, where)
    check_equivalent("internal", internal, found.internal, where)
    for name in ("alternate-exchange", "x-delayed-type", "hash-header", "hash-property"):
        check_equivalent(name, arguments.get(name), found.arguments.get(name), where)


def _check_arguments(where: str, kind: str, arguments: Mapping[str, object]) -> None:
    for name in ("alternate-exchange", "hash-header", "hash-property"):
        if name in arguments and not isinstance(arguments[name], str):
            kind_of_value = type_of(arguments[name])
            raise PreconditionFailed(f"invalid type '{kind_of_value}' for arg '{name}' in {where}")
    if "hash-header" in arguments and "hash-property" in arguments:
        raise PreconditionFailed(f"{where} has both a 'hash-header' and a 'hash-property'")
    wants_size = kind == "x-message-deduplication" or (
        arguments.get("x-message-deduplication") is True
    )
    for name, needed in (("x-cache-size", wants_size), ("x-cache-ttl", False)):
        value = arguments.get(name)
        if value is None and not needed:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
            raise PreconditionFailed(
                f"invalid arg '{name}' for {where}: it must be a number above 0"
            )
