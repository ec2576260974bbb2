"""The Spark data source `penstock`: where the options of a query become readers and writers.

    spark.readStream.format("penstock").option("kafka.bootstrap.servers", "127.0.0.1:9092")
         .option("subscribe", "orders").load()

Options are those of Spark's Kafka connector and a few more (docs/spark.md). It speaks only Kafka's
protocol, so it reads and writes any broker that does.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from penstock.spark.errors import SparkConnectorError
from penstock.spark.reader import Refused, TopicReader, TopicStreamReader
from penstock.spark.shaping import shape_of
from penstock.spark.workers import Delivered
from penstock.spark.writer import TopicStreamWriter, TopicWriter


class PenstockSource(Delivered, DataSource):
    """Topics as tables and streams."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> StructType | str:
        return shape_of(self.options).schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        return TopicReader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            return TopicStreamReader(self.options, schema)
        except SparkConnectorError as failure:
            # Spark 4.3 stops a reader that could not be made, and shows that mistake of its own
            # instead of ours: so there is a reader, which fails when it is asked for anything.
            return Refused(failure)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return TopicWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return TopicStreamWriter(self.options, schema)
