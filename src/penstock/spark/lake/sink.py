"""The data source `penstock_lake`: a streaming sink into Delta or Iceberg tables, exactly once.

    df.writeStream.format("penstock_lake").option("tableFormat", "delta").option("path", "lake")

Executors write Parquet files; the driver's commit adds them, with the batch's number and the
source's offsets, in one commit of the table. With `keys`, rows are merged instead: the newest row
of each key in the batch replaces the one in the table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.spark.errors import OptionError, SparkConnectorError
from penstock.spark.options import Options, choice, number

if TYPE_CHECKING:
    import pyarrow as pa

STAGED = "_staged"  # below the data directory: rows that wait for a merge, in no table


@dataclass
class Written(WriterCommitMessage):
    """What a task tells the driver."""

    files: list[Any] = field(default_factory=list)
    query: str = ""


class LakeSink(DataSource):
    """Only a sink: lake tables are read with what made them famous."""

    @classmethod
    def name(cls) -> str:
        return "penstock_lake"

    def schema(self) -> StructType:
        raise OptionError("penstock_lake only writes; read the table with deltalake or pyiceberg")

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return LakeWriter(self.options, schema)


class LakeWriter(DataSourceStreamArrowWriter):
    """Made anew for each commit; everything it knows is in the options and the table."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._kind = choice(options, "tableFormat", "delta", ("delta", "iceberg"))
        path = options.get("path")
        if not path or "://" in path.removeprefix("file://"):
            raise OptionError(f"path: {path!r} is not a directory of this machine")
        self._path = str(Path(path.removeprefix("file://")).absolute())
        self._table_name = options.get("table", Path(self._path).name)
        self._partition_by = _names(options.get("partitionBy", ""))
        self._keys = _names(options.get("keys", ""))
        self._order = options.get("orderBy")
        self._target_bytes = number(options, "targetFileBytes", 128 << 20, least=1024)
        self._checkpoint = options.get("checkpointLocation", "")
        self._schema = schema
        known = set(schema.fieldNames())
        for name in (*self._partition_by, *self._keys, *([self._order] if self._order else ())):
            if name not in known:
                raise OptionError(f"there is no column {name!r} among {', '.join(sorted(known))}")

    def _table(self) -> Any:
        from penstock.spark.lake.table import open_table

        return open_table(self._kind, self._path, self._table_name, self._partition_by)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from penstock.spark.lake.files import FileSet

        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context else None
        if not query:
            raise SparkConnectorError("Spark does not tell the query's id")
        table = self._table()
        merging = bool(self._keys)
        files = FileSet(
            table.data / STAGED if merging else table.data,
            () if merging else self._partition_by,
            keep_columns=table.keeps_partition_columns,
            target_bytes=self._target_bytes,
        )
        for rows in iterator:
            if rows.num_rows:
                files.add(rows)
        return Written(files.finish(), query)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        from penstock.spark.lake.table import read_files

        tasks = [message for message in messages if isinstance(message, Written)]
        if len(tasks) != len(messages):
            raise SparkConnectorError("a task of this batch has no result; nothing is committed")
        files = [file for task in tasks for file in task.files]
        if not files:
            return
        sink, table = tasks[0].query, self._table()
        staged = table.data / STAGED
        if table.last_batch(sink) < batchId:
            note = source_offsets(self._checkpoint, batchId)
            if self._keys:
                rows = newest_by_key(read_files(staged, files), list(self._keys), self._order)
                table.upsert(rows, list(self._keys), sink, batchId, note)
            else:
                schema = to_arrow_schema(self._schema, timezone="UTC")
                table.append(files, schema, sink, batchId, note)
        elif not self._keys:
            # The batch is in the table from an earlier attempt; these are its orphans.
            for file in files:
                (table.data / file.path).unlink(missing_ok=True)
        if self._keys:
            for file in files:
                (staged / file.path).unlink(missing_ok=True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Spark may call this after a commit that succeeded: files are left to the sweep."""


def newest_by_key(rows: pa.Table, keys: list[str], order: str | None) -> pa.Table:
    """One row for each key: the greatest by `order`, else the last."""
    import numpy as np
    import pyarrow as pa

    place = pa.array(np.arange(rows.num_rows))
    table = rows.append_column("__place", place)
    if order:
        table = table.sort_by([(order, "ascending"), ("__place", "ascending")])
        table = table.drop_columns(["__place"]).append_column("__place", place)
    last = table.group_by(keys).aggregate([("__place", "max")]).column("__place_max")
    return table.take(last).drop_columns(["__place"])


def source_offsets(checkpoint: str, batch_id: int) -> dict[str, str]:
    """The end offsets of the batch, from Spark's offset log when it is on this machine."""
    log = Path(checkpoint.removeprefix("file:")) / "offsets" / str(batch_id)
    try:
        lines = log.read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    ends = [json.loads(line) for line in lines[2:] if line.startswith("{")]
    return {"penstock.offsets": json.dumps(ends, sort_keys=True)}


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
