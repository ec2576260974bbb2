"""Writes the markers of a transaction whose end is decided, until every partition has its own.

A partition whose topic is gone, or that has seen a newer epoch of the producer or of the
coordinator, has nothing left to end. Anything else (a full disk) is tried again for as long as the
broker runs: the decision is durable, so there is no other way out.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from penstock.errors import (
    BrokerError,
    InvalidProducerEpoch,
    TransactionCoordinatorFenced,
    UnknownTopicOrPartition,
)
from penstock.machines.transaction_commands import WriteMarkers
from penstock.model.ids import TopicPartition

log = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 5.0


class MarkerPort(Protocol):
    """What ends a transaction in one partition; `Partitions` does."""

    async def write_marker(
        self,
        topic: str,
        partition: int,
        *,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
    ) -> None:
        """Returns when the marker is durable."""


class TransactionMarkers:
    """Performs `WriteMarkers`."""

    def __init__(self, partitions: MarkerPort, coordinator_epoch: int) -> None:
        self._partitions = partitions
        self._coordinator_epoch = coordinator_epoch

    async def write(self, markers: WriteMarkers) -> None:
        """Returns when every partition that still exists has the marker, durably."""
        partitions = markers.partitions
        if len(partitions) == 1:
            await self._write_one(markers, partitions[0])
        elif partitions:  # at once, so that they share a sync
            await asyncio.gather(*(self._write_one(markers, one) for one in partitions))

    async def _write_one(self, markers: WriteMarkers, place: TopicPartition) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                await self._partitions.write_marker(
                    place.topic,
                    place.partition,
                    producer_id=markers.producer_id,
                    producer_epoch=markers.producer_epoch,
                    commit=markers.commit,
                    coordinator_epoch=self._coordinator_epoch,
                )
                return
            except UnknownTopicOrPartition:
                return  # deleted, and its transaction with it
            except (InvalidProducerEpoch, TransactionCoordinatorFenced) as moved_on:
                log.warning("no marker for %s: %s", place, moved_on)
                return
            except BrokerError as failure:
                log.warning("marker for %s in %.1f s again: %s", place, pause, failure)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
