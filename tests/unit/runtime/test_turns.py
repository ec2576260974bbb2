"""Taking turns: order under one name, freedom between names, and nothing left half done."""

from __future__ import annotations

import asyncio

import pytest

from penstock.runtime.turns import Turns
from support.scenario import scenario


@scenario
async def test_works_under_one_name_wait_for_each_other_and_others_do_not() -> None:
    turns, events = Turns(), []
    gate = asyncio.Event()

    async def slow() -> None:
        await gate.wait()
        events.append("slow")

    async def quick(word: str) -> str:
        events.append(word)
        return word

    first = asyncio.create_task(turns.take("a", slow()))
    second = asyncio.create_task(turns.take("a", quick("second")))
    assert await turns.take("b", quick("other")) == "other"
    gate.set()
    await asyncio.gather(first, second)
    assert events == ["other", "slow", "second"]


@scenario
async def test_work_goes_on_when_its_caller_goes_away() -> None:
    turns, done = Turns(), asyncio.Event()
    gate = asyncio.Event()

    async def work() -> None:
        await gate.wait()
        done.set()

    caller = asyncio.create_task(turns.take("a", work()))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    gate.set()
    await done.wait()


@scenario
async def test_a_failure_reaches_the_caller_and_frees_the_name() -> None:
    turns = Turns()

    async def fail() -> None:
        raise ValueError("no")

    async def succeed() -> int:
        return 7

    with pytest.raises(ValueError, match="no"):
        await turns.take("a", fail())
    assert await turns.take("a", succeed()) == 7
    await asyncio.sleep(0)
    assert repr(turns) == "Turns(0 under way)"
    assert turns._locks == {}
