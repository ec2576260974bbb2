"""What a handler knows of its caller and of the broker."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.kafka.answer_room import AnswerRoom

if TYPE_CHECKING:
    from penstock.config import BrokerConfig
    from penstock.kafka.fetch_sessions import FetchSessions
    from penstock.kafka.share_sessions import ShareSessions
    from penstock.model.cluster import Cluster
    from penstock.runtime.clock import Clock
    from penstock.services.configs import Configs
    from penstock.services.groups import Groups
    from penstock.services.partitions import Partitions
    from penstock.services.quotas import Quotas
    from penstock.services.share_partitions import SharePartitions
    from penstock.services.topics import Topics
    from penstock.services.transactions import Transactions

ANONYMOUS = "User:ANONYMOUS"


@dataclass(slots=True, kw_only=True)
class BrokerServices:
    """Every verb of the broker, as the handlers see it."""

    config: BrokerConfig
    clock: Clock
    cluster: Cluster
    topics: Topics
    partitions: Partitions
    groups: Groups
    transactions: Transactions
    configs: Configs
    quotas: Quotas
    sessions: FetchSessions
    share_partitions: SharePartitions
    share_sessions: ShareSessions


def _nothing(delay_ms: int) -> None:
    """The release of a request that is not pipelined."""


_PLENTY = AnswerRoom(2**31 - 1)


@dataclass(slots=True, kw_only=True)
class RequestContext:
    """One request: who asks, in which version, and the broker that answers."""

    broker: BrokerServices
    api_key: int
    api_version: int
    client_id: str
    client_host: str
    principal: str = ANONYMOUS
    # Called by a handler when the next request of the connection may begin, after that many
    # milliseconds, although this one has not been answered: Produce calls it after the append,
    # before the sync.
    release: Callable[[int], None] = field(default=_nothing, repr=False)
    # What to do when the connection ends, by what it is about; handlers add to it.
    goodbyes: dict[Hashable, Callable[[], None]] = field(default_factory=dict, repr=False)
    room: AnswerRoom = field(default=_PLENTY, repr=False)  # for the records of an answer
    throttle_ms: int = 0  # how long the connection is muted after this response

    def throttle(self, quota: str, amount: float) -> int:
        """Count `amount` against the caller's quota; returns the delay to tell the client.

        The response leaves at once and the connection is muted for that long (KIP-219).
        """
        delay_ms = self.broker.quotas.record(
            quota, self.principal, self.client_id, amount, self.broker.clock.now_ms()
        )
        self.throttle_ms = max(self.throttle_ms, delay_ms)
        return delay_ms

    def allow(self, operation: str, resource_type: str, name: str) -> bool:
        """Whether the caller may do `operation`; every handler asks where Kafka would.

        Access control lists come with their own issue: today everybody may do everything.
        """
        return True
