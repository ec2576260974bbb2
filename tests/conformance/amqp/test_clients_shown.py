"""What the management API shows of connected clients, and that it can send them away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pika
import pytest
from pika.exceptions import ConnectionClosedByBroker

from support.amqp_pika import put, settle_for
from support.naming import unique
from support.waiting import eventually

pytestmark = pytest.mark.own_broker
Connect = Callable[..., pika.BlockingConnection]


@pytest.fixture
def api(broker: Any) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{broker.http}/api", auth=("guest", "guest")) as client:
        yield client


def mine(api: httpx.Client, product: str) -> dict[str, Any] | None:
    """The connection whose client calls itself that."""
    rows = api.get("/connections").json()
    found = [row for row in rows if row["client_properties"].get("product") == product]
    return found[0] if found else None


def named(connect: Connect, product: str) -> pika.BlockingConnection:
    return connect(client_properties={"product": product})


def test_a_connection_is_shown_with_its_channels_and_consumers(
    connect: Connect, api: httpx.Client
) -> None:
    product, queue = unique("shop"), unique("queue")
    connection = named(connect, product)
    channel = connection.channel()
    channel.queue_declare(queue, durable=True)
    channel.basic_qos(prefetch_count=7)
    channel.basic_consume(queue, lambda *_: None, consumer_tag="t", arguments={"x-priority": 3})
    other = connection.channel()
    other.confirm_delivery()
    put(other, queue, b"1", b"2", b"3")
    connection.process_data_events(1)
    shown = mine(api, product)
    assert shown is not None
    wanted = {
        "user": "guest", "vhost": "/", "state": "running", "channels": 2, "ssl": False,
        "protocol": "AMQP 0-9-1", "auth_mechanism": "PLAIN", "peer_host": "127.0.0.1",
    }  # fmt: skip
    assert wanted.items() <= shown.items()
    assert shown["recv_oct"] > 500
    assert shown["send_oct"] > 500
    path = quote(shown["name"], safe="")
    first, second = api.get(f"/connections/{path}/channels").json()
    assert [first["prefetch_count"], first["consumer_count"]] == [7, 1]
    assert [first["confirm"], second["confirm"]] == [False, True]
    eventually(lambda: api.get("/queues/%2F/" + queue).json()["messages_unacknowledged"] == 3)
    first = api.get("/channels/" + quote(first["name"], safe="")).json()
    assert first["messages_unacknowledged"] == 3
    [consumer] = first["consumer_details"]
    assert consumer["queue"] == {"name": queue, "vhost": "/"}
    assert consumer["arguments"] == {"x-priority": 3}
    assert consumer in api.get("/consumers/%2F").json()
    channel.queue_delete(queue)


def test_who_stands_by_for_a_single_active_consumer_is_not_active(
    connect: Connect, api: httpx.Client
) -> None:
    queue = unique("single")
    channel = connect().channel()
    channel.queue_declare(queue, arguments={"x-single-active-consumer": True})
    for tag in ("first", "second"):
        channel.basic_consume(queue, lambda *_: None, consumer_tag=tag)
    rows = [row for row in api.get("/consumers").json() if row["queue"]["name"] == queue]
    assert {row["consumer_tag"]: row["active"] for row in rows} == {"first": True, "second": False}


def test_a_connection_is_closed_with_the_reason_given(connect: Connect, api: httpx.Client) -> None:
    product = unique("leaver")
    connection = named(connect, product)
    shown = mine(api, product)
    assert shown is not None
    path = "/connections/" + quote(shown["name"], safe="")
    assert api.delete(path, headers={"X-Reason": "moving house"}).status_code == 204
    with pytest.raises(ConnectionClosedByBroker, match="moving house") as closed:
        settle_for(connection, 5)
    assert closed.value.reply_code == 320
    eventually(lambda: api.get(path).status_code == 404)
    assert api.delete(path).status_code == 404


def test_others_see_only_their_own(connect: Connect, api: httpx.Client, broker: Any) -> None:
    product, name = unique("guests"), unique("user")
    named(connect, product)
    shown = mine(api, product)
    assert shown is not None
    api.put(f"/users/{name}", json={"password": "pass", "tags": "management"}).raise_for_status()
    with httpx.Client(base_url=f"{broker.http}/api", auth=(name, "pass")) as theirs:
        assert theirs.get("/connections").json() == []
        assert theirs.get("/nodes").status_code == 403
        path = "/connections/" + quote(shown["name"], safe="")
        assert theirs.delete(path).status_code == 404
    api.delete(f"/users/{name}").raise_for_status()


def test_the_overview_counts_what_waits_even_in_queues_nobody_has_touched(
    start_broker: Callable[..., Any],
) -> None:
    broker = start_broker()
    parameters = pika.ConnectionParameters("127.0.0.1", broker.amqp_port, heartbeat=0)
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.queue_declare("q", durable=True)
    put(channel, "q", b"1", b"2")
    connection.close()
    broker.restart()
    shown = httpx.get(f"{broker.http}/api/overview", auth=("guest", "guest")).json()
    assert shown["queue_totals"]["messages_ready"] == 2
    assert shown["object_totals"]["queues"] == 1
    assert {one["protocol"] for one in shown["listeners"]} == {"kafka", "amqp", "http"}
    for check in ("alarms", "virtual-hosts", f"port-listener/{broker.amqp_port}"):
        asked = httpx.get(f"{broker.http}/api/health/checks/{check}", auth=("guest", "guest"))
        assert [asked.status_code, asked.json()] == [200, {"status": "ok"}]
    nobody = httpx.get(f"{broker.http}/api/health/checks/port-listener/1", auth=("guest", "guest"))
    assert nobody.status_code == 503
    [node] = httpx.get(f"{broker.http}/api/nodes", auth=("guest", "guest")).json()
    assert node["mem_used"] > 10_000_000
    assert node["disk_free"] > node["disk_free_limit"] > 0
