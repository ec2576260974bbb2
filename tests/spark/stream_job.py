"""A topic-to-topic query in a process of its own: python stream_job.py SETTINGS.

Tests kill it, or run it on a cluster or through Spark Connect. Says "started" when the query runs,
and with `until_done` reads what is there, tells who did the work, and ends.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def main() -> None:
    from penstock.spark.launch import session

    said = json.loads(sys.argv[1])
    spark = session("job", said.get("master", "local[2]"), said["settings"])
    brokers = {"kafka.bootstrap.servers": said["bootstrap"]}
    frame = spark.readStream.format("penstock").options(**brokers, **said["source"]).load()
    writer = frame.selectExpr("key", "value").writeStream.options(**said["sink"])
    writer = writer.format(said.get("format", "penstock"))
    if said.get("format", "penstock") == "penstock":
        writer = writer.options(**brokers)
    if said.get("until_done"):
        writer = writer.trigger(availableNow=True)
    query = writer.option("checkpointLocation", said["checkpoint"]).start()
    sys.stdout.write("started\n")
    sys.stdout.flush()
    query.awaitTermination()
    if said.get("until_done"):
        sys.stdout.write(json.dumps(_report(spark, said)) + "\n")
    spark.stop()


def _report(spark: Any, said: dict[str, Any]) -> dict[str, Any]:
    """A batch read of the result, and the interpreters that the workers ran."""
    brokers = {"kafka.bootstrap.servers": said["bootstrap"]}
    frame = spark.read.format("penstock").options(**brokers, subscribe=said["sink"]["topic"]).load()

    def who(rows: Any) -> Any:
        import pyarrow as pa

        count = sum(batch.num_rows for batch in rows)
        cells = [[sys.executable], [os.environ.get("SPARK_EXECUTOR_DIRS", "")], [count]]
        yield pa.RecordBatch.from_arrays([pa.array(cell) for cell in cells], ["python", "at", "n"])

    seen = frame.mapInArrow(who, "python string, at string, n long").collect()
    return {
        "rows": sum(row.n for row in seen),
        "pythons": sorted({row.python for row in seen}),
        "executors": len({row["at"] for row in seen}),
        "session": f"{type(spark).__module__}",
    }


if __name__ == "__main__":
    main()
