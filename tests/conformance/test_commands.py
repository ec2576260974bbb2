"""The commands of `penstock` against a running broker, as a person or a script uses them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support.command import Outcome, environment, penstock
from support.sharing import Sharer
from support.waiting import eventually

Run = Callable[..., Outcome]
Name = Callable[[str], str]


@pytest.fixture
def run(bootstrap: str) -> Run:
    def command(*arguments: str | Path, stdin: str | bytes = b"") -> Outcome:
        return penstock(*arguments, bootstrap=bootstrap, stdin=stdin)

    return command


@pytest.fixture
def topic(run: Run, name: Name) -> str:
    """A topic with two partitions and the values 0 to 9."""
    topic = name("cli")
    assert run("topic", "create", topic, "--partitions", "2").code == 0
    assert run("produce", topic, stdin="".join(f"{n}\n" for n in range(10))).code == 0
    return topic


def test_a_topic_is_created_listed_altered_described_and_deleted(run: Run, name: Name) -> None:
    topic = name("orders")
    created = run("topic", "create", topic, "-p", "3", "-c", "retention.ms=3600000")
    assert (created.code, created.out) == (0, "")
    assert created.err == f"created {topic} with 3 partitions\n"
    listed = {row["name"]: row for row in run("topic", "list", "--json").json}
    assert listed[topic] == {"name": topic, "partitions": 3, "replicas": 1}

    assert run("topic", "alter", topic, "-p", "4", "-c", "retention.ms=7200000").code == 0
    [described] = run("topic", "describe", topic, "--json").json
    assert [part["partition"] for part in described["partitions"]] == [0, 1, 2, 3]
    assert described["config"] == {"retention.ms": "7200000"}
    assert run("topic", "alter", topic, "--unset", "retention.ms").code == 0
    assert run("topic", "describe", topic, "--json").json[0]["config"] == {}

    assert run("topic", "delete", topic, "--yes").err == f"deleted {topic}\n"
    assert topic not in run("topic", "list").out


def test_creating_a_topic_again_fails_unless_it_may_be_there(run: Run, topic: str) -> None:
    again = run("topic", "create", topic)
    assert (again.code, again.err) == (1, f"penstock: cannot create {topic}: it exists already\n")
    assert run("topic", "create", topic, "--if-not-exists").code == 0


def test_what_can_be_done_of_several_is_done_and_the_rest_is_told(
    run: Run, topic: str, name: Name
) -> None:
    others = [name("one"), name("two")]
    created = run("topic", "create", others[0], topic, "a b", others[1], "--partitions", "1")
    assert created.code == 1
    assert created.err.splitlines()[:3] == [
        f"created {others[0]} with 1 partition",
        f"created {others[1]} with 1 partition",
        f"penstock: cannot create {topic}: it exists already",
    ]
    assert "\npenstock: cannot create a b: " in created.err
    deleted = run("topic", "delete", others[0], name("missing"), others[1], "--yes")
    assert deleted.code == 1
    assert deleted.err.startswith(f"deleted {others[0]}\ndeleted {others[1]}\npenstock: cannot")


def test_the_topic_decides_what_is_too_large(run: Run, name: Name) -> None:
    large = name("large")
    line = "x" * 3_000_000
    run("topic", "create", large, "--config", "max.message.bytes=5000000")
    assert run("produce", large, stdin=line).code == 0
    assert run("consume", large).out == line + "\n"
    run("topic", "alter", large, "--unset", "max.message.bytes")
    refused = run("produce", large, stdin=line)
    assert refused.code == 1
    assert "larger than the topic's max.message.bytes" in refused.err


def test_bytes_that_are_no_text_can_be_given_as_arguments(run: Run, name: Name) -> None:
    topic = name("bytes")
    run("topic", "create", topic)
    text = os.fsdecode(b"\xff\xfe")
    assert run("produce", topic, "-m", text, "-k", text, "-H", f"a={text}").code == 0
    (message,) = map(json.loads, run("consume", topic, "--json").lines)
    blob = {"base64": "//4="}
    assert (message["key"], message["value"], message["headers"]) == (blob, blob, [["a", blob]])


def test_what_the_broker_refuses_is_told_in_a_sentence(run: Run, topic: str) -> None:
    refused = run("topic", "alter", topic, "--config", "no.such.setting=1")
    assert refused.code == 1
    assert refused.err.startswith(f"penstock: cannot change {topic}: ")
    assert "no.such.setting" in refused.err
    assert "Traceback" not in refused.err


def test_a_topic_that_is_not_there_is_neither_shown_nor_created(run: Run, name: Name) -> None:
    missing = name("missing")
    for command in (["topic", "describe", missing], ["consume", missing]):
        outcome = run(*command)
        assert (outcome.code, outcome.out) == (1, "")
        assert f"there is no topic {missing}" in outcome.err
    assert missing not in run("topic", "list").out


def test_lines_come_back_as_they_were_sent(run: Run, topic: str) -> None:
    assert sorted(run("consume", topic).lines) == [str(n) for n in range(10)]


def test_messages_keep_keys_headers_and_bytes_through_a_pipe(run: Run, name: Name) -> None:
    first, second = name("a"), name("b")
    for topic in (first, second):
        run("topic", "create", topic, "-p", "1")
    sent = {"key": "ké", "value": {"base64": "AP8="}, "headers": [["h", "1"], ["h", None]]}
    sent["timestamp"] = int(time.time() * 1000)
    assert run("produce", first, "--json", stdin=json.dumps(sent)).code == 0
    copy = run("produce", second, "--json", stdin=run("consume", first, "--json").out)
    assert copy.code == 0
    received = run("consume", second, "--json").json
    assert {field: received[field] for field in sent} == sent


def test_a_receipt_says_where_each_message_went(run: Run, name: Name) -> None:
    topic = name("receipts")
    run("topic", "create", topic, "-p", "1")
    sent = run("produce", topic, "-m", "a", "-m", "b", "--key", "k", "--receipts")
    receipts = [json.loads(line) for line in sent.lines]
    assert [(r["partition"], r["offset"]) for r in receipts] == [(0, 0), (0, 1)]


def test_a_line_can_carry_its_key(run: Run, name: Name) -> None:
    topic = name("keyed")
    run("topic", "create", topic, "-p", "1")
    run("produce", topic, "-K", ":", "-H", "h=1", stdin="a:1\nb:2:3\n")
    assert run("consume", topic, "-K", "=").lines == ["a=1", "b=2:3"]
    bad = run("produce", topic, "-K", ":", stdin="c:4\nnokey\n")
    assert (bad.code, bad.err) == (1, "penstock: line 2 has no ':' between key and value\n")
    assert run("consume", topic).lines == ["1", "2:3", "4"], "what came before was sent"


def test_reading_can_begin_at_an_offset_from_the_end_or_at_a_time(run: Run, name: Name) -> None:
    topic = name("where")
    run("topic", "create", topic, "-p", "1")
    run("produce", topic, stdin="old\n")
    time.sleep(0.05)
    between = int(time.time() * 1000)
    time.sleep(0.05)
    run("produce", topic, stdin="new\nnewest\n")
    assert run("consume", topic, "--offset", "1").lines == ["new", "newest"]
    assert run("consume", topic, "--offset", "-1").lines == ["newest"]
    assert run("consume", topic, "--timestamp", str(between)).lines == ["new", "newest"]
    assert run("consume", topic, "-n", "2").lines == ["old", "new"]
    assert run("consume", topic, "--partition", "7").code == 1


def test_a_group_goes_on_where_it_stopped(run: Run, topic: str, name: Name) -> None:
    group = name("group")
    first = run("consume", topic, "--group", group, "-n", "4").lines
    rest = run("consume", topic, "--group", group).lines
    assert (len(first), len(rest)) == (4, 6)
    assert sorted(first + rest) == [str(n) for n in range(10)]


def test_a_group_is_described_reset_and_deleted(run: Run, topic: str, name: Name) -> None:
    group = name("group")
    run("consume", topic, "--group", group)
    assert group in [row["group"] for row in run("group", "list", "--json").json]
    described = run("group", "describe", group, "--json").json
    assert described["state"] == "Empty"
    assert [row["lag"] for row in described["offsets"]] == [0, 0]

    moved = run("group", "reset", group, "--topic", topic, "--to", "earliest", "--json").json
    assert [row["offset"] for row in moved] == [0, 0]
    assert (
        sum(row["lag"] for row in run("group", "describe", group, "--json").json["offsets"]) == 10
    )
    run("group", "reset", group, "--topic", f"{topic}:0", "--to", "latest")
    assert 0 in [row["lag"] for row in run("group", "describe", group, "--json").json["offsets"]]

    assert run("group", "delete", group, "--yes").code == 0
    gone = run("group", "describe", group)
    assert gone.code == 1
    assert f"there is no group {group}" in gone.err


def test_a_group_that_has_members_is_neither_moved_nor_deleted(
    run: Run, bootstrap: str, topic: str, name: Name
) -> None:
    group = name("group")
    member = subprocess.Popen(
        [sys.executable, "-m", "penstock", "consume", topic, "-f", "-g", group, "-b", bootstrap],
        env=environment(),
    )
    try:
        eventually(
            lambda: run("group", "describe", group, "--json").out.count(f'"{topic}-') == 2,
            what="a member",
            within=60,
        )
        for command in (
            ["group", "reset", group, "--topic", topic, "--to", "earliest"],
            ["group", "delete", group, "--yes"],
        ):
            refused = run(*command)
            assert refused.code == 1
            assert "it still has members; stop them first" in refused.err
    finally:
        member.send_signal(signal.SIGINT)
        assert member.wait(30) == 0


def test_a_reader_that_has_seen_enough_ends_the_command_quietly(
    run: Run, bootstrap: str, topic: str
) -> None:
    run("produce", topic, stdin="x" * 100 + "\n" * 50_000)
    reader = subprocess.Popen(
        [sys.executable, "-m", "penstock", "consume", topic, "-b", bootstrap],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    assert reader.stdout is not None
    assert reader.stderr is not None
    reader.stdout.readline()
    reader.stdout.close()
    assert reader.wait(timeout=20) == 0
    assert reader.stderr.read() == b""
    reader.stderr.close()


def test_following_shows_what_comes_until_it_is_interrupted(
    run: Run, bootstrap: str, topic: str
) -> None:
    command = [sys.executable, "-m", "penstock", "consume", topic, "-f", "-b", bootstrap]
    follower = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), text=True
    )
    assert follower.stdout is not None
    assert follower.stderr is not None
    lines: list[str] = []
    thread = threading.Thread(target=lambda: lines.extend(follower.stdout or ()))
    thread.start()
    deadline = time.monotonic() + 20
    while not lines and time.monotonic() < deadline:  # it starts at the end, whenever that is
        run("produce", topic, "-m", "later")
    assert set(lines) == {"later\n"}
    follower.send_signal(signal.SIGINT)
    assert follower.wait(timeout=20) == 0
    thread.join()
    assert follower.stderr.read() == ""
    follower.stdout.close()
    follower.stderr.close()


def test_bench_measures_and_cleans_up(run: Run) -> None:
    measured = run("bench", "-n", "5000", "--rate", "200", "--seconds", "0.5", "--json").json
    results = {result["measurement"]: result for result in measured["results"]}
    assert results["produce"]["messages_per_s"] > 0
    assert results["consume"]["messages"] == 5000
    assert 0 < results["latency"]["p50"] <= results["latency"]["max"]
    assert "penstock-bench" not in run("topic", "list").out


def test_bench_prints_a_table_for_people(run: Run) -> None:
    shown = run("bench", "produce", "-n", "1000")
    assert shown.code == 0
    assert shown.lines[0].split() == ["MEASUREMENT", "MESSAGES", "SECONDS", "MESSAGES/S", "BYTES/S"]
    assert len(shown.lines) == 2


@pytest.mark.own_broker
def test_a_share_group_is_listed_described_reset_and_deleted(
    run: Run, topic: str, name: Name, bootstrap: str
) -> None:
    group = name("sharers")
    assert run("group", "alter", group, "-c", "share.auto.offset.reset=earliest").code == 0
    wrong = run("group", "alter", group, "-c", "share.auto.offset.reset=sometimes")
    assert wrong.code == 1
    assert "earliest, latest, or by_duration" in wrong.err
    assert run("group", "alter", group).code == 2
    with Sharer(bootstrap, group, [topic]) as member:
        seen = len(member.drain(10))
        described = run("group", "describe", group, "--json").json
        assert [described["protocol"], described["state"]] == ["Share", "Stable"]
        assert len(described["members"]) == 1
        refused = run("group", "reset", group, "--topic", topic, "--to", "earliest")
        assert refused.code == 1
        assert "it still has members" in refused.err
    listed = {row["group"]: row["protocol"] for row in run("group", "list", "--json").json}
    assert listed[group] == "Share"
    eventually(lambda: run("group", "describe", group, "--json").json["state"] == "Empty")
    offsets = run("group", "describe", group, "--json").json["offsets"]
    assert sum(row["lag"] for row in offsets) == 0
    moved = run("group", "reset", group, "--topic", topic, "--to", "earliest", "--json").json
    assert {row["offset"] for row in moved} == {0}
    with Sharer(bootstrap, group, [topic]) as member:
        assert len(member.drain(seen)) == seen
    assert run("group", "delete", group, "--yes").code == 0
    assert f"there is no group {group}" in run("group", "describe", group).err


def test_the_tab_key_offers_topics_and_groups_of_the_broker(
    run: Run, bootstrap: str, topic: str, name: Name
) -> None:
    group = name("group")
    run("consume", topic, "--group", group)

    def offered(typed: str) -> list[str]:
        words = {"COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
        env = {"_PENSTOCK_COMPLETE": "complete_bash", **words}
        return penstock(bootstrap=bootstrap, env=env).lines

    assert offered(f"penstock consume {topic[:-2]}") == [topic]
    assert offered(f"penstock group describe {group[:-2]}") == [group]
