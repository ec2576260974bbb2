"""The picture of the cluster that clients are given. Alone, it has one node."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Node:
    """A broker and where clients reach it."""

    id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(slots=True)
class Cluster:
    """The brokers, and which of them this one is."""

    cluster_id: str
    node_id: int
    nodes: list[Node]

    @property
    def controller_id(self) -> int:
        return self.node_id

    @property
    def this_node(self) -> Node:
        return next(node for node in self.nodes if node.id == self.node_id)
