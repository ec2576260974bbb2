"""Users: who may log in, and what they may do in which virtual host.

Passwords are kept as salted scrypt hashes. Checking one is slow on purpose and happens in a thread;
a password that was right is remembered as a keyed digest for as long as the process lives, so that
the next connection of the same client does not pay again. Permissions are three patterns: names a
user may configure (declare, delete), write to (publish, bind) and read from (consume, purge).

The user `guest`, password `guest`, is there from the start and may come from this machine only.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.catalogue.messaging import MessagingCatalogue, PermissionRow, UserRow
from penstock.errors import LoginRefused, NotFound
from penstock.model.name_pattern import name_pattern
from penstock.model.queue_names import DEFAULT_VHOST

__all__ = ["ADMINISTRATOR", "GUEST", "PermissionRow", "User", "UserRow", "Users", "hash_password"]

GUEST = "guest"
ADMINISTRATOR = "administrator"
OTHER_NAME = "amq.default"  # of the default exchange, in permissions
_SCRYPT = {"n": 1 << 13, "r": 8, "p": 1, "dklen": 32}  # 8 MB, some 20 ms


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who has logged in."""

    name: str
    tags: tuple[str, ...] = ()


def hash_password(password: bytes, salt: bytes | None = None) -> str:
    """`scrypt$<salt>$<hash>`, both in base64."""
    salt = os.urandom(16) if salt is None else salt
    digest = hashlib.scrypt(password, salt=salt, **_SCRYPT)
    parts = [base64.b64encode(part).decode() for part in (salt, digest)]
    return "$".join(["scrypt", *parts])


def password_is_right(password: bytes, stored: str) -> bool:
    """Whether the password is the one that was hashed; in constant time."""
    scheme, _, rest = stored.partition("$")
    salt, _, _ = rest.partition("$")
    if scheme != "scrypt":
        return False
    expected = hash_password(password, base64.b64decode(salt))
    return hmac.compare_digest(expected.encode(), stored.encode())


_NOBODY = f"scrypt${base64.b64encode(bytes(16)).decode()}$"  # no password hashes to this


class Users:
    """All users and their permissions."""

    def __init__(self, catalogue: MessagingCatalogue) -> None:
        self._catalogue = catalogue
        self._users: dict[str, UserRow] = {}
        self._permissions: dict[tuple[str, str], PermissionRow] = {}
        self._secret = os.urandom(32)
        self._known: dict[str, bytes] = {}  # keyed digests of passwords that were right
        self.version = 0  # grows with every change of permissions
        self.on_changed: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<Users {sorted(self._users)}>"

    async def load(self, users: Sequence[UserRow], permissions: Sequence[PermissionRow]) -> None:
        """Take over what the catalogue holds; a catalogue without users gets the guest."""
        self._users = {row.name: row for row in users}
        self._permissions = {(row.user, row.vhost): row for row in permissions}
        if not self._users:
            await self.put(GUEST, GUEST, tags=(ADMINISTRATOR,))
            await self.set_permissions(GUEST, DEFAULT_VHOST, ".*", ".*", ".*")

    # --- logging in -------------------------------------------------------------------------------

    async def authenticate(self, name: str, password: bytes | str, *, loopback: bool) -> User:
        """The user, or LoginRefused, which does not say whether it was the name or the password."""
        given = password.encode() if isinstance(password, str) else password
        row = self._users.get(name)
        stored = row.password if row is not None else None
        digest = hmac.digest(self._secret, name.encode() + b"\0" + given, "sha256")
        known = self._known.get(name)
        right = known is not None and hmac.compare_digest(known, digest)
        if not right:
            loop = asyncio.get_running_loop()
            right = await loop.run_in_executor(None, password_is_right, given, stored or _NOBODY)
            right = right and stored is not None
        if row is None or not right:
            raise LoginRefused(f"user '{name}' - invalid credentials")
        if name == GUEST and not loopback:
            raise LoginRefused(f"user '{name}' can only connect via localhost")
        if self._users.get(name) is row:
            self._known[name] = digest
        return User(name, row.tags)

    # --- what they may do -------------------------------------------------------------------------

    def may_enter(self, user: User, vhost: str) -> bool:
        return (user.name, vhost) in self._permissions

    def may(self, user: User, vhost: str, action: str, name: str) -> bool:
        """Whether the user may `configure`, `write` or `read` something of that name."""
        row = self._permissions.get((user.name, vhost))
        if row is None:
            return False
        pattern: str = getattr(row, action)
        # The default exchange goes by its other name in patterns, as with RabbitMQ.
        return name_pattern(pattern).found_in(name or OTHER_NAME)

    # --- changes ----------------------------------------------------------------------------------

    def all(self) -> Sequence[UserRow]:
        return sorted(self._users.values())

    def permissions(self) -> Sequence[PermissionRow]:
        return sorted(self._permissions.values())

    async def put(self, name: str, password: str | None, tags: Sequence[str] = ()) -> None:
        """Create a user, or change the password and tags of one. Without a password nobody."""
        stored = None
        if password is not None:
            loop = asyncio.get_running_loop()
            stored = await loop.run_in_executor(None, hash_password, password.encode())
        row = UserRow(name, stored, tuple(tags))
        await self._catalogue.put(row)
        self._users[name] = row
        self._known.pop(name, None)

    async def delete(self, name: str) -> None:
        self._check_known(name)
        await self._catalogue.delete_user(name)
        del self._users[name]
        self._known.pop(name, None)
        for key in [key for key in self._permissions if key[0] == name]:
            del self._permissions[key]
        self._changed()

    async def set_permissions(
        self, user: str, vhost: str, configure: str, write: str, read: str
    ) -> None:
        """InvalidRegularExpression when a pattern is none."""
        self._check_known(user)
        for pattern in (configure, write, read):
            name_pattern(pattern)
        row = PermissionRow(user, vhost, configure, write, read)
        await self._catalogue.put(row)
        self._permissions[user, vhost] = row
        self._changed()

    async def clear_permissions(self, user: str, vhost: str) -> None:
        row = self._permissions.get((user, vhost))
        if row is not None:
            await self._catalogue.delete(row)
            self._permissions.pop((user, vhost), None)
            self._changed()

    def vhost_gone(self, vhost: str) -> None:
        for key in [key for key in self._permissions if key[1] == vhost]:
            del self._permissions[key]
        self._changed()

    def _changed(self) -> None:
        self.version += 1
        for listener in self.on_changed:
            listener()

    def _check_known(self, name: str) -> None:
        if name not in self._users:
            raise NotFound(f"no user '{name}'")
