"""Spark's own Kafka connector from Maven, to be compared with and to be tested against Penstock.

    python -m benchmarks.spark.connector      fetches it and prints the versions

The jars stay in the user's cache. Not every repository has every version, so each artifact is asked
for in the version of the installed Spark first and then in older ones; the connector of one minor
release runs on the next. Where Maven or a jar cannot be had, `Unavailable` says so.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from benchmarks.peers import Unavailable

CACHE = Path.home() / ".cache" / "penstock-benchmarks"
OLDER = ("4.2.0", "4.1.1", "4.1.0", "4.1.0-preview1", "4.0.1", "4.0.0")
ARTIFACTS = {
    "org.apache.spark:spark-sql-kafka-0-10_2.13": OLDER,
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13": OLDER,
    "org.apache.kafka:kafka-clients": ("3.9.2", "3.9.1", "3.9.0"),
    "org.apache.commons:commons-pool2": ("2.12.1", "2.12.0"),
}


def official_jars() -> list[Path]:
    """The connector and what it needs beside Spark itself."""
    spark = version("pyspark")
    directory = CACHE / f"spark-kafka-{spark}"
    if not (directory / "complete").exists():
        if shutil.which("mvn") is None:
            raise Unavailable("Spark's Kafka connector comes from Maven, and there is no mvn here")
        directory.mkdir(parents=True, exist_ok=True)
        for artifact, versions in ARTIFACTS.items():
            _fetch(artifact, ([spark] if "spark" in artifact else []) + list(versions), directory)
        (directory / "complete").touch()
    return sorted(directory.glob("*.jar"))


def _fetch(artifact: str, versions: list[str], directory: Path) -> None:
    for one in versions:
        fetched = subprocess.run(
            ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}:{one}",
             f"-DoutputDirectory={directory}"],
            capture_output=True,
            text=True,
            check=False,
        )  # fmt: skip
        if fetched.returncode == 0:
            return
    raise Unavailable(f"Maven has {artifact} in none of {', '.join(versions)}")


if __name__ == "__main__":
    for jar in official_jars():
        sys.stdout.write(f"{jar.name}\n")
