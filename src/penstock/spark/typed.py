"""Values decoded in the source: `value` as a struct of a schema instead of bytes.

    .option("valueFormat", "json").option("valueSchema", "id BIGINT, item STRING")
    .option("valueFormat", "avro").option("valueSchema", '{"type":"record", ...}')

`onError` says what a value is that does not fit: `fail` stops the query and names the record,
`null` makes it null, `dlq:TOPIC` sends the record as it came, with the reason in a header, to a
topic and leaves the row out. Dead letters are sent by the tasks, so a task that Spark repeats sends
them again: at least once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from penstock.spark.cluster import shared_cluster
from penstock.spark.errors import BadRow, OptionError
from penstock.spark.options import Connect, Options, choice
from penstock.spark.schema import record_schema
from penstock.spark.shaping import Shape

if TYPE_CHECKING:
    import pyarrow as pa

Decoder = Callable[[bytes], Any]
_AVRO = {
    "boolean": "BOOLEAN", "int": "INT", "long": "BIGINT", "float": "FLOAT", "double": "DOUBLE",
    "bytes": "BINARY", "string": "STRING", "enum": "STRING",
}  # fmt: skip
_LOGICAL = {
    "timestamp-millis": "TIMESTAMP", "timestamp-micros": "TIMESTAMP", "date": "DATE",
    "local-timestamp-millis": "TIMESTAMP_NTZ", "local-timestamp-micros": "TIMESTAMP_NTZ",
}  # fmt: skip


class TypedShape(Shape):
    """Raw columns, but for `value`, which is decoded."""

    def __init__(self, raw: StructType, kind: str, text: str, on_error: str) -> None:
        super().__init__(raw)
        self._kind = kind
        self._text = text
        self._on_error = on_error
        # Spark parses the text of the whole schema; there is no session here to do it with.
        self._value = text if kind == "json" else avro_columns(json.loads(text))

    def schema(self) -> str:
        columns = [
            f"value STRUCT<{self._value}>"
            if field.name == "value"
            else f"{field.name} {field.dataType.simpleString()}"
            for field in self.raw
        ]
        return ", ".join(columns)

    def check(self, schema: StructType) -> None:
        if schema.fieldNames() != self.raw.fieldNames():
            self._refuse(schema)

    def apply(
        self, rows: Iterator[pa.RecordBatch], schema: StructType, connect: Connect
    ) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        shown = to_arrow_schema(schema, timezone="UTC")
        decode = json.loads if self._kind == "json" else avro_decoder(self._text)
        kind = shown.field("value").type
        for batch in rows:
            values, reasons = decode_column(batch.column("value").to_pylist(), decode, kind)
            at = batch.schema.get_field_index("value")
            columns = [*batch.columns[:at], values, *batch.columns[at + 1 :]]
            made = pa.RecordBatch.from_arrays(columns, schema=shown)
            if not reasons or self._on_error == "null":
                yield made
            elif self._on_error == "fail":
                row, why = next(iter(reasons.items()))
                raise BadRow(f"{_place(batch, row)} {why}; onError=null or dlq:TOPIC lets it pass")
            else:
                _send_away(batch, reasons, self._on_error.removeprefix("dlq:"), connect)
                good = pa.array([row not in reasons for row in range(batch.num_rows)])
                yield made.filter(good)


def typed_shape(options: Options) -> Shape | None:
    """The shape that `valueFormat` asks for; None without it."""
    if options.get("valueFormat") is None:
        return None
    kind = choice(options, "valueFormat", "json", ("json", "avro"))
    text = options.get("valueSchema")
    if not text:
        raise OptionError("valueFormat needs valueSchema: columns for json, a schema for avro")
    raw = record_schema(options)
    if "value" not in raw.fieldNames():
        raise OptionError("valueFormat needs the column 'value' among columns")
    on_error = options.get("onError", "fail")
    if on_error not in ("fail", "null") and not on_error.startswith("dlq:"):
        raise OptionError(f"onError: {on_error!r} is none of fail, null, dlq:TOPIC")
    if kind == "avro":
        try:
            json.loads(text)
        except ValueError as failure:
            raise OptionError(f"valueSchema is not an Avro schema: {failure}") from None
    return TypedShape(raw, kind, text, on_error)


def decode_column(
    values: list[bytes | None], decode: Decoder, kind: pa.DataType
) -> tuple[pa.Array, dict[int, str]]:
    """The column, and why some of its rows are null although they had a value."""
    import pyarrow as pa

    from penstock.spark.fitting import fitter

    fit = fitter(kind)
    reasons: dict[int, str] = {}
    cells: list[Any] = []
    for row, value in enumerate(values):
        cell, why = None, "cannot be decoded"
        try:
            if value is not None:
                cell = decode(value)
                why = "does not fit the schema"
                cell = fit(cell)
        except Exception as failure:  # whatever a decoder makes of somebody's bytes
            reasons[row] = f"{why}: {failure}"
            cell = None
        cells.append(cell)
    try:
        return pa.array(cells, kind), reasons
    except (TypeError, ValueError, OverflowError, pa.ArrowException):
        pass  # some row is too large for its type: find out which
    rows = []
    for row, cell in enumerate(cells):
        try:
            rows.append(pa.array([cell], kind))
        except (TypeError, ValueError, OverflowError, pa.ArrowException) as failure:
            reasons[row] = f"does not fit the schema: {failure}"
            rows.append(pa.nulls(1, kind))
    return pa.concat_arrays(rows), reasons


def avro_decoder(text: str) -> Decoder:
    """Decode with this schema; the five bytes of Confluent's framing are skipped when there."""
    import fastavro

    schema = fastavro.parse_schema(json.loads(text))

    def decode(value: bytes) -> Any:
        body = BytesIO(value[5:] if value[:1] == b"\0" and len(value) > 5 else value)
        decoded = fastavro.schemaless_reader(body, schema, None)
        if body.read(1):
            raise ValueError("bytes are left behind the record")
        return decoded

    return decode


def avro_columns(schema: Any) -> str:
    """The fields of a record as Spark's DDL."""
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise OptionError("valueSchema: the Avro schema must be a record")
    return ", ".join(f"`{f['name']}`: {_avro_type(f['type'])}" for f in schema["fields"])


def _avro_type(kind: Any) -> str:
    if isinstance(kind, list):
        others = [part for part in kind if part != "null"]
        if len(others) != 1:
            raise OptionError("valueSchema: a union may only be of one type and null")
        return _avro_type(others[0])
    if isinstance(kind, dict):
        if kind.get("logicalType") in _LOGICAL:
            return _LOGICAL[kind["logicalType"]]
        if kind.get("logicalType") == "decimal":
            return f"DECIMAL({kind['precision']},{kind.get('scale', 0)})"
        if kind["type"] == "record":
            return f"STRUCT<{avro_columns(kind)}>"
        if kind["type"] == "array":
            return f"ARRAY<{_avro_type(kind['items'])}>"
        if kind["type"] == "map":
            return f"MAP<STRING, {_avro_type(kind['values'])}>"
        return _avro_type(kind["type"])
    if not isinstance(kind, str) or kind not in _AVRO:
        raise OptionError(f"valueSchema: the Avro type {kind!r} is not supported")
    return _AVRO[kind]


def _place(batch: pa.RecordBatch, row: int) -> str:
    names = [name for name in ("topic", "partition", "offset") if name in batch.schema.names]
    said = ", ".join(f"{name} {batch.column(name)[row].as_py()}" for name in names)
    return f"the record at {said}" if said else "a record"


def _send_away(
    batch: pa.RecordBatch, reasons: dict[int, str], topic: str, connect: Connect
) -> None:
    import pyarrow as pa

    from penstock.spark.encoding import Encoder
    from penstock.spark.producing import Producer

    rows = sorted(reasons)
    chosen = batch.take(pa.array(rows))
    columns = {"value": chosen.column("value")}
    if "key" in batch.schema.names:
        columns["key"] = chosen.column("key")
    old = chosen.column("headers").to_pylist() if "headers" in batch.schema.names else []
    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    columns["headers"] = pa.array(
        [
            [
                *((old[at] or []) if old else []),
                {"key": "penstock.reason", "value": reasons[row].encode()},
                {"key": "penstock.source", "value": _place(batch, row).encode()},
            ]
            for at, row in enumerate(rows)
        ],
        pa.list_(pair),
    )
    cluster = shared_cluster(*connect)
    encoder = Encoder(cluster, topic)
    filled = list(encoder.add(pa.RecordBatch.from_pydict(columns)))
    Producer(cluster).send([*filled, *encoder.finish()])
