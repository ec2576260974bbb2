"""Methods of the control plane: read as pamqp would, written where pamqp would not."""

from __future__ import annotations

import pytest
from pamqp import commands, frame
from pamqp.base import Frame

from penstock.wire.amqp.codes import COMMAND_INVALID, FRAME_ERROR, AmqpError
from penstock.wire.amqp.methods import (
    AccessRequest,
    decode_method,
    encode_access_request_ok,
    encode_method,
    method_ids,
)

ARGUMENTS = {"x-max-length": 5, "x-dead-letter-exchange": "dead", "nested": {"a": [1, True, None]}}
SENT_BY_CLIENTS: list[Frame] = [
    commands.Connection.StartOk({"product": "x"}, "PLAIN", "\0guest\0guest", "en_US"),
    commands.Connection.TuneOk(2047, 131072, 60),
    commands.Connection.Open("/"),
    commands.Connection.Close(200, "bye", 0, 0),
    commands.Connection.UpdateSecret("token", "expired"),
    commands.Channel.Open(),
    commands.Channel.Flow(True),
    commands.Exchange.Declare(
        exchange="e", exchange_type="topic", durable=True, internal=True, arguments=ARGUMENTS
    ),
    commands.Exchange.Delete(exchange="e", if_unused=True),
    commands.Exchange.Bind(destination="a", source="b", routing_key="k", arguments=ARGUMENTS),
    commands.Queue.Declare(queue="q", exclusive=True, nowait=True, arguments=ARGUMENTS),
    commands.Queue.Unbind(queue="q", exchange="e", routing_key="k", arguments={}),
    commands.Queue.Delete(queue="q", if_empty=True),
    commands.Basic.Qos(0, 65535, True),
    commands.Basic.Consume(queue="q", consumer_tag="t", no_ack=True, arguments=ARGUMENTS),
    commands.Basic.Get(queue="q", no_ack=True),
    commands.Basic.Recover(True),
    commands.Confirm.Select(),
    commands.Tx.Commit(),
]


@pytest.mark.parametrize("sent", SENT_BY_CLIENTS, ids=lambda method: method.name)
def test_what_clients_send_is_read(sent: Frame) -> None:
    payload = frame.marshal(sent, 1)[7:-1]
    read = decode_method(payload)
    assert type(read) is type(sent)
    assert dict(read) == dict(sent)


@pytest.mark.parametrize("sent", SENT_BY_CLIENTS, ids=lambda method: method.name)
def test_what_is_cut_short_or_too_long_is_refused(sent: Frame) -> None:
    payload = frame.marshal(sent, 1)[7:-1]
    for wrong in [*(payload[:end] for end in range(4, len(payload))), payload + b"\0"]:
        with pytest.raises(AmqpError) as caught:
            decode_method(wrong)
        assert caught.value.code == FRAME_ERROR
        assert caught.value.method == method_ids(sent)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (commands.Connection.Tune, (2047, 131072, 60)),
        (commands.Connection.Close, (404, "NOT_FOUND - no", 50, 10)),
        (commands.Connection.Blocked, ("low on disk",)),
        (commands.Channel.FlowOk, (True,)),
        (commands.Channel.CloseOk, ()),
        (commands.Queue.DeclareOk, ("plain", 3, 4)),
        (commands.Queue.DeleteOk, (7,)),
        (commands.Basic.Cancel, ("tag", True)),
        (commands.Exchange.UnbindOk, ()),
    ],
)
def test_pamqp_reads_what_is_written(kind: type[Frame], values: tuple[object, ...]) -> None:
    encoded = encode_method(9, kind, *values)
    consumed, channel, read = frame.unmarshal(encoded)
    assert (consumed, channel) == (len(encoded), 9)
    assert isinstance(read, kind)
    assert tuple(value for _, value in read) == values


@pytest.mark.parametrize("name", ["a*b", "what?", "größe", "a b", "x" * 255, "{}[]|&;\\"])
def test_names_that_pamqp_would_not_write_are_written(name: str) -> None:
    encoded = encode_method(1, commands.Queue.DeclareOk, name, 0, 0)
    assert decode_method(encoded[7:-1]).queue == name  # type: ignore[attr-defined]


def test_an_unknown_method_is_an_invalid_command() -> None:
    for payload in (b"\x00\x63\x00\x0a", b"\x00\x3c\x00\x63"):
        with pytest.raises(AmqpError) as caught:
            decode_method(payload)
        assert caught.value.code == COMMAND_INVALID


def test_a_name_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(AmqpError, match="UTF-8"):
        decode_method(b"\x00\x32\x00\x1e\x00\x00\x02\xff\xfe\x00")


def test_the_access_request_of_old_clients_is_known() -> None:
    assert isinstance(decode_method(b"\x00\x1e\x00\x0a\x05/data\x1f"), AccessRequest)
    assert (
        encode_access_request_ok(1) == b"\x01\x00\x01\x00\x00\x00\x06\x00\x1e\x00\x0b\x00\x01\xce"
    )


def test_a_reply_text_is_cut_between_characters() -> None:
    text = AmqpError(FRAME_ERROR, "ä" * 300).reply_text
    assert len(text.encode()) <= 255
    assert text.startswith("FRAME_ERROR - ä")
