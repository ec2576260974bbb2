"""Delta and Iceberg tables as Spark sees them: a schema, and one task for some of the files.

The version that is newest when the plan is made is read to the end, whatever is written meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from penstock.spark.errors import OptionError, SparkConnectorError

if TYPE_CHECKING:
    import pyarrow as pa

TASKS = 8


def _open(kind: str, path: str, name: str) -> Any:
    from penstock.spark.lake.table import DeltaLake, IcebergLake

    if kind == "parquet":
        raise OptionError("plain Parquet is read with spark.read.parquet")
    table = DeltaLake(path).open() if kind == "delta" else IcebergLake(path, name).open()
    if table is None:
        raise SparkConnectorError(f"there is no {kind} table {name} in {path}")
    return table


def table_schema(kind: str, path: str, name: str) -> StructType:
    """The columns of the newest version."""
    import pyarrow as pa

    table = _open(kind, path, name)
    schema = pa.schema(table.schema()) if kind == "delta" else table.schema().as_arrow()
    return from_arrow_schema(schema)


class Files(InputPartition):
    """Some files of one version."""

    def __init__(self, version: int, paths: list[str]) -> None:
        super().__init__((version, paths))
        self.version = version
        self.paths = paths


class LakeReader(DataSourceReader):
    """A batch query over a table."""

    def __init__(self, kind: str, path: str, name: str) -> None:
        self._kind, self._path, self._name = kind, path, name
        self._shape = table_schema(kind, path, name)

    def partitions(self) -> list[InputPartition]:
        table = _open(self._kind, self._path, self._name)
        if self._kind == "delta":
            version = table.version()
            paths = sorted(fragment.path for fragment in _fragments(table))
        else:
            snapshot = table.current_snapshot()
            if snapshot is None:
                return []
            version = snapshot.snapshot_id
            paths = sorted(task.file.file_path for task in table.scan().plan_files())
        spread = [paths[at::TASKS] for at in range(min(TASKS, len(paths)))]
        return [Files(version, some) for some in spread]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        assert isinstance(partition, Files)
        schema = to_arrow_schema(self._shape, timezone="UTC")
        batches = self._delta(partition) if self._kind == "delta" else self._iceberg(partition)
        for batch in batches:
            yield from pa.Table.from_batches([batch]).select(schema.names).cast(schema).to_batches()

    def _delta(self, wanted: Files) -> Iterator[Any]:
        from deltalake import DeltaTable

        table = DeltaTable(self._path, version=wanted.version)
        dataset = table.to_pyarrow_dataset()
        for fragment in dataset.get_fragments():
            if fragment.path in wanted.paths:
                # The columns of the partition are in the fragment's expression, not in the file.
                yield from fragment.to_batches(schema=dataset.schema)

    def _iceberg(self, wanted: Files) -> Iterator[Any]:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        table = _open(self._kind, self._path, self._name)
        scan = table.scan(snapshot_id=wanted.version)
        tasks = [task for task in scan.plan_files() if task.file.file_path in wanted.paths]
        reader = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
        yield from reader.to_record_batches(tasks)


def _fragments(table: Any) -> Any:
    return table.to_pyarrow_dataset().get_fragments()
