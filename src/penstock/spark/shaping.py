"""What rows look like after decoding: the raw columns of a topic, or the value's own fields.

A shape knows the columns to decode, the schema to show, and how to get from one to the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from penstock.spark.errors import OptionError
from penstock.spark.options import Connect, Options
from penstock.spark.schema import record_schema

if TYPE_CHECKING:
    import pyarrow as pa


class Shape:
    """The raw columns, passed on as they are."""

    def __init__(self, raw: StructType) -> None:
        self.raw = raw

    def raw_arrow_schema(self) -> pa.Schema:
        from pyspark.sql.pandas.types import to_arrow_schema

        return to_arrow_schema(self.raw, timezone="UTC")

    def schema(self) -> StructType | str:
        """As Spark takes it from a data source: a type, or its text."""
        return self.raw

    def check(self, schema: StructType) -> None:
        """Refuse a schema of the user's that is not ours: Spark would fail in a task, and later."""
        if schema.simpleString() != self.raw.simpleString():
            self._refuse(schema)

    def _refuse(self, schema: StructType) -> None:
        raise OptionError(
            f"the columns of a topic are {', '.join(self.raw.fieldNames())}, with types of their "
            f"own, not {', '.join(schema.fieldNames())}: leave out schema(), use valueFormat, or "
            "convert columns afterwards"
        )

    def apply(
        self, rows: Iterator[pa.RecordBatch], schema: StructType, connect: Connect
    ) -> Iterator[pa.RecordBatch]:
        return rows


def shape_of(options: Options) -> Shape:
    """The shape that the options ask for."""
    from penstock.spark.typed import typed_shape

    return typed_shape(options) or Shape(record_schema(options))
