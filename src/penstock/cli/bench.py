"""`penstock bench`: how fast a broker is, measured from the outside with librdkafka.

Three measurements, each on topics of its own that are deleted afterwards:
- produce: as many messages as possible, until the last one is acknowledged;
- consume: the same messages read back from the first to the last;
- latency: messages at a fixed rate, from the call of produce to the return of poll.

It says what one client process saw; when client and broker run on the same machine, they share its
cores. To compare brokers, measure both in the same run of minutes, and compare ratios.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.connection import DEFAULT_BOOTSTRAP, Bootstrap, Json
from penstock.cli.output import emit_json, emit_table, human_bytes, say

if TYPE_CHECKING:
    from penstock.cli.measure import Load

app = typer.Typer(add_completion=False, rich_markup_mode=None)

MEASUREMENTS = ("produce", "consume", "latency")

What = Annotated[
    list[str] | None, typer.Argument(metavar="produce|consume|latency", show_default=False)
]
Messages = Annotated[
    int, typer.Option("--messages", "-n", min=1, metavar="N", help="To produce and consume.")
]
Size = Annotated[int, typer.Option("--size", "-s", min=1, metavar="BYTES", help="Of each value.")]
Partitions = Annotated[int, typer.Option("--partitions", "-p", min=1, metavar="N")]
Acks = Annotated[str, typer.Option("--acks", metavar="all|1|0")]
Compression = Annotated[str, typer.Option("--compression", metavar="CODEC")]
LingerMs = Annotated[
    float, typer.Option("--linger-ms", min=0, metavar="MS", help="Of the throughput producer.")
]
Rate = Annotated[
    int, typer.Option("--rate", min=1, metavar="N", help="Messages a second, for latency.")
]
Seconds = Annotated[
    float, typer.Option("--seconds", min=0.1, metavar="S", help="Duration of latency.")
]


@app.command()
def bench(
    what: What = None,
    messages: Messages = 1_000_000,
    size: Size = 100,
    partitions: Partitions = 4,
    acks: Acks = "all",
    compression: Compression = "none",
    linger_ms: LingerMs = 5.0,
    rate: Rate = 1000,
    seconds: Seconds = 5.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Measure produce, consume and end-to-end latency of any Kafka broker.

    \b
    Examples:
      penstock bench
      penstock bench produce consume --messages 5000000 --size 200 --compression lz4
      penstock bench latency --rate 5000 --seconds 20
      penstock bench --bootstrap kafka.example:9092 --json
    """
    chosen = _chosen(what)
    if acks not in ("all", "1", "0"):
        raise typer.BadParameter(f"{acks!r} is not all, 1 or 0", param_hint="--acks")
    from penstock.cli.measure import Load, measure_latency, measure_throughput

    load = Load(
        bootstrap=bootstrap,
        messages=messages,
        size=size,
        partitions=partitions,
        acks=acks,
        compression=compression,
        linger_ms=linger_ms,
        rate=rate,
        seconds=seconds,
    )
    results = []
    if "produce" in chosen or "consume" in chosen:
        results += measure_throughput(load, consume="consume" in chosen)
    if "latency" in chosen:
        results.append(measure_latency(load))
    results = [result for result in results if result["measurement"] in chosen]
    if json:
        emit_json({"load": load.to_dict(), "results": results})
    else:
        _show(load, results)


def _show(load: Load, results: list[dict[str, Any]]) -> None:
    say(
        f"{load.bootstrap}: {load.size} byte values, {load.partitions} partitions, "
        f"acks={load.acks}, compression={load.compression}"
    )
    fast = [result for result in results if "messages_per_s" in result]
    if fast:
        emit_table(
            ("measurement", "messages", "seconds", "messages/s", "bytes/s"),
            [
                [
                    result["measurement"],
                    result["messages"],
                    f"{result['seconds']:.2f}",
                    round(result["messages_per_s"]),
                    human_bytes(result["bytes_per_s"]) + "/s",
                ]
                for result in fast
            ],
        )
    for result in results:
        if result["measurement"] == "latency":
            emit_table(
                ("latency", "messages", "p50 ms", "p95 ms", "p99 ms", "p99.9 ms", "max ms"),
                [
                    [f"at {load.rate}/s", result["messages"]]
                    + [f"{result[at]:.2f}" for at in ("p50", "p95", "p99", "p999", "max")]
                ],
            )


def _chosen(what: list[str] | None) -> tuple[str, ...]:
    for word in what or ():
        if word not in MEASUREMENTS:
            raise typer.BadParameter(f"{word!r} is not one of {', '.join(MEASUREMENTS)}")
    return tuple(what) if what else MEASUREMENTS
