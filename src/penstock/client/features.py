"""Is there a Kafka server, and what can it do? One question over a plain socket.

librdkafka tries for minutes to reach a server that is not there, and does not tell which requests
the server knows. ApiVersions is the one request that every server answers before anybody has
logged in, in a form that has not changed since version 0:

    request    size i32, key i16 = 18, version i16 = 0, correlation i32, client id string
    response   size i32, correlation i32, error i16, array of (key i16, lowest i16, highest i16)
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Sequence
from typing import NamedTuple

from penstock.client.errors import Denied, InvalidArgument, NotSupported, Unavailable

API_VERSIONS = 18
CONSUMER_GROUP_HEARTBEAT = 68
SHARE_GROUP_HEARTBEAT = 76
INIT_PRODUCER_ID = 22
_MOST_BYTES = 1 << 20


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
    servers: Sequence[tuple[str, int]], tls: ssl.SSLContext | None, timeout: float
) -> Features:
    """What the first server that answers can do; `Unavailable` when none does."""
    failures = []
    for host, port in servers:
        try:
            with socket.create_connection((host, port), timeout=timeout) as plain:
                if tls is None:
                    return _ask(plain)
                with tls.wrap_socket(plain, server_hostname=host) as secure:
                    return _ask(secure)
        except ssl.SSLCertVerificationError as failure:
            raise Denied(f"{host}:{port} is not trusted: {failure.verify_message}") from failure
        except (OSError, ValueError) as failure:
            failures.append(f"{host}:{port} ({failure or type(failure).__name__})")
    raise Unavailable(
        f"no broker answers at {', '.join(failures)}; start one with `penstock serve`, or check "
        "the address and whether it wants tls=True"
    )


def _ask(connection: socket.socket) -> Features:
    client = b"penstock"
    request = struct.pack(">hhih", API_VERSIONS, 0, 1, len(client)) + client
    connection.sendall(struct.pack(">i", len(request)) + request)
    (size,) = struct.unpack(">i", _exactly(connection, 4))
    if not 10 <= size <= _MOST_BYTES:
        raise ValueError("this is not a Kafka server")
    body = _exactly(connection, size)
    correlation, error, count = struct.unpack_from(">ihi", body)
    if correlation != 1 or error != 0 or size < 10 + 6 * count:
        raise ValueError("this is not a Kafka server")
    rows = struct.iter_unpack(">hhh", body[10 : 10 + 6 * count])
    return Features({key: highest for key, _, highest in rows})


def _exactly(connection: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = connection.recv(size)
        if not part:
            raise ValueError("it closed the connection")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
