"""ConsumerGroupHeartbeat v0-1, ConsumerGroupDescribe v0-1: groups of the consumer protocol (KIP-848).

May touch:  the group coordinator, the image (names and ids of topics, the feature level).    Must not touch: the group's state, logs.
Invariants: a request that breaks the protocol's own rules never reaches the coordinator; a client that may not describe
            one of the topics that it names, or one that a group described to it has, is refused as a whole.
Read next:  barnabas_coordination/group/consumer/heartbeat.py; groups.py for the classic protocol.

Behaviour: both are advertised always, and refused with UNSUPPORTED_VERSION while group.version is 0 or
group.coordinator.rebalance.protocols leaves consumer out, as by Kafka: a client would poll
nothing for ever if it were told to try again. Before v1 the coordinator makes the member's id. A tagged field of ours asks
ConsumerGroupDescribe why a group is not stable; another has the findings (`barnabas explain group`).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Final, TypeVar

from barnabas_broker.api.answers import error_fields
from barnabas_broker.api.context import RequestContext
from barnabas_broker.api.operations import GROUP_OPERATIONS
from barnabas_broker.api.registry import PARTITION_ELEMENTS_MAX, PARTITIONS_BYTES_MAX, handles
from barnabas_broker.api.services import BrokerServices
from barnabas_coordination.group.consumer.member import Owned
from barnabas_coordination.group.consumer.messages import (
    ConsumerGroupDescription,
    ConsumerHeartbeat,
    ConsumerMemberDescription,
    Finding,
)
from barnabas_coordination.group.led_records import JOINS, LEAVES, LEAVES_FOR_A_WHILE, Partitions
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.image.rights import DESCRIBE, GROUP, READ, TOPIC
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey, consumer_group_describe, consumer_group_heartbeat
from barnabas_wire.kafka.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
)
from barnabas_wire.kafka.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

MEMBER_MAKES_ITS_ID_FROM: Final = 1
"""First version whose members come with an id of their own (KIP-1082)."""
T = TypeVar("T")
GROUPS_PER_TURN: Final = 500
"""Described before other requests get their turn: under 10 ms of groups that are not there."""
CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1


def _require_served(services: BrokerServices, context: RequestContext, group_id: str = "") -> None:
    services.unserved.require_protocol(
        "consumer",
        context,
        group_id,
        has_feature=services.metadata.image.features.has_consumer_groups,
        served=services.groups.config.group_coordinator_rebalance_protocols,
    )


# ---- ConsumerGroupHeartbeat ------------------------------------------------------------------------------------------


@handles(
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    versions=(0, 1),
    request_bytes_max=PARTITIONS_BYTES_MAX,
    elements_max=PARTITION_ELEMENTS_MAX,
)
async def heartbeat(
    services: BrokerServices, context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    """Join, stay, change or leave."""
    _require_served(services, context, request.group_id)
    access = context.access
    access.require(READ, GROUP, request.group_id)
    names = None if request.subscribed_topic_names is None else frozenset(request.subscribed_topic_names)
    for name in sorted(names or ()):
        access.require(DESCRIBE, TOPIC, name)
    _check(request, context.api_version, services.groups.config.group_consumer_assignors)
    outcome = await services.groups.consumer_heartbeat(
        ConsumerHeartbeat(
            group_id=request.group_id,
            member_id=request.member_id,
            epoch=request.member_epoch,
            instance_id=request.instance_id,
            rack_id=request.rack_id,
            rebalance_timeout_ms=None if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms,
            topic_names=names,
            topic_regex=request.subscribed_topic_regex,
            server_assignor=request.server_assignor,
            owned=_owned(request),
            client_id=context.client_id,
            client_host=f"/{context.client_host}",  # as Java prints an address: tools cut the slash off
            may_describe=lambda topic: access.may(DESCRIBE, TOPIC, topic, is_noted=False),
        )
    )
    assignment = None
    if outcome.assignment is not None:
        assignment = consumer_group_heartbeat.Assignment(
            topic_partitions=[
                consumer_group_heartbeat.TopicPartitions(topic_id=topic_id, partitions=list(partitions))
                for topic_id, partitions in outcome.assignment.items()
            ]
        )
    return ConsumerGroupHeartbeatResponse(
        member_id=outcome.member_id,
        member_epoch=outcome.epoch,
        heartbeat_interval_ms=outcome.heartbeat_interval_ms,
        assignment=assignment,
    )


def _check(request: ConsumerGroupHeartbeatRequest, version: int, assignors: tuple[str, ...]) -> None:
    """Raises INVALID_REQUEST, UNSUPPORTED_ASSIGNOR."""
    reason = _why_invalid(request, version)
    if reason is not None:
        raise KafkaError.of(ErrorCode.INVALID_REQUEST, reason)
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise KafkaError.of(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"the assignor {request.server_assignor[:100]!r} is not one of group.consumer.assignors, {', '.join(assignors)}: set "
            "group.remote.assignor to one of these",
        )


def _why_invalid(request: ConsumerGroupHeartbeatRequest, version: int) -> str | None:
    """What of the protocol's rules a request breaks, or None."""
    epoch = request.member_epoch
    if not request.group_id:
        return "the group id is empty"
    if request.instance_id == "":
        return "the instance id is empty: leave it null"
    if request.rack_id == "":
        return "the rack id is empty: leave it null"
    if epoch < LEAVES_FOR_A_WHILE:
        return f"member epoch {epoch} is none: 0 joins, -1 leaves, -2 leaves for a while"
    if epoch == LEAVES_FOR_A_WHILE and request.instance_id is None:
        return "only a static member leaves for a while: name its instance id"
    if not request.member_id and (version >= MEMBER_MAKES_ITS_ID_FROM or epoch > JOINS or epoch == LEAVES):
        return "the member id is empty: from version 1 on a member makes its own"
    if epoch != JOINS:
        return None
    if request.rebalance_timeout_ms == -1:
        return "a member that joins names its rebalance time-out"
    if request.topic_partitions is None or request.topic_partitions:
        return "a member that joins owns nothing: send an empty list of partitions"
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return "a member that joins subscribes to topics, by name or by a regular expression"
    return None


def _owned(request: ConsumerGroupHeartbeatRequest) -> Owned | None:
    if request.topic_partitions is None:
        return None
    owned: dict[Uuid, set[int]] = defaultdict(set)
    for topic in request.topic_partitions:
        owned[topic.topic_id].update(topic.partitions)
    return {topic_id: frozenset(partitions) for topic_id, partitions in owned.items() if partitions}


async def paced(items: Iterable[T]) -> AsyncIterator[T]:
    """Each item in turn; after every GROUPS_PER_TURN the loop serves others."""
    for number, item in enumerate(items, start=1):
        yield item
        if number % GROUPS_PER_TURN == 0:
            await asyncio.sleep(0)


# ---- ConsumerGroupDescribe -------------------------------------------------------------------------------------------


def _undescribed(request: ConsumerGroupDescribeRequest, error: KafkaError) -> ConsumerGroupDescribeResponse:
    groups = [DescribedGroup(group_id=group_id, **error_fields(error)) for group_id in dict.fromkeys(request.group_ids)]
    return ConsumerGroupDescribeResponse(groups=groups)


@handles(ApiKey.CONSUMER_GROUP_DESCRIBE, versions=(0, 1), on_error=_undescribed)
async def describe(
    services: BrokerServices, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """State, epochs and members of each group."""
    _require_served(services, context)
    described: list[DescribedGroup] = []
    async for group_id in paced(dict.fromkeys(request.group_ids)):
        group = await _described(services, context, group_id, explains=request.explains)
        if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = context.access.operations(GROUP_OPERATIONS, GROUP, group_id)
        described.append(group)
    return ConsumerGroupDescribeResponse(groups=described)


async def _described(
    services: BrokerServices, context: RequestContext, group_id: str, *, explains: bool
) -> DescribedGroup:
    try:
        context.access.require(DESCRIBE, GROUP, group_id)
        group = await services.groups.describe_consumer_group(group_id, explains=explains)
        names = _names_of(group, services.metadata.image)
        for name in sorted(set(names.values())):
            context.access.require(DESCRIBE, TOPIC, name)
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, **error_fields(error))
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=[_member(member, names) for member in group.members],
        findings=[_finding(finding, names) for finding in group.findings] if explains else None,
    )


def _names_of(group: ConsumerGroupDescription, image: MetadataImage) -> dict[Uuid, str]:
    """Topic id -> name, for each topic that a member has or is to have and that still exists."""
    ids: Iterable[Uuid] = {
        topic_id for member in group.members for held in (member.assignment, member.target) for topic_id in held
    }
    topics = map(image.topics.get_by_id, ids)
    return {topic.id: topic.name for topic in topics if topic is not None}


def _member(member: ConsumerMemberDescription, names: Mapping[Uuid, str]) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        assignment=_assignment(member.assignment, names),
        target_assignment=_assignment(member.target, names),
        member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    )


def _finding(found: Finding, names: Mapping[Uuid, str]) -> consumer_group_describe.Finding:
    return consumer_group_describe.Finding(
        kind=found.kind.value,
        member_id=found.member_id,
        partitions=_assignment(found.partitions, names).topic_partitions,
        others=list(found.others),
        since_ms=-1 if found.since_ms is None else found.since_ms,
        ends_in_ms=-1 if found.ends_in_ms is None else found.ends_in_ms,
    )


def _assignment(held: Partitions, names: Mapping[Uuid, str]) -> consumer_group_describe.Assignment:
    return consumer_group_describe.Assignment(
        topic_partitions=[
            consumer_group_describe.TopicPartitions(
                topic_id=topic_id, topic_name=names[topic_id], partitions=list(partitions)
            )
            for topic_id, partitions in held.items()
            if topic_id in names
        ]
    )
