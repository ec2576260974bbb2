"""One connection to one broker: frames out, frames in, TLS and SASL when the options ask for them.

Synchronous, because an executor's task does one thing at a time; `send` and `receive` are apart so
that a reader can ask for the next piece before it decodes this one. A connection that failed in any
way is closed and thrown away: what was in flight is unknown.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import socket
import ssl
from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.spark import protocol
from penstock.spark.errors import BrokerRefused, BrokerUnreachable, OptionError
from penstock.spark.protocol import Api

RECEIVE_BUFFER_BYTES = 4 << 20


class Security(NamedTuple):
    """How to prove who we are; hashable, so that connections can be shared between readers."""

    protocol: str = "PLAINTEXT"
    mechanism: str = ""
    username: str = ""
    password: str = ""
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    check_hostname: bool = True

    @property
    def uses_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.protocol.startswith("SASL")


class Connection:
    """A socket with Kafka's framing."""

    def __init__(
        self, host: str, port: int, security: Security, client_id: str, timeout_s: float
    ) -> None:
        self.place = f"{host}:{port}"
        self._client_id = client_id
        self._correlation = 0
        self._waiting: list[tuple[int, Api]] = []
        try:
            self._socket = socket.create_connection((host, port), timeout=timeout_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        except OSError as failure:
            raise BrokerUnreachable(f"no broker answers at {self.place} ({failure})") from None
        try:
            if security.uses_tls:
                self._socket = _tls(self._socket, host, security)
            if security.uses_sasl:
                _authenticate(self, security)
        except OSError as failure:
            self.close()
            raise BrokerUnreachable(f"no broker answers at {self.place} ({failure})") from None
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"Connection({self.place}, {len(self._waiting)} in flight)"

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    def call(self, api: Api, values: Mapping[str, Any]) -> dict[str, Any]:
        """One request, one answer."""
        self.send(api, values)
        return self.receive()

    def send(self, api: Api, values: Mapping[str, Any]) -> None:
        self._correlation += 1
        parts = protocol.encode_request(api, self._correlation, self._client_id, values)
        try:
            self._socket.sendall(b"".join(parts))
        except OSError as failure:
            raise BrokerUnreachable(f"{self.place} hung up ({failure})") from None
        self._waiting.append((self._correlation, api))

    def receive(self) -> dict[str, Any]:
        """The answer to the oldest request that has none yet; brokers answer in order."""
        correlation, api = self._waiting.pop(0)
        try:
            size = int.from_bytes(self._exactly(4), "big")
            frame = self._exactly(size)
        except OSError as failure:
            raise BrokerUnreachable(f"{self.place} did not answer ({failure})") from None
        if int.from_bytes(frame[:4], "big") != correlation:
            raise BrokerUnreachable(f"{self.place} answered another question than {api.name}")
        return protocol.decode_response(api, frame)

    def _exactly(self, size: int) -> memoryview:
        view = memoryview(bytearray(size))
        filled = 0
        while filled < size:
            count = self._socket.recv_into(view[filled:])
            if not count:
                raise ConnectionError("it closed the connection")
            filled += count
        return view

    def close(self) -> None:
        self._socket.close()


def _tls(plain: socket.socket, host: str, security: Security) -> socket.socket:
    context = ssl.create_default_context(cafile=security.ca_file or None)
    context.check_hostname = security.check_hostname
    if security.certificate_file:
        context.load_cert_chain(security.certificate_file, security.key_file or None)
    return context.wrap_socket(plain, server_hostname=host)


def _authenticate(connection: Connection, security: Security) -> None:
    answer = connection.call(protocol.SASL_HANDSHAKE, {"mechanism": security.mechanism})
    if answer["error"]:
        offered = ", ".join(answer["mechanisms"])
        raise OptionError(f"kafka.sasl.mechanism={security.mechanism} is not offered: {offered}")
    if security.mechanism == "PLAIN":
        token = f"\0{security.username}\0{security.password}".encode()
        _exchange(connection, token)
        return
    digest = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[security.mechanism]
    _scram(connection, digest, security.username, security.password)


def _exchange(connection: Connection, token: bytes) -> bytes:
    answer = connection.call(protocol.SASL_AUTHENTICATE, {"token": token})
    if answer["error"]:
        raise BrokerRefused(f"{connection.place} ({answer['message']})", answer["error"])
    return bytes(answer["token"] or b"")


def _scram(connection: Connection, digest: str, username: str, password: str) -> None:
    """RFC 5802, without channel binding, as Kafka does it."""
    nonce = secrets.token_urlsafe(24)
    name = username.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={nonce}"
    challenge = _exchange(connection, f"n,,{first}".encode()).decode()
    fields = dict(part.split("=", 1) for part in challenge.split(","))
    if not fields["r"].startswith(nonce):
        raise BrokerRefused("the server's SCRAM nonce is not ours", 58)
    salt, rounds = base64.b64decode(fields["s"]), int(fields["i"])
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, rounds)

    def sign(key: bytes, text: str | bytes) -> bytes:
        return hmac.digest(key, text.encode() if isinstance(text, str) else text, digest)

    client_key = sign(salted, "Client Key")
    without_proof = f"c=biws,r={fields['r']}"
    signed = f"{first},{challenge},{without_proof}"
    signature = sign(hashlib.new(digest, client_key).digest(), signed)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    final = f"{without_proof},p={base64.b64encode(proof).decode()}"
    verdict = _exchange(connection, final.encode()).decode()
    expected = base64.b64encode(sign(sign(salted, "Server Key"), signed)).decode()
    if not hmac.compare_digest(verdict.partition("v=")[2], expected):
        raise BrokerRefused("the server could not prove that it knows the password", 58)
