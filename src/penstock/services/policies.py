"""Policies: settings for every queue and exchange whose name fits a pattern, applied at once.

Of several that fit, the one with the highest priority holds, alone. The settings are RabbitMQ's:
message-ttl, expires, max-length, max-length-bytes, overflow, dead-letter-exchange,
dead-letter-routing-key, delivery-limit, max-age for queues; alternate-exchange for exchanges. Those
that only make sense in RabbitMQ's clusters are accepted and ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from penstock.catalogue.messaging import MessagingCatalogue, PolicyRow
from penstock.errors import NotFound, PreconditionFailed
from penstock.model.name_pattern import name_pattern
from penstock.model.queue_arguments import check_arguments

__all__ = ["ALL", "EXCHANGES", "QUEUES", "Policies", "PolicyRow"]

QUEUES, EXCHANGES, ALL = "queues", "exchanges", "all"
_IGNORED = frozenset(
    {
        "ha-mode",
        "ha-params",
        "ha-sync-mode",
        "ha-promote-on-failure",
        "ha-promote-on-shutdown",
        "queue-mode",
        "queue-version",
        "queue-master-locator",
        "initial-cluster-size",
        "target-group-size",
        "federation-upstream",
        "federation-upstream-set",
        "dead-letter-strategy",
        "consumer-timeout",
    }
)
_KNOWN = frozenset(
    {
        "message-ttl",
        "expires",
        "max-length",
        "max-length-bytes",
        "overflow",
        "dead-letter-exchange",
        "dead-letter-routing-key",
        "delivery-limit",
        "max-age",
        "alternate-exchange",
    }
)


class Policies:
    """All policies, and which one fits what."""

    def __init__(self, catalogue: MessagingCatalogue) -> None:
        self._catalogue = catalogue
        self._by_vhost: dict[str, list[PolicyRow]] = {}  # highest priority first
        # Called with the name of a virtual host whose policies have changed.
        self.on_changed: list[Callable[[str], None]] = []

    def __repr__(self) -> str:
        return f"<Policies {sum(map(len, self._by_vhost.values()))}>"

    def load(self, rows: Sequence[PolicyRow]) -> None:
        for row in rows:
            self._by_vhost.setdefault(row.vhost, []).append(row)
        for policies in self._by_vhost.values():
            policies.sort(key=_rank)

    def all(self) -> Sequence[PolicyRow]:
        return [row for rows in self._by_vhost.values() for row in rows]

    def fitting(self, vhost: str, name: str, what: str) -> PolicyRow | None:
        """The policy of a queue or exchange; `what` is QUEUES or EXCHANGES."""
        for row in self._by_vhost.get(vhost, ()):
            if row.apply_to in (ALL, what) and name_pattern(row.pattern).found_in(name):
                return row
        return None

    async def put(
        self,
        vhost: str,
        name: str,
        pattern: str,
        definition: Mapping[str, object],
        *,
        priority: int = 0,
        apply_to: str = ALL,
    ) -> None:
        """Create or replace a policy; it holds at once for what is there."""
        name_pattern(pattern)
        if apply_to not in (ALL, QUEUES, EXCHANGES):
            raise PreconditionFailed(
                f"a policy applies to all, queues or exchanges, not {apply_to!r}"
            )
        _check(name, definition)
        row = PolicyRow(vhost, name, pattern, dict(definition), priority, apply_to)
        await self._catalogue.put(row)
        rows = [one for one in self._by_vhost.get(vhost, ()) if one.name != name]
        self._by_vhost[vhost] = sorted([*rows, row], key=_rank)
        self._changed(vhost)

    async def delete(self, vhost: str, name: str) -> None:
        row = next((one for one in self._by_vhost.get(vhost, ()) if one.name == name), None)
        if row is None:
            raise NotFound(f"no policy '{name}' in vhost '{vhost}'")
        await self._catalogue.delete(row)
        self._by_vhost[vhost].remove(row)
        self._changed(vhost)

    def vhost_gone(self, vhost: str) -> None:
        self._by_vhost.pop(vhost, None)

    def _changed(self, vhost: str) -> None:
        for listener in self.on_changed:
            listener(vhost)


def _rank(row: PolicyRow) -> tuple[int, str]:
    return -row.priority, row.name


def _check(name: str, definition: Mapping[str, object]) -> None:
    if not definition:
        raise PreconditionFailed(f"policy '{name}' says nothing")
    for key in definition:
        if key not in _KNOWN and key not in _IGNORED:
            raise PreconditionFailed(f"policy '{name}' has the unknown setting '{key}'")
    alternate = definition.get("alternate-exchange", "")
    if not isinstance(alternate, str):
        raise PreconditionFailed(f"policy '{name}': alternate-exchange is not a name")
    arguments = {f"x-{key}": value for key, value in definition.items() if key in _KNOWN}
    check_arguments(arguments, f"policy '{name}'")
