"""Tells the controller in which log directory each replica of this broker is (KIP-858).

May touch:  asyncio.    Must not touch: logs, images.
Invariants: the newest word on a replica counts; one request in flight; what was not answered is sent again.
Read next:  barnabas_quorum/controller/directories.py, which decides what follows.

A broker with one directory has nothing to tell but after its disk was replaced.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from barnabas_quorum.controller.requests_partitions import PlacedReplica, ReplicaPlacement
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import Uuid

logger = logging.getLogger(__name__)

RETRY_MS = 250
PLACEMENTS_MAX = 2_000
"""Replicas told of in one request."""


class Placements:
    """What is still to be told. Lives on the data lane; `run` owns it."""

    def __init__(self, report: Callable[[Sequence[ReplicaPlacement]], Awaitable[Sequence[PlacedReplica]]]) -> None:
        """`report` (OwnRequests) has one outcome each; it raises KafkaError when nobody took the request."""
        self._report = report
        self._waiting: dict[tuple[Uuid, int], Uuid] = {}
        self._is_due = asyncio.Event()

    def note(self, topic_id: Uuid, partition: int, directory_id: Uuid) -> None:
        """The replica is in that directory, and the cluster does not know it."""
        self._waiting[topic_id, partition] = directory_id
        self._is_due.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            batch = dict(list(self._waiting.items())[:PLACEMENTS_MAX])
            if not batch:
                continue
            try:
                outcomes = await self._report(
                    [
                        ReplicaPlacement(topic_id=topic_id, partition_id=partition, directory_id=directory)
                        for (topic_id, partition), directory in batch.items()
                    ]
                )
            except (KafkaError, OSError, TimeoutError) as error:
                logger.info("the controller was not told where %d replicas are, trying again: %s", len(batch), error)
                await asyncio.sleep(RETRY_MS / 1000)
                self._is_due.set()
                continue
            for outcome in outcomes:
                if outcome.error is not None:
                    # deleted or moved away meanwhile: the image tells, and with it what is to be told next
                    logger.info("a placement was refused: %s", outcome.error)
            for key, directory in batch.items():
                if self._waiting.get(key) == directory:
                    del self._waiting[key]
            if self._waiting:
                self._is_due.set()
