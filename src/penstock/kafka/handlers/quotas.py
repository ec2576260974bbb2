"""DescribeClientQuotas and AlterClientQuotas (KIP-546)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from penstock.errors import BrokerError, InvalidRequest
from penstock.kafka.context import RequestContext
from penstock.kafka.errors import error_code
from penstock.kafka.handlers.access import require_cluster
from penstock.model.quota import QuotaFilter, QuotaOperation

Payload = dict[str, Any]

_EXACT, _DEFAULT, _ANY = 0, 1, 2


async def describe_client_quotas(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """The quotas of every entity that matches all components of the filter."""
    try:
        require_cluster(ctx, "DescribeConfigs")
        filters = [_filter(component) for component in request.components]
        found = ctx.broker.quotas.describe(filters, strict=request.strict)
    except BrokerError as failure:
        return {
            "error_code": error_code(failure),
            "error_message": str(failure),
            "entries": None,
        }
    entries = [
        {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
            "values": [{"key": name, "value": value} for name, value in values.items()],
        }
        for entity, values in found
    ]
    return {"throttle_time": ctx.throttle_ms, "error_code": 0, "entries": entries}


def _filter(component: Any) -> QuotaFilter:
    kind, match_type, match = component.entity_type, component.match_type, component.match
    if match_type == _EXACT:
        if match is None:
            raise InvalidRequest("The filter asks for an exact match but names nothing.")
        return QuotaFilter(kind, match)
    if match_type not in (_DEFAULT, _ANY):
        raise InvalidRequest(f"Unknown match type {match_type}")
    if match is not None:
        raise InvalidRequest("The filter names something but does not ask for an exact match.")
    return QuotaFilter(kind, None, default=match_type == _DEFAULT)


async def alter_client_quotas(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """Set and remove quotas; every entity succeeds or fails by itself."""
    entities = [
        tuple((part.entity_type, part.entity_name) for part in entry.entity)
        for entry in request.entries
    ]
    times = Counter(frozenset(parts) for parts in entities)
    rows = []
    for entry, parts in zip(request.entries, entities, strict=True):
        row: Payload = {
            "error_code": 0,
            "error_message": None,
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in parts],
        }
        operations = [QuotaOperation(op.key, op.value, op.remove) for op in entry.ops]
        try:
            require_cluster(ctx, "AlterConfigs")
            if times[frozenset(parts)] > 1:
                raise InvalidRequest("The same entity appears twice in the request.")
            await ctx.broker.quotas.alter(parts, operations, validate_only=request.validate_only)
        except BrokerError as failure:
            row |= {"error_code": error_code(failure), "error_message": str(failure)}
        rows.append(row)
    return {"throttle_time": ctx.throttle_ms, "entries": rows}
