"""One topic into tables of every kind, in a process to be killed: python lake_job.py SETTINGS."""

from __future__ import annotations

import json
import sys


def main() -> None:
    from penstock.spark.launch import session

    said = json.loads(sys.argv[1])
    spark = session("job", "local[2]", said["settings"])
    queries = []
    for name, options in said["tables"].items():
        source = {"kafka.bootstrap.servers": said["bootstrap"], **said["source"]}
        rows = spark.readStream.format("penstock").options(**source).load()
        rows = rows.selectExpr(
            "CAST(CAST(value AS STRING) AS BIGINT) AS id", "CAST(partition % 2 AS STRING) AS half"
        )
        writer = rows.writeStream.format("penstock_lake").options(**options)
        queries.append(writer.option("checkpointLocation", f"{said['checkpoint']}/{name}").start())
    sys.stdout.write("started\n")
    sys.stdout.flush()
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main()
