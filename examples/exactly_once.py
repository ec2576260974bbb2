"""Exactly once: what is read, what is computed and how far we are belong to one transaction."""

from __future__ import annotations

import tempfile

import penstock


class Crash(Exception):
    pass


def convert(mq: penstock.Client, *, crash_after: int | None = None) -> None:
    """Read amounts in cents, write them in euros."""
    with mq.subscribe("cents", group="convert", auto_commit=False, idle_timeout=1) as messages:
        for number, batch in enumerate(messages.batches(max_messages=10)):
            with mq.transaction("convert-1") as tx:
                for message in batch:
                    tx.send("euros", f"{int(message.text) / 100:.2f}", key=message.key)
                tx.commit_offsets(messages)
                if number == crash_after:
                    raise Crash  # the transaction is aborted: nothing of this batch counts


def main(directory: str) -> None:
    with penstock.open(directory, num_partitions=1) as mq:
        mq.publish_many("cents", [str(number) for number in range(100)])
        try:
            convert(mq, crash_after=3)
        except Crash:
            print("crashed in the fourth batch")
        convert(mq)
        euros = [message.text for message in mq.read("euros")]
        print(f"{len(euros)} amounts, {len(set(euros))} of them different, the last {euros[-1]}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(directory)
