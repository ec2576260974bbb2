"""Producer ids: numbers that are never given out twice.

They are reserved in blocks, so that the catalogue is written once in a thousand producers; what is
left of a block at a stop is never used.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

BLOCK_SIZE = 1000


class ProducerIdBlocks(Protocol):
    """Where blocks are reserved: the catalogue."""

    async def reserve_producer_ids(self, count: int) -> int:
        """The first of `count` producer ids that were never given out before, and never will be."""


class ProducerIds:
    """Gives out producer ids."""

    def __init__(self, blocks: ProducerIdBlocks, block_size: int = BLOCK_SIZE) -> None:
        self._blocks = blocks
        self._block_size = block_size
        self._next = 0
        self._end = 0
        self._reserving = asyncio.Lock()

    def __repr__(self) -> str:
        return f"ProducerIds({self._next}..{self._end})"

    async def allocate(self) -> int:
        """A producer id that nobody has had."""
        if self._next == self._end:
            async with self._reserving:
                if self._next == self._end:  # nobody reserved a block while this one waited
                    first = await self._blocks.reserve_producer_ids(self._block_size)
                    self._next, self._end = first, first + self._block_size
        producer_id = self._next
        self._next += 1
        return producer_id
