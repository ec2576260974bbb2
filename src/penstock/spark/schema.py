"""The columns of a topic: those of Spark's Kafka source, in its order, as Spark and Arrow types."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.spark.errors import OptionError
from penstock.spark.options import Options, flag

HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
FIELDS = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS,
}


def record_schema(options: Options) -> StructType:
    """All columns but the headers, which `includeHeaders` adds; or those named by `columns`.

    Spark 4.3 does not push column pruning into Python sources, so every column that is not left
    out here crosses from Python to the JVM.
    """
    names = [name for name in FIELDS if name != "headers"]
    if flag(options, "includeHeaders", False):
        names.append("headers")
    if (text := options.get("columns")) is not None:
        names = [name.strip() for name in text.split(",") if name.strip()]
        unknown = [name for name in names if name not in FIELDS]
        if unknown or not names:
            raise OptionError(f"columns: {text!r} must name some of {', '.join(FIELDS)}")
    return StructType([StructField(name, FIELDS[name]) for name in names])
