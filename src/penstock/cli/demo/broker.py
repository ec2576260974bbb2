"""The broker of the demonstration: `penstock serve` as a process to be killed and restarted."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from penstock.cli.output import Failure

_READY = re.compile(r"penstock ready kafka=(\S+) amqp=(\S+) http=(\S+) pid=(\d+) in [\d.]+s")
STOP_WITHIN_S = 20.0
# So that a killed consumer is missed after two seconds, not after the usual six or more.
QUICK = ["--group-min-session-timeout-ms", "1000"]


def _free(port: int) -> int:
    """The usual port if nobody has it, else 0: any other."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return 0
    return port


class BrokerProcess:
    """Starts, kills and stops one broker; keeps its addresses over a restart."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.kafka = f"127.0.0.1:{_free(9092)}"
        self.amqp = f"127.0.0.1:{_free(5672)}"
        self.http = f"127.0.0.1:{_free(8080)}"
        self.ready_line = ""
        self.pid = 0
        self._process: subprocess.Popen[str] | None = None
        self._stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as we do

    def start(self) -> float:
        """Start it and wait until its doors are open; returns the seconds that took."""
        begin = time.perf_counter()
        doors = ["--kafka", self.kafka, "--amqp", self.amqp, "--http", self.http]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "serve", "--data", str(self.data), *doors, *QUICK],
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            # Ctrl-C in the terminal is for the demonstration, which then stops the broker.
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self.ready_line = self._process.stdout.readline().strip()
        ready = _READY.match(self.ready_line)
        if ready is None:
            raise Failure("the broker did not start")
        self.kafka, self.amqp, self.http = ready[1], ready[2], ready[3]
        self.pid = int(ready[4])
        return time.perf_counter() - begin

    def kill(self) -> None:
        """kill -9: no warning, no last words."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._close()

    def stop(self) -> None:
        """SIGTERM, and wait for the clean end."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_WITHIN_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._close()

    def complaints(self) -> str:
        """The last lines it wrote to standard error, for when something went wrong."""
        self._stderr.seek(0)
        return "".join(self._stderr.readlines()[-20:]).rstrip()

    def wait(self) -> None:
        """Until it ends by itself, which it should not."""
        assert self._process is not None
        code = self._process.wait()
        raise Failure(f"the broker ended with exit code {code}")

    def _close(self) -> None:
        assert self._process is not None
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None
