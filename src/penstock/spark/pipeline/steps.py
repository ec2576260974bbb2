"""The steps of a flow: SQL over `input`, a Python function, or a table to join with."""

from __future__ import annotations

import importlib
import importlib.util
import traceback
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
        return _called(step.python, rows)
    rows.createOrReplaceTempView("input")
    return spark.sql(step.sql)


def _called(place: str, rows: DataFrame) -> DataFrame:
    """What a function of the user's makes of the rows; its mistakes name their line."""
    from pyspark.sql import DataFrame

    function = function_of(place)
    try:
        made = function(rows)
    except Exception as failure:
        if type(failure).__module__.startswith(("pyspark.", "py4j.")):
            raise
        raise OptionError(f"step {place}: {_told(failure)}") from failure
    if not isinstance(made, DataFrame):
        raise OptionError(f"step {place}: returned {type(made).__name__}, not a DataFrame")
    return made


def _told(failure: Exception) -> str:
    """The error and the innermost line that it came from."""
    said = f"{type(failure).__name__}: {failure}"
    if isinstance(failure, SyntaxError):
        return said
    last = traceback.extract_tb(failure.__traceback__)[-1]
    return f"{said} ({Path(last.filename).name}:{last.lineno})"


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
    except Exception as failure:
        raise OptionError(f"step {place}: {_told(failure)}") from failure
    if not callable(found):
        raise OptionError(f"step {place}: is no function")
    return found
