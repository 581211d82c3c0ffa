"""The groups of one `__consumer_offsets` partition: every request finds its group here, every record is replayed here.

May touch:  its arguments.            Must not touch: asyncio, clock, randomness, log, network.
Invariants: `replay` of the log from its start gives the durable state that live steps gave; a group is in memory iff it has
            members, comers, offsets or a record.
Read next:  classic.py (membership, and where its steps are), committed_offsets.py, reads.py, ../runtime.py (who performs the results).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from itertools import chain

from barnabas_coordination.config import GroupCoordinatorConfig
from barnabas_coordination.errors import (
    GroupIdNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    InconsistentGroupProtocol,
    NonEmptyGroup,
    UnknownMemberId,
)
from barnabas_coordination.group import joining, rebalance, sessions, syncing
from barnabas_coordination.group import records as codec
from barnabas_coordination.group.any_group import AnyGroup, CommittingGroup, LedGroup
from barnabas_coordination.group.classic import ClassicGroup
from barnabas_coordination.group.committed_offsets import CommittedOffsets
from barnabas_coordination.group.consumer import classic_members, commits, fencing, migration, slices
from barnabas_coordination.group.consumer import heartbeat as consumer_heartbeat
from barnabas_coordination.group.consumer.group import ConsumerGroup
from barnabas_coordination.group.consumer.messages import (
    ConsumerHeartbeat,
    Surroundings,
)
from barnabas_coordination.group.consumer.migration import MigrationPolicy
from barnabas_coordination.group.consumer.records import (
    ConsumerGroupMetadataRecord,
    ConsumerGroupPartitionMetadataRecord,
    ConsumerRecord,
)
from barnabas_coordination.group.consumer.soft_state import SoftState
from barnabas_coordination.group.led_records import JOINS
from barnabas_coordination.group.messages import (
    NO_MEMBER,
    JoinRequest,
    LeaveOutcome,
    LeavingMember,
    MemberRef,
    OffsetCommit,
    SyncRequest,
)
from barnabas_coordination.group.offsets import commit_records
from barnabas_coordination.group.protocols import CONSUMER_PROTOCOL_TYPE
from barnabas_coordination.group.reads import GroupReads
from barnabas_coordination.group.records import GroupMetadataRecord, GroupRecord, OffsetCommitRecord
from barnabas_coordination.group.share import fencing as share_fencing
from barnabas_coordination.group.share import offsets as share_offsets
from barnabas_coordination.group.share.group import ShareGroup, ShareSoftState
from barnabas_coordination.group.share.messages import ShareHeartbeat
from barnabas_coordination.group.share.records import (
    Beginning,
    ShareGroupMetadataRecord,
    ShareGroupStatePartitionMetadataRecord,
    ShareRecord,
)
from barnabas_coordination.group.share.steps import ShareGroups
from barnabas_coordination.group.states import GroupState, RebalanceReason, TimerKey, TimerKind, session_timer
from barnabas_coordination.group.streams import fencing as streams_fencing
from barnabas_coordination.group.streams import heartbeat as streams_heartbeat
from barnabas_coordination.group.streams import target as streams_target
from barnabas_coordination.group.streams.group import StreamsGroup
from barnabas_coordination.group.streams.messages import (
    StreamsHeartbeat,
    StreamsSurroundings,
)
from barnabas_coordination.group.streams.records import StreamsGroupTopologyRecord, StreamsRecord
from barnabas_coordination.group.streams.soft_state import StreamsSoftState
from barnabas_coordination.group.surroundings import around_consumers, around_streams
from barnabas_coordination.shard import (
    ArmTimer,
    CoordinatorResult,
    Marker,
    Pending,
    Reply,
    Ticket,
    TransactionEnd,
    Writer,
)
from barnabas_coordination.share_group_config import ShareGroupConfig
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import TopicPartition, Uuid

LAST_OF_GROUP = (ConsumerGroupMetadataRecord, ShareGroupMetadataRecord, StreamsGroupTopologyRecord)
"""The record whose tombstone is the last that a group of each protocol leaves behind."""
EXPIRY = "offsets expiry"
"""Key of the timer that looks for expired offsets."""
EXPIRY_BATCH_RECORDS_MAX = 5_000
"""Most tombstones of one look for expired offsets, about half a megabyte; the rest follows at once."""
EXPIRY_CONTINUE_MS = 100


class GroupShard:
    """State of one partition of `__consumer_offsets`. Meets CoordinatorShard."""

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        *,
        share_config: ShareGroupConfig | None = None,
        may_judge_age: Callable[[], bool] = lambda: True,
        image: Callable[[], MetadataImage] = lambda: MetadataImage.EMPTY,
        on_share_work: Callable[[str], None] = lambda group_id: None,
    ) -> None:
        """may_judge_age: whether the broker's clock may be believed now, so that old offsets may go; `image`: the metadata of now, which
        groups of the consumer protocol assign by; on_share_work: hears of share groups with something to ask share coordinators."""
        self._config = config
        self._may_judge_age = may_judge_age
        self._image = image
        self.groups: dict[str, AnyGroup] = {}
        self.share = ShareGroups(
            share_config or ShareGroupConfig(), groups=self.groups, image=image, on_work=on_share_work
        )
        self._overruled: dict[tuple[type[LedGroup], str], LedGroup] = {}
        """What the log has of consumer groups under the names of classic ones, and of Streams groups under those of either: a version
        that does not know them coordinated here meanwhile. It goes once the log is read."""
        self._founding: dict[str, SoftState | ShareSoftState | StreamsSoftState] = {}
        """Groups whose first record is being written: the group that the record makes takes over what this step began."""
        self.offsets = CommittedOffsets()
        self.reads = GroupReads(config, image=image, groups=self.groups, offsets=self.offsets)

    def names(self) -> Iterator[str]:
        """Every group of which the partition holds a record, some of them twice."""
        return chain(self.offsets.groups(), self.groups)

    # ---- membership ----------------------------------------------------------------------------------------------

    def join(self, request: JoinRequest, ticket: Ticket, *, new_member_id: str, now_ms: int) -> CoordinatorResult:
        """JoinGroup: see joining.join. Only a member without an id founds a group."""
        group = self.groups.get(request.group_id)
        tombstones: list[GroupRecord] = []
        if isinstance(group, StreamsGroup) and group.members:
            raise InconsistentGroupProtocol(
                f"group {request.group_id} has members of group.protocol=streams: join with that, or wait until they are gone"
            )
        if isinstance(group, ShareGroup):
            raise InconsistentGroupProtocol(
                f"group {request.group_id} is a share group: take another group.id, or delete it"
            )
        if isinstance(group, ConsumerGroup) and group.members:
            return self._join_consumers(group, request, ticket, new_member_id=new_member_id, now_ms=now_ms)
        if group is not None and not isinstance(group, ClassicGroup):
            # An empty group is of no protocol: it becomes what its first member speaks.
            tombstones = _group_tombstones(group)
            group = None
        if group is None:
            if request.member_id != NO_MEMBER:
                raise UnknownMemberId(f"there is no group {request.group_id}")
            group = self._new_group(request.group_id)
        result = joining.join(group, request, ticket, new_member_id=new_member_id, now_ms=now_ms)
        result.records[:0] = tombstones
        self.groups[request.group_id] = group
        return result

    def _join_consumers(
        self, group: ConsumerGroup, request: JoinRequest, ticket: Ticket, *, new_member_id: str, now_ms: int
    ) -> CoordinatorResult:
        if MigrationPolicy(self._config.group_consumer_migration_policy.lower()) is MigrationPolicy.DISABLED:
            raise InconsistentGroupProtocol(
                f"group {request.group_id} has members of group.protocol=consumer: join with that, or wait until they are gone"
            )
        around = self._around(group.group_id, now_ms)
        return classic_members.join(group, request, ticket, around, new_member_id=new_member_id)

    def sync(self, request: SyncRequest, ticket: Ticket, *, now_ms: int) -> CoordinatorResult:
        """SyncGroup: see syncing.sync."""
        group = self._member_group(request.member)
        if isinstance(group, ConsumerGroup):
            return classic_members.sync(group, request, ticket, self._around(group.group_id, now_ms))
        return syncing.sync(group, request, ticket, now_ms=now_ms)

    def heartbeat(self, member: MemberRef, ticket: Ticket, *, now_ms: int) -> CoordinatorResult:
        """Heartbeat: see sessions.heartbeat."""
        group = self._member_group(member)
        if isinstance(group, ConsumerGroup):
            return classic_members.heartbeat(group, member, ticket, self._around(group.group_id, now_ms))
        return sessions.heartbeat(group, member, ticket)

    def leave(
        self, group_id: str, members: Sequence[LeavingMember], ticket: Ticket, *, now_ms: int
    ) -> CoordinatorResult:
        """LeaveGroup; every member of an unknown group is unknown."""
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return sessions.leave(group, members, ticket, now_ms=now_ms)
        if isinstance(group, ConsumerGroup):
            return classic_members.leave(group, members, ticket, self._image().topics)
        result = CoordinatorResult()
        result.reply(ticket, tuple(LeaveOutcome(*leaving, ErrorCode.UNKNOWN_MEMBER_ID) for leaving in members))
        return result

    def abandon(self, group_id: str, ticket: Ticket, *, now_ms: int) -> CoordinatorResult:
        """No request waits for this ticket any more: see sessions.abandon."""
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return sessions.abandon(group, ticket, now_ms=now_ms)
        return CoordinatorResult()

    def forget_pending(self, group_id: str, member_id: str, *, now_ms: int) -> CoordinatorResult:
        """No member will come back under this id: see sessions.forget_pending."""
        group = self.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            return CoordinatorResult()
        result = sessions.forget_pending(group, member_id, now_ms=now_ms)
        self._forget_if_vacant(group)
        return result

    def _member_group(self, member: MemberRef) -> ClassicGroup | ConsumerGroup:
        group = self.groups.get(member.group_id)
        if group is None or isinstance(group, ShareGroup | StreamsGroup):
            raise UnknownMemberId(f"there is no group {member.group_id} that has members of group.protocol=classic")
        return group

    def consumer_heartbeat(self, request: ConsumerHeartbeat, ticket: Ticket, *, now_ms: int) -> CoordinatorResult:
        """ConsumerGroupHeartbeat: see consumer/heartbeat.py. Only a member that joins founds a group, or takes over an empty one.

        Raises KafkaError as consumer_heartbeat.heartbeat, and GROUP_ID_NOT_FOUND.
        """
        group = self.groups.get(request.group_id)
        first = CoordinatorResult()
        if isinstance(group, ClassicGroup):
            if request.epoch != JOINS:
                raise GroupIdNotFound(f"group {request.group_id} is of group.protocol=classic")
            group = migration.upgrade(group, self._config, self._image().topics, first)
        if isinstance(group, ShareGroup | StreamsGroup):
            raise GroupIdNotFound(
                f"group {request.group_id} is of group.protocol={group.type_name}: take another group.id"
            )
        if group is None:
            if request.epoch != JOINS:
                raise GroupIdNotFound(f"there is no group {request.group_id}")
            group = ConsumerGroup(request.group_id)
        around = self._around(request.group_id, now_ms)
        if request.epoch < JOINS:
            return fencing.leave(group, request, ticket, around.topics)
        result = consumer_heartbeat.heartbeat(group, request, ticket, around)
        self._begin(group, first, result)
        return result

    def _begin(self, group: LedGroup, first: CoordinatorResult, result: CoordinatorResult) -> None:
        """Put what makes way for a group before what its member wants; the group that the records make has what the step began."""
        result.records[:0] = first.records
        result.replies[:0] = first.replies
        result.timers[:0] = first.timers
        if result.records and self.groups.get(group.group_id) is not group:
            self._founding[group.group_id] = group.soft

    def streams_heartbeat(self, request: StreamsHeartbeat, ticket: Ticket, *, now_ms: int) -> CoordinatorResult:
        """StreamsGroupHeartbeat: see streams/heartbeat.py. Only a member that joins founds a group, or takes over an empty classic one.

        Raises KafkaError as streams_heartbeat.heartbeat, and GROUP_ID_NOT_FOUND.
        """
        group = self.groups.get(request.group_id)
        first = CoordinatorResult()
        if isinstance(group, ClassicGroup) and not group.members and request.epoch == JOINS:
            migration.retire(group, first)
            group = None
        if group is None and request.epoch == JOINS:
            group = StreamsGroup(request.group_id)
        if not isinstance(group, StreamsGroup):
            raise GroupIdNotFound(
                f"there is no group {request.group_id}"
                if group is None
                else f"group {request.group_id} is of group.protocol={group.type_name}: stop its members, or take another application.id"
            )
        if request.epoch < JOINS:
            return streams_fencing.leave(group, request, ticket)
        around = self._around_streams(request.group_id, now_ms)
        result = streams_heartbeat.heartbeat(group, request, ticket, around)
        self._begin(group, first, result)
        return result

    def share_heartbeat(self, request: ShareHeartbeat, ticket: Ticket, *, now_ms: int) -> CoordinatorResult:
        """ShareGroupHeartbeat: see ShareGroups.heartbeat."""
        group, result = self.share.heartbeat(request, ticket, now_ms=now_ms)
        self._begin(group, CoordinatorResult(), result)
        return result

    def alter_share_offsets(self, group_id: str, starts: Mapping[Uuid, Beginning], ticket: Ticket) -> CoordinatorResult:
        """AlterShareGroupOffsets: see ShareGroups.alter."""
        group, result = self.share.alter(group_id, starts, ticket)
        self._begin(group, CoordinatorResult(), result)
        return result

    def _around(self, group_id: str, now_ms: int) -> Surroundings:
        return around_consumers(self._config, self._image(), group_id, now_ms=now_ms)

    def _around_streams(self, group_id: str, now_ms: int) -> StreamsSurroundings:
        return around_streams(self._config, self._image(), group_id, now_ms=now_ms)

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
        self.share.refuse_commits(commit.member.group_id)
        if isinstance(group, StreamsGroup):
            commits.allow_commit(group, commit)
            result = CoordinatorResult()
        elif isinstance(group, ConsumerGroup):
            commits.allow_commit(group, commit)
            result = CoordinatorResult()
            member = group.members.get(commit.member.member_id)
            if member is not None and member.metadata.classic is not None:
                timeout_ms = member.metadata.classic.session_timeout_ms
                result.arm(session_timer(group.group_id, member.member_id), timeout_ms)
        elif isinstance(group, ClassicGroup):
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

        Raises KafkaError as sessions.allow_commit_in_transaction, and for a generation of a group that is not there ILLEGAL_GENERATION
        (KIP-447), or GROUP_ID_NOT_FOUND where the version knows it.
        """
        group = self.groups.get(commit.member.group_id)
        self.share.refuse_commits(commit.member.group_id)
        if isinstance(group, CommittingGroup):
            commits.allow_commit(group, commit, is_transactional=True)
        elif isinstance(group, ClassicGroup):
            sessions.allow_commit_in_transaction(group, commit.member)
        elif commit.member.generation >= 0:
            missing = GroupIdNotFound if commit.knows_epochs else IllegalGeneration
            raise missing(f"there is no group {commit.member.group_id}")
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

    def allow_fetch(self, group_id: str, member_id: str, epoch: int) -> None:
        """Whether a member may fetch offsets by its epoch: see commits.allow_fetch; classic members are not asked."""
        group = self.groups.get(group_id)
        self.share.refuse_commits(group_id)
        if isinstance(group, CommittingGroup):
            commits.allow_fetch(group, member_id, epoch)

    def delete_offsets(
        self, group_id: str, keys: Sequence[TopicPartition], ticket: Ticket, *, now_ms: int
    ) -> CoordinatorResult:
        """OffsetDelete (KIP-496). The reply is one ErrorCode per partition, in order.

        Raises KafkaError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP for a group with members that are not consumers.
        """
        group = self.reads.existing(group_id)
        self.share.refuse_commits(group_id)
        has_members = group.state is not GroupState.EMPTY if isinstance(group, ClassicGroup) else bool(group.members)
        if has_members and isinstance(group, ClassicGroup) and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise NonEmptyGroup(f"group {group_id} has members")
        present = self.offsets.keys(group_id)
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
        result.records.extend(self.share.on_topics_deleted(topics))
        result.records.extend(self.offsets.tombstones_of_topics(topics))
        return result

    # ---- groups as a whole ---------------------------------------------------------------------------------------

    def delete_group(self, group_id: str, ticket: Ticket, *, now_ms: int) -> CoordinatorResult:
        """DeleteGroups, one of them. Raises KafkaError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        group = self.reads.existing(group_id)
        if isinstance(group, ShareGroup):
            return share_offsets.delete(group, ticket)
        if group.state != GroupState.EMPTY:
            raise NonEmptyGroup(f"group {group_id} has members")
        result = CoordinatorResult()
        result.records.extend(self.offsets.tombstones_of(group_id))
        result.records.extend(_group_tombstones(group))
        result.reply(ticket, None)
        return result

    # ---- time ----------------------------------------------------------------------------------------------------

    def on_loaded(self, *, now_ms: int) -> CoordinatorResult:
        """Give every member of every group a fresh session and start looking for expired offsets."""
        result = CoordinatorResult()
        for group in self.groups.values():
            if isinstance(group, ClassicGroup):
                result.timers.extend(sessions.resume(group).timers)
            elif isinstance(group, ShareGroup):
                self.share.resume(group, result)
            elif isinstance(group, StreamsGroup):
                settings = self._around_streams(group.group_id, now_ms).settings
                result.timers.extend(streams_fencing.resume(group, settings).timers)
            else:
                result.timers.extend(fencing.resume(group, self._around(group.group_id, now_ms).settings).timers)
        for overruled in self._overruled.values():
            result.records.extend(_group_tombstones(overruled))
        self._overruled.clear()
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
        if isinstance(group, ShareGroup):
            return self.share.on_timer(group, key, now_ms=now_ms)
        if isinstance(group, StreamsGroup):
            if key.kind in (TimerKind.SESSION, TimerKind.REBALANCE):
                return streams_fencing.on_timer(group, key)
            return streams_target.on_timer(group, key, self._around_streams(group.group_id, now_ms))
        if isinstance(group, ConsumerGroup):
            around = self._around(group.group_id, now_ms)
            if key.kind in (TimerKind.TARGET, TimerKind.REGEX):
                return slices.on_slice(group, key, around)
            if key.kind is TimerKind.DOWNGRADE:
                return migration.downgrade(group, self._config, around.topics, now_ms=now_ms)
            return fencing.on_timer(group, key, around.topics)
        if key.kind is TimerKind.DOWNGRADE:
            result = CoordinatorResult()
            rebalance.rebalance_without_the_gone(group, result, RebalanceReason.DOWNGRADE)
            return result
        if key.kind not in (TimerKind.SESSION, TimerKind.REBALANCE, TimerKind.SYNC):
            return CoordinatorResult()  # the group was one of the consumer protocol when it was armed
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
            gone = self.offsets.expired(group, now_ms=now_ms, retention_ms=retention_ms)
            result.records.extend(gone)
            if self.offsets.pending.has_group(group_id):
                continue
            has_offsets = len(self.offsets.keys(group_id)) > len(gone)
            is_unused = not isinstance(group, ShareGroup)  # its share states are somebody's backlog
            if isinstance(group, ClassicGroup):
                is_unused = not group.pending_members
            if not has_offsets and group.state == GroupState.EMPTY and is_unused:
                result.records.extend(_group_tombstones(group))
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
            case OffsetCommitRecord() | Pending() | TransactionEnd():
                self._replay_offsets(record)
            case GroupMetadataRecord():
                self._replay_group(record)
            case _:
                self._replay_led(record)

    def _replay_offsets(self, record: OffsetCommitRecord | Pending | TransactionEnd) -> None:
        for each in self.offsets.replay(record):
            group = self.groups.get(each.group_id)
            if group is None and each.value is not None:
                self.groups[each.group_id] = self._new_group(each.group_id)
            elif group is not None and each.value is None:
                self._forget_if_vacant(group)

    def _replay_group(self, record: GroupMetadataRecord) -> None:
        group = self.groups.get(record.group_id)
        if group is not None and not isinstance(group, ClassicGroup):
            if record.value is None:
                return
            self._overruled[type(group), record.group_id] = group
            group = None
        if record.value is not None:
            if group is None:
                group = self.groups[record.group_id] = self._new_group(record.group_id)
            group.replay(record.value)
        elif group is not None:
            group.die()
            del self.groups[record.group_id]
            if self.offsets.keys(record.group_id):
                # Not what this coordinator writes, but a compacted log may bring the tombstone before older offsets.
                self.groups[record.group_id] = self._new_group(record.group_id)

    def _replay_led(self, record: ConsumerRecord | ShareRecord | StreamsRecord) -> None:
        group_id = record.group_id
        group = self.groups.get(group_id)
        kind: type[LedGroup] = ConsumerGroup
        if isinstance(record, StreamsRecord):
            kind = StreamsGroup
        elif isinstance(record, ShareRecord):
            kind = ShareGroup
        is_tombstone = (
            record.is_tombstone if isinstance(record, ConsumerGroupPartitionMetadataRecord) else record.value is None
        )
        if isinstance(group, kind):
            _replay_in(group, record)
            if is_tombstone and isinstance(record, LAST_OF_GROUP):
                del self.groups[group_id]
                if self.offsets.keys(group_id):
                    self.groups[group_id] = self._new_group(group_id)
        elif not is_tombstone:
            if isinstance(group, StreamsGroup):
                self._overruled[StreamsGroup, group_id] = group
                group = None
            if group is None or (isinstance(group, ClassicGroup) and not group.has_record):
                group = self.groups[group_id] = kind(group_id)
                soft = self._founding.pop(group_id, None)
                if isinstance(soft, type(group.soft)):
                    group.soft = soft
            else:
                group = self._overruled.setdefault((kind, group_id), kind(group_id))
            _replay_in(group, record)

    def on_refused(self, result: CoordinatorResult, error: KafkaError) -> CoordinatorResult:
        """Records could not be appended; a generation among them needs its group's care, see rebalance.on_refused."""
        for record in result.records:
            if isinstance(record, OffsetCommitRecord):
                continue
            group = self.groups.get(record.group_id)
            if isinstance(group, ClassicGroup) and self._founding.pop(record.group_id, None) is not None:
                # It stays what it was: those who wait in it wait on.
                waiting = {ticket for m in group.members.values() for ticket in (m.awaiting_join, m.awaiting_sync)}
                return CoordinatorResult(
                    replies=[Reply(reply.ticket, error) for reply in result.replies if reply.ticket not in waiting]
                )
            if isinstance(group, ConsumerGroup) and isinstance(result.records[-1], GroupMetadataRecord):
                return CoordinatorResult(
                    timers=[ArmTimer(fencing.downgrade_timer(group.group_id), fencing.REFUSED_RETRY_MS)]
                )
            if isinstance(record, GroupMetadataRecord):
                if record.value is not None and isinstance(group, ClassicGroup):
                    return rebalance.on_refused(group, record.value, result, error)
            elif not isinstance(group, ClassicGroup):
                founding = self._founding.pop(record.group_id, None)
                refused = fencing.on_refused(group, result, error)
                soft = group.soft if isinstance(group, ShareGroup) else founding
                if isinstance(soft, ShareSoftState):
                    self.share.on_refused(soft, record.group_id, result.records, refused, error)
                return refused
        return result.refused(error)

    def on_committed(self, record: GroupRecord | Pending | TransactionEnd) -> None:
        """The record is below the high watermark: readers may see it."""
        if isinstance(record, OffsetCommitRecord | TransactionEnd):
            self.offsets.on_committed(record)
        elif isinstance(record, ShareGroupMetadataRecord | ShareGroupStatePartitionMetadataRecord):
            self.share.note_work(record.group_id)

    def _forget_if_vacant(self, group: AnyGroup) -> None:
        if self.reads.is_forgettable(group):
            self.groups.pop(group.group_id, None)


def _replay_in(group: LedGroup, record: ConsumerRecord | ShareRecord | StreamsRecord) -> None:
    group.replay(record)  # type: ignore[arg-type]  # a record of the group's protocol
    if isinstance(group, StreamsGroup):
        streams_fencing.forget(group)


def _group_tombstones(group: AnyGroup) -> list[GroupRecord]:
    """What makes the log forget a group without members, but for its offsets."""
    if isinstance(group, StreamsGroup):
        return list(streams_fencing.group_tombstones(group))
    if isinstance(group, ShareGroup):
        return list(share_fencing.group_tombstones(group))
    if isinstance(group, ConsumerGroup):
        return list(fencing.group_tombstones(group))
    return [GroupMetadataRecord(group.group_id, None)] if group.has_record else []
