"""Avro values as JSON text, so that they take the way of JSON: judged, quarantined, evolved."""

from __future__ import annotations

import base64
import json
from datetime import date
from typing import Any

from penstock.spark.typed import avro_columns, avro_decoder


def avro_schema(text: str) -> str:
    """The columns of an Avro record in Spark's words, as those of a table."""
    return avro_columns(json.loads(text)).replace("`: ", "` ")


def avro_as_json(text: str) -> Any:
    """A column function: Avro bytes to JSON text; what cannot be decoded becomes `?`, which is
    no JSON and so is judged a bad value."""
    from pyspark.sql import functions as f

    decoders: list[Any] = []

    def convert(value: bytes | None) -> str | None:
        if value is None:
            return None
        if not decoders:
            decoders.append(avro_decoder(text))
        try:
            return json.dumps(decoders[0](bytes(value)), default=_plain)
        except Exception:  # whatever a decoder makes of somebody's bytes
            return "?"

    # Spark reads type hints as its own kind of declaration, so it is given none.
    return f.udf(lambda value: convert(value), "string")


def _plain(value: Any) -> str:
    """Bytes as Spark's JSON has them; times and dates in ISO words, decimals in digits."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, date) else str(value)
