"""What `penstock doctor` finds."""

from __future__ import annotations

import os
import socket
import sqlite3
import time
from pathlib import Path

import pytest

from penstock.cli.checkup import Finding, examine
from penstock.config import BrokerConfig
from penstock.options.option import Address
from support.command import penstock


def findings(config: BrokerConfig) -> dict[str, Finding]:
    return {finding.check: finding for finding in examine(config)}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    directory = tmp_path / "data"
    directory.mkdir()
    return directory


def test_a_new_data_directory_is_fine(tmp_path: Path) -> None:
    found = findings(BrokerConfig(data=tmp_path / "new"))
    assert found["data directory"].verdict == "good"
    assert "fdatasync takes" in found["disk sync"].found
    assert not (tmp_path / "new").exists(), "doctor only looks"


def test_a_taken_port_is_noted() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        found = findings(BrokerConfig(memory=True, kafka=Address("127.0.0.1", port)))
    assert found["kafka port"].verdict == "note"
    assert "address already in use" in found["kafka port"].found


def test_a_damaged_catalogue_is_bad(data: Path) -> None:
    (data / "catalogue.sqlite").write_bytes(b"SQLite format 3\0" + b"rubbish" * 1000)
    assert findings(BrokerConfig(data=data))["catalogue"].verdict == "bad"


def test_a_sound_catalogue_is_good(data: Path) -> None:
    connection = sqlite3.connect(data / "catalogue.sqlite")
    connection.execute("CREATE TABLE topics (name TEXT)")
    connection.commit()
    connection.close()
    assert findings(BrokerConfig(data=data))["catalogue"].verdict == "good"


def test_a_clean_stop_is_seen(data: Path) -> None:
    (data / "orders-0").mkdir()
    assert "not stopped cleanly" in findings(BrokerConfig(data=data))["data directory"].found
    (data / ".kafka_cleanshutdown").write_text("{}")
    found = findings(BrokerConfig(data=data))["data directory"].found
    assert found.endswith("1 partitions on disk, stopped cleanly")


def test_a_clock_behind_the_newest_segment_is_noted(data: Path) -> None:
    (data / "orders-0").mkdir()
    segment = data / "orders-0" / "00000000000000000000.log"
    segment.touch()
    os.utime(segment, (time.time() + 7200, time.time() + 7200))
    assert findings(BrokerConfig(data=data))["clock"].verdict == "note"


def test_a_mistyped_variable_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_NUM_PARTITION", "3")
    found = findings(BrokerConfig(memory=True))["environment"]
    assert (found.verdict, found.advice) == ("note", "Is it PENSTOCK_NUM_PARTITIONS?")


def test_doctor_prints_for_people_and_for_programs(tmp_path: Path) -> None:
    words = penstock("doctor", "--data", tmp_path / "data")
    assert words.code == 0
    assert "disk sync" in words.out
    checks = penstock("doctor", "--data", tmp_path / "data", "--json").json
    assert {check["verdict"] for check in checks} <= {"good", "note"}


def test_doctor_ends_with_one_when_a_broker_could_not_start(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file, not a directory")
    outcome = penstock("doctor", "--data", tmp_path / "data")
    assert outcome.code == 1
    assert "checks found something that stops a broker" in outcome.err
