"""Certificates for a test, made with the openssl command: an authority, and who it vouches for."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


class Authority:
    """A certificate authority of the test's own, in a directory of its own."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self.directory = directory
        self.certificate = directory / f"{name}.pem"
        self._key = directory / f"{name}.key"
        _openssl(
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign",  # Python 3.13 looks for it
            "-keyout", str(self._key), "-out", str(self.certificate),
        )  # fmt: skip

    def issue(self, name: str, *, password: str | None = None) -> tuple[Path, Path]:
        """(certificate, private key) of `name`, good for 127.0.0.1 and for a client."""
        certificate, key = self.directory / f"{name}.pem", self.directory / f"{name}.key"
        request = self.directory / f"{name}.csr"
        secret = ["-nodes"] if password is None else ["-passout", f"pass:{password}"]
        _openssl(
            "req", "-newkey", "rsa:2048", *secret, "-subj", f"/CN={name}",
            "-keyout", str(key), "-out", str(request),
        )  # fmt: skip
        names = self.directory / f"{name}.ext"
        names.write_text(
            "subjectAltName=IP:127.0.0.1\nauthorityKeyIdentifier=keyid\nsubjectKeyIdentifier=hash\n"
        )
        _openssl(
            "x509", "-req", "-in", str(request), "-days", "2", "-extfile", str(names),
            "-CA", str(self.certificate), "-CAkey", str(self._key), "-CAcreateserial",
            "-out", str(certificate),
        )  # fmt: skip
        return certificate, key


def missing() -> str | None:
    """Why certificates cannot be made here, if they cannot."""
    return None if shutil.which("openssl") else "certificates need openssl, which is not here"


def _openssl(*words: str) -> None:
    done = subprocess.run(
        ["openssl", *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
