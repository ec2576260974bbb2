"""Topics of queues and queues of topics."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.queue_names import cut_name, queue_of_topic, topic_of_queue
from penstock.model.topic import check_topic_name, is_internal


@pytest.mark.parametrize(
    ("vhost", "queue", "topic"),
    [
        ("/", "orders", "orders"),
        ("/", "celery@host.celery.pidbox", "celery_x40host.celery.pidbox"),
        ("/", "a/b c", "a_x2Fb_x20c"),
        ("/", "a_x2Fb", "a_x5Fx2Fb"),
        ("/", ".", "_x2E"),
        ("/", "..", "_x2E."),
        ("/", "__consumer_offsets", "_x5F_consumer_offsets"),
        ("shop", "orders", "shop_xV_orders"),
        ("/shop", "ä", "_x2Fshop_xV__xC3_xA4"),
        ("shop", "xV:", "shop_xV_xV_x3A"),
    ],
)
def test_each_queue_has_a_topic(vhost: str, queue: str, topic: str) -> None:
    assert topic_of_queue(vhost, queue) == topic
    assert queue_of_topic(topic) == (vhost, queue)


NAMES = st.text(min_size=1, max_size=40) | st.text("_x25F/.V-", min_size=1, max_size=40)


@given(NAMES, NAMES)
def test_the_name_of_a_topic_is_legal_and_can_be_read_back(vhost: str, queue: str) -> None:
    topic = topic_of_queue(vhost, queue)
    check_topic_name(topic)
    assert not is_internal(topic)
    assert queue_of_topic(topic) in ((vhost, queue), None)
    if "_xL_" not in topic:
        assert queue_of_topic(topic) == (vhost, queue)


def test_names_too_long_for_a_topic_are_told_apart() -> None:
    one, other = "ü" * 200 + "1", "ü" * 200 + "2"
    assert topic_of_queue("/", one) != topic_of_queue("/", other)
    assert len(topic_of_queue("/", one)) <= 249
    assert queue_of_topic(topic_of_queue("/", one)) is None
    assert cut_name("/", "a.b") != cut_name("/", "a_b")


def test_a_topic_that_no_queue_would_have_is_no_queue() -> None:
    assert queue_of_topic("__consumer_offsets") is None
    assert queue_of_topic("a_xZZ") is None
