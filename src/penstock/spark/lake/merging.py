"""What a merge by key writes: pure, Arrow tables in and out.

Of several rows with the same key the one that is greatest by the order stays, null being the
least; without an order the last one. A row that is in the table already counts too, so a late row
never replaces a newer one.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.errors import SparkConnectorError

_PLACE, _KNOWN = "__place", "__known"


def newest_by_key(rows: pa.Table, keys: list[str], order: str | None) -> pa.Table:
    """One row for each key: the greatest by `order`, else the last."""
    for key in keys:
        if nulls := rows.column(key).null_count:
            raise SparkConnectorError(
                f"{nulls} rows of the batch have no {key}, which is a key of the table; leave "
                f"them out with a rule or a step: {key} IS NOT NULL"
            )
    if order:
        known = pc.is_valid(rows.column(order)).cast(pa.int8())
        rows = _placed(rows).append_column(_KNOWN, known)
        rows = rows.sort_by([(name, "ascending") for name in (_KNOWN, order, _PLACE)])
        rows = rows.drop_columns([_PLACE, _KNOWN])
    rows = _placed(rows)
    last = rows.group_by(keys).aggregate([(_PLACE, "max")]).column(f"{_PLACE}_max")
    return rows.take(last).drop_columns([_PLACE])


def _placed(rows: pa.Table) -> pa.Table:
    return rows.append_column(_PLACE, pa.array(range(rows.num_rows), pa.int64()))


def merged(rows: pa.Table, there: pa.Table, keys: list[str], order: str | None) -> pa.Table:
    """`rows` as they replace `there`, the table's rows of the same keys: without those that are
    older, and with the table's own values in the columns that `rows` does not have."""
    at = {key: row for row, key in enumerate(_tuples(there, keys))}
    found = [at.get(key) for key in _tuples(rows, keys)]
    place = pa.array(found, pa.int64())
    for name in there.column_names:
        if name not in rows.column_names:
            rows = rows.append_column(name, there.column(name).take(place))
    if order is None:
        return rows
    old = there.column(order).take(place)
    new = rows.column(order).cast(old.type)
    newer = pc.fill_null(pc.greater_equal(new, old), False)
    return rows.filter(pc.or_(newer, pc.is_null(old)))


def _tuples(rows: pa.Table, keys: list[str]) -> list[tuple[object, ...]]:
    return list(zip(*(rows.column(key).to_pylist() for key in keys), strict=True))
