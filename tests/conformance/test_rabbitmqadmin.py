"""RabbitMQ's own command line, unmodified, at the management API. Debian: `rabbitmq-server`."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable

import pika
import pytest
from pika.exceptions import ConnectionClosedByBroker

from support.broker import BrokerProcess

pytestmark = pytest.mark.own_broker

Admin = Callable[..., str]


@pytest.fixture
def broker_of(start_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    return start_broker()


@pytest.fixture
def admin(broker_of: BrokerProcess) -> Admin:
    program = shutil.which("rabbitmqadmin")
    if program is None:
        pytest.skip("rabbitmqadmin is not installed")
    host, _, port = broker_of.http.removeprefix("http://").rpartition(":")

    def run(*words: str) -> str:
        command = [program, "-H", host, "-P", port, "-f", "tsv", "-q", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
        return done.stdout

    return run


def test_rabbitmqadmin_declares_publishes_gets_and_deletes(admin: Admin) -> None:
    admin("declare", "queue", "name=q", "durable=true", 'arguments={"x-max-length": 10}')
    admin("declare", "exchange", "name=e", "type=topic")
    admin("declare", "binding", "source=e", "destination=q", "routing_key=a.*")
    properties = 'properties={"delivery_mode": 2}'
    admin("publish", "exchange=e", "routing_key=a.b", "payload=hello", properties)
    admin("publish", "exchange=amq.default", "routing_key=q", "payload=hi")
    assert admin("list", "queues", "name", "messages") == "q\t2\n"
    assert "a.*" in admin("list", "bindings")
    got = admin("get", "queue=q", "count=5", "ackmode=ack_requeue_false")
    assert ["hello" in got, "hi" in got, got.count("\n")] == [True, True, 2]
    admin("purge", "queue", "name=q")
    admin("delete", "binding", "source=e", "destination_type=queue", "destination=q",
          "properties_key=a.*")  # fmt: skip
    admin("delete", "queue", "name=q")
    admin("delete", "exchange", "name=e")
    assert admin("list", "queues", "name") == ""


def test_rabbitmqadmin_shows_who_is_connected(admin: Admin, broker_of: BrokerProcess) -> None:
    parameters = pika.ConnectionParameters("127.0.0.1", broker_of.amqp_port, heartbeat=0)
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.queue_declare("q")
    channel.basic_consume("q", lambda *_: None, consumer_tag="me")
    [name, user, channels] = admin("list", "connections", "name", "user", "channels").split("\t")
    assert [user, channels.strip()] == ["guest", "1"]
    assert admin("list", "channels", "name", "consumer_count") == f"{name} (1)\t1\n"
    assert admin("list", "consumers", "consumer_tag", "queue.name") == "me\tq\n"
    assert admin("list", "nodes", "running") == "True\n"
    shown = admin("show", "overview", "object_totals.consumers", "product_name")
    assert shown == "1\tPenstock\n"
    admin("close", "connection", f"name={name}")
    with pytest.raises(ConnectionClosedByBroker, match="closed via the management API"):
        connection.process_data_events(10)
    assert admin("list", "connections", "name") == ""


def test_rabbitmqadmin_looks_after_users_virtual_hosts_and_policies(admin: Admin) -> None:
    admin("declare", "vhost", "name=v")
    admin("declare", "user", "name=u", "password=x", "tags=monitoring")
    admin("declare", "permission", "vhost=v", "user=u", "configure=.*", "write=", "read=^q$")
    admin("declare", "policy", "name=p", "pattern=^q", 'definition={"max-length": 3}')
    assert "u\tmonitoring" in admin("list", "users", "name", "tags")
    assert "^q$" in admin("list", "permissions")
    assert "max-length" in admin("list", "policies")
    admin("delete", "policy", "name=p")
    admin("delete", "user", "name=u")
    admin("delete", "vhost", "name=v")
    assert admin("list", "vhosts", "name") == "/\n"
