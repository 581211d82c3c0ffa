"""The groups of one `__consumer_offsets` partition: every request finds its group here, every record is replayed here.

May touch:  its arguments.            Must not touch: asyncio, clock, randomness, log, network.
Invariants: `replay` of the log from its start gives the durable state that live steps gave; a group is in memory iff it has
            members, comers, offsets or a record.
Read next:  classic.py (membership, and where its steps are), offsets.py (committed offsets), ../runtime.py (who performs the results).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from itertools import chain
from typing import assert_never

from barnabas_coordination.config import GroupCoordinatorConfig
from barnabas_coordination.errors import (
    GroupIdNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    NonEmptyGroup,
    UnknownMemberId,
)
from barnabas_coordination.group import joining, rebalance, sessions, syncing
from barnabas_coordination.group import records as codec
from barnabas_coordination.group.classic import ClassicGroup
from barnabas_coordination.group.messages import (
    NO_MEMBER,
    CommittedOffset,
    GroupDescription,
    GroupListing,
    JoinRequest,
    LeaveOutcome,
    LeavingMember,
    MemberRef,
    OffsetCommit,
    SyncRequest,
)
from barnabas_coordination.group.offsets import GroupOffsets, commit_records, expired_offsets
from barnabas_coordination.group.pending_offsets import PendingOffsets
from barnabas_coordination.group.protocols import CONSUMER_PROTOCOL_TYPE
from barnabas_coordination.group.records import GroupMetadataRecord, GroupRecord, OffsetCommitRecord
from barnabas_coordination.group.states import GroupState, TimerKey
from barnabas_coordination.shard import (
    CoordinatorResult,
    Marker,
    Pending,
    Ticket,
    TransactionEnd,
    Writer,
)
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import NO_EPOCH, NO_OFFSET, Offset, TopicPartition

CLASSIC = "classic"
NOTHING_COMMITTED = CommittedOffset(NO_OFFSET, NO_EPOCH, "")
EXPIRY = "offsets expiry"
"""Key of the timer that looks for expired offsets."""
EXPIRY_BATCH_RECORDS_MAX = 5_000
"""Most tombstones of one look for expired offsets, about half a megabyte; the rest follows at once."""
EXPIRY_CONTINUE_MS = 100


class GroupShard:
    """State of one partition of `__consumer_offsets`. Meets CoordinatorShard."""

    def __init__(self, config: GroupCoordinatorConfig, *, may_judge_age: Callable[[], bool] = lambda: True) -> None:
        """may_judge_age: whether the broker's clock may be believed now, so that old offsets may go."""
        self._config = config
        self._may_judge_age = may_judge_age
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets: dict[str, GroupOffsets] = {}
        self.pending = PendingOffsets()

    def names(self) -> Iterator[str]:
        """Every group of which the partition holds a record, some of them twice."""
        return chain(self.offsets, self.groups, self.pending.groups())

    # ---- membership ----------------------------------------------------------------------------------------------

    def join(self, request: JoinRequest, ticket: Ticket, *, new_member_id: str, now_ms: int) -> CoordinatorResult:
        """JoinGroup: see joining.join. Only a member without an id founds a group."""
        group = self.groups.get(request.group_id)
        if group is None:
            if request.member_id != NO_MEMBER:
                raise UnknownMemberId(f"there is no group {request.group_id}")
            group = self._new_group(request.group_id)
        result = joining.join(group, request, ticket, new_member_id=new_member_id, now_ms=now_ms)
        self.groups[request.group_id] = group
        return result

    def sync(self, request: SyncRequest, ticket: Ticket, *, now_ms: int) -> CoordinatorResult:
        """SyncGroup: see syncing.sync."""
        return syncing.sync(self._member_group(request.member), request, ticket, now_ms=now_ms)

    def heartbeat(self, member: MemberRef, ticket: Ticket, *, now_ms: int) -> CoordinatorResult:
        """Heartbeat: see sessions.heartbeat."""
        return sessions.heartbeat(self._member_group(member), member, ticket)

    def leave(
        self, group_id: str, members: Sequence[LeavingMember], ticket: Ticket, *, now_ms: int
    ) -> CoordinatorResult:
        """LeaveGroup; every member of an unknown group is unknown."""
        group = self.groups.get(group_id)
        if group is not None:
            return sessions.leave(group, members, ticket, now_ms=now_ms)
        result = CoordinatorResult()
        result.reply(ticket, tuple(LeaveOutcome(*leaving, ErrorCode.UNKNOWN_MEMBER_ID) for leaving in members))
        return result

    def abandon(self, group_id: str, ticket: Ticket, *, now_ms: int) -> CoordinatorResult:
        """Nobody waits for this ticket any more: see sessions.abandon."""
        group = self.groups.get(group_id)
        return CoordinatorResult() if group is None else sessions.abandon(group, ticket, now_ms=now_ms)

    def forget_pending(self, group_id: str, member_id: str, *, now_ms: int) -> CoordinatorResult:
        """Nobody will come back under this id: see sessions.forget_pending."""
        group = self.groups.get(group_id)
        if group is None:
            return CoordinatorResult()
        result = sessions.forget_pending(group, member_id, now_ms=now_ms)
        self._forget_if_vacant(group)
        return result

    def _member_group(self, member: MemberRef) -> ClassicGroup:
        group = self.groups.get(member.group_id)
        if group is None:
            raise UnknownMemberId(f"there is no group {member.group_id}")
        return group

    def _new_group(self, group_id: str) -> ClassicGroup:
        return ClassicGroup(
            group_id,
            initial_rebalance_delay_ms=self._config.group_initial_rebalance_delay_ms,
            max_size=self._config.group_max_size,
        )

    # ---- offsets -------------------------------------------------------------------------------------------------

    def commit_offsets(self, commit: OffsetCommit, ticket: Ticket, *, now_ms: int) -> CoordinatorResult:
        """OffsetCommit. The reply is one ErrorCode per offset, in order.

        Raises KafkaError as sessions.allow_commit, and ILLEGAL_GENERATION for a generation of a group that is not there.
        """
        group = self.groups.get(commit.member.group_id)
        if group is not None:
            result = sessions.allow_commit(group, commit.member)
        elif commit.member.generation < 0:
            result = CoordinatorResult()
        else:
            raise IllegalGeneration(f"there is no group {commit.member.group_id}")
        records, codes = commit_records(
            commit, metadata_units_max=self._config.offset_metadata_max_bytes, now_ms=now_ms
        )
        result.records.extend(records)
        result.reply(ticket, codes)
        return result

    def commit_in_transaction(
        self, commit: OffsetCommit, writer: Writer, ticket: Ticket, *, now_ms: int
    ) -> CoordinatorResult:
        """TxnOffsetCommit: as commit_offsets, but nothing counts before the transaction's marker.

        Raises KafkaError as sessions.allow_commit_in_transaction, and ILLEGAL_GENERATION (KIP-447).
        """
        group = self.groups.get(commit.member.group_id)
        if group is not None:
            sessions.allow_commit_in_transaction(group, commit.member)
        elif commit.member.generation >= 0:
            raise IllegalGeneration(f"there is no group {commit.member.group_id}")
        records, codes = commit_records(
            commit, metadata_units_max=self._config.offset_metadata_max_bytes, now_ms=now_ms
        )
        result = CoordinatorResult(records=list(records), writer=writer if records else None)
        result.reply(ticket, codes)
        return result

    def end_transaction(self, marker: Marker, ticket: Ticket) -> CoordinatorResult:
        """WriteTxnMarkers for this partition; the reply is None once the marker is committed."""
        result = CoordinatorResult(marker=marker)
        result.reply(ticket, None)
        return result

    def is_unstable(self, group_id: str, key: TopicPartition) -> bool:
        """Whether a transaction may still change what is committed for the partition."""
        return self.pending.is_unstable(group_id, key)

    def fetch_offset(self, group_id: str, key: TopicPartition) -> CommittedOffset:
        """What the group has committed for one partition; NOTHING_COMMITTED when nothing."""
        offsets = self.offsets.get(group_id)
        value = None if offsets is None else offsets.committed.get(key)
        if value is None:
            return NOTHING_COMMITTED
        return CommittedOffset(value.offset, value.leader_epoch, value.metadata, value.topic_id)

    def committed_partitions(self, group_id: str) -> list[TopicPartition]:
        """Partitions for which the group has committed something, sorted."""
        offsets = self.offsets.get(group_id)
        return [] if offsets is None else sorted(offsets.committed)

    def committed_offsets(self) -> list[tuple[str, TopicPartition, Offset]]:
        """All that is committed: group, partition, offset. Each dict is copied by one call: another thread may ask."""
        return [
            (group_id, key, value.offset)
            for group_id, offsets in list(self.offsets.items())
            for key, value in list(offsets.committed.items())
        ]

    def delete_offsets(
        self, group_id: str, keys: Sequence[TopicPartition], ticket: Ticket, *, now_ms: int
    ) -> CoordinatorResult:
        """OffsetDelete (KIP-496). The reply is one ErrorCode per partition, in order.

        Raises KafkaError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP for a group with members that are not consumers.
        """
        group = self._existing_group(group_id)
        has_members = group.state is not GroupState.EMPTY
        if has_members and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise NonEmptyGroup(f"group {group_id} has members")
        present = self._offsets_of(group_id)
        result = CoordinatorResult()
        codes = []
        for key in keys:
            if has_members and group.is_subscribed_to(key.topic):
                codes.append(GroupSubscribedToTopic.code)
                continue
            codes.append(ErrorCode.NONE)
            if key in present:
                result.records.append(OffsetCommitRecord(group_id, key.topic, key.partition, None))
        result.reply(ticket, tuple(codes))
        return result

    def delete_topics(self, topics: Collection[str], *, now_ms: int) -> CoordinatorResult:
        """The topics are gone from the cluster: so are the offsets committed for them."""
        result = CoordinatorResult()
        for group_id in self.offsets:
            for key in self._offsets_of(group_id):
                if key.topic in topics:
                    result.records.append(OffsetCommitRecord(group_id, key.topic, key.partition, None))
        return result

    def _offsets_of(self, group_id: str) -> set[TopicPartition]:
        offsets = self.offsets.get(group_id)
        return set() if offsets is None else set(offsets.latest())

    # ---- groups as a whole ---------------------------------------------------------------------------------------

    def list_groups(self) -> list[GroupListing]:
        """Every group here, by id."""
        return [
            GroupListing(group.group_id, group.protocol_type or "", group.state.value, CLASSIC)
            for group in self.existing_groups()
        ]

    def existing_groups(self) -> list[ClassicGroup]:
        """The same, to be read only."""
        return [group for _, group in sorted(self.groups.items()) if not self._is_forgettable(group)]

    def describe_group(self, group_id: str) -> GroupDescription:
        """One group. Raises KafkaError GROUP_ID_NOT_FOUND."""
        return self._existing_group(group_id).describe()

    def delete_group(self, group_id: str, ticket: Ticket, *, now_ms: int) -> CoordinatorResult:
        """DeleteGroups, one of them. Raises KafkaError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        group = self._existing_group(group_id)
        if group.state is not GroupState.EMPTY:
            raise NonEmptyGroup(f"group {group_id} has members")
        result = CoordinatorResult()
        # what open transactions wrote goes too: their markers must not bring it back
        keys = self._offsets_of(group_id).union(self.pending.keys_of(group_id))
        result.records.extend(self._tombstones(group_id, sorted(keys)))
        if group.has_record:
            result.records.append(GroupMetadataRecord(group_id, None))
        result.reply(ticket, None)
        return result

    def _existing_group(self, group_id: str) -> ClassicGroup:
        group = self.groups.get(group_id)
        if group is None or self._is_forgettable(group):
            raise GroupIdNotFound(f"there is no group {group_id}")
        return group

    def _tombstones(self, group_id: str, keys: Iterable[TopicPartition]) -> list[OffsetCommitRecord]:
        return [OffsetCommitRecord(group_id, key.topic, key.partition, None) for key in keys]

    # ---- time ----------------------------------------------------------------------------------------------------

    def on_loaded(self, *, now_ms: int) -> CoordinatorResult:
        """Give every member of every group a fresh session and start looking for expired offsets."""
        result = CoordinatorResult()
        for group in self.groups.values():
            result.timers.extend(sessions.resume(group).timers)
        result.arm(EXPIRY, self._config.offsets_retention_check_interval_ms)
        return result

    def on_timer(self, key: Hashable, *, now_ms: int) -> CoordinatorResult:
        """A timer of a group, or of this shard, fired."""
        if key == EXPIRY:
            return self._expire(now_ms)
        assert isinstance(key, TimerKey), key
        group = self.groups.get(key.group_id)
        if group is None:
            return CoordinatorResult()
        result = sessions.on_timer(group, key, now_ms=now_ms)
        self._forget_if_vacant(group)
        return result

    def _expire(self, now_ms: int) -> CoordinatorResult:
        result = CoordinatorResult()
        if not self._may_judge_age():
            result.arm(EXPIRY, self._config.offsets_retention_check_interval_ms)
            return result
        retention_ms = self._config.offsets_retention_minutes * 60_000
        for group_id, group in list(self.groups.items()):
            if len(result.records) >= EXPIRY_BATCH_RECORDS_MAX:
                result.arm(EXPIRY, EXPIRY_CONTINUE_MS)
                return result
            offsets = self.offsets.get(group_id)
            left = self._offsets_of(group_id)
            if offsets is not None:
                gone = [
                    key
                    for key in expired_offsets(group, offsets, now_ms=now_ms, retention_ms=retention_ms)
                    if not self.pending.is_unstable(group_id, key)
                ]
                result.records.extend(self._tombstones(group_id, gone))
                left.difference_update(gone)
            if self.pending.has_group(group_id):
                continue
            if not left and group.state is GroupState.EMPTY and group.has_record and not group.pending_members:
                result.records.append(GroupMetadataRecord(group_id, None))
            self._forget_if_vacant(group)
        result.arm(EXPIRY, self._config.offsets_retention_check_interval_ms)
        return result

    # ---- replay --------------------------------------------------------------------------------------------------

    def encode(self, record: GroupRecord) -> tuple[bytes, bytes | None]:
        """Typed record -> key and value."""
        return codec.encode(record)

    def decode(self, key: bytes, value: bytes | None) -> GroupRecord | None:
        """Key and value -> typed record, None when it is not of the classic protocol."""
        return codec.decode(key, value)

    def replay(self, record: GroupRecord | Pending | TransactionEnd) -> None:
        """Change state by one record."""
        match record:
            case OffsetCommitRecord():
                self.pending.supersede(record)
                self._replay_offset(record)
            case Pending(producer_id, written):
                self.pending.write(producer_id, written)
                self._found_group(written.group_id)
            case TransactionEnd(producer_id, is_commit):
                for counting in self.pending.end(producer_id, is_commit=is_commit):
                    self._replay_offset(counting)
            case GroupMetadataRecord():
                self._replay_group(record)
            case _:
                assert_never(record)

    def _replay_offset(self, record: OffsetCommitRecord) -> None:
        group_id = record.group_id
        offsets = self.offsets.setdefault(group_id, GroupOffsets())
        offsets.replay(TopicPartition(record.topic, record.partition), record.value)
        if record.value is not None:
            self._found_group(group_id)
        elif group_id in self.groups:
            self._forget_if_vacant(self.groups[group_id])

    def _found_group(self, group_id: str) -> None:
        if group_id not in self.groups:
            self.groups[group_id] = self._new_group(group_id)

    def _replay_group(self, record: GroupMetadataRecord) -> None:
        group = self.groups.get(record.group_id)
        if record.value is not None:
            if group is None:
                group = self.groups[record.group_id] = self._new_group(record.group_id)
            group.replay(record.value)
        elif group is not None:
            group.die()
            del self.groups[record.group_id]
            if self._offsets_of(record.group_id):
                # Not what this coordinator writes, but a compacted log may bring the tombstone before older offsets.
                self.groups[record.group_id] = self._new_group(record.group_id)

    def on_refused(self, result: CoordinatorResult, error: KafkaError) -> CoordinatorResult:
        """Records could not be appended; a generation among them needs its group's care, see rebalance.on_refused."""
        for record in result.records:
            if isinstance(record, GroupMetadataRecord) and record.value is not None:
                return rebalance.on_refused(self.groups[record.group_id], record.value, result, error)
        return result.refused(error)

    def on_committed(self, record: GroupRecord | Pending | TransactionEnd) -> None:
        """The record is below the high watermark: readers may see it."""
        if isinstance(record, OffsetCommitRecord):
            self._settle(record)
        elif isinstance(record, TransactionEnd):
            for counting in self.pending.on_end_committed():
                self._settle(counting)

    def _settle(self, record: OffsetCommitRecord) -> None:
        offsets = self.offsets[record.group_id]
        offsets.on_committed(TopicPartition(record.topic, record.partition))
        if offsets.is_settled_and_empty:
            del self.offsets[record.group_id]

    def _is_forgettable(self, group: ClassicGroup) -> bool:
        group_id = group.group_id
        return group.is_vacant and not self._offsets_of(group_id) and not self.pending.has_group(group_id)

    def _forget_if_vacant(self, group: ClassicGroup) -> None:
        if self._is_forgettable(group):
            self.groups.pop(group.group_id, None)
