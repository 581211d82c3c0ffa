"""ShareGroupHeartbeat v1, ShareGroupDescribe v1, DescribeShareGroupOffsets v0-1, AlterShareGroupOffsets v0, DeleteShareGroupOffsets v0:
share groups (KIP-932).

May touch:  the group coordinator, the image (names and ids of topics, the feature level).    Must not touch: share state, logs.
Invariants: a request that breaks the protocol's own rules never reaches the coordinator; a client that may not describe
            one of the topics that a heartbeat names, or one that a group described to it has, is refused as a whole.
Read next:  barnabas_coordination/group/share/heartbeat.py and offsets.py; share_fetch.py for the records themselves.

Behaviour: all are advertised always, and refused with UNSUPPORTED_VERSION while share.version is 0, as by Kafka. A tagged field of ours in
ShareGroupDescribe says which partitions have no share state yet, for `barnabas explain group`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from barnabas_broker.api.answers import error_fields
from barnabas_broker.api.consumer_groups import paced
from barnabas_broker.api.context import RequestContext
from barnabas_broker.api.operations import GROUP_OPERATIONS
from barnabas_broker.api.registry import PARTITION_ELEMENTS_MAX, PARTITIONS_BYTES_MAX, handles
from barnabas_broker.api.services import BrokerServices
from barnabas_coordination.group.led_records import JOINS, LEAVES, Partitions
from barnabas_coordination.group.share.messages import ShareGroupDescription, ShareHeartbeat
from barnabas_coordination.group.share.records import Beginning
from barnabas_coordination.group.share_states import StateOffset
from barnabas_coordination.share_state.messages import ShareKey
from barnabas_quorum.image.rights import DELETE, DESCRIBE, GROUP, READ, TOPIC
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import ZERO_UUID, Offset, Uuid
from barnabas_wire.kafka.messages import ApiKey, consumer_group_describe, consumer_group_heartbeat
from barnabas_wire.kafka.messages import alter_share_group_offsets as alter_wire
from barnabas_wire.kafka.messages import delete_share_group_offsets as delete_wire
from barnabas_wire.kafka.messages import describe_share_group_offsets as offsets_wire
from barnabas_wire.kafka.messages.share_group_describe import (
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from barnabas_wire.kafka.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

MEMBER_ID_LENGTH_MAX: Final = 36
"""Characters of a member's id, which is a UUID as text."""


def require_share_groups(services: BrokerServices, context: RequestContext, group_id: str = "") -> None:
    """Raise UNSUPPORTED_VERSION while share.version is 0."""
    services.unserved.require_protocol(
        "share",
        context,
        group_id,
        has_feature=services.metadata.image.features.share_version > 0,
        served=("share",),  # group.coordinator.rebalance.protocols says nothing of them
    )


# ---- ShareGroupHeartbeat ---------------------------------------------------------------------------------------------


@handles(ApiKey.SHARE_GROUP_HEARTBEAT, versions=(1, 1), elements_max=PARTITION_ELEMENTS_MAX // 2)
async def heartbeat(
    services: BrokerServices, context: RequestContext, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    """Join, stay, change or leave."""
    require_share_groups(services, context, request.group_id)
    context.access.require(READ, GROUP, request.group_id)
    names = None if request.subscribed_topic_names is None else frozenset(request.subscribed_topic_names)
    for name in sorted(names or ()):
        context.access.require(DESCRIBE, TOPIC, name)
    reason = _why_invalid(request)
    if reason is not None:
        raise KafkaError.of(ErrorCode.INVALID_REQUEST, reason)
    outcome = await services.groups.share_heartbeat(
        ShareHeartbeat(
            group_id=request.group_id,
            member_id=request.member_id,
            epoch=request.member_epoch,
            rack_id=request.rack_id,
            topic_names=names,
            client_id=context.client_id,
            client_host=f"/{context.client_host}",  # as Java prints an address: tools cut the slash off
        )
    )
    assignment = None
    if outcome.assignment is not None:
        assignment = consumer_group_heartbeat.Assignment(
            topic_partitions=[
                consumer_group_heartbeat.TopicPartitions(topic_id, list(of))
                for topic_id, of in outcome.assignment.items()
            ]
        )
    return ShareGroupHeartbeatResponse(
        member_id=outcome.member_id,
        member_epoch=outcome.epoch,
        heartbeat_interval_ms=outcome.heartbeat_interval_ms,
        assignment=assignment,
    )


def _why_invalid(request: ShareGroupHeartbeatRequest) -> str | None:
    """What of the protocol's rules a request breaks, or None."""
    if not request.group_id:
        return "the group id is empty"
    if not 1 <= len(request.member_id) <= MEMBER_ID_LENGTH_MAX:
        return f"a member makes its own id, of 1 to {MEMBER_ID_LENGTH_MAX} characters"
    if request.rack_id == "":
        return "the rack id is empty: leave it null"
    if request.member_epoch < LEAVES:
        return f"member epoch {request.member_epoch} is none: 0 joins, -1 leaves"
    if request.member_epoch == JOINS and not request.subscribed_topic_names:
        return "a member that joins subscribes to topics by their names"
    return None


# ---- ShareGroupDescribe ----------------------------------------------------------------------------------------------


def _undescribed(request: ShareGroupDescribeRequest, error: KafkaError) -> ShareGroupDescribeResponse:
    groups = [DescribedGroup(group_id=group_id, **error_fields(error)) for group_id in dict.fromkeys(request.group_ids)]
    return ShareGroupDescribeResponse(groups=groups)


@handles(ApiKey.SHARE_GROUP_DESCRIBE, versions=(1, 1), on_error=_undescribed)
async def describe(
    services: BrokerServices, context: RequestContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    """State, epochs and members of each group."""
    require_share_groups(services, context)
    described: list[DescribedGroup] = []
    async for group_id in paced(dict.fromkeys(request.group_ids)):
        group = await _described(services, context, group_id)
        if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = context.access.operations(GROUP_OPERATIONS, GROUP, group_id)
        described.append(group)
    return ShareGroupDescribeResponse(groups=described)


async def _described(services: BrokerServices, context: RequestContext, group_id: str) -> DescribedGroup:
    try:
        context.access.require(DESCRIBE, GROUP, group_id)
        group = await services.groups.describe_share_group(group_id)
        names = _names_of(group, services)
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
        members=[
            Member(
                member_id=member.member_id,
                rack_id=member.metadata.rack_id,
                member_epoch=member.epoch,
                client_id=member.metadata.client_id,
                client_host=member.metadata.client_host,
                subscribed_topic_names=list(member.metadata.topic_names),
                assignment=consumer_group_describe.Assignment(topic_partitions=_named(member.assignment, names)),
            )
            for member in group.members
        ],
        beginning=_named({each: tuple(of.starts) for each, of in group.states.beginning.items()}, names),
    )


def _names_of(group: ShareGroupDescription, services: BrokerServices) -> dict[Uuid, str]:
    """Topic id -> name, for each topic of the group that still exists."""
    ids = {topic_id for member in group.members for topic_id in member.assignment} | group.states.beginning.keys()
    topics = map(services.metadata.image.topics.get_by_id, ids)
    return {topic.id: topic.name for topic in topics if topic is not None}


def _named(partitions: Partitions, names: Mapping[Uuid, str]) -> list[consumer_group_describe.TopicPartitions]:
    return [
        consumer_group_describe.TopicPartitions(topic_id, names[topic_id], sorted(of))
        for topic_id, of in partitions.items()
        if topic_id in names
    ]


# ---- DescribeShareGroupOffsets ---------------------------------------------------------------------------------------


def _offsets_undescribed(
    request: offsets_wire.DescribeShareGroupOffsetsRequest, error: KafkaError
) -> offsets_wire.DescribeShareGroupOffsetsResponse:
    groups = [offsets_wire.ResponseGroup(group_id=group.group_id, **error_fields(error)) for group in request.groups]
    return offsets_wire.DescribeShareGroupOffsetsResponse(groups=groups)


@handles(
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    versions=(0, 1),
    request_bytes_max=PARTITIONS_BYTES_MAX,
    on_error=_offsets_undescribed,
)
async def describe_offsets(
    services: BrokerServices, context: RequestContext, request: offsets_wire.DescribeShareGroupOffsetsRequest
) -> offsets_wire.DescribeShareGroupOffsetsResponse:
    """Start offset and lag of each partition; -1 where it is not known."""
    require_share_groups(services, context)
    groups = [await _group_offsets(services, context, group) async for group in paced(request.groups)]
    return offsets_wire.DescribeShareGroupOffsetsResponse(groups=groups)


async def _group_offsets(
    services: BrokerServices, context: RequestContext, asked: offsets_wire.RequestGroup
) -> offsets_wire.ResponseGroup:
    group_id = asked.group_id
    try:
        context.access.require(DESCRIBE, GROUP, group_id)
        group = await services.groups.describe_share_group(group_id)
    except KafkaError as error:
        return offsets_wire.ResponseGroup(group_id=group_id, **error_fields(error))
    if asked.topics is None:
        begun = {topic.name: sorted(topic.partitions) for topic in group.states.begun.values()}
        wanted = {name: of for name, of in begun.items() if context.access.may(DESCRIBE, TOPIC, name, is_noted=False)}
    else:
        wanted = {topic.topic_name: list(dict.fromkeys(topic.partitions)) for topic in asked.topics}
    refused: dict[str, KafkaError] = {}
    keys: dict[tuple[str, int], ShareKey] = {}
    for name, partitions in wanted.items():
        try:
            context.access.require(DESCRIBE, TOPIC, name)
        except KafkaError as error:
            refused[name] = error
            continue
        topic = services.metadata.image.topics.get(name)
        known = None if topic is None else group.states.begun.get(topic.id)
        if topic is not None and known is not None:
            keys |= {
                (name, each): ShareKey(group_id, topic.id, each) for each in partitions if each in known.partitions
            }
    found = await services.groups.share_offsets(list(keys.values()))
    return offsets_wire.ResponseGroup(
        group_id=group_id,
        topics=[
            offsets_wire.ResponseTopic(
                topic_name=name,
                topic_id=_id_of(services, name),
                partitions=[
                    _offset(
                        each,
                        found.get(keys[name, each], NOTHING) if (name, each) in keys else NOTHING,
                        refused.get(name),
                    )
                    for each in partitions
                ],
            )
            for name, partitions in wanted.items()
        ],
    )


NOTHING: Final = StateOffset()


def _offset(partition: int, at: StateOffset, refused: KafkaError | None) -> offsets_wire.ResponsePartition:
    if refused is not None:
        return offsets_wire.ResponsePartition(partition_index=partition, start_offset=-1, **error_fields(refused))
    return offsets_wire.ResponsePartition(
        partition_index=partition, start_offset=at.start_offset, leader_epoch=at.leader_epoch, lag=at.lag
    )


def _id_of(services: BrokerServices, name: str) -> Uuid:
    topic = services.metadata.image.topics.get(name)
    return ZERO_UUID if topic is None else topic.id


# ---- AlterShareGroupOffsets ------------------------------------------------------------------------------------------


@handles(ApiKey.ALTER_SHARE_GROUP_OFFSETS, versions=(0, 0), request_bytes_max=PARTITIONS_BYTES_MAX)
async def alter_offsets(
    services: BrokerServices, context: RequestContext, request: alter_wire.AlterShareGroupOffsetsRequest
) -> alter_wire.AlterShareGroupOffsetsResponse:
    """Let a group without members begin elsewhere; one that is not there is made."""
    require_share_groups(services, context, request.group_id)
    context.access.require(READ, GROUP, request.group_id)
    _require_group_id(request.group_id)
    errors: dict[tuple[str, int], KafkaError | None] = {}
    starts: dict[Uuid, Beginning] = {}
    for topic in request.topics:
        refusal = _why_not(services, context, topic.topic_name)
        image_topic = services.metadata.image.topics.get(topic.topic_name)
        for each in topic.partitions:
            error = refusal
            if (
                error is None
                and image_topic is not None
                and not 0 <= each.partition_index < len(image_topic.partitions)
            ):
                text = f"topic {topic.topic_name!r} has no partition {each.partition_index}"
                error = KafkaError.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
            if error is None and each.start_offset < 0:
                error = KafkaError.of(
                    ErrorCode.INVALID_REQUEST, f"offset {each.start_offset} is none: name one from 0 on"
                )
            errors[topic.topic_name, each.partition_index] = error
            if error is None and image_topic is not None:
                before = starts.get(image_topic.id)
                start = {each.partition_index: Offset(each.start_offset)}
                starts[image_topic.id] = Beginning(topic.topic_name, {**(before.starts if before else {}), **start})
    outcomes = await services.groups.alter_share_offsets(request.group_id, starts)
    for (topic_id, partition), error in outcomes.items():
        errors[starts[topic_id].name, partition] = error
    services.audit.deleted(
        context.principal,
        context.client_host,
        request="AlterShareGroupOffsets",
        changes=[
            {"group": request.group_id, "topic": name, "partition": partition}
            for (name, partition), error in errors.items()
            if error is None
        ],
    )
    return alter_wire.AlterShareGroupOffsetsResponse(
        responses=[
            alter_wire.ResponseTopic(
                topic_name=topic.topic_name,
                topic_id=_id_of(services, topic.topic_name),
                partitions=[
                    alter_wire.ResponsePartition(
                        partition_index=each.partition_index,
                        **_fields(errors[topic.topic_name, each.partition_index]),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


# ---- DeleteShareGroupOffsets -----------------------------------------------------------------------------------------


@handles(ApiKey.DELETE_SHARE_GROUP_OFFSETS, versions=(0, 0))
async def delete_offsets(
    services: BrokerServices, context: RequestContext, request: delete_wire.DeleteShareGroupOffsetsRequest
) -> delete_wire.DeleteShareGroupOffsetsResponse:
    """Let a group without members forget how far it is in whole topics."""
    require_share_groups(services, context, request.group_id)
    context.access.require(DELETE, GROUP, request.group_id)
    _require_group_id(request.group_id)
    errors = {topic.topic_name: _why_not(services, context, topic.topic_name) for topic in request.topics}
    ids = {_id_of(services, name): name for name, error in errors.items() if error is None}
    for topic_id, error in (await services.groups.delete_share_offsets(request.group_id, frozenset(ids))).items():
        errors[ids[topic_id]] = error
    services.audit.deleted(
        context.principal,
        context.client_host,
        request="DeleteShareGroupOffsets",
        changes=[{"group": request.group_id, "topic": name} for name, error in errors.items() if error is None],
    )
    return delete_wire.DeleteShareGroupOffsetsResponse(
        responses=[
            delete_wire.ResponseTopic(topic_name=name, topic_id=_id_of(services, name), **_fields(error))
            for name, error in errors.items()
        ]
    )


def _require_group_id(group_id: str) -> None:
    if not group_id:
        raise KafkaError.of(ErrorCode.INVALID_GROUP_ID, "a share group needs an id")


def _why_not(services: BrokerServices, context: RequestContext, name: str) -> KafkaError | None:
    """Why offsets of a topic may not be changed, or None."""
    try:
        context.access.require(READ, TOPIC, name)
    except KafkaError as error:
        return error
    if services.metadata.image.topics.get(name) is None:
        return KafkaError.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
    return None


def _fields(error: KafkaError | None) -> dict[str, Any]:
    return {} if error is None else error_fields(error)
