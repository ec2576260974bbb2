"""An event stream: every group sees every event, and anybody can read it again."""

from __future__ import annotations

import tempfile
from collections import Counter

import penstock


def main(directory: str) -> None:
    with penstock.open(directory) as mq:
        mq.admin.create_topic("clicks", partitions=3)
        clicks = [{"user": f"user-{n % 4}", "page": f"/{n % 5}"} for n in range(1000)]
        mq.publish_many("clicks", clicks, serializer="json", key_of=lambda click: click["user"])

        pages: Counter[str] = Counter()
        with mq.subscribe("clicks", group="statistics", idle_timeout=1) as events:
            for event in events:
                pages[event.json()["page"]] += 1
        print("pages:", dict(sorted(pages.items())))

        with mq.subscribe(
            "clicks", group="audit", filter="key == 'user-1'", idle_timeout=1
        ) as events:
            print("clicks of user-1:", sum(1 for _ in events))

        with mq.subscribe("clicks", group="statistics", idle_timeout=1) as events:
            events.wait_assigned()
            print("left for statistics:", sum(events.lag().values()))
            events.replay()
            print("read again:", sum(len(batch) for batch in events.batches()))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(directory)
