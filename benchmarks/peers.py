"""The brokers that are compared: ours, librdkafka's mock, and Apache Kafka.

Each is a context manager that starts a process on a free port of 127.0.0.1, yields its bootstrap
address and process id, and stops it. Apache Kafka comes from Maven (needs `mvn` and Java 17); where
that cannot be had, `apache_kafka` says so and the comparison is left out of the report.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

KAFKA_VERSION = "4.3.1"
ROOT = Path(__file__).parent.parent
HOME = Path.home() / ".cache" / "penstock-benchmarks"
CACHE = HOME / f"kafka-{KAFKA_VERSION}"

POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>bench</groupId><artifactId>bench</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
      <version>{KAFKA_VERSION}</version></dependency>
  </dependencies>
</project>
"""


class Running(NamedTuple):
    """A broker that answers."""

    bootstrap: str
    pid: int
    ready_seconds: float


class Unavailable(Exception):
    """This peer cannot be started here; the text says why."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def resident_mb(pid: int) -> float:
    """The memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmRSS")


@functools.cache
def plain_python() -> str:
    """An environment as `pip install penstock` makes it: what tests need slows a start."""
    place = HOME / "plain"
    needs = (ROOT / "pyproject.toml").read_text()
    stamp = place / "installed.toml"
    if not stamp.exists() or stamp.read_text() != needs:
        venv.create(place, with_pip=True, clear=True)
        install = [str(place / "bin" / "pip"), "install", "--quiet", "--editable", str(ROOT)]
        subprocess.run(install, check=True)
        stamp.write_text(needs)
    python = str(place / "bin" / "python")
    # As pip does; some environments forbid Python to do it by itself, and then each start compiles.
    subprocess.run([python, "-m", "compileall", "-q", str(ROOT / "src")], check=True)
    return python


@contextlib.contextmanager
def penstock(*flags: str, data: Path | None = None) -> Iterator[Running]:
    """`penstock serve` with a data directory of its own."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=Path.cwd()) as directory:
        python = plain_python()
        began = time.perf_counter()
        process = subprocess.Popen(
            [python, "-m", "penstock", "serve", "--data", str(data or directory), "--kafka",
             "127.0.0.1:0", "--amqp", "127.0.0.1:0", "--http", "127.0.0.1:0", *flags],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )  # fmt: skip
        assert process.stdout is not None
        line = process.stdout.readline()
        ready = re.match(r"penstock ready kafka=(\S+) ", line)
        try:
            if ready is None:
                raise Unavailable(f"penstock serve said {line!r}")
            yield Running(ready[1], process.pid, time.perf_counter() - began)
        finally:
            _stop(process)
            process.stdout.close()


@contextlib.contextmanager
def mock() -> Iterator[Running]:
    """librdkafka's own in-process broker: what the client can do at best. It keeps little."""
    holder = (
        "import confluent_kafka as ck, time\n"
        "p = ck.Producer({'test.mock.num.brokers': 1, 'log_level': 0})\n"
        "b = next(iter(p.list_topics(timeout=10).brokers.values()))\n"
        "print(f'{b.host}:{b.port}', flush=True)\n"
        "while True: p.poll(1)\n"
    )
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", holder],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        bootstrap = process.stdout.readline().strip()
        yield Running(bootstrap, process.pid, time.perf_counter() - began)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _fetch_kafka() -> None:
    if (CACHE / "complete").exists():
        return
    if shutil.which("mvn") is None or shutil.which("java") is None:
        raise Unavailable("Apache Kafka needs mvn and java, which are not here")
    CACHE.mkdir(parents=True, exist_ok=True)
    (CACHE / "pom.xml").write_text(POM)
    fetched = subprocess.run(
        ["mvn", "-q", "-f", str(CACHE / "pom.xml"), "dependency:copy-dependencies",
         f"-DoutputDirectory={CACHE / 'libs'}"],
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    if fetched.returncode:
        raise Unavailable(f"Maven could not fetch Apache Kafka: {fetched.stdout[-300:]}")
    (CACHE / "complete").touch()


@contextlib.contextmanager
def apache_kafka(
    *,
    flush_every_message: bool = False,
    doors: Mapping[str, int] | None = None,
    properties: str = "",
    users: Sequence[str] = (),
) -> Iterator[Running]:
    """One KRaft node, as shipped, or with `flush.messages=1` so that acknowledged means synced.

    More `doors` are more listeners (SASL_SSL, SSL, ...) and their ports; `properties` are what they
    need; `users` are those the node knows from the start, as its storage tool takes them.
    """
    _fetch_kafka()
    port, controller = free_port(), free_port()
    with tempfile.TemporaryDirectory(prefix="kafka-bench-", dir=Path.cwd()) as directory:
        settings = Path(directory) / "server.properties"
        open_to_all = {"PLAINTEXT": port, **(doors or {})}
        listeners = ",".join(f"{name}://127.0.0.1:{at}" for name, at in open_to_all.items())
        protocols = ",".join(f"{name}:{name}" for name in open_to_all)
        settings.write_text(
            "process.roles=broker,controller\nnode.id=1\n"
            f"controller.quorum.voters=1@127.0.0.1:{controller}\n"
            f"listeners={listeners},CONTROLLER://127.0.0.1:{controller}\n"
            f"advertised.listeners={listeners}\n"
            "controller.listener.names=CONTROLLER\ninter.broker.listener.name=PLAINTEXT\n"
            f"listener.security.protocol.map={protocols},CONTROLLER:PLAINTEXT\n"
            f"log.dirs={directory}/data\nnum.partitions=4\n"
            "offsets.topic.replication.factor=1\ntransaction.state.log.replication.factor=1\n"
            "transaction.state.log.min.isr=1\ngroup.initial.rebalance.delay.ms=0\n"
            + ("log.flush.interval.messages=1\n" if flush_every_message else "")
            + properties
        )
        java = ["java", "-Xmx1g", "-XX:+UseG1GC", "-cp", f"{CACHE}/libs/*"]
        known = [word for user in users for word in ("--add-scram", user)]
        subprocess.run(
            [*java, "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qk",
             "-c", str(settings), *known],
            check=True,
            capture_output=True,
        )  # fmt: skip
        began = time.perf_counter()
        process = subprocess.Popen(
            [*java, "kafka.Kafka", str(settings)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            for at in open_to_all.values():
                _await_port(process, at)
            yield Running(f"127.0.0.1:{port}", process.pid, time.perf_counter() - began)
        finally:
            _stop(process)


def _await_port(process: subprocess.Popen[bytes], port: int) -> None:
    for _ in range(600):
        if process.poll() is not None:
            raise Unavailable(f"Apache Kafka ended with status {process.returncode}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise Unavailable("Apache Kafka did not answer within a minute")


def _stop(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
