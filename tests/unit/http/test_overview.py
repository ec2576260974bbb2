"""What dashboards and monitors read: totals, nodes, health, lists by pages."""

from __future__ import annotations

import httpx

from support.http_inside import play


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


def test_health_checks_tell_of_a_full_disk() -> None:
    async def story(client: httpx.AsyncClient) -> None:
        assert (await client.get("/api/aliveness-test/%2F")).json() == {"status": "ok"}
        assert (await client.get("/api/aliveness-test/nope")).status_code == 404
        assert (await client.get("/api/health/checks/alarms")).status_code == 200
        client.broker.messaging.alarm.set("low on disk")  # type: ignore[attr-defined]
        full = await client.get("/api/health/checks/local-alarms")
        assert full.status_code == 503
        assert "low on disk" in full.json()["reason"]

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
