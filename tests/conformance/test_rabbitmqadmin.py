"""RabbitMQ's own command line, unmodified, at the management API. Debian: `rabbitmq-server`."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable

import pytest

from support.broker import BrokerProcess

pytestmark = pytest.mark.own_broker

Admin = Callable[..., str]


@pytest.fixture
def admin(start_broker: Callable[..., BrokerProcess]) -> Admin:
    program = shutil.which("rabbitmqadmin")
    if program is None:
        pytest.skip("rabbitmqadmin is not installed")
    host, _, port = start_broker().http.removeprefix("http://").rpartition(":")

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
