"""Through a Spark Connect server: the client has no JVM, the server finds the format by itself."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.spark.launch import prepare_environment

from .jobs import SMALL, run_job


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """sc://127.0.0.1:PORT of a server that lives as long as the test."""
    import pyspark

    from support.broker import free_port

    prepare_environment()
    port, home = free_port(), Path(pyspark.__file__).parent
    settings = {
        **SMALL,
        "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
    }
    flags = [flag for key, value in settings.items() for flag in ("--conf", f"{key}={value}")]
    main = "org.apache.spark.sql.connect.service.SparkConnectServer"
    log = tmp_path / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(home / "bin" / "spark-submit"), "--master", "local[2]", "--class", main,
             "--name", "connect", *flags, "spark-internal"],
            env={**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"},
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=tmp_path,
            start_new_session=True,
        )  # fmt: skip
    deadline = time.monotonic() + 150
    while not re.search(r"Spark Connect server started at", log.read_text(errors="replace")):
        assert process.poll() is None, log.read_text()[-3000:]
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.2)
    yield f"sc://127.0.0.1:{port}"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(20)


def test_batches_and_streams_work_through_spark_connect(
    server: str,
    bootstrap: str,
    topic: Callable[..., str],
    fill: Any,
    records: Any,
    tmp_path: Path,
) -> None:
    source, target = topic("connect-in", 2), topic("connect-out", 2)
    fill(source, [b"%05d" % at for at in range(1000)])
    said = {
        "master": server,
        "bootstrap": bootstrap,
        "settings": {},
        "source": {
            "subscribe": source,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "600",
        },
        "sink": {"topic": target},
        "checkpoint": str(tmp_path / "checkpoint"),
        "until_done": True,
    }
    report = run_job(said, tmp_path)
    assert report["session"] == "pyspark.sql.connect.session"
    assert report["rows"] == 1000
    assert sorted(record.value() for record in records(target)) == [
        b"%05d" % at for at in range(1000)
    ]
