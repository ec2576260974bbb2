"""What every command has in common: help that teaches, exit codes, sentences, a quick start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import __version__
from penstock.cli.main import COMMANDS
from support.command import environment, penstock

NOBODY = "127.0.0.1:1"  # nothing listens there
SUBCOMMANDS = [
    *(["topic", verb] for verb in ("create", "list", "describe", "alter", "delete")),
    *(["group", verb] for verb in ("list", "describe", "reset", "delete")),
    *(
        ["queue", verb]
        for verb in ("declare", "list", "describe", "delete", "purge", "peek", "get", "publish")
    ),
    *(["dlq", verb] for verb in ("list", "peek", "redrive")),
    *(["exchange", verb] for verb in ("declare", "list", "delete")),
    *(["binding", verb] for verb in ("add", "list", "remove")),
    *(["policy", verb] for verb in ("set", "list", "delete")),
    *(["vhost", verb] for verb in ("add", "list", "delete")),
    *(["user", verb] for verb in ("add", "list", "password", "permit", "delete")),
    *(["pipeline", verb] for verb in ("run", "list", "status", "stop")),
]
SUBCOMMANDS += [[name] for name in COMMANDS if name not in {words[0] for words in SUBCOMMANDS}]


def test_the_version_is_printed() -> None:
    outcome = penstock("--version")
    assert (outcome.code, outcome.out, outcome.err) == (0, f"penstock {__version__}\n", "")


def test_help_lists_every_command_and_shows_how_to_start() -> None:
    outcome = penstock("--help")
    assert outcome.code == 0
    for name in COMMANDS:
        assert f"\n  {name} " in outcome.out
    assert "penstock topic create orders" in outcome.out


@pytest.mark.parametrize("command", SUBCOMMANDS, ids=" ".join)
def test_help_of_a_command_teaches_by_example(command: list[str]) -> None:
    outcome = penstock(*command, "--help")
    assert outcome.code == 0
    assert "Example" in outcome.out
    assert f"penstock {' '.join(command)}" in outcome.out.split("Example", 1)[1]


@pytest.mark.parametrize("command", [["nonsense"], ["topic", "nonsense"], ["serve", "--nonsense"]])
def test_wrong_usage_ends_with_two(command: list[str]) -> None:
    outcome = penstock(*command)
    assert outcome.code == 2
    assert "nonsense" in outcome.err
    assert outcome.out == ""


@pytest.mark.parametrize(
    "command",
    [
        ["topic", "list"],
        ["topic", "delete", "orders", "--yes"],
        ["group", "describe", "billing"],
        ["produce", "orders", "-m", "hello"],
        ["consume", "orders"],
        ["bench"],
    ],
    ids=" ".join,
)
def test_without_a_broker_a_command_says_so_and_ends_with_one(command: list[str]) -> None:
    outcome = penstock(*command, "--bootstrap", NOBODY)
    assert outcome.code == 1
    assert outcome.out == ""
    assert outcome.err == (
        f"penstock: no broker answers at {NOBODY}; start one with `penstock serve`\n"
    )


@pytest.mark.parametrize("bootstrap", ["nowhere", "127.0.0.1:port", ":9092"])
def test_a_bootstrap_that_is_no_address_is_wrong_usage(bootstrap: str) -> None:
    outcome = penstock("topic", "list", "--bootstrap", bootstrap)
    assert outcome.code == 2
    assert "is not an address like 127.0.0.1:9092" in outcome.err


def test_a_host_that_nobody_knows_is_told_at_once() -> None:
    outcome = penstock("topic", "list", "--bootstrap", "no such host:9092")
    assert outcome.code == 1
    assert outcome.err == "penstock: nobody knows where no such host:9092 is; see --bootstrap\n"


@pytest.mark.parametrize(
    "command",
    [
        ["topic", "create", "orders", ""],
        ["produce", ""],
        ["produce", "orders", "--key-separator", ""],
        ["consume", "orders", "--group", ""],
        ["group", "describe", ""],
        ["group", "reset", "billing", "--topic", "", "--to", "earliest"],
        ["queue", "declare", ""],
        ["queue", "list", "--vhost", ""],
        ["exchange", "declare", ""],
        ["vhost", "add", ""],
    ],
    ids=repr,
)
def test_an_empty_name_is_wrong_usage(command: list[str]) -> None:
    outcome = penstock(*command, env={"PENSTOCK_BOOTSTRAP": NOBODY, "PENSTOCK_HTTP": NOBODY})
    assert outcome.code == 2
    assert "cannot be empty" in outcome.err


@pytest.mark.parametrize(
    "command",
    [
        ["produce", "orders", "-m", "x", "--compression", "zip"],
        ["produce", "orders", "-m", "x", "--partition", "99999999999"],
        ["topic", "create", "orders", "--partitions", "99999999999999999999"],
        ["topic", "create", "orders", "--replication-factor", "99999"],
    ],
    ids=" ".join,
)
def test_what_no_broker_could_do_is_wrong_usage(command: list[str]) -> None:
    outcome = penstock(*command, bootstrap=NOBODY)
    assert outcome.code == 2
    assert "Invalid value" in outcome.err


def test_an_argument_that_is_no_text_is_refused_in_a_sentence() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "queue", "declare", b"a\xff"],
        capture_output=True,
        text=True,
        env=environment(PENSTOCK_HTTP=NOBODY),
        check=False,
    )
    assert (done.returncode, done.stderr) == (2, "penstock: an argument is not UTF-8\n")


def test_output_that_cannot_be_written_is_told_in_a_sentence() -> None:
    with Path(os.devnull).open("rb") as read_only:
        done = subprocess.run(
            [sys.executable, "-m", "penstock", "--version"],
            stdout=read_only,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "penstock: cannot write the output: Bad file descriptor\n"


def test_closed_streams_are_no_trouble() -> None:
    script = f'"{sys.executable}" -m penstock --version <&- >&-'
    done = subprocess.run(["bash", "-c", script], env=environment(), check=False)
    assert done.returncode == 0


def test_nothing_is_deleted_when_nobody_can_be_asked() -> None:
    outcome = penstock("topic", "delete", "orders", "--bootstrap", NOBODY)
    assert outcome.code == 2
    assert "add --yes" in outcome.err


def test_serve_refuses_a_wrong_option_with_a_sentence() -> None:
    outcome = penstock("serve", "--num-partitions", "0")
    assert outcome.code == 2
    assert outcome.err == "penstock: num.partitions cannot be 0: it must be 1 or more.\n"


def test_serve_refuses_a_wrong_variable_with_a_sentence() -> None:
    outcome = penstock("serve", env={"PENSTOCK_DURABILITY": "hope"})
    assert outcome.code == 2
    assert outcome.err == "penstock: durability cannot be 'hope': it must be fsync or os.\n"


def test_serve_shows_every_option_of_the_broker() -> None:
    from penstock.config import OPTIONS

    shown = penstock("serve", "--help-all").out
    for option in OPTIONS.values():
        assert f"\n  {option.flag} [" in shown


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_the_commands(shell: str) -> None:
    completed = penstock(
        env={
            "_PENSTOCK_COMPLETE": f"complete_{shell}",
            "_TYPER_COMPLETE_ARGS": "penstock to",
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
            "COMP_WORDS": "penstock to",
            "COMP_CWORD": "1",
        }
    )
    assert "topic" in completed.out


def test_a_simple_command_imports_nothing_that_draws_or_serves() -> None:
    """The answer must come in about 150 ms; what is not imported costs nothing."""
    heavy = {
        "rich",
        "asyncio",
        "confluent_kafka",
        "penstock.config",
        "penstock.app",
        "penstock.process",
        "kio",
    }
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "penstock", "--version"],
        capture_output=True,
        text=True,
        env=environment(),
        check=True,
    )
    imported = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines()}
    assert not heavy & imported


def test_a_client_command_does_not_import_the_broker() -> None:
    heavy = {
        "rich",
        "pydantic",
        "penstock.config",
        "penstock.app",
        "penstock.process",
        "kio",
        "uvloop",
        "aiokafka",
    }
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "penstock", "topic", "list", "-b", NOBODY],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    imported = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines()}
    assert "confluent_kafka.admin" in imported
    assert not heavy & imported
