"""Spark looks for packages called `pyspark_*` and registers their DefaultSource by itself."""

from penstock.spark.lake.sink import LakeSink as DefaultSource

__all__ = ["DefaultSource"]
