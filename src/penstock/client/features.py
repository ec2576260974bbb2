"""Is there a Kafka server, and what can it do? One question over a plain socket.

librdkafka tries for minutes to reach a server that is not there, and does not tell which requests
the server knows. ApiVersions is the one request that every server answers before anybody has
logged in, in a form that has not changed since version 0:

    request    size i32, key i16 = 18, version i16 = 0, correlation i32, client id string
    response   size i32, correlation i32, error i16, array of (key i16, lowest i16, highest i16)

Who comes without a login then asks for the metadata of no topic: a server that wants one closes
the connection, and librdkafka would come back for ever.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Sequence
from typing import NamedTuple

from penstock.client.errors import Denied, InvalidArgument, NotSupported, Unavailable
from penstock.client.security import of_tls_failure

METADATA = 3
SASL_HANDSHAKE = 17
API_VERSIONS = 18
CONSUMER_GROUP_HEARTBEAT = 68
SHARE_GROUP_HEARTBEAT = 76
INIT_PRODUCER_ID = 22
_MOST_BYTES = 1 << 20
_REASON_SECONDS = 2.0


class Features(NamedTuple):
    """What the server answers to: the highest version of each request by its number."""

    highest: dict[int, int]

    @property
    def new_groups(self) -> bool:
        """Whether it has the group protocol of KIP-848."""
        return CONSUMER_GROUP_HEARTBEAT in self.highest

    @property
    def share_groups(self) -> bool:
        """Whether it has share groups (KIP-932)."""
        return SHARE_GROUP_HEARTBEAT in self.highest

    @property
    def idempotence(self) -> bool:
        """Whether it recognises a batch that was sent twice."""
        return INIT_PRODUCER_ID in self.highest

    @property
    def logins(self) -> bool:
        """Whether its Kafka door knows what logging in is."""
        return SASL_HANDSHAKE in self.highest

    def require(self, call: str) -> None:
        """Raise for a call that the server does not know, by the name of the call.

        >>> Features({22: 5, 24: 5, 26: 5}).require("transaction")
        """
        missing = [name for key, name in _NEEDED[call] if key not in self.highest]
        if missing:
            raise NotSupported(
                f"this server cannot do {call}(): it does not know {', '.join(missing)}; "
                "Penstock and Apache Kafka since 2.0 do"
            )


_NEEDED: dict[str, list[tuple[int, str]]] = {
    "transaction": [
        (INIT_PRODUCER_ID, "InitProducerId"),
        (24, "AddPartitionsToTxn"),
        (26, "EndTxn"),
    ],
    "delete_records": [(21, "DeleteRecords")],
    "add_partitions": [(37, "CreatePartitions")],
    "alter_topic": [(44, "IncrementalAlterConfigs")],
    "delete_group": [(42, "DeleteGroups")],
}


def parse_servers(servers: str | Sequence[str]) -> list[tuple[str, int]]:
    """Addresses from "host:port,host:port" or a list of them.

    >>> parse_servers("a:9092, [::1]:9093")
    [('a', 9092), ('::1', 9093)]
    """
    texts = servers.split(",") if isinstance(servers, str) else list(servers)
    found = []
    for text in texts:
        host, colon, port = text.strip().rpartition(":")
        if not colon or not host or not port.isdecimal() or int(port) > 65535:
            raise InvalidArgument(f"{text!r} is not an address like 127.0.0.1:9092")
        found.append((host.strip("[]"), int(port)))
    return found


def ask_features(
    servers: Sequence[tuple[str, int]],
    tls: ssl.SSLContext | None,
    timeout: float,
    *,
    anonymous: bool = True,
) -> Features:
    """What the first server that answers can do; `Unavailable` when none does."""
    failures = []
    for host, port in servers:
        where = f"{host}:{port}"
        try:
            with _connected(host, port, tls, timeout) as connection:
                return _ask(connection, where, anonymous)
        except ssl.SSLError as failure:
            raise of_tls_failure(where, failure) from failure
        except (OSError, EOFError, ValueError) as failure:
            if tls is not None and isinstance(failure, ConnectionError):
                _listen(host, port, tls, timeout)
            failures.append(f"{where} ({failure or type(failure).__name__})")
    raise Unavailable(
        f"no broker answers at {', '.join(failures)}; start one with `penstock serve`, or check "
        "the address"
    )


def _connected(host: str, port: int, tls: ssl.SSLContext | None, timeout: float) -> socket.socket:
    plain = socket.create_connection((host, port), timeout=timeout)
    if tls is None:
        return plain
    with plain:  # its descriptor moves to the other, or it is closed here
        return tls.wrap_socket(plain, server_hostname=host)


def _listen(host: str, port: int, tls: ssl.SSLContext, timeout: float) -> None:
    """Hear why a server hung up: by TLS 1.3 it refuses our certificate after the handshake.

    Its reason is lost when our request meets a closed socket. So: say nothing, and read.
    """
    try:
        with _connected(host, port, tls, min(timeout, _REASON_SECONDS)) as connection:
            connection.recv(1)
    except ssl.SSLError as failure:
        raise of_tls_failure(f"{host}:{port}", failure) from failure
    except OSError:
        return


def _ask(connection: socket.socket, where: str, anonymous: bool) -> Features:
    body = _answer(connection, where, API_VERSIONS, 0, b"")
    error, count = struct.unpack_from(">hi", body)
    if error != 0 or len(body) < 6 + 6 * count:
        raise ValueError("this is not a Kafka server")
    rows = struct.iter_unpack(">hhh", body[6 : 6 + 6 * count])
    features = Features({key: highest for key, _, highest in rows})
    if anonymous and features.logins:
        try:
            _answer(connection, where, METADATA, 1, struct.pack(">i", 0))
        except (ConnectionError, EOFError) as failure:
            raise Denied(f"{where} wants a login; give username= and password=") from failure
    return features


def _answer(connection: socket.socket, where: str, key: int, version: int, wanted: bytes) -> bytes:
    """Ask one thing, and what came after the correlation id."""
    client = b"penstock"
    request = struct.pack(">hhih", key, version, key, len(client)) + client + wanted
    connection.sendall(struct.pack(">i", len(request)) + request)
    head = _exactly(connection, 4)
    if head[:2] in (b"\x15\x03", b"\x16\x03"):  # a record of TLS: an alert, or a handshake
        raise Unavailable(f"{where} speaks TLS: give tls=True, or ca= to trust an authority")
    (size,) = struct.unpack(">i", head)
    if not 10 <= size <= _MOST_BYTES:
        raise ValueError("this is not a Kafka server")
    body = _exactly(connection, size)
    if struct.unpack_from(">i", body) != (key,):
        raise ValueError("this is not a Kafka server")
    return body[4:]


def _exactly(connection: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = connection.recv(size)
        if not part:
            raise EOFError("it closed the connection; does it want tls=True?")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
