"""One client's socket: frames in, responses out in the order of the requests.

A request begins when the one before it has been answered, as with Apache Kafka, with one exception:
Produce requests are pipelined. Their appends happen one after the other, but the next begins while
earlier ones still wait for the disk, so that one sync serves many of them.

Memory is bounded: reading stops while too much is queued, or while the client does not read its
responses; requests that were already here wait.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING, cast

from penstock.errors import BrokerError, MalformedRequest
from penstock.kafka import dispatch
from penstock.kafka.busy import Busy
from penstock.kafka.context import RequestContext
from penstock.kafka.handlers import api_versions
from penstock.model.quota import REQUEST_PERCENTAGE
from penstock.wire.kafka import codec, framing

if TYPE_CHECKING:
    from penstock.kafka.server import KafkaServer

log = logging.getLogger("penstock.kafka")

# A client that leaves more than this of its answers unread gets no further answers until it reads.
_UNREAD_BYTES = 1024 * 1024
_PRODUCE_KEY = dispatch.PRODUCE.to_bytes(2, "big")  # how the frame of a Produce request begins


class _Reply:
    """A place in the order of responses; `buffers` is None until it is known."""

    __slots__ = ("api_key", "buffers", "done")

    def __init__(self, api_key: int) -> None:
        self.api_key = api_key
        self.done = False
        self.buffers: dispatch.Buffers | None = None


class Connection(asyncio.BufferedProtocol):
    """Reads frames, starts requests in order, writes responses in order."""

    def __init__(self, server: KafkaServer) -> None:
        self._server = server
        self._frames = framing.Frames(server.scratch, server.max_request_bytes)
        self._waiting: deque[memoryview] = deque()
        self._replies: deque[_Reply] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._fetches: set[asyncio.Task[None]] = set()
        self._goodbyes: dict[Hashable, Callable[[], None]] = {}
        self._transport: asyncio.Transport | None = None
        self._queued_bytes = 0
        self._beginning: _Reply | None = None  # is in the part that the next must not overlap
        self._reading = True
        self._writable = True
        self._muted_until = 0.0
        self._ready_bytes = 0  # of answers that were not written yet
        self._unread_bytes = 0  # of answers in memory, as the server was told
        self._partial_bytes = 0  # of a frame that is not whole yet
        self._partial_since = 0.0
        self.host = ""
        self.last_active = time.monotonic()

    def __repr__(self) -> str:
        return f"<Connection {self.host} waiting={len(self._waiting)} open={len(self._replies)}>"

    # --- what asyncio calls -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        peer = transport.get_extra_info("peername")
        self.host = peer[0] if isinstance(peer, tuple) else "local"
        self._transport.set_write_buffer_limits(high=_UNREAD_BYTES)
        delay_ms = self._server.connected(self, self._transport)
        if delay_ms:
            self._mute(delay_ms)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._server.disconnected(self)
        self._writable = True
        self._count_unread()
        self._keep_produces()
        self._hold_partial(0)
        # Nobody waits for a long poll any more. Everything else is finished as if somebody did:
        # half a commit would be worse than an answer that nobody reads.
        for task in self._fetches:
            task.cancel()
        for goodbye in self._goodbyes.values():
            goodbye()
        self._goodbyes.clear()
        self._start_requests()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.space()

    def buffer_updated(self, nbytes: int) -> None:
        self._server.stats.bytes_in += nbytes
        try:
            frames = self._frames.wrote(nbytes)
        except MalformedRequest as failure:
            self.refuse(failure)
            return
        for frame in frames:
            self._waiting.append(frame)
            self._queued_bytes += len(frame)
            self._server.requests_queued(len(frame))
        partial = self._frames.buffered_bytes
        if partial != self._partial_bytes:
            self._hold_partial(partial)
        if frames:
            self._start_requests()
        if frames or self._server.is_overloaded:
            self._pause_or_resume()

    def _hold_partial(self, size: int) -> None:
        """Count what an unfinished frame holds against the broker's limit."""
        if not self._partial_bytes:
            self._partial_since = time.monotonic()
        self._server.requests_queued(size - self._partial_bytes)
        self._partial_bytes = size

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._writable = False
        self._count_unread()
        self._pause_or_resume()

    def resume_writing(self) -> None:
        self._writable = True
        self._count_unread()
        self._start_requests()
        self._pause_or_resume()

    # --- ending -----------------------------------------------------------------------------------

    def refuse(self, failure: BaseException) -> None:
        """The client broke the protocol: one line in the log, and the connection is gone."""
        log.warning("closed the connection of %s: %s", self.host, failure)
        self._server.stats.malformed += 1
        self.close()

    def close(self) -> None:
        self._forget_waiting()
        if self._transport is not None:
            self._transport.abort()

    def _forget_waiting(self) -> None:
        size = sum(map(len, self._waiting))
        self._waiting.clear()
        self._dequeued(size)

    def _keep_produces(self) -> None:
        """The client is gone: of what it sent before, do what needs no answer to be of use.

        A producer without acknowledgements sends and goes; Apache Kafka, too, appends what it has
        received.
        """
        waiting, self._waiting = self._waiting, deque()
        for frame in waiting:
            if bytes(frame[:2]) == _PRODUCE_KEY:
                self._waiting.append(frame)
            else:
                self._dequeued(len(frame))

    def _dequeued(self, size: int) -> None:
        self._queued_bytes -= size
        self._server.requests_dequeued(size)

    @property
    def is_idle(self) -> bool:
        return not self._replies and not self._waiting

    def is_stalled(self, since: float) -> bool:
        """Whether a frame begun before `since` is still not whole."""
        return self._partial_bytes > 0 and self._partial_since < since

    def produces(self) -> list[asyncio.Task[None]]:
        """Appends under way, which a clean stop waits for."""
        is_produce = any(reply.api_key == dispatch.PRODUCE for reply in self._replies)
        return list(self._tasks) if is_produce else []

    # --- requests ---------------------------------------------------------------------------------

    def _pause_or_resume(self) -> None:
        if self._transport is None:
            return
        full = (
            not self._writable
            or len(self._waiting) > self._server.max_queued_requests
            or self._server.is_overloaded
        )
        # A connection with nothing queued may always read: small requests must get through.
        holds_nothing = not self._queued_bytes and not self._partial_bytes
        wanted = not full or (self._writable and holds_nothing)
        if wanted and not self._reading:
            self._transport.resume_reading()
        elif not wanted and self._reading:
            self._transport.pause_reading()
        self._reading = wanted

    def room_again(self) -> None:
        """The broker as a whole has room for requests again."""
        self._pause_or_resume()

    def _start_requests(self) -> None:
        if self._muted_until:
            return
        while self._waiting and self._beginning is None and self._writable:
            frame = self._waiting[0]
            try:
                header = framing.read_header(frame)
            except MalformedRequest as failure:
                self.refuse(failure)
                return
            # Whatever is under way when a Produce request may begin is another one: anything else
            # begins alone. So the newest tells of all.
            if self._replies and not (
                header.api_key == self._replies[-1].api_key == dispatch.PRODUCE
            ):
                return
            self._waiting.popleft()
            reply = self._beginning = _Reply(header.api_key)
            self._replies.append(reply)
            task = self._server.loop.create_task(self._serve(header, frame, reply))
            is_fetch = header.api_key in (dispatch.FETCH, dispatch.SHARE_FETCH)
            tasks = self._fetches if is_fetch else self._tasks
            tasks.add(task)
            task.add_done_callback(partial(self._finished, tasks, reply, len(frame)))

    def _mute(self, delay_ms: int) -> None:
        """Begin no request for a while: the client is over its quota."""
        until = self._server.loop.time() + delay_ms / 1000
        if until > self._muted_until:
            self._muted_until = until
            self._server.loop.call_at(until, self._unmute, until)

    def _unmute(self, until: float) -> None:
        # Told by the timer rather than read off the clock, which may still be a moment before.
        if until == self._muted_until:
            self._muted_until = 0.0
            self._start_requests()

    def _release(self, reply: _Reply, delay_ms: int) -> None:
        if delay_ms:
            self._mute(delay_ms)
        if self._beginning is reply:
            self._beginning = None
        if self._waiting:
            self._start_requests()

    async def _serve(self, header: framing.RequestHeader, frame: memoryview, reply: _Reply) -> None:
        started = time.monotonic()
        self.last_active = started
        try:
            reply.buffers = await self._answer(header, frame, reply)
            if reply.buffers is not None and len(reply.buffers) > 1:  # small ones are one buffer
                self._ready_bytes += sum(map(len, reply.buffers))
                self._count_unread()
        except MalformedRequest as failure:
            self.refuse(failure)
        except BrokerError as failure:
            # Handlers answer per item; an error that reaches here has no place in the response.
            self.refuse(failure)
        except Exception:
            log.exception("API %s v%s failed", header.api_key, header.api_version)
            self.close()
        self._server.stats.answered(header.api_key, time.monotonic() - started)

    def _finished(
        self,
        tasks: set[asyncio.Task[None]],
        reply: _Reply,
        size: int,
        task: asyncio.Task[None],
    ) -> None:
        """Runs even for a task that was cancelled before it began."""
        tasks.discard(task)
        reply.done = True
        self._dequeued(size)
        self._write_ready()
        if self._beginning is reply:  # else a later one has begun meanwhile, and is not done yet
            self._beginning = None
        self._start_requests()
        self._pause_or_resume()

    async def _answer(
        self, header: framing.RequestHeader, frame: memoryview, reply: _Reply
    ) -> dispatch.Buffers | None:
        key, version = header.api_key, header.api_version
        api = dispatch.APIS.get(key)
        if api is None or not api.serves(version):
            if key == codec.API_VERSIONS:
                body = codec.encode_response(key, 0, api_versions.unsupported())
                return _framed(codec.response_header(key, False, header.correlation_id), [body])
            raise MalformedRequest(f"API {key} v{version} is not served")
        flexible = dispatch.is_flexible(key, version)
        body_at = framing.skip_tags(frame, header.body_at) if flexible else header.body_at
        ctx = RequestContext(
            broker=self._server.broker,
            api_key=key,
            api_version=version,
            client_id=header.client_id or "",
            client_host=self.host,
            room=self._server.answer_room,
            release=partial(self._release, reply),
            goodbyes=self._goodbyes,
        )
        answer = dispatch.answer(ctx, frame[body_at:])
        if self._server.broker.quotas.is_set(REQUEST_PERCENTAGE):
            busy = Busy()
            buffers = await busy.measure(answer)
            ctx.throttle(REQUEST_PERCENTAGE, busy.seconds * 100)
        else:
            buffers = await answer
        if ctx.throttle_ms:
            self._mute(ctx.throttle_ms)
        if buffers is None:
            return None
        return _framed(codec.response_header(key, flexible, header.correlation_id), buffers)

    def _write_ready(self) -> None:
        transport = self._transport
        out: dispatch.Buffers = []
        counted = 0
        while self._replies and self._replies[0].done:
            buffers = self._replies.popleft().buffers
            if buffers:
                out += buffers
                counted += sum(map(len, buffers)) if len(buffers) > 1 else 0
        if counted:
            # Not before the loop has handed the bytes to the socket: only then does the transport
            # say how many of them it had to keep.
            self._server.loop.call_soon(self._wrote, counted)
        if not out or transport is None:
            return
        self._server.stats.bytes_out += sum(map(len, out))
        if len(out) == 1:
            transport.write(out[0])
        else:
            transport.writelines(out)

    def _wrote(self, size: int) -> None:
        self._ready_bytes -= size
        self._count_unread()

    def _count_unread(self) -> None:
        """Count what the answers of this client hold in memory.

        Little in the socket's buffer does not count: nothing is called when that little has gone.
        """
        held = self._ready_bytes
        if self._transport is not None:
            buffered = self._transport.get_write_buffer_size()
            held += buffered if buffered > _UNREAD_BYTES else 0
        if held != self._unread_bytes:
            self._server.answer_room.hold(held - self._unread_bytes)
            self._unread_bytes = held


def _framed(header: bytes, buffers: dispatch.Buffers) -> dispatch.Buffers:
    """The response with its size in front; small ones become one buffer, so one packet."""
    size = len(header) + sum(map(len, buffers))
    front = size.to_bytes(4, "big") + header
    if len(buffers) == 1 and len(buffers[0]) < 65536:
        return [b"".join((front, buffers[0]))]
    return [front, *buffers]
