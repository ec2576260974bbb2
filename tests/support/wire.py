"""A raw Kafka connection: any request at any version, byte for byte, with nothing done for you.

Requests are plain nested dicts in the field names of kio, whose fields a version may lack (then
they are left out) and may be missing (then the schema's default is sent, else a zero). Responses
are kio's dataclasses, and one with bytes left over is an error: the broker encoded it wrongly.
"""

from __future__ import annotations

import datetime
import io
import socket
import struct
import typing
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer

from support.waiting import eventually

KEYS = {name: key for key, name in api_key_map.items()}


def build(schema: Any, values: Mapping[str, Any]) -> Any:
    """An instance of a kio dataclass from plain values (see the module's promise)."""
    made = {}
    for field in fields(schema):
        if field.name in values:
            made[field.name] = _convert(field, values[field.name])
        elif field.default is not MISSING:
            made[field.name] = field.default
        else:
            made[field.name] = _zero(field)
    return schema(**made)


def _inner_type(field: Field[Any]) -> tuple[Any, bool, bool]:
    """(element type, is it an array, may it be null) of a field."""
    kind, array, nullable = field.type, False, False
    for _ in range(3):
        arguments = typing.get_args(kind)
        if type(None) in arguments:
            nullable = True
            kind = next(one for one in arguments if one is not type(None))
        elif typing.get_origin(kind) is tuple:
            array, kind = True, arguments[0]
    return kind, array, nullable


def _convert(field: Field[Any], value: Any) -> Any:
    kind, array, _ = _inner_type(field)
    if value is None:
        return None
    if array:
        return tuple(build(kind, one) if is_dataclass(kind) else one for one in value)
    if is_dataclass(kind):
        return build(kind, value) if isinstance(value, Mapping) else value
    match field.metadata.get("kafka_type"):
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=value)
        case "datetime_i64":
            return datetime.datetime.fromtimestamp(value / 1000, datetime.UTC)
        case "error_code":
            return ErrorCode(value)
    return value


def _zero(field: Field[Any]) -> Any:
    kind, array, nullable = _inner_type(field)
    if array:
        return ()
    if nullable:
        return None
    if is_dataclass(kind):
        return build(kind, {})
    match field.metadata.get("kafka_type"):
        case "string":
            return ""
        case "bytes" | "records":
            return b""
        case "bool":
            return False
        case "uuid":
            return uuid.UUID(int=0)
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(0)
        case "datetime_i64":
            return datetime.datetime.fromtimestamp(0, datetime.UTC)
    return 0


def encode_request(
    api: str,
    version: int,
    values: Mapping[str, Any],
    *,
    correlation_id: int = 1,
    client_id: str | None = "raw",
) -> bytes:
    """The whole frame of a request, with its length in front."""
    schema = load_request_schema(KEYS[api], version)
    out = io.BytesIO()
    header = build(
        schema.__header_schema__,
        {
            "request_api_key": KEYS[api],
            "request_api_version": version,
            "correlation_id": correlation_id,
            "client_id": client_id,
        },
    )
    entity_writer(schema.__header_schema__)(out, header)
    entity_writer(schema)(out, build(schema, values))
    return struct.pack(">i", out.tell()) + out.getvalue()


class ConnectionClosed(Exception):
    """The broker closed the connection (or reset it) where an answer was expected."""


class Wire:
    """One connection. `call` sends and receives; `send` and `receive` do it apart, to pipeline."""

    def __init__(self, host: str, port: int, *, timeout: float = 15.0) -> None:
        self.socket = socket.create_connection((host, port), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._next_id = 1
        self._sent: list[tuple[int, str, int]] = []

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(
        self,
        api: str,
        version: int,
        values: Mapping[str, Any] | None = None,
        *,
        answer: bool = True,
    ) -> int:
        """Send one request; `answer=False` for those without one (Produce with acks=0)."""
        correlation_id = self._next_id
        self._next_id += 1
        if answer:
            self._sent.append((correlation_id, api, version))
        self.send_bytes(encode_request(api, version, values or {}, correlation_id=correlation_id))
        return correlation_id

    def send_bytes(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except (ConnectionError, BrokenPipeError) as error:
            raise ConnectionClosed(str(error)) from error

    def receive(self) -> Any:
        """The answer to the oldest unanswered request; its correlation id must be that one's."""
        correlation_id, api, version = self._sent.pop(0)
        frame = self.receive_frame()
        schema = load_response_schema(KEYS[api], version)
        header, size = entity_reader(schema.__header_schema__)(frame, 0)
        assert header.correlation_id == correlation_id, "answers out of order"
        body, read = entity_reader(schema)(frame, size)
        assert size + read == len(frame), (
            f"{api} v{version}: {len(frame) - size - read} bytes too many in the answer"
        )
        return body

    def receive_frame(self) -> bytes:
        (length,) = struct.unpack(">i", self._read(4))
        return self._read(length)

    def _read(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            try:
                more = self.socket.recv(count - len(data))
            except ConnectionError as error:
                raise ConnectionClosed(str(error)) from error
            if not more:
                raise ConnectionClosed(f"closed after {len(data)} of {count} bytes")
            data += more
        return bytes(data)

    def call(self, api: str, version: int, values: Mapping[str, Any] | None = None) -> Any:
        self.send(api, version, values)
        return self.receive()

    def is_closed(self, *, within: float = 10.0) -> bool:
        """Whether the broker closes this connection without another byte."""
        self.socket.settimeout(within)
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False


def ranges(wire: Wire) -> dict[int, tuple[int, int]]:
    """What the broker advertises: api key -> (lowest, highest version)."""
    answer = wire.call(
        "api_versions", 3, {"client_software_name": "raw", "client_software_version": "1"}
    )
    return {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}


def topic_id(wire: Wire, topic: str) -> uuid.UUID:
    answer = wire.call("metadata", 12, {"topics": [{"name": topic}]})
    (found,) = answer.topics
    assert found.error_code == ErrorCode.none, found
    assert found.topic_id is not None
    return uuid.UUID(str(found.topic_id))


def create_topic(
    wire: Wire, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None
) -> uuid.UUID:
    settings: Sequence[Mapping[str, str]] = [
        {"name": name, "value": value} for name, value in (configs or {}).items()
    ]
    wanted = {
        "name": topic,
        "num_partitions": partitions,
        "replication_factor": 1,
        "configs": settings,
    }
    answer = wire.call("create_topics", 7, {"topics": [wanted], "timeout": 10_000})
    (made,) = answer.topics
    assert made.error_code == ErrorCode.none, made
    for partition in range(partitions):
        eventually(lambda one=partition: is_led(wire, topic, one), what="a leader")
    return uuid.UUID(str(made.topic_id))


def is_led(wire: Wire, topic: str, partition: int) -> bool:
    """Whether the partition answers; in Kafka that comes a moment after the topic was made."""
    asked = {"partition_index": partition, "timestamp": -1}
    values = {"replica_id": -1, "topics": [{"name": topic, "partitions": [asked]}]}
    answer = wire.call("list_offsets", 7, values)
    return bool(answer.topics[0].partitions[0].error_code == ErrorCode.none)
