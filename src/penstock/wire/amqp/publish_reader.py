"""The hot path in: publishes that are whole in one read, with as little work as possible for each.

    method frame │ header frame │ body frame's front │ body │ end octet
    └──────── the same for every message of a size ──┘

Publishers repeat themselves: the bytes of the method name the target, found in a dictionary, and
everything before the body of a message is what stood before the last one, so it is compared rather
than read. What does not look like that is left to the connection, frame by frame.
"""

from __future__ import annotations

import struct

from penstock.wire.amqp.channel import ChannelState
from penstock.wire.amqp.codes import (
    FRAME_BODY,
    FRAME_END,
    FRAME_HEADER,
    FRAME_OVERHEAD,
)
from penstock.wire.amqp.content import PublishTarget, read_publish
from penstock.wire.amqp.events import Event, Publish, Published
from penstock.wire.amqp.handshake import Limits

_FRAME = struct.Struct(">BHI")
_CONTENT = struct.Struct(">BHIIQ")
_SMALLEST_CONTENT = _CONTENT.size + 2 + 1  # property flags and the end octet
_SMALLEST_PROPERTIES = 14  # bytes of a header's payload that has none
_BASIC_CONTENT = 60 << 16  # class 60, weight 0
_REMEMBERED_TARGETS = 256
_REMEMBERED_PROPERTY_BYTES = 256


class PublishReader:
    """The targets of one connection's publishes, and how its messages are read."""

    __slots__ = ("_max_message_bytes", "payload_max", "targets")

    def __init__(self, limits: Limits) -> None:
        self._max_message_bytes = limits.max_message_bytes
        self.payload_max = limits.first_frame_max - FRAME_OVERHEAD
        self.targets: dict[bytes, PublishTarget] = {}

    def read(
        self,
        data: bytes,
        begin: int,
        position: int,
        target: PublishTarget,
        channel: ChannelState,
        events: list[Event],
    ) -> int:
        """Publishes whose header and single body frame are here too are taken in one go.

        The first has its method at `begin` and its header at `position`. Returns where the first
        frame stands that was not taken.
        """
        header = target.header
        start = position + len(header)
        if header and data.startswith(header, position):
            stop = start + target.body_size
        else:
            start, stop = self._read_header(data, position, target, channel)
        end = len(data)
        if not start or stop >= end or data[stop] != FRAME_END:
            channel.begin_content(target)
            return position
        bodies = [data[start:stop]]
        # The next message of the same size has the same bytes from its method to its body.
        front = data[begin:start]
        front_size, body_size = start - begin, stop - start
        position = stop + 1
        while data.startswith(front, position):
            start = position + front_size
            stop = start + body_size
            if stop >= end or data[stop] != FRAME_END:
                break
            bodies.append(data[start:stop])
            position = stop + 1
        group = Publish(target, target.properties, bodies)
        last = events[-1] if events else None
        if isinstance(last, Published) and last.channel is channel:
            last.groups.append(group)
        else:
            events.append(Published(channel, [group]))
        return position

    def _read_header(
        self, data: bytes, position: int, target: PublishTarget, channel: ChannelState
    ) -> tuple[int, int]:
        """Where the body begins and ends, if its one frame follows the header; else (0, 0)."""
        if len(data) - position < _SMALLEST_CONTENT:
            return 0, 0
        kind, number, size, basic, body_size = _CONTENT.unpack_from(data, position)
        body = position + size + FRAME_OVERHEAD
        if (
            kind != FRAME_HEADER
            or number != channel.number
            or basic != _BASIC_CONTENT
            or not _SMALLEST_PROPERTIES <= size <= self.payload_max
            or not 0 < body_size <= self.payload_max
            or body_size > self._max_message_bytes
            or body + 7 > len(data)
            or data[body - 1] != FRAME_END
            or _FRAME.unpack_from(data, body) != (FRAME_BODY, number, body_size)
        ):
            return 0, 0
        target.properties = data[position + _CONTENT.size : body - 1]
        target.body_size = body_size
        is_short = len(target.properties) <= _REMEMBERED_PROPERTY_BYTES
        target.header = data[position : body + 7] if is_short else b""
        return body + 7, body + 7 + body_size

    def remember(self, payload: bytes) -> PublishTarget:
        """The target of a publish whose bytes were not seen lately."""
        target = read_publish(payload)
        if len(self.targets) >= _REMEMBERED_TARGETS:
            self.targets.clear()
        self.targets[payload] = target
        return target
