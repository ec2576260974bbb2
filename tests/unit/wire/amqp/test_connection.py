"""A running connection: messages, channels, closing in both directions, and broken rules."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands
from pamqp.base import Frame

from penstock.wire.amqp import codes, heartbeat
from penstock.wire.amqp.codes import AmqpError
from penstock.wire.amqp.connection import ServerConnection
from penstock.wire.amqp.events import (
    Acknowledged,
    Called,
    ChannelClosed,
    ChannelFailed,
    ChannelOpened,
    CloseAnswered,
    ConnectionClosed,
    ConnectionFailed,
    Event,
    Published,
    Rejected,
    SecretUpdated,
)
from penstock.wire.amqp.handshake import Limits
from support.amqp_script import marshal, open_connection, publish, raw_frame, said, settle


def plain(events: list[Event]) -> list[tuple[object, ...]]:
    """Events as values that compare between connections, each message by itself."""
    values: list[tuple[object, ...]] = []
    for event in events:
        match event:
            case Published():
                values += [
                    ("published", event.channel.number, t.exchange, t.routing_key, properties, body)
                    for t, properties, bodies in event.groups
                    for body in bodies
                ]
            case Acknowledged() | Rejected():
                values.append((type(event).__name__, event.channel.number, *event[1:]))
            case Called():
                method = event.method
                values.append(("called", event.channel.number, method.name, dict(method)))
            case ChannelOpened() | ChannelClosed():
                values.append((type(event).__name__, event.channel.number))
            case ConnectionFailed():
                values.append(("failed", event.error.code, event.error.text))
            case _:
                values.append((repr(event),))
    return values


def bodies(events: list[Event]) -> list[object]:
    return [value[-1] for value in plain(events)]


# --- messages -------------------------------------------------------------------------------------


def test_messages_of_one_read_come_in_runs_by_channel() -> None:
    connection = open_connection(1, 2)
    events = connection.receive(
        publish(1, b"one") * 2
        + publish(2, b"two", exchange=b"", routing_key=b"q")
        + publish(1, b"")
    )
    assert [len(event.groups) for event in events] == [1, 1, 1]  # type: ignore[union-attr]
    assert [value[1:] for value in plain(events)] == [
        (1, "e", "k", b"\x10\x00\x02", b"one"),
        (1, "e", "k", b"\x10\x00\x02", b"one"),
        (2, "", "q", b"\x10\x00\x02", b"two"),
        (1, "e", "k", b"\x10\x00\x02", b""),
    ]


def test_messages_that_differ_only_in_their_bodies_are_one_group() -> None:
    connection = open_connection(1)
    (run,) = connection.receive(publish(1, b"1") + publish(1, b"2"))
    assert isinstance(run, Published)
    (group,) = run.groups
    assert group.bodies == [b"1", b"2"]


def test_targets_are_remembered_up_to_a_limit() -> None:
    connection = open_connection(1)
    for number in range(1000):
        connection.receive(publish(1, b"x", routing_key=b"key-%d" % number))
    assert len(connection._publishes.targets) <= 256


MODE = b"\x10\x00\x02"
LONG = b"\x00\x80\xff" + b"m" * 255
STREAM = b"".join(
    [
        marshal(1, commands.Channel.Open()),
        publish(1, b"short"),
        marshal(2, commands.Channel.Open()),
        heartbeat.FRAME,
        publish(2, b"cut into frames" * 20, room=17),
        settle(1, 80, 7, 1),
        settle(2, 120, 8, 3),
        settle(2, 90, 9, 1),
        publish(1, b""),
        marshal(1, commands.Queue.Declare(queue="q", arguments={"a": 1})),
        marshal(2, commands.Channel.Close(200, "", 0, 0)),
        publish(2, b"ignored: it came after the close"),
        marshal(0, commands.Connection.UpdateSecret("s", "")),
        raw_frame(4, 1, b"a frame type that does not exist"),
        publish(1, b"ignored: the connection has failed"),
    ]
)


@given(st.lists(st.integers(1, 200), max_size=60))
def test_how_the_bytes_are_cut_does_not_matter(cuts: list[int]) -> None:
    whole = plain(open_connection().receive(STREAM))
    connection, position = open_connection(), 0
    events: list[Event] = []
    for cut in cuts:
        events += connection.receive(STREAM[position : position + cut])
        position += cut
    events += connection.receive(STREAM[position:])
    assert plain(events) == whole


def test_the_stream_of_that_test_says_what_it_should() -> None:
    kinds = [type(event) for event in open_connection().receive(STREAM)]
    assert kinds == [
        ChannelOpened, Published, ChannelOpened, Published, Acknowledged, Rejected, Rejected,
        Published, Called, ChannelClosed, SecretUpdated, ConnectionFailed,
    ]  # fmt: skip


def test_settlements_carry_their_bits() -> None:
    connection = open_connection(1)
    events = connection.receive(
        settle(1, 80, 5, 1) + settle(1, 120, 2**63, 2) + settle(1, 120, 6, 1) + settle(1, 90, 7, 0)
    )
    assert [value[2:] for value in plain(events)] == [
        (5, True),
        (2**63, False, True, (60, 120)),
        (6, True, False, (60, 120)),
        (7, False, False, (60, 90)),
    ]


def test_messages_may_be_interleaved_between_channels_but_not_on_one() -> None:
    connection = open_connection(1, 2)
    one, two = publish(1, b"a" * 50, room=10), publish(2, b"b" * 50, room=10)
    frames_one, frames_two = _frames(one), _frames(two)
    mixed = b"".join(x + y for x, y in zip(frames_one, frames_two, strict=True))
    assert bodies(connection.receive(mixed)) == [b"a" * 50, b"b" * 50]
    assert connection.unfinished_bytes == 0


def _frames(data: bytes) -> list[bytes]:
    found = []
    while data:
        size = 8 + int.from_bytes(data[3:7], "big")
        found.append(data[:size])
        data = data[size:]
    return found


@given(
    st.lists(
        st.tuples(
            st.sampled_from([1, 2]), st.integers(0, 40), st.sampled_from([b"\0\0", MODE, LONG])
        ),
        max_size=30,
    )
)
def test_a_header_like_the_last_one_is_not_mistaken_for_another(
    said: list[tuple[int, int, bytes]],
) -> None:
    """Sizes, properties and channels in any order: the shortcut gives what the long way gives."""
    data = b"".join(
        publish(channel, bytes([size]) * size, properties=properties)
        for channel, size, properties in said
    )
    expected = [
        ("published", channel, "e", "k", properties, bytes([size]) * size)
        for channel, size, properties in said
    ]
    assert plain(open_connection(1, 2).receive(data)) == expected


# --- limits ---------------------------------------------------------------------------------------


def test_a_message_over_the_limit_ends_its_channel_before_its_body_arrives() -> None:
    connection = open_connection(1, limits=Limits(max_message_bytes=1000))
    big = publish(1, b"x" * 1001)
    (failed,) = connection.receive(big + publish(1, b"ignored"))
    assert isinstance(failed, ChannelFailed)
    assert failed.error.code == codes.PRECONDITION_FAILED
    assert failed.error.text == "message size 1001 is larger than configured max size 1000"
    connection.fail_channel(failed.channel, failed.error)
    assert connection.unfinished_bytes == 0
    assert connection.receive(marshal(1, commands.Channel.CloseOk())) == []
    (opened,) = connection.receive(marshal(1, commands.Channel.Open()))
    assert isinstance(opened, ChannelOpened)


def test_unfinished_messages_on_many_channels_are_bounded() -> None:
    limits = Limits(max_message_bytes=1000, max_unfinished_bytes=2500)
    connection = open_connection(*range(1, 5), limits=limits)
    for number in (1, 2):
        assert connection.receive(publish(number, b"x" * 999, announced=1000)) == []
    assert connection.unfinished_bytes == 1998
    (failed,) = connection.receive(publish(3, b"x" * 999, announced=1000))
    assert isinstance(failed, ConnectionFailed)
    assert failed.error.code == codes.RESOURCE_ERROR
    assert connection.unfinished_bytes == 0


def test_clients_that_miscount_the_overhead_of_a_frame_are_forgiven() -> None:
    connection = open_connection(1, frame_max=4096)
    body = b"x" * 4096
    assert bodies(connection.receive(publish(1, body, room=4096))) == [body]
    (failed,) = connection.receive(publish(1, b"x" * 4097, room=4097))
    assert isinstance(failed, ConnectionFailed)
    assert failed.error.code == codes.FRAME_ERROR


def test_a_frame_that_arrives_byte_by_byte_costs_no_more_than_itself() -> None:
    connection = open_connection(1)
    data = publish(1, b"x" * 100_000)
    events: list[Event] = []
    for position in range(len(data)):
        events += connection.receive(data[position : position + 1])
    assert bodies(events) == [b"x" * 100_000]


# --- broken rules ---------------------------------------------------------------------------------

PUBLISH = raw_frame(1, 1, b"\x00\x3c\x00\x28\x00\x00\x01e\x01k\x00")
BROKEN: dict[str, tuple[bytes, int]] = {
    "unknown frame type": (raw_frame(4, 1, b"abc"), codes.FRAME_ERROR),
    "wrong end octet": (raw_frame(1, 1, b"\x00\x0a\x00\x32", b"\x00"), codes.FRAME_ERROR),
    "oversize frame": (struct.pack(">BHI", 3, 1, 200_000) + b"x", codes.FRAME_ERROR),
    "frame of 4 GiB": (struct.pack(">BHI", 3, 1, 2**32 - 1) + b"x", codes.FRAME_ERROR),
    "empty method frame": (raw_frame(1, 1, b""), codes.FRAME_ERROR),
    "heartbeat on a channel": (raw_frame(8, 1, b""), codes.UNEXPECTED_FRAME),
    "heartbeat with a payload": (raw_frame(8, 0, b"x"), codes.FRAME_ERROR),
    "header without a method": (raw_frame(2, 1, b"\x00\x3c" + bytes(12)), codes.UNEXPECTED_FRAME),
    "body without a method": (raw_frame(3, 1, b"x"), codes.UNEXPECTED_FRAME),
    "content on channel 0": (raw_frame(2, 0, b"\x00\x3c" + bytes(12)), codes.UNEXPECTED_FRAME),
    "content on a closed channel": (raw_frame(3, 9, b"x"), codes.UNEXPECTED_FRAME),
    "body before its header": (PUBLISH + raw_frame(3, 1, b"x"), codes.UNEXPECTED_FRAME),
    "a second publish before the first is whole": (PUBLISH + PUBLISH, codes.UNEXPECTED_FRAME),
    "another method before a message is whole": (
        PUBLISH + marshal(1, commands.Tx.Select()),
        codes.UNEXPECTED_FRAME,
    ),
    "a second header": (
        publish(1, b"", announced=5) + raw_frame(2, 1, b"\x00\x3c" + bytes(12)),
        codes.UNEXPECTED_FRAME,
    ),
    "header of another class": (
        PUBLISH + raw_frame(2, 1, b"\x00\x32" + bytes(12)),
        codes.UNEXPECTED_FRAME,
    ),
    "header too short": (PUBLISH + raw_frame(2, 1, b"\x00\x3c" + bytes(8)), codes.FRAME_ERROR),
    "body longer than announced": (publish(1, b"abc", announced=2), codes.FRAME_ERROR),
    "publish cut short": (raw_frame(1, 1, b"\x00\x3c\x00\x28\x00"), codes.FRAME_ERROR),
    "publish with a short string that overflows": (
        raw_frame(1, 1, b"\x00\x3c\x00\x28\x00\x00\xffe\x01k\x00"),
        codes.FRAME_ERROR,
    ),
    "unknown method": (raw_frame(1, 1, b"\x00\x63\x00\x0a"), codes.COMMAND_INVALID),
    "a method only brokers send": (
        marshal(1, commands.Queue.DeclareOk("q", 0, 0)),
        codes.COMMAND_INVALID,
    ),
    "close-ok nobody asked for": (marshal(1, commands.Channel.CloseOk()), codes.COMMAND_INVALID),
    "a connection method on a channel": (
        marshal(1, commands.Connection.Open("/")),
        codes.COMMAND_INVALID,
    ),
    "a channel opened twice": (marshal(1, commands.Channel.Open()), codes.CHANNEL_ERROR),
    "a channel used unopened": (marshal(7, commands.Queue.Declare(queue="q")), codes.CHANNEL_ERROR),
    "publish on a channel unopened": (publish(7, b"x"), codes.CHANNEL_ERROR),
    "a channel method on channel 0": (marshal(0, commands.Channel.Open()), codes.CHANNEL_ERROR),
    "purge on channel 0": (marshal(0, commands.Queue.Purge(queue="q")), codes.CHANNEL_ERROR),
    "open said again": (marshal(0, commands.Connection.Open("/")), codes.CHANNEL_ERROR),
    "undecodable arguments": (raw_frame(1, 1, b"\x00\x32\x00\x0a\x00"), codes.FRAME_ERROR),
    "a name that is not UTF-8": (
        raw_frame(1, 1, b"\x00\x32\x00\x1e\x00\x00\x02\xff\xfe\x00"),
        codes.FRAME_ERROR,
    ),
}


@pytest.mark.parametrize(("data", "code"), BROKEN.values(), ids=list(BROKEN))
def test_a_broken_rule_ends_the_connection_with_its_code(data: bytes, code: int) -> None:
    connection = open_connection(1)
    events = connection.receive(data + publish(1, b"ignored"))
    (failed,) = [event for event in events if isinstance(event, ConnectionFailed)]
    assert failed is events[-1]
    assert failed.error.code == code
    connection.fail(failed.error)
    close = said(connection)[-1]
    assert isinstance(close, commands.Connection.Close)
    assert close.reply_code == code
    assert close.reply_text.startswith(codes.NAMES[code])
    assert connection.is_failed


def test_the_channel_limit_is_one_of_the_connection() -> None:
    connection = open_connection(1, 2, channel_max=2)
    (failed,) = connection.receive(marshal(3, commands.Channel.Open()))
    assert isinstance(failed, ConnectionFailed)
    assert failed.error.code == codes.NOT_ALLOWED
    assert "has reached the negotiated channel_max (2)" in failed.error.text


# --- closing --------------------------------------------------------------------------------------


def test_a_channel_number_can_be_used_again_after_close_ok() -> None:
    connection = open_connection(1)
    (closed,) = connection.receive(marshal(1, commands.Channel.Close(200, "", 0, 0)))
    assert isinstance(closed, ChannelClosed)
    connection.confirm_close(closed.channel)
    assert isinstance(said(connection)[-1], commands.Channel.CloseOk)
    (opened,) = connection.receive(marshal(1, commands.Channel.Open()))
    assert isinstance(opened, ChannelOpened)


def test_what_follows_the_failure_of_a_channel_is_ignored_until_close_ok() -> None:
    connection = open_connection(1, 2)
    channel = connection.channels[0]
    connection.fail_channel(channel, AmqpError(codes.NOT_FOUND, "no queue 'q'", (50, 10)))
    (close,) = said(connection)
    assert isinstance(close, commands.Channel.Close)
    assert close.reply_text == "NOT_FOUND - no queue 'q'"
    assert (close.class_id, close.method_id) == (50, 10)
    ignored: list[Frame] = [commands.Queue.Declare(queue="q"), commands.Channel.Open()]
    for method in ignored:
        assert connection.receive(marshal(1, method)) == []
    assert connection.receive(publish(1, b"x") + settle(1, 80, 1, 0)) == []
    (event,) = connection.receive(publish(2, b"others go on"))
    assert isinstance(event, Published)
    assert connection.receive(marshal(1, commands.Channel.CloseOk())) == []
    assert isinstance(connection.receive(marshal(1, commands.Channel.Open()))[0], ChannelOpened)


def test_a_close_that_crosses_ours_is_answered() -> None:
    connection = open_connection(1)
    channel = connection.channels[0]
    connection.fail_channel(channel, AmqpError(codes.NOT_FOUND, "x"))
    said(connection)
    assert connection.receive(marshal(1, commands.Channel.Close(200, "", 0, 0))) == []
    assert isinstance(said(connection)[-1], commands.Channel.CloseOk)
    assert isinstance(connection.receive(marshal(1, commands.Channel.Open()))[0], ChannelOpened)


def test_an_error_found_after_the_client_left_still_reaches_it() -> None:
    connection = open_connection(1)
    published, closed = connection.receive(
        publish(1, b"to nowhere") + marshal(1, commands.Channel.Close(200, "", 0, 0))
    )
    assert isinstance(published, Published)
    assert isinstance(closed, ChannelClosed)
    connection.fail_channel(published.channel, AmqpError(codes.NOT_FOUND, "x"))
    connection.confirm_close(closed.channel)
    assert [type(m) for m in said(connection)] == [commands.Channel.Close, commands.Channel.CloseOk]
    assert connection.receive(marshal(1, commands.Channel.CloseOk())) == []
    assert connection.channels == []


def test_the_client_closes_the_connection() -> None:
    connection = open_connection(1)
    events = connection.receive(
        publish(1, b"last") + marshal(0, commands.Connection.Close(200, "bye", 0, 0)) + b"junk"
    )
    assert isinstance(events[0], Published)
    assert events[1:] == [ConnectionClosed(200, "bye")]
    connection.confirm_connection_close()
    assert isinstance(said(connection)[-1], commands.Connection.CloseOk)
    assert connection.is_finished


def test_the_broker_closes_the_connection() -> None:
    connection = open_connection(1)
    connection.fail(AmqpError(codes.CONNECTION_FORCED, "shutdown"))
    connection.fail(AmqpError(codes.CONNECTION_FORCED, "only said once"))
    (close,) = said(connection)
    assert isinstance(close, commands.Connection.Close)
    assert close.reply_text == "CONNECTION_FORCED - shutdown"
    assert connection.receive(publish(1, b"ignored") + raw_frame(4, 0, b"junk")) == []
    assert connection.receive(marshal(0, commands.Connection.Close(200, "", 0, 0))) == []
    assert isinstance(said(connection)[-1], commands.Connection.CloseOk)
    (answered,) = connection.receive(marshal(0, commands.Connection.CloseOk()))
    assert answered == CloseAnswered()
    assert connection.is_finished


def test_after_bytes_that_are_no_frames_nothing_is_read_any_more() -> None:
    connection = open_connection(1)
    (failed,) = connection.receive(raw_frame(1, 1, b"\x00\x0a\x00\x32", b"\x00"))
    assert isinstance(failed, ConnectionFailed)
    connection.fail(failed.error)
    assert connection.is_finished
    assert connection.receive(publish(1, b"x") * 1000) == []


def test_a_connection_tells_its_state_in_a_debugger() -> None:
    connection: ServerConnection = open_connection(1)
    assert repr(connection) == "<ServerConnection running channels=1>"
    assert repr(connection.channels[0]) == "<ChannelState 1 open>"
