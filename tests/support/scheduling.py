"""Which tests stay on one worker of `pytest -n auto --dist loadgroup`, because they share something
that is dear to start or that there is only one of: a JVM, a port, a directory.

By path. xdist's own marker, `xdist_group`, travels in names of tests that pytest 9.2 no longer lets
it change, and is then ignored without a word (pytest-xdist issue 1386).
"""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

TOGETHER = (
    "tests/spark/",  # one JVM
    "tests/test_examples.py",
    "tests/test_library_docs.py",
    "tests/test_readme.py",
)


class Rooms(LoadScopeScheduling):
    """Tests of a room go to one worker, in order; all others wherever there is time."""

    def _split_scope(self, nodeid: str) -> str:
        return next((room for room in TOGETHER if nodeid.startswith(room)), nodeid)
