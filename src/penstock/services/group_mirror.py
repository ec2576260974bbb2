"""Groups as the catalogue's `consumer_groups` table shows them, a moment late.

The journal is the truth; the table is for people with a SQLite tool. Changes are gathered and
written together, at most once in `SHOW_AFTER_S`, and heartbeats (which change only the time of the
last one) at most once in `SHOW_HEARTBEATS_AFTER_S`, so that no heartbeat waits for a disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from penstock.catalogue.catalogue import GroupRow
from penstock.errors import BrokerError
from penstock.services.group_lane import Lane

log = logging.getLogger(__name__)

SHOW_AFTER_S = 0.5
SHOW_HEARTBEATS_AFTER_S = 15.0


class GroupTable(Protocol):
    """The half of the catalogue that shows groups."""

    async def put_groups(self, rows: Sequence[GroupRow]) -> None: ...

    async def delete_groups(self, group_ids: Collection[str]) -> None: ...

    async def keep_groups(self, group_ids: Collection[str]) -> None: ...


class GroupMirror:
    """Gathers what changed and writes it to the table when its time comes."""

    def __init__(self, table: GroupTable | None, node_id: int) -> None:
        self._table = table
        self._node_id = node_id
        self._changed: dict[str, Lane] = {}
        self._due: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None

    async def start(self, lanes: Iterable[Lane]) -> None:
        """Show the groups that a restart has found, and no others."""
        for lane in lanes:
            self.changed(lane)
        if self._table is not None:
            await self._table.keep_groups(list(self._changed))

    def changed(self, lane: Lane) -> None:
        """Something that the table shows may be different."""
        self._gather(lane, SHOW_AFTER_S)

    def heard_from(self, lane: Lane, now_ms: int) -> None:
        """A member of the group gave a sign of life."""
        lane.last_heartbeat_ms = now_ms
        if lane.group_id not in self._changed:
            self._gather(lane, SHOW_HEARTBEATS_AFTER_S)

    async def close(self) -> None:
        """Show what there is to show, and stop."""
        if self._due is not None:
            self._due.cancel()
        if self._writing is not None:
            await self._writing
        await self._write()
        self._table = None

    def _gather(self, lane: Lane, delay_s: float) -> None:
        if self._table is None:
            return
        self._changed[lane.group_id] = lane
        loop = asyncio.get_running_loop()
        if self._due is not None:
            if self._due.when() <= loop.time() + delay_s:
                return
            self._due.cancel()
        self._due = loop.call_later(delay_s, self._start)

    def _start(self) -> None:
        self._due = None
        if self._writing is None or self._writing.done():
            self._writing = asyncio.get_running_loop().create_task(self._write())
        else:  # the disk is slow: try again when this write may be over
            self._due = asyncio.get_running_loop().call_later(SHOW_AFTER_S, self._start)

    async def _write(self) -> None:
        changed, self._changed = self._changed, {}
        if self._table is None or not changed:
            return
        rows = [self._row(lane) for lane in changed.values() if lane.exists]
        gone = [group_id for group_id, lane in changed.items() if not lane.exists]
        try:
            if gone:
                await self._table.delete_groups(gone)
            if rows:
                await self._table.put_groups(rows)
        except BrokerError as failure:
            log.warning("the table of groups was not brought up to date: %s", failure)
            self._changed = changed | self._changed  # with the next change, then

    def _row(self, lane: Lane) -> GroupRow:
        consumer, classic = lane.share or lane.consumer, lane.classic
        return GroupRow(
            lane.group_id,
            self._node_id,
            str(lane.state),
            classic.protocol_type or "" if consumer is None else lane.group_type,
            consumer.epoch if consumer is not None else classic.generation,
            "" if consumer is not None else classic.leader or "",
            lane.created_at_ms,
            lane.last_heartbeat_ms,
        )
