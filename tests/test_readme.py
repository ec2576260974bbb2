"""Everything the README tells people to type is typed here, in the order in which they would.

Commands run in a copy of the tree and a virtual environment of their own, as `pip install .` says.
The packages Penstock needs are lent to it from this environment, so that no network is asked.
The addresses 127.0.0.1:9092, :5672 and :8080 are replaced by free ones; all else is as written.
The example of Spark runs in tests/spark.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import venv
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(bash|python)\n(.*?)^```$", README, flags=re.M | re.S)
INLINE = re.findall(r"`(penstock [^`]*)`", README)
RUN, BY_HAND = (text for language, text in BLOCKS if language == "bash")
KAFKA_EXAMPLE, AMQP_EXAMPLE, *LIBRARY, _ = (
    text for language, text in BLOCKS if language == "python"
)
SAYS = {
    "@mq.worker": ["mail to anna@example.org"],
    "mq.subscribe": ["9 clicks", "[1, 4, 7]"],
    "def test_": ["1 passed"],
    "@mq.reply": ["4 euros"],
    "Outbox": ["1 published"],
}  # what an example of the library prints, by a word that is in it

PLUGIN = "penstock.testing.plugin"

pytestmark = pytest.mark.timeout(900)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def address() -> str:
    return f"127.0.0.1:{_free_port()}"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what a clone would have."""
    copy = tmp_path_factory.mktemp("readme") / "penstock"
    leave = shutil.ignore_patterns(".git", ".venv", ".*_cache", ".hypothesis", "penstock-data")
    shutil.copytree(ROOT, copy, ignore=leave)
    return copy


@pytest.fixture(scope="module")
def environment(checkout: Path, address: str) -> dict[str, str]:
    """A fresh virtual environment, first on the path."""
    home = checkout.parent / "env"
    venv.create(home, with_pip=True)
    scheme = {"base": str(home), "platbase": str(home)}
    site = Path(sysconfig.get_path("purelib", "venv", scheme))
    (site / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PENSTOCK_", "PYTHONPATH"))}
    return {
        **kept,
        "PATH": f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "VIRTUAL_ENV": str(home),
        "PIP_NO_BUILD_ISOLATION": "0",  # pip reads "no" of a "no": the builder is lent as well
        "PIP_NO_INDEX": "1",
        "PENSTOCK_KAFKA": address,
        "PENSTOCK_AMQP": f"127.0.0.1:{_free_port()}",
        "PENSTOCK_HTTP": f"127.0.0.1:{_free_port()}",
        "PENSTOCK_BOOTSTRAP": address,
    }


def _bash(script: str, cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", script],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )


def test_make_run_shows_everything_and_ends_well() -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PENSTOCK_", "PYTHONPATH"))}
    done = _bash(RUN, ROOT, env)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "everything came true" in done.stdout


def test_the_commands_and_the_example_work_as_written(
    checkout: Path, environment: dict[str, str], address: str
) -> None:
    assert "127.0.0.1:9092" in KAFKA_EXAMPLE
    (checkout / "example.py").write_text(KAFKA_EXAMPLE.replace("127.0.0.1:9092", address))
    amqp_port = environment["PENSTOCK_AMQP"].split(":")[1]
    assert '("127.0.0.1")' in AMQP_EXAMPLE
    (checkout / "example_amqp.py").write_text(
        AMQP_EXAMPLE.replace('("127.0.0.1")', f'("127.0.0.1", {amqp_port})')
    )
    host, port = address.split(":")
    wait = f"until (exec 3<>/dev/tcp/{host}/{port}) 2>/dev/null; do sleep 0.1; done"
    lines = []
    for line in BY_HAND.splitlines():
        lines.append(line)
        if line.endswith("&"):  # a person takes longer to type the next line than it to start
            lines += ["broker=$!", "trap 'kill $broker' EXIT", wait]
    lines += ["python example.py", "python example_amqp.py"]
    lines += ["trap - EXIT", "kill $broker", "wait $broker"]
    done = _bash("\n".join(lines), checkout, environment)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-5000:]
    assert "penstock ready kafka=" in done.stdout
    assert "\nhello\n" in done.stdout
    assert "b'user-1' b'hello'" in done.stdout
    assert "b'paint the fence'" in done.stdout
    assert (checkout / "penstock-data").is_dir()


@pytest.mark.parametrize("command", sorted(set(INLINE)))
def test_every_command_in_the_text_works(
    command: str, checkout: Path, environment: dict[str, str], address: str
) -> None:
    serve = "penstock serve --memory"
    module = command.replace("penstock ", f"{sys.executable} -m penstock ", 1)
    env = {**environment, "PYTHONPATH": str(ROOT / "src")}
    broker = subprocess.Popen(
        [sys.executable, "-m", *serve.split()],
        cwd=checkout,
        env=env,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert broker.stdout is not None
        assert broker.stdout.readline().startswith("penstock ready ")
        if command != serve:
            done = _bash(module, checkout, env)
            assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
            assert done.stdout
    finally:
        broker.send_signal(signal.SIGTERM)
        code = broker.wait(30)
        broker.stdout.close()
    assert code == 0


def test_there_are_five_examples_of_the_library_of_about_ten_lines() -> None:
    assert len(LIBRARY) == len(SAYS) == 5
    assert all(len(text.strip().splitlines()) <= 13 for text in LIBRARY)


@pytest.mark.parametrize("word", SAYS)
def test_an_example_of_the_library_works_as_written(word: str, tmp_path: Path) -> None:
    (text,) = (
        text for text in LIBRARY if word in text and ("def test_" in text) == (word == "def test_")
    )
    (tmp_path / "test_example.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "test_example.py"]
    if word == "def test_":
        known = any(e.value == PLUGIN for e in entry_points(group="pytest11"))
        command[1:] = ["-m", "pytest", "-q", *([] if known else ["-p", PLUGIN]), "test_example.py"]
    env = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
    example = subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**env, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    watchdog = threading.Timer(120, example.kill)
    watchdog.start()
    said = ""
    try:
        assert example.stdout is not None
        for line in example.stdout:
            said += line
            if "mq.run()" in text and SAYS[word][-1] in said:
                example.send_signal(signal.SIGTERM)
        code = example.wait(60)
    finally:
        watchdog.cancel()
        example.kill()
        example.stdout.close()
    assert code == 0, said
    assert [words for words in SAYS[word] if words not in said] == [], said
