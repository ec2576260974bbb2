"""Administration, for code without an event loop."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.client.arguments import check_text, check_whole
from penstock.client.home import EARLIEST, Home, Start
from penstock.client.views import ClusterInfo, GroupInfo, TopicInfo
from penstock.model.ids import TopicPartition

ConfigValue = str | int | float | bool


def config_text(config: Mapping[str, ConfigValue | None] | None) -> dict[str, str | None]:
    """Settings as the server reads them: names may be written with underscores.

    >>> config_text({"retention_ms": 60_000, "cleanup.policy": "compact"})
    {'retention.ms': '60000', 'cleanup.policy': 'compact'}
    """
    return {name.replace("_", "."): _text(value) for name, value in (config or {}).items()}


def _text(value: ConfigValue | None) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return None if value is None else str(value)


def check_new_topic(name: str, partitions: int | None) -> None:
    check_text(name, "a topic")
    if partitions is not None:
        check_whole(partitions, "the number of partitions", 1)


class Admin:
    """Topics, groups and the server.

    >>> import penstock
    >>> with penstock.open(None) as mq:
    ...     mq.admin.create_topic("orders", partitions=3, config={"retention.ms": 60_000})
    ...     mq.admin.topics(), mq.admin.topic("orders").partition_count
    (['orders'], 3)
    """

    def __init__(self, home: Home) -> None:
        self._home = home

    # --- topics -----------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        *,
        replication_factor: int | None = None,
        config: Mapping[str, ConfigValue] | None = None,
    ) -> None:
        """Create a topic; what is not said is as the server's defaults are.

        >>> mq.admin.create_topic("events", 3, config={"retention_ms": 60_000})
        """
        settings = {key: value for key, value in config_text(config).items() if value is not None}
        check_new_topic(name, partitions)
        self._home.run(self._home.create_topic(name, partitions, replication_factor, settings))

    def delete_topic(self, name: str) -> None:
        """Delete a topic and everything in it.

        >>> mq.admin.delete_topic("orders")
        >>> "orders" in mq.admin.topics()
        False
        """
        self._home.run(self._home.delete_topic(name))

    def add_partitions(self, name: str, total: int) -> None:
        """Give a topic more partitions. Keys of new messages may then go elsewhere than before.

        >>> mq.admin.add_partitions("orders", 4)
        >>> mq.admin.topic("orders").partition_count
        4
        """
        self._home.run(self._home.add_partitions(name, total))

    def alter_topic(self, name: str, config: Mapping[str, ConfigValue | None]) -> None:
        """Change settings of a topic; None takes one back to its default.

        >>> mq.admin.alter_topic("orders", {"max.message.bytes": 5000})
        """
        self._home.run(self._home.alter_topic(name, config_text(config)))

    def topic_config(self, name: str) -> dict[str, str]:
        """Every setting of a topic that is in force.

        >>> mq.admin.topic_config("orders")["cleanup.policy"]
        'delete'
        """
        return self._home.run(self._home.topic_config(name))

    def topics(self) -> list[str]:
        """The names of all topics but the server's own; a queue has one, too.

        >>> mq.admin.create_topic("mails")
        >>> mq.admin.topics()
        ['mails', 'orders', 'work', 'work.dlq']
        """
        return self._home.run(self._home.topic_names())

    def topic(self, name: str) -> TopicInfo:
        """A topic with its partitions: sizes and offsets.

        >>> info = mq.admin.topic("orders")
        >>> info.partition_count, info.message_count
        (1, 3)
        """
        return self._home.run(self._home.topic(name))

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Forget everything before an offset (-1: everything).

        >>> mq.admin.delete_records("orders", 0, before=2)
        >>> [message.text for message in mq.read("orders")]
        ['c']
        """
        self._home.run(self._home.delete_records(TopicPartition(topic, partition), before))

    # --- groups -----------------------------------------------------------------------------------

    def groups(self) -> list[str]:
        """The names of all groups.

        >>> _ = messages.wait_assigned()
        >>> mq.admin.groups()
        ['billing']
        """
        return self._home.run(self._home.group_names())

    def group(self, name: str) -> GroupInfo:
        """A group: its members, committed offsets and lag.

        >>> _ = messages.wait_assigned()
        >>> mq.admin.group("billing").consumer_count
        1
        """
        return self._home.run(self._home.group(name))

    def set_group_offsets(self, name: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Let a group without members go on from elsewhere.

        >>> mq.admin.set_group_offsets("reports", {("orders", 0): 2})
        >>> mq.admin.group("reports").total_lag
        1
        """
        places = {TopicPartition(*place): offset for place, offset in offsets.items()}
        self._home.run(self._home.set_group_offsets(name, places))

    def reset_group(self, name: str, topic: str, to: Start = EARLIEST) -> None:
        """Let a group without members read a topic again from its beginning, end or a moment.

        >>> mq.admin.reset_group("reports", "orders", "latest")
        >>> mq.admin.group("reports").total_lag
        0
        """
        partitions = self.topic(topic).partitions
        places = [TopicPartition(topic, info.partition) for info in partitions]
        offsets = {place: self._home.run(self._home.find(place, to)) for place in places}
        self._home.run(self._home.set_group_offsets(name, offsets))

    def delete_group(self, name: str) -> None:
        """Forget a group without members, and its offsets.

        >>> mq.admin.reset_group("reports", "orders")
        >>> mq.admin.delete_group("reports")
        """
        self._home.run(self._home.delete_group(name))

    # --- the server -------------------------------------------------------------------------------

    def cluster(self) -> ClusterInfo:
        """The server's brokers.

        >>> len(mq.admin.cluster().cluster_id)
        22
        """
        return self._home.run(self._home.cluster())
