"""Virtual hosts, users and permissions over HTTP. Only administrators change or list them."""

from __future__ import annotations

from typing import Any

from penstock.errors import InvalidRequest, PreconditionFailed
from penstock.http.answer import DONE, Answer, put
from penstock.http.call import Body, Call, found
from penstock.services.users import ADMINISTRATOR, PermissionRow, UserRow
from penstock.services.vhost import VirtualHost


async def whoami(call: Call) -> Answer:
    return Answer({"name": call.user.name, "tags": list(call.user.tags)})


# --- virtual hosts --------------------------------------------------------------------------------


def _vhost(vhost: VirtualHost) -> dict[str, Any]:
    return {
        "name": vhost.name,
        "created_at_ms": vhost.created_at_ms,
        "queues": len(vhost.queues),
        "exchanges": len(vhost.exchanges),
    }


async def list_vhosts(call: Call) -> Answer:
    return Answer([_vhost(vhost) for vhost in call.visible_vhosts()])


async def show_vhost(call: Call) -> Answer:
    return Answer(_vhost(call.visible_vhost(call.names[0])))


async def put_vhost(call: Call) -> Answer:
    call.require(ADMINISTRATOR)
    [name] = call.names
    was_there = name in call.messaging.vhosts
    await call.messaging.create_vhost(name)
    if not was_there:  # as with RabbitMQ: who makes one can use it
        await call.messaging.users.set_permissions(call.user.name, name, ".*", ".*", ".*")
    return put(was_there)


async def delete_vhost(call: Call) -> Answer:
    call.require(ADMINISTRATOR)
    await call.messaging.delete_vhost(call.names[0])
    return DONE


# --- users ----------------------------------------------------------------------------------------


def _user(row: UserRow) -> dict[str, Any]:
    return {"name": row.name, "tags": list(row.tags), "has_password": row.password is not None}


def _find_user(call: Call, name: str) -> UserRow:
    rows = {row.name: row for row in call.messaging.users.all()}
    row: UserRow = found(rows.get(name), f"no user '{name}'")
    return row


async def list_users(call: Call) -> Answer:
    call.require(ADMINISTRATOR)
    return Answer([_user(row) for row in call.messaging.users.all()])


async def show_user(call: Call) -> Answer:
    call.require(ADMINISTRATOR)
    return Answer(_user(_find_user(call, call.names[0])))


async def put_user(call: Call) -> Answer:
    call.require(ADMINISTRATOR)
    [name] = call.names
    body = await call.body()
    password = body.text("password", "")
    if not password:
        raise PreconditionFailed("a user has a password that is not empty")
    if not name or len(name.encode()) > 255 or ":" in name:
        raise PreconditionFailed("the name of a user has 1 to 255 bytes, and no ':'")
    was_there = any(row.name == name for row in call.messaging.users.all())
    await call.messaging.users.put(name, password, _tags(body))
    return put(was_there)


def _tags(body: Body) -> tuple[str, ...]:
    """`"administrator,monitoring"`, as RabbitMQ has it, or a list."""
    given = body.get("tags") or []
    words = given.split(",") if isinstance(given, str) else given
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise InvalidRequest("'tags' must be a list of words")
    return tuple(word.strip() for word in words if word.strip())


async def delete_user(call: Call) -> Answer:
    call.require(ADMINISTRATOR)
    row = _find_user(call, call.names[0])
    others = [one for one in call.messaging.users.all() if one.name != row.name]
    if not any(ADMINISTRATOR in one.tags for one in others):
        # Without users the broker would make the guest again at its next start.
        raise PreconditionFailed(f"'{row.name}' is the last administrator; add another one first")
    await call.messaging.users.delete(row.name)
    return DONE


# --- permissions ----------------------------------------------------------------------------------


def _permissions(row: PermissionRow) -> dict[str, str]:
    return row._asdict()


async def list_permissions(call: Call) -> Answer:
    call.require(ADMINISTRATOR)
    return Answer([_permissions(row) for row in call.messaging.users.permissions()])


async def list_permissions_of_user(call: Call) -> Answer:
    call.require(ADMINISTRATOR)
    user = _find_user(call, call.names[0]).name
    rows = call.messaging.users.permissions()
    return Answer([_permissions(row) for row in rows if row.user == user])


async def show_permissions(call: Call) -> Answer:
    call.require(ADMINISTRATOR)
    vhost, user = call.names
    rows = {(row.vhost, row.user): row for row in call.messaging.users.permissions()}
    text = f"user '{user}' has no permissions in vhost '{vhost}'"
    row: PermissionRow = found(rows.get((vhost, user)), text)
    return Answer(_permissions(row))


async def put_permissions(call: Call) -> Answer:
    call.require(ADMINISTRATOR)
    vhost, user = call.names
    call.messaging.vhost(vhost)
    body = await call.body()
    patterns = [body.text(name) for name in ("configure", "write", "read")]
    rows = call.messaging.users.permissions()
    was_there = any((row.vhost, row.user) == (vhost, user) for row in rows)
    await call.messaging.users.set_permissions(user, vhost, *patterns)
    return put(was_there)


async def delete_permissions(call: Call) -> Answer:
    call.require(ADMINISTRATOR)
    vhost, user = call.names
    await call.messaging.users.clear_permissions(user, vhost)
    return DONE
