"""The pool of fetchers: one per leader broker, as long as it leads anything that is followed here.

May touch:  fetchers, their tasks.          Must not touch: requests of clients, metadata beyond addresses and features.
Invariants: a partition is in at most one fetcher; a fetcher that follows nothing ends.
Read next:  fetcher.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from barnabas_log.unified_log import UnifiedLog
from barnabas_replication.config import ReplicationConfig
from barnabas_replication.follower.fetcher import Fetcher
from barnabas_replication.follower.fetcher_partitions import FetcherParts
from barnabas_replication.follower.peer import PeerFactory
from barnabas_replication.hosting.hosted import HostedPartitions
from barnabas_replication.partition import Partition
from barnabas_replication.stats import Stats
from barnabas_replication.throttle import ThrottleSide
from barnabas_wire.kafka.ids import NO_BROKER, NO_OFFSET, BrokerId, Endpoint, TopicPartition


class FetcherPool:
    """Everything that this broker follows."""

    def __init__(
        self,
        hosted: HostedPartitions,
        *,
        broker_epoch: Callable[[], int],
        config: ReplicationConfig,
        peers: PeerFactory,
        request_flush: Callable[[UnifiedLog], None],
        random: Random,
        stats: Stats,
        throttle: ThrottleSide,
    ) -> None:
        """random: for jitter only. throttle: the follower's side."""
        self._hosted = hosted
        self._parts = FetcherParts(
            broker_id=hosted.broker_id,
            broker_epoch=broker_epoch,
            config=config,
            peers=peers,
            request_flush=request_flush,
            random=random,
            stats=stats,
            throttle=throttle,
            may_fetch_ahead=lambda: hosted.image.features.has_flushed_offsets,
            knows_forgotten=lambda: hosted.image.features.has_proof,
        )
        self._fetchers: dict[BrokerId, Fetcher] = {}
        self._fetcher_of: dict[TopicPartition, Fetcher] = {}
        self._tasks: asyncio.TaskGroup | None = None

    def fetcher_of(self, topic_partition: TopicPartition) -> Fetcher | None:
        """The fetcher that follows that partition; None when it is not followed."""
        return self._fetcher_of.get(topic_partition)

    def begin(self, partition: Partition) -> None:
        """Have the leader's fetcher keep it in step, unless its disk failed or is full: then there is nowhere to write;
        or it must be refilled."""
        leader_id = partition.leader_id
        if leader_id == NO_BROKER or partition.storage_error is not None or not partition.has_space:
            return
        if partition.missed_below > NO_OFFSET:
            return
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = Fetcher(leader_id, endpoint=self._endpoint_of(leader_id), parts=self._parts)
            self._fetchers[leader_id] = fetcher
            if self._tasks is not None:
                self._tasks.create_task(fetcher.run())
        fetcher.add(partition)
        self._fetcher_of[partition.topic_partition] = fetcher

    def stop(self, partition: Partition) -> None:
        """Follow it no more. Harmless when it is not followed."""
        fetcher = self._fetcher_of.pop(partition.topic_partition, None)
        if fetcher is None:
            return
        fetcher.remove(partition)
        if not len(fetcher) and self._fetchers.get(fetcher.leader_id) is fetcher:
            del self._fetchers[fetcher.leader_id]
            fetcher.stop()

    def on_flushed(self, partition: Partition) -> None:
        """A followed log is durable further than before."""
        fetcher = self._fetcher_of.get(partition.topic_partition)
        if fetcher is not None:
            fetcher.on_flushed(partition)

    def on_log_start_moved(self, partition: Partition) -> None:
        """A followed log begins later than before."""
        fetcher = self._fetcher_of.get(partition.topic_partition)
        if fetcher is not None:
            fetcher.on_log_start_moved(partition)

    def take_endpoints(self) -> None:
        """Leaders may have moved to other addresses."""
        for leader_id, fetcher in self._fetchers.items():
            fetcher.set_endpoint(self._endpoint_of(leader_id))

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Run the fetchers there are, and those to come, in the group; `detach` when it ends."""
        self._tasks = tasks
        for fetcher in self._fetchers.values():
            tasks.create_task(fetcher.run())

    def detach(self) -> None:
        """The group has ended: fetchers to come do not run."""
        self._tasks = None

    def _endpoint_of(self, broker_id: BrokerId) -> Endpoint | None:
        return self._hosted.endpoint_of(broker_id, self._parts.config.inter_broker_listener_name)
