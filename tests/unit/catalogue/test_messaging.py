"""The rows of AMQP's world, written and read back."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from pathlib import Path

from penstock.catalogue.messaging import (
    BindingRow,
    ExchangeRow,
    PermissionRow,
    PolicyRow,
    QueueRow,
    UserRow,
    VhostRow,
)
from penstock.catalogue.sqlite import SqliteCatalogue
from penstock.catalogue.sqlite_messaging import SqliteMessagingCatalogue
from penstock.model.binding import Binding, Destination
from penstock.model.field_table import Timestamp

ARGUMENTS = {"flag": True, "half": 0.5, "list": [1, "a"], "none": None, "x-max-length": 5}
ODD = {"bytes": b"\xff", "decimal": Decimal("1.5"), "when": Timestamp(7), "table": {"a": b"x"}}
BINDING = Binding.of("x", Destination("q"), "key", {"x-match": "any", "a": 1})
ODD_BINDING = Binding.of("x", Destination("y", is_exchange=True), "", ODD)
ROWS = (
    VhostRow("/", 1_700_000_000_123),
    UserRow("guest", "scrypt$...", ("administrator", "monitoring")),
    PermissionRow("guest", "/", ".*", "^a", ""),
    ExchangeRow("/", "x", "topic", True, False, True, ARGUMENTS),
    QueueRow("/", "q", "q", True, False, True, False, ODD),
    BindingRow("/", BINDING),
    BindingRow("/", ODD_BINDING),
    PolicyRow("/", "p", "^q", {"max-length": 7}, 3, "queues"),
)


def test_everything_reads_as_it_was_written(tmp_path: Path) -> None:
    async def scenario() -> None:
        catalogue = SqliteCatalogue.open(tmp_path / "c.sqlite")
        messaging = SqliteMessagingCatalogue(catalogue)
        await messaging.put(*ROWS)
        await messaging.put(*ROWS)
        contents = await messaging.load()
        found = [
            *contents.vhosts,
            *contents.users,
            *contents.permissions,
            *contents.exchanges,
            *contents.queues,
            *sorted(contents.bindings, reverse=True),
            *contents.policies,
        ]
        assert sorted(map(repr, found)) == sorted(map(repr, ROWS))
        await messaging.delete(BindingRow("/", ODD_BINDING), ROWS[4])
        contents = await messaging.load()
        assert contents.bindings == [BindingRow("/", BINDING)]
        assert contents.queues == []
        await messaging.delete_user("guest")
        await messaging.delete_vhost("/")
        contents = await messaging.load()
        assert not contents.exchanges
        assert not contents.permissions
        assert not contents.users
        assert not contents.vhosts
        await catalogue.close()

    asyncio.run(scenario())
