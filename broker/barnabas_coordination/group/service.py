"""The group coordinator: finds the partition of a group, checks what needs no state, and hands the rest to its shard.

May touch:  the runtime, the metadata image, the controller client (to make the topic).   Must not touch: sockets, files, wire.
Invariants: a group belongs to the partition its id hashes to.
Read next:  shard.py, ../runtime.py, ../internal_topic.py.

`__consumer_offsets` is made when the first client looks for a coordinator; until its partition has a leader the answer is
COORDINATOR_NOT_AVAILABLE, which clients retry. It is compacted: what stays is the last offset of each group and partition.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from barnabas_coordination.brokers import Brokers
from barnabas_coordination.config import GroupCoordinatorConfig
from barnabas_coordination.errors import (
    CoordinatorLoadInProgress,
    InvalidGroupId,
    InvalidSessionTimeout,
    RebalanceInProgress,
)
from barnabas_coordination.group.any_group import AnyGroup
from barnabas_coordination.group.consumer.messages import (
    ConsumerGroupDescription,
    ConsumerHeartbeat,
    HeartbeatOutcome,
)
from barnabas_coordination.group.messages import (
    CommittedOffset,
    GroupDescription,
    GroupListing,
    JoinOutcome,
    JoinRequest,
    LeaveOutcome,
    LeavingMember,
    MemberRef,
    OffsetCommit,
    SyncOutcome,
    SyncRequest,
)
from barnabas_coordination.group.shard import GroupShard
from barnabas_coordination.group.share.messages import ShareGroupDescription, ShareHeartbeat, StateWork
from barnabas_coordination.group.share.records import Beginning
from barnabas_coordination.group.share_states import ShareStates, StateOffset
from barnabas_coordination.group.streams.messages import (
    StreamsGroupDescription,
    StreamsHeartbeat,
    StreamsHeartbeatOutcome,
)
from barnabas_coordination.internal_topic import InternalTopic, MetadataSource
from barnabas_coordination.runtime import CoordinatorLog, CoordinatorRuntime, CoordinatorStats, ShardState
from barnabas_coordination.shard import CoordinatorResult, Marker, Ticket, Writer
from barnabas_coordination.share_group_config import ShareGroupConfig
from barnabas_coordination.share_state.messages import Persister, ShareKey
from barnabas_quorum.controller.request import ActiveController
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Epoch, Offset, TopicPartition, Uuid

OFFSETS_TOPIC = "__consumer_offsets"
ID_PREFIX_MAX = 255
"""Characters of an instance's or client's id that its member id begins with, for people to read."""


class GroupCoordinator:
    """Every group whose partition this broker leads. All methods run on the data lane."""

    def __init__(
        self,
        *,
        config: GroupCoordinatorConfig,
        log: CoordinatorLog,
        metadata: MetadataSource,
        controller: ActiveController,
        persister: Persister,
        brokers: Brokers,
        clock_ms: Callable[[], int],
        new_id: Callable[[], str],
        share_config: ShareGroupConfig | None = None,
        may_judge_age: Callable[[], bool] = lambda: True,
    ) -> None:
        """`log` is __consumer_offsets as replication holds it; `new_id` draws the random part of a member id; `may_judge_age`: see
        GroupShard; `persister` keeps the state of share groups, whose lag the `brokers` know that lead partitions."""
        self.config = config
        self._topic = InternalTopic(
            OFFSETS_TOPIC,
            partition_count=config.offsets_topic_num_partitions,
            replication_factor=config.offsets_topic_replication_factor,
            configs={"cleanup.policy": "compact", "segment.bytes": str(config.offsets_topic_segment_bytes)},
            metadata=metadata,
            controller=controller,
        )
        self._new_id = new_id
        self._share_states = ShareStates(
            persister=persister,
            brokers=brokers,
            image=lambda: metadata.image,
            take=self._take_share_work,
            finish=lambda group_id, done: self._runtime.write_alone(
                self.partition_for(group_id), lambda shard, now_ms: shard.share.finish_work(group_id, done)
            ),
        )
        self._runtime: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(
            "group",
            log=log,
            make_shard=lambda: GroupShard(
                config,
                share_config=share_config,
                may_judge_age=may_judge_age,
                image=lambda: metadata.image,
                on_share_work=self._share_states.note,
            ),
            clock_ms=clock_ms,
            commit_timeout_ms=config.offsets_commit_timeout_ms,
            load_bytes=config.offsets_load_buffer_size,
            on_loaded=lambda partition, shard: self._topic.note_loaded(partition, shard.names()),
        )

    @property
    def stats(self) -> CoordinatorStats:
        """Counters of the runtime."""
        return self._runtime.stats

    @property
    def misplaced_partitions(self) -> set[int]:
        """Led partitions that hold groups of others: see InternalTopic.misplaced."""
        return self._topic.misplaced

    # ---- start and stop ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Owner task: loads elected partitions, and asks share coordinators, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._share_states.run())
            tasks.create_task(self._runtime.run())

    def on_elected(self, partition: int, leader_epoch: Epoch) -> None:
        """This broker leads a partition of __consumer_offsets (after the replica manager has taken the role)."""
        self._runtime.on_elected(partition, leader_epoch)

    def on_resigned(self, partition: int) -> None:
        """This broker no longer leads the partition."""
        self._runtime.on_resigned(partition)
        self._topic.note_resigned(partition)

    def on_topics_deleted(self, topics: Collection[str]) -> None:
        """Topics are gone from the cluster: forget the offsets committed for them."""
        gone = frozenset(topics)
        self._runtime.write_to_all(lambda shard, now_ms: shard.delete_topics(gone, now_ms=now_ms))

    # ---- which partition a group is in -------------------------------------------------------------------------------------

    def partition_for(self, group_id: str) -> int:
        """Partition of __consumer_offsets that the group belongs to."""
        return self._topic.partition_for(group_id)

    async def find_coordinator(self, group_id: str) -> BrokerId:
        """Broker that coordinates the group. Makes the topic if it is not there yet.

        Raises COORDINATOR_NOT_AVAILABLE while it has no leader; the client asks again.
        """
        return await self._topic.find_leader_for(group_id)

    # ---- membership ----------------------------------------------------------------------------------------------

    async def join_group(self, request: JoinRequest) -> JoinOutcome:
        """Wait until the group's next generation begins. Raises KafkaError; see joining.join, and

        INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT, MEMBER_ID_REQUIRED (MemberIdRequired carries the id).
        """
        partition = self._member_partition(request.group_id)
        config = self.config
        if not config.group_min_session_timeout_ms <= request.session_timeout_ms <= config.group_max_session_timeout_ms:
            raise InvalidSessionTimeout(
                f"session.timeout.ms {request.session_timeout_ms} is outside "
                f"{config.group_min_session_timeout_ms}…{config.group_max_session_timeout_ms}"
            )
        new_member_id = f"{(request.instance_id or request.client_id)[:ID_PREFIX_MAX]}-{self._new_id()}"
        joined: JoinOutcome = await self._runtime.write(
            partition,
            lambda shard, ticket, now_ms: shard.join(request, ticket, new_member_id=new_member_id, now_ms=now_ms),
            on_abandoned=lambda shard, ticket, now_ms: shard.abandon(request.group_id, ticket, now_ms=now_ms),
        )
        return joined

    def forget_pending_member(self, group_id: str, member_id: str) -> None:
        """The connection over which this id was given out (MEMBER_ID_REQUIRED) is gone."""
        self._runtime.write_alone(
            self.partition_for(group_id),
            lambda shard, now_ms: shard.forget_pending(group_id, member_id, now_ms=now_ms),
        )

    async def sync_group(self, request: SyncRequest) -> SyncOutcome:
        """Wait for the member's assignment. Raises KafkaError; see syncing.sync."""
        group_id = request.member.group_id
        partition = self._member_partition(group_id)
        try:
            synced: SyncOutcome = await self._runtime.write(
                partition,
                lambda shard, ticket, now_ms: shard.sync(request, ticket, now_ms=now_ms),
                on_abandoned=lambda shard, ticket, now_ms: shard.abandon(group_id, ticket, now_ms=now_ms),
            )
            return synced
        except CoordinatorLoadInProgress:
            # The rebalance this belongs to was soft state of the last coordinator: start over with a join.
            raise RebalanceInProgress("the coordinator has just moved here") from None

    async def heartbeat(self, member: MemberRef) -> None:
        """A member is alive. Raises KafkaError; see sessions.heartbeat."""
        partition = self._member_partition(member.group_id)
        try:
            await self._runtime.write(
                partition, lambda shard, ticket, now_ms: shard.heartbeat(member, ticket, now_ms=now_ms)
            )
        except CoordinatorLoadInProgress:
            return  # every member gets a fresh session once the group is loaded

    async def consumer_heartbeat(self, request: ConsumerHeartbeat) -> HeartbeatOutcome:
        """A member of the consumer protocol joins, is there, or leaves. Raises KafkaError; see GroupShard.consumer_heartbeat."""
        partition = self._member_partition(request.group_id)
        if not request.member_id:
            request = replace(request, member_id=self._new_id())
        outcome: HeartbeatOutcome = await self._runtime.write(
            partition, lambda shard, ticket, now_ms: shard.consumer_heartbeat(request, ticket, now_ms=now_ms)
        )
        return outcome

    async def streams_heartbeat(self, request: StreamsHeartbeat) -> StreamsHeartbeatOutcome:
        """A member of a Streams group joins, is there, or leaves. Raises KafkaError; see GroupShard.streams_heartbeat."""
        outcome: StreamsHeartbeatOutcome = await self._runtime.write(
            self._member_partition(request.group_id),
            lambda shard, ticket, now_ms: shard.streams_heartbeat(request, ticket, now_ms=now_ms),
        )
        return outcome

    async def share_heartbeat(self, request: ShareHeartbeat) -> HeartbeatOutcome:
        """A member of a share group joins, is there, or leaves. Raises KafkaError; see ShareGroups.heartbeat."""
        outcome: HeartbeatOutcome = await self._runtime.write(
            self._member_partition(request.group_id),
            lambda shard, ticket, now_ms: shard.share_heartbeat(request, ticket, now_ms=now_ms),
        )
        return outcome

    async def leave_group(self, group_id: str, members: Sequence[LeavingMember]) -> tuple[LeaveOutcome, ...]:
        """Members leave; one outcome each, in order. Raises KafkaError."""
        partition = self._member_partition(group_id)
        outcomes: tuple[LeaveOutcome, ...] = await self._runtime.write(
            partition, lambda shard, ticket, now_ms: shard.leave(group_id, members, ticket, now_ms=now_ms)
        )
        return outcomes

    def _member_partition(self, group_id: str) -> int:
        if not group_id:
            raise InvalidGroupId("a group that has members needs an id")
        return self.partition_for(group_id)

    # ---- offsets -------------------------------------------------------------------------------------------------

    async def commit_offsets(self, commit: OffsetCommit) -> tuple[ErrorCode, ...]:
        """One code per offset, in order, once the others are replicated. Raises KafkaError; see sessions.allow_commit."""
        group_id = commit.member.group_id
        partition = self.partition_for(group_id)
        is_done = False
        try:
            codes: tuple[ErrorCode, ...] = await self._runtime.write(
                partition, lambda shard, ticket, now_ms: shard.commit_offsets(commit, ticket, now_ms=now_ms)
            )
            is_done = True
        finally:
            self._count_commit(partition, group_id, is_done=is_done)
        return codes

    def check_coordinates(self, group_id: str) -> None:
        """Raises NotCoordinator, CoordinatorLoadInProgress unless this broker coordinates the group now."""
        self._runtime.shard(self._member_partition(group_id))

    async def commit_in_transaction(self, commit: OffsetCommit, writer: Writer) -> tuple[ErrorCode, ...]:
        """One code per offset, in order, once the others are replicated: they count with the transaction's marker.

        The transaction's coordinator has confirmed that the group's partition is part of it. Raises KafkaError; see
        GroupShard.commit_in_transaction, and INVALID_PRODUCER_EPOCH for a producer that was fenced meanwhile.
        """
        partition = self._member_partition(commit.member.group_id)
        codes: tuple[ErrorCode, ...] = await self._runtime.write(
            partition, lambda shard, ticket, now_ms: shard.commit_in_transaction(commit, writer, ticket, now_ms=now_ms)
        )
        return codes

    async def end_transaction(self, partition: int, marker: Marker) -> None:
        """Write a transaction's marker to a partition of __consumer_offsets; done once it is replicated. Raises KafkaError."""
        await self._runtime.write(partition, lambda shard, ticket, now_ms: shard.end_transaction(marker, ticket))

    def _count_commit(self, partition: int, group_id: str, *, is_done: bool) -> None:
        """Count it with the group, if there is one: commits under names that no group has must not fill the memory."""
        with contextlib.suppress(KafkaError):  # the partition has moved away meanwhile
            group = self._runtime.shard(partition).groups.get(group_id)
            if group is not None:
                group.stats.commits_done += is_done
                group.stats.commits_failed += not is_done

    def fetch_offsets(self, group_id: str, partitions: Sequence[TopicPartition]) -> list[CommittedOffset]:
        """What the group has committed, in the order asked; offset -1 where nothing. Raises KafkaError."""
        shard = self._runtime.shard(self.partition_for(group_id))
        return [shard.offsets.fetch(group_id, partition) for partition in partitions]

    def unstable_partitions(self, group_id: str, partitions: Sequence[TopicPartition]) -> frozenset[TopicPartition]:
        """Those whose offset a transaction may still change (KIP-447). Raises KafkaError."""
        shard = self._runtime.shard(self.partition_for(group_id))
        return frozenset(partition for partition in partitions if shard.offsets.is_unstable(group_id, partition))

    def check_fetch(self, group_id: str, member_id: str, epoch: int) -> None:
        """Raises the KafkaError that refuses a member's fetch by its epoch; see GroupShard.allow_fetch."""
        self._runtime.shard(self.partition_for(group_id)).allow_fetch(group_id, member_id, epoch)

    def committed_partitions(self, group_id: str) -> list[TopicPartition]:
        """Everything the group has committed something for. Raises KafkaError."""
        return self._runtime.shard(self.partition_for(group_id)).offsets.partitions(group_id)

    async def delete_offsets(self, group_id: str, partitions: Sequence[TopicPartition]) -> tuple[ErrorCode, ...]:
        """Forget committed offsets; one code per partition, in order. Raises KafkaError; see GroupShard.delete_offsets."""
        codes: tuple[ErrorCode, ...] = await self._runtime.write(
            self._member_partition(group_id),
            lambda shard, ticket, now_ms: shard.delete_offsets(group_id, partitions, ticket, now_ms=now_ms),
        )
        return codes

    # ---- share states --------------------------------------------------------------------------------------------

    def _take_share_work(self, group_id: str) -> StateWork | None:
        try:
            return self._runtime.shard(self.partition_for(group_id)).share.take_work(group_id)
        except KafkaError:  # the partition has moved away meanwhile
            return None

    async def share_offsets(self, keys: Sequence[ShareKey]) -> Mapping[ShareKey, StateOffset]:
        """How far a share group is, and its lag; the defaults where that is not known."""
        return await self._share_states.offsets(keys)

    async def alter_share_offsets(
        self, group_id: str, starts: Mapping[Uuid, Beginning]
    ) -> Mapping[tuple[Uuid, int], KafkaError | None]:
        """Let a group begin elsewhere; what came of each partition. Raises KafkaError; see ShareGroups.alter."""
        outcomes: Mapping[tuple[Uuid, int], KafkaError | None] = await self._runtime.write(
            self._member_partition(group_id),
            lambda shard, ticket, now_ms: shard.alter_share_offsets(group_id, starts, ticket),
        )
        return outcomes

    async def delete_share_offsets(
        self, group_id: str, topic_ids: Collection[Uuid]
    ) -> Mapping[Uuid, KafkaError | None]:
        """Let a group forget topics; what came of each. Raises KafkaError; see ShareGroups.forget."""
        outcomes: Mapping[Uuid, KafkaError | None] = await self._runtime.write(
            self._member_partition(group_id),
            lambda shard, ticket, now_ms: shard.share.forget(group_id, topic_ids, ticket),
        )
        return outcomes

    # ---- groups as a whole: the one with the empty id, which has offsets but never members, among them -----------

    def list_groups(self) -> list[GroupListing]:
        """Groups that this broker coordinates. Raises COORDINATOR_LOAD_IN_PROGRESS while any of them is being read."""
        listed: list[GroupListing] = []
        for partition in sorted(self._runtime.partitions):
            listed.extend(self._runtime.shard(partition).reads.listings())
        return listed

    def committed_offsets(self) -> list[tuple[str, TopicPartition, Offset]]:
        """What every group here has committed, but for those whose partition of the offsets topic is still being read. For
        metrics: may be called from another thread."""
        found: list[tuple[str, TopicPartition, Offset]] = []
        for partition, state in sorted(self._runtime.partitions.items()):
            if state is ShardState.ACTIVE:
                with contextlib.suppress(KafkaError):  # it was resigned meanwhile
                    found += self._runtime.shard(partition).offsets.all()
        return found

    def existing_groups(self) -> list[AnyGroup]:
        """Every group here but for those that are still being read, to be read only. For metrics: may be called from another
        thread, and raises RuntimeError there when a group comes or goes meanwhile."""
        found: list[AnyGroup] = []
        for partition, state in sorted(self._runtime.partitions.items()):
            if state is ShardState.ACTIVE:
                with contextlib.suppress(KafkaError):  # it was resigned meanwhile
                    found += self._runtime.shard(partition).reads.all()
        return found

    def describe_group(self, group_id: str) -> GroupDescription:
        """One classic group. Raises KafkaError, GROUP_ID_NOT_FOUND among them."""
        return self._runtime.shard(self.partition_for(group_id)).reads.describe(group_id)

    async def describe_consumer_group(self, group_id: str, *, explains: bool = False) -> ConsumerGroupDescription:
        """One group of the consumer protocol, as it is once all that was decided is committed; `explains`: with findings. Raises
        KafkaError, GROUP_ID_NOT_FOUND among them."""
        described: ConsumerGroupDescription = await self._look(
            group_id,
            lambda shard, now_ms: shard.reads.describe_consumers(group_id, explains=explains, now_ms=now_ms),
        )
        return described

    async def describe_share_group(self, group_id: str) -> ShareGroupDescription:
        """One share group, as describe_consumer_group."""
        described: ShareGroupDescription = await self._look(group_id, lambda shard, _: shard.share.describe(group_id))
        return described

    async def describe_streams_group(self, group_id: str) -> StreamsGroupDescription:
        """One Streams group, as describe_consumer_group."""
        described: StreamsGroupDescription = await self._look(
            group_id, lambda shard, _: shard.reads.describe_streams(group_id)
        )
        return described

    async def _look(self, group_id: str, look: Callable[[GroupShard, int], Any]) -> Any:
        """What is there once all that was decided is committed."""

        def step(shard: GroupShard, ticket: Ticket, now_ms: int) -> CoordinatorResult:
            result = CoordinatorResult()
            result.reply(ticket, look(shard, now_ms))
            return result

        return await self._runtime.write(self._member_partition(group_id), step)

    async def delete_group(self, group_id: str) -> None:
        """Forget a group that has no members, with its offsets. Raises KafkaError; see GroupShard.delete_group."""
        await self._runtime.write(
            self.partition_for(group_id),
            lambda shard, ticket, now_ms: shard.delete_group(group_id, ticket, now_ms=now_ms),
        )

    @property
    def partitions(self) -> dict[int, ShardState]:
        """Led partitions of __consumer_offsets and how far each is."""
        return self._runtime.partitions
