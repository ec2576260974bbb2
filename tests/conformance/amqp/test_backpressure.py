"""Publishers are held back and told when the disk is full; fast ones when it is slow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from pamqp import commands as c

from support.amqp_wire import AmqpWire, publish_frames
from support.waiting import eventually

pytestmark = pytest.mark.own_broker
EVERYTHING = str(1 << 60)  # more than any disk has


def set_limit(bootstrap: str, limit: str) -> None:
    """Change the free space that is asked for, while the broker runs."""
    entry = ConfigEntry("disk.free.limit.bytes", limit, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(10)


def connected(broker: Any, **options: Any) -> AmqpWire:
    return AmqpWire(broker.host, broker.amqp_port).handshake(**options).channel(1)


def test_a_publisher_is_told_and_held_while_the_disk_is_full(
    start_broker: Callable[..., Any],
) -> None:
    broker = start_broker()
    publisher, consumer = connected(broker), connected(broker)
    queue = consumer.call(1, c.Queue.Declare(queue="q", durable=True), c.Queue.DeclareOk).queue
    publisher.call(1, c.Confirm.Select(), c.Confirm.SelectOk)
    publisher.publish("", queue, b"before")
    publisher.expect(c.Basic.Ack)
    set_limit(broker.bootstrap, EVERYTHING)
    blocked = publisher.expect(c.Connection.Blocked)
    assert blocked.reason == "low on disk"
    publisher.publish("", queue, b"during")
    publisher.socket.settimeout(1)
    with pytest.raises(TimeoutError):
        publisher.read()
    # Who only consumes is not held, so that the disk can become empty again.
    got = consumer.call(1, c.Basic.Get(queue=queue, no_ack=True), c.Basic.GetOk)
    assert got.body == b"before"
    set_limit(broker.bootstrap, "0")
    publisher.socket.settimeout(30)
    publisher.expect(c.Connection.Unblocked)
    publisher.expect(c.Basic.Ack)
    got = consumer.call(1, c.Basic.Get(queue=queue, no_ack=True), c.Basic.GetOk)
    assert got.body == b"during"


def test_a_new_publisher_is_told_with_its_first_message(start_broker: Callable[..., Any]) -> None:
    broker = start_broker(settings={"disk.free.limit.bytes": EVERYTHING})
    check = f"{broker.http}/api/health/checks/alarms"
    eventually(lambda: httpx.get(check, auth=("guest", "guest")).status_code == 503, within=30)
    for capabilities, told in (({"connection.blocked": True}, True), ({}, False)):
        one = connected(broker, client_properties={"capabilities": capabilities})
        one.call(1, c.Queue.Declare(queue="q", durable=True), c.Queue.DeclareOk)
        one.publish("", "q", b"x")
        if told:
            one.expect(c.Connection.Blocked)
        one.socket.settimeout(1)
        with pytest.raises(TimeoutError):
            one.read()
        one.close()


def test_memory_stays_when_publishers_are_faster_than_the_disk(
    start_broker: Callable[..., Any],
) -> None:
    broker = start_broker()
    one = connected(broker)
    one.call(1, c.Queue.Declare(queue="q", durable=True), c.Queue.DeclareOk)
    broker.forget_peak_memory()
    before = broker.memory_mb()
    block = publish_frames(1, "", "q", b"x" * 100_000) * 10
    for _ in range(300):  # 300 MB
        one.send_raw(block)
    one.call(1, c.Channel.Flow(True), c.Channel.FlowOk)
    grown = broker.peak_memory_mb() - before
    assert grown < 150, f"{grown:.0f} MB at the peak"
    eventually(lambda: _count(one) == 3000, within=20)


def _count(one: AmqpWire) -> int:
    declared = one.call(1, c.Queue.Declare(queue="q", passive=True), c.Queue.DeclareOk)
    return int(declared.message_count)
