"""Client quotas: kept in the catalogue, counted in memory, answered as a pause.

`record` is on the way of every request, so with no quota of that kind it is one dictionary look-up.
Otherwise the limit that applies to the caller is found once and remembered with its meter. Quotas
delay and never refuse, except `controller_mutation_rate` where the client's version can be told so
(KIP-599): see `check_mutations`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.catalogue.catalogue import Catalogue
from penstock.config import BrokerConfig
from penstock.errors import ThrottlingQuotaExceeded
from penstock.machines.rate import Meter, TokenBucket, WindowedRate
from penstock.model.quota import (
    CONNECTION_CREATION_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    REQUEST_PERCENTAGE,
    QuotaEntity,
    QuotaFilter,
    QuotaOperation,
    candidates,
    check_filters,
    check_operations,
    quota_entity,
)
from penstock.runtime.turns import Turns

_METERS_KEPT = 10_000  # callers remembered before idle ones are dropped


class Quotas:
    """Every quota, and a meter for each caller that one applies to."""

    def __init__(self, catalogue: Catalogue, config: BrokerConfig) -> None:
        self._catalogue = catalogue
        self._samples = config.quota_window_num
        self._window_ms = config.quota_window_size_seconds * 1000
        self._quotas: dict[QuotaEntity, dict[str, float]] = {}
        self._by_kind: dict[str, dict[QuotaEntity, float]] = {}
        # By kind and caller: the meter that counts it. Callers under one entity may share a meter.
        self._found: dict[tuple[str, str, str], Meter | None] = {}
        self._meters: dict[tuple[str, QuotaEntity, tuple[str | None, str | None]], Meter] = {}
        self._turns = Turns()

    def __repr__(self) -> str:
        return f"Quotas({len(self._quotas)} entities)"

    def load(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Take over what the catalogue holds."""
        self._quotas = {entity: dict(values) for entity, values in quotas.items()}
        self._index()

    # --- counting ---------------------------------------------------------------------------------

    def is_set(self, kind: str) -> bool:
        """Whether anybody has a quota of this kind: if not, nothing need be measured."""
        return kind in self._by_kind

    def record(self, kind: str, user: str, client_id: str, amount: float, now_ms: int) -> int:
        """Count `amount` for a caller; how many milliseconds it should pause."""
        if kind not in self._by_kind:
            return 0
        meter = self._meter(kind, user, client_id, now_ms)
        if meter is None:
            return 0
        pause_ms = meter.record(amount, now_ms)
        # Time spent in requests evens out within a window; a longer pause would starve heartbeats.
        return min(pause_ms, self._window_ms) if kind == REQUEST_PERCENTAGE else pause_ms

    def record_connection(self, address: str, now_ms: int) -> int:
        """Count a new connection from an address; how long to wait before accepting it."""
        limits = self._by_kind.get(CONNECTION_CREATION_RATE)
        if limits is None:
            return 0
        key = (CONNECTION_CREATION_RATE, "", address)
        if key not in self._found:
            self._make_room(now_ms)
            bound = limits.get(((IP, address),), limits.get(((IP, None),)))
            self._found[key] = self._new_meter(CONNECTION_CREATION_RATE, bound) if bound else None
        meter = self._found[key]
        return 0 if meter is None else meter.record(1, now_ms)

    def check_mutations(self, user: str, client_id: str, now_ms: int) -> None:
        """Raise ThrottlingQuotaExceeded while the caller has overdrawn its mutation quota."""
        if CONTROLLER_MUTATION_RATE not in self._by_kind:
            return
        meter = self._meter(CONTROLLER_MUTATION_RATE, user, client_id, now_ms)
        if meter is not None and meter.excess_ms(now_ms) > 0:
            raise ThrottlingQuotaExceeded("The throttling quota has been exceeded.")

    def _meter(self, kind: str, user: str, client_id: str, now_ms: int) -> Meter | None:
        key = (kind, user, client_id)
        try:
            return self._found[key]
        except KeyError:
            self._make_room(now_ms)
            meter = self._found[key] = self._find(kind, user.removeprefix("User:"), client_id)
            return meter

    def _find(self, kind: str, user: str, client_id: str) -> Meter | None:
        limits = self._by_kind[kind]
        for entity, counted_for in candidates(user, client_id):
            bound = limits.get(entity)
            if bound is not None:
                key = (kind, entity, counted_for)
                if key not in self._meters:
                    self._meters[key] = self._new_meter(kind, bound)
                return self._meters[key]
        return None

    def _new_meter(self, kind: str, bound: float) -> Meter:
        make = TokenBucket if kind == CONTROLLER_MUTATION_RATE else WindowedRate
        return make(bound, self._samples, self._window_ms)

    def _make_room(self, now_ms: int) -> None:
        """Client ids are free to invent, so meters that have long been idle are dropped."""
        if len(self._found) < _METERS_KEPT:
            return
        oldest = now_ms - self._samples * self._window_ms
        self._found = {k: m for k, m in self._found.items() if m is not None and m.last_ms > oldest}
        self._meters = {k: m for k, m in self._meters.items() if m.last_ms > oldest}

    # --- describing and changing ------------------------------------------------------------------

    def describe(
        self, filters: Sequence[QuotaFilter] = (), *, strict: bool = False
    ) -> Sequence[tuple[QuotaEntity, Mapping[str, float]]]:
        """The entities that match every filter; with `strict`, that have no other parts."""
        check_filters(filters)
        matching = []
        for entity, values in self._quotas.items():
            parts = dict(entity)
            if strict and len(parts) != len(filters):
                continue
            if all(part.matches(parts) for part in filters):
                matching.append((entity, values))
        return matching

    async def alter(
        self,
        parts: Sequence[tuple[str, str | None]],
        operations: Sequence[QuotaOperation],
        *,
        validate_only: bool = False,
    ) -> None:
        """Set and remove quotas of one entity."""
        entity = quota_entity(parts)
        check_operations(entity, operations)
        if validate_only:
            return

        async def work() -> None:
            values = dict(self._quotas.get(entity, {}))
            for name, value, remove in operations:
                if remove:
                    values.pop(name, None)
                else:
                    values[name] = value
            await self._catalogue.put_quota(entity, values)
            if values:
                self._quotas[entity] = values
            else:
                self._quotas.pop(entity, None)
            self._index()

        await self._turns.take(repr(entity), work())

    def _index(self) -> None:
        """Rebuild what `record` looks at; counting begins anew."""
        self._by_kind = {}
        for entity, values in self._quotas.items():
            for name, value in values.items():
                self._by_kind.setdefault(name, {})[entity] = value
        self._found = {}
        self._meters = {}
