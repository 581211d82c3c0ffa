"""All partitions of one broker: requests in, answers out, metadata in, replicas in step.

May touch:  partitions, fetchers, the log manager, loop timers.      Must not touch: sockets, the Kafka codec, the wall clock.
Invariants: all state changes on one loop, none across an await.
Read next:  appends.py, fetches.py (requests), followers.py (the follower's side), partition.py.

Not obvious:
- A restarted broker hears of older images first, in which a topic may be the one before the one that its log is of, or its
  replicas others: nothing on disk is given up before an image that knows this very life of the broker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random

from barnabas_log.config import LogConfig
from barnabas_log.errors import (
    NoRoom,
    OutOfDescriptors,
    StorageFailed,
)
from barnabas_log.manager import LogManager, LogManagerListener
from barnabas_log.unified_log import UnifiedLog
from barnabas_quorum.image.directories import directory_of
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.image.partition import PartitionRegistration
from barnabas_quorum.image.topics import TopicsDelta, TopicsImage
from barnabas_quorum.records import ReplicaFault
from barnabas_replication import isr_changes, offset_lookup, roles
from barnabas_replication.alter_partition import IsrProposals
from barnabas_replication.appends import Appends
from barnabas_replication.config import ReplicationConfig
from barnabas_replication.controller import AlterPartitionChannel, AlterPartitionItem
from barnabas_replication.deletion import delete_records
from barnabas_replication.errors import NotLeaderOrFollower
from barnabas_replication.fetches import Fetches
from barnabas_replication.followers import Followers
from barnabas_replication.heard import Heard
from barnabas_replication.hosted import HostedPartitions
from barnabas_replication.log_placement import refusal_of_new_log
from barnabas_replication.partition import Partition
from barnabas_replication.peer import PeerFactory
from barnabas_replication.placement import (
    Change,
    Removal,
    as_of,
    changes_of,
    deleted_of,
    is_present_incarnation,
    plan,
    strays,
    was_made_since,
)
from barnabas_replication.recompression import Recompression
from barnabas_replication.repair import Repairs
from barnabas_replication.requests import (
    AppendEntry,
    Buffer,
    Cancel,
    FetchPartitionSpec,
    FetchPartitionSpecs,
    FetchSpec,
    ListedOffset,
    RespondAppend,
    RespondFetch,
)
from barnabas_replication.stats import Stats, TopicTraffic
from barnabas_replication.throttle import ReplicationThrottle
from barnabas_replication.truncation import EpochEnd
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import (
    NO_EPOCH,
    ZERO_UUID,
    BrokerId,
    Endpoint,
    Epoch,
    Offset,
    TopicPartition,
    Uuid,
)

logger = logging.getLogger(__name__)

TIME_SEARCHES_MAX = 2
"""Searches by time under way: of the disk's four threads some stay free for checkpoints and coordinators."""
OPEN_RETRY_S = 1.0
"""After which logs are opened that found no descriptor."""
SUSPECT_EVERY_MS = 60_000
"""How often a log is checked because a follower does not take what it is sent."""
_NEVER_MS = 1 << 62


class ReplicaListener:
    """What the cluster should know of this broker's replicas goes to a subclass of this. Calls come on the data loop."""

    def on_placed(self, topic_id: Uuid, partition: int, directory_id: Uuid) -> None:
        """The replica is in another directory than the cluster knows (KIP-858)."""

    def on_replica_fault(self, topic_id: Uuid, partition: int, fault: ReplicaFault | None) -> None:
        """The replica became faulty, or whole again, or is not what the cluster knows."""

    def on_directory_failed(self, directory: str, error: OSError) -> None:
        """The partitions of a failed log directory were given up."""


class ReplicaManager(LogManagerListener):
    """The replicas of one broker. Lives on the data loop; `run` owns its tasks, everything else is synchronous."""

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        broker_epoch: Callable[[], int],
        config: ReplicationConfig,
        logs: LogManager,
        log_config: Callable[[str, MetadataImage], LogConfig],
        controller: AlterPartitionChannel,
        peers: PeerFactory,
        clock_ms: Callable[[], int],
        random: Random,
        listener: ReplicaListener | None = None,
    ) -> None:
        """Must be called on the running data loop, after `logs` were loaded. Becomes the listener of `logs`.

        broker_epoch: this broker's epoch as last registered, -1 before. log_config: settings of a topic's logs by name.
        clock_ms: wall clock for append times; everything else goes by the loop's own time. random: for back-off jitter.
        """
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.stats = Stats()
        self.topic_traffic: dict[str, TopicTraffic] = {}
        """By topic, as long as a partition of it is here; in the order in which the topics came."""
        self._config = config
        self._logs = logs
        self._log_config = log_config
        self._loop = asyncio.get_running_loop()
        self._hosted = HostedPartitions(broker_id)
        self._partitions = self._hosted.partitions
        self._proposals = IsrProposals(controller, now_ms=self.now_ms)
        self._starts_to_raise: dict[Partition, Offset] = {}
        self._start_to_raise = asyncio.Event()
        self._postponed: dict[TopicPartition, None] = {}
        self._time_searches = asyncio.Semaphore(TIME_SEARCHES_MAX)
        self._opening: asyncio.TimerHandle | None = None
        """While logs wait for descriptors."""
        self._topics_at_start: TopicsImage | None = None
        """Of the first image that knew this life of the broker."""
        self._has_looked_for_strays = False
        self._led_before: dict[TopicPartition, None] = {}
        """Until then: what an earlier process of this broker led, as far as the images tell."""
        self.listener = listener or ReplicaListener()
        self._full_directories: set[str] = set(logs.full_directories)
        self.throttle = ReplicationThrottle()
        self.recompression = Recompression(self._config_of, self.stats)
        self._heard = Heard(broker_id)
        self._appends = Appends(
            self._hosted,
            heard=self._heard,
            config=config,
            recompression=self.recompression,
            request_flush=logs.request_flush,
            clock_ms=clock_ms,
            stats=self.stats,
        )
        self._fetches = Fetches(
            self._hosted, heard=self._heard, config=config, throttle=self.throttle.as_leader, stats=self.stats
        )
        self._followers = Followers(
            self._hosted,
            broker_epoch=broker_epoch,
            config=config,
            peers=peers,
            request_flush=logs.request_flush,
            random=random,
            stats=self.stats,
            throttle=self.throttle.as_follower,
        )
        self._repairs = Repairs(host=self, logs=logs, peers=peers)
        self._suspected_ms: dict[Partition, int] = {}
        logs.serve(self)

    # ------------------------------------------------------------------ produce and fetch

    def append_records(
        self,
        entries: Sequence[AppendEntry],
        *,
        required_acks: int,
        timeout_ms: int,
        respond: RespondAppend,
    ) -> None:
        """See Appends.append_records."""
        self._appends.append_records(entries, required_acks=required_acks, timeout_ms=timeout_ms, respond=respond)

    def append_internal(
        self, topic_partition: TopicPartition, batch: Buffer, *, leader_epoch: Epoch, timeout_ms: int
    ) -> asyncio.Future[Offset]:
        """See Appends.append_internal."""
        return self._appends.append_internal(topic_partition, batch, leader_epoch=leader_epoch, timeout_ms=timeout_ms)

    def fetch(self, request: FetchSpec, partitions: FetchPartitionSpecs, respond: RespondFetch) -> Cancel:
        """See Fetches.fetch."""
        return self._fetches.fetch(request, partitions, respond)

    def fetch_one(self, request: FetchSpec, spec: FetchPartitionSpec, respond: RespondFetch) -> Cancel:
        """See Fetches.fetch_one."""
        return self._fetches.fetch_one(request, spec, respond)

    def on_high_watermark_advance(self, partition: Partition) -> None:
        """See PartitionHost."""
        self._fetches.on_high_watermark_advance(partition)

    def on_flushed(self, log: UnifiedLog) -> None:
        """A flush round has made the log durable further than before."""
        self._appends.on_flushed()
        partition = self._partitions.get(log.topic_partition)
        if partition is None or partition.log is not log:
            return
        if partition.is_leader:
            partition.on_durable_end_advance(now_ms=self.now_ms())
        else:
            self._followers.on_flushed(partition)

    # ------------------------------------------------------------------ log starts

    async def delete_records(
        self, asked: Sequence[tuple[TopicPartition, Offset]], *, timeout_ms: int
    ) -> list[Offset | KafkaError]:
        """See deletion.py."""
        return await delete_records(
            asked, host=self, raise_log_starts=self._logs.raise_log_starts, timeout_ms=timeout_ms
        )

    def answer_followers(self, partition: Partition) -> None:
        """See DeletionHost."""
        self._fetches.answer_followers(partition)

    def raise_log_start(self, partition: Partition, offset: Offset) -> None:
        """See PartitionHost."""
        self._starts_to_raise[partition] = offset
        self._start_to_raise.set()

    async def _raise_log_starts(self) -> None:
        """Those that are told while a file is written go together into the next."""
        while True:
            await self._start_to_raise.wait()
            self._start_to_raise.clear()
            due, self._starts_to_raise = self._starts_to_raise, {}
            await self._logs.raise_log_starts({partition.log: offset for partition, offset in due.items()})

    # ------------------------------------------------------------------ other requests

    @property
    def log_directories(self) -> tuple[list[str], list[str]]:
        """Paths of the log directories that work, and of those that failed."""
        return self._logs.online_directories, self._logs.offline_directories

    def partition(self, topic_partition: TopicPartition) -> Partition | None:
        """The partition hosted here, or None."""
        return self._partitions.get(topic_partition)

    def partitions(self) -> Iterator[Partition]:
        """All hosted partitions."""
        return iter(self._partitions.values())

    def hosted_partition(self, topic_partition: TopicPartition) -> Partition:
        """The partition if a replica of it is here. Raises UnknownTopicOrPartition, NotLeaderOrFollower, or the error of its disk."""
        partition = self._partitions.get(topic_partition)
        if partition is None:
            raise self._hosted.absent(*topic_partition)
        if partition.storage_error is not None:
            raise partition.storage_error
        return partition

    def leader_partition(self, topic_partition: TopicPartition, current_leader_epoch: Epoch = NO_EPOCH) -> Partition:
        """The partition if this broker leads it in the epoch the caller knows (-1: any).

        Raises UnknownTopicOrPartition, NotLeaderOrFollower, FencedLeaderEpoch or UnknownLeaderEpoch.
        """
        partition = self._partitions.get(topic_partition)
        if partition is None:
            raise self._hosted.absent(*topic_partition)
        partition.check_leader(current_leader_epoch)
        return partition

    def list_offset(
        self, topic_partition: TopicPartition, timestamp_ms: int, *, current_leader_epoch: Epoch = NO_EPOCH
    ) -> ListedOffset:
        """See offset_lookup.list_offset; raises what leader_partition raises, and OffsetNotAvailable (KIP-207)."""
        partition = self.leader_partition(topic_partition, current_leader_epoch)
        return offset_lookup.list_offset(partition, timestamp_ms)

    async def list_offset_by_time(
        self, topic_partition: TopicPartition, timestamp_ms: int, *, current_leader_epoch: Epoch = NO_EPOCH
    ) -> ListedOffset:
        """See offset_lookup.list_offset_by_time; TIME_SEARCHES_MAX at a time, the others wait."""
        async with self._time_searches:
            partition = self.leader_partition(topic_partition, current_leader_epoch)
            return await offset_lookup.list_offset_by_time(
                partition, timestamp_ms, run_blocking=self._logs.run_blocking, current_leader_epoch=current_leader_epoch
            )

    def end_offset_for_epoch(
        self, topic_partition: TopicPartition, epoch: Epoch, *, current_leader_epoch: Epoch = NO_EPOCH
    ) -> EpochEnd:
        """See offset_lookup.end_offset_for_epoch; raises what leader_partition raises."""
        return offset_lookup.end_offset_for_epoch(self.leader_partition(topic_partition, current_leader_epoch), epoch)

    def update_topic_config(self, topic: str, config: LogConfig) -> None:
        """The settings of a topic changed: its logs take them, and HWs follow (min.insync.replicas, flush mode)."""
        now_ms = self.now_ms()
        self.recompression.note(topic, config)
        image = self._hosted.image.topics.get(topic)
        for index in () if image is None else image.partitions:
            partition = self._partitions.get((topic, index))
            if partition is not None:
                partition.log.update_config(config)
                if partition.durable_end_offset < partition.log.log_end_offset:
                    self._logs.request_flush(partition.log)  # written in page-cache mode: nobody else would ask
                partition.refresh(now_ms=now_ms)

    # ------------------------------------------------------------------ metadata

    def apply_delta(self, delta: TopicsDelta | None, image: MetadataImage) -> None:
        """Take in what the cluster agreed on: deletions, then leaders, then followers.

        Call it for every image, also when no topic changed (delta None): broker epochs, fencing and endpoints are read
        from the image.
        """
        before, self._hosted.image = self._hosted.image, image
        if self._topics_at_start is None and self._is_present_life():
            self._topics_at_start = image.topics
        now_ms = self.now_ms()
        if delta is not None:
            for gone in delta.deleted.values():
                self.throttle.set_topic(gone.name, {})
            self._place(changes_of(delta), now_ms, deleted=deleted_of(delta))
        if self._postponed and self._is_present_life():
            self._place_postponed(now_ms)
        if not self._has_looked_for_strays and self._is_present_life():
            self._has_looked_for_strays = True
            self._remove_strays()
            if self._led_before:
                logger.info(
                    "this broker led %d partitions before it was restarted; it leads again what the controller gives it",
                    len(self._led_before),
                )
                self._led_before.clear()
        if image.features.has_replica_faults and not before.features.has_replica_faults:
            for partition in self._partitions.values():
                if partition.fault is not None:
                    self._report_fault(partition)
        self._repairs.wake()
        if image.cluster is not before.cluster:
            self._followers.take_endpoints()
            for partition in self._partitions.values():
                partition.refresh(now_ms=now_ms)

    def _place(self, changes: Iterable[Change], now_ms: int, *, deleted: Iterable[Removal] = ()) -> None:
        """Obey the plan: remove, postpone, lead, follow."""
        wanted = plan(
            changes,
            deleted=deleted,
            broker_id=self.broker_id,
            log_topic_id=self._log_topic_id,
            is_present=self._is_present_life(),
        )
        for removal in wanted.remove:
            self._remove(*removal)
        self._postponed.update(dict.fromkeys(wanted.postpone))
        for change in wanted.lead:
            self._lead(*change, now_ms)
        for change in wanted.follow:
            self._follow(*change)

    def _place_postponed(self, now_ms: int) -> None:
        """The image is new enough now to judge what earlier ones could not."""
        postponed, self._postponed = self._postponed, {}
        self._place(as_of(self._hosted.image.topics, postponed), now_ms)

    def _log_topic_id(self, topic_partition: TopicPartition) -> Uuid | None:
        log = self._logs.get(topic_partition)
        return None if log is None else log.topic_id

    def _open_later(self, topic_partition: TopicPartition, error: OutOfDescriptors) -> None:
        """Its log could not be opened for want of a descriptor: no image would ask for it again."""
        self._postponed[topic_partition] = None
        if self._opening is None:
            logger.warning("%s and perhaps others cannot be opened yet: %s", topic_partition, error)
            self._opening = self._loop.call_later(OPEN_RETRY_S, self._open_postponed)

    def _open_postponed(self) -> None:
        self._opening = None
        if self._is_present_life():
            self._place_postponed(self.now_ms())

    def _remove_strays(self) -> None:
        """No delta tells of topics that were deleted, and partitions that moved away, while this broker was down."""
        for topic_partition in list(self._logs.rivals):
            topic = self._hosted.image.topics.get(topic_partition.topic)
            # no replica is left of those whose turn has not come: one of them is enough to be looked at below
            self._logs.settle(topic_partition, ZERO_UUID if topic is None else topic.id, directory_id=ZERO_UUID)
        to_set_aside = strays(
            {topic_partition: log.topic_id for topic_partition, log in self._logs.logs.items()},
            self._hosted.image.topics,
            broker_id=self.broker_id,
            is_hosted=self._partitions.__contains__,
        )
        for topic_partition in to_set_aside:
            kept_in = self._logs.set_aside(topic_partition)
            if kept_in is not None:
                logger.warning(
                    "the cluster knows no replica of this broker for %s: its log is kept in %s; remove that directory "
                    "when nobody wants its records",
                    topic_partition,
                    kept_in,
                )

    def _is_present_life(self) -> bool:
        return is_present_incarnation(self._hosted.image.cluster, self.broker_id, self.broker_epoch())

    def _knows_own_past(self) -> bool:
        """Whether an image was once that new. From then on each partition remembers its newest epoch by itself."""
        return self._topics_at_start is not None

    def _lead(
        self, topic_partition: TopicPartition, topic_id: Uuid, registration: PartitionRegistration, now_ms: int
    ) -> None:
        partition = self._host(topic_partition, topic_id, registration)
        if partition is None:
            return
        self._tell_directory(partition, registration)
        self._tell_fault(partition, registration)
        self._followers.stop(partition)
        roles.lead(partition, registration, now_ms=now_ms, is_present_incarnation=self._is_present_life())
        if not self._is_present_life():
            self._led_before[topic_partition] = None

    def _follow(self, topic_partition: TopicPartition, topic_id: Uuid, registration: PartitionRegistration) -> None:
        partition = self._host(topic_partition, topic_id, registration)
        if partition is None:
            return
        self._tell_directory(partition, registration)
        self._tell_fault(partition, registration)
        if not self._knows_own_past():
            # It may name a leader from before epochs that our log holds, or that we led: that one would have us cut
            # what was committed since, while the cluster still takes us for one who has it.
            self._postponed[topic_partition] = None
            return
        if roles.follow(partition, registration):
            self._followers.stop(partition)
            self._followers.begin(partition)

    def _host(
        self, topic_partition: TopicPartition, topic_id: Uuid, registration: PartitionRegistration
    ) -> Partition | None:
        """The partition, its log opened or made; None when its directory fails or may hold the log already, or the image may
        be older than the log."""
        partition = self._partitions.get(topic_partition)
        if partition is not None:
            if partition.topic_id == topic_id:
                return partition
            self._remove(topic_partition, partition.topic_id)
        if topic_partition in self._logs.rivals:
            if not self._is_present_life():
                self._postponed[topic_partition] = None
                return None
            self._logs.settle(topic_partition, topic_id, directory_id=directory_of(registration, self.broker_id))
        stale = self._logs.get(topic_partition)
        if stale is not None and stale.topic_id != topic_id:
            if not self._is_present_life():
                self._postponed[topic_partition] = None
                return None
            logger.warning(
                "%s: the log on disk is of the deleted topic %s, removing it", topic_partition, stale.topic_id
            )
            self._logs.delete(topic_partition)
        if self._logs.get(topic_partition) is None and not self._may_make_log(topic_partition, registration):
            return None
        online = len(self._logs.online_directories)
        try:
            log = self._logs.get_or_create(
                topic_partition,
                topic_id,
                self._log_config(topic_partition.topic, self._hosted.image),
                directory_id=directory_of(registration, self.broker_id),
            )
        except OutOfDescriptors as error:
            self._open_later(topic_partition, error)
            return None
        except NoRoom as error:
            logger.info("%s: its log is made when there is room: %s", topic_partition, error)
            self._postponed[topic_partition] = None
            if self._hosted.image.features.has_replica_faults:
                self.listener.on_replica_fault(topic_id, topic_partition.partition, ReplicaFault.NO_ROOM)
            return None
        except (OSError, StorageFailed) as error:
            logger.error("%s: its log cannot be made: %s", topic_partition, error)
            if self._logs.get(topic_partition) is None and 0 < len(self._logs.online_directories) < online:
                # Its directory failed just now, with nothing in it: another may do. Nobody would ask again, and a leader
                # that hosts nothing is led on by no one else.
                return self._host(topic_partition, topic_id, registration)
            return None
        traffic = self.topic_traffic.setdefault(topic_partition.topic, TopicTraffic())
        traffic.hosted += 1
        self.recompression.note(topic_partition.topic, log.config)
        partition = self._partitions[topic_partition] = Partition(
            topic_partition=topic_partition,
            topic_id=topic_id,
            log=log,
            high_watermark=log.high_watermark,
            host=self,
            config=self._config,
            stats=self.stats,
            traffic=traffic,
        )
        if _directory_of(partition) in self._full_directories:
            partition.set_room(False)
        # Nobody here knows yet what was found before a restart; an empty log has nothing to be damaged.
        is_known_corrupt = registration.fault_of(self.broker_id) is ReplicaFault.CORRUPT
        partition.is_corrupt = is_known_corrupt and log.log_end_offset > log.log_start_offset
        if partition.is_corrupt or log.damage:
            self._repairs.note(partition)
        return partition

    def _may_make_log(self, topic_partition: TopicPartition, registration: PartitionRegistration) -> bool:
        """Whether an empty log may be begun here; put off while the image does not know this life of the broker yet."""
        online = self._logs.online_directory_ids
        has_offline = bool(self._logs.offline_directories)
        if ZERO_UUID in online:
            return True  # directories without ids: nobody can have told where a replica is
        refusal = refusal_of_new_log(
            registration,
            self.broker_id,
            online=online,
            has_offline=has_offline,
            is_of_this_life=was_made_since(self._topics_at_start, self._hosted.image.topics, topic_partition),
        )
        is_present = self._is_present_life()
        # What is new in an older image may have been given a log since, in the directory that does not work now.
        if refusal is None and (is_present or not has_offline):
            return True
        if not is_present:
            self._postponed[topic_partition] = None
        else:
            logger.error("%s: no log is made for it: %s", topic_partition, refusal)
        return False

    def _tell_directory(self, partition: Partition, registration: PartitionRegistration) -> None:
        """Where the replica is, if the cluster knows it to be elsewhere or not at all."""
        directory_id = self._logs.directory_id(partition.log)
        known = dict(zip(registration.replicas, registration.directories, strict=False)).get(self.broker_id)
        if directory_id not in (known, ZERO_UUID):
            self.listener.on_placed(partition.topic_id, partition.topic_partition.partition, directory_id)

    def _tell_fault(self, partition: Partition, registration: PartitionRegistration) -> None:
        """What is wrong with the replica, if the cluster believes otherwise."""
        if registration.fault_of(self.broker_id) is not partition.fault:
            self._report_fault(partition)

    def _report_fault(self, partition: Partition) -> None:
        if self._hosted.image.features.has_replica_faults:
            self.listener.on_replica_fault(partition.topic_id, partition.topic_partition.partition, partition.fault)

    def _remove(self, topic_partition: TopicPartition, topic_id: Uuid) -> None:
        """The topic is gone, or we are no replica of it any more: its log goes too."""
        partition = self._partitions.get(topic_partition)
        if partition is not None:
            if partition.topic_id != topic_id:
                return
            del self._partitions[topic_partition]
            partition.traffic.hosted -= 1
            if not partition.traffic.hosted:
                del self.topic_traffic[topic_partition.topic]
                self.recompression.forget(topic_partition.topic)
            self._followers.stop(partition)
            self._appends.forget(partition)
            self._fetches.forget(partition)
            self._suspected_ms.pop(partition, None)
            partition.stop(self._hosted.absent(*topic_partition))
        log = self._logs.get(topic_partition)
        if log is not None and log.topic_id == topic_id:
            self._logs.delete(topic_partition)

    def endpoint_of(self, broker_id: BrokerId) -> Endpoint | None:
        """Where a broker is reached by others; None when it is not registered, or without such a listener."""
        return self._hosted.endpoint_of(broker_id, self._config.inter_broker_listener_name)

    # ------------------------------------------------------------------ PartitionHost

    def now_ms(self) -> int:
        """Monotonic ms of the loop."""
        return int(self._loop.time() * 1000)

    def _config_of(self, topic: str, number: int) -> LogConfig | None:
        partition = self._partitions.get((topic, number))
        return None if partition is None else partition.log.config

    def registered_broker_epoch(self, broker_id: BrokerId) -> int | None:
        """See PartitionHost."""
        registered = self._hosted.image.cluster.brokers.get(broker_id)
        return registered.epoch if registered is not None and registered.is_active else None

    def racks(self, brokers: Iterable[BrokerId]) -> dict[BrokerId, str | None]:
        """See PartitionHost."""
        known = self._hosted.image.cluster.brokers
        return {each: known[each].rack for each in brokers if each in known and known[each].is_active}

    def heard_ms(self, broker_id: BrokerId) -> int:
        """See PartitionHost."""
        return self._heard.until_ms(broker_id)

    def is_left_alone(self, silence_ms: int) -> bool:
        """Whether this broker leads partitions with other in-sync replicas, and no broker has fetched for `silence_ms`.

        While one fetches, it has heard of no other leader; a broker that was fenced leads nothing.
        """
        since_ms = self.now_ms() - silence_ms
        if self._heard.is_any_heard_since(since_ms):
            return False
        return any(partition.is_leader and len(partition.isr.committed) > 1 for partition in self.partitions())

    def propose_isr(self, partition: Partition, item: AlterPartitionItem) -> None:
        """See PartitionHost."""
        self._proposals.propose(partition, item)

    # ------------------------------------------------------------------ faulty replicas

    def set_fault(self, topic_partition: TopicPartition, fault: ReplicaFault | None) -> None:
        """What is wrong with the replica hosted here, None = it is whole again; nothing happens if it is not hosted. The
        controller is told where the cluster's metadata.version knows faults; a full directory stays a fault until it has room.

        CORRUPT: reads of what is sound go on, and others lead where they can. NO_ROOM: appends are refused and a follower
        fetches no more, reads go on.
        """
        partition = self._partitions.get(topic_partition)
        if partition is not None:
            is_full = fault is ReplicaFault.NO_ROOM or _directory_of(partition) in self._full_directories
            self._set_fault(
                partition,
                is_corrupt=fault is ReplicaFault.CORRUPT or (partition.is_corrupt and fault is not None),
                has_room=not is_full,
            )

    def on_room_changed(self, directory: str, has_room: bool) -> None:
        """Whether the logs in that log directory may grow."""
        if has_room:
            self._full_directories.discard(directory)
        else:
            self._full_directories.add(directory)
        if has_room and self._postponed and self._is_present_life():
            self._place_postponed(self.now_ms())
        for partition in tuple(self._partitions.values()):
            if _directory_of(partition) == directory:
                self._set_fault(partition, is_corrupt=partition.is_corrupt, has_room=has_room)

    def stays_when_full(self) -> bool:
        """Whether others can be led past a full directory, or nobody has said yet what the cluster knows."""
        features = self._hosted.image.features
        return features.has_replica_faults or features.metadata_version == 0

    def _set_fault(self, partition: Partition, *, is_corrupt: bool, has_room: bool) -> None:
        before, had_room = partition.fault, partition.has_room
        partition.is_corrupt = is_corrupt
        if has_room != had_room:
            partition.set_room(has_room)
            if not partition.is_leader:
                self._followers.stop(partition)
                self._followers.begin(partition)
            elif has_room:
                # What waits to be written since the disk was full; produces may still wait for it.
                self._appends.note_dirty(partition)
        if partition.fault is not before:
            level = logging.INFO if partition.fault is None else logging.WARNING
            logger.log(level, "%s: this replica is %s", partition.topic_partition, _in_words(partition.fault))
            self._report_fault(partition)

    def on_damage(self, log: UnifiedLog) -> None:
        """What is known of a log's damage has changed."""
        partition = self._partitions.get(log.topic_partition)
        if partition is not None and partition.log is log:
            self._repairs.note(partition)

    def suspect(self, partition: Partition, offset: Offset) -> None:
        """See PartitionHost."""
        now_ms = self.now_ms()
        if now_ms >= self._suspected_ms.get(partition, -_NEVER_MS) + SUSPECT_EVERY_MS:
            self._suspected_ms[partition] = now_ms
            base_offset = max(base for base in partition.log.base_offsets if base <= offset)
            logger.warning(
                "%s: a follower asks for offset %d again and again though it was sent: checking our own copy",
                partition.topic_partition,
                offset,
            )
            self._logs.request_check(partition.log, base_offset)

    # ------------------------------------------------------------------ failing disks

    def on_directory_failed(self, directory: str, error: OSError) -> None:
        """A log directory has failed: its partitions are served no more until the broker starts again."""
        for partition in tuple(self._partitions.values()):
            if _directory_of(partition) == directory:
                self.give_up(partition, error)
        self.listener.on_directory_failed(directory, error)

    def give_up(self, partition: Partition, error: Exception) -> None:
        """See PartitionHost."""
        if partition.storage_error is not None or isinstance(error, NoRoom):
            return  # the log manager knows of a want of room, and reports it to `on_room_changed`
        logger.error("%s: its disk failed, giving it up: %s", partition.topic_partition, error)
        self._followers.stop(partition)
        failure = error if isinstance(error, StorageFailed) else StorageFailed(f"{partition.topic_partition}: {error}")
        partition.fail_storage(failure)

    # ------------------------------------------------------------------ tasks

    async def run(self) -> None:
        """Follow leaders, watch ISRs, write HW checkpoints; until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._proposals.run())
                tasks.create_task(self._repairs.run())
                tasks.create_task(self._watch_isrs())
                tasks.create_task(self._raise_log_starts())
                tasks.create_task(self._checkpoint_high_watermarks())
                self._followers.start(tasks)
        finally:
            self._followers.detach()

    async def close(self) -> None:
        """After `run` has ended and before the logs close: everybody who waits is sent away, HWs are written."""
        self._appends.close()
        if self._opening is not None:
            self._opening.cancel()
        self.recompression.close()
        error = NotLeaderOrFollower(f"broker {self.broker_id} is shutting down")
        for partition in tuple(self._partitions.values()):
            self._followers.stop(partition)
            partition.stop(error)
        await self._logs.write_high_watermarks()

    async def _watch_isrs(self) -> None:
        while True:
            await asyncio.sleep(self._config.replica_lag_time_ms_max / 2 / 1000)
            now_ms = self.now_ms()
            for partition in tuple(self._partitions.values()):
                isr_changes.shrink_isr(partition, now_ms=now_ms)
                # The HW may have waited for one that was about to join and has gone silent: time alone frees it.
                partition.refresh(now_ms=now_ms)

    async def _checkpoint_high_watermarks(self) -> None:
        while True:
            await asyncio.sleep(self._config.high_watermark_checkpoint_interval_ms / 1000)
            await self._logs.write_high_watermarks()


def _directory_of(partition: Partition) -> str:
    """Path of the log directory that its log is in."""
    return partition.log.directory.rpartition("/")[0]


def _in_words(fault: ReplicaFault | None) -> str:
    if fault is None:
        return "whole again and may take records"
    if fault is ReplicaFault.CORRUPT:
        return "corrupt: records below the high watermark are damaged"
    return "without room: its log directory is full"
