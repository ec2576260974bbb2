"""A topic-to-topic query in a process of its own, to be killed: python stream_job.py SETTINGS."""

from __future__ import annotations

import json
import sys


def main() -> None:
    from penstock.spark.launch import session

    said = json.loads(sys.argv[1])
    spark = session("job", "local[2]", said["settings"])
    brokers = {"kafka.bootstrap.servers": said["bootstrap"]}
    frame = spark.readStream.format("penstock").options(**brokers, **said["source"]).load()
    writer = frame.selectExpr("key", "value").writeStream.options(**said["sink"])
    writer = writer.format(said.get("format", "penstock"))
    if said.get("format", "penstock") == "penstock":
        writer = writer.options(**brokers)
    query = writer.option("checkpointLocation", said["checkpoint"]).start()
    sys.stdout.write("started\n")
    sys.stdout.flush()
    query.awaitTermination()


if __name__ == "__main__":
    main()
