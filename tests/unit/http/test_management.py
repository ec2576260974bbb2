"""Routes, names and credentials of the management API, against a whole broker in this process."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from penstock.app import Broker
from penstock.config import BrokerConfig
from penstock.http import call
from penstock.http.api import application
from penstock.http.call import is_loopback
from penstock.http.management import TABLE, find
from penstock.http.view import BrokerView
from penstock.model.histogram import Histogram

Story = Callable[[httpx.AsyncClient], Awaitable[None]]


@asynccontextmanager
async def management(client_host: str = "127.0.0.1", **options: Any) -> AsyncIterator[Any]:
    """A client of the HTTP door of a broker in memory, logged in as the guest."""
    broker = Broker(BrokerConfig(memory=True, kafka=None, amqp=None, http=None))
    await broker.open()
    view = BrokerView(
        cluster=broker.services.cluster,
        topics=broker.services.topics,
        partitions=broker.services.partitions,
        groups=broker.services.groups,
        messaging=broker.messaging,
        kafka=None,
        amqp=None,
        config=lambda: broker.config,
        addresses={},
        api_name=str,
        flush_histogram=Histogram(),
        loop_delay=Histogram(),
        disk_free_bytes=lambda: None,
        is_ready=lambda: True,
    )
    transport = httpx.ASGITransport(application(view), client=(client_host, 4711))
    settings: dict[str, Any] = {"auth": ("guest", "guest"), "base_url": "http://127.0.0.1:8080"}
    async with httpx.AsyncClient(transport=transport, **{**settings, **options}) as client:
        client.broker = broker  # type: ignore[attr-defined]
        yield client
    await broker.close()


def play(story: Story, **options: Any) -> None:
    async def run() -> None:
        async with management(**options) as client:
            await story(client)

    asyncio.run(run())


@pytest.fixture(autouse=True)
def no_penance(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong password costs a second, but not here."""
    monkeypatch.setattr(call, "_WRONG_SECONDS", 0.0)


# --- who may come in ------------------------------------------------------------------------------


def test_nobody_comes_in_without_a_password() -> None:
    async def story(client: httpx.AsyncClient) -> None:
        for row in TABLE:
            path = "/api/" + "/".join(row.pattern).replace("{}", "x")
            answer = await client.request(row.method, path)
            assert answer.status_code == 401, path
            assert answer.headers["www-authenticate"].startswith("Basic")

    play(story, auth=None)


@pytest.mark.parametrize(
    "header",
    [
        "Basic",
        "Basic !!!",
        "Bearer abc",
        "Basic " + base64.b64encode(b"guest").decode(),
        "Basic " + base64.b64encode(b"guest:wrong").decode(),
        "Basic " + base64.b64encode(b"nobody:guest").decode(),
        "Basic " + base64.b64encode(b"\xff:guest").decode(),
    ],
)
def test_wrong_credentials_are_refused(header: str) -> None:
    async def story(client: httpx.AsyncClient) -> None:
        answer = await client.get("/api/vhosts", headers={"Authorization": header})
        assert answer.status_code == 401

    play(story, auth=None)


def test_the_guest_comes_from_this_machine_only() -> None:
    async def story(client: httpx.AsyncClient) -> None:
        assert (await client.get("/api/whoami")).status_code == 401

    play(story, client_host="192.0.2.1")


def test_the_guest_calls_the_broker_by_an_address_of_this_machine() -> None:
    async def story(client: httpx.AsyncClient) -> None:
        for host, status in (("localhost:8080", 200), ("[::1]:8080", 200), ("evil.example", 401)):
            answer = await client.get("/api/whoami", headers={"Host": host})
            assert answer.status_code == status, host

    play(story)


def test_a_page_of_another_site_is_refused() -> None:
    async def story(client: httpx.AsyncClient) -> None:
        answer = await client.get("/api/whoami", headers={"Origin": "http://evil.example"})
        assert answer.status_code == 403
        own = {"Origin": "http://127.0.0.1:8080"}
        assert (await client.get("/api/whoami", headers=own)).status_code == 200

    play(story)


def test_somebody_without_tags_does_not_administer() -> None:
    async def story(client: httpx.AsyncClient) -> None:
        user = {"password": "secret", "tags": ""}
        assert (await client.put("/api/users/anna", json=user)).status_code == 201
        patterns = {"configure": ".*", "write": ".*", "read": ".*"}
        await client.put("/api/permissions/%2F/anna", json=patterns)
        client.auth = httpx.BasicAuth("anna", "secret")
        for method, path in (
            ("GET", "/api/users"),
            ("PUT", "/api/users/eve"),
            ("DELETE", "/api/users/guest"),
            ("PUT", "/api/vhosts/more"),
            ("DELETE", "/api/vhosts/%2F"),
            ("PUT", "/api/permissions/%2F/anna"),
            ("PUT", "/api/policies/%2F/p"),
        ):
            assert (await client.request(method, path)).status_code == 403, path
        assert (await client.put("/api/queues/%2F/hers")).status_code == 201

    play(story)


def test_lists_show_only_the_virtual_hosts_one_may_enter() -> None:
    async def story(client: httpx.AsyncClient) -> None:
        await client.put("/api/vhosts/secret")
        await client.put("/api/queues/secret/plans")
        await client.put("/api/users/anna", json={"password": "x"})
        client.auth = httpx.BasicAuth("anna", "x")
        for path in ("vhosts", "queues", "exchanges", "bindings", "policies", "dead-letters"):
            assert (await client.get(f"/api/{path}")).json() == [], path
        for path in ("queues/secret", "queues/secret/plans", "exchanges/secret"):
            assert (await client.get(f"/api/{path}")).status_code == 403, path

    play(story)


def test_the_last_administrator_stays() -> None:
    async def story(client: httpx.AsyncClient) -> None:
        await client.put("/api/users/anna", json={"password": "x", "tags": ["monitoring"]})
        refused = await client.delete("/api/users/guest")
        assert (refused.status_code, "last administrator" in refused.text) == (400, True)

    play(story)


# --- paths and bodies -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["plain", "a/b", "a%2Fb", "..", "ü ?#", "~", "amq"])
def test_any_name_can_stand_in_a_path(name: str) -> None:
    from urllib.parse import quote

    async def story(client: httpx.AsyncClient) -> None:
        path = f"/api/queues/%2F/{quote(name, safe='')}"
        # httpx would resolve dots in a path; a client that encodes them means a name.
        path = path.replace("/..", "/%2E%2E")
        assert (await client.put(path)).status_code == 201
        assert (await client.get(path)).json()["name"] == name
        assert (await client.put(path)).status_code == 204
        assert (await client.delete(path)).json() == {"messages": 0}
        assert (await client.get(path)).status_code == 404

    play(story)


def test_what_is_not_there_is_not_found_and_wrong_methods_are_named() -> None:
    async def story(client: httpx.AsyncClient) -> None:
        assert (await client.get("/api/queues/%2F/x/y/z/1/2")).status_code == 404
        assert (await client.get("/api/queues/%2F/%FF")).status_code == 404
        wrong = await client.post("/api/queues/%2F/x")
        assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, PUT, DELETE")
        assert (await client.get("/api/queues/nowhere")).status_code == 404

    play(story)


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"\xff",
        b'"text"',
        b'{"arguments": 3}',
        b'{"durable": "yes"}',
        b'{"arguments": {"x-max-length": "many"}}',
        b'{"arguments": {"n": 99999999999999999999999}}',
        b'{"arguments": {"s": "\\ud800"}}',
        b'{"arguments": ' + b'{"a":' * 40 + b"1" + b"}" * 41,
        b'{"arguments": ' + b"[" * 50_000,
    ],
)
def test_nonsense_is_refused_as_such(body: bytes) -> None:
    async def story(client: httpx.AsyncClient) -> None:
        answer = await client.put("/api/queues/%2F/q", content=body)
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]
        assert (await client.get("/api/queues/%2F/q")).status_code == 404

    play(story)


def test_a_body_is_bounded_while_it_is_read() -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 65_536
            yield b" " * 65_536

    async def story(client: httpx.AsyncClient) -> None:
        answer = await client.put("/api/queues/%2F/q", content=endless())
        assert answer.status_code == 413
        large = {"Content-Length": str(1 << 40)}
        answer = await client.put("/api/queues/%2F/q", content=b"{}", headers=large)
        assert answer.status_code == 413

    play(story)
    assert sent <= call.BODY_BYTES + 2 * 65_536


@pytest.mark.parametrize(
    "wrong",
    [
        {"payload": 3},
        {"payload": "x", "payload_encoding": "rot13"},
        {"payload": "not base64!", "payload_encoding": "base64"},
        {"payload": "x", "routing_key": "k" * 256},
        {"payload": "x", "properties": {"priority": 256}},
        {"payload": "x", "properties": {"delivery_mode": 3}},
        {"payload": "x", "properties": {"expiration": "soon"}},
        {"payload": "x", "properties": {"user_id": "somebody else"}},
        {"payload": "x", "properties": {"message_id": "m" * 256}},
        {"payload": "x", "properties": {"no_such": 1}},
        {"payload": "x", "properties": {"headers": [1]}},
    ],
)
def test_a_message_that_amqp_would_refuse_is_refused(wrong: dict[str, Any]) -> None:
    async def story(client: httpx.AsyncClient) -> None:
        await client.put("/api/queues/%2F/q")
        body = {"routing_key": "q", "properties": {}, "payload_encoding": "string", **wrong}
        answer = await client.post("/api/exchanges/%2F/amq.default/publish", json=body)
        assert answer.status_code == 400, answer.text
        assert (await client.get("/api/queues/%2F/q")).json()["messages"] == 0

    play(story)


def test_a_message_keeps_every_property_and_byte() -> None:
    properties = {
        "content_type": "text/plain",
        "content_encoding": "none",
        "delivery_mode": 2,
        "priority": 9,
        "correlation_id": "c",
        "reply_to": "r",
        "expiration": "60000",
        "message_id": "m",
        "timestamp": 1_700_000_000,
        "type": "t",
        "user_id": "guest",
        "app_id": "a",
        "cluster_id": "z",
        "headers": {"n": 1, "f": 0.5, "b": True, "none": None, "list": [1, {"x": "y"}]},
    }

    async def story(client: httpx.AsyncClient) -> None:
        await client.put("/api/queues/%2F/q")
        body = {"routing_key": "q", "properties": properties, "payload": "/wA="}
        body["payload_encoding"] = "base64"
        sent = await client.post("/api/exchanges/%2F/amq.default/publish", json=body)
        assert sent.json() == {"routed": True, "refused": False}
        [seen] = (await client.get("/api/queues/%2F/q/messages")).json()
        assert seen["properties"] == properties
        assert (seen["payload"], seen["payload_encoding"]) == ("/wA=", "base64")
        [cut] = (await client.get("/api/queues/%2F/q/messages?truncate=1")).json()
        assert (cut["payload_bytes"], cut["payload"]) == (2, "/w==")
        mode = {"ackmode": "ack_requeue_false", "count": 5}
        [got] = (await client.post("/api/queues/%2F/q/get", json=mode)).json()
        assert got["properties"] == properties
        assert (await client.get("/api/queues/%2F/q/messages")).json() == []

    play(story)


def test_bindings_between_the_same_two_are_told_apart() -> None:
    async def story(client: httpx.AsyncClient) -> None:
        await client.put("/api/queues/%2F/q")
        path = "/api/bindings/%2F/e/amq.headers/q/q"
        keys = []
        for arguments in ({}, {"a": 1}, {"a": 2}):
            body = {"routing_key": "", "arguments": arguments}
            answer = await client.post(path, json=body)
            assert answer.status_code == 201
            keys.append(answer.json()["properties_key"])
        assert keys[0] == "~"
        assert len(set(keys)) == 3
        assert (await client.get(f"{path}/{keys[1]}")).json()["arguments"] == {"a": 1}
        assert (await client.delete(f"{path}/{keys[1]}")).status_code == 204
        left = [row["arguments"] for row in (await client.get(path)).json()]
        assert sorted(map(json.dumps, left)) == ['{"a": 2}', "{}"]

    play(story)


def test_an_asleep_queue_is_listed_with_what_it_holds() -> None:
    async def story(client: httpx.AsyncClient) -> None:
        await client.put("/api/queues/%2F/q")
        [row] = (await client.get("/api/queues")).json()
        assert (row["state"], row["messages"], row["messages_ready"]) == ("idle", 0, 0)

    play(story)


def test_every_route_is_found_by_its_own_path() -> None:
    for row in TABLE:
        handler, names = find(row.method, [part.replace("{}", "n") for part in row.pattern])
        assert handler is row.handler
        assert len(names) == row.pattern.count("{}")


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True), ("127.8.9.1", True), ("::1", True), ("::ffff:127.0.0.1", True),
        ("localhost", True), ("10.0.0.1", False), ("localhost.evil.example", False), ("", False),
        ("0.0.0.0", False), ("2001:db8::1", False),
    ],
)  # fmt: skip
def test_only_loopback_addresses_are_of_this_machine(host: str, local: bool) -> None:
    assert is_loopback(host) is local


def test_a_long_list_comes_by_pages() -> None:
    async def story(client: httpx.AsyncClient) -> None:
        for name in ("a1", "a2", "a3", "b1"):
            await client.put(f"/api/queues/%2F/{name}", json={})
        query = "page=2&page_size=2&name=a"
        shown = (await client.get(f"/api/queues/%2F?{query}")).json()
        assert [one["name"] for one in shown["items"]] == ["a3"]
        counts = [shown[key] for key in ("page_count", "filtered_count", "total_count")]
        assert counts == [2, 3, 4]
        assert len((await client.get("/api/queues")).json()) == 4

    play(story)


def test_the_overview_adds_up_what_the_user_may_see() -> None:
    async def story(client: httpx.AsyncClient) -> None:
        await client.put("/api/queues/%2F/q", json={})
        message = {"routing_key": "q", "payload": "x", "payload_encoding": "string"}
        for _ in range(3):
            published = await client.post("/api/exchanges/%2F/amq.default/publish", json=message)
            assert published.json()["routed"]
        shown = (await client.get("/api/overview")).json()
        assert shown["queue_totals"]["messages"] == 3
        assert shown["object_totals"]["queues"] == 1
        [node] = (await client.get("/api/nodes")).json()
        assert (await client.get(f"/api/nodes/{node['name']}")).json()["running"] is True
        assert (await client.get("/api/nodes/other")).status_code == 404

    play(story)
