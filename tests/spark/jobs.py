"""Running stream_job.py beside the tests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

JOB = Path(__file__).with_name("stream_job.py")
SOURCES = Path(__file__).resolve().parents[2] / "src"
# What makes a short-lived Spark start quickly and stay small.
SMALL = {
    "spark.driver.memory": "600m",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming"
    ".checkpointing.FileSystemBasedCheckpointFileManager",
}


def command(said: dict[str, Any], job: Path = JOB) -> list[str]:
    """The job with this package on its path, whatever the environment says."""
    start = f"import sys, runpy; sys.path.insert(0, {str(SOURCES)!r}); sys.argv[:] = sys.argv[1:]; "
    run = f"{start}runpy.run_path(sys.argv[0], run_name='__main__')"
    return [sys.executable, "-c", run, str(job), json.dumps(said)]


def run_job(said: dict[str, Any], directory: Path) -> dict[str, Any]:
    """To its end; what it reported."""
    log = directory / "job.log"
    with log.open("wb") as errors:
        done = subprocess.run(
            command(said), stdout=subprocess.PIPE, stderr=errors, text=True, timeout=280
        )
    assert done.returncode == 0, log.read_text(errors="replace")[-4000:]
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report
