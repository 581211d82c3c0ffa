"""The share coordinator: finds the partition of a share partition's key, hands requests to its shard, and prunes the log.

May touch:  the runtime, the metadata image, the controller client.   Must not touch: sockets, files, wire.
Invariants: a key belongs to one partition of `__share_group_state`, and its leader alone decides; records are deleted only where later
            ones that are committed say the same.
Read next:  shard.py, ../runtime.py; persister.py, who asks.

`__share_group_state` is made when the first coordinator is looked for; until its partition has a leader the answer is
COORDINATOR_NOT_AVAILABLE, which is asked again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection

from barnabas_coordination.internal_topic import InternalTopic, MetadataSource
from barnabas_coordination.runtime import CoordinatorLog, CoordinatorRuntime, CoordinatorStats, ShardState
from barnabas_coordination.share_config import ShareCoordinatorConfig
from barnabas_coordination.share_state.messages import ShareKey, ShareState, ShareSummary
from barnabas_coordination.share_state.shard import ShareShard
from barnabas_coordination.share_state.state import Change
from barnabas_quorum.controller.request import ActiveController
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import SHARE_STATE_TOPIC, BrokerId, Epoch, Offset, Uuid

logger = logging.getLogger("barnabas_broker.coordinator.share_state")  # the name that operators set a level of


class ShareCoordinator:
    """Every share partition whose key this broker's partitions of `__share_group_state` have. All methods run on the data lane."""

    def __init__(
        self,
        *,
        config: ShareCoordinatorConfig,
        log: CoordinatorLog,
        delete_before: Callable[[int, Offset], Awaitable[None]],
        metadata: MetadataSource,
        controller: ActiveController,
        is_current: Callable[[], bool],
        clock_ms: Callable[[], int],
    ) -> None:
        """`log` is __share_group_state as replication keeps it. delete_before: deletes the records of a partition before an offset;
        raises KafkaError. is_current: whether `metadata` is as new as this process's registration."""
        self.config = config
        self._metadata = metadata
        self._delete_before = delete_before
        self._pruned: dict[int, Offset] = {}
        """The offset to which each led partition is pruned."""
        self.topic = InternalTopic(
            SHARE_STATE_TOPIC,
            partition_count=config.state_topic_num_partitions,
            replication_factor=config.state_topic_replication_factor,
            configs={
                "cleanup.policy": "delete",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(min(config.state_topic_min_isr, config.state_topic_replication_factor)),
                "retention.ms": "-1",
                "segment.bytes": str(config.state_topic_segment_bytes),
            },
            metadata=metadata,
            controller=controller,
        )
        self._runtime: CoordinatorRuntime[ShareShard] = CoordinatorRuntime(
            "share",
            log=log,
            make_shard=lambda: ShareShard(config, has_partition=self._has_partition, is_current=is_current),
            clock_ms=clock_ms,
            commit_timeout_ms=config.write_timeout_ms,
            load_bytes=config.load_buffer_size,
            on_loaded=lambda partition, shard: self.topic.note_loaded(
                partition, (key.coordinator_key for key in shard.states)
            ),
            replays_all=True,
        )

    @property
    def stats(self) -> CoordinatorStats:
        """Counters of the runtime."""
        return self._runtime.stats

    @property
    def partitions(self) -> dict[int, ShardState]:
        """Led partitions of __share_group_state and how far each is."""
        return self._runtime.partitions

    @property
    def share_partitions(self) -> int:
        """How many share partitions are kept here, of partitions that are loaded. For metrics: may be called from another thread."""
        count = 0
        for partition, state in self.partitions.items():
            if state is ShardState.ACTIVE:
                with contextlib.suppress(KafkaError):  # it was resigned meanwhile
                    count += len(self._runtime.shard(partition).states)
        return count

    # ---- start and stop ------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Owner task: loads elected partitions and prunes until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._runtime.run(), name="share coordinator")
            tasks.create_task(self._prune_now_and_then(), name="share state pruning")

    def on_elected(self, partition: int, leader_epoch: Epoch) -> None:
        """This broker leads a partition of __share_group_state (after the replica manager has taken the role)."""
        self._runtime.on_elected(partition, leader_epoch)

    def on_resigned(self, partition: int) -> None:
        """This broker no longer leads the partition."""
        self._runtime.on_resigned(partition)
        self.topic.note_resigned(partition)
        self._pruned.pop(partition, None)

    def on_topics_deleted(self, topics: Collection[str]) -> None:
        """Topics are gone: what is kept of them goes, once the image here says so, too."""
        self._runtime.write_to_all(lambda shard, now_ms: shard.look_for_deleted())

    # ---- where a key lives ---------------------------------------------------------------------------------------

    async def find_coordinator(self, key: str) -> BrokerId:
        """Broker that coordinates a key, group:topic id:partition. Makes the topic if it is not there yet.

        Raises INVALID_REQUEST for what is no key, COORDINATOR_NOT_AVAILABLE while it has no leader; the caller asks again.
        """
        return await self.topic.find_leader_for(_parsed(key).coordinator_key)

    def _partition(self, key: ShareKey) -> int:
        return self.topic.partition_for(key.coordinator_key)

    def _has_partition(self, topic_id: Uuid, partition: int) -> bool:
        topic = self._metadata.image.topics.get_by_id(topic_id)
        return topic is not None and partition in topic.partitions

    # ---- requests ------------------------------------------------------------------------------------------------

    async def initialize(self, key: ShareKey, *, state_epoch: Epoch, start_offset: Offset) -> None:
        """InitializeShareGroupState. Raises KafkaError; see ShareShard.initialize."""
        await self._runtime.write(
            self._partition(key),
            lambda shard, ticket, now_ms: shard.initialize(
                key, ticket, state_epoch=state_epoch, start_offset=start_offset, now_ms=now_ms
            ),
        )

    async def read(self, key: ShareKey, *, leader_epoch: Epoch) -> ShareState:
        """ReadShareGroupState. Raises KafkaError; see ShareShard.read."""
        state: ShareState = await self._runtime.write(
            self._partition(key),
            lambda shard, ticket, now_ms: shard.read(key, ticket, leader_epoch=leader_epoch, now_ms=now_ms),
        )
        return state

    async def write(self, key: ShareKey, change: Change) -> None:
        """WriteShareGroupState. Raises KafkaError; see ShareShard.write."""
        await self._runtime.write(
            self._partition(key), lambda shard, ticket, now_ms: shard.write(key, change, ticket, now_ms=now_ms)
        )

    async def summary(self, key: ShareKey) -> ShareSummary:
        """ReadShareGroupStateSummary. Raises KafkaError."""
        summary: ShareSummary = await self._runtime.write(
            self._partition(key), lambda shard, ticket, now_ms: shard.summary(key, ticket)
        )
        return summary

    async def delete(self, key: ShareKey) -> None:
        """DeleteShareGroupState. Raises KafkaError."""
        await self._runtime.write(self._partition(key), lambda shard, ticket, now_ms: shard.delete(key, ticket))

    # ---- pruning -------------------------------------------------------------------------------------------------

    async def _prune_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self.config.prune_interval_ms / 1000)
            await self.prune()

    async def prune(self) -> None:
        """Delete what is redundant in every led partition that is loaded."""
        for partition in sorted(self.partitions):
            if self.partitions.get(partition) is not ShardState.ACTIVE:
                continue
            needed = self._runtime.shard(partition).first_needed
            if needed <= self._pruned.get(partition, 0):
                continue
            try:
                await self._delete_before(partition, needed)
            except KafkaError as error:  # it is tried again, with whatever is redundant then
                logger.info("%s-%d is not pruned to %d: %s", SHARE_STATE_TOPIC, partition, needed, error)
                continue
            if partition in self.partitions:
                self._pruned[partition] = needed


def _parsed(text: str) -> ShareKey:
    try:
        group_id, topic_id, partition = text.rsplit(":", 2)
        if not group_id:
            raise ValueError("no group id")
        return ShareKey(group_id, Uuid.parse(topic_id), int(partition))
    except ValueError as error:
        raise KafkaError.of(
            ErrorCode.INVALID_REQUEST, f"a share coordinator's key is group:topic id:partition, not {text!r}"
        ) from error
