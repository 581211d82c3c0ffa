"""Members of the classic protocol in a consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup as the coordinator leads them.

May touch:  its arguments.            Must not touch: asyncio, clock, randomness, log, network.
Invariants: no member waits for others: a join is answered at once with the member's epoch as its generation, and has no
            leader; what a member is given is what it would be given by heartbeats of the consumer protocol.
Read next:  heartbeat.py, the step that a join is, too; migration.py, by which groups get such members and are left with none else.

Not obvious: to give partitions up, to get those that others gave up, or to follow a new target a classic member has to join again, and
hears so by its heartbeat. It has its rebalance time-out for that, and again from its join to its sync.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from barnabas_coordination.errors import (
    IllegalGeneration,
    InconsistentGroupProtocol,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)
from barnabas_coordination.group.consumer import fencing
from barnabas_coordination.group.consumer.group import ConsumerGroup
from barnabas_coordination.group.consumer.heartbeat import Step
from barnabas_coordination.group.consumer.member import ConsumerMember, Owned, partitions_of
from barnabas_coordination.group.consumer.messages import ConsumerHeartbeat, Surroundings
from barnabas_coordination.group.consumer.records import ClassicOffer, MemberState
from barnabas_coordination.group.consumer.subscription import group_names, metadata_hash
from barnabas_coordination.group.epochs import are_targets_due
from barnabas_coordination.group.led_records import JOINS, Partitions
from barnabas_coordination.group.messages import (
    NO_MEMBER,
    JoinOutcome,
    JoinRequest,
    LeaveOutcome,
    LeavingMember,
    MemberRef,
    SyncOutcome,
    SyncRequest,
)
from barnabas_coordination.group.protocols import CONSUMER_PROTOCOL_TYPE, Offer, common_protocols
from barnabas_coordination.group.states import TimerKey, TimerKind, session_timer
from barnabas_coordination.shard import CoordinatorResult, Ticket
from barnabas_quorum.image.topics import TopicsImage
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
    decode_blob,
    encode_blob,
)
from barnabas_wire.kafka.primitives import MalformedMessage


def join(
    group: ConsumerGroup, request: JoinRequest, ticket: Ticket, around: Surroundings, *, new_member_id: str
) -> CoordinatorResult:
    """A classic member joins, or joins again. Answered at once.

    Raises KafkaError as heartbeat.heartbeat, MEMBER_ID_REQUIRED and INCONSISTENT_GROUP_PROTOCOL.
    """
    _check_protocols(group, request)
    is_unnamed = request.member_id == NO_MEMBER
    if is_unnamed and request.instance_id is None and request.requires_member_id:
        raise MemberIdRequired(new_member_id)
    try:
        subscription = decode_blob(ConsumerProtocolSubscription, request.protocols[0][1])
    except MalformedMessage as error:
        raise InconsistentGroupProtocol(
            f"what the member subscribes to by {request.protocols[0][0]!r} cannot be read"
        ) from error
    said = ConsumerHeartbeat(
        group_id=group.group_id,
        member_id=new_member_id if is_unnamed else request.member_id,
        epoch=JOINS,
        instance_id=request.instance_id,
        rack_id=subscription.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topic_names=frozenset(subscription.topics),
        owned=_owned(subscription.owned_partitions, around.topics),
        client_id=request.client_id,
        client_host=request.client_host,
        classic=ClassicOffer(session_timeout_ms=request.session_timeout_ms, protocols=request.protocols),
        is_unnamed=is_unnamed,
    )
    step = Step(group, said, around)
    step.run()
    out, member = step.out, step.after
    step.arm()
    group.soft.joining.discard(member.member_id)
    out.cancel(join_timer(group.group_id, member.member_id))
    out.arm(sync_timer(group.group_id, member.member_id), request.rebalance_timeout_ms)
    others = len(step.group.members) - step.group.classic_count
    if step.present is not None and not step.before.is_classic:
        others -= 1
    if not others:
        out.arm(fencing.downgrade_timer(group.group_id), 0)
    outcome = JoinOutcome(
        generation=member.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=request.protocols[0][0],
        leader_id="",
        member_id=member.member_id,
    )
    out.reply(ticket, outcome)
    return out


def sync(group: ConsumerGroup, request: SyncRequest, ticket: Ticket, around: Surroundings) -> CoordinatorResult:
    """A classic member asks for its assignment.

    Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL, REBALANCE_IN_PROGRESS.
    """
    member, offer = _classic(group, request.member)
    protocol, metadata = offer.protocols[0]
    if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE):
        raise InconsistentGroupProtocol(f"the group is of type {CONSUMER_PROTOCOL_TYPE!r}")
    if request.protocol_name not in (None, protocol):
        raise InconsistentGroupProtocol(f"the member joined with {protocol!r}")
    if member.epoch < group.assignment_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        raise RebalanceInProgress("the group has another target meanwhile: join again")
    out = CoordinatorResult()
    out.cancel(sync_timer(group.group_id, member.member_id))
    out.arm(session_timer(group.group_id, member.member_id), offer.session_timeout_ms)
    assignment = encode_assignment(partitions_of(member.assigned), metadata, around.topics)
    out.reply(ticket, SyncOutcome(protocol_type=CONSUMER_PROTOCOL_TYPE, protocol_name=protocol, assignment=assignment))
    return out


def heartbeat(group: ConsumerGroup, said: MemberRef, ticket: Ticket, around: Surroundings) -> CoordinatorResult:
    """A classic member is there; it is to join again where that would bring it further.

    Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION.
    """
    member, offer = _classic(group, said)
    out = CoordinatorResult()
    out.arm(session_timer(group.group_id, member.member_id), offer.session_timeout_ms)
    group.soft.last_heartbeat_ms[member.member_id] = around.now_ms
    if not _gets_further(group, member, around):
        out.reply(ticket, None)
        return out
    if member.member_id not in group.soft.joining:
        group.soft.joining.add(member.member_id)
        out.arm(join_timer(group.group_id, member.member_id), max(0, member.metadata.rebalance_timeout_ms))
    out.reply(ticket, RebalanceInProgress("join again"))
    return out


def leave(
    group: ConsumerGroup, leaving: Sequence[LeavingMember], ticket: Ticket, topics: TopicsImage
) -> CoordinatorResult:
    """Classic members go, all in one batch. The reply has one LeaveOutcome for each, in order."""
    out = CoordinatorResult()
    outcomes = []
    gone: dict[str, ConsumerMember] = {}
    for asked in leaving:
        member_id = asked.member_id
        if member_id == NO_MEMBER:
            member_id = group.static_members.get(asked.instance_id or "", NO_MEMBER)
        code = ErrorCode.NONE
        try:
            member = group.find(member_id, asked.instance_id)
            if not member.is_classic or member_id in gone:
                raise UnknownMemberId(f"{member_id!r} is not a member of the classic protocol")
            gone[member_id] = member
        except KafkaError as error:
            code = error.code
        outcomes.append(LeaveOutcome(*asked, code))
    if gone:
        fencing.remove(group, gone.values(), out, topics)
    out.reply(ticket, tuple(outcomes))
    return out


def join_timer(group_id: str, member_id: str) -> TimerKey:
    """Key of the time that a member has to join again."""
    return TimerKey(TimerKind.JOIN, group_id, member_id)


def sync_timer(group_id: str, member_id: str) -> TimerKey:
    """Key of the time that a member has from its join to its sync."""
    return TimerKey(TimerKind.SYNC, group_id, member_id)


def encode_assignment(partitions: Partitions, subscription: bytes, topics: TopicsImage) -> bytes:
    """The assignment for a member, in the version in which it subscribes; topics that are gone are left out."""
    version = int.from_bytes(subscription[:2], "big", signed=True)
    newest = ConsumerProtocolAssignment.MAX_VERSION
    named = []
    for topic_id, of in partitions.items():
        topic = topics.get_by_id(topic_id)
        if topic is not None:
            named.append(TopicPartitions(topic.name, list(of)))
    return encode_blob(ConsumerProtocolAssignment(named), min(max(version, 0), newest))


def _check_protocols(group: ConsumerGroup, request: JoinRequest) -> None:
    offers = [offer for member_id, offer in offers_of(group) if member_id != request.member_id]
    names = {name for name, _ in request.protocols}
    is_shared = not offers or not names.isdisjoint(common_protocols(offers))
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not names or not is_shared:
        raise InconsistentGroupProtocol(
            f"group {group.group_id} is of type {CONSUMER_PROTOCOL_TYPE!r}, and its classic members share "
            f"{sorted(common_protocols(offers))}"
        )


def offers_of(group: ConsumerGroup) -> Iterable[tuple[str, Offer]]:
    """What the classic members offer, by member id, in the order in which they came."""
    for member in group.members.values():
        if member.metadata.classic is not None:
            yield member.member_id, member.metadata.classic.protocols


def _classic(group: ConsumerGroup, said: MemberRef) -> tuple[ConsumerMember, ClassicOffer]:
    member = group.find(said.member_id, said.instance_id)
    offer = member.metadata.classic
    if offer is None:
        raise UnknownMemberId(f"{said.member_id!r} is a member of group.protocol=consumer")
    if said.generation != member.epoch:
        raise IllegalGeneration(f"generation {said.generation} is not the member's epoch, {member.epoch}")
    return member, offer


def _gets_further(group: ConsumerGroup, member: ConsumerMember, around: Surroundings) -> bool:
    """Whether a join would change what the member has."""
    if member.epoch < group.assignment_epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    interval_ms = around.settings.assignment_interval_ms
    if are_targets_due(group, group.epoch, interval_ms=interval_ms, now_ms=around.now_ms):
        return True
    if group.soft.topics_seen is not around.topics:
        if metadata_hash(group_names(group), around.topics) != group.metadata_hash:
            return True
        group.soft.topics_seen = around.topics
    if member.state is not MemberState.UNRELEASED_PARTITIONS:
        return False
    holders = (
        group.holder(topic_id, partition)
        for topic_id, partitions in group.target(member.member_id).items()
        for partition in partitions
    )
    return all(holder in (None, member.member_id) for holder in holders)


def _owned(owned: Iterable[TopicPartitions], topics: TopicsImage) -> Owned:
    found: dict[Uuid, frozenset[int]] = {}
    for of in owned:
        topic = topics.get(of.topic)
        if topic is not None and of.partitions:
            found[topic.id] = frozenset(of.partitions)
    return found
