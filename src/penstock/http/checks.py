"""Health checks over HTTP, by RabbitMQ's paths: 200 when all is well, else 503 and why."""

from __future__ import annotations

from penstock.http.answer import Answer
from penstock.http.call import Call

_WELL = Answer({"status": "ok"})


def _failed(reason: str) -> Answer:
    return Answer({"status": "failed", "reason": reason}, 503)


async def alarms(call: Call) -> Answer:
    """Whether publishers are held because the disk is nearly full."""
    blocked = call.messaging.alarm.blocked
    return _WELL if blocked is None else _failed(f"publishers are held: {blocked}")


async def vhosts(call: Call) -> Answer:
    """Whether every virtual host is up; here they are, as soon as the broker is ready."""
    waiting = call.view.not_ready_because()
    return _failed(waiting) if waiting else _WELL


async def aliveness(call: Call) -> Answer:
    """Whether a virtual host can be used."""
    call.visible_vhost(call.names[0])
    return await vhosts(call)


async def listener(call: Call) -> Answer:
    """Whether a door is open at that port."""
    [port] = call.names
    bound = [str(place[1]) for place in call.view.addresses.values() if place is not None]
    return _WELL if port in bound else _failed(f"no door at port {port}")
