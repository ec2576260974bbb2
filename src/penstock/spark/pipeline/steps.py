"""The steps of a flow: SQL over `input`, a Python function, or a table to join with."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.spark.errors import OptionError
from penstock.spark.pipeline.building import local
from penstock.spark.pipeline.definition import Step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def stepped(spark: SparkSession, step: Step, rows: DataFrame) -> DataFrame:
    """The rows after this step."""
    if step.table:
        table_frame(spark, step.format, step.path).createOrReplaceTempView(step.table)
        return rows
    if step.python:
        made: DataFrame = function_of(step.python)(rows)
        return made
    rows.createOrReplaceTempView("input")
    return spark.sql(step.sql)


def table_frame(spark: SparkSession, kind: str, path: str, name: str = "") -> DataFrame:
    """A static table: Spark's own formats, Delta and Iceberg (`path#name`)."""
    if kind not in ("delta", "iceberg"):
        return spark.read.format(kind).load(local(path))
    place, _, inside = path.partition("#")
    reader = spark.read.format("penstock_lake").option("tableFormat", kind)
    if name or inside:
        reader = reader.option("table", name or inside)
    return reader.option("path", local(place)).load()


def function_of(place: str) -> Callable[[Any], Any]:
    """`file.py:function` or `module:function`.

    A file's module is not registered: what it defines is then sent to Spark's workers by value,
    and they need not find the file.
    """
    where, _, name = place.rpartition(":")
    try:
        if where.endswith(".py"):
            spec = importlib.util.spec_from_file_location(f"_step_{Path(where).stem}", where)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(where)
        found: Callable[[Any], Any] = getattr(module, name)
    except (ImportError, AttributeError, OSError) as failure:
        raise OptionError(f"step {place}: {failure}") from None
    return found
