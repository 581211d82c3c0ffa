"""Reports to the controller in which log directory each replica of this broker is (KIP-858), and which replicas are faulty.

May touch:  asyncio.    Must not touch: logs, images.
Invariants: the newest report on a replica counts; one request of a kind in flight; what was not answered is sent again, unless
            a newer report replaces it, or the replica is gone.
Read next:  barnabas_quorum/controller/directories.py and replica_faults.py, which decide what follows.

A report is given up only when the controller refuses that one replica. The replica manager compares each image with what it
knows and reports again where they differ, so also after a restart and once metadata.version has risen.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from barnabas_quorum.controller.requests_partitions import PlacedReplica, ReplicaFaultReport, ReplicaPlacement
from barnabas_quorum.records import ReplicaFault
from barnabas_replication.hosting.replica_listener import ReplicaListener
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import Uuid

logger = logging.getLogger(__name__)

RETRY_MS = 250
REPORTS_MAX = 2_000
"""Replicas in one request. More wait, at most one entry for each replica of this broker."""

Report = TypeVar("Report", bound=ReplicaPlacement | ReplicaFaultReport)


class ReportQueue(Generic[Report]):
    """Reports of one kind that are still to be sent. Belongs to the data lane; `run` is its task."""

    def __init__(self, send: Callable[[Sequence[Report]], Awaitable[Sequence[PlacedReplica]]]) -> None:
        """`send` (BrokerRequests) returns one outcome for each; it raises KafkaError when no controller took the
        request."""
        self._send = send
        self._waiting: dict[tuple[Uuid, int], Report] = {}
        self._is_due = asyncio.Event()
        self._under_way: dict[tuple[Uuid, int], Report] = {}
        self._sending: asyncio.Task[None] | None = None

    def add(self, report: Report) -> None:
        """Send it, in place of an older one on the same replica."""
        key = (report.topic_id, report.partition_id)
        self._waiting[key] = report
        self._is_due.set()
        if self._under_way.get(key, report) != report:
            self._give_up()

    def withdraw(self, topic_id: Uuid, partition_id: int) -> None:
        """The replica is gone: drop what is still to be reported on it, for another one may come in its place."""
        key = (topic_id, partition_id)
        if self._waiting.pop(key, None) is not None and key in self._under_way:
            self._is_due.set()
            self._give_up()

    def _give_up(self) -> None:
        """Stop sending what is under way. While no controller answers it may be tried for long: a fault that is over would take
        a replica out of the ISR that has joined it again, though it may be the only one in it."""
        if self._sending is not None:
            self._sending.cancel()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            self._under_way = dict(list(self._waiting.items())[:REPORTS_MAX])
            async with asyncio.TaskGroup() as group:  # a group runs on when its task is cancelled
                self._sending = group.create_task(self._send_under_way())

    async def _send_under_way(self) -> None:
        batch = self._under_way
        if not batch:
            return
        try:
            outcomes = await self._send(list(batch.values()))
        except (KafkaError, OSError, TimeoutError) as error:
            logger.info("%d replicas could not be reported on, trying again: %s", len(batch), error)
            await asyncio.sleep(RETRY_MS / 1000)
            self._is_due.set()
            return
        for outcome in outcomes:
            if outcome.error is not None:
                # deleted or moved away meanwhile: the next image says so
                logger.info("the report on a replica was refused: %s", outcome.error)
        for key in batch:
            del self._waiting[key]
        if self._waiting:
            self._is_due.set()


class ReplicaReports(ReplicaListener):
    """What the replica manager wants the controller to know."""

    def __init__(
        self,
        *,
        placements: ReportQueue[ReplicaPlacement],
        faults: ReportQueue[ReplicaFaultReport],
        on_directory_failed: Callable[[str, OSError], None],
    ) -> None:
        self._placements = placements
        self._faults = faults
        self._on_directory_failed = on_directory_failed

    def on_placed(self, topic_id: Uuid, partition: int, directory_id: Uuid) -> None:
        """See ReplicaListener."""
        self._placements.add(ReplicaPlacement(topic_id=topic_id, partition_id=partition, directory_id=directory_id))

    def on_replica_fault(self, topic_id: Uuid, partition: int, fault: ReplicaFault | None) -> None:
        """See ReplicaListener."""
        self._faults.add(ReplicaFaultReport(topic_id=topic_id, partition_id=partition, fault=fault))

    def on_replica_gone(self, topic_id: Uuid, partition: int) -> None:
        """See ReplicaListener."""
        self._placements.withdraw(topic_id, partition)
        self._faults.withdraw(topic_id, partition)

    def on_directory_failed(self, directory: str, error: OSError) -> None:
        """See ReplicaListener."""
        self._on_directory_failed(directory, error)
