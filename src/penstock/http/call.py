"""One request to the management API: who asks, for what, with which body.

Every call is authenticated (HTTP Basic, against the broker's users) before anything else happens.
Bodies are JSON objects, and their size is bounded while they are read, not afterwards.

A browser that has a user's password, or stands on the broker's own machine, may be talked into
calls by any page it shows. So a call that names another origin than the broker is refused, and the
guest, whose password everybody knows, may only call the broker by an address of this machine.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import ipaddress
import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request

from penstock.errors import (
    AccessRefused,
    InvalidRequest,
    LoginRefused,
    NotFound,
    RequestTimedOut,
)
from penstock.http.view import BrokerView
from penstock.services.messaging import Messaging
from penstock.services.session import Session
from penstock.services.users import ADMINISTRATOR, GUEST, User
from penstock.services.vhost import VirtualHost

BODY_BYTES = 1 << 20
MESSAGE_BODY_BYTES = 24 << 20  # a message of 16 MiB, in base64 and with properties
_BODY_SECONDS = 30.0
_WRONG_SECONDS = 1.0  # what a wrong password costs


class BodyTooLarge(Exception):
    """The body of a request is larger than it may be."""


class Call:
    """A request of somebody who has logged in."""

    __slots__ = ("messaging", "names", "request", "user", "view")

    def __init__(
        self, request: Request, names: Sequence[str], user: User, view: BrokerView
    ) -> None:
        self.request = request
        self.names = names  # what stands for the {words} of the path
        self.user = user
        self.view = view
        self.messaging = view.messaging

    def __repr__(self) -> str:
        return f"<Call {self.request.method} {self.request.url.path} by {self.user.name!r}>"

    # --- who --------------------------------------------------------------------------------------

    def require(self, *tags: str) -> None:
        """AccessRefused unless the user has one of these tags, or may do everything."""
        if ADMINISTRATOR not in self.user.tags and not set(tags) & set(self.user.tags):
            raise AccessRefused(f"user '{self.user.name}' is not tagged {tags[0]!r}")

    def visible_vhosts(self) -> list[VirtualHost]:
        """The virtual hosts whose contents this user may list."""
        sees_all = bool({ADMINISTRATOR, "monitoring"} & set(self.user.tags))
        users = self.messaging.users
        return [
            vhost
            for name, vhost in sorted(self.messaging.vhosts.items())
            if sees_all or users.may_enter(self.user, name)
        ]

    def visible_vhost(self, name: str) -> VirtualHost:
        vhost = self.messaging.vhost(name)
        if vhost not in self.visible_vhosts():
            raise AccessRefused(f"access to vhost '{name}' refused for user '{self.user.name}'")
        return vhost

    async def session(self, vhost: str) -> Session:
        """What the user may do in a virtual host, with the permissions of AMQP."""
        self.messaging.vhost(vhost)
        return await self.messaging.open_session(self.user, vhost, connection="http")

    # --- what -------------------------------------------------------------------------------------

    def flag(self, name: str) -> bool:
        """Whether the query says `name=true`."""
        return self.request.query_params.get(name, "").lower() == "true"

    def number(self, name: str, default: int, most: int) -> int:
        """A number of the query."""
        given = self.request.query_params.get(name)
        if given is None:
            return default
        if not (given.isascii() and given.isdigit()) or not int(given[:19]) <= most:
            raise InvalidRequest(f"{name} is a number from 0 to {most}, not {given!r}")
        return int(given)

    async def body(self, most_bytes: int = BODY_BYTES) -> Body:
        """The JSON object that came with the request; an empty one when nothing came."""
        declared = self.request.headers.get("content-length", "")
        if declared.isdigit() and int(declared[:19]) > most_bytes:
            raise BodyTooLarge(f"a body has at most {most_bytes} bytes here")
        data = bytearray()
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                async for chunk in self.request.stream():
                    data += chunk
                    if len(data) > most_bytes:
                        raise BodyTooLarge(f"a body has at most {most_bytes} bytes here")
        except TimeoutError:
            raise RequestTimedOut("the body of the request did not arrive in time") from None
        if not data:
            return Body({})
        try:
            value = json.loads(bytes(data))
            if b"\\u" in data:  # half a character, which JSON can write and UTF-8 cannot
                json.dumps(value, ensure_ascii=False).encode()
        except (ValueError, RecursionError):
            raise InvalidRequest("the body is not JSON") from None
        if not isinstance(value, dict):
            raise InvalidRequest("the body is not a JSON object")
        return Body(value)


_WORDS = {"true": True, "false": False}


class Body(dict[str, Any]):
    """A JSON object whose fields are checked when they are asked for.

    Flags and numbers may be written as texts, as RabbitMQ's own command line does.
    """

    def text(self, name: str, default: str | None = None) -> str:
        value = self.get(name, default)
        if not isinstance(value, str):
            raise InvalidRequest(f"{name!r} must be a text" + _found(value))
        return value

    def maybe_text(self, name: str) -> str | None:
        return None if self.get(name) is None else self.text(name)

    def flag(self, name: str, default: bool) -> bool:
        value = self.get(name, default)
        value = _WORDS.get(value, value) if isinstance(value, str) else value
        if not isinstance(value, bool):
            raise InvalidRequest(f"{name!r} must be true or false" + _found(value))
        return value

    def number(self, name: str, default: int, low: int, high: int) -> int:
        value = self.get(name, default)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise InvalidRequest(f"{name!r} must be a number from {low} to {high}" + _found(value))
        return value

    def table(self, name: str) -> Mapping[str, Any]:
        value = self.get(name) or {}
        if not isinstance(value, dict):
            raise InvalidRequest(f"{name!r} must be an object" + _found(value))
        return value


def _found(value: object) -> str:
    return ", and is missing" if value is None else f", not {str(value)[:80]!r}"


# --- logging in -----------------------------------------------------------------------------------


async def authenticate(request: Request, messaging: Messaging) -> User:
    """Who sent the request; LoginRefused when nobody the broker knows."""
    scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        raise LoginRefused("log in with HTTP Basic authentication")
    try:
        given = base64.b64decode(encoded.strip(), validate=True)
        name, _, password = given.partition(b":")
        user = name.decode()
    except (binascii.Error, UnicodeDecodeError):
        raise LoginRefused("the credentials are not those of HTTP Basic authentication") from None
    _check_origin(request)
    local = request.client is not None and is_loopback(request.client.host)
    if user == GUEST:
        local = local and is_loopback(request.url.hostname or "")
    try:
        return await messaging.authenticate(user, password, loopback=local)
    except LoginRefused:
        await asyncio.sleep(_WRONG_SECONDS)
        raise


def _check_origin(request: Request) -> None:
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise AccessRefused("a page of another site may not use this broker")


def is_loopback(host: str) -> bool:
    """Whether an address or host name is of this machine."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return address.is_loopback or (mapped is not None and mapped.is_loopback)


def found(value: Any, what: str) -> Any:
    """The value, or NotFound."""
    if value is None:
        raise NotFound(what)
    return value
