"""The test constructors of replication: a partition on a temporary directory with a host made of plain data."""

from __future__ import annotations

from pathlib import Path

from barnabas_log.config import FlushOnAcks, LogConfig
from barnabas_log.disk import RealDisk
from barnabas_log.unified_log import UnifiedLog
from barnabas_quorum.image.topics import PartitionRegistration
from barnabas_replication.config import ReplicationConfig
from barnabas_replication.controller import AlterPartitionItem, AlterPartitionOutcome
from barnabas_replication.partition import Partition
from barnabas_replication.requests import FetchOutcome, FetchPartitionSpec, FetchSpec
from barnabas_replication.stats import Stats
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import ZERO_UUID, BrokerId, Epoch, Offset, TopicPartition, Uuid
from barnabas_wire.records.batch import Record, build_batch

TOPIC_ID = Uuid(b"topic-id-0123456")
TP = TopicPartition("orders", 0)
PAGE_CACHE = LogConfig(flush_on_acks=FlushOnAcks.PAGE_CACHE)
FSYNC = LogConfig(flush_on_acks=FlushOnAcks.FSYNC)


def batch(count: int = 1, value: bytes = b"v", base_offset: int = 0, leader_epoch: int = -1) -> bytes:
    """A producer's batch of `count` records."""
    records = [Record(base_offset + number, 1000 + number, b"k%d" % number, value) for number in range(count)]
    return build_batch(records, leader_epoch=Epoch(leader_epoch))


def registration(
    *,
    leader: int,
    isr: tuple[int, ...],
    replicas: tuple[int, ...] = (1, 2, 3),
    leader_epoch: int = 1,
    partition_epoch: int = 1,
) -> PartitionRegistration:
    """A partition as the image has it."""
    return PartitionRegistration(
        replicas=tuple(map(BrokerId, replicas)),
        directories=(ZERO_UUID,) * len(replicas),
        isr=tuple(map(BrokerId, isr)),
        leader=BrokerId(leader),
        leader_epoch=Epoch(leader_epoch),
        partition_epoch=partition_epoch,
    )


class PlainHost:
    """A PartitionHost that remembers what it was asked for. Broker epochs: 10 + broker id, all active."""

    def __init__(self, broker_id: int = 1) -> None:
        self.broker_id = BrokerId(broker_id)
        self.time_ms = 0
        self.epochs: dict[int, int] = {number: 10 + number for number in (1, 2, 3)}
        self.proposed: list[AlterPartitionItem] = []
        self.advanced = 0

    def now_ms(self) -> int:
        return self.time_ms

    def broker_epoch(self) -> int:
        return self.epochs[self.broker_id]

    def registered_broker_epoch(self, broker_id: BrokerId) -> int | None:
        return self.epochs.get(broker_id)

    def propose_isr(self, partition: Partition, item: AlterPartitionItem) -> None:
        self.proposed.append(item)

    def on_high_watermark_advance(self, partition: Partition) -> None:
        self.advanced += 1


class PartitionBench:
    """One partition with a real log, and the short forms the tests speak in."""

    def __init__(self, directory: Path, *, config: LogConfig = PAGE_CACHE, broker_id: int = 1) -> None:
        self.host = PlainHost(broker_id)
        self.config = ReplicationConfig(replica_lag_time_ms_max=100)
        self.stats = Stats()
        self.disk = RealDisk()
        self.directory = directory
        self.log_config = config
        self.open()

    def open(self) -> None:
        """Open log and partition (again): what a start of the broker does."""
        self.log = UnifiedLog.open(
            disk=self.disk,
            directory=str(self.directory / str(TP)),
            topic_partition=TP,
            topic_id=TOPIC_ID,
            config=self.log_config,
            now_ms=0,
        )
        self.partition = Partition(
            topic_partition=TP,
            topic_id=TOPIC_ID,
            log=self.log,
            high_watermark=Offset(0),
            host=self.host,
            config=self.config,
            stats=self.stats,
        )

    def close(self) -> None:
        """Let go of files and threads."""
        self.log.close()
        self.disk.close()

    def lead(self, *, isr: tuple[int, ...] = (1, 2, 3), leader_epoch: int = 1, partition_epoch: int = 1) -> None:
        """Become leader, as the image would say."""
        self.partition.make_leader(
            registration(
                leader=self.host.broker_id, isr=isr, leader_epoch=leader_epoch, partition_epoch=partition_epoch
            ),
            now_ms=self.host.time_ms,
        )

    def follow(
        self, leader: int = 2, *, isr: tuple[int, ...] = (1, 2, 3), leader_epoch: int = 1, partition_epoch: int = 1
    ) -> bool:
        """Become follower, as the image would say."""
        return self.partition.make_follower(
            registration(leader=leader, isr=isr, leader_epoch=leader_epoch, partition_epoch=partition_epoch)
        )

    def append(self, count: int = 1, *, is_all_acks: bool = True) -> None:
        """Append, write, and in fsync mode not yet flush."""
        self.partition.append_as_leader(batch(count), is_all_acks=is_all_acks, clock_ms=1)
        self.log.write_pending()
        self.partition.on_durable_end_advance(now_ms=self.host.time_ms)

    def flush(self) -> None:
        """One flush round."""
        for file in self.log.dirty_files():
            file.sync()
        self.log.mark_flushed(self.log.written_end_offset)
        self.partition.on_durable_end_advance(now_ms=self.host.time_ms)

    def fetch(
        self,
        replica: int,
        offset: int,
        *,
        last_epoch: int = -1,
        leader_epoch: int = -1,
        broker_epoch: int | None = None,
    ) -> FetchOutcome:
        """One fetch of a follower (or a consumer: replica -1)."""
        request = FetchSpec(
            replica_id=BrokerId(replica),
            replica_epoch=self.host.epochs.get(replica, -1) if broker_epoch is None else broker_epoch,
        )
        spec = FetchPartitionSpec(
            TP.topic, TOPIC_ID, TP.partition, Epoch(leader_epoch), Offset(offset), Epoch(last_epoch), Offset(0)
        )
        outcome = self.partition.fetch(
            spec, request, bytes_max=1 << 20, is_one_batch_due=True, is_first_look=True, now_ms=self.host.time_ms
        )
        for part in outcome.parts:
            part.file.release()
        return outcome

    def answer(
        self, *, isr: tuple[int, ...] = (), error: ErrorCode | None = None, partition_epoch: int | None = None
    ) -> bool:
        """The controller's word on the last proposal."""
        item = self.host.proposed[-1]
        outcome = AlterPartitionOutcome(
            item.topic_id,
            item.partition,
            None if error is None else KafkaError.of(error),
            self.host.broker_id,
            item.leader_epoch,
            tuple(map(BrokerId, isr)),
            item.partition_epoch + 1 if partition_epoch is None else partition_epoch,
        )
        return self.partition.on_isr_outcome(item, outcome, now_ms=self.host.time_ms)

    @property
    def hw(self) -> int:
        """High watermark."""
        return self.partition.high_watermark
