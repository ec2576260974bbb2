"""Producer ids are never given out twice."""

from __future__ import annotations

import asyncio

import pytest

from penstock.catalogue.sqlite import SqliteCatalogue
from penstock.errors import StorageError
from penstock.services.producer_ids import ProducerIds
from support.scenario import scenario


class Blocks:
    def __init__(self) -> None:
        self.next = 0
        self.fail = False

    async def reserve_producer_ids(self, count: int) -> int:
        await asyncio.sleep(0)
        if self.fail:
            raise StorageError("full")
        first, self.next = self.next, self.next + count
        return first


@scenario
async def test_many_at_once_get_different_ids() -> None:
    blocks = Blocks()
    ids = ProducerIds(blocks, block_size=3)
    found = await asyncio.gather(*(ids.allocate() for _ in range(10)))
    assert sorted(found) == list(range(10))
    assert blocks.next == 12


@scenario
async def test_a_block_that_cannot_be_reserved_gives_no_ids() -> None:
    blocks = Blocks()
    ids = ProducerIds(blocks, block_size=1)
    assert await ids.allocate() == 0
    blocks.fail = True
    with pytest.raises(StorageError):
        await ids.allocate()
    blocks.fail = False
    assert await ids.allocate() == 1


@scenario
async def test_a_restart_begins_with_a_new_block() -> None:
    catalogue = SqliteCatalogue.open(":memory:")
    await catalogue.load()
    assert await ProducerIds(catalogue).allocate() == 0
    assert await ProducerIds(catalogue).allocate() == 1_000
    await catalogue.close()
