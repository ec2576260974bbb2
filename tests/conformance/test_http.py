"""The HTTP door of a real broker: health, metrics and the JSON view."""

from __future__ import annotations

import http.client
import json
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from support.broker import BrokerProcess

pytestmark = pytest.mark.own_broker


def get(broker: BrokerProcess, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(broker.http + path, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read().decode()


def get_json(broker: BrokerProcess, path: str) -> Any:
    status, text = get(broker, path)
    assert status == 200, text
    return json.loads(text)


def metric(text: str, name: str, **labels: str) -> float:
    """The value of one sample, or 0 when it is not there."""
    wanted = {f'{key}="{value}"' for key, value in labels.items()}
    for line in text.splitlines():
        found = re.match(rf"{name}(?:{{(.*)}})? (\S+)$", line)
        if found and wanted <= set((found[1] or "").split(",")):
            return float(found[2])
    return 0.0


@pytest.fixture(scope="module")
def topic(broker: BrokerProcess) -> str:
    """A topic with ten records, four of which a group has read."""
    name = "http-door"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 1)])[name].result(10)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(10):
        producer.produce(name, str(number).encode(), partition=0)
    assert producer.flush(10) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "http-readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([name])
    messages = consumer.consume(4, 20)
    assert len(messages) == 4
    consumer.commit(message=messages[-1], asynchronous=False)
    consumer.close()
    return name


def test_a_running_broker_is_healthy_and_ready(broker: BrokerProcess) -> None:
    assert get(broker, "/health") == (200, "ok\n")
    assert get(broker, "/ready") == (200, "ready\n")


def test_metrics_count_messages_bytes_requests_and_lag(broker: BrokerProcess, topic: str) -> None:
    _, text = get(broker, "/metrics")
    assert metric(text, "penstock_topic_messages_in_total", topic=topic) == 10
    assert metric(text, "penstock_topic_bytes_in_total", topic=topic) > 10
    assert metric(text, "penstock_topic_messages_out_total", topic=topic) >= 4
    assert metric(text, "penstock_group_lag", group="http-readers", topic=topic) == 6
    assert metric(text, "penstock_kafka_request_seconds_count", api="Produce") > 0
    assert metric(text, "penstock_kafka_request_seconds_bucket", api="Produce", le="+Inf") > 0
    assert metric(text, "penstock_flush_seconds_count") > 0
    assert metric(text, "penstock_loop_delay_seconds_count") > 0
    assert metric(text, "penstock_network_bytes_total", direction="in") > 0
    assert metric(text, "penstock_log_bytes") > 0
    assert metric(text, "penstock_disk_free_bytes") > 0
    assert metric(text, "process_resident_memory_bytes") > 10_000_000


def test_the_histogram_of_requests_never_decreases(broker: BrokerProcess, topic: str) -> None:
    _, text = get(broker, "/metrics")
    buckets = re.findall(
        r'^penstock_kafka_request_seconds_bucket{api="Produce",le="[^"]+"} (\S+)$', text, re.M
    )
    values = [float(value) for value in buckets]
    assert len(values) > 5
    assert values == sorted(values)


def test_the_cluster_names_its_node_and_address(broker: BrokerProcess) -> None:
    cluster = get_json(broker, "/api/cluster")
    assert cluster["nodes"] == [{"id": 1, "host": broker.host, "port": broker.port}]
    assert len(cluster["cluster_id"]) == 22


def test_a_topic_is_shown_with_its_partitions(broker: BrokerProcess, topic: str) -> None:
    assert topic in [each["name"] for each in get_json(broker, "/api/topics")["topics"]]
    (partition,) = get_json(broker, f"/api/topics/{topic}")["partition_details"]
    assert (partition["start_offset"], partition["high_watermark"]) == (0, 10)


def test_a_group_is_shown_with_its_lag(broker: BrokerProcess, topic: str) -> None:
    detail = get_json(broker, "/api/groups/http-readers")
    assert detail["offsets"] == [{"topic": topic, "partition": 0, "committed": 4, "lag": 6}]
    groups = get_json(broker, "/api/groups")["groups"]
    assert {"http-readers": 6}.items() <= {each["group_id"]: each["lag"] for each in groups}.items()


@pytest.mark.parametrize(
    "path", ["/api/topics/nope", "/api/groups/nope", "/api/topics/..%2f..%2fetc", "/nope"]
)
def test_what_does_not_exist_is_not_found(broker: BrokerProcess, path: str) -> None:
    status, text = get(broker, path)
    assert status == 404
    assert list(json.loads(text)) == ["error"]


def test_the_root_says_what_is_here_and_all_of_it_is(broker: BrokerProcess) -> None:
    status, text = get(broker, "/")
    assert status == 200
    places = [line.split()[0] for line in text.splitlines() if line.startswith("/")]
    assert [get(broker, place)[0] for place in places] == [200] * 6 + [401]


def test_only_reading_is_allowed(broker: BrokerProcess) -> None:
    connection = http.client.HTTPConnection(broker.http.removeprefix("http://"), timeout=10)
    connection.request("POST", "/api/topics", body=b"{}")
    assert connection.getresponse().status == 405
    connection.close()


def test_an_endless_header_is_cut_off_and_the_door_stays_open(broker: BrokerProcess) -> None:
    connection = http.client.HTTPConnection(broker.http.removeprefix("http://"), timeout=10)
    connection.putrequest("GET", "/health")
    connection.putheader("X-Long", "x" * 200_000)
    try:
        connection.endheaders()
        assert connection.getresponse().status in (400, 431)
    except OSError:
        pass  # the broker hung up before everything was sent, which is as good
    finally:
        connection.close()
    assert get(broker, "/health") == (200, "ok\n")


def test_the_reference_lists_exactly_the_metrics_there_are(
    broker: BrokerProcess, topic: str
) -> None:
    _, text = get(broker, "/metrics")
    shown = set(re.findall(r"^# TYPE (\S+) (?:gauge|histogram)$", text, re.M))
    shown |= set(re.findall(r"^# TYPE (\S+) counter$", text, re.M))
    page = (Path(__file__).parents[2] / "docs/reference/metrics.md").read_text()
    listed = set(re.findall(r"^\| `(\w+)` \|", page, re.M))
    assert shown == listed
