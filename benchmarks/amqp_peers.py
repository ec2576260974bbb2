"""The brokers that the AMQP benchmark compares: ours and RabbitMQ, each on loopback.

RabbitMQ is Debian's `rabbitmq-server` (apt-get install rabbitmq-server), started with a home, a
node name and ports of its own, so that it touches nothing of an installed one. Where it is missing,
`rabbitmq` says so and the comparison is left out.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers import Unavailable, free_port

RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


class AmqpRunning(NamedTuple):
    """A broker that answers on AMQP."""

    host: str
    port: int
    pid: int
    ready_seconds: float


@contextlib.contextmanager
def penstock(*flags: str, data: str | None = None) -> Iterator[AmqpRunning]:
    """`penstock serve` with a data directory of its own, unless it is given one."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=Path.cwd()) as directory:
        began = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "serve", "--data", data or directory,
             "--kafka", "127.0.0.1:0", "--amqp", "127.0.0.1:0", "--http", "off", *flags],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        line = process.stdout.readline()
        ready = re.search(r" amqp=(\S+):(\d+) ", line)
        try:
            if ready is None:
                raise Unavailable(f"penstock serve said {line!r}")
            seconds = time.perf_counter() - began
            yield AmqpRunning(ready[1], int(ready[2]), process.pid, seconds)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
            process.stdout.close()


@contextlib.contextmanager
def rabbitmq(configuration: str = "") -> Iterator[AmqpRunning]:
    """One RabbitMQ node, as Debian ships it, without plug-ins; or as rabbitmq.conf says."""
    if not RABBITMQ.exists():
        raise Unavailable("rabbitmq-server is not installed (apt-get install rabbitmq-server)")
    port, distribution, epmd = free_port(), free_port(), free_port()
    with tempfile.TemporaryDirectory(prefix="rabbitmq-bench-", dir=Path.cwd()) as directory:
        home = Path(directory)
        (home / "plugins").write_text("[].\n")
        (home / "rabbitmq.conf").write_text(configuration)
        environment = {
            **os.environ,
            "HOME": str(home),
            "RABBITMQ_NODENAME": f"bench{port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
            "RABBITMQ_LOG_BASE": str(home / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq.conf"),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(epmd),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ("-kernel inet_dist_use_interface {127,0,0,1}"),
        }
        began = time.perf_counter()
        process = subprocess.Popen(
            [str(RABBITMQ)], env=environment, cwd=home, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            _await_handshake(process, port)
            seconds = time.perf_counter() - began
            yield AmqpRunning("127.0.0.1", port, _beam(process.pid), seconds)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            _stop_port_mapper(epmd)


def _await_handshake(process: subprocess.Popen[bytes], port: int) -> None:
    for _ in range(900):
        if process.poll() is not None:
            raise Unavailable(f"rabbitmq-server ended with status {process.returncode}")
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", port), 1) as probe,
        ):
            probe.settimeout(1)
            probe.sendall(b"AMQP\x00\x00\x09\x01")
            if probe.recv(1) == b"\x01":
                return
        time.sleep(0.1)
    raise Unavailable("rabbitmq-server did not answer within 90 s")


def _beam(leader: int) -> int:
    """The process id of the Erlang machine under the shell script that started it."""
    for status in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError):
            if status.read_text().startswith("Name:\tbeam.smp"):
                pid = int(status.parent.name)
                if os.getsid(pid) == leader:
                    return pid
    raise Unavailable("the process of rabbitmq-server was not found")


def _stop_port_mapper(port: int) -> None:
    """The port mapper of Erlang outlives its node; it stops when nobody is registered."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(
            ["epmd", "-port", str(port), "-kill"], capture_output=True, timeout=10, check=False
        )
