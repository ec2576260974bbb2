"""One topic into tables of every kind, in a process to be killed: python lake_job.py SETTINGS."""

from __future__ import annotations

import json
import sys
import time
from typing import Any


def main() -> None:
    from penstock.spark.launch import session

    said = json.loads(sys.argv[1])
    spark = session("job", "local[2]", said["settings"])
    sys.stdout.write("started\n")
    sys.stdout.flush()
    queries: dict[str, Any] = {}
    while True:
        for name in said["tables"]:
            if name not in queries or not queries[name].isActive:
                # One after the other: on a busy machine Spark does not wait for many workers.
                queries[name] = start(spark, said, name)
                while queries[name].isActive and "Initializing" in queries[name].status["message"]:
                    time.sleep(0.05)
        time.sleep(0.2)


def start(spark: Any, said: dict[str, Any], name: str) -> Any:
    source = {"kafka.bootstrap.servers": said["bootstrap"], **said["source"]}
    rows = spark.readStream.format("penstock").options(**source).load()
    rows = rows.selectExpr(
        "CAST(CAST(value AS STRING) AS BIGINT) AS id", "CAST(partition % 2 AS STRING) AS half"
    )
    writer = rows.writeStream.format("penstock_lake").options(**said["tables"][name])
    return writer.option("checkpointLocation", f"{said['checkpoint']}/{name}").start()


if __name__ == "__main__":
    main()
