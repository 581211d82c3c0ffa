"""The test constructors of replication: a partition on a temporary directory, and three brokers in one loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from barnabas_log.cleaner.process import Transform
from barnabas_log.config import FlushOnAcks, LogConfig, LogManagerConfig
from barnabas_log.directories.manager import LogManager
from barnabas_log.disk import Disk, RealDisk
from barnabas_log.recovery.opening import open_partition_log
from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_quorum.image.partition import PartitionRegistration
from barnabas_quorum.records import (
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    ReplicaFault,
    TopicRecord,
)
from barnabas_replication.config import ReplicationConfig
from barnabas_replication.controller import AlterPartitionItem, AlterPartitionOutcome
from barnabas_replication.follower.peer import FetchAnswer, FetchedPartition
from barnabas_replication.hosting import hosting, roles
from barnabas_replication.hosting.replica_listener import ReplicaListener
from barnabas_replication.leader import isr_changes, reads
from barnabas_replication.manager import ReplicaManager
from barnabas_replication.partition import Partition
from barnabas_replication.requests import (
    NO_SESSION_EPOCH,
    AppendEntry,
    AppendOutcome,
    FetchOutcome,
    FetchPartitionSpec,
    FetchSpec,
)
from barnabas_replication.stats import Stats, TopicTraffic
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import ZERO_UUID, BrokerId, Endpoint, Epoch, Offset, TopicPartition, Uuid
from barnabas_wire.records import batch as batches

TOPIC_ID = Uuid(b"topic-id-0123456")
TP = TopicPartition("orders", 0)
PAGE_CACHE = LogConfig(flush_on_acks=FlushOnAcks.PAGE_CACHE)
FSYNC = LogConfig(flush_on_acks=FlushOnAcks.FSYNC)


def batch(count: int = 1, value: bytes = b"v", base_offset: int = 0, leader_epoch: int = -1) -> bytes:
    """A producer's batch of `count` records."""
    records = [batches.Record(base_offset + number, 1000 + number, b"k%d" % number, value) for number in range(count)]
    return batches.build_batch(records, leader_epoch=Epoch(leader_epoch))


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
    """Stands for the cluster, for what was heard of it, and for events: it remembers what was noted. Broker epochs: 10 + broker id,
    all active."""

    def __init__(self, broker_id: int = 1) -> None:
        self.broker_id = BrokerId(broker_id)
        self.time_ms = 0
        self.epochs: dict[int, int] = {number: 10 + number for number in (1, 2, 3)}
        self.proposed: list[AlterPartitionItem] = []
        self.suspected: list[int] = []
        self.advanced = 0
        self.given_up: list[Partition] = []
        self.lacking: list[Partition] = []
        self.heard: dict[int, int] = {}
        """By follower; always just now where nothing is said."""

    def now_ms(self) -> int:
        return self.time_ms

    def broker_epoch(self) -> int:
        return self.epochs[self.broker_id]

    def active_broker_epoch(self, broker_id: BrokerId) -> int | None:
        return self.epochs.get(broker_id)

    def racks(self, brokers: Iterable[BrokerId]) -> dict[BrokerId, str | None]:
        return dict.fromkeys(brokers)

    def until_ms(self, broker_id: BrokerId) -> int:
        return self.heard.get(broker_id, self.time_ms)

    def propose_isr(self, partition: Partition, item: AlterPartitionItem) -> None:
        self.proposed.append(item)

    def suspect(self, partition: Partition, offset: Offset) -> None:
        self.suspected.append(offset)

    def on_lacking(self, partition: Partition) -> None:
        self.lacking.append(partition)

    def raise_log_start(self, partition: Partition, offset: Offset) -> None:
        partition.log.delete_records_before(offset)

    def on_high_watermark_advance(self, partition: Partition) -> None:
        self.advanced += 1

    def on_failed(self, partition: Partition) -> None:
        self.given_up.append(partition)


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
        self.log = open_partition_log(
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
            cluster=self.host,  # type: ignore[arg-type]
            contacts=self.host,  # type: ignore[arg-type]
            events=self.host,  # type: ignore[arg-type]
            config=self.config,
            stats=self.stats,
            traffic=TopicTraffic(),
        )

    def close(self) -> None:
        """Let go of files and threads."""
        self.log.close()
        self.disk.close()

    def lead(self, *, isr: tuple[int, ...] = (1, 2, 3), leader_epoch: int = 1, partition_epoch: int = 1) -> None:
        """Become leader, as the image would say."""
        roles.lead(
            self.partition,
            registration(
                leader=self.host.broker_id, isr=isr, leader_epoch=leader_epoch, partition_epoch=partition_epoch
            ),
            now_ms=self.host.time_ms,
        )

    def follow(
        self, leader: int = 2, *, isr: tuple[int, ...] = (1, 2, 3), leader_epoch: int = 1, partition_epoch: int = 1
    ) -> bool:
        """Become follower, as the image would say."""
        return roles.follow(
            self.partition,
            registration(leader=leader, isr=isr, leader_epoch=leader_epoch, partition_epoch=partition_epoch),
        )

    def append(self, count: int = 1, *, is_all_acks: bool = True) -> None:
        """Append, write, and in fsync mode not yet flush."""
        self.partition.append_as_leader(batch(count), is_all_acks=is_all_acks, clock_ms=1)
        self.log.tail.write_pending()
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
        flushed: int = -1,
        start: int = 0,
        bytes_left: int | None = None,
    ) -> FetchOutcome:
        """One fetch of a follower (or a consumer: replica -1); start: of its log; bytes_left: what others left of the answer."""
        request = FetchSpec(
            replica_id=BrokerId(replica),
            replica_epoch=self.host.epochs.get(replica, -1) if broker_epoch is None else broker_epoch,
        )
        spec = FetchPartitionSpec(
            TP.topic,
            TOPIC_ID,
            TP.partition,
            Epoch(leader_epoch),
            Offset(offset),
            Epoch(last_epoch),
            Offset(start),
            flushed_offset=Offset(flushed),
        )
        outcome = reads.fetch_from(
            self.partition,
            spec,
            request,
            bytes_max=1 << 20 if bytes_left is None else bytes_left,
            is_one_batch_due=bytes_left is None,
            is_first_look=True,
            now_ms=self.host.time_ms,
        )
        for part in outcome.parts:
            part.file.release()
        return outcome

    def read(self, *, rack: str = "") -> FetchOutcome:
        """One fetch from offset 0 of a consumer in that rack."""
        spec = FetchPartitionSpec(TP.topic, TOPIC_ID, TP.partition)
        outcome = reads.fetch_from(
            self.partition,
            spec,
            FetchSpec(rack=rack, may_read_follower=True),
            bytes_max=1 << 20,
            is_one_batch_due=True,
            is_first_look=True,
            now_ms=self.host.time_ms,
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
        return isr_changes.on_isr_outcome(self.partition, item, outcome, now_ms=self.host.time_ms)

    @property
    def hw(self) -> int:
        """High watermark."""
        return self.partition.high_watermark


# ---------------------------------------------------------------------- three brokers in one loop


def place_now(manager: ReplicaManager) -> None:
    """Delete and open logs within this turn: a broker's own task does it in the next ones, with the disk's threads."""
    disk = manager._logs._disk

    async def run(function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk, "run", run)
        patch.setattr(hosting, "_uncut", lambda work: work)
        work = manager._hosting._work_off()
        with contextlib.suppress(StopIteration):
            while True:
                work.send(None)


class MemoryController:
    """The active controller as far as replication sees it: it owns the image, judges ISR proposals, tells every broker."""

    def __init__(self) -> None:
        self.image = MetadataImage.EMPTY
        self.offset = 0
        self.brokers: dict[int, MemoryBroker] = {}
        self.proposals: list[AlterPartitionItem] = []
        self.is_reachable = True
        self.reports = True
        """False: commits reach no broker until `tell_all`; they are in `untold`."""
        self.unreported: list[tuple[MetadataDelta, MetadataImage]] = []

    def commit(self, *records: Record) -> None:
        """Commit records as one batch and publish them."""
        delta = MetadataDelta(self.image)
        for record in records:
            self.offset += 1
            delta.replay(record)
        self.image = delta.apply(Offset(self.offset), Epoch(1), 0)
        self.unreported.append((delta, self.image))
        if self.reports:
            self.tell_all()

    def tell_all(self) -> None:
        """Publish what was held back."""
        unreported, self.unreported = self.unreported, []
        for delta, image in unreported:
            for broker in self.brokers.values():
                if broker.manager is not None:
                    broker.manager.apply_delta(delta.topics, image)
                    place_now(broker.manager)

    def register(self, broker_id: int, *, is_fenced: bool = False) -> int:
        """A broker's process starts; returns its epoch."""
        epoch = self.offset + 1
        self.commit(
            RegisterBrokerRecord(
                broker_id=BrokerId(broker_id),
                incarnation_id=Uuid(epoch.to_bytes(16, "big")),
                broker_epoch=epoch,
                endpoints=(Endpoint("PLAINTEXT", "127.0.0.1", 9000 + broker_id),),
                is_fenced=is_fenced,
            )
        )
        return epoch

    def create(
        self,
        name: str,
        *,
        partitions: int = 1,
        leader: int = 1,
        replicas: tuple[int, ...] = (1, 2, 3),
        topic_id: Uuid | None = None,
    ) -> None:
        """A topic whose partitions are all led by `leader`."""
        topic_id = topic_id or topic_id_of(name)
        holders = tuple(map(BrokerId, replicas))
        self.commit(
            TopicRecord(name=name, topic_id=topic_id),
            *(
                PartitionRecord(
                    topic_id=topic_id,
                    partition_id=number,
                    replicas=holders,
                    directories=(ZERO_UUID,) * len(holders),
                    isr=holders,
                    leader=BrokerId(leader),
                    leader_epoch=Epoch(0),
                    partition_epoch=0,
                )
                for number in range(partitions)
            ),
        )

    def change(
        self,
        name: str,
        partition: int = 0,
        *,
        leader: int | None = None,
        isr: tuple[int, ...] | None = None,
        elr: tuple[int, ...] | None = None,
        directories: tuple[Uuid, ...] | None = None,
    ) -> None:
        """A new leader (even the present one gets a new epoch), another ISR, ELR, or other directories."""
        self.commit(
            PartitionChangeRecord(
                topic_id=topic_id_of(name),
                partition_id=partition,
                leader=None if leader is None else BrokerId(leader),
                isr=None if isr is None else tuple(map(BrokerId, isr)),
                elr=None if elr is None else tuple(map(BrokerId, elr)),
                directories=directories,
            )
        )

    def delete(self, name: str) -> None:
        """The topic goes."""
        self.commit(RemoveTopicRecord(topic_id=topic_id_of(name)))

    def registration(self, name: str, partition: int = 0) -> PartitionRegistration:
        """The partition as committed."""
        found = self.image.topics.partition(TopicPartition(name, partition))
        assert found is not None
        return found

    async def alter_partition(self, requests: Sequence[AlterPartitionItem]) -> list[AlterPartitionOutcome]:
        """The checks of Kafka's controller that replication leans on, in its order."""
        await asyncio.sleep(0)
        if not self.is_reachable:
            raise ConnectionError("the controller is gone")
        self.proposals += requests
        return [self._judge(item) for item in requests]

    def _judge(self, item: AlterPartitionItem) -> AlterPartitionOutcome:
        def refuse(code: ErrorCode) -> AlterPartitionOutcome:
            return AlterPartitionOutcome(item.topic_id, item.partition, KafkaError.of(code))

        topic = self.image.topics.get_by_id(item.topic_id)
        if topic is None:
            return refuse(ErrorCode.UNKNOWN_TOPIC_ID)
        mine = topic.partitions[item.partition]
        if item.leader_epoch > mine.leader_epoch or item.partition_epoch > mine.partition_epoch:
            return refuse(ErrorCode.NOT_CONTROLLER)
        if item.leader_epoch < mine.leader_epoch:
            return refuse(ErrorCode.FENCED_LEADER_EPOCH)
        if item.partition_epoch < mine.partition_epoch:
            return refuse(ErrorCode.INVALID_UPDATE_VERSION)
        for member in item.new_isr:
            registered = self.image.cluster.brokers.get(member.broker_id)
            if registered is None or not registered.is_active or member.broker_epoch not in (-1, registered.epoch):
                return refuse(ErrorCode.INELIGIBLE_REPLICA)
        self.commit(self.isr_change(item))
        after = self.registration(item.topic, item.partition)
        return AlterPartitionOutcome(
            item.topic_id, item.partition, None, after.leader, after.leader_epoch, after.isr, after.partition_epoch
        )

    def isr_change(self, item: AlterPartitionItem) -> Record:
        """What an accepted proposal becomes: the ISR alone, without eligible replicas."""
        isr = tuple(member.broker_id for member in item.new_isr)
        return PartitionChangeRecord(topic_id=item.topic_id, partition_id=item.partition, isr=isr)


class MemoryPeer:
    """A leader in the same loop: its manager is called directly, its ranges are read out."""

    def __init__(self, cluster: MiniCluster, *, follower: int, leader: int) -> None:
        self._cluster = cluster
        self._follower = follower
        self._leader = leader

    async def fetch(self, request: FetchSpec, partitions: Sequence[FetchPartitionSpec]) -> FetchAnswer:
        """See Peer.fetch."""
        self._cluster.empty_fetches += not partitions
        await asyncio.sleep(0)
        manager = self._reach()
        self._cluster.fetches.append((self._follower, self._leader, [spec.partition for spec in partitions]))
        answer: asyncio.Future[list[FetchOutcome]] = asyncio.get_running_loop().create_future()

        def respond(outcomes: list[FetchOutcome]) -> None:
            if not answer.done():
                answer.set_result(outcomes)
                return
            for outcome in outcomes:  # given up in this very turn
                for part in outcome.parts:
                    part.file.release()

        if request.session_epoch != NO_SESSION_EPOCH:
            request = manager.fetches.in_session(request)
        cancel = manager.fetches.fetch(request, partitions, respond)
        try:
            outcomes = await answer
        finally:
            cancel()
        fetched = [read_out(outcome) for outcome in outcomes]
        self._reach()
        return FetchAnswer(fetched, request.session_id)

    async def close(self) -> None:
        """See Peer.close."""

    def _reach(self) -> ReplicaManager:
        manager = self._cluster.brokers[self._leader].manager
        if manager is None or frozenset((self._follower, self._leader)) in self._cluster.cut_links:
            raise ConnectionError(f"{self._leader} cannot be reached from {self._follower}")
        return manager


def read_out(outcome: FetchOutcome) -> FetchedPartition:
    """What the wire would carry."""
    records = b"".join(part.file.read(part.position, part.size) for part in outcome.parts)
    for part in outcome.parts:
        part.file.release()
    return FetchedPartition(
        outcome.topic,
        outcome.partition,
        ErrorCode.NONE if outcome.error is None else outcome.error.code,
        outcome.high_watermark,
        outcome.log_start_offset,
        outcome.diverging_epoch,
        records,
        outcome.forgotten_below,
    )


class MemoryBroker:
    """One broker: real disk, real logs, a replica manager; no network and no controller of its own."""

    def __init__(self, cluster: MiniCluster, broker_id: int) -> None:
        self.cluster = cluster
        self.id = broker_id
        self.epoch = -1
        self.path = str(cluster.directory / f"broker{broker_id}")
        self.manager: ReplicaManager | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self, *, first_image: MetadataImage | None = None) -> None:
        """Start the process and register it; leading and following begins with the image as it is then, or with an older."""
        cluster = self.cluster
        self.epoch = -1
        self.disk = cluster.make_disk(self.id)
        self.logs = LogManager(
            disk=self.disk,
            directories=[self.path],
            default_config=cluster.log_config,
            clock_ms=lambda: 1_700_000_000_000,
            config=cluster.manager_config,
            transform=cluster.transform,
        )
        await self.logs.load()
        self.listener = Listener()
        self.manager = ReplicaManager(
            broker_id=BrokerId(self.id),
            broker_epoch=lambda: self.epoch,
            config=cluster.config,
            logs=self.logs,
            log_config=lambda topic, image: cluster.log_config,
            controller=cluster.controller,
            peers=lambda leader, endpoint: cluster.make_peer(self.id, leader),
            clock_ms=lambda: 1_700_000_000_000,
            random=Random(self.id),
            listener=self.listener,
        )
        controller = cluster.controller
        for image in (first_image, controller.image):
            if image is not None:
                whole = MetadataDelta(MetadataImage.EMPTY)
                for record in image.to_records():
                    whole.replay(record)
                self.manager.apply_delta(whole.topics, image)
                place_now(self.manager)
        self.epoch = controller.register(self.id)
        self.manager.apply_delta(None, controller.image)  # as when it is unfenced
        place_now(self.manager)
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        assert self.manager is not None
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.logs.run())
            tasks.create_task(self.manager.run())

    async def kill(self) -> None:
        """The process is gone: nothing is flushed or written any more."""
        assert self._task is not None
        self.manager = None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        for log in self.logs.logs.values():
            log.release_files()
        self.disk.close()

    async def stop(self) -> None:
        """A clean stop."""
        assert self._task is not None and self.manager is not None
        manager, self.manager = self.manager, None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        await manager.close()
        await self.logs.close()
        self.disk.close()

    def partition(self, name: str, number: int = 0) -> Partition:
        """The partition hosted here."""
        assert self.manager is not None
        partition = self.manager.partition(TopicPartition(name, number))
        assert partition is not None
        return partition

    def bytes_of(self, name: str, number: int = 0, *, end: int | None = None) -> bytes:
        """The log from its start to `end` (its end if None)."""
        log = self.partition(name, number).log
        found, offset = b"", log.log_start_offset
        limit = log.log_end_offset if end is None else Offset(end)
        while offset < limit:
            read = log.read(offset, bytes_max=1 << 30, end=limit, at_least_one_batch=True)
            for part in read.parts:
                found += part.file.read(part.position, part.size)
                part.file.release()
            assert read.next_offset > offset
            offset = read.next_offset
        return found

    async def produce(
        self,
        name: str,
        records: bytes,
        *,
        partition: int = 0,
        acks: int = -1,
        timeout_ms: int = 5_000,
    ) -> AppendOutcome:
        """One produce request of one partition, awaited."""
        assert self.manager is not None
        answer: asyncio.Future[list[AppendOutcome]] = asyncio.get_running_loop().create_future()
        self.manager.appends.append_records(
            [AppendEntry(name, partition, memoryview(records))],
            required_acks=acks,
            timeout_ms=timeout_ms,
            respond=answer.set_result,
        )
        return (await answer)[0]

    async def consume(self, name: str, offset: int = 0, *, partition: int = 0, max_wait_ms: int = 0) -> FetchOutcome:
        """One consumer fetch; its ranges are released, its size and offsets are what tests look at."""
        assert self.manager is not None
        answer: asyncio.Future[list[FetchOutcome]] = asyncio.get_running_loop().create_future()
        self.manager.fetches.fetch_one(
            FetchSpec(max_wait_ms=max_wait_ms),
            FetchPartitionSpec(name, ZERO_UUID, partition, fetch_offset=Offset(offset)),
            answer.set_result,
        )
        outcome = (await answer)[0]
        for part in outcome.parts:
            part.file.release()
        return outcome


class Listener(ReplicaListener):
    """Hands on what a replica manager reports, to whom a test names."""

    def __init__(self) -> None:
        self.hear_fault: Callable[[Uuid, int, ReplicaFault | None], object] = lambda topic_id, partition, fault: None
        self.hear_failed: Callable[[str], object] = lambda directory: None

    def on_replica_fault(self, topic_id: Uuid, partition: int, fault: ReplicaFault | None) -> None:
        self.hear_fault(topic_id, partition, fault)

    def on_directory_failed(self, directory: str, error: OSError) -> None:
        self.hear_failed(directory)


class MiniCluster:
    """Brokers 1 to 3 and a controller. Use it with `async with`."""

    def __init__(
        self,
        directory: Path,
        *,
        log_config: LogConfig = FSYNC,
        brokers: int = 3,
        lag_ms: int = 30_000,
        fetch_wait_ms: int = 500,
        silence_ms: int = 5_000,
    ) -> None:
        self.directory = directory
        self.log_config = log_config
        self.config = ReplicationConfig(
            replica_lag_time_ms_max=lag_ms,
            replica_fetch_silence_ms_max=silence_ms,
            replica_fetch_backoff_ms=200,
            replica_fetch_wait_ms_max=fetch_wait_ms,
        )
        self.make_disk: Callable[[int], Disk] = lambda broker_id: RealDisk()
        """Of a broker that starts from then on."""
        self.make_peer: Callable[[int, int], MemoryPeer] = lambda follower, leader: MemoryPeer(
            self, follower=follower, leader=leader
        )
        self.manager_config: LogManagerConfig | None = None
        self.transform: Transform | None = None
        """Of the logs' managers that start from then on; None for the default."""
        self.controller = MemoryController()
        self.cut_links: set[frozenset[int]] = set()
        self.empty_fetches = 0
        self.fetches: list[tuple[int, int, list[int]]] = []
        self.brokers = {number: MemoryBroker(self, number) for number in range(1, brokers + 1)}
        self.controller.brokers = self.brokers
        self._topic = ""

    def with_topic(self, name: str) -> MiniCluster:
        """Itself, which begins with a topic of one partition, as the controller's `create` makes it."""
        self._topic = name
        return self

    async def __aenter__(self) -> MiniCluster:
        for broker in self.brokers.values():
            await broker.start()
        if self._topic:
            self.controller.create(self._topic)
        return self

    async def __aexit__(self, *_: object) -> None:
        for broker in self.brokers.values():
            if broker.manager is not None:
                await broker.stop()

    def __getitem__(self, broker_id: int) -> MemoryBroker:
        return self.brokers[broker_id]


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until it holds; the limit only keeps a broken test from hanging."""
    for _ in range(2_000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came true")


def topic_id_of(name: str) -> Uuid:
    """A topic id that tells the name."""
    return Uuid(name.encode().ljust(16, b"-")[:16])
