"""The Java client: one JVM for the whole run, told what to do in lines.

The programs are in tests/conformance/java; `Main.java` reads one command a line (words separated
by tabs) and answers with lines, the last of which is `ok` or `failed <what>`. The client's jars
come through Maven and are kept in the user's cache directory between runs.
"""

from __future__ import annotations

import base64
import functools
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from support.clients import Record, Refused

KAFKA = "org.apache.kafka:kafka-clients:4.3.1"
RABBITMQ = "com.rabbitmq:amqp-client:5.25.0"
SILENCE = "org.slf4j:slf4j-nop:1.7.36"
PROGRAMS = Path(__file__).resolve().parents[2] / "conformance" / "java"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "penstock-tests"

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>penstock</groupId><artifactId>tests</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>{}</dependencies>
</project>
"""
DEPENDENCY = """
    <dependency>
      <groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
    </dependency>
"""


@functools.cache
def jars(client: str = KAFKA) -> tuple[Path | None, str]:
    """(directory of the client's jars, "") or (None, why there is none)."""
    for tool in ("java", "javac", "mvn"):
        if not shutil.which(tool):
            return None, f"the Java client: no {tool} on this machine"
    libraries = CACHE / "-".join(client.split(":")[1:])
    if not (libraries / "complete").exists():
        scratch = CACHE / f"maven-{os.getpid()}"
        scratch.mkdir(parents=True, exist_ok=True)
        wanted = [DEPENDENCY.format(*one.split(":")) for one in (client, SILENCE)]
        (scratch / "pom.xml").write_text(POM.format("".join(wanted)))
        copy = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={libraries}"]
        done = subprocess.run(
            copy, cwd=scratch, capture_output=True, text=True, timeout=300, check=False
        )
        shutil.rmtree(scratch)
        if done.returncode != 0:
            return None, f"the Java client: Maven could not fetch it: {done.stdout.strip()[-200:]}"
        (libraries / "complete").touch()
    return libraries, ""


def compile_programs(classes: Path, client: str, programs: Sequence[Path]) -> str:
    """Compile into `classes`; the class path to run with."""
    libraries, why = jars(client)
    assert libraries is not None, why
    path = f"{libraries}/*"
    sources = [str(one) for one in programs]
    done = subprocess.run(
        ["javac", "-nowarn", "-d", str(classes), "-cp", path, *sources],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return f"{classes}:{path}"


class Jvm:
    """The running JVM. `do` is safe from several threads: each command has the JVM to itself."""

    def __init__(
        self, classes: Path, client: str = KAFKA, programs: Sequence[Path] | None = None
    ) -> None:
        programs = programs or sorted(PROGRAMS.glob("*.java"))
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        self._process = subprocess.Popen(
            ["java", *options, "-cp", compile_programs(classes, client, programs), "Main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lock = threading.Lock()

    def do(
        self,
        command: str,
        *words: str,
        within: float = 60.0,
        on_line: Callable[[str], None] | None = None,
    ) -> list[str]:
        """Run one command; the lines it printed, or Refused with what it failed on."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            print(command, *words, sep="\t", file=self._process.stdin, flush=True)
            watchdog = threading.Timer(within, self._process.kill)
            watchdog.start()
            lines: list[str] = []
            try:
                while True:
                    line = self._process.stdout.readline()
                    assert line, f"the JVM ended in {command} (or took over {within} s)\n{lines}"
                    line = line.rstrip("\n")
                    if line == "ok":
                        return lines
                    if line.startswith("failed "):
                        text = base64.b64decode(line.removeprefix("failed ")).decode()
                        raise Refused(text.splitlines()[0], text)
                    lines.append(line)
                    if on_line is not None:
                        on_line(line)
            finally:
                watchdog.cancel()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)
        assert self._process.stdout is not None
        self._process.stdout.close()


def _text(data: bytes | None) -> str:
    return "-" if data is None else "=" + base64.b64encode(data).decode()


def _bytes(text: str) -> bytes | None:
    return None if text == "-" else base64.b64decode(text[1:])


def _record(line: str) -> Record:
    partition, offset, timestamp, key, value, *headers = line.split(" ")
    pairs = [header.split(":", 1) for header in headers]
    return Record(
        _bytes(value),
        _bytes(key),
        tuple(((_bytes(name) or b"").decode(), _bytes(text)) for name, text in pairs),
        int(timestamp),
        int(partition),
        int(offset),
    )


class Java:
    name = "java"

    def __init__(self, bootstrap: str, jvm: Jvm) -> None:
        self.bootstrap = bootstrap
        self.jvm = jvm

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> list[int]:
        packed = []
        for one in records:
            headers = [f"{_text(name.encode())}:{_text(value)}" for name, value in one.headers]
            stamp = "-" if one.timestamp is None else str(one.timestamp)
            packed.append(
                " ".join([str(one.partition), stamp, _text(one.key), _text(one.value), *headers])
            )
        options = (codec, acks, str(idempotent).lower())
        lines = self.jvm.do("produce", self.bootstrap, topic, *options, *packed)
        return [] if acks == "0" else [int(line) for line in lines]

    def read(
        self,
        topic: str,
        count: int,
        *,
        start: int = 0,
        partition: int = 0,
        committed_only: bool = False,
    ) -> list[Record]:
        level = "read_committed" if committed_only else "read_uncommitted"
        words = (topic, str(partition), str(start), str(count), level)
        return [_record(line) for line in self.jvm.do("read", self.bootstrap, *words)]

    def offset_at(self, topic: str, timestamp: int, *, partition: int = 0) -> int | None:
        words = (topic, str(partition), str(timestamp))
        (line,) = self.jvm.do("offset_at", self.bootstrap, *words)
        return None if line == "-" else int(line)

    def watermarks(self, topic: str, *, partition: int = 0) -> tuple[int, int]:
        low, high = self.jvm.do("watermarks", self.bootstrap, topic, str(partition))
        return int(low), int(high)

    def read_group(self, topic: str, group: str, count: int) -> list[Record]:
        lines = self.jvm.do("read_group", self.bootstrap, topic, group, str(count), "classic")
        return [_record(line) for line in lines]
