"""The Celery application of the conformance tests; a worker imports it by name.

AMQP_URL says where the broker is, CELERY_NAME makes its queues its own.
"""

from __future__ import annotations

import os
import time
from typing import Any

from celery import Celery
from kombu import Exchange, Queue

NAME = os.environ.get("CELERY_NAME", "tests")
TYPE = os.environ.get("CELERY_QUEUE_TYPE", "classic")

app = Celery(NAME, broker=os.environ.get("AMQP_URL", "amqp://"), backend="rpc://")
arguments: dict[str, Any] = {"x-queue-type": TYPE}
if TYPE == "classic":
    arguments["x-max-priority"] = 10
app.conf.update(
    task_default_queue=NAME,
    task_queues=[Queue(NAME, Exchange(NAME, "direct"), NAME, queue_arguments=arguments)],
    task_default_exchange=NAME,
    task_default_routing_key=NAME,
    task_default_queue_type=TYPE,
    event_queue_prefix=f"{NAME}ev",
    control_exchange=f"{NAME}-control",
    event_exchange=f"{NAME}-events",
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
    worker_detect_quorum_queues=TYPE == "quorum",
    broker_connection_retry_on_startup=True,
    broker_transport_options={"confirm_publish": True},
    broker_native_delayed_delivery_queue_type=TYPE,
    result_expires=60,
    timezone="UTC",
)


@app.task
def add(x: int, y: int) -> int:
    return x + y


@app.task
def nap(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


@app.task
def finished_at() -> float:
    return time.time()


@app.task
def note(path: str, text: str, seconds: float = 0.0) -> None:
    """Leave a trace that survives the worker."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(text + "\n")
    time.sleep(seconds)


@app.task(acks_late=True, reject_on_worker_lost=True)
def late(path: str, seconds: float) -> str:
    with open(path, "a", encoding="utf-8") as file:
        file.write("started\n")
    time.sleep(seconds)
    return "done"


@app.task(bind=True, max_retries=3)
def third_time(self: Any) -> int:
    if self.request.retries < 2:
        raise self.retry(countdown=0.2)
    return int(self.request.retries)
