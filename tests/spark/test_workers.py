"""What tasks do to the Python worker they run in, in processes of their own."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys

from penstock.spark.workers import Delivered, acknowledge_at_once


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout.strip()


def test_a_collection_after_a_task_passes_by_what_was_loaded_before() -> None:
    program = """
import gc, pyarrow, numpy, pyspark.sql
from penstock.spark.workers import WORTH_IT, keep_what_is_loaded
before = len(gc.get_objects())
keep_what_is_loaded()
print(before > WORTH_IT, len(gc.get_objects()) < before / 10, gc.get_freeze_count() > WORTH_IT)
"""
    assert run(program) == "True True True"


def test_objects_are_kept_from_the_collector_a_few_times_only() -> None:
    program = """
import gc
from penstock.spark.workers import MOST_FREEZES, WORTH_IT, keep_what_is_loaded
held = []
for _ in range(MOST_FREEZES + 3):
    held.append([[] for _ in range(WORTH_IT + 1)])
    keep_what_is_loaded()
frozen = gc.get_freeze_count()
print(MOST_FREEZES * WORTH_IT < frozen < (MOST_FREEZES + 1) * WORTH_IT + WORTH_IT)
"""
    assert run(program) == "True"


class Parcel(Delivered):
    def __init__(self) -> None:
        self.content = [1, 2]


def test_what_is_delivered_is_what_was_sent() -> None:
    assert pickle.loads(pickle.dumps(Parcel())).content == [1, 2]


def test_asking_for_acknowledgements_leaves_connections_and_files_as_they_are() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, open(os.devnull) as file:
        with socket.create_connection(server.getsockname()) as client:
            accepted, _ = server.accept()
            acknowledge_at_once()
            client.sendall(b"hello")
            assert accepted.recv(5) == b"hello"
            assert client.getblocking()
            accepted.close()
        assert not file.closed
        assert file.read() == ""
