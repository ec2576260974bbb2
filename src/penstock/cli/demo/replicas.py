"""One primary and its secondaries: the model of replication, over brokers in this process.

The primary takes all writes. Each secondary copies it, partition by partition, in order, so that
offsets are the same everywhere. A message counts as acknowledged, and consumers see it, when every
broker that is *in sync* has it: up to the *high watermark*. Who comes late is in sync when it has
caught up. When the primary dies, the one in sync that has most becomes primary, and those who have
something that it has not begin anew. All is in memory: what dies with a broker is gone.

It is a model to look at, made of nothing but calls of the library; a cluster does this by itself.
"""

from __future__ import annotations

import contextlib
import threading

import penstock
from penstock.cli.output import Failure

TOPIC = "orders"
PARTITIONS = 3
ACKNOWLEDGED_WITHIN_S = 30.0


class Node:
    """A broker that can die."""

    def __init__(self, name: str, *, is_in_sync: bool) -> None:
        self.name = name
        self.is_in_sync = is_in_sync
        self.client = penstock.open(None)
        self.client.admin.create_topic(TOPIC, partitions=PARTITIONS)
        self.ends = [0] * PARTITIONS  # how much it has of each partition
        self.is_alive = True

    def __repr__(self) -> str:
        return f"<Node {self.name} {self.ends}{'' if self.is_alive else ' dead'}>"

    def die(self) -> None:
        self.is_alive = False
        self.client.close()


class Replicas:
    """The brokers, who is primary, and the threads that copy."""

    def __init__(self, names: list[str]) -> None:
        self.nodes = {name: Node(name, is_in_sync=True) for name in names}
        self.primary = self.nodes[names[0]]
        self.epoch = 1  # one more with each primary
        self.changed = threading.Condition()
        self._is_over = False
        self._copiers: list[threading.Thread] = []
        for node in self.nodes.values():
            self._copy_to(node)

    def living(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.is_alive]

    def in_sync(self) -> list[Node]:
        return [node for node in self.living() if node.is_in_sync]

    def high_watermark(self, partition: int) -> int:
        """Below this every broker in sync has everything."""
        return min((node.ends[partition] for node in self.in_sync()), default=0)

    def publish(self, number: int, partition: int) -> int:
        """Write to the primary and wait until everybody has it; the offset."""
        node = self.primary
        receipt = node.client.publish(TOPIC, str(number), partition=partition)
        with self.changed:
            node.ends[partition] = max(node.ends[partition], receipt.offset + 1)
            self.changed.notify_all()
            done = self.changed.wait_for(
                lambda: self.primary is not node or self.high_watermark(partition) > receipt.offset,
                ACKNOWLEDGED_WITHIN_S,
            )
        if self.primary is not node:
            raise penstock.Unavailable("the primary died before everybody had it")
        if not done:
            raise Failure("the secondaries do not keep up")
        return receipt.offset

    def read(self, partition: int, offset: int) -> list[int]:
        """What is below the high watermark, from an offset on."""
        count = self.high_watermark(partition) - offset
        if count <= 0:
            return []
        found = self.primary.client.read(TOPIC, partition, offset, limit=count)
        return [int(message.text) for message in found]

    # --- copying ----------------------------------------------------------------------------------

    def _copy_to(self, node: Node) -> None:
        thread = threading.Thread(target=self._copy, args=(node,), daemon=True)
        self._copiers.append(thread)
        thread.start()

    def _copy(self, node: Node) -> None:
        while node.is_alive and not self._is_over:
            source, moved = self.primary, 0
            if source is not node:
                with contextlib.suppress(penstock.PenstockError):  # one of the two died
                    moved = sum(self._copy_part(source, node, part) for part in range(PARTITIONS))
            if not moved:
                with self.changed:
                    self.changed.wait(0.05)

    def _copy_part(self, source: Node, node: Node, partition: int) -> int:
        behind = source.ends[partition] - node.ends[partition]
        if behind <= 0:
            return 0
        found = source.client.read(TOPIC, partition, node.ends[partition], limit=behind)
        values = [message.payload for message in found]
        node.client.publish_many(TOPIC, values, partition=partition)
        with self.changed:
            node.ends[partition] += len(values)
            node.is_in_sync = node.is_in_sync or node.ends == source.ends
            self.changed.notify_all()
        return len(values)

    # --- death and return -------------------------------------------------------------------------

    def kill(self, name: str) -> Node:
        """A broker dies. If it was the primary, another one takes over; returns the primary."""
        node = self.nodes[name]
        with self.changed:
            node.die()
            if node is self.primary:
                self.primary = max(self.in_sync(), key=lambda each: sum(each.ends))
                self.epoch += 1
            self.changed.notify_all()
        for each in self.living():
            if any(
                mine > theirs for mine, theirs in zip(each.ends, self.primary.ends, strict=True)
            ):
                each.die()  # it has what nobody acknowledged and the primary never heard of
                self.add(each.name)
        return self.primary

    def add(self, name: str) -> None:
        """A broker comes (again): empty, and copies everything."""
        node = self.nodes[name] = Node(name, is_in_sync=False)
        self._copy_to(node)

    def close(self) -> None:
        self._is_over = True
        for thread in self._copiers:
            thread.join()
        for node in self.living():
            node.die()
