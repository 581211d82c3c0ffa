"""What is wrong with the replicas of this broker: records lost, corrupt, without room, or under suspicion.

May touch:  hosted partitions, the pools of fetchers and appends, the log manager.     Must not touch: sockets, the disk, asyncio.
Invariants: the cluster learns of a fault only where its metadata.version knows faults; a full directory stays a fault of its
            replicas until it has room; a replica that has lost records leads nothing until it is refilled, or until the cluster,
            which knew of it, has made it leader all the same (an operator's unclean election).
Read next:  repair.py, which makes corrupt replicas whole; barnabas_log/directories/disk_space.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from barnabas_log.directories.manager import LogManager
from barnabas_quorum.image.partition import PartitionRegistration
from barnabas_quorum.records import ReplicaFault
from barnabas_replication.follower.fetcher_pool import FetcherPool
from barnabas_replication.hosting.hosted import HostedPartitions
from barnabas_replication.hosting.replica_listener import ReplicaListener
from barnabas_replication.leader.appends import Appends
from barnabas_replication.partition import Partition
from barnabas_wire.kafka.ids import NO_OFFSET, Offset, TopicPartition, Uuid

logger = logging.getLogger(__name__)

SUSPECT_EVERY_MS = 60_000
"""How often a log is checked because a follower does not take what it is sent."""
_NEVER_MS = 1 << 62


class ReplicaFaults:
    """The faults of one broker's replicas. Lives on the data loop; all methods are synchronous."""

    def __init__(
        self,
        hosted: HostedPartitions,
        *,
        logs: LogManager,
        appends: Appends,
        fetchers: FetcherPool,
        listener: ReplicaListener,
        now_ms: Callable[[], int],
    ) -> None:
        """now_ms: monotonic."""
        self._hosted = hosted
        self._logs = logs
        self._appends = appends
        self._fetchers = fetchers
        self._listener = listener
        self._now_ms = now_ms
        self._full_directories: set[str] = set(logs.health.full_directories)
        self._suspected_ms: dict[Partition, int] = {}

    def adopt(self, partition: Partition, registration: PartitionRegistration) -> bool:
        """Take in a partition that is hosted from now on; returns whether something of it is damaged, or taken for it, or was when its
        producers were read."""
        log = partition.log
        if partition.log_directory in self._full_directories:
            partition.set_has_space(False)
        # This process does not know yet what was found before its start; an empty log has nothing to be damaged.
        is_known_corrupt = registration.fault_of(self._hosted.broker_id) is ReplicaFault.CORRUPT
        partition.is_corrupt = is_known_corrupt and log.log_end_offset > log.log_start_offset
        lost = self._logs.lost_replica(partition.topic_partition, partition.topic_id)
        if lost is not None:
            partition.is_lost = True
            logger.error(
                "%s: this replica has lost records and leads nothing until it is refilled: %s",
                partition.topic_partition,
                lost.why,
            )
        return partition.is_lost or partition.is_corrupt or bool(log.damage) or log.doubted_from != NO_OFFSET

    def take_in(self, partition: Partition, registration: PartitionRegistration) -> bool:
        """What an image that knows this process says of our replica; returns whether it lacks records, which is news.

        The controller finds an old copy of a directory by itself, when the broker registers.
        """
        if registration.fault_of(self._hosted.broker_id) is ReplicaFault.LOST:
            is_news = not partition.is_lost and not partition.is_refilled
            partition.is_known_lost = True
            partition.is_lost |= is_news
            return is_news
        if partition.is_lost and partition.is_known_lost:
            logger.warning("%s: the loss of records of this replica is accepted", partition.topic_partition)
            self._accept(partition)
        return False

    def may_lead(self, partition: Partition) -> bool:
        """Whether the replica may lead as the image says. Before metadata.version 7 no operator can accept a loss: it
        leads, and says so."""
        if partition.is_lost and not self._hosted.image.features.has_proof:
            logger.error(
                "%s: this replica has lost records and leads all the same: before metadata.version 7 nobody could be asked",
                partition.topic_partition,
            )
            self._accept(partition)
        return not partition.is_lost

    def _accept(self, partition: Partition) -> None:
        partition.is_lost = partition.is_known_lost = False
        self._logs.forget_lost(partition.topic_partition)
        self._report_of(partition)  # in place of what may still wait to be reported

    def forget(self, partition: Partition) -> None:
        """The partition is hosted no more."""
        self._suspected_ms.pop(partition, None)

    def set_fault(self, topic_partition: TopicPartition, fault: ReplicaFault | None) -> None:
        """What is wrong with the replica hosted here, None = it is whole again; nothing happens if it is not hosted.

        CORRUPT: reads of what is sound continue, and others lead where they can. NO_ROOM: appends are refused and a
        follower fetches no more, reads continue.
        """
        partition = self._hosted.partitions.get(topic_partition)
        if partition is not None:
            is_full = fault is ReplicaFault.NO_ROOM or partition.log_directory in self._full_directories
            self._set_fault(
                partition,
                is_corrupt=fault is ReplicaFault.CORRUPT or (partition.is_corrupt and fault is not None),
                is_lost=partition.is_lost and fault is not None,
                has_space=not is_full,
            )

    def note_space(self, directory: str, has_space: bool) -> None:
        """Whether logs in that log directory may grow: for logs to be opened; `spread_space` for those that are."""
        if has_space:
            self._full_directories.discard(directory)
        else:
            self._full_directories.add(directory)

    def spread_space(self, directory: str, has_space: bool) -> None:
        """Whether the partitions in that log directory may grow."""
        for partition in tuple(self._hosted.partitions.values()):
            if partition.log_directory == directory:
                self._set_fault(
                    partition, is_corrupt=partition.is_corrupt, is_lost=partition.is_lost, has_space=has_space
                )

    def _set_fault(self, partition: Partition, *, is_corrupt: bool, is_lost: bool, has_space: bool) -> None:
        before, had_space = partition.fault, partition.has_space
        partition.is_corrupt = is_corrupt
        if partition.is_lost and not is_lost:
            partition.is_lost = False
            self._logs.forget_lost(partition.topic_partition)  # before the cluster hears of it
        if has_space != had_space:
            partition.set_has_space(has_space)
            if not partition.is_leader:
                self._fetchers.stop(partition)
                self._fetchers.begin(partition)
            elif has_space:
                # What waits to be written since the disk was full; produces may still wait for it.
                self._appends.note_dirty(partition)
        if partition.fault is not before:
            level = logging.INFO if partition.fault is None else logging.WARNING
            logger.log(level, "%s: this replica is %s", partition.topic_partition, _in_words(partition.fault))
            self._report_of(partition)

    # ------------------------------------------------------------------ what the cluster should know

    def report(self, topic_id: Uuid, number: int, fault: ReplicaFault | None) -> None:
        """Report a replica's fault, or that it has none, where the cluster's metadata.version knows faults."""
        if self._hosted.image.features.has_replica_faults:
            self._listener.on_replica_fault(topic_id, number, self._as_known(fault))

    def _as_known(self, fault: ReplicaFault | None) -> ReplicaFault | None:
        """Lost records as former versions name what comes nearest."""
        if fault is ReplicaFault.LOST and not self._hosted.image.features.has_proof:
            return ReplicaFault.CORRUPT
        return fault

    def report_unknown(self, partition: Partition, registration: PartitionRegistration) -> None:
        """Report what is wrong with the replica, if the cluster believes otherwise."""
        known = registration.fault_of(self._hosted.broker_id)
        if known is ReplicaFault.LOST and not partition.is_lost and not partition.is_refilled:
            return  # of an image from before this process: what it says is taken in when one knows us
        if known is not self._as_known(partition.fault):
            self._report_of(partition)

    def report_all(self) -> None:
        """Report every fault: the cluster could not know of any before."""
        for partition in self._hosted.partitions.values():
            if partition.fault is not None:
                self._report_of(partition)

    def _report_of(self, partition: Partition) -> None:
        self.report(partition.topic_id, partition.topic_partition.partition, partition.fault)

    # ------------------------------------------------------------------ suspicion

    def suspect(self, partition: Partition, offset: Offset) -> None:
        """A follower does not take what the log holds at `offset`: have it checked, at most every SUSPECT_EVERY_MS."""
        now_ms = self._now_ms()
        if now_ms >= self._suspected_ms.get(partition, -_NEVER_MS) + SUSPECT_EVERY_MS:
            self._suspected_ms[partition] = now_ms
            base_offset = max(base for base in partition.log.base_offsets if base <= offset)
            logger.warning(
                "%s: a follower asks for offset %d again and again though it was sent: checking our own copy",
                partition.topic_partition,
                offset,
            )
            self._logs.repairs.request_check(partition.log, base_offset)


def _in_words(fault: ReplicaFault | None) -> str:
    if fault is None:
        return "whole again and may take records"
    if fault is ReplicaFault.LOST:
        return "without records that it had"
    if fault is ReplicaFault.CORRUPT:
        return "corrupt: records below the high watermark are damaged, or it lacks deletions that its leader has compacted away"
    return "without room: its log directory is full"
