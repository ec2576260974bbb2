"""Group settings: bounds that come from the broker's options."""

from __future__ import annotations

import pytest

from penstock.errors import InvalidConfig
from penstock.model.group_config import SETTINGS, check, resolve

LIMITS = {
    "group.consumer.session.timeout.ms": "45000",
    "group.consumer.min.session.timeout.ms": "45000",
    "group.consumer.max.session.timeout.ms": "60000",
    "group.consumer.heartbeat.interval.ms": "5000",
}


def test_defaults_are_the_brokers_options() -> None:
    assert resolve({}, LIMITS).consumer_session_timeout_ms == 45_000
    changed = {**LIMITS, "group.consumer.session.timeout.ms": "50000"}
    assert resolve({}, changed).consumer_session_timeout_ms == 50_000
    own = resolve({"consumer.session.timeout.ms": "55000"}, changed)
    assert own.consumer_session_timeout_ms == 55_000
    assert own.share_auto_offset_reset == "latest"


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("nope", "1", "Unknown group config name: nope"),
        ("consumer.session.timeout.ms", "10", r"group\.consumer\.min\.session\.timeout\.ms"),
        ("consumer.session.timeout.ms", "60001", r"group\.consumer\.max\.session\.timeout\.ms"),
        ("consumer.heartbeat.interval.ms", "4999", r"min\.heartbeat\.interval\.ms"),
        ("share.record.lock.duration.ms", "1", "at least 1000"),
        ("share.record.lock.duration.ms", "60001", r"group\.share\.max\.record\.lock"),
        ("share.delivery.count.limit", "1", "at least 2"),
        ("share.partition.max.record.locks", "99", "at least 100"),
        ("share.isolation.level", "chaos", "read_committed"),
        ("share.auto.offset.reset", "somewhere", "earliest"),
        ("share.auto.offset.reset", "by_duration:P", "earliest"),
        ("share.auto.offset.reset", "by_duration:PT", "earliest"),
    ],
)
def test_what_is_out_of_bounds_is_refused_in_words(name: str, text: str, words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        check({name: text}, LIMITS)


@pytest.mark.parametrize(
    "text", ["earliest", "latest", "by_duration:PT1H", "by_duration:P1DT2H3M4.5S"]
)
def test_a_share_group_may_start_in_many_places(text: str) -> None:
    check({"share.auto.offset.reset": text}, LIMITS)


def test_heartbeats_must_fit_into_a_session() -> None:
    limits = {"group.consumer.min.session.timeout.ms": "1"}
    with pytest.raises(InvalidConfig, match=r"must be greater than consumer\.heartbeat"):
        check({"consumer.session.timeout.ms": "5000"}, limits)


def test_every_setting_is_explained() -> None:
    assert all(setting.doc for setting in SETTINGS.values())
