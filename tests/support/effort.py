"""How hard tests with random input try.

`make test` tries the same examples each time, so that it passes or fails by the code alone;
`make sweep` tries many more, and others in every run.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

EFFORT = int(os.environ.get("PENSTOCK_TEST_EFFORT", "1"))


def examples(count: int) -> int:
    """So many in `make test`."""
    return count * EFFORT


settings.register_profile(
    "penstock",
    derandomize=EFFORT == 1,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],  # it is the machine that is busy
)
settings.load_profile("penstock")
