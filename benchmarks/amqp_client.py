"""A raw pipelined AMQP client: as little of its own as possible, so that the broker is measured.

Blocking sockets, publish frames encoded once, confirms and deliveries recognised by their first
bytes. One process publishes with a window of unconfirmed messages, another consumes with a prefetch
and acknowledges many at a time.
"""

from __future__ import annotations

import multiprocessing
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection as Pipe

from pamqp import commands, frame
from pamqp.base import Frame

_FRAME = struct.Struct(">BHI")
_ACK = b"\x00\x3c\x00\x50"
_DELIVER = b"\x00\x3c\x00\x3c"


@dataclass(frozen=True)
class Load:
    """One measurement: what to send and how."""

    host: str
    port: int
    queue: str
    messages: int
    body_bytes: int = 100
    window: int = 1000
    batch: int = 100
    prefetch: int = 500
    ack_every: int = 50
    persistent: bool = True
    arguments: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Figures:
    """Messages a second, and how long confirms took, in milliseconds."""

    publish_rate: float
    consume_rate: float
    confirm_p50_ms: float
    confirm_p99_ms: float


class RawClient:
    """A connection with one channel."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port), 30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        self.socket.sendall(b"AMQP\x00\x00\x09\x01")
        self._expect(commands.Connection.Start)
        login = commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US")
        self.call(0, login, commands.Connection.Tune)
        self.send(0, commands.Connection.TuneOk(2047, 131072, 0))
        self.call(0, commands.Connection.Open("/"), commands.Connection.OpenOk)
        self.call(1, commands.Channel.Open(), commands.Channel.OpenOk)

    def send(self, channel: int, method: Frame) -> None:
        self.socket.sendall(frame.marshal(method, channel))

    def call(self, channel: int, method: Frame, answer: type[Frame]) -> Frame:
        self.send(channel, method)
        return self._expect(answer)

    def _expect(self, kind: type[Frame]) -> Frame:
        while True:
            if len(self.buffer) >= 7:
                size = int.from_bytes(self.buffer[3:7], "big") + 8
                if len(self.buffer) >= size:
                    one, self.buffer = self.buffer[:size], self.buffer[size:]
                    read = frame.unmarshal(one)[2]
                    if isinstance(read, kind):
                        return read
                    if isinstance(read, commands.Connection.Close | commands.Channel.Close):
                        raise RuntimeError(read.reply_text)
                    continue
            got = self.socket.recv(65536)
            if not got:
                raise ConnectionError("the broker closed the connection")
            self.buffer += got

    def declare(self, queue: str, arguments: Mapping[str, object]) -> None:
        declare = commands.Queue.Declare(queue=queue, durable=True, arguments=dict(arguments))
        self.call(1, declare, commands.Queue.DeclareOk)

    def delete(self, queue: str) -> None:
        self.call(1, commands.Queue.Delete(queue=queue), commands.Queue.DeleteOk)

    def close(self) -> None:
        self.socket.close()


def encoded_publish(queue: str, body: bytes, persistent: bool) -> bytes:
    name = queue.encode()
    method = b"\x00\x3c\x00\x28\x00\x00\x00" + bytes([len(name)]) + name + b"\x00"
    properties = b"\x10\x00\x02" if persistent else b"\x00\x00"
    header = b"\x00\x3c\x00\x00" + len(body).to_bytes(8, "big") + properties
    return b"".join(
        _FRAME.pack(kind, 1, len(payload)) + payload + b"\xce"
        for kind, payload in ((1, method), (2, header), (3, body))
    )


def publish(load: Load) -> tuple[float, list[float]]:
    """Publish everything with confirms; returns the seconds and each batch's confirm time."""
    client = RawClient(load.host, load.port)
    client.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
    block = encoded_publish(load.queue, b"x" * load.body_bytes, load.persistent) * load.batch
    sent = confirmed = 0
    sent_at: list[tuple[int, float]] = []
    times: list[float] = []
    oldest = 0
    buffer = client.buffer
    started = time.perf_counter()
    while confirmed < load.messages:
        while sent < load.messages and sent - confirmed + load.batch <= load.window:
            client.socket.sendall(block)
            sent += load.batch
            sent_at.append((sent, time.perf_counter()))
        buffer += client.socket.recv(65536)
        position = 0
        while len(buffer) - position >= 21:
            if buffer[position + 7 : position + 11] != _ACK:
                raise RuntimeError(f"not a confirm: {buffer[position : position + 80]!r}")
            tag = int.from_bytes(buffer[position + 11 : position + 19], "big")
            if buffer[position + 19]:
                confirmed = tag
            else:
                confirmed += 1
            position += 21
        buffer = buffer[position:]
        now = time.perf_counter()
        while oldest < len(sent_at) and sent_at[oldest][0] <= confirmed:
            times.append(now - sent_at[oldest][1])
            oldest += 1
    seconds = time.perf_counter() - started
    client.close()
    return seconds, times


def consume(load: Load, expected: int) -> tuple[float, float]:
    """Consume and acknowledge; returns when the first and the last message came."""
    client = RawClient(load.host, load.port)
    client.call(1, commands.Basic.Qos(0, load.prefetch, False), commands.Basic.QosOk)
    client.call(1, commands.Basic.Consume(queue=load.queue), commands.Basic.ConsumeOk)
    count = acked = 0
    first = 0.0
    buffer = client.buffer
    while count < expected:
        position, end = 0, len(buffer)
        while end - position >= 7 and count < expected:
            kind, _, size = _FRAME.unpack_from(buffer, position)
            if end - position < size + 8:
                break
            # A message is counted by its last frame: one body frame carries all of it here.
            if kind == 3:
                count += 1
                if count - acked >= load.ack_every or count == expected:
                    ack = struct.pack(">BHI4sQBB", 1, 1, 13, _ACK, count, 1, 0xCE)
                    client.socket.sendall(ack)
                    acked = count
            position += size + 8
        buffer = buffer[position:]
        if count < expected:
            got = client.socket.recv(262144)
            if not got:
                raise ConnectionError("the broker closed the connection")
            if not first:
                first = time.perf_counter()
            buffer += got
    last = time.perf_counter()
    client.buffer = buffer
    client.call(1, commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)
    client.close()
    return first, last


def _consume_in_process(load: Load, pipe: Pipe) -> None:
    pipe.send("ready")
    pipe.send(consume(load, load.messages))


def run(load: Load) -> Figures:
    """A producer here and a consumer in a process of its own, at the same time."""
    client = RawClient(load.host, load.port)
    client.declare(load.queue, load.arguments)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    consumer = context.Process(target=_consume_in_process, args=(load, theirs), daemon=True)
    consumer.start()
    ours.recv()
    time.sleep(0.3)
    started = time.perf_counter()
    seconds, times = publish(load)
    _, last = ours.recv()
    consumer.join()
    client.delete(load.queue)
    client.close()
    times.sort()
    return Figures(
        publish_rate=load.messages / seconds,
        consume_rate=load.messages / (last - started),
        confirm_p50_ms=times[len(times) // 2] * 1000,
        confirm_p99_ms=times[int(len(times) * 0.99)] * 1000,
    )


def _consume_times(load: Load, pipe: Pipe) -> None:
    """Receive bodies that begin with the time they were sent at; tell how long each took."""
    client = RawClient(load.host, load.port)
    client.call(1, commands.Basic.Qos(0, load.prefetch, False), commands.Basic.QosOk)
    client.call(1, commands.Basic.Consume(queue=load.queue), commands.Basic.ConsumeOk)
    pipe.send("ready")
    times: list[float] = []
    buffer = client.buffer
    while len(times) < load.messages:
        position, end = 0, len(buffer)
        while end - position >= 7:
            kind, _, size = _FRAME.unpack_from(buffer, position)
            if end - position < size + 8:
                break
            if kind == 3:
                (sent,) = struct.unpack_from(">d", buffer, position + 7)
                times.append(time.perf_counter() - sent)
                tag = len(times)
                client.socket.sendall(struct.pack(">BHI4sQBB", 1, 1, 13, _ACK, tag, 0, 0xCE))
            position += size + 8
        buffer = buffer[position:]
        if len(times) < load.messages:
            buffer += client.socket.recv(65536)
    pipe.send(times)


def measure_latency(load: Load, per_second: int = 1000) -> list[float]:
    """Seconds from publish to delivery of each message, at a steady rate, all persistent."""
    client = RawClient(load.host, load.port)
    client.declare(load.queue, load.arguments)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    consumer = context.Process(target=_consume_times, args=(load, theirs), daemon=True)
    consumer.start()
    ours.recv()
    client.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
    client.socket.setblocking(False)
    due = time.perf_counter()
    for _ in range(load.messages):
        due += 1 / per_second
        delay = due - time.perf_counter()
        if delay > 0:
            time.sleep(delay)
        stamp = struct.pack(">d", time.perf_counter())
        body = stamp + b"x" * (load.body_bytes - len(stamp))
        client.socket.sendall(encoded_publish(load.queue, body, load.persistent))
        try:
            client.socket.recv(65536)  # confirms, which nobody waits for here
        except BlockingIOError:
            continue
    times: list[float] = ours.recv()
    consumer.join()
    client.socket.setblocking(True)
    client.close()
    other = RawClient(load.host, load.port)
    other.delete(load.queue)
    other.close()
    return times
