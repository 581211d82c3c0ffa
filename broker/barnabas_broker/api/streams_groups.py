"""StreamsGroupHeartbeat v0-1, StreamsGroupDescribe v0-1, StreamsGroupTopologyDescriptionUpdate v0: Streams groups (KIP-1071).

May touch:  the group coordinator, the controller client (to make internal topics), the image.    Must not touch: the group's state, logs.
Invariants: a request that breaks the protocol's own rules never reaches the coordinator; a client that may not describe
            one of the topics that it names, or one of a group described to it, is refused as a whole; internal topics
            are made with the member's rights.
Read next:  barnabas_coordination/group/streams/heartbeat.py; consumer_groups.py for the protocol beside.

Behaviour: all are advertised always, and refused with UNSUPPORTED_VERSION while streams.version is 0, as by Kafka. The coordinator says
which internal topics are missing; this broker has them made before it answers, and a later heartbeat finds them. Descriptions of
topologies are refused with UNSUPPORTED_VERSION, as by a broker without a plugin that stores them.
Difference from Kafka: there topics are made after the answer, and what failed is told later; here it is in the answer itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from barnabas_broker.api.answers import error_fields
from barnabas_broker.api.consumer_groups import GROUPS_PER_TURN
from barnabas_broker.api.context import RequestContext
from barnabas_broker.api.metadata import is_valid_topic_name
from barnabas_broker.api.operations import GROUP_OPERATIONS
from barnabas_broker.api.registry import PARTITION_ELEMENTS_MAX, PARTITIONS_BYTES_MAX, handles
from barnabas_broker.api.services import BrokerServices
from barnabas_broker.api.topics import within
from barnabas_coordination.group.led_records import JOINS, LEAVES_FOR_A_WHILE
from barnabas_coordination.group.streams.errors import InvalidTopology
from barnabas_coordination.group.streams.internal_topics import NAMES_SHOWN_MAX, StatusCode
from barnabas_coordination.group.streams.messages import (
    EndpointPartitions,
    StreamsGroupDescription,
    StreamsHeartbeat,
    StreamsHeartbeatOutcome,
    StreamsMemberDescription,
)
from barnabas_coordination.group.streams.records import Endpoint
from barnabas_coordination.group.streams.tasks import Task, Tasks, by_subtopology
from barnabas_coordination.group.streams.topology import CopartitionGroup, InternalTopic, Subtopology, Topology
from barnabas_quorum.controller.requests import CreatableTopic, CreateTopics
from barnabas_quorum.image.rights import CLUSTER, CREATE, DESCRIBE, GROUP, READ, TOPIC
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import INTERNAL_TOPICS, METADATA_TOPIC
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages import streams_group_describe as describe_messages
from barnabas_wire.kafka.messages import streams_group_heartbeat as wire
from barnabas_wire.kafka.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from barnabas_wire.kafka.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from barnabas_wire.kafka.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
)

TAGS_KNOWN_FROM: Final = 1
"""First version whose clients know the status MISSING_CLIENT_TAGS."""
CREATION_TIMEOUT_MS: Final = 10_000
"""How long an answer waits for the internal topics to be made."""
TOPOLOGY_SIZE_MAX: Final = 5_000
"""Subtopologies, topics and their configs in one topology: each costs about 50 calls in one turn."""
NOT_STORED: Final = 1
"""TopologyDescriptionStatus where nothing stores descriptions."""


def _require_served(services: BrokerServices, context: RequestContext, group_id: str = "") -> None:
    services.unserved.require_protocol(
        "streams",
        context,
        group_id,
        has_feature=services.metadata.image.features.has_streams_groups,
        served=services.groups.config.group_coordinator_rebalance_protocols,
    )


# ---- StreamsGroupHeartbeat -------------------------------------------------------------------------------------------


@handles(
    ApiKey.STREAMS_GROUP_HEARTBEAT,
    versions=(0, 1),
    request_bytes_max=PARTITIONS_BYTES_MAX,
    elements_max=PARTITION_ELEMENTS_MAX // 2,
)
async def heartbeat(
    services: BrokerServices, context: RequestContext, request: StreamsGroupHeartbeatRequest
) -> StreamsGroupHeartbeatResponse:
    """Join, stay, change or leave."""
    _require_served(services, context, request.group_id)
    context.access.require(READ, GROUP, request.group_id)
    size = _size(request.topology)
    if size > TOPOLOGY_SIZE_MAX:
        raise InvalidTopology(
            f"the topology has {size} subtopologies, topics and configs of topics, {TOPOLOGY_SIZE_MAX} are allowed: divide the application"
        )
    for name in sorted(_names(request.topology)):
        context.access.require(DESCRIBE, TOPIC, name)
    _check(request)
    outcome = await services.groups.streams_heartbeat(
        StreamsHeartbeat(
            group_id=request.group_id,
            member_id=request.member_id,
            epoch=request.member_epoch,
            endpoint_epoch=request.endpoint_information_epoch,
            instance_id=request.instance_id,
            rack_id=request.rack_id,
            rebalance_timeout_ms=None if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms,
            topology=None if request.topology is None else _topology(request.topology).in_order(),
            owned=_owned(request),
            process_id=request.process_id,
            endpoint=None if request.user_endpoint is None else _endpoint(request.user_endpoint),
            client_tags=None if request.client_tags is None else _pairs(request.client_tags),
            offsets=_offsets(request.task_offsets),
            end_offsets=_offsets(request.task_end_offsets),
            shuts_down=request.shutdown_application,
            client_id=context.client_id,
            client_host=f"/{context.client_host}",  # as Java prints an address: tools cut the slash off
        )
    )
    failed = await _make(services, context, outcome.to_create) if outcome.to_create else ""
    return _told(outcome, failed, context.api_version)


def _told(outcome: StreamsHeartbeatOutcome, failed: str, version: int) -> StreamsGroupHeartbeatResponse:
    tasks = outcome.tasks
    return StreamsGroupHeartbeatResponse(
        member_id=outcome.member_id,
        member_epoch=outcome.epoch,
        heartbeat_interval_ms=outcome.heartbeat_interval_ms,
        task_offset_interval_ms=outcome.task_offset_interval_ms,
        acceptable_recovery_lag=outcome.acceptable_recovery_lag if version > 0 else -1,
        status=[
            wire.Status(
                status_code=status.code,
                status_detail=status.detail + (failed if status.code is StatusCode.MISSING_INTERNAL_TOPICS else ""),
            )
            for status in outcome.statuses
            if status.code is not StatusCode.MISSING_CLIENT_TAGS or version >= TAGS_KNOWN_FROM
        ],
        active_tasks=None if tasks is None else _task_ids(tasks.active),
        standby_tasks=None if tasks is None else _task_ids(tasks.standby),
        warmup_tasks=None if tasks is None else _task_ids(tasks.warmup),
        endpoint_information_epoch=outcome.endpoint_epoch,
        partitions_by_user_endpoint=None if outcome.endpoints is None else list(map(_reads, outcome.endpoints)),
    )


def _reads(each: EndpointPartitions) -> wire.EndpointToPartitions:
    return wire.EndpointToPartitions(
        user_endpoint=wire.Endpoint(host=each.endpoint.host, port=each.endpoint.port),
        active_partitions=[wire.TopicPartition(name, list(numbers)) for name, numbers in each.active.items()],
        standby_partitions=[wire.TopicPartition(name, list(numbers)) for name, numbers in each.standby.items()],
    )


async def _make(services: BrokerServices, context: RequestContext, missing: Sequence[InternalTopic]) -> str:
    """Have internal topics made, with the member's rights. Returns what to say of those that were not made."""
    access = context.access
    if not access.may(CREATE, CLUSTER, is_noted=False):
        forbidden = [topic.name for topic in missing if not access.may(CREATE, TOPIC, topic.name)]
        if forbidden:
            return f"; Unauthorized to CREATE on topics {_shown(forbidden)}."
    underway = services.streams_topics
    wanted = [topic for topic in missing if topic.name not in underway]
    if not wanted:
        return ""
    names = {topic.name for topic in wanted}
    if context.charge is not None:
        context.charge.take_mutations(sum(topic.partitions for topic in wanted), is_strict=False)
    underway.update(names)
    try:
        call = services.ask(context, CreateTopics(topics=tuple(_creatable(services, topic) for topic in wanted)))
        created = (await within(call, CREATION_TIMEOUT_MS)).topics
    except KafkaError as error:
        return f"; Creation failed: {error.message or error.code.name}."
    finally:
        underway.difference_update(names)
    failed = [
        f"{topic.name} ({topic.error.message or topic.error.code.name})"
        for topic in created
        if topic.error is not None and topic.error.code is not ErrorCode.TOPIC_ALREADY_EXISTS
    ]
    return f"; Creation failed: {_shown(failed)}." if failed else ""


def _creatable(services: BrokerServices, topic: InternalTopic) -> CreatableTopic:
    factor = topic.replication_factor
    return CreatableTopic(
        name=topic.name,
        partition_count=topic.partitions,
        replication_factor=factor if factor > 0 else services.config.default_replication_factor,
        configs=dict(topic.configs),
    )


def _shown(names: Sequence[str]) -> str:
    more = len(names) - NAMES_SHOWN_MAX
    return ", ".join(names[:NAMES_SHOWN_MAX]) + (f" and {more} additional topics" if more > 0 else "")


def _check(request: StreamsGroupHeartbeatRequest) -> None:
    """Raises INVALID_REQUEST, STREAMS_INVALID_TOPOLOGY."""
    reason = _why_invalid(request)
    if reason is not None:
        raise KafkaError.of(ErrorCode.INVALID_REQUEST, reason)
    if request.topology is not None:
        _check_topology(request.topology)


def _why_invalid(request: StreamsGroupHeartbeatRequest) -> str | None:
    """What of the protocol's rules a request breaks, or None."""
    epoch = request.member_epoch
    lists = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if not request.group_id:
        return "the group id is empty"
    if not request.member_id:
        return "the member id is empty: a member makes its own"
    if request.instance_id == "":
        return "the instance id is empty: leave it null"
    if request.rack_id == "":
        return "the rack id is empty: leave it null"
    if epoch < LEAVES_FOR_A_WHILE:
        return f"member epoch {epoch} is none: 0 joins, -1 leaves, -2 leaves for a while"
    if epoch == LEAVES_FOR_A_WHILE and request.instance_id is None:
        return "only a static member leaves for a while: name its instance id"
    if None in lists and any(tasks is not None for tasks in lists):
        return "a member names its active, standby and warm-up tasks together, or none of them"
    if epoch != JOINS:
        return None if request.topology is None else "a member names its topology when it joins alone"
    if request.rebalance_timeout_ms == -1:
        return "a member that joins names its rebalance time-out"
    if request.topology is None:
        return "a member that joins names its topology"
    if any(lists):
        return "a member that joins owns nothing: send empty lists of tasks"
    if any(part.source_topic_regex for part in request.topology.subtopologies):
        return "regular expressions of source topics are not supported yet: name the topics"
    return None


def _check_topology(topology: wire.Topology) -> None:
    ids = [part.subtopology_id for part in topology.subtopologies]
    if len(set(ids)) != len(ids):
        raise InvalidTopology("two subtopologies have the same id")
    internal = sorted(name for name in _names(topology) if name in INTERNAL_TOPICS or name == METADATA_TOPIC)
    if internal:
        raise InvalidTopology(f"topics of the cluster itself are not an application's: {_shown(internal)}")
    illegal = sorted(name for name in _names(topology) if not is_valid_topic_name(name))
    if illegal:
        raise InvalidTopology(f"no topic may be named {illegal[0][:100]!r}")
    for part in topology.subtopologies:
        if any(topic.partitions for topic in part.state_changelog_topics):
            raise InvalidTopology("a changelog has as many partitions as there are tasks: name none")
        if any(topic.partitions < 0 for topic in part.repartition_source_topics):
            raise InvalidTopology("a repartition topic has partitions, or 0 for as many as follow")
        for group in part.copartition_groups:
            places = (
                (group.source_topics, len(part.source_topics)),
                (group.repartition_source_topics, len(part.repartition_source_topics)),
                (group.source_topic_regex, 0),
            )
            if any(not 0 <= place < count for found, count in places for place in found):
                raise InvalidTopology(
                    f"a copartition group of subtopology {part.subtopology_id!r} names a topic that it has not"
                )


def _size(topology: wire.Topology | None) -> int:
    """What a topology has to be looked at for."""
    found = 0
    for part in () if topology is None else topology.subtopologies:
        made = (*part.state_changelog_topics, *part.repartition_source_topics)
        found += 1 + len(part.source_topics) + len(part.repartition_sink_topics)
        found += sum(1 + len(topic.topic_configs) for topic in made)
        found += sum(
            len(group.source_topics) + len(group.repartition_source_topics) for group in part.copartition_groups
        )
    return found


def _names(topology: wire.Topology | None) -> set[str]:
    """Every topic that a topology names."""
    found: set[str] = set()
    for part in () if topology is None else topology.subtopologies:
        found.update(part.source_topics, part.repartition_sink_topics)
        found.update(topic.name for topic in (*part.state_changelog_topics, *part.repartition_source_topics))
    return found


def _topology(topology: wire.Topology) -> Topology:
    return Topology(
        topology.epoch,
        tuple(
            Subtopology(
                subtopology_id=part.subtopology_id,
                source_topics=tuple(part.source_topics),
                changelogs=tuple(map(_internal_topic, part.state_changelog_topics)),
                repartition_sinks=tuple(part.repartition_sink_topics),
                repartition_sources=tuple(map(_internal_topic, part.repartition_source_topics)),
                copartitions=tuple(
                    CopartitionGroup(tuple(group.source_topics), (), tuple(group.repartition_source_topics))
                    for group in part.copartition_groups
                ),
            )
            for part in topology.subtopologies
        ),
    )


def _internal_topic(topic: wire.TopicInfo) -> InternalTopic:
    return InternalTopic(topic.name, topic.partitions, topic.replication_factor, _pairs(topic.topic_configs))


def _pairs(found: Iterable[wire.KeyValue]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((pair.key, pair.value) for pair in found))


def _endpoint(endpoint: wire.Endpoint) -> Endpoint:
    return Endpoint(endpoint.host, endpoint.port)


def _owned(request: StreamsGroupHeartbeatRequest) -> Tasks | None:
    if request.active_tasks is None or request.standby_tasks is None or request.warmup_tasks is None:
        return None
    return Tasks(_tasks(request.active_tasks), _tasks(request.standby_tasks), _tasks(request.warmup_tasks))


def _tasks(found: Iterable[wire.TaskIds]) -> frozenset[Task]:
    return frozenset(Task(ids.subtopology_id, partition) for ids in found for partition in ids.partitions)


def _offsets(found: Iterable[wire.TaskOffset] | None) -> dict[Task, int] | None:
    return None if found is None else {Task(each.subtopology_id, each.partition): each.offset for each in found}


def _task_ids(tasks: Iterable[Task]) -> list[wire.TaskIds]:
    return [wire.TaskIds(name, partitions) for name, partitions in by_subtopology(tasks).items()]


# ---- StreamsGroupDescribe --------------------------------------------------------------------------------------------


def _undescribed(request: StreamsGroupDescribeRequest, error: KafkaError) -> StreamsGroupDescribeResponse:
    groups = [DescribedGroup(group_id=group_id, **error_fields(error)) for group_id in dict.fromkeys(request.group_ids)]
    return StreamsGroupDescribeResponse(groups=groups)


@handles(ApiKey.STREAMS_GROUP_DESCRIBE, versions=(0, 1), on_error=_undescribed)
async def describe(
    services: BrokerServices, context: RequestContext, request: StreamsGroupDescribeRequest
) -> StreamsGroupDescribeResponse:
    """State, epochs, topology and members of each group."""
    _require_served(services, context)
    described: list[DescribedGroup] = []
    shown = 0
    for group_id in dict.fromkeys(request.group_ids):
        shown += 1
        if shown >= GROUPS_PER_TURN:
            shown = 0
            await asyncio.sleep(0)
        group = await _described(services, context, group_id)
        if group.error_code == ErrorCode.NONE:
            if request.include_authorized_operations:
                group.authorized_operations = context.access.operations(GROUP_OPERATIONS, GROUP, group_id)
            if request.include_topology_description:
                group.topology_description_status = NOT_STORED
        parts = group.topology.subtopologies if group.topology is not None else None
        shown += len(group.members) + len(parts or ())
        described.append(group)
    return StreamsGroupDescribeResponse(groups=described)


async def _described(services: BrokerServices, context: RequestContext, group_id: str) -> DescribedGroup:
    try:
        context.access.require(DESCRIBE, GROUP, group_id)
        group = await services.groups.describe_streams_group(group_id)
        topology = group.topology
        sinks = {name for part in topology.subtopologies for name in part.repartition_sinks} if topology else set()
        for name in sorted(sinks | topology.topics if topology else sinks):
            context.access.require(DESCRIBE, TOPIC, name)
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, **error_fields(error))
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        topology=_described_topology(group),
        members=[_member(member) for member in group.members],
        assignor_name=group.assignor if context.api_version > 0 else None,
        obstacle=None if group.configured.status is None else group.configured.status.detail,
    )


def _described_topology(group: StreamsGroupDescription) -> describe_messages.Topology | None:
    if group.topology is None:
        return None
    counts = group.configured.partition_counts
    if not group.configured.task_counts:
        return describe_messages.Topology(epoch=group.topology.epoch)
    return describe_messages.Topology(
        epoch=group.topology.epoch,
        subtopologies=[
            describe_messages.Subtopology(
                subtopology_id=part.subtopology_id,
                source_topics=list(part.source_topics),
                repartition_sink_topics=list(part.repartition_sinks),
                state_changelog_topics=[_topic_info(topic, counts) for topic in part.changelogs],
                repartition_source_topics=[_topic_info(topic, counts) for topic in part.repartition_sources],
            )
            for part in group.topology.subtopologies
        ],
    )


def _topic_info(topic: InternalTopic, counts: Mapping[str, int]) -> wire.TopicInfo:
    return wire.TopicInfo(
        name=topic.name,
        partitions=counts[topic.name],
        replication_factor=topic.replication_factor,
        topic_configs=[wire.KeyValue(key, value) for key, value in topic.configs],
    )


def _member(member: StreamsMemberDescription) -> describe_messages.Member:
    said = member.metadata
    return describe_messages.Member(
        member_id=member.member_id,
        member_epoch=member.epoch,
        instance_id=said.instance_id,
        rack_id=said.rack_id,
        client_id=said.client_id,
        client_host=said.client_host,
        topology_epoch=said.topology_epoch,
        process_id=said.process_id,
        user_endpoint=None if said.endpoint is None else wire.Endpoint(*said.endpoint),
        client_tags=[wire.KeyValue(key, value) for key, value in said.client_tags],
        task_offsets=_task_offsets(member.offsets.reached),
        task_end_offsets=_task_offsets(member.offsets.ends),
        assignment=_assignment(member.assignment),
        target_assignment=_assignment(member.target),
    )


def _task_offsets(offsets: Mapping[Task, int]) -> list[wire.TaskOffset]:
    return [wire.TaskOffset(*task, offset) for task, offset in sorted(offsets.items())]


def _assignment(tasks: Tasks) -> describe_messages.Assignment:
    return describe_messages.Assignment(*map(_task_ids, tasks))


# ---- StreamsGroupTopologyDescriptionUpdate ---------------------------------------------------------------------------


@handles(ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE, versions=(0, 0))
def update_description(
    services: BrokerServices, context: RequestContext, request: StreamsGroupTopologyDescriptionUpdateRequest
) -> StreamsGroupTopologyDescriptionUpdateResponse:
    """Nothing here stores descriptions, and no heartbeat asks for one."""
    context.access.require(READ, GROUP, request.group_id)
    raise KafkaError.of(
        ErrorCode.UNSUPPORTED_VERSION,
        "descriptions of topologies are not stored here: set topology.description.push.enabled=false",
    )
