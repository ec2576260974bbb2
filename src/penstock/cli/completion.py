"""What a shell offers when somebody presses Tab: names that the running broker knows.

Nobody is told when there is no broker; then nothing is offered.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import typer

from penstock.cli.connection import DEFAULT_BOOTSTRAP, admin_client, check_reachable
from penstock.cli.output import Failure

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

PATIENCE_S = 1.0


def _admin() -> AdminClient | None:
    bootstrap = os.environ.get("PENSTOCK_BOOTSTRAP", DEFAULT_BOOTSTRAP)
    try:
        check_reachable(bootstrap, timeout_s=PATIENCE_S, patience_s=0)
    except (Failure, typer.BadParameter):
        return None
    return admin_client(bootstrap)


def topic_names(incomplete: str) -> list[str]:
    """Topics that begin with what has been typed."""
    admin = _admin()
    if admin is None:
        return []
    found = admin.list_topics(timeout=PATIENCE_S).topics
    return sorted(name for name in found if name.startswith(incomplete))


def queue_names(incomplete: str) -> list[str]:
    """Queues that begin with what has been typed."""
    from penstock.cli import management

    def setting(name: str, default: str) -> str:
        return os.environ.get(f"PENSTOCK_{name}", default)

    try:
        broker = management.Management(
            setting("HTTP", management.DEFAULT_HTTP),
            setting("USER", management.GUEST),
            setting("PASSWORD", management.GUEST),
            patience_s=0,
        )
        found = broker.get("queues", setting("VHOST", management.DEFAULT_VHOST))
    except (Failure, typer.BadParameter):
        return []
    return sorted(row["name"] for row in found if row["name"].startswith(incomplete))


def group_names(incomplete: str) -> list[str]:
    """Groups that begin with what has been typed."""
    admin = _admin()
    if admin is None:
        return []
    found = admin.list_consumer_groups(request_timeout=PATIENCE_S).result(PATIENCE_S).valid
    return sorted(str(g.group_id) for g in found if str(g.group_id).startswith(incomplete))
