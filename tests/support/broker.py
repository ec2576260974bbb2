"""A broker to test against: our own as a subprocess, or any other that is already running.

`BrokerProcess` starts `python -m penstock serve` on a free port, reads the ready line, and can
stop, kill and start it again on the same data and the same port. `ForeignBroker` stands for one
named by PENSTOCK_TEST_BOOTSTRAP (usually Apache Kafka), which the tests may use but not control.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

READY = re.compile(
    r"^penstock ready kafka=(?P<host>\S+):(?P<port>\d+) amqp=\S+:(?P<amqp>\d+) http=(?P<http>\S+) "
    r"pid=(?P<pid>\d+) in \S+s$"
)
SOURCES = Path(__file__).resolve().parents[2] / "src"

# Settings of the test broker that differ from the shipped defaults, in the names of the
# configuration file. They only make background work come round sooner.
QUICK: Mapping[str, str] = {
    "log.retention.check.interval.ms": "300",
    "log.cleaner.backoff.ms": "300",
    "log.segment.delete.delay.ms": "1000",
    "log.initial.task.delay.ms": "200",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "300",
    "group.min.session.timeout.ms": "500",
    "queued.max.response.bytes": "16777216",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "200",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.session.timeout.ms": "1000",
}


class ForeignBroker:
    """A broker that somebody else runs: reachable, not restartable, its memory unknown."""

    is_penstock = False
    pid: int | None = None

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        host, port = bootstrap.rsplit(":", 1)
        self.host, self.port = host, int(port)


def free_port() -> int:
    """A port below the ephemeral range, so that no outgoing connection takes it in a restart."""
    while True:
        port = random.randint(15_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


class BrokerProcess:
    """`penstock serve` in a process of its own, with what it printed kept for failure messages."""

    is_penstock = True

    def __init__(
        self,
        data: Path,
        *,
        settings: Mapping[str, str] | None = None,
        port: int = 0,
        amqp_port: int = 0,
        memory: bool = False,
        arguments: Sequence[str] = (),
    ) -> None:
        self.data = data
        self.memory = memory
        self.settings = {**QUICK, **(settings or {})}
        self.arguments = list(arguments)
        self.host, self.port = "127.0.0.1", port
        self.amqp_port = amqp_port
        self.http = ""
        self.pid: int | None = None
        self._process: subprocess.Popen[str] | None = None
        self._stderr: list[str] = []
        self._collectors: list[threading.Thread] = []

    def __repr__(self) -> str:
        return f"BrokerProcess({self.data}, {self.bootstrap}, pid={self.pid})"

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def log(self) -> str:
        """Everything the broker wrote to standard error so far."""
        return "".join(self._stderr)

    def last_words(self) -> str:
        """For a test to print at its end: pytest shows it when the test has failed."""
        return f"--- what {self!r} wrote, at most the last 4000 characters:\n{self.log[-4000:]}"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def command(self) -> list[str]:
        config = self.data.parent / f"{self.data.name}.toml"
        lines = [f'"{name}" = "{value}"\n' for name, value in self.settings.items()]
        config.write_text("".join(lines))
        where = ["--memory"] if self.memory else ["--data", str(self.data)]
        doors = ["--kafka", f"{self.host}:{self.port}", "--amqp", f"{self.host}:{self.amqp_port}"]
        serve = [sys.executable, "-m", "penstock", "serve", "--http", "127.0.0.1:0"]
        return [*serve, *where, *doors, "--config", str(config), *self.arguments]

    def start(self, *, within: float = 30.0) -> BrokerProcess:
        assert not self.running, "already running"
        self.data.parent.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "PYTHONPATH": str(SOURCES), "PYTHONUNBUFFERED": "1"}
        # Where Linux can do it, a broker ends with the run that started it, however that ended.
        guard = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        self._process = subprocess.Popen(
            [*guard, *self.command()],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._collectors = [self._listen(self._process.stderr)]
        watchdog = threading.Timer(within, self._process.kill)
        watchdog.start()
        try:
            line = self._process.stdout.readline().rstrip("\n")
        finally:
            watchdog.cancel()
        ready = READY.match(line)
        if ready is None:
            self._process.kill()
            self._process.stdout.close()
            self.wait()
            raise AssertionError(f"no ready line, but {line!r}\n{self.log}")
        self.host, self.port = ready["host"], int(ready["port"])
        self.amqp_port = int(ready["amqp"])
        self.http = f"http://{ready['http']}"
        self.pid = int(ready["pid"])
        self._collectors.append(self._listen(self._process.stdout))
        return self

    def _listen(self, stream: IO[str]) -> threading.Thread:
        thread = threading.Thread(target=self._collect, args=(stream,), daemon=True)
        thread.start()
        return thread

    def _collect(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                self._stderr.append(line)

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self, *, within: float = 20.0) -> int:
        """The exit status, with the last words read."""
        assert self._process is not None
        code = self._process.wait(within)
        for collector in self._collectors:
            collector.join(5)
        return code

    def stop(self, *, within: float = 20.0) -> None:
        """Stop cleanly; a broker that does not, or exits with an error, is a failed test."""
        if self._process is None or self._process.poll() is not None:
            return
        self.signal(signal.SIGTERM)
        try:
            code = self.wait(within=within)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"no clean stop within {within} s\n{self.log}") from None
        assert code == 0, f"exit status {code} after SIGTERM\n{self.log}"

    def kill(self) -> None:
        """SIGKILL: no flush, no marker, nothing written any more."""
        if self.running:
            self.signal(signal.SIGKILL)
            self.wait()

    def restart(self) -> BrokerProcess:
        self.stop()
        return self.start()

    def memory_mb(self) -> float:
        return self._status("VmRSS")

    def peak_memory_mb(self) -> float:
        return self._status("VmHWM")

    def forget_peak_memory(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def _status(self, field: str) -> float:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1]) / 1024
        raise AssertionError(f"no {field} of {self.pid}")


def doors(broker: BrokerProcess | ForeignBroker) -> dict[str, str]:
    """Where the doors for queues are, as `penstock.connect` wants to know, if it has them."""
    if isinstance(broker, ForeignBroker):
        return {}
    return {"amqp": f"{broker.host}:{broker.amqp_port}", "http": broker.http.split("//")[1]}
