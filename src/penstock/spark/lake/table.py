"""A Delta or Iceberg table as this sink needs it: what was committed, append files, merge rows.

Both keep the number of the last batch inside the table, in the same atomic commit as the rows:
Delta as an application transaction, Iceberg as a table property. So whatever dies, a batch is in
the table once, and the table itself says from which offsets it was made.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.spark.errors import OptionError, SparkConnectorError
from penstock.spark.lake.commit import Commit
from penstock.spark.lake.files import DataFile
from penstock.spark.lake.merging import merged

CATALOGUE = "catalog.db"
FORMATS = ("delta", "iceberg", "parquet")


class LakeTable(Protocol):
    """What a table format must do."""

    keeps_partition_columns: bool

    @property
    def data(self) -> Path: ...
    def last_batch(self, sink: str) -> int: ...
    def append(self, files: list[DataFile], schema: pa.Schema, commit: Commit) -> None: ...
    def upsert(
        self, rows: pa.Table, keys: list[str], order: str | None, commit: Commit
    ) -> None: ...


class DeltaLake:
    """A Delta table, through delta-rs."""

    keeps_partition_columns = False

    def __init__(self, path: str, partition_by: tuple[str, ...] = ()) -> None:
        self._path = Path(path).absolute()
        self._partition_by = list(partition_by)

    @property
    def data(self) -> Path:
        return self._path

    def open(self) -> Any:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            return DeltaTable(str(self._path))
        except TableNotFoundError:
            return None

    def last_batch(self, sink: str) -> int:
        table = self.open()
        version = None if table is None else table.transaction_version(sink)
        return -1 if version is None else int(version)

    def append(self, files: list[DataFile], schema: pa.Schema, commit: Commit) -> None:
        from deltalake.transaction import AddAction

        table = self._ready(schema)
        self._check_partitions(table)
        now_ms = time.time_ns() // 1_000_000
        actions = [
            AddAction(
                f.path, f.size_bytes, dict(f.partition), now_ms, True, f'{{"numRecords":{f.rows}}}'
            )
            for f in files
        ]
        table.create_write_transaction(
            actions,
            "append",
            table.schema(),
            self._partition_by or None,
            commit_properties=self._properties(commit),
        )

    def upsert(self, rows: pa.Table, keys: list[str], order: str | None, commit: Commit) -> None:
        table = self._ready(rows.schema)
        (
            table.merge(
                rows,
                " AND ".join(f"target.`{key}` = source.`{key}`" for key in keys),
                source_alias="source",
                target_alias="target",
                commit_properties=self._properties(commit),
            )
            .when_matched_update_all(None if order is None else _not_older(order))
            .when_not_matched_insert_all()
            .execute()
        )

    def _ready(self, schema: pa.Schema) -> Any:
        """The table, created or widened: columns may be added, never change their type."""
        from deltalake import DeltaTable, Schema

        table = self.open()
        if table is None:
            self._path.mkdir(parents=True, exist_ok=True)
            partition_by = self._partition_by or None
            return DeltaTable.create(str(self._path), schema, partition_by=partition_by)
        known = {field.name: field for field in table.schema().fields}
        wanted = Schema.from_arrow(schema).fields
        for field in wanted:
            if field.name in known and known[field.name].type != field.type:
                raise SparkConnectorError(
                    f"{self._path}: column {field.name} is {_type(known[field.name])} in the table "
                    f"and {_type(field)} in the stream; a column cannot change its type"
                )
        new = [field for field in wanted if field.name not in known]
        if new:
            with _told(self._path):
                table.alter.add_columns(new)
            table = self.open()
        return table

    def _check_partitions(self, table: Any) -> None:
        """Files are written by the sink's partitions; a table with others would read nulls."""
        there = list(table.metadata().partition_columns)
        if there != self._partition_by:
            raise SparkConnectorError(
                f"{self._path}: the table is partitioned by {there or 'nothing'} and the stream by "
                f"{self._partition_by or 'nothing'}; they must be the same"
            )

    def _properties(self, commit: Commit) -> Any:
        from deltalake import CommitProperties, Transaction

        return CommitProperties(
            custom_metadata=dict(commit.note),
            app_transactions=[Transaction(commit.sink, commit.batch)],
        )


class IcebergLake:
    """An Iceberg table in an SQLite catalogue beside it, through pyiceberg."""

    keeps_partition_columns = True

    def __init__(self, path: str, name: str, partition_by: tuple[str, ...] = ()) -> None:
        self._partition_by = partition_by
        self._warehouse = Path(path).absolute()
        self._name = name if "." in name else f"default.{name}"

    @property
    def data(self) -> Path:
        return self._warehouse / self._name.replace(".", "/") / "data"

    def _catalog(self) -> Any:
        from pyiceberg.catalog.sql import SqlCatalog

        self._warehouse.mkdir(parents=True, exist_ok=True)
        uri = f"sqlite:///{self._warehouse}/{CATALOGUE}"
        return SqlCatalog("penstock", uri=uri, warehouse=f"file://{self._warehouse}")

    def open(self) -> Any:
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        if not (self._warehouse / CATALOGUE).exists():
            return None  # looking for a table makes no directory
        try:
            return self._catalog().load_table(self._name)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None

    def last_batch(self, sink: str) -> int:
        table = self.open()
        return -1 if table is None else int(table.properties.get(f"penstock.batch.{sink}", -1))

    def append(self, files: list[DataFile], schema: pa.Schema, commit: Commit) -> None:
        table = self._ready(schema)
        with table.transaction() as transaction:
            paths = [f"file://{self.data / f.path}" for f in files]
            transaction.add_files(paths, check_duplicate_files=False)
            transaction.set_properties(self._properties(commit))

    def upsert(self, rows: pa.Table, keys: list[str], order: str | None, commit: Commit) -> None:
        from pyiceberg.table.upsert_util import create_match_filter

        table = self._ready(rows.schema)
        # Not pyiceberg's own upsert: it fails when the stream has other columns than the table's
        # last snapshot, and knows no order.
        names = [field.name for field in table.schema().fields]
        missing = [name for name in names if name not in rows.column_names]
        columns = (*keys, *missing, *([order] if order and order not in keys else ()))
        there = table.scan(create_match_filter(rows, keys), selected_fields=columns).to_arrow()
        rows = merged(rows, there, keys, order).select(names)
        with table.transaction() as transaction:
            if there.num_rows and rows.num_rows:
                transaction.overwrite(rows, overwrite_filter=create_match_filter(rows, keys))
            elif rows.num_rows:
                transaction.append(rows)
            transaction.set_properties(self._properties(commit))

    def _properties(self, commit: Commit) -> dict[str, str]:
        return {f"penstock.batch.{commit.sink}": str(commit.batch), **commit.note}

    def _ready(self, schema: pa.Schema) -> Any:
        table = self.open()
        if table is None:
            catalog = self._catalog()
            catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
            location = f"file://{self.data.parent}"
            with _told(self.data.parent):
                making = catalog.create_table_transaction(self._name, schema, location=location)
            with making as transaction, transaction.update_spec() as spec:
                for column in self._partition_by:
                    spec.add_identity(column)
            return self.open()
        with _told(self.data.parent), table.update_schema() as change:
            change.union_by_name(schema)
        return table.refresh()


def _not_older(order: str) -> str:
    """The condition under which a row of the stream replaces one of the table."""
    return f"source.`{order}` >= target.`{order}` OR target.`{order}` IS NULL"


def _type(field: Any) -> str:
    """`long` of a plain column; of others all there is to say."""
    kind = field.type
    return str(kind.type) if type(kind).__name__ == "PrimitiveType" else str(kind.to_json())


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """What a table format does not take, as a sentence with the table's place."""
    try:
        yield
    except SparkConnectorError:
        raise
    except Exception as failure:
        raise SparkConnectorError(f"{path}: {failure}") from failure


def open_table(kind: str, path: str, name: str, partition_by: tuple[str, ...]) -> LakeTable:
    """The table of a sink."""
    if kind == "delta":
        return DeltaLake(path, partition_by)
    if kind == "iceberg":
        return IcebergLake(path, name, partition_by)
    if kind == "parquet":
        from penstock.spark.lake.parquet import ParquetLake

        return ParquetLake(path)
    raise OptionError(f"tableFormat {kind!r} is none of {', '.join(FORMATS)}")


def read_files(root: Path, files: list[DataFile]) -> pa.Table:
    """Staged rows, for a merge on the driver."""
    tables = [pq.read_table(root / file.path, partitioning=None) for file in files]
    return pa.concat_tables(tables, promote_options="default")
