"""From a command to the management API of a broker, and what its answers mean in words.

The commands for queues, exchanges, users and the like talk HTTP to any broker, here or elsewhere,
over one connection each. http.client is imported when it is needed.
"""

from __future__ import annotations

import base64
import functools
import inspect
import json
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote, urlencode

import typer

from penstock.cli.connection import STARTING_S
from penstock.cli.output import Failure

if TYPE_CHECKING:
    from http.client import HTTPConnection

DEFAULT_HTTP = "127.0.0.1:8080"
DEFAULT_VHOST = "/"
GUEST = "guest"
TIMEOUT_S = 60.0
CONNECT_S = 3.0

Http = Annotated[
    str,
    typer.Option(
        "--http", envvar="PENSTOCK_HTTP", metavar="HOST:PORT", help="The broker's HTTP door."
    ),
]
User = Annotated[
    str,
    typer.Option("--user", "-u", envvar="PENSTOCK_USER", metavar="NAME", help="Who you are there."),
]
Password = Annotated[
    str,
    typer.Option(
        "--password",
        envvar="PENSTOCK_PASSWORD",
        metavar="TEXT",
        show_default=False,
        help="And your password.",
    ),
]
Vhost = Annotated[
    str,
    typer.Option(
        "--vhost", "-v", envvar="PENSTOCK_VHOST", metavar="VHOST", help="The virtual host."
    ),
]
Argument = Annotated[
    list[str] | None,
    typer.Option("--argument", "-a", metavar="NAME=VALUE", help="An argument; repeat for several."),
]


def managed(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameter `broker` is made of options that say which, and who asks.

    Typer reads the signature, so that is where the options stand instead of the parameter.
    """
    signature = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    for one in signature.parameters.values():
        parameters += _OPTIONS if one.name == "broker" else [one]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        broker = Management(given.pop("http"), given.pop("user"), given.pop("password"))
        command(**given, broker=broker)

    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


_OPTIONS = [
    inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
    for name, kind, default in (
        ("http", Http, DEFAULT_HTTP),
        ("user", User, GUEST),
        ("password", Password, GUEST),
    )
]


class Management:
    """The management API of one broker, as somebody."""

    def __init__(
        self, http: str, user: str, password: str, *, patience_s: float = STARTING_S
    ) -> None:
        self.address = http
        self._patience_s = patience_s
        self._host, self._port = _split(http)
        token = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._headers = {"Authorization": f"Basic {token}", "Content-Type": "application/json"}
        self._user = user
        self._connection: HTTPConnection | None = None

    def __repr__(self) -> str:
        return f"<Management {self._user}@{self.address}>"

    def get(self, *names: str, **query: Any) -> Any:
        return self.call("GET", names, query=query)

    def put(self, *names: str, body: Mapping[str, Any] | None = None) -> Any:
        return self.call("PUT", names, body=body or {})

    def post(self, *names: str, body: Mapping[str, Any] | None = None) -> Any:
        return self.call("POST", names, body=body or {})

    def delete(self, *names: str, **query: Any) -> Any:
        return self.call("DELETE", names, query=query)

    def call(
        self,
        method: str,
        names: Iterable[str],
        *,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        """What the broker answers; a Failure with its words when it refuses."""
        names = list(names)
        if "" in names:
            raise typer.BadParameter("a name cannot be empty")
        path = "/api/" + "/".join(quote(name, safe="") for name in names)
        given = {key: value for key, value in (query or {}).items() if value is not None}
        if given:
            path += "?" + urlencode(given)
        payload = None if body is None else json.dumps(body).encode()
        status, data = self._exchange(method, path, payload)
        try:
            answer = json.loads(data) if data.strip() else None
        except ValueError:
            raise Failure(f"what answers at {self.address} is not a Penstock broker") from None
        if status < 300:
            return answer
        raise Failure(self._sentence(status, answer))

    def _exchange(self, method: str, path: str, payload: bytes | None) -> tuple[int, bytes]:
        from http.client import BadStatusLine, HTTPException, RemoteDisconnected

        try:
            connection = self._connected()
            connection.request(method, path, body=payload, headers=self._headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except TimeoutError:
            raise Failure(f"the broker at {self.address} does not answer in time") from None
        except RemoteDisconnected:
            raise Failure(
                f"the broker at {self.address} hung up; --http says where its HTTP door is"
            ) from None
        except BadStatusLine:
            raise Failure(
                f"what answers at {self.address} does not speak HTTP; --http says where the "
                "broker's HTTP door is"
            ) from None
        except (HTTPException, OSError) as problem:
            raise Failure(f"the broker at {self.address} hung up ({problem})") from None

    def _connected(self) -> HTTPConnection:
        from http.client import HTTPConnection

        if self._connection is None:
            connection = HTTPConnection(self._host, self._port, timeout=CONNECT_S)
            give_up = time.monotonic() + self._patience_s
            while connection.sock is None:
                try:
                    connection.connect()
                except (OSError, UnicodeError):
                    if time.monotonic() < give_up:
                        time.sleep(0.1)
                        continue
                    raise Failure(
                        f"no broker answers at {self.address}; start one with `penstock serve`, or "
                        "say where its HTTP door is with --http"
                    ) from None
            connection.sock.settimeout(TIMEOUT_S)
            self._connection = connection
        return self._connection

    def _sentence(self, status: int, answer: Any) -> str:
        text = str(answer.get("error")) if isinstance(answer, dict) else f"HTTP status {status}"
        if status == 401:
            return f"the broker does not let {self._user} in: {text}; see --user and --password"
        return text


def _split(http: str) -> tuple[str, int]:
    host, _, port = http.removeprefix("http://").rstrip("/").rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise typer.BadParameter(
            f"{http!r} is not an address like {DEFAULT_HTTP}", param_hint="--http"
        )
    return host.strip("[]"), int(port)


def pairs(given: Iterable[str] | None, hint: str = "--argument") -> dict[str, Any]:
    """`NAME=VALUE` as a table: numbers, true and false are what they look like, all else text."""
    return {name: _value(text) for name, text in texts(given, hint).items()}


def texts(given: Iterable[str] | None, hint: str) -> dict[str, str]:
    """`NAME=VALUE` as a table of texts."""
    table: dict[str, str] = {}
    for item in given or ():
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{item!r} is not NAME=VALUE", param_hint=hint)
        table[name.strip()] = value.strip()
    return table


def _value(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return text if value is None or isinstance(value, str) else value


def payload_of(message: dict[str, Any]) -> bytes:
    """The body of a message that the broker showed."""
    payload: str = message["payload"]
    return (
        base64.b64decode(payload)
        if message["payload_encoding"] == "base64"
        else payload.encode("utf-8", "surrogateescape")
    )


def payload_fields(body: bytes) -> dict[str, str]:
    """A body as the API takes it."""
    try:
        return {"payload": body.decode(), "payload_encoding": "string"}
    except UnicodeDecodeError:
        return {"payload": base64.b64encode(body).decode(), "payload_encoding": "base64"}


def glimpse(message: dict[str, Any], length: int = 60) -> str:
    """The beginning of a body, on one line."""
    if message["payload_encoding"] == "base64":
        return f"base64:{message['payload']}"[:length]
    text = str(message["payload"])
    shown = "".join(one if one.isprintable() else "·" for one in text[: length + 1])
    return shown if len(shown) <= length else shown[: length - 1] + "…"


def counted(number: int, noun: str) -> str:
    """`1 message`, `2 messages`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
