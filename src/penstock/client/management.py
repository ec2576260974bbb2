"""The server's management API over HTTP, for what AMQP cannot ask: peek, redrive, figures."""

from __future__ import annotations

import base64
import json
import ssl
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import quote

from penstock.client.errors import (
    Denied,
    InvalidArgument,
    NotFound,
    NotSupported,
    PenstockError,
    Unavailable,
)
from penstock.client.security import of_tls_failure

_BY_STATUS: dict[int, type[PenstockError]] = {
    400: InvalidArgument,
    401: Denied,
    403: Denied,
    404: NotFound,
    405: NotSupported,
}


class Management:
    """One server's API, as somebody. Every call blocks."""

    def __init__(
        self,
        address: tuple[str, int],
        username: str,
        password: str,
        timeout: float,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._address = address
        self._tls = tls
        self._timeout = timeout
        token = base64.b64encode(f"{username}:{password}".encode()).decode()
        self._headers = {"Authorization": f"Basic {token}", "Content-Type": "application/json"}

    def ask(self, method: str, *path: str, body: object = None, query: str = "") -> Any:
        """One request; path segments are escaped here."""
        host, port = self._address
        target = "/".join(["/api", *(quote(segment, safe="") for segment in path)]) + query
        connection = (
            HTTPConnection(host, port, timeout=self._timeout)
            if self._tls is None
            else HTTPSConnection(host, port, timeout=self._timeout, context=self._tls)
        )
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, target, text, self._headers)
            response = connection.getresponse()
            data = response.read()
        except ssl.SSLError as failure:
            raise of_tls_failure(f"{host}:{port}", failure) from failure
        except (OSError, HTTPException) as failure:
            raise NotSupported(
                f"this needs the server's HTTP door, and none answers at {host}:{port} "
                f"({failure or type(failure).__name__}); give connect(http='host:port')"
            ) from failure
        finally:
            connection.close()
        if response.status >= 400:
            raise _BY_STATUS.get(response.status, Unavailable)(_reason(data, response.reason))
        return json.loads(data) if data else None


def _reason(data: bytes, default: str) -> str:
    try:
        found = json.loads(data)
    except ValueError:
        return default
    return str(found.get("reason") or found.get("error") or default)
