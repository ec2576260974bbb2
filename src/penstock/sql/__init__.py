"""Messages and the user's own SQL database, together: SQLite and PostgreSQL.

`Outbox` moves rows of a table into topics, each exactly once: what an application writes with its
own data in one transaction is published if, and only if, that transaction was committed. `Inbox`
remembers in the database which messages were processed, so that one that comes again does nothing.

    from penstock.sql import Inbox, Outbox
"""

from __future__ import annotations

from penstock.sql.database import Connect, Connection
from penstock.sql.inbox import Inbox
from penstock.sql.outbox import Outbox
from penstock.sql.outbox_table import Columns

__all__ = ["Columns", "Connect", "Connection", "Inbox", "Outbox"]
