"""The management API: virtual hosts, users, queues, exchanges and what lies in them, over HTTP.

Paths and bodies are those of RabbitMQ's management API where it has them, so that its tools work.
A name in a path is percent-encoded, slashes too: the virtual host `/` is `%2F`. That is why routes
are matched here on the path as it was sent: a framework that decodes it first cannot tell a slash
in a name from one between names.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.errors import (
    AccessRefused,
    BrokerError,
    LoginRefused,
    NotAllowed,
    NotFound,
    RequestTimedOut,
    ResourceLocked,
    StorageError,
    UnknownTopicOrPartition,
)
from penstock.http import (
    accounts,
    bindings,
    checks,
    clients,
    dead_letters,
    exchanges,
    overview,
    policies,
    queues,
)
from penstock.http.answer import Answer, Json
from penstock.http.call import BodyTooLarge, Call, authenticate
from penstock.http.view import BrokerView

Handler = Callable[[Call], Awaitable[Answer]]
METHODS = ["GET", "PUT", "POST", "DELETE", "PATCH"]


class _Row(NamedTuple):
    method: str
    pattern: tuple[str, ...]  # segments below /api; {} stands for any one
    handler: Handler


def _row(method: str, path: str, handler: Handler) -> _Row:
    return _Row(method, tuple(path.split("/")), handler)


TABLE: Sequence[_Row] = [
    _row("GET", "whoami", accounts.whoami),
    _row("GET", "overview", overview.show),
    _row("GET", "aliveness-test/{}", checks.aliveness),
    _row("GET", "health/checks/alarms", checks.alarms),
    _row("GET", "health/checks/local-alarms", checks.alarms),
    _row("GET", "health/checks/virtual-hosts", checks.vhosts),
    _row("GET", "health/checks/port-listener/{}", checks.listener),
    _row("GET", "nodes", overview.list_nodes),
    _row("GET", "nodes/{}", overview.show_node),
    _row("GET", "connections", clients.list_connections),
    _row("GET", "connections/{}", clients.show_connection),
    _row("DELETE", "connections/{}", clients.close_connection),
    _row("GET", "connections/{}/channels", clients.list_channels_of_connection),
    _row("GET", "vhosts/{}/connections", clients.list_connections_of_vhost),
    _row("GET", "channels", clients.list_channels),
    _row("GET", "channels/{}", clients.show_channel),
    _row("GET", "vhosts/{}/channels", clients.list_channels_of_vhost),
    _row("GET", "consumers", clients.list_consumers),
    _row("GET", "consumers/{}", clients.list_consumers_of_vhost),
    _row("GET", "vhosts", accounts.list_vhosts),
    _row("GET", "vhosts/{}", accounts.show_vhost),
    _row("PUT", "vhosts/{}", accounts.put_vhost),
    _row("DELETE", "vhosts/{}", accounts.delete_vhost),
    _row("GET", "users", accounts.list_users),
    _row("GET", "users/{}", accounts.show_user),
    _row("PUT", "users/{}", accounts.put_user),
    _row("DELETE", "users/{}", accounts.delete_user),
    _row("GET", "users/{}/permissions", accounts.list_permissions_of_user),
    _row("GET", "permissions", accounts.list_permissions),
    _row("GET", "permissions/{}/{}", accounts.show_permissions),
    _row("PUT", "permissions/{}/{}", accounts.put_permissions),
    _row("DELETE", "permissions/{}/{}", accounts.delete_permissions),
    _row("GET", "queues", queues.list_all),
    _row("GET", "queues/{}", queues.list_of_vhost),
    _row("GET", "queues/{}/{}", queues.show),
    _row("PUT", "queues/{}/{}", queues.declare),
    _row("DELETE", "queues/{}/{}", queues.delete),
    _row("DELETE", "queues/{}/{}/contents", queues.purge),
    _row("GET", "queues/{}/{}/bindings", bindings.list_to_queue),
    _row("GET", "queues/{}/{}/messages", queues.peek),
    _row("POST", "queues/{}/{}/get", queues.get),
    _row("GET", "exchanges", exchanges.list_all),
    _row("GET", "exchanges/{}", exchanges.list_of_vhost),
    _row("GET", "exchanges/{}/{}", exchanges.show),
    _row("PUT", "exchanges/{}/{}", exchanges.declare),
    _row("DELETE", "exchanges/{}/{}", exchanges.delete),
    _row("POST", "exchanges/{}/{}/publish", exchanges.publish),
    _row("GET", "exchanges/{}/{}/bindings/source", bindings.list_from_exchange),
    _row("GET", "exchanges/{}/{}/bindings/destination", bindings.list_to_exchange),
    _row("GET", "bindings", bindings.list_all),
    _row("GET", "bindings/{}", bindings.list_of_vhost),
    _row("GET", "bindings/{}/e/{}/q/{}", bindings.list_between),
    _row("POST", "bindings/{}/e/{}/q/{}", bindings.add_to_queue),
    _row("GET", "bindings/{}/e/{}/q/{}/{}", bindings.show_to_queue),
    _row("DELETE", "bindings/{}/e/{}/q/{}/{}", bindings.remove_to_queue),
    _row("GET", "bindings/{}/e/{}/e/{}", bindings.list_between_exchanges),
    _row("POST", "bindings/{}/e/{}/e/{}", bindings.add_to_exchange),
    _row("GET", "bindings/{}/e/{}/e/{}/{}", bindings.show_to_exchange),
    _row("DELETE", "bindings/{}/e/{}/e/{}/{}", bindings.remove_to_exchange),
    _row("GET", "policies", policies.list_all),
    _row("GET", "policies/{}", policies.list_of_vhost),
    _row("GET", "policies/{}/{}", policies.show),
    _row("PUT", "policies/{}/{}", policies.put),
    _row("DELETE", "policies/{}/{}", policies.delete),
    _row("GET", "dead-letters", dead_letters.list_all),
    _row("GET", "dead-letters/{}", dead_letters.list_of_vhost),
    _row("GET", "dead-letters/{}/{}", dead_letters.peek),
    _row("POST", "dead-letters/{}/{}/redrive", dead_letters.redrive_letters),
]


def routes(view: BrokerView) -> list[Route]:
    """The routes of the management API, to stand beside those that only read."""

    async def manage(request: Request) -> Response:
        return await _answer(request, view)

    areas = dict.fromkeys(row.pattern[0] for row in TABLE)
    return [
        Route(path, manage, methods=METHODS)
        for area in areas
        for path in (f"/api/{area}", f"/api/{area}/{{rest:path}}")
    ]


async def _answer(request: Request, view: BrokerView) -> Response:
    try:
        user = await authenticate(request, view.messaging)
        handler, names = find(request.method, _segments(request))
        answer = await handler(Call(request, names, user, view))
    except _WrongMethod as wrong:
        text = f"{request.method} is not possible here"
        return Json({"error": text}, 405, headers={"Allow": ", ".join(wrong.allowed)})
    except BodyTooLarge as failure:
        return Json({"error": str(failure)}, 413, headers={"Connection": "close"})
    except BrokerError as failure:
        return refusal(failure)
    if answer.value is None:
        return Response(status_code=answer.status)
    return Json(answer.value, answer.status)


class _WrongMethod(Exception):
    def __init__(self, allowed: Sequence[str]) -> None:
        self.allowed = allowed


def find(method: str, segments: Sequence[str]) -> tuple[Handler, list[str]]:
    """Who answers, and the names in the path. HEAD is answered like GET."""
    method = "GET" if method == "HEAD" else method
    allowed: list[str] = []
    for row in TABLE:
        names = _match(row.pattern, segments)
        if names is None:
            continue
        if row.method == method:
            return row.handler, names
        allowed.append(row.method)
    if allowed:
        raise _WrongMethod(allowed)
    raise NotFound("there is nothing here")


def _match(pattern: Sequence[str], segments: Sequence[str]) -> list[str] | None:
    if len(pattern) != len(segments):
        return None
    names: list[str] = []
    for wanted, given in zip(pattern, segments, strict=True):
        if wanted == "{}":
            names.append(given)
        elif wanted != given:
            return None
    return names


def _segments(request: Request) -> list[str]:
    """The names of the path below /api, each decoded by itself."""
    raw: Any = request.scope.get("raw_path") or request.scope["path"].encode()
    parts = bytes(raw).split(b"?")[0].decode("ascii", "replace").strip("/").split("/")
    try:
        return [unquote(part, errors="strict") for part in parts[1:]]
    except UnicodeDecodeError:
        raise NotFound("a name in the path is not UTF-8") from None


_STATUS: Sequence[tuple[type[BrokerError], int]] = [
    (LoginRefused, 401),
    (AccessRefused, 403),
    (NotAllowed, 403),
    (NotFound, 404),
    (UnknownTopicOrPartition, 404),
    (RequestTimedOut, 408),
    (ResourceLocked, 409),
    (StorageError, 503),
]


def refusal(failure: BrokerError) -> Response:
    """A failure as an answer; what the table does not name is the caller's mistake."""
    status = next((code for kind, code in _STATUS if isinstance(failure, kind)), 400)
    headers = {"WWW-Authenticate": 'Basic realm="Penstock"'} if status == 401 else None
    return Json({"error": str(failure)}, status, headers=headers)
