"""Penstock on Spark: the data source, the pipelines, and the session to run them in.

    from penstock.spark import session
    spark = session()          # a SparkSession that knows the format "penstock"

Imports nothing of the broker, and nothing of Spark until something is asked for, so that
`penstock --help` stays quick.
"""

from __future__ import annotations

from typing import Any

__all__ = ["PenstockSource", "StandaloneCluster", "session"]


def __getattr__(name: str) -> Any:
    if name == "PenstockSource":
        from penstock.spark.source import PenstockSource

        return PenstockSource
    if name == "StandaloneCluster":
        from penstock.spark.standalone import StandaloneCluster

        return StandaloneCluster
    if name == "session":
        from penstock.spark.launch import session

        return session
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
