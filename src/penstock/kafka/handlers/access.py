"""What a caller may do, asked where Kafka asks and told as Kafka tells it (KIP-430)."""

from __future__ import annotations

from penstock.errors import AccessDenied
from penstock.kafka.context import RequestContext

NOT_ASKED = -(2**31)  # the bit field of a response whose request did not ask for one

# Kafka's numbers for operations: the bit each has in the field.
_BITS = {
    "Read": 3,
    "Write": 4,
    "Create": 5,
    "Delete": 6,
    "Alter": 7,
    "Describe": 8,
    "ClusterAction": 9,
    "DescribeConfigs": 10,
    "AlterConfigs": 11,
    "IdempotentWrite": 12,
}
_OF_TOPIC = (
    "Read",
    "Write",
    "Create",
    "Delete",
    "Alter",
    "Describe",
    "DescribeConfigs",
    "AlterConfigs",
)
_OF_CLUSTER = (
    "Create",
    "Alter",
    "Describe",
    "ClusterAction",
    "DescribeConfigs",
    "AlterConfigs",
    "IdempotentWrite",
)
CLUSTER = "kafka-cluster"  # the one resource of type Cluster


def topic_operations(ctx: RequestContext, name: str) -> int:
    """The operations the caller may do on a topic, one bit each."""
    return sum(
        1 << _BITS[operation] for operation in _OF_TOPIC if ctx.allow(operation, "Topic", name)
    )


def cluster_operations(ctx: RequestContext) -> int:
    """The operations the caller may do on the cluster, one bit each."""
    return sum(
        1 << _BITS[operation]
        for operation in _OF_CLUSTER
        if ctx.allow(operation, "Cluster", CLUSTER)
    )


def require_topic(ctx: RequestContext, operation: str, name: str) -> None:
    """Raise AccessDenied unless the caller may do `operation` on the topic."""
    if not ctx.allow(operation, "Topic", name):
        raise AccessDenied(f"not allowed to {operation} topic {name}", "topic")


def require_group(ctx: RequestContext, operation: str, name: str) -> None:
    """Raise AccessDenied unless the caller may do `operation` on the group."""
    if not ctx.allow(operation, "Group", name):
        raise AccessDenied(f"not allowed to {operation} group {name}", "group")


def require_cluster(ctx: RequestContext, operation: str) -> None:
    """Raise AccessDenied unless the caller may do `operation` on the cluster."""
    if not ctx.allow(operation, "Cluster", CLUSTER):
        raise AccessDenied(f"not allowed to {operation} the cluster", "cluster")
