"""What of this broker's partitions decides whether and how a producer's batch is appended.

May touch:  hosted partitions, what their logs know of producers.     Must not touch: asyncio, the network, what the logs hold.
Invariants: nothing is changed but counters; an answer holds for this turn of the loop alone.
Read next:  batch_work.py and appends.py, which ask.
"""

from __future__ import annotations

from barnabas_log.config import LogConfig
from barnabas_log.errors import (
    BatchPassesSegment,
    BatchTooLarge,
    NotOneBatch,
    OutOfDescriptors,
    StorageFailed,
)
from barnabas_replication.errors import InternalTopic, NotLeaderOrFollower
from barnabas_replication.hosting.hosted import HostedPartitions
from barnabas_replication.requests import AppendOutcome, Buffer
from barnabas_replication.stats import Stats
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import NO_OFFSET, Epoch, Uuid
from barnabas_wire.records.batch import HEADER, HEADER_BYTES, BatchHeader, CorruptBatch

APPEND_ERRORS_WITHOUT_START = (
    BatchPassesSegment,
    BatchTooLarge,
    CorruptBatch,
    InternalTopic,
    NotLeaderOrFollower,
    NotOneBatch,
    OutOfDescriptors,
    StorageFailed,
)
"""Where Kafka leaves the log start offset of a refused append at -1; other errors carry it."""

PASSING_CODES = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""The refusals whose reason lies with the partition or the broker, and passes. A fault of the batch, such as CORRUPT_MESSAGE, is none:
one client could have the batches of another refused."""


class BatchPartitions:
    """The partitions of one broker, as appends see them."""

    def __init__(self, hosted: HostedPartitions, stats: Stats) -> None:
        self._hosted = hosted
        self._stats = stats

    def config_of(self, topic: str, number: int) -> LogConfig | None:
        """The settings of its log; None when it is not hosted here."""
        partition = self._hosted.partitions.get((topic, number))
        return None if partition is None else partition.log.config

    def standing_of(self, topic: str, number: int, batches: Buffer) -> tuple[Uuid, Epoch, int, bool] | None:
        """What must be the same when a batch that waited is appended: the partition's incarnation, the epoch in which it is led here,
        for a batch of a transaction the last one that its producer ended there, and whether the topic is compacted. None where it
        is not led here."""
        partition = self._hosted.partitions.get((topic, number))
        if partition is None or not partition.is_leader:
            return None
        ended_ms = -1
        if len(batches) >= HEADER_BYTES:
            header = BatchHeader._make(HEADER.unpack_from(batches))
            producer = partition.log.producers.get(header.producer_id) if header.is_transactional else None
            ended_ms = -1 if producer is None else producer.marker_ms
        return partition.topic_id, partition.leader_epoch, ended_ms, partition.log.config.is_compacted

    def has_batch(self, topic: str, number: int, header: BatchHeader) -> bool:
        """Whether an idempotent producer's batch is in the log already."""
        partition = self._hosted.partitions.get((topic, number))
        if partition is None or not partition.is_leader or header.producer_id < 0:
            return False
        try:
            repeated = partition.log.producers.check(
                producer_id=header.producer_id,
                epoch=header.producer_epoch,
                first_sequence=header.base_sequence,
                record_count=header.record_count,
            )
        except KafkaError:
            return False
        return repeated is not None

    def refused(self, topic: str, number: int, error: KafkaError) -> AppendOutcome:
        """Count a refused entry; its outcome, with what its error tells beside the code."""
        self._stats.append_errors += 1
        partition = self._hosted.partitions.get((topic, number))
        hint = self._hosted.leader_hint(topic, number) if isinstance(error, NotLeaderOrFollower) else None
        start = NO_OFFSET
        if partition is not None:
            partition.traffic.append_errors += 1
            if error.code in PASSING_CODES:  # no call for any other: one request may bring thousands
                partition.expect_again(error, self._hosted.now_ms())
            if not isinstance(error, APPEND_ERRORS_WITHOUT_START):
                start = partition.log.log_start_offset
        return AppendOutcome(topic, number, error, log_start_offset=start, current_leader=hint)
