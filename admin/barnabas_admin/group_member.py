"""A member of a classic consumer group, for `topic consume -g`: joins, gets partitions, keeps its place, commits.

May touch:  barnabas_wire.client.     Must not touch: printing, records.
Invariants: a generation's offsets are committed before it is left; the assignor is `range`, which every client has, so that a group may
            have members of other clients.
Read next:  consuming.py, which reads what it is assigned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from barnabas_wire.client.metadata import known_code
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.kafka.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
    decode_blob,
    encode_blob,
)
from barnabas_wire.kafka.messages.heartbeat import HeartbeatRequest
from barnabas_wire.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas_wire.kafka.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas_wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas_wire.kafka.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from barnabas_wire.kafka.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

if TYPE_CHECKING:
    from barnabas_wire.client.cluster import ClusterClient

RANGE = "range"
SESSION_TIMEOUT_MS = 30_000
HEARTBEAT_PAUSE_S = 2.0
_REJOIN = frozenset(
    (
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.MEMBER_ID_REQUIRED,
    )
)


def assign_by_range(
    subscriptions: Mapping[str, Sequence[str]], partitions: Mapping[str, Sequence[int]]
) -> dict[str, list[TopicPartition]]:
    """Kafka's range assignor: of each topic, members in order of their ids get runs of its partitions, the first ones one more."""
    found: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
    for topic, indexes in sorted(partitions.items()):
        members = sorted(member for member, topics in subscriptions.items() if topic in topics)
        if not members:
            continue
        share, more = divmod(len(indexes), len(members))
        at = 0
        for number, member in enumerate(members):
            count = share + (number < more)
            found[member] += [TopicPartition(topic, index) for index in sorted(indexes)[at : at + count]]
            at += count
    return found


class GroupMember:
    """One member. `join_timeout_s` bounds how long the others may take to come to a rebalance."""

    def __init__(self, client: ClusterClient, group: str, topics: Sequence[str], *, join_timeout_s: float) -> None:
        self._client = client
        self._group = group
        self._topics = sorted(topics)
        self._join_timeout_ms = int(join_timeout_s * 1000)
        self._member_id = ""
        self._generation = -1
        self._heartbeat_at_s = 0.0

    async def join(self) -> list[TopicPartition]:
        """Take part in a rebalance; what this member reads now. Raises KafkaError."""
        subscription = encode_blob(ConsumerProtocolSubscription(topics=self._topics), 0)
        while True:
            answer = await self._client.call_coordinator(
                self._group,
                JoinGroupRequest(
                    group_id=self._group,
                    session_timeout_ms=SESSION_TIMEOUT_MS,
                    rebalance_timeout_ms=self._join_timeout_ms,
                    member_id=self._member_id,
                    protocol_type="consumer",
                    protocols=[JoinGroupRequestProtocol(RANGE, subscription)],
                ),
            )
            if self._must_rejoin(answer.error_code, "joining"):
                self._member_id = answer.member_id if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED else ""
                continue
            self._member_id, self._generation = answer.member_id, answer.generation_id
            assignments = []
            if answer.leader == self._member_id and not answer.skip_assignment:
                assignments = await self._assign({m.member_id: bytes(m.metadata) for m in answer.members})
            synced = await self._client.call_coordinator(
                self._group,
                SyncGroupRequest(
                    group_id=self._group,
                    generation_id=self._generation,
                    member_id=self._member_id,
                    protocol_type="consumer",
                    protocol_name=RANGE,
                    assignments=assignments,
                ),
            )
            if self._must_rejoin(synced.error_code, "waiting for the assignment"):
                continue
            self._heartbeat_at_s = asyncio.get_running_loop().time()
            assigned = decode_blob(ConsumerProtocolAssignment, synced.assignment) if synced.assignment else None
            return sorted(
                TopicPartition(topic.topic, index)
                for topic in (assigned.assigned_partitions if assigned else ())
                for index in topic.partitions
            )

    async def _assign(self, metadata: Mapping[str, bytes]) -> list[SyncGroupRequestAssignment]:
        wanted = {member: decode_blob(ConsumerProtocolSubscription, blob).topics for member, blob in metadata.items()}
        view = await self._client.metadata(sorted({topic for topics in wanted.values() for topic in topics}))
        shares = assign_by_range(wanted, {topic: list(found) for topic, found in view.topics.items()})
        return [
            SyncGroupRequestAssignment(member, encode_blob(ConsumerProtocolAssignment(_by_topic(share)), 0))
            for member, share in shares.items()
        ]

    async def must_rejoin(self) -> bool:
        """Whether the group rebalances; sends a heartbeat when one is due."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._heartbeat_at_s < HEARTBEAT_PAUSE_S:
            return False
        self._heartbeat_at_s = now_s
        answer = await self._client.call_coordinator(
            self._group,
            HeartbeatRequest(group_id=self._group, generation_id=self._generation, member_id=self._member_id),
        )
        return self._must_rejoin(answer.error_code, "sending a heartbeat")

    def _must_rejoin(self, code: int, doing: str) -> bool:
        if not code:
            return False
        error = known_code(code)
        if error not in _REJOIN:
            raise KafkaError.of(error, f"{doing} as a member of {self._group}")
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
        return True

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The group's offsets of those partitions that have one."""
        answer = await self._client.call_coordinator(
            self._group,
            OffsetFetchRequest(
                group_id=self._group,
                topics=None,
                groups=[OffsetFetchRequestGroup(group_id=self._group, topics=None)],
                require_stable=True,
            ),
        )
        wanted = frozenset(partitions)
        view = await self._client.metadata(self._topics)
        names = {topic_id: name for name, topic_id in view.topic_ids.items()}
        found = {
            TopicPartition(topic.name or names.get(topic.topic_id, ""), part.partition_index): part.committed_offset
            for group in answer.groups
            for topic in group.topics
            for part in topic.partitions
            if part.committed_offset >= 0
        }
        return {partition: offset for partition, offset in found.items() if partition in wanted}

    async def commit(self, positions: Mapping[TopicPartition, int]) -> None:
        """Commit where reading continues. A group that rebalances meanwhile takes no commit of the old generation: what was read
        since the last one is read again by whoever gets the partition."""
        if not positions:
            return
        view = await self._client.metadata(self._topics)
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member_id,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic.topic,
                    topic_id=view.topic_ids[topic.topic],
                    partitions=[
                        OffsetCommitRequestPartition(index, positions[TopicPartition(topic.topic, index)], -1, "")
                        for index in topic.partitions
                    ],
                )
                for topic in _by_topic(positions)
            ],
        )
        answer = await self._client.call_coordinator(self._group, request)
        for topic in answer.topics:
            for part in topic.partitions:
                self._must_rejoin(part.error_code, "committing")

    async def leave(self) -> None:
        """Let the others have the partitions at once."""
        member = MemberIdentity(member_id=self._member_id)
        request = LeaveGroupRequest(group_id=self._group, member_id=self._member_id, members=[member])
        await self._client.call_coordinator(self._group, request)


def _by_topic(partitions: Iterable[TopicPartition]) -> list[TopicPartitions]:
    by_topic: dict[str, list[int]] = {}
    for partition in sorted(partitions):
        by_topic.setdefault(partition.topic, []).append(partition.partition)
    return [TopicPartitions(topic, indexes) for topic, indexes in by_topic.items()]
