"""The broker as a whole over HTTP: what dashboards and `rabbitmqadmin show overview` read."""

from __future__ import annotations

import asyncio
import os
import resource
from typing import Any

from penstock import __version__
from penstock.errors import NotFound
from penstock.http.answer import Answer
from penstock.http.call import Call
from penstock.http.clients import MONITORING, each_consumer, node_name, visible
from penstock.http.queues import MOST_WOKEN
from penstock.runtime.process import open_files, process_age, resident_bytes
from penstock.services.queue import QueueCounts
from penstock.services.vhost import EXCHANGE_KINDS

# Tools compare this with versions of RabbitMQ before they ask for more. It is the one whose paths
# and fields these are.
FOLLOWED_VERSION = "3.10.8"
_AT_ONCE = 500  # queues, before others have their turn


async def show(call: Call) -> Answer:
    """Totals of what the user may see."""
    vhosts = call.visible_vhosts()
    clients = visible(call)
    consumers = list(each_consumer(clients))
    door = call.view.amqp
    stats = door.stats if door is not None else None
    shown: dict[str, Any] = {
        "product_name": "Penstock",
        "product_version": __version__,
        "management_version": FOLLOWED_VERSION,
        "rabbitmq_version": FOLLOWED_VERSION,
        "cluster_name": call.view.cluster.cluster_id,
        "node": node_name(call),
        "rates_mode": "none",
        "exchange_types": [{"name": kind, "enabled": True} for kind in EXCHANGE_KINDS],
        "object_totals": {
            "connections": len(clients),
            "channels": sum(len(one.channels) for one in clients),
            "consumers": len(consumers),
            "exchanges": sum(len(vhost.exchanges) + 1 for vhost in vhosts),
            "queues": sum(len(vhost.queues) for vhost in vhosts),
        },
        "queue_totals": await _queue_totals(call),
        "listeners": _listeners(call),
        "message_stats": {},
    }
    if stats is not None:
        shown["message_stats"] = {
            "publish": stats.published,
            "return_unroutable": stats.returned,
            "deliver_get": stats.delivered,
            "ack": stats.acknowledged,
            "redeliver": stats.requeued,
            "reject": stats.rejected,
        }
        shown["churn_rates"] = {"connection_created": stats.connections_made}
    return Answer(shown)


async def _queue_totals(call: Call) -> dict[str, int]:
    """Messages in all queues; those that slept since the start are woken, up to a number."""
    woken = messages = ready = unacknowledged = scheduled = 0
    queues = [queue for vhost in call.visible_vhosts() for queue in vhost.queues.values()]
    for number, queue in enumerate(queues):
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)
        counts = queue.counts
        if counts is None and woken < MOST_WOKEN:
            count = (await call.messaging.queues.info(queue)).message_count
            woken += queue.live is not None
            counts = queue.counts or QueueCounts(count, count, 0, 0)
        if counts is not None:
            messages += counts.messages
            ready += counts.ready
            unacknowledged += counts.unacknowledged
            scheduled += counts.scheduled
    return {
        "messages": messages,
        "messages_ready": ready,
        "messages_unacknowledged": unacknowledged,
        "messages_scheduled": scheduled,
    }


def _listeners(call: Call) -> list[dict[str, Any]]:
    return [
        {"node": node_name(call), "protocol": door, "ip_address": bound[0], "port": bound[1]}
        for door, bound in call.view.addresses.items()
        if bound is not None
    ]


# --- nodes ----------------------------------------------------------------------------------------


def _node(call: Call) -> dict[str, Any]:
    view = call.view
    free = view.disk_free_bytes()
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    connections = len(view.amqp.connections) if view.amqp is not None else 0
    connections += len(view.kafka.connections) if view.kafka is not None else 0
    return {
        "name": node_name(call),
        "type": "disc" if free is not None else "ram",
        "running": True,
        "os_pid": str(os.getpid()),
        "processors": os.cpu_count(),
        "uptime": int(process_age() * 1000),
        "mem_used": resident_bytes(),
        "mem_alarm": False,
        "disk_free": free,
        "disk_free_limit": view.config().disk_free_limit_bytes,
        "disk_free_alarm": call.messaging.alarm.blocked is not None,
        "fd_used": open_files(),
        "fd_total": files,
        "sockets_used": connections,
        "partitions": [],
        "rates_mode": "none",
    }


async def list_nodes(call: Call) -> Answer:
    call.require(MONITORING)
    return Answer([_node(call)])


async def show_node(call: Call) -> Answer:
    call.require(MONITORING)
    if call.names[0] != node_name(call):
        raise NotFound(f"no node '{call.names[0]}'")
    return Answer(_node(call))
