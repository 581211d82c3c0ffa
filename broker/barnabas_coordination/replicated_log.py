"""A coordinator's topic as replication holds it: the real CoordinatorLog.

May touch:  the replica manager, a disk's executor.   Must not touch: shards, network.
Invariants: what is read is what this broker leads; bytes are read off the loop, and their file is held while they are.
Read next:  runtime.py (the interface), barnabas_replication/manager.py.
"""

from __future__ import annotations

import asyncio

from barnabas_coordination.runtime import LogEnds
from barnabas_log.disk import Disk
from barnabas_log.errors import StorageFailed
from barnabas_replication.manager import ReplicaManager
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import Epoch, Offset, TopicPartition

DELETION_TIMEOUT_MS = 30_000
"""How long a deletion waits for the followers; they delete, too, when they fetch next."""
APPEND_TIMEOUT_MS = 300_000
"""After this a batch that is still not committed counts as lost and its partition is read again. A request that waits
for an answer is sent away far earlier (offsets.commit.timeout.ms); an in-sync replica that hangs is out after
replica.lag.time.max.ms."""


class ReplicatedLog:
    """The partitions of one internal topic. Meets CoordinatorLog."""

    def __init__(self, topic: str, *, replicas: ReplicaManager, disk: Disk) -> None:
        self._topic = topic
        self._replicas = replicas
        self._disk = disk

    def ends(self, partition: int) -> LogEnds:
        """Start, high watermark and end. Raises NOT_LEADER_OR_FOLLOWER."""
        led = self._replicas.hosted.leader_partition(TopicPartition(self._topic, partition))
        return LogEnds(led.log.log_start_offset, led.high_watermark, led.log.log_end_offset)

    async def read(self, partition: int, offset: Offset, *, end: Offset, bytes_max: int) -> bytes:
        """Whole batches from the one that holds `offset`. Raises NOT_LEADER_OR_FOLLOWER, OFFSET_OUT_OF_RANGE, StorageFailed."""
        led = self._replicas.hosted.leader_partition(TopicPartition(self._topic, partition))
        found = led.log.read(offset, bytes_max=bytes_max, end=end, at_least_one_batch=True)
        try:
            return b"".join([await self._disk.run(part.file.read, part.position, part.size) for part in found.parts])
        except OSError as error:
            led.log.tail.listener.on_storage_failed(led.log, error)
            raise StorageFailed(f"{led.log.directory}: {error}") from error
        finally:
            for part in found.parts:
                part.file.release()

    def append(self, partition: int, batch: bytes, *, leader_epoch: Epoch) -> asyncio.Future[Offset]:
        """Append with acks=all. See Appends.append_internal."""
        return self._replicas.appends.append_internal(
            TopicPartition(self._topic, partition), batch, leader_epoch=leader_epoch, timeout_ms=APPEND_TIMEOUT_MS
        )

    async def delete_before(self, partition: int, offset: Offset) -> None:
        """Delete the records before a committed offset, on every replica. Raises KafkaError; see delete_records."""
        asked = [(TopicPartition(self._topic, partition), offset)]
        (outcome,) = await self._replicas.delete_records(asked, timeout_ms=DELETION_TIMEOUT_MS)
        if isinstance(outcome, KafkaError):
            raise outcome
