"""Members of share groups: confluent-kafka's ShareConsumer, and the settings of groups."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import AcknowledgeType, ShareConsumer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT


def configure(admin: AdminClient, group: str, **settings: Any) -> None:
    """Settings of a group by Kafka's names, with underscores for dots."""
    entries = [
        ConfigEntry(name.replace("_", "."), str(value), incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    (altered,) = admin.incremental_alter_configs([resource]).values()
    altered.result(10)


class Sharer:
    """A member of a share group that acknowledges what it is told to, when it is told to."""

    def __init__(self, bootstrap: str, group: str, topics: list[str], **options: Any) -> None:
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
            "fetch.wait.max.ms": 100,
        }
        more = {name.replace("_", "."): value for name, value in options.items()}
        self.consumer = ShareConsumer({**settings, **more})
        self.consumer.subscribe(topics)

    def __enter__(self) -> Sharer:
        return self

    def __exit__(self, *_: object) -> None:
        self.consumer.close()

    def poll(self, seconds: float = 0.2) -> list[Any]:
        """What one poll brings; an error is a failed test."""
        found = list(self.consumer.poll(seconds))
        for message in found:
            assert message.error() is None, message.error()
        return found

    def take(self, count: int = 1, *, within: float = 15.0) -> list[Any]:
        """At least `count` records, in one poll as explicit members must acknowledge in between."""
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            found = self.poll()
            if found:
                assert len(found) >= count, f"{len(found)} records at once, not {count}"
                return found
        raise AssertionError(f"no records in {within} s")

    def say(self, messages: list[Any], kind: AcknowledgeType = ACCEPT) -> None:
        for message in messages:
            self.consumer.acknowledge(message, kind)

    def commit(self) -> None:
        """Send what was said and wait for the answer; a refusal is a failed test."""
        for partition, refusal in self.consumer.commit_sync(10).items():
            assert refusal is None, (partition, refusal)

    def drain(self, at_least: int = 0, *, quiet: float = 1.0, within: float = 15.0) -> list[Any]:
        """Accept everything: `at_least` so many, and then until nothing more comes for a while."""
        seen: list[Any] = []
        started = last = time.monotonic()
        while time.monotonic() - last < quiet or len(seen) < at_least:
            assert time.monotonic() - started < within, f"{len(seen)} of {at_least} records"
            found = self.poll()
            if found:
                self.say(found)
                self.commit()
                seen += found
                last = time.monotonic()
        return seen


def values(messages: list[Any]) -> list[bytes]:
    return [message.value() for message in messages]
