"""What a client says to log in, in the two mechanisms every client knows.

PLAIN (RFC 4616)    authorization id | NUL | user | NUL | password
AMQPLAIN            the entries of a field table: LOGIN and PASSWORD, without the table's size
"""

from __future__ import annotations

from penstock.errors import LoginRefused, MalformedRequest
from penstock.model.field_table import decode_table

MECHANISMS = ("PLAIN", "AMQPLAIN")


def credentials(mechanism: str, response: bytes) -> tuple[str, bytes]:
    """(user, password); LoginRefused when the response is not one of the mechanism."""
    try:
        if mechanism == "PLAIN":
            _, user, password = response.split(b"\0")
            return user.decode(), password
        table = decode_table(len(response).to_bytes(4, "big") + response)
        login, secret = table["LOGIN"], table["PASSWORD"]
    except (ValueError, KeyError, MalformedRequest):
        raise LoginRefused(f"not a response of {mechanism}") from None
    if not isinstance(login, str) or not isinstance(secret, str | bytes):
        raise LoginRefused(f"not a response of {mechanism}")
    return login, secret.encode() if isinstance(secret, str) else secret
