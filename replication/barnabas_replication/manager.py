"""All partitions of one broker: the table of them, and the parts that work on it; run and close.

May touch:  its parts, the log manager, loop timers.      Must not touch: sockets, the Kafka codec, the wall clock.
Invariants: all state changes on one loop, none across an await.
Read next:  appends.py, fetches.py (requests), hosting.py (metadata), fetcher_pool.py (the follower's side), partition.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from random import Random
from types import MappingProxyType
from typing import Any

from barnabas_log.batch_inspection import BatchInspector
from barnabas_log.config import LogConfig
from barnabas_log.directories.manager import LogManager
from barnabas_log.directories.manager_listener import LogManagerListener
from barnabas_log.unified_log import UnifiedLog
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.image.topics import TopicsDelta
from barnabas_quorum.records import ReplicaFault
from barnabas_replication.config import ReplicationConfig
from barnabas_replication.controller import AlterPartitionChannel
from barnabas_replication.errors import NotLeaderOrFollower
from barnabas_replication.follower.fetcher_pool import FetcherPool
from barnabas_replication.follower.peer import PeerFactory
from barnabas_replication.hosting.hosted import HostedPartitions
from barnabas_replication.hosting.hosting import Hosting
from barnabas_replication.hosting.repair import Repairs
from barnabas_replication.hosting.replica_faults import ReplicaFaults
from barnabas_replication.hosting.replica_listener import ReplicaListener
from barnabas_replication.hosting.replica_logs import ReplicaLogs
from barnabas_replication.leader import isr_changes, offset_lookup
from barnabas_replication.leader.alter_partition import IsrProposals
from barnabas_replication.leader.appends import Appends
from barnabas_replication.leader.batch_partitions import BatchPartitions
from barnabas_replication.leader.batch_work import BatchWork
from barnabas_replication.leader.deletion import delete_records
from barnabas_replication.leader.fetches import Fetches
from barnabas_replication.leader.follower_contacts import FollowerContacts
from barnabas_replication.partition import Partition
from barnabas_replication.replica_events import ReplicaEvents
from barnabas_replication.requests import (
    ListedOffset,
)
from barnabas_replication.stats import Stats, TopicTraffic
from barnabas_replication.throttle import ReplicationThrottle
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import (
    INTERNAL_TOPICS,
    NO_EPOCH,
    NO_OFFSET,
    BrokerId,
    Endpoint,
    Epoch,
    Offset,
    TopicPartition,
)

logger = logging.getLogger(__name__)

NO_SETTINGS: Mapping[str, LogConfig] = MappingProxyType({})
TIME_SEARCHES_MAX = 2
"""Searches by time under way: of the disk's four threads some stay free for checkpoints and coordinators."""


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
        submit_work: Callable[..., Future[Any]] | None = None,
    ) -> None:
        """Must be called on the running data loop, after `logs` were loaded. Becomes the listener of `logs`.

        broker_epoch: this broker's epoch as last registered, -1 before. log_config: settings of a topic's logs by name.
        clock_ms: wall clock for append times; everything else goes by the loop's own time. random: for back-off jitter, and for
        which batches are opened. submit_work: see batch_work.py.
        """
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.stats = Stats()
        self._config = config
        self._logs = logs
        loop = asyncio.get_running_loop()
        self.hosted = HostedPartitions(broker_id, broker_epoch, lambda: int(loop.time() * 1000))
        self._events: ReplicaEvents[Partition] = ReplicaEvents(lambda: loop.call_soon(self._obey))
        self._partitions = self.hosted.partitions
        self._proposals = IsrProposals(controller, now_ms=self.hosted.now_ms)
        self._time_searches = asyncio.Semaphore(TIME_SEARCHES_MAX)
        self.throttle = ReplicationThrottle()
        self._listener = listener or ReplicaListener()
        judged = BatchPartitions(self.hosted, self.stats)
        self.batch_work = BatchWork(
            judged,
            inspector=BatchInspector(),
            random=random,
            clock_ms=clock_ms,
            stats=self.stats,
            submit=submit_work,
        )
        self._contacts = FollowerContacts(broker_id)
        self.appends = Appends(
            self.hosted,
            contacts=self._contacts,
            config=config,
            judged=judged,
            batch_work=self.batch_work,
            request_flush=logs.request_flush,
            clock_ms=clock_ms,
            stats=self.stats,
        )
        self.fetches = Fetches(
            self.hosted,
            contacts=self._contacts,
            config=config,
            events=self._events,
            throttle=self.throttle.as_leader,
            stats=self.stats,
        )
        self.fetchers = FetcherPool(
            self.hosted,
            broker_epoch=broker_epoch,
            config=config,
            peers=peers,
            request_flush=logs.request_flush,
            random=random,
            stats=self.stats,
            throttle=self.throttle.as_follower,
        )
        self._faults = ReplicaFaults(
            self.hosted,
            logs=logs,
            appends=self.appends,
            fetchers=self.fetchers,
            listener=self._listener,
            now_ms=self.hosted.now_ms,
        )
        self._hosting = Hosting(
            self.hosted,
            config=config,
            events=self._events,
            contacts=self._contacts,
            logs=ReplicaLogs(logs, self.hosted, log_config),
            appends=self.appends,
            fetches=self.fetches,
            batch_work=self.batch_work,
            fetchers=self.fetchers,
            faults=self._faults,
            listener=self._listener,
            stats=self.stats,
        )
        self._repairs = Repairs(
            self.hosted,
            config=config,
            hosting=self._hosting,
            fetchers=self.fetchers,
            faults=self._faults,
            logs=logs,
            peers=peers,
        )
        logs.serve(self)

    def on_flushed(self, log: UnifiedLog) -> None:
        """A flush round has made the log durable further than before."""
        self.appends.on_flushed()
        partition = self._partitions.get(log.topic_partition)
        if partition is None or partition.log is not log:
            return
        if partition.is_leader:
            partition.on_durable_end_advance(now_ms=self.hosted.now_ms())
        else:
            self.fetchers.on_flushed(partition)

    # ------------------------------------------------------------------ log starts

    def on_log_start_moved(self, log: UnifiedLog) -> None:
        """Followers are to hear of a leader's, leaders of a follower's."""
        partition = self._partitions.get(log.topic_partition)
        if partition is None or partition.log is not log:
            return
        if partition.is_leader:
            partition.follower_fetches.note()
            partition.settle_log_start()
        else:
            self.fetchers.on_log_start_moved(partition)

    async def delete_records(
        self, asked: Sequence[tuple[TopicPartition, Offset]], *, timeout_ms: int
    ) -> list[Offset | KafkaError]:
        """See deletion.py."""
        return await delete_records(
            asked,
            hosted=self.hosted,
            answer_followers=self.fetches.answer_followers,
            raise_log_starts=self._logs.checkpoints.raise_log_starts,
            timeout_ms=timeout_ms,
        )

    # ------------------------------------------------------------------ other requests

    @property
    def log_directories(self) -> tuple[list[str], list[str]]:
        """Paths of the log directories that work, and of those that failed."""
        return self._logs.health.online_directories, self._logs.health.offline_directories

    @property
    def cleaner_faults(self) -> Mapping[TopicPartition, str]:
        """Compacted logs that the cleaner has set aside, and why, kind first."""
        return self._logs.cleaner.stats.set_aside

    def partition(self, topic_partition: TopicPartition) -> Partition | None:
        """The partition hosted here, or None."""
        return self._partitions.get(topic_partition)

    def partitions(self) -> Iterator[Partition]:
        """All hosted partitions."""
        return iter(self._partitions.values())

    async def list_offset_by_time(
        self,
        topic_partition: TopicPartition,
        timestamp_ms: int,
        *,
        current_leader_epoch: Epoch = NO_EPOCH,
        is_read_committed: bool = False,
    ) -> ListedOffset:
        """See offset_lookup.list_offset_by_time; TIME_SEARCHES_MAX at a time, the others wait."""
        async with self._time_searches:
            partition = self.hosted.leader_partition(topic_partition, current_leader_epoch)
            return await offset_lookup.list_offset_by_time(
                partition,
                timestamp_ms,
                run_blocking=self._logs.run_blocking,
                new_times=self._logs.new_times,
                current_leader_epoch=current_leader_epoch,
                is_read_committed=is_read_committed,
            )

    # ------------------------------------------------------------------ metadata

    def apply_delta(
        self,
        delta: TopicsDelta | None,
        image: MetadataImage,
        *,
        settings: Mapping[str, LogConfig] = NO_SETTINGS,
        when_placed: Callable[[], None] | None = None,
    ) -> None:
        """Take in what the cluster agreed on: settings, then deletions, then leaders, then followers. For what is hosted here it is
        one moment: no HW is looked at before the settings that judge it are in place. The logs of new replicas are opened
        later, a few a turn; until then requests for them are refused as for what is led elsewhere.

        Call it for every image, also when no topic changed (delta None): broker epochs, fencing and endpoints are read
        from the image.

        Args:
            settings: of the logs of each topic whose settings changed, by name.
            when_placed: called once every replica has its log, or cannot have one now; before this returns if all have.
        """
        before = self.hosted.take(image)
        changed: Iterable[Partition] = self._take_settings(settings)
        if delta is not None:
            for gone in delta.deleted.values():
                self.throttle.set_topic(gone.name, {})
        self._hosting.take_in(delta)
        if (image.features.has_replica_faults and not before.features.has_replica_faults) or (
            image.features.has_proof and not before.features.has_proof
        ):
            self._faults.report_all()
        self._repairs.wake()
        if image.cluster is not before.cluster:
            self.fetchers.take_endpoints()
            changed = self._partitions.values()
        now_ms = self.hosted.now_ms()
        for partition in changed:
            partition.refresh(now_ms=now_ms)
        self._hosting.when_placed(when_placed or _nothing)

    def _take_settings(self, settings: Mapping[str, LogConfig]) -> list[Partition]:
        """Give them to the logs that are here; returns whose. Of a topic that was deleted and made again in the same delta the
        log here is still the former one's, and keeps what it has until it goes."""
        found: list[Partition] = []
        for topic, config in settings.items():
            image = self.hosted.image.topics.get(topic)
            for index in () if image is None else image.partitions:
                partition = self._partitions.get((topic, index))
                if partition is None or image is None or partition.topic_id != image.id:
                    continue
                if topic not in INTERNAL_TOPICS:
                    self.batch_work.note(topic, config)
                partition.log.update_config(config)
                if partition.durable_end_offset < partition.log.log_end_offset:
                    self._logs.request_flush(partition.log)  # written in page-cache mode: nothing else would ask
                found.append(partition)
        return found

    @property
    def topic_traffic(self) -> Mapping[str, TopicTraffic]:
        """The traffic of each topic that has a partition here; in the order in which the topics came."""
        return self._hosting.topic_traffic

    def endpoint_of(self, broker_id: BrokerId) -> Endpoint | None:
        """Where a broker is reached by others; None when it is not registered, or without such a listener."""
        return self.hosted.endpoint_of(broker_id, self._config.inter_broker_listener_name)

    def is_left_alone(self, silence_ms: int) -> bool:
        """Whether this broker leads partitions with other in-sync replicas, and no broker has fetched for `silence_ms`.

        While one fetches, it has heard of no other leader; a broker that was fenced leads nothing.
        """
        since_ms = self.hosted.now_ms() - silence_ms
        if self._contacts.is_any_heard_since(since_ms):
            return False
        return any(partition.is_leader and len(partition.isr.committed) > 1 for partition in self.partitions())

    def _obey(self) -> None:
        """Do what partitions have noted. What has changed since is left alone."""
        events = self._events
        events.taken()
        if events.advanced:
            self.fetches.push_soon()
        if events.proposed:
            proposed, events.proposed = events.proposed, {}
            for partition, item in proposed.items():
                self._proposals.propose(partition, item)
        if events.starts:
            starts, events.starts = events.starts, {}
            for partition, offset in starts.items():
                self._logs.rising_starts.note(partition.log, offset)
        if events.suspected:
            suspected, events.suspected = events.suspected, {}
            for partition, offset in suspected.items():
                if self._hosting.is_hosted(partition):
                    self._faults.suspect(partition, offset)
        if events.failed:
            failed, events.failed = events.failed, {}
            for partition in failed:
                if self._hosting.is_hosted(partition):
                    self.fetchers.stop(partition)
        if events.lacking:
            lacking, events.lacking = events.lacking, {}
            for partition in lacking:
                if self._hosting.is_hosted(partition):
                    if partition.missed_below > NO_OFFSET:
                        self.fetchers.stop(partition)
                    self._repairs.note(partition)

    # ------------------------------------------------------------------ faulty replicas

    def set_fault(self, topic_partition: TopicPartition, fault: ReplicaFault | None) -> None:
        """What is wrong with the replica hosted here, None = it is whole again; nothing happens if it is not hosted. The
        controller learns of it where the cluster's metadata.version knows faults; a full directory stays a fault until it has room.

        CORRUPT: reads of what is sound continue, and others lead where they can. NO_ROOM: appends are refused and a
        follower fetches no more, reads continue.
        """
        self._faults.set_fault(topic_partition, fault)

    def on_space_changed(self, directory: str, has_space: bool) -> None:
        """See LogManagerListener."""
        self._faults.note_space(directory, has_space)
        if has_space:
            self._hosting.place_postponed()
        self._faults.spread_space(directory, has_space)

    def stays_when_full(self) -> bool:
        """Whether others can be led past a full directory, or the cluster's features are not known yet."""
        features = self.hosted.image.features
        return features.has_replica_faults or features.metadata_version == 0

    def may_compact(self) -> bool:
        """Whether whoever follows takes a log with gaps; not before the metadata has said so."""
        return self.hosted.image.features.has_compaction

    def on_damage(self, log: UnifiedLog) -> None:
        """What is known of a log's damage has changed."""
        partition = self._partitions.get(log.topic_partition)
        if partition is not None and partition.log is log:
            self._repairs.note(partition)

    # ------------------------------------------------------------------ failing disks

    def on_directory_failed(self, directory: str, error: OSError) -> None:
        """A log directory has failed: its partitions are served no more until the broker starts again."""
        for partition in tuple(self._partitions.values()):
            if partition.log_directory == directory:
                partition.give_up(error)
        self._listener.on_directory_failed(directory, error)

    # ------------------------------------------------------------------ tasks

    async def run(self) -> None:
        """Follow leaders, watch ISRs, write HW checkpoints; until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._proposals.run())
                tasks.create_task(self._hosting.run())
                tasks.create_task(self._repairs.run())
                tasks.create_task(self._watch_isrs())
                tasks.create_task(self._checkpoint_high_watermarks())
                self.fetchers.start(tasks)
        finally:
            self.fetchers.detach()

    async def close(self) -> None:
        """After `run` has ended and before the logs close: everybody who waits is sent away, HWs are written."""
        self.appends.close()
        self._hosting.close()
        error = NotLeaderOrFollower(f"broker {self.broker_id} is shutting down")
        for partition in tuple(self._partitions.values()):
            self.fetchers.stop(partition)
            partition.stop(error)
        await self.batch_work.close()
        await self._logs.checkpoints.write_high_watermarks()

    async def _watch_isrs(self) -> None:
        while True:
            await asyncio.sleep(self._config.replica_lag_time_ms_max / 2 / 1000)
            now_ms = self.hosted.now_ms()
            self.fetches.vouch()
            for partition in tuple(self._partitions.values()):
                isr_changes.shrink_isr(partition, now_ms=now_ms)
                # The HW may have waited for one that was about to join and has gone silent: time alone frees it.
                partition.refresh(now_ms=now_ms)

    async def _checkpoint_high_watermarks(self) -> None:
        while True:
            await asyncio.sleep(self._config.high_watermark_checkpoint_interval_ms / 1000)
            await self._logs.checkpoints.write_high_watermarks()


def _nothing() -> None:
    """Does nothing: no caller waits."""
