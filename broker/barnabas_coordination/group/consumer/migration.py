"""A group moves between the protocols while its members stay: classic to consumer with the first member of that protocol, and back with its
last one (KIP-848, "Migration").

May touch:  its arguments.            Must not touch: asyncio, clock, randomness, log, network.
Invariants: a group's records before and after are never in the log together, and all members and offsets stay; a
            partition that a classic member was assigned is its own until it gives it up.
Read next:  classic_members.py, the life of classic members in between; ../classic.py.

Not obvious:
- Who joins a classic group for the first time and waits for its answer does not know yet that it is a member: it is told to join again
  and comes as another.
- Client assignors may have given a partition to two: the first by member id keeps it.
- The generation of the classic group is the epoch of the targets, which its members are in: they hear of a rebalance and keep what they
  have. Kafka takes the group's epoch, which the leave has raised, so that each of its members is told ILLEGAL_GENERATION and loses all.
- The way back is two steps, so that it is the same after a failover as after a leave: the last consumer is gone, then the group is looked
  at (fencing.downgrade_timer); and two steps more: the records, then the rebalance.
"""

from __future__ import annotations

from enum import StrEnum

from barnabas_coordination.config import GroupCoordinatorConfig
from barnabas_coordination.errors import GroupIdNotFound, RebalanceInProgress
from barnabas_coordination.group.classic import ClassicGroup
from barnabas_coordination.group.consumer import fencing
from barnabas_coordination.group.consumer.classic_members import encode_assignment, offers_of
from barnabas_coordination.group.consumer.group import ConsumerGroup
from barnabas_coordination.group.consumer.records import (
    AssignmentValue,
    ClassicOffer,
    ConsumerGroupCurrentMemberAssignmentRecord,
    ConsumerGroupMemberMetadataRecord,
    ConsumerGroupMetadataRecord,
    ConsumerGroupTargetAssignmentMemberRecord,
    ConsumerGroupTargetAssignmentMetadataRecord,
    ConsumerRecord,
    GroupValue,
    MemberMetadata,
    MemberState,
)
from barnabas_coordination.group.consumer.subscription import metadata_hash
from barnabas_coordination.group.led_records import TargetValue
from barnabas_coordination.group.members import ClassicMember
from barnabas_coordination.group.protocols import CONSUMER_PROTOCOL_TYPE, choose_protocol
from barnabas_coordination.group.records import GroupMetadataRecord, GroupMetadataValue, MemberValue
from barnabas_coordination.group.states import TimerKind, session_timer
from barnabas_coordination.shard import CoordinatorResult
from barnabas_quorum.image.topics import TopicsImage
from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_blob,
)
from barnabas_wire.kafka.primitives import MalformedMessage


class MigrationPolicy(StrEnum):
    """Values of group.consumer.migration.policy."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def allows_upgrade(self) -> bool:
        """Whether a classic group with members may become a consumer group."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def allows_downgrade(self) -> bool:
        """Whether a consumer group with classic members alone becomes a classic group."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


# ---- classic to consumer ---------------------------------------------------------------------------------------------


def upgrade(
    group: ClassicGroup, config: GroupCoordinatorConfig, topics: TopicsImage, out: CoordinatorResult
) -> ConsumerGroup:
    """The group as one of the consumer protocol, a draft; what makes it so is in `out`. Raises GROUP_ID_NOT_FOUND where that cannot be."""
    established = [member for member in group.members.values() if not member.is_new]
    if group.members:
        _check_upgrade(group, established, config)
    described = [(member, _metadata_of(group, member)) for member in sorted(established, key=lambda m: m.member_id)]
    retire(group, out)
    draft = ConsumerGroup(group.group_id)
    records = _upgrade_records(group, described, topics) if described else []
    for record in records:
        draft.replay(record)
    for member in established:
        out.arm(session_timer(group.group_id, member.member_id), member.session_timeout_ms)
    out.records.extend(records)
    return draft


def retire(group: ClassicGroup, out: CoordinatorResult) -> None:
    """The group is of another protocol from here on: no request waits for it any more."""
    moved = RebalanceInProgress("the group is of another protocol now: join again")
    for member in group.members.values():
        out.reply(member.awaiting_join, moved)
        out.reply(member.awaiting_sync, moved)
    for member_id in (*group.members, *group.pending_members):
        out.cancel(group.session_timer(member_id))
    out.cancel(group.timer(TimerKind.REBALANCE))
    out.cancel(group.timer(TimerKind.SYNC))
    if group.has_record:
        out.records.append(GroupMetadataRecord(group.group_id, None))


def _check_upgrade(group: ClassicGroup, members: list[ClassicMember], config: GroupCoordinatorConfig) -> None:
    reason = None
    if not MigrationPolicy(config.group_consumer_migration_policy.lower()).allows_upgrade:
        reason = f"group.consumer.migration.policy={config.group_consumer_migration_policy} keeps it so"
    elif group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        reason = f"its members are of type {group.protocol_type!r}"
    elif len(members) > config.group_consumer_max_size:
        reason = f"it has {len(members)} members, and group.consumer.max.size is {config.group_consumer_max_size}"
    if reason is not None:
        raise GroupIdNotFound(
            f"group {group.group_id} is of group.protocol=classic, and {reason}: join with that, or wait until its members are gone"
        )


def _metadata_of(group: ClassicGroup, member: ClassicMember) -> MemberMetadata:
    try:
        subscription = decode_blob(ConsumerProtocolSubscription, member.protocols[0][1])
        assignment = decode_blob(ConsumerProtocolAssignment, member.assignment) if member.assignment else None
    except MalformedMessage as error:
        raise GroupIdNotFound(
            f"group {group.group_id} is of group.protocol=classic, and what {member.member_id} says cannot be read: join with classic"
        ) from error
    if assignment is not None and assignment.user_data:
        raise GroupIdNotFound(
            f"group {group.group_id} is of group.protocol=classic with the custom assignor {group.protocol!r}, which the coordinator "
            "cannot take over: give its members another, such as cooperative-sticky or range, or join with classic"
        )
    return MemberMetadata(
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=tuple(sorted(set(subscription.topics))),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicOffer(session_timeout_ms=member.session_timeout_ms, protocols=member.protocols),
    )


def _upgrade_records(
    group: ClassicGroup, described: list[tuple[ClassicMember, MemberMetadata]], topics: TopicsImage
) -> list[ConsumerRecord]:
    group_id, epoch = group.group_id, max(group.generation, 1)
    taken: set[tuple[Uuid, int]] = set()
    held = {member.member_id: _held(member, epoch, topics, taken) for member, _ in described}
    names = {name for _, metadata in described for name in metadata.topic_names}
    records: list[ConsumerRecord] = []
    records += [ConsumerGroupMemberMetadataRecord(group_id, member.member_id, said) for member, said in described]
    records.append(ConsumerGroupMetadataRecord(group_id, GroupValue(epoch, metadata_hash(names, topics))))
    records += [
        ConsumerGroupTargetAssignmentMemberRecord(
            group_id, member_id, {topic_id: tuple(sorted(of)) for topic_id, of in assigned.items()}
        )
        for member_id, assigned in held.items()
    ]
    records.append(ConsumerGroupTargetAssignmentMetadataRecord(group_id, TargetValue(epoch)))
    records += [
        ConsumerGroupCurrentMemberAssignmentRecord(
            group_id, member_id, AssignmentValue(epoch, epoch, MemberState.STABLE, assigned, {})
        )
        for member_id, assigned in held.items()
    ]
    return records


def _held(
    member: ClassicMember, epoch: int, topics: TopicsImage, taken: set[tuple[Uuid, int]]
) -> dict[Uuid, dict[int, int]]:
    """What the member was assigned, of topics that exist, without what a member before it has."""
    held: dict[Uuid, dict[int, int]] = {}
    if not member.assignment:
        return held
    for of in decode_blob(ConsumerProtocolAssignment, member.assignment).assigned_partitions:
        topic = topics.get(of.topic)
        for partition in sorted(of.partitions) if topic is not None else ():
            assert topic is not None
            if partition in topic.partitions and (topic.id, partition) not in taken:
                taken.add((topic.id, partition))
                held.setdefault(topic.id, {})[partition] = epoch
    return held


# ---- consumer to classic ---------------------------------------------------------------------------------------------


def downgrade(
    group: ConsumerGroup, config: GroupCoordinatorConfig, topics: TopicsImage, *, now_ms: int
) -> CoordinatorResult:
    """A look at the group: classic members alone make it a classic one, if the policy lets them."""
    out = CoordinatorResult()
    policy = MigrationPolicy(config.group_consumer_migration_policy.lower())
    is_classic = group.members and group.classic_count == len(group.members) <= config.group_max_size
    if not (is_classic and policy.allows_downgrade):
        return out
    protocol = choose_protocol([offer for _, offer in offers_of(group)])
    members = []
    for member in group.members.values():
        metadata, offer = member.metadata, member.metadata.classic
        assert offer is not None, "all are classic"
        subscription = next(said for name, said in offer.protocols if name == protocol)
        members.append(
            MemberValue(
                member.member_id,
                metadata.instance_id,
                metadata.client_id,
                metadata.client_host,
                max(0, metadata.rebalance_timeout_ms),
                offer.session_timeout_ms,
                subscription,
                encode_assignment(group.target(member.member_id), subscription, topics),
            )
        )
        for kind in (TimerKind.REBALANCE, TimerKind.JOIN, TimerKind.SYNC):
            out.cancel(session_timer(group.group_id, member.member_id)._replace(kind=kind))
        out.arm(session_timer(group.group_id, member.member_id), offer.session_timeout_ms)
    value = GroupMetadataValue(
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        generation=group.assignment_epoch,
        protocol=protocol,
        leader=members[0].member_id,
        state_timestamp_ms=now_ms,
        members=tuple(members),
    )
    out.records.extend(fencing.group_tombstones(group))
    out.records.append(GroupMetadataRecord(group.group_id, value))
    out.arm(fencing.downgrade_timer(group.group_id), 0)
    return out
