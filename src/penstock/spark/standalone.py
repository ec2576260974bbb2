"""A Spark cluster of one master and some workers on this machine, from the pip wheel alone.

    with StandaloneCluster(workers=2) as cluster:
        spark = session("job", master=cluster.url)

The wheel has no start-master.sh, but the classes behind it. Everything listens on 127.0.0.1, on
ports that are free, and ends with the block. For tests, for trying a job out before it goes to a
real cluster, and for using more than one JVM on a big machine.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

from penstock.spark.errors import SparkConnectorError
from penstock.spark.launch import find_java

HOST = "127.0.0.1"
_URL = re.compile(r"Starting Spark master at (spark://\S+)")
_JOINED = "Successfully registered with master"


class StandaloneCluster:
    """Master and workers as child processes."""

    def __init__(
        self,
        workers: int = 2,
        *,
        cores: int = 1,
        memory: str = "1g",
        directory: Path | None = None,
        patience_s: float = 120.0,
    ) -> None:
        self.url = ""
        self._workers = workers
        self._cores = cores
        self._memory = memory
        self._patience_s = patience_s
        self._own = tempfile.TemporaryDirectory(prefix="penstock-spark-") if not directory else None
        self.directory = directory or Path(self._own.name if self._own else ".")
        self._processes: list[subprocess.Popen[bytes]] = []

    def __repr__(self) -> str:
        return f"StandaloneCluster({self.url}, {len(self._processes)} processes)"

    def __enter__(self) -> StandaloneCluster:
        try:
            flags = ["--host", HOST, "--port", "0", "--webui-port", "0"]
            self._launch("master", "org.apache.spark.deploy.master.Master", flags)
            self.url = self._wait("master", _URL)[1]
            for number in range(self._workers):
                work = self.directory / f"work-{number}"
                flags = ["--host", HOST, "--webui-port", "0", "--cores", str(self._cores)]
                flags += ["--memory", self._memory, "--work-dir", str(work), self.url]
                name = f"worker-{number}"
                self._launch(name, "org.apache.spark.deploy.worker.Worker", flags)
            for number in range(self._workers):
                self._wait(f"worker-{number}", re.compile(_JOINED))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _launch(self, name: str, main: str, flags: list[str]) -> None:
        import pyspark

        home = Path(pyspark.__file__).parent
        java = find_java()
        environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": HOST}
        if java:
            environment["JAVA_HOME"] = java
        with (self.directory / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [str(home / "bin" / "spark-class"), main, *flags],
                    env=environment,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=self.directory,
                    start_new_session=True,
                )
            )

    def _wait(self, name: str, pattern: re.Pattern[str]) -> re.Match[str]:
        deadline = time.monotonic() + self._patience_s
        while time.monotonic() < deadline:
            text = self.log(name)
            if found := pattern.search(text):
                return found
            if self._processes[-1].poll() is not None:
                break
            time.sleep(0.1)
        raise SparkConnectorError(f"Spark's {name} does not start:\n{self.log(name)[-2000:]}")

    def log(self, name: str) -> str:
        """What `master` or `worker-N` has written."""
        return (self.directory / f"{name}.log").read_text(errors="replace")

    def close(self) -> None:
        """End workers first, so that they do not complain about the master's end."""
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(20)
        self._processes.clear()
        if self._own is not None:
            self._own.cleanup()
