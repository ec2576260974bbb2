"""ApiVersions: what this broker speaks. The first thing every client asks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.kafka import errors as codes
from penstock.kafka.context import RequestContext

# Finalised features steer clients: from transaction.version 2 on, the Java client and franz-go
# leave AddPartitionsToTxn out (KIP-890); group.version 1 is the new rebalance protocol (KIP-848),
# share.version 1 are share groups (KIP-932).
_FEATURES = (("group.version", 1), ("share.version", 1), ("transaction.version", 2))
_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")

_advertised: list[dict[str, int]] = []


def advertise(rows: Iterable[tuple[int, int, int]]) -> None:
    """Fill in the table once, from dispatch (which imports this module)."""
    _advertised[:] = [
        {"api_key": key, "min_version": lowest, "max_version": highest}
        for key, lowest, highest in rows
    ]


def unsupported() -> Mapping[str, Any]:
    """The answer to a version of ApiVersions that nobody knows, written as version 0 (KIP-511)."""
    row = next(row for row in _advertised if row["api_key"] == 18)
    return {"error_code": codes.UNSUPPORTED_VERSION, "api_keys": [row]}


async def api_versions(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    for text in (
        getattr(request, "client_software_name", "x"),
        getattr(request, "client_software_version", "x"),
    ):
        if not _SOFTWARE_NAME.fullmatch(text):
            return {"error_code": codes.INVALID_REQUEST, "api_keys": ()}
    return {
        "error_code": codes.NONE,
        "api_keys": _advertised,
        # Version 3 cannot carry a lowest level of 0, so clients of it are told none (KAFKA-17011).
        "supported_features": [
            {"name": name, "min_version": 0, "max_version": level}
            for name, level in _FEATURES
            if ctx.api_version >= 4
        ],
        "finalized_features_epoch": 1,
        "finalized_features": [
            {"name": name, "min_version_level": level, "max_version_level": level}
            for name, level in _FEATURES
        ],
    }
