"""Celery on a broker in this process: no installation, no container.

celery -A examples.celery_app worker        (with BROKER=amqp://..., if not on the usual port)
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from celery import Celery

import penstock

app = Celery("shop", broker=os.environ.get("BROKER", "amqp://"), backend="rpc://")
app.conf.update(task_acks_late=True, broker_connection_retry_on_startup=True)


@app.task(bind=True, name="charge", max_retries=3)
def charge(self, amount: int) -> str:  # type: ignore[no-untyped-def]
    if self.request.retries == 0:
        raise self.retry(countdown=0.2, exc=ConnectionError("the bank is away"))
    return f"{amount} euros charged at the second try"


def main() -> None:
    with penstock.open(None, amqp="127.0.0.1:0") as mq:
        app.conf.broker_url = f"amqp://guest:guest@{mq.amqp}//"
        worker = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "celery_app", "worker", "--pool", "solo"],
            cwd=Path(__file__).parent,
            env={**os.environ, "BROKER": app.conf.broker_url},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            print(charge.delay(42).get(timeout=60))
        finally:
            worker.terminate()
            worker.wait()


if __name__ == "__main__":
    main()
