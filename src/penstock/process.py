"""A broker as a process of its own: `penstock serve`, from its options to its exit status.

It says that it is ready in one line on standard output, which others parse, and everything else on
standard error. SIGTERM and Ctrl-C stop it cleanly.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Mapping

from penstock.app import Broker
from penstock.config import BrokerConfig
from penstock.model import records
from penstock.runtime.process import allow_open_files, calm_collector, process_age
from penstock.wire.kafka import codec

# How long a thread that syncs may be kept waiting for the interpreter by the loop. With Python's
# 5 ms an acknowledgement sometimes waits for that as well as for the disk.
_SWITCH_SECONDS = 0.0005


def serve(config: BrokerConfig) -> int:
    """Run a broker until SIGTERM or Ctrl-C; returns the exit status."""
    import uvloop

    started = time.monotonic() - process_age()
    allow_open_files()
    sys.setswitchinterval(_SWITCH_SECONDS)
    logging.basicConfig(
        level=config.verbosity.upper(),
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(config, started))


async def _serve(config: BrokerConfig, started: float) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    broker = Broker(config)
    await broker.open()
    sys.stdout.write(ready_line(broker.addresses, time.monotonic() - started) + "\n")
    sys.stdout.flush()
    warming = loop.run_in_executor(None, warm_up)
    warming.add_done_callback(lambda _: calm_collector())
    await stop.wait()
    await warming
    await broker.close()
    return 0


def warm_up() -> None:
    """Import what the first clients will need, once the doors are open; in a thread."""
    codec.warm_up()
    records.warm_up()


def ready_line(addresses: Mapping[str, tuple[str, int] | None], seconds: float) -> str:
    """The one line on standard output: others parse it."""
    doors = " ".join(
        f"{door}=off" if bound is None else f"{door}={_host_port(*bound)}"
        for door, bound in addresses.items()
    )
    return f"penstock ready {doors} pid={os.getpid()} in {seconds:.2f}s"


def _host_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
