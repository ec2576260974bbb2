"""What Spark's own connector does with Penstock: python official_job.py SETTINGS."""

from __future__ import annotations

import json
import sys
from typing import Any


def main() -> None:
    from penstock.spark.launch import session

    said = json.loads(sys.argv[1])
    spark = session("official", "local[2]", said["settings"])
    report: dict[str, Any] = {}
    rows = {name: _read(spark, name, said) for name in ("kafka", "penstock")}
    report["batch"] = rows["kafka"].count()
    # The connectors' columns are the same, so the rows can be compared as they are.
    report["same"] = rows["kafka"].intersect(rows["penstock"]).count()
    report["by_time"] = _read(spark, "kafka", said, startingTimestamp="1000").count()
    _stream(spark, "kafka", "kafka", said, said["source"], said["target"])
    _stream(spark, "penstock", "kafka", said, said["target"], said["back"])
    report["lost"] = _loses(spark, said)
    sys.stdout.write(json.dumps(report) + "\n")
    spark.stop()


def _read(spark: Any, name: str, said: dict[str, Any], **options: str) -> Any:
    options = {"subscribe": said["source"], "includeHeaders": "true", **options}
    reader = spark.read.format(name).option("kafka.bootstrap.servers", said["bootstrap"])
    return reader.options(**options).load()


def _stream(
    spark: Any, reader: str, writer: str, said: dict[str, Any], source: str, target: str
) -> None:
    brokers = {"kafka.bootstrap.servers": said["bootstrap"]}
    frame = (
        spark.readStream.format(reader)
        .options(**brokers, subscribe=source, startingOffsets="earliest", includeHeaders="true")
        .option("maxOffsetsPerTrigger", "400")
        .load()
    )
    query = (
        frame.select("key", "value", "headers")
        .writeStream.format(writer)
        .options(**brokers, topic=target, checkpointLocation=f"{said['directory']}/{target}")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def _loses(spark: Any, said: dict[str, Any]) -> bool:
    """Whether reading what was deleted fails in the official connector too."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": said["bootstrap"]})
    for future in admin.delete_records([TopicPartition(said["source"], 0, 10)]).values():
        future.result(20)
    start = json.dumps({said["source"]: {"0": 0, "1": 0, "2": 0}})
    try:
        _read(spark, "kafka", said, startingOffsets=start).count()
    except Exception:
        return True
    return False


if __name__ == "__main__":
    main()
