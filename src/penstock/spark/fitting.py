"""Values as JSON and Avro have them, made such that an Arrow type takes them.

JSON has no times, dates, decimals or bytes: they are written as Spark's JSON has them, times and
dates in ISO 8601 (without a zone: UTC) or as seconds, bytes in base64. What does not fit is a
`ValueError`: Arrow alone would take a list for an object, cut 1.5 down to 1, and read a number as
microseconds.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pyarrow as pa

Fit = Callable[[Any], Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def fitter(kind: pa.DataType) -> Fit:
    """A function that fits values into this type; null fits everywhere."""
    fit = _fit_of(kind)
    return lambda value: None if value is None else fit(value)


def _fit_of(kind: pa.DataType) -> Fit:
    types = pa.types
    if types.is_struct(kind):
        return _object(kind)
    if types.is_map(kind):
        inner = fitter(kind.item_type)
        return lambda value: [(key, inner(one)) for key, one in _as(dict, value).items()]
    if types.is_list(kind):
        inner = fitter(kind.value_type)
        return lambda value: [inner(one) for one in _as(list, value)]
    if types.is_timestamp(kind):
        return _time if kind.tz else lambda value: _time(value).replace(tzinfo=None)
    if types.is_date(kind):
        return _date
    if types.is_decimal(kind):
        unit = Decimal(1).scaleb(-kind.scale)
        return lambda value: _decimal(value).quantize(unit, ROUND_HALF_UP)
    if types.is_binary(kind):
        return _bytes
    if types.is_floating(kind):
        return _float
    if types.is_integer(kind):
        return _whole
    return _truth if types.is_boolean(kind) else _text


def _object(kind: pa.DataType) -> Fit:
    fits = {kind.field(at).name: fitter(kind.field(at).type) for at in range(kind.num_fields)}

    def fit(value: Any) -> dict[str, Any]:
        found = _as(dict, value)
        return {name: one(found.get(name)) for name, one in fits.items()}

    return fit


def _as(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        words = "an object" if kind is dict else "a list"
        raise ValueError(f"{str(value)[:100]!r} is not {words}")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _time(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    if _is_number(value):
        return _EPOCH + timedelta(seconds=value)
    when = datetime.fromisoformat(_text(value).replace("Z", "+00:00"))
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def _date(value: Any) -> date:
    return value if isinstance(value, date) else date.fromisoformat(_text(value)[:10])


def _decimal(value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise ValueError(f"{str(value)[:100]!r} is not a number")
    try:
        return Decimal(str(value))
    except ArithmeticError:
        raise ValueError(f"{value!r} is not a number") from None


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else base64.b64decode(_text(value), validate=True)


def _float(value: Any) -> float:
    if not _is_number(value):
        raise ValueError(f"{str(value)[:100]!r} is not a number")
    return float(value)


def _whole(value: Any) -> int:
    if type(value) is int:
        return value
    if not isinstance(value, float) or not value.is_integer():
        raise ValueError(f"{str(value)[:100]!r} is not a whole number")
    return int(value)


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{str(value)[:100]!r} is neither true nor false")
    return value


def _text(value: Any) -> str:
    if isinstance(value, uuid.UUID):
        return str(value)
    if not isinstance(value, str):
        raise ValueError(f"{str(value)[:100]!r} is not a string")
    return value
