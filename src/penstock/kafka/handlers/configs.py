"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources.

Resources are topics, brokers, broker loggers and groups. Client metrics subscriptions (KIP-714) do
not exist here and are refused in words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.errors import BrokerError, InvalidRequest, UnsupportedVersion
from penstock.kafka.context import RequestContext
from penstock.kafka.errors import error_code
from penstock.kafka.handlers.access import require_cluster, require_group, require_topic
from penstock.model.config_change import ConfigChange, Operation
from penstock.model.described_setting import DescribedSetting
from penstock.services import loggers

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32

Payload = dict[str, Any]


# --- describing -----------------------------------------------------------------------------------


async def describe_configs(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """Every setting of each resource, or those whose names were given."""
    with_synonyms = request.include_synonyms
    with_words = getattr(request, "include_documentation", False)
    results = []
    for resource in request.resources:
        result: Payload = {
            "error_code": 0,
            "error_message": None,
            "resource_type": resource.resource_type,
            "resource_name": resource.resource_name,
        }
        try:
            described = _describe(ctx, resource.resource_type, resource.resource_name)
        except BrokerError as failure:
            result |= {"error_code": error_code(failure), "error_message": str(failure)}
            described = []
        keys = set(resource.configuration_keys or ())  # null and empty both ask for all
        result["configs"] = [
            _described_row(setting, with_synonyms, with_words)
            for setting in described
            if not keys or setting.name in keys
        ]
        results.append(result)
    return {"throttle_time": ctx.throttle_ms, "results": results}


def _describe(ctx: RequestContext, kind: int, name: str) -> list[DescribedSetting]:
    configs = ctx.broker.configs
    if kind == TOPIC:
        require_topic(ctx, "DescribeConfigs", name)
        return configs.describe_topic(name)
    if kind == GROUP:
        require_group(ctx, "DescribeConfigs", name)
        return configs.describe_group(name)
    require_cluster(ctx, "DescribeConfigs")
    if kind == BROKER:
        return configs.describe_broker(name)
    if kind == BROKER_LOGGER:
        _check_node(ctx, name)
        return loggers.describe()
    raise _unknown_resource(kind)


def _described_row(setting: DescribedSetting, with_synonyms: bool, with_words: bool) -> Payload:
    hidden = setting.sensitive
    return {
        "name": setting.name,
        "value": None if hidden else setting.value,
        "read_only": setting.read_only,
        "config_source": int(setting.source),
        "is_sensitive": hidden,
        "synonyms": [
            {"name": each.name, "value": None if hidden else each.value, "source": int(each.source)}
            for each in setting.synonyms
        ]
        if with_synonyms
        else (),
        "config_type": 0 if setting.type is None else int(setting.type),
        "documentation": setting.doc if with_words else None,
    }


# --- changing -------------------------------------------------------------------------------------


async def alter_configs(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """Replace all overrides of each resource: what is not given goes back to its default."""
    twice = _named_twice(request)
    rows = []
    for resource in request.resources:
        changes = [ConfigChange(each.name, Operation.SET, each.value) for each in resource.configs]
        rows.append(await _altered(ctx, request, resource, changes, twice, replace=True))
    return {"throttle_time": ctx.throttle_ms, "responses": rows}


async def incremental_alter_configs(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """Set, delete, append to and subtract from single settings (KIP-339)."""
    twice = _named_twice(request)
    rows = []
    for resource in request.resources:
        changes = [
            ConfigChange(each.name, each.config_operation, each.value) for each in resource.configs
        ]
        rows.append(await _altered(ctx, request, resource, changes, twice, replace=False))
    return {"throttle_time": ctx.throttle_ms, "responses": rows}


async def _altered(
    ctx: RequestContext,
    request: Any,
    resource: Any,
    changes: Sequence[ConfigChange],
    twice: set[tuple[int, str]],
    *,
    replace: bool,
) -> Payload:
    kind, name = resource.resource_type, resource.resource_name
    row: Payload = {
        "error_code": 0,
        "error_message": None,
        "resource_type": kind,
        "resource_name": name,
    }
    try:
        if (kind, name) in twice:
            raise InvalidRequest("Each resource must appear at most once.")
        await _alter(ctx, kind, name, changes, replace, request.validate_only)
    except BrokerError as failure:
        row |= {"error_code": error_code(failure), "error_message": str(failure)}
    return row


def _named_twice(request: Any) -> set[tuple[int, str]]:
    named = Counter((each.resource_type, each.resource_name) for each in request.resources)
    return {resource for resource, times in named.items() if times > 1}


async def _alter(
    ctx: RequestContext,
    kind: int,
    name: str,
    changes: Sequence[ConfigChange],
    replace: bool,
    validate_only: bool,
) -> None:
    configs = ctx.broker.configs
    if kind == TOPIC:
        require_topic(ctx, "AlterConfigs", name)
        await configs.alter_topic(name, changes, replace=replace, validate_only=validate_only)
    elif kind == GROUP:
        require_group(ctx, "AlterConfigs", name)
        await configs.alter_group(name, changes, replace=replace, validate_only=validate_only)
    elif kind == BROKER:
        require_cluster(ctx, "AlterConfigs")
        await configs.alter_broker(name, changes, replace=replace, validate_only=validate_only)
    elif kind == BROKER_LOGGER and not replace:
        require_cluster(ctx, "AlterConfigs")
        _check_node(ctx, name)
        loggers.alter(changes, validate_only=validate_only)
    else:
        raise _unknown_resource(kind)


def _check_node(ctx: RequestContext, name: str) -> None:
    expected = str(ctx.broker.cluster.node_id)
    if name != expected:
        raise InvalidRequest(f"Unexpected broker id, expected {expected} but received {name[:100]}")


def _unknown_resource(kind: int) -> InvalidRequest:
    if kind == CLIENT_METRICS:
        return InvalidRequest("This broker takes no client metrics (KIP-714) and has no settings")
    return InvalidRequest(f"Unknown resource type {kind}")


# --- listing --------------------------------------------------------------------------------------


async def list_config_resources(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """What has settings. Version 0 asks only for client metrics, of which there are none."""
    every_kind = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)
    kinds = getattr(request, "resource_types", (CLIENT_METRICS,)) or every_kind
    try:
        require_cluster(ctx, "DescribeConfigs")
        for kind in kinds:
            if kind not in every_kind:
                raise UnsupportedVersion(f"Unknown resource type {kind}")
    except BrokerError as failure:
        return {"error_code": error_code(failure), "config_resources": ()}
    node = (str(ctx.broker.cluster.node_id),)
    names: Mapping[int, Sequence[str]] = {
        TOPIC: ctx.broker.topics.names(),
        BROKER: node,
        BROKER_LOGGER: node,
        CLIENT_METRICS: (),
        GROUP: ctx.broker.configs.configured_groups(),
    }
    return {
        "throttle_time": ctx.throttle_ms,
        "error_code": 0,
        "config_resources": [
            {"resource_name": name, "resource_type": kind}
            for kind in dict.fromkeys(kinds)
            for name in names[kind]
        ],
    }
