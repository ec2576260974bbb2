"""Servers that can do less than ours: what is not there is said, and by name.

The suite itself runs against any other server too: PENSTOCK_TEST_BOOTSTRAP=host:port pytest
tests/library.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock
from penstock.client.features import Features

NOWHERE = "127.0.0.1:1"


def test_a_server_without_a_door_for_queues_says_so() -> None:
    with (
        penstock.open(None, kafka="127.0.0.1:0") as server,
        penstock.connect(server.kafka or "", amqp=NOWHERE, http=NOWHERE) as mq,
    ):
        mq.publish("log", "streams work", partition=0)
        for call in (
            lambda: mq.queue("work"),
            lambda: mq.exchange("events"),
            lambda: mq.request("rpc", "x"),
            lambda: mq.worker("work")(lambda message: None),
        ):
            with pytest.raises(penstock.NotSupported, match=r"AMQP door.*connect\(amqp="):
                call()
        with pytest.raises(penstock.NotSupported, match=r"HTTP door.*connect\(http="):
            mq.queues()


def test_queues_work_without_the_http_door_but_for_what_needs_it() -> None:
    with (
        penstock.open(None, kafka="127.0.0.1:0", amqp="127.0.0.1:0") as server,
        penstock.connect(server.kafka or "", amqp=server.amqp, http=NOWHERE) as mq,
    ):
        queue = mq.queue("work")
        queue.publish("a")
        stats = queue.stats()  # AMQP tells two of the figures
        assert (stats.ready, stats.in_flight) == (1, None)
        message = queue.get(20)
        assert message is not None
        message.ack()
        with pytest.raises(penstock.NotSupported, match="HTTP door"):
            queue.peek()
        with pytest.raises(penstock.NotSupported, match="HTTP door"):
            queue.redrive()


@pytest.mark.parametrize(
    "call", ["transaction", "delete_records", "add_partitions", "alter_topic", "delete_group"]
)
def test_calls_that_a_server_does_not_know_are_refused_by_name(call: str) -> None:
    old = Features({0: 3, 1: 4, 3: 5, 18: 0})
    with pytest.raises(penstock.NotSupported, match=rf"{call}\(\)"):
        old.require(call)
    assert not old.idempotence
    assert not old.new_groups
    assert not old.share_groups


def test_groups_of_the_old_kind_can_be_asked_for(tmp_path: Path) -> None:
    with (
        penstock.open(
            tmp_path,
            kafka="127.0.0.1:0",
            num_partitions=2,
            group_initial_rebalance_delay_ms=0,
        ) as server,
        penstock.connect(server.kafka or "", settings={"group.protocol": "classic"}) as mq,
    ):
        mq.publish_many("log", ["a", "b"], key_of=lambda text: text)
        with mq.subscribe("log", group="g") as messages:
            found = {next(messages).text, next(messages).text}
            assert found == {"a", "b"}
            assert len(messages.assignment) == 2
        with mq.subscribe("log", group="g", idle_timeout=1) as messages:
            assert list(messages) == []
