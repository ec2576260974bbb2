"""kcat (the distribution's, so an old librdkafka) behind the shape of `support.clients`."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Sequence

from support.clients import Record, Refused

PATIENCE_S = 15.0


@functools.cache
def install() -> str | None:
    """Why there is no kcat, after trying to install it where that is allowed; None if there is."""
    if shutil.which("kcat"):
        return None
    if not shutil.which("apt-get") or os.geteuid() != 0:
        return "kcat is not installed, and only root with apt could install it"
    for command in (["apt-get", "update"], ["apt-get", "install", "-y", "kcat"]):
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if shutil.which("kcat"):
        return None
    return f"kcat is not installed, and apt could not: {done.stderr.strip()[-200:]}"


def run(*arguments: str, feed: bytes = b"", within: float = PATIENCE_S) -> bytes:
    """What kcat prints; Refused with its complaint when it fails."""
    done = subprocess.run(
        ["kcat", *arguments], input=feed, capture_output=True, timeout=within, check=False
    )
    complaint = done.stderr.decode(errors="replace")
    if done.returncode != 0 or "Delivery failed" in complaint:
        raise Refused(complaint.strip() or f"exit status {done.returncode}")
    return done.stdout


class Kcat:
    name = "kcat"

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> list[int]:
        """One run per kind of record (headers are per run); kcat never tells the offsets."""
        first = 0
        while first < len(records):
            last = first
            kind = (records[first].headers, records[first].partition)
            while last < len(records) and (records[last].headers, records[last].partition) == kind:
                last += 1
            self._produce(topic, records[first:last], codec, acks, idempotent)
            first = last
        return []

    def _produce(
        self, topic: str, records: Sequence[Record], codec: str, acks: str, idempotent: bool
    ) -> None:
        lines = [(one.key or b"") + b"\t" + (one.value or b"") for one in records]
        headers: list[str] = []
        for key, value in records[0].headers:
            headers += ["-H", key if value is None else f"{key}={value.decode()}"]
        run(
            *("-P", "-b", self.bootstrap, "-t", topic, "-p", str(records[0].partition)),
            *("-K", r"\t", "-D", r"\n", "-Z", "-z", codec),
            *("-X", f"acks={acks}", "-X", f"enable.idempotence={str(idempotent).lower()}"),
            *("-X", "message.max.bytes=20000000", "-X", "message.timeout.ms=10000"),
            *headers,
            feed=b"\n".join(lines),
        )

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
        printed = run(
            *("-C", "-b", self.bootstrap, "-t", topic, "-p", str(partition), "-q"),
            *("-o", str(start), "-c", str(count), "-X", f"isolation.level={level}"),
            *("-X", "fetch.wait.max.ms=100", "-X", "check.crcs=true"),
            *("-X", "fetch.message.max.bytes=1048576"),
            *("-f", r"%p %o %T %K %S %h\n%k%s"),
        )
        return _parse(printed)

    def offset_at(self, topic: str, timestamp: int, *, partition: int = 0) -> int | None:
        offset = self._query(topic, partition, timestamp)
        return None if offset == -1 else offset

    def watermarks(self, topic: str, *, partition: int = 0) -> tuple[int, int]:
        return self._query(topic, partition, -2), self._query(topic, partition, -1)

    def _query(self, topic: str, partition: int, timestamp: int) -> int:
        printed = run("-Q", "-b", self.bootstrap, "-t", f"{topic}:{partition}:{timestamp}")
        found = re.search(rb"offset (-?\d+)", printed)
        assert found, printed
        return int(found[1])

    def read_group(self, topic: str, group: str, count: int) -> list[Record]:
        printed = run(
            *("-b", self.bootstrap, "-q", "-c", str(count), "-f", r"%p %o %T %K %S %h\n%k%s"),
            *("-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=6000"),
            *("-G", group, topic),
            within=25,
        )
        return _parse(printed)


def _parse(printed: bytes) -> list[Record]:
    records, at = [], 0
    while at < len(printed):
        end = printed.index(b"\n", at)
        partition, offset, timestamp, key_size, size, headers = printed[at:end].split(b" ", 5)
        at = end + 1
        key = None if key_size == b"-1" else printed[at : at + int(key_size)]
        at += max(int(key_size), 0)
        value = None if size == b"-1" else printed[at : at + int(size)]
        at += max(int(size), 0)
        pairs = [pair.partition(b"=") for pair in headers.split(b",") if pair]
        records.append(
            Record(
                value,
                key,
                tuple(
                    (name.decode(), None if text == b"NULL" else text) for name, _, text in pairs
                ),
                int(timestamp),
                int(partition),
                int(offset),
            )
        )
    return records
