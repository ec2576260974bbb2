"""Policies over HTTP. Those who are tagged `policymaker` change them, administrators too."""

from __future__ import annotations

from typing import Any

from penstock.http.answer import DONE, Answer
from penstock.http.answer import put as answer_to_put
from penstock.http.call import Call, found
from penstock.services.policies import PolicyRow

POLICYMAKER = "policymaker"


def _policy(row: PolicyRow) -> dict[str, Any]:
    return {
        "vhost": row.vhost,
        "name": row.name,
        "pattern": row.pattern,
        "apply-to": row.apply_to,
        "definition": dict(row.definition),
        "priority": row.priority,
    }


def _rows(call: Call, vhost: str) -> list[PolicyRow]:
    call.visible_vhost(vhost)
    return [row for row in call.messaging.policies.all() if row.vhost == vhost]


async def list_all(call: Call) -> Answer:
    vhosts = call.visible_vhosts()
    return Answer([_policy(row) for vhost in vhosts for row in _rows(call, vhost.name)])


async def list_of_vhost(call: Call) -> Answer:
    return Answer([_policy(row) for row in _rows(call, call.names[0])])


async def show(call: Call) -> Answer:
    vhost, name = call.names
    rows = {row.name: row for row in _rows(call, vhost)}
    row: PolicyRow = found(rows.get(name), f"no policy '{name}' in vhost '{vhost}'")
    return Answer(_policy(row))


async def put(call: Call) -> Answer:
    call.require(POLICYMAKER)
    vhost, name = call.names
    was_there = name in [row.name for row in _rows(call, vhost)]
    body = await call.body()
    await call.messaging.policies.put(
        vhost,
        name,
        body.text("pattern"),
        body.table("definition"),
        priority=body.number("priority", 0, -(1 << 31), (1 << 31) - 1),
        apply_to=body.text("apply-to", "all"),
    )
    return answer_to_put(was_there)


async def delete(call: Call) -> Answer:
    call.require(POLICYMAKER)
    vhost, name = call.names
    call.visible_vhost(vhost)
    await call.messaging.policies.delete(vhost, name)
    return DONE
