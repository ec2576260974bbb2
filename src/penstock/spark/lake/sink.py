"""The data source `penstock_lake`: Delta, Iceberg and Parquet tables, written exactly once.

    df.writeStream.format("penstock_lake").option("tableFormat", "delta").option("path", "lake")

Executors write Parquet files; the driver's commit adds them, with the batch's number and the
source's offsets, in one commit of the table. With `keys`, rows are merged instead: the newest row
of each key in the batch replaces the one in the table. A batch query with the options `sinkId` and
`batchId` is written once as well, however often it is repeated.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from penstock.spark.errors import OptionError, SparkConnectorError
from penstock.spark.lake.commit import Commit
from penstock.spark.options import Options, choice, number
from penstock.spark.workers import Delivered, keep_what_is_loaded

if TYPE_CHECKING:
    import pyarrow as pa

STAGED = "_staged"  # below the data directory: rows that wait for a merge, in no table


@dataclass
class Written(WriterCommitMessage):
    """What a task tells the driver."""

    files: list[Any] = field(default_factory=list)
    query: str = ""


class LakeSink(Delivered, DataSource):
    """Tables, written by streams and batches; Delta and Iceberg are read too."""

    @classmethod
    def name(cls) -> str:
        return "penstock_lake"

    def schema(self) -> StructType:
        from penstock.spark.lake.reading import table_schema

        return table_schema(*_place(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        from penstock.spark.lake.reading import LakeReader

        return LakeReader(*_place(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        if overwrite:
            raise OptionError("penstock_lake only appends or, with keys, merges; use mode append")
        return LakeBatchWriter(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return LakeWriter(self.options, schema)


def _place(options: Options) -> tuple[str, str, str]:
    """Format, directory and name of the table."""
    kind = choice(options, "tableFormat", "delta", ("delta", "iceberg", "parquet"))
    path = options.get("path")
    if not path or "://" in path.removeprefix("file://"):
        raise OptionError(f"path: {path!r} is not a directory of this machine")
    place = str(Path(path.removeprefix("file://")).absolute())
    return kind, place, options.get("table", Path(place).name)


class TableWriter(Delivered):
    """Made anew for each commit; everything it knows is in the options and the table."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._kind, self._path, self._table_name = _place(options)
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

    def write_rows(self, iterator: Iterator[pa.RecordBatch], sink: str) -> Written:
        """On an executor: the files of one task."""
        from penstock.spark.lake.files import FileSet

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
        written = Written(files.finish(), sink)
        keep_what_is_loaded()
        return written

    def commit_files(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver: everything the tasks wrote becomes the table's, once."""
        from pyspark.sql.pandas.types import to_arrow_schema

        from penstock.spark.lake.merging import newest_by_key
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
            commit = Commit(sink, batchId, source_offsets(self._checkpoint, batchId))
            if self._keys:
                rows = newest_by_key(read_files(staged, files), list(self._keys), self._order)
                table.upsert(rows, list(self._keys), self._order, commit)
            else:
                schema = to_arrow_schema(self._schema, timezone="UTC")
                table.append(files, schema, commit)
        elif not self._keys:
            # The batch is in the table from an earlier attempt; these are its orphans.
            for file in files:
                (table.data / file.path).unlink(missing_ok=True)
        if self._keys:
            for file in files:
                (staged / file.path).unlink(missing_ok=True)


class LakeWriter(TableWriter, DataSourceStreamArrowWriter):
    """A streaming query's output: a batch is known by the query and its number."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context else None
        if not query:
            raise SparkConnectorError("Spark does not tell the query's id")
        return self.write_rows(iterator, query)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.commit_files(messages, batchId)
        keep_what_is_loaded()

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Spark may call this after a commit that succeeded: files are left to the sweep."""


class LakeBatchWriter(TableWriter, DataSourceArrowWriter):
    """A batch query's output: one batch of a sink of its own, or of the sink it was given."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        self._sink = options.get("sinkId") or uuid.uuid4().hex
        self._batch = number(options, "batchId", 0)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.write_rows(iterator, self._sink)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.commit_files(messages, self._batch)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What was written belongs to no table and is left to the sweep."""


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
