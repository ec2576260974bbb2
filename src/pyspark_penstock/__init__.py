"""Where Spark finds the data source `penstock`: it imports every top-level module `pyspark_*`."""

from penstock.spark.source import PenstockSource as DefaultSource

__all__ = ["DefaultSource"]
