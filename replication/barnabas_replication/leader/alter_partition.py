"""ISR proposals on their way to the controller: one batch in flight, tried again until each is settled.

May touch:  the controller's interface, loop timers.      Must not touch: what an ISR should be.
Invariants: at most one proposal per partition; a proposal whose partition has moved on (newer partition epoch) is dropped,
            and its late answer ignored, by identity of the item.
Read next:  isr.py for what is proposed, partition.on_isr_outcome for what an answer does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from barnabas_replication.controller import AlterPartitionChannel, AlterPartitionItem, AlterPartitionOutcome
from barnabas_replication.leader import isr_changes
from barnabas_replication.partition import Partition
from barnabas_wire.kafka.errors import KafkaError

logger = logging.getLogger(__name__)

RETRY_MS = 50
"""Pause before what failed is sent again, as in Kafka."""
ITEMS_MAX = 1_000
"""Proposals per request; the rest waits for the next."""


class IsrProposals:
    """Sends the proposals of all partitions of a broker."""

    def __init__(self, channel: AlterPartitionChannel, *, now_ms: Callable[[], int]) -> None:
        self._channel = channel
        self._now_ms = now_ms
        self._waiting: dict[Partition, AlterPartitionItem] = {}
        self._is_due = asyncio.Event()

    def propose(self, partition: Partition, item: AlterPartitionItem) -> None:
        """Send soon; replaces an unsent proposal of the same partition."""
        self._waiting[partition] = item
        self._is_due.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            batch = self._take_batch()
            if not batch:
                continue
            if await self._send(batch):
                await asyncio.sleep(RETRY_MS / 1000)
            if self._waiting:
                self._is_due.set()

    def _take_batch(self) -> list[tuple[Partition, AlterPartitionItem]]:
        batch = []
        for partition in tuple(self._waiting)[:ITEMS_MAX]:
            item = self._waiting.pop(partition)
            if partition.proposal is item:
                batch.append((partition, item))
        return batch

    async def _send(self, batch: list[tuple[Partition, AlterPartitionItem]]) -> bool:
        """Returns whether something has to be sent again."""
        try:
            outcomes = await self._channel.alter_partition([item for _, item in batch])
        except (KafkaError, OSError, TimeoutError) as error:
            logger.info("ISR proposals were not answered, trying again: %s", error)
            for partition, item in batch:
                self._retry(partition, item)
            return True
        answers: dict[tuple[bytes, int], AlterPartitionOutcome] = {
            (outcome.topic_id, outcome.partition): outcome for outcome in outcomes
        }
        has_retry = False
        for partition, item in batch:
            outcome = answers.get((item.topic_id, item.partition))
            if outcome is None or isr_changes.on_isr_outcome(partition, item, outcome, now_ms=self._now_ms()):
                self._retry(partition, item)
                has_retry = True
        return has_retry

    def _retry(self, partition: Partition, item: AlterPartitionItem) -> None:
        if partition.proposal is item:
            self._waiting.setdefault(partition, item)
