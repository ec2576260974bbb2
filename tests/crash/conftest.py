"""Fixtures of the crash tests: seeded dice, which print how to throw the same again."""

from __future__ import annotations

import os
import random
import time

import pytest


@pytest.fixture
def dice(request: pytest.FixtureRequest) -> random.Random:
    seed = int(os.environ.get("PENSTOCK_SEED", time.time_ns() % 1_000_000))
    print(f"PENSTOCK_SEED={seed} pytest '{request.node.nodeid}'")
    return random.Random(seed)
