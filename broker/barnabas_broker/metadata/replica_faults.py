"""Reports to the controller which replicas of this broker are faulty, and which are whole again.

May touch:  asyncio.    Must not touch: logs, images.
Invariants: the newest word on a replica counts; one request in flight; what was not answered is sent again.
Read next:  barnabas_quorum/controller/replica_faults.py, which decides what follows; placements.py, of the same shape.

A report is given up only when the controller refuses that one replica: the replica manager compares each image with what it knows
and reports anew where they differ, so also after a restart and once metadata.version has risen.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from barnabas_quorum.controller.requests_partitions import PlacedReplica, ReplicaFaultReport
from barnabas_quorum.records import ReplicaFault
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import Uuid

logger = logging.getLogger(__name__)

RETRY_MS = 250
REPORTS_MAX = 2_000
"""Replicas in one request. More wait, at most one entry for each replica of this broker."""


class ReplicaFaultReports:
    """What is still to be reported. Lives on the data lane; `run` owns it."""

    def __init__(self, report: Callable[[Sequence[ReplicaFaultReport]], Awaitable[Sequence[PlacedReplica]]]) -> None:
        """`report` (OwnRequests) has one outcome each; it raises KafkaError when nobody took the request."""
        self._report = report
        self._waiting: dict[tuple[Uuid, int], ReplicaFault | None] = {}
        self._is_due = asyncio.Event()

    def note(self, topic_id: Uuid, partition: int, fault: ReplicaFault | None) -> None:
        """The replica has this fault, None = none, and the cluster does not know it."""
        self._waiting[topic_id, partition] = fault
        self._is_due.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            batch = dict(list(self._waiting.items())[:REPORTS_MAX])
            if not batch:
                continue
            try:
                outcomes = await self._report(
                    [
                        ReplicaFaultReport(topic_id=topic_id, partition_id=partition, fault=fault)
                        for (topic_id, partition), fault in batch.items()
                    ]
                )
            except (KafkaError, OSError, TimeoutError) as error:
                logger.info("the state of %d replicas was not reported, trying again: %s", len(batch), error)
                await asyncio.sleep(RETRY_MS / 1000)
                self._is_due.set()
                continue
            for outcome in outcomes:
                if outcome.error is not None:
                    # deleted or moved away meanwhile: the next image says so
                    logger.info("the report on a replica was refused: %s", outcome.error)
            for key, fault in batch.items():
                if key in self._waiting and self._waiting[key] is fault:
                    del self._waiting[key]
            if self._waiting:
                self._is_due.set()
