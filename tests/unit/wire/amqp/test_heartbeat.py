"""Heartbeats are a matter of two clocks."""

from __future__ import annotations

from penstock.wire.amqp.heartbeat import Heartbeat


def test_we_speak_after_half_the_interval_of_silence() -> None:
    heartbeat = Heartbeat(10, now=100.0)
    assert not heartbeat.is_due(104.9)
    assert heartbeat.is_due(105.0)
    heartbeat.sent_at = 105.0
    assert not heartbeat.is_due(109.9)


def test_a_peer_is_given_up_after_twice_the_interval() -> None:
    heartbeat = Heartbeat(10, now=100.0)
    assert not heartbeat.is_lost(120.0)
    assert heartbeat.is_lost(120.1)
    heartbeat.received_at = 119.0
    assert not heartbeat.is_lost(130.0)


def test_an_interval_of_zero_turns_heartbeats_off() -> None:
    heartbeat = Heartbeat(0, now=0.0)
    assert not heartbeat.is_due(1e9)
    assert not heartbeat.is_lost(1e9)
    assert heartbeat.check_every_s == 0
