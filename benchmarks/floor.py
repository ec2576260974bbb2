"""What the machine itself takes: a timestamp through a socket, to a file, synced, and back.

No broker and no protocol; it groups what came while it synced, as a broker would. Nothing that
acknowledges only what is on the medium can be quicker on this machine at this moment, so a tail of
this size belongs to the disk and the scheduler and not to whoever is measured beside it.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import struct
import tempfile
import threading
import time
from pathlib import Path
from typing import Any


def _answer(listener: socket.socket, path: str) -> None:
    peer, _ = listener.accept()
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with peer, Path(path).open("wb", buffering=0) as file:
        while data := peer.recv(65536):
            file.write(data)
            os.fdatasync(file.fileno())
            peer.sendall(data)


def _collect(peer: socket.socket, taken: list[float], wanted: int) -> None:
    rest = b""
    while len(taken) < wanted and (data := peer.recv(65536)):
        now = time.perf_counter()
        rest += data
        whole = len(rest) // 8 * 8
        taken.extend(now - sent for (sent,) in struct.iter_unpack(">d", rest[:whole]))
        rest = rest[whole:]


def latency(rate: int, seconds: float) -> dict[str, Any]:
    """p50 and p99 in ms at a steady rate; the first tenth warms up, as in `load.latency`."""
    wanted = int(rate * seconds)
    taken: list[float] = []
    with tempfile.NamedTemporaryFile(prefix="penstock-bench-", dir=Path.cwd()) as file:
        listener = socket.create_server(("127.0.0.1", 0))
        answering = multiprocessing.Process(target=_answer, args=(listener, file.name))
        answering.start()
        with socket.create_connection(listener.getsockname()) as peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            collecting = threading.Thread(target=_collect, args=(peer, taken, wanted))
            collecting.start()
            due = time.perf_counter()
            for _ in range(wanted):
                due += 1 / rate
                time.sleep(max(0.0, due - time.perf_counter()))
                peer.sendall(struct.pack(">d", time.perf_counter()))
            collecting.join(60)
        listener.close()
        answering.join()
    ordered = sorted(taken[wanted // 10 :])
    return {
        "p50": ordered[len(ordered) // 2] * 1000,
        "p99": ordered[int(len(ordered) * 0.99)] * 1000,
        "failed": wanted - len(taken),
    }
