"""Pipelines: a short file that says what flows where, checked before Spark starts, run by Spark.

from penstock.spark.pipeline import load, run
run(load(Path("orders.toml")))
"""

from __future__ import annotations

from typing import Any

from penstock.spark.pipeline.kinds import load, runner

__all__ = ["dry_run", "load", "run"]


def run(definition: Any, **how: Any) -> Any:
    """Run a pipeline of any kind; what comes back is said by its kind."""
    return runner(definition).run(definition, **how)


def dry_run(definition: Any, spark: Any = None) -> dict[str, Any]:
    """What it would do, without doing it."""
    from penstock.spark.pipeline.work import explained, patiently

    with explained():
        found: dict[str, Any] = patiently(lambda: runner(definition).dry_run(definition, spark))
    return found
