"""What clients send to log in."""

from __future__ import annotations

import pytest

from penstock.amqp.login import credentials
from penstock.errors import LoginRefused
from penstock.model.field_table import encode_table


def test_plain_is_user_and_password_behind_nuls() -> None:
    assert credentials("PLAIN", b"\0guest\0s3cr\xff t") == ("guest", b"s3cr\xff t")
    assert credentials("PLAIN", b"ignored\0user\0") == ("user", b"")


def test_amqplain_is_a_table_without_its_size() -> None:
    response = encode_table({"LOGIN": "guest", "PASSWORD": "secret"})[4:]
    assert credentials("AMQPLAIN", response) == ("guest", b"secret")


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [
        ("PLAIN", b""),
        ("PLAIN", b"guest"),
        ("PLAIN", b"\0a\0b\0c"),
        ("PLAIN", b"\0\xff\xfe\0b"),
        ("AMQPLAIN", b""),
        ("AMQPLAIN", b"\x05LOGINS\x00\x00"),
        ("AMQPLAIN", encode_table({"LOGIN": 5, "PASSWORD": "x"})[4:]),
        ("AMQPLAIN", encode_table({"LOGIN": "x"})[4:]),
    ],
)
def test_anything_else_is_refused(mechanism: str, response: bytes) -> None:
    with pytest.raises(LoginRefused):
        credentials(mechanism, response)
