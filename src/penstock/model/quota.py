"""Client quotas: what may be limited, for whom, and which limit applies to a caller (KIP-13, 546).

An entity names a user, a client id, both, or an address; a part named None is the default, for
every name that has no entity of its own. Of all entities that fit a caller, the most specific one
applies, in the order of `candidates`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from penstock.errors import InvalidRequest, UnsupportedVersion

USER, CLIENT_ID, IP = "user", "client-id", "ip"
ENTITY_TYPES = (USER, CLIENT_ID, IP)

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

CLIENT_QUOTAS = (
    PRODUCER_BYTE_RATE,
    CONSUMER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    CONTROLLER_MUTATION_RATE,
)
IP_QUOTAS = (CONNECTION_CREATION_RATE,)
_WHOLE_NUMBERS = {PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, CONNECTION_CREATION_RATE}
_WHOLE_MAX = {CONNECTION_CREATION_RATE: 2**31 - 1}

# The parts, sorted by type: (("client-id", "app"), ("user", None)).
QuotaEntity = tuple[tuple[str, str | None], ...]


class QuotaOperation(NamedTuple):
    """Set one quota of an entity, or remove it."""

    name: str
    value: float
    remove: bool


class QuotaFilter(NamedTuple):
    """One part of a filter: a name, the default (`default`), or any (neither)."""

    entity_type: str
    name: str | None
    default: bool = False

    def matches(self, entity: Mapping[str, str | None]) -> bool:
        if self.entity_type not in entity:
            return False
        found = entity[self.entity_type]
        if self.default:
            return found is None
        return self.name is None or found == self.name


def quota_entity(parts: Sequence[tuple[str, str | None]]) -> QuotaEntity:
    """An entity from its parts in any order, or InvalidRequest when there can be none such."""
    if not parts:
        raise InvalidRequest("Invalid empty client quota entity")
    entity = dict(parts)
    if len(entity) != len(parts):
        raise InvalidRequest("A client quota entity names the same type twice")
    for kind, name in entity.items():
        if kind not in ENTITY_TYPES:
            raise InvalidRequest(f"Unhandled client quota entity type: {kind[:100]}")
        if name == "":
            raise InvalidRequest(f"Empty {kind} not supported")
    if IP in entity:
        if len(entity) > 1:
            raise InvalidRequest(
                "Invalid quota entity combination, IP entity should not be combined with User or "
                "ClientId"
            )
        _check_address(entity[IP])
    return tuple(sorted(entity.items()))


def _check_address(name: str | None) -> None:
    """Only addresses: a host name would have to be looked up again for every connection."""
    try:
        if name is not None:
            ipaddress.ip_address(name)
    except ValueError:
        raise InvalidRequest(f"{name!r} is not a valid IP address.") from None


def check_operations(entity: QuotaEntity, operations: Sequence[QuotaOperation]) -> None:
    """Raise InvalidRequest unless these quotas may be set for the entity."""
    names = [operation.name for operation in operations]
    if len(set(names)) != len(names):
        raise InvalidRequest("A quota is given twice for the same entity")
    allowed = IP_QUOTAS if entity[0][0] == IP else CLIENT_QUOTAS
    for name, value, remove in operations:
        if remove:
            continue
        if name not in allowed:
            raise InvalidRequest(f"Invalid configuration key {name[:100]}")
        if not value > 0:  # refuses not-a-number too
            raise InvalidRequest(f"Quota {name} must be greater than 0")
        if name not in _WHOLE_NUMBERS:
            continue
        if value > _WHOLE_MAX.get(name, 2**63 - 1):
            raise InvalidRequest(f"Proposed value for {name} is too large.")
        if value != int(value):
            raise InvalidRequest(f"{name} cannot be a fractional value.")


def check_filters(filters: Sequence[QuotaFilter]) -> None:
    """Raise unless a description may be asked for with these filters together."""
    types = [part.entity_type for part in filters]
    for kind in types:
        if not kind:
            raise InvalidRequest("Invalid empty entity type.")
        if kind not in ENTITY_TYPES:
            raise UnsupportedVersion(f"Unsupported entity type {kind[:100]}")
        if types.count(kind) > 1:
            raise InvalidRequest(f"Entity type {kind} cannot appear more than once in the filter.")
    if IP in types and len(types) > 1:
        raise InvalidRequest(
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component."
        )


class Candidate(NamedTuple):
    """An entity that would apply to a caller, and whose use is counted together under it."""

    entity: QuotaEntity
    counted_for: tuple[str | None, str | None]  # user, client id; None: all of them together


def candidates(user: str, client_id: str) -> Iterator[Candidate]:
    """The entities that fit a caller, the most specific first; the first with a quota applies."""
    for user_part in (user, None):
        for client_part in (client_id, None):
            yield Candidate(((CLIENT_ID, client_part), (USER, user_part)), (user, client_id))
        yield Candidate(((USER, user_part),), (user, None))
    for client_part in (client_id, None):
        yield Candidate(((CLIENT_ID, client_part),), (None, client_id))
