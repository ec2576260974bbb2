"""The checks of `penstock doctor`. Each returns findings: good, note (could be better) or bad."""

from __future__ import annotations

import difflib
import importlib.metadata
import os
import platform
import re
import shutil
import socket
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from penstock import __version__
from penstock.cli.output import human_bytes
from penstock.config import OPTIONS, BrokerConfig
from penstock.options.option import Address

FSYNC_ROUNDS = 25
SLOW_FSYNC_MS = 20.0
FEW_OPEN_FILES = 4096
LITTLE_SPACE = 2**30
# Not of the broker's table: they are read by the commands that are clients.
CLIENT_VARIABLES = {
    f"PENSTOCK_{name}" for name in ("BOOTSTRAP", "HTTP", "USER", "PASSWORD", "VHOST")
}


class Finding(NamedTuple):
    """What one check saw, and what could be done about it."""

    check: str
    verdict: str
    found: str
    advice: str = ""


def examine(config: BrokerConfig) -> list[Finding]:
    """Every check, in the order in which a broker would stumble over them."""
    checks: list[Callable[[BrokerConfig], Iterator[Finding]]] = [
        _python,
        _packages,
        _environment,
        _data_directory,
        _disk,
        _open_files,
        _ports,
        _clock,
    ]
    return [finding for check in checks for finding in check(config)]


def _python(config: BrokerConfig) -> Iterator[Finding]:
    found = f"{platform.python_implementation()} {platform.python_version()}, {platform.platform()}"
    yield Finding("python", "good", found)
    yield Finding("penstock", "good", f"{__version__}, {len(OPTIONS)} options")


def _packages(config: BrokerConfig) -> Iterator[Finding]:
    """Everything that the installed package says it needs, and whether the fast parts are there."""
    missing, versions = [], []
    try:
        wanted = importlib.metadata.requires("penstock") or []
    except importlib.metadata.PackageNotFoundError:
        yield Finding("packages", "note", "penstock runs from its sources, not installed")
        return
    for requirement in wanted:
        if "extra ==" in requirement:
            continue
        match = re.match(r"[A-Za-z0-9._-]+", requirement)
        assert match is not None, requirement
        try:
            versions.append(f"{match[0]} {importlib.metadata.version(match[0])}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(match[0])
    if missing:
        advice = "Install again: pip install --force-reinstall penstock"
        yield Finding("packages", "bad", "missing: " + ", ".join(missing), advice)
    else:
        yield Finding("packages", "good", ", ".join(versions))
    from aiokafka.record import default_records

    # aiokafka falls back to Python when its wheel has no extension for this platform.
    if default_records.DefaultRecordBatch.__module__.endswith("_crecords.default_records"):
        yield Finding("record codec", "good", "compiled")
    else:
        advice = "aiokafka has no wheel for this platform; install a C compiler and install again."
        yield Finding("record codec", "note", "interpreted, about fifty times slower", advice)


def _environment(config: BrokerConfig) -> Iterator[Finding]:
    known = {option.environment for option in OPTIONS.values()} | CLIENT_VARIABLES
    for name in sorted(os.environ):
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.9)
        if name.startswith("PENSTOCK_") and name not in known and near:
            yield Finding("environment", "note", f"{name} means nothing", f"Is it {near[0]}?")


def _data_directory(config: BrokerConfig) -> Iterator[Finding]:
    data = config.data
    if config.memory:
        return
    if not data.exists():
        yield Finding("data directory", "good", f"{data} is not there yet; serve creates it")
        return
    if not data.is_dir():
        yield Finding("data directory", "bad", f"{data} is a file, not a directory")
        return
    if not os.access(data, os.R_OK | os.W_OK | os.X_OK):
        yield Finding("data directory", "bad", f"{data} cannot be written to by this user")
        return
    partitions = sum(1 for entry in os.scandir(data) if entry.is_dir() and "-" in entry.name)
    clean = (data / ".kafka_cleanshutdown").exists()
    state = "stopped cleanly" if clean else "in use, or not stopped cleanly (serve will recover it)"
    yield Finding("data directory", "good", f"{data}: {partitions} partitions on disk, {state}")
    for catalogue in data.glob("*.sqlite*"):
        if catalogue.suffix not in (".sqlite", ".sqlite3"):
            continue
        yield _catalogue(catalogue)


def _catalogue(file: Path) -> Finding:
    try:
        connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=2)
        try:
            verdict = connection.execute("PRAGMA quick_check").fetchone()[0]
        finally:
            connection.close()
    except sqlite3.Error as failure:
        return Finding("catalogue", "bad", f"{file.name}: {failure}")
    return Finding("catalogue", "good" if verdict == "ok" else "bad", f"{file.name}: {verdict}")


def _disk(config: BrokerConfig) -> Iterator[Finding]:
    """Free space, and how long an acknowledgement waits for the disk."""
    if config.memory:
        return
    place = config.data
    while not place.is_dir():
        place = place.absolute().parent
    free = shutil.disk_usage(place).free
    verdict = "good" if free >= LITTLE_SPACE else "note"
    yield Finding("disk space", verdict, f"{human_bytes(free)} free")
    try:
        times = _fsync_times(place)
    except OSError as failure:
        yield Finding("disk sync", "bad", f"cannot write in {place}: {failure.strerror}")
        return
    middle, worst = statistics.median(times), max(times)
    found = f"fdatasync takes {middle:.2f} ms (worst of {len(times)}: {worst:.2f} ms)"
    if middle > SLOW_FSYNC_MS:
        advice = "Every acknowledgement waits for it; a local SSD, or durability=os, is faster."
        yield Finding("disk sync", "note", found, advice)
    else:
        yield Finding("disk sync", "good", found)


def _fsync_times(place: Path) -> list[float]:
    """Milliseconds of small appends, each forced to disk, as the flusher does it."""
    sync = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync
    times = []
    with tempfile.TemporaryFile(dir=place, buffering=0) as scratch:
        for _ in range(FSYNC_ROUNDS):
            scratch.write(b"x" * 4096)
            begin = time.perf_counter()
            sync(scratch.fileno())
            times.append((time.perf_counter() - begin) * 1000)
    return times


def _open_files(config: BrokerConfig) -> Iterator[Finding]:
    import resource  # POSIX only, as is the broker

    # The broker takes what the hard limit allows.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = "unlimited" if most == resource.RLIM_INFINITY else f"{most} at most"
    if 0 <= most < FEW_OPEN_FILES:
        advice = "Connections and segments share them; raise the hard limit (nofile)."
        yield Finding("open files", "note", found, advice)
    else:
        yield Finding("open files", "good", found)


def _ports(config: BrokerConfig) -> Iterator[Finding]:
    for door, address in (("kafka", config.kafka), ("amqp", config.amqp), ("http", config.http)):
        if address is not None and address.port:
            yield _port(door, address)


def _port(door: str, address: Address) -> Finding:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host, address.port))
        except OSError as failure:
            what = os.strerror(failure.errno or 0).lower()
            advice = f"If it is not a broker already running, choose another: --{door} HOST:PORT"
            return Finding(f"{door} port", "note", f"{address}: {what}", advice)
    return Finding(f"{door} port", "good", f"{address} is free")


def _clock(config: BrokerConfig) -> Iterator[Finding]:
    """A clock that stands before the newest record was written would stamp new ones as old."""
    now = time.time()
    if now < 1_735_689_600:  # 2025-01-01: this version did not exist
        yield Finding("clock", "bad", time.strftime("%Y-%m-%d %H:%M:%S"), "Set the clock.")
        return
    newest = max(
        (file.stat().st_mtime for file in config.data.glob("*/*.log")),
        default=0.0,
    )
    if not config.memory and newest > now + 60:
        advice = "Retention and look-ups by time use the clock; set it before you serve."
        yield Finding("clock", "note", f"{newest - now:.0f} s behind the newest segment", advice)
    else:
        yield Finding("clock", "good", time.strftime("%Y-%m-%d %H:%M:%S %Z"))
