"""Consumer groups as the brokers know them: which there are, who is in them, how far they are behind.

May touch:  barnabas_wire.client.     Must not touch: printing, the offsets topic.
Invariants: a group without members is described too, with its committed offsets and lag.
Read next:  kafka.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from barnabas_admin.errors import AdminError
from barnabas_admin.kafka import assigned_partitions
from barnabas_wire.client.cluster import ClusterClient
from barnabas_wire.client.metadata import LATEST, known_code
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.kafka.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas_wire.kafka.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from barnabas_wire.kafka.messages.consumer_group_describe import Member as ConsumerGroupMember
from barnabas_wire.kafka.messages.describe_groups import DescribeGroupsRequest
from barnabas_wire.kafka.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequest, RequestGroup
from barnabas_wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from barnabas_wire.kafka.messages.list_groups import ListGroupsRequest
from barnabas_wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from barnabas_wire.kafka.messages.share_group_describe import DescribedGroup as DescribedShareGroup
from barnabas_wire.kafka.messages.share_group_describe import Member as ShareGroupMember
from barnabas_wire.kafka.messages.share_group_describe import ShareGroupDescribeRequest
from barnabas_wire.kafka.messages.streams_group_describe import Assignment as StreamsAssignment
from barnabas_wire.kafka.messages.streams_group_describe import DescribedGroup as DescribedStreamsGroup
from barnabas_wire.kafka.messages.streams_group_describe import Member as StreamsGroupMember
from barnabas_wire.kafka.messages.streams_group_describe import StreamsGroupDescribeRequest

CLASSIC_MEMBER = 0
ROLES = ("active", "standby", "warmup")
"""What a member of a Streams group does with a task."""
OFFSETS_BY_NAME_VERSION_MAX = 9
"""From version 10 on OffsetFetch names topics by id."""


async def list_groups(client: ClusterClient) -> list[dict[str, Any]]:
    """Every group with its state and coordinator, by name. Raises KafkaError, OSError."""
    view = await client.metadata([])
    ids = sorted(view.brokers)
    answers = await asyncio.gather(*(client.call(ListGroupsRequest(), broker_id=each) for each in ids))
    groups = []
    for broker_id, answer in zip(ids, answers, strict=True):
        if answer.error_code:
            raise KafkaError.of(known_code(answer.error_code), f"listing the groups of broker {broker_id}")
        groups += [
            {
                "group": group.group_id,
                "state": group.group_state,
                "type": group.group_type,
                "protocol_type": group.protocol_type,
                "coordinator": broker_id,
            }
            for group in answer.groups
        ]
    return sorted(groups, key=lambda group: group["group"])


async def describe_group(client: ClusterClient, group: str) -> dict[str, Any]:
    """Members, committed offsets and lag of a group, also of one without members. Raises AdminError for one that nobody knows,
    KafkaError, OSError."""
    return await _describe(client, group, None)


async def _describe(client: ClusterClient, group: str, only: Collection[TopicPartition] | None) -> dict[str, Any]:
    described = await client.call_coordinator(group, DescribeGroupsRequest(groups=[group]))
    await _describe_consumers(described, lambda request: client.call_coordinator(group, request))
    wanted = _offsets_request([group], only)
    offsets = await client.call_coordinator(group, wanted, version_max=OFFSETS_BY_NAME_VERSION_MAX)
    found = await client.call(FindCoordinatorRequest(key=group, coordinator_keys=[group]))
    coordinator = found.coordinators[0].node_id if found.coordinators else found.node_id
    (state,) = _read_states(described, offsets, coordinator, only)
    _check_known(state)
    return _fields(state, await _ends(client, [state], {}))


async def is_share_group(client: ClusterClient, group: str) -> bool:
    """Whether the group is one of KIP-932, whose offsets are set and deleted in ways of their own. Raises KafkaError, OSError."""
    try:
        answer = await client.call_coordinator(group, ShareGroupDescribeRequest(group_ids=[group]))
    except KafkaError as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            return False
        raise
    return not answer.groups[0].error_code


async def describe_groups(
    client: ClusterClient,
    coordinators: Mapping[str, int],
    *,
    only: Collection[TopicPartition] | None = None,
    ends: Mapping[TopicPartition, int] | None = None,
) -> dict[str, dict[str, Any]]:
    """The same of many groups, for one request to each coordinator and each leader in place of some to each group.

    Args:
        coordinators: group -> broker, as `list_groups` reports them. Of a group that has moved since, the new one is found.
        only: offsets and lag are asked of these partitions alone; a group that reads none of them has no partitions.
        ends: of partitions where the caller has asked for them a moment ago.

    Leaves out the groups that went away, or whose coordinator or leaders do not answer. Raises KafkaError, OSError.
    """
    by_broker: dict[int, list[str]] = {}
    for group, broker_id in coordinators.items():
        by_broker.setdefault(broker_id, []).append(group)
    asked = await asyncio.gather(*(_ask_coordinator(client, *each, only) for each in by_broker.items()))
    states = [state for found in asked for state in found]
    try:
        all_ends = await _ends(client, states, ends or {})
        found = {state.group: _fields(state, all_ends) for state in states}
    except (KafkaError, OSError, TimeoutError):
        found = {}  # one partition among all of them has no leader that answers: below each group is asked by itself
    alone = [group for group in coordinators if group not in found]
    for group, described in zip(
        alone, await asyncio.gather(*(_alone(client, each, only) for each in alone)), strict=True
    ):
        if described is not None:
            found[group] = described
    return found


class _State(NamedTuple):
    """What a coordinator reports of one group."""

    group: str
    described: Any
    committed: dict[TopicPartition, int]
    coordinator: int
    members: list[dict[str, Any]]
    offsets_error: int
    """The error of the question what it has committed."""
    only: Collection[TopicPartition] | None
    """Partitions that were asked about; None: all."""

    @property
    def partitions(self) -> set[TopicPartition]:
        """That it has committed for, or that its members own, of those asked about."""
        read = self.committed.keys() | {owned for member in self.members for owned in member["partitions"]}
        return read if self.only is None else read.intersection(self.only)


async def _ask_coordinator(
    client: ClusterClient, broker_id: int, groups: list[str], only: Collection[TopicPartition] | None
) -> list[_State]:
    """Those of the groups that this broker coordinates, and knows."""
    try:
        described = await client.call(DescribeGroupsRequest(groups=groups), broker_id=broker_id)
        await _describe_consumers(described, lambda request: client.call(request, broker_id=broker_id))
        offsets = await client.call(
            _offsets_request(groups, only), broker_id=broker_id, version_max=OFFSETS_BY_NAME_VERSION_MAX
        )
    except (KafkaError, OSError, TimeoutError):
        return []  # each is asked by itself then, wherever its coordinator is now
    return [state for state in _read_states(described, offsets, broker_id, only) if _is_readable(state)]


async def _alone(client: ClusterClient, group: str, only: Collection[TopicPartition] | None) -> dict[str, Any] | None:
    try:
        return await _describe(client, group, only)
    except (KafkaError, OSError, TimeoutError):
        return None


async def _describe_consumers(described: Any, ask: Callable[[Any], Awaitable[Any]]) -> None:
    """DescribeGroups knows no group of the consumer protocol (KIP-848), no Streams group (KIP-1071) and no share group (KIP-932): put in
    what their own APIs say of those. Brokers that do not serve one have none."""
    for request, shown in (
        (ConsumerGroupDescribeRequest, _ConsumerGroup),
        (StreamsGroupDescribeRequest, _StreamsGroup),
        (ShareGroupDescribeRequest, _ShareGroup),
    ):
        unknown = [each.group_id for each in described.groups if _is_unknown(each)]
        if not unknown:
            return
        try:
            answer = await ask(request(group_ids=unknown))
        except KafkaError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
            continue
        found = {each.group_id: shown(each) for each in answer.groups if not each.error_code}
        described.groups = [found.get(each.group_id, each) for each in described.groups]
    shares = {each.group_id: each for each in described.groups if isinstance(each, _ShareGroup)}
    if shares:
        wanted = DescribeShareGroupOffsetsRequest([RequestGroup(group, None) for group in shares])
        for answered in (await ask(wanted)).groups:
            shares[answered.group_id].take(answered)


class _ConsumerGroup:
    """A group of the consumer protocol, with the fields that DescribeGroups has of the others."""

    error_code = 0
    protocol_type = "consumer"

    def __init__(self, described: DescribedConsumerGroup) -> None:
        self.group_id = described.group_id
        self.group_state = described.group_state
        self.protocol_data = described.assignor_name
        self.epoch = described.group_epoch
        self.assignment_epoch = described.assignment_epoch
        self.members = described.members


class _StreamsGroup:
    """A Streams group, likewise."""

    error_code = 0
    protocol_type = "streams"

    def __init__(self, described: DescribedStreamsGroup) -> None:
        self.group_id = described.group_id
        self.group_state = described.group_state
        self.protocol_data = described.assignor_name or ""
        self.epoch = described.group_epoch
        self.assignment_epoch = described.assignment_epoch
        topology = described.topology
        read = {
            part.subtopology_id: [*part.source_topics, *(topic.name for topic in part.repartition_source_topics)]
            for part in (topology.subtopologies if topology is not None and topology.subtopologies else ())
        }
        self.members = [_StreamsMember(member, read) for member in described.members]


class _ShareGroup:
    """A share group, likewise, with how far it is: nothing of that is committed as offsets."""

    error_code = 0
    protocol_type = "share"

    def __init__(self, described: DescribedShareGroup) -> None:
        self.group_id = described.group_id
        self.group_state = described.group_state
        self.protocol_data = described.assignor_name
        self.epoch = described.group_epoch
        self.assignment_epoch = described.assignment_epoch
        self.members = described.members
        self.starts: dict[TopicPartition, int] = {}
        self.lags: dict[TopicPartition, int] = {}
        """Records that are not finished; not the distance of start and end, between which some are."""
        self.offsets_error = 0

    def take(self, answered: Any) -> None:
        """What DescribeShareGroupOffsets says of it."""
        self.offsets_error = answered.error_code
        for topic in answered.topics:
            for entry in topic.partitions:
                key = TopicPartition(topic.topic_name, entry.partition_index)
                if entry.start_offset >= 0:
                    self.starts[key] = entry.start_offset
                if entry.lag >= 0:
                    self.lags[key] = entry.lag


class _StreamsMember(NamedTuple):
    """A member of one, and the topics that each subtopology reads."""

    described: StreamsGroupMember
    read: dict[str, list[str]]


def _offsets_request(groups: Sequence[str], only: Collection[TopicPartition] | None) -> OffsetFetchRequest:
    """What these groups have committed; by name, for a topic of an id alone may be gone."""
    by_topic: dict[str, list[int]] = {}
    for each in only or ():
        by_topic.setdefault(each.topic, []).append(each.partition)
    single = [OffsetFetchRequestTopic(*each) for each in by_topic.items()]
    topics = [OffsetFetchRequestTopics(name=name, partition_indexes=parts) for name, parts in by_topic.items()]
    return OffsetFetchRequest(
        group_id=groups[0],
        topics=None if only is None else single,
        groups=[OffsetFetchRequestGroup(group_id=group, topics=None if only is None else topics) for group in groups],
    )


def _read_states(
    described: Any, offsets: Any, coordinator: int, only: Collection[TopicPartition] | None
) -> list[_State]:
    committed = {
        answered.group_id: {
            TopicPartition(topic.name, entry.partition_index): entry.committed_offset
            for topic in answered.topics
            for entry in topic.partitions
            if entry.committed_offset >= 0
        }
        for answered in offsets.groups
    }
    errors = {answered.group_id: answered.error_code for answered in offsets.groups}
    return [
        _State(
            each.group_id,
            each,
            each.starts if isinstance(each, _ShareGroup) else committed.get(each.group_id, {}),
            coordinator,
            [_member(member) for member in each.members],
            each.offsets_error if isinstance(each, _ShareGroup) else errors.get(each.group_id, 0),
            only,
        )
        for each in described.groups
    ]


def _is_absent(state: _State) -> bool:
    """Whether the coordinator has no members of it; groups of other types than these are known by their offsets alone."""
    return _is_unknown(state.described)


def _is_unknown(described: Any) -> bool:
    return bool(described.error_code == ErrorCode.GROUP_ID_NOT_FOUND or described.group_state == "Dead")


def _is_readable(state: _State) -> bool:
    if state.offsets_error:
        return False
    if _is_absent(state):
        return bool(state.committed) or state.only is not None  # it may have committed for others
    return not state.described.error_code


def _check_known(state: _State) -> None:
    """Raise what the coordinator reported of the group, AdminError for one that nobody knows."""
    if _is_absent(state) and not _is_readable(state) and not state.offsets_error:
        raise AdminError(
            f"group {state.group!r} does not exist",
            code=ErrorCode.GROUP_ID_NOT_FOUND,
            hint="`barnabas group list` shows the groups",
        )
    if not _is_readable(state):
        code = known_code(state.offsets_error or state.described.error_code)
        raise KafkaError.of(code, f"describing group {state.group}")


async def _ends(
    client: ClusterClient, states: Sequence[_State], known: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The ends of the partitions that these groups read, those that are known included. A topic may have been deleted since a group
    committed for it, and a partition may have no leader now: those are left out."""
    wanted = {partition for state in states for partition in state.partitions if partition not in known}
    if not wanted:
        return dict(known)
    view = await client.metadata(sorted({each.topic for each in wanted}), skips_missing=True)
    led = [
        each
        for each in sorted(wanted)
        if (partition := view.topics.get(each.topic, {}).get(each.partition)) is not None and partition.leader >= 0
    ]
    found = await client.list_offsets(dict.fromkeys(led, LATEST)) if led else {}
    return {**known, **{each: int(listed.offset) for each, listed in found.items()}}


def _fields(state: _State, ends: Mapping[TopicPartition, int]) -> dict[str, Any]:
    share = state.described if isinstance(state.described, _ShareGroup) else None
    owners = {partition: member for member in state.members for partition in member["partitions"]}
    if share is not None:
        owners = {}  # several members may have a partition
    rows = []
    for partition in sorted(state.partitions):
        offset, end = state.committed.get(partition), ends.get(partition)
        owner = owners.get(partition, {})
        rows.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "committed": offset,
                "end": end,
                "lag": share.lags.get(partition) if share is not None else _distance(offset, end),
                "member": owner.get("member"),
                "client": owner.get("client"),
                "host": owner.get("host"),
            }
        )
    of_consumers = {}
    if isinstance(state.described, _ConsumerGroup | _StreamsGroup | _ShareGroup):
        of_consumers = {"epoch": state.described.epoch, "assignment_epoch": state.described.assignment_epoch}
    return {
        "group": state.group,
        "state": state.described.group_state,
        "type": "share" if share is not None else "consumer" if of_consumers else "classic",
        "protocol_type": state.described.protocol_type,
        "protocol": state.described.protocol_data,
        **of_consumers,
        "coordinator": state.coordinator,
        "total_lag": sum(row["lag"] or 0 for row in rows),
        "members": [
            member | {"partitions": [{"topic": p.topic, "partition": p.partition} for p in member["partitions"]]}
            for member in state.members
        ],
        "partitions": rows,
    }


def _distance(offset: int | None, end: int | None) -> int | None:
    return None if end is None or offset is None else max(0, end - offset)


def _member(member: Any) -> dict[str, Any]:
    if isinstance(member, ConsumerGroupMember):
        return {
            "member": member.member_id,
            "instance_id": member.instance_id,
            "client": member.client_id,
            "host": member.client_host.removeprefix("/"),
            "protocol": "classic" if member.member_type == CLASSIC_MEMBER else "consumer",
            "epoch": member.member_epoch,
            "to_give_up": _partition_count(member.assignment) - _shared_count(member),
            "to_get": _partition_count(member.target_assignment) - _shared_count(member),
            "partitions": [
                TopicPartition(topic.topic_name, partition)
                for topic in member.assignment.topic_partitions
                for partition in topic.partitions
            ],
        }
    if isinstance(member, ShareGroupMember):
        return {
            "member": member.member_id,
            "instance_id": None,
            "client": member.client_id,
            "host": member.client_host.removeprefix("/"),
            "protocol": "share",
            "epoch": member.member_epoch,
            "to_give_up": 0,
            "to_get": 0,
            "partitions": [
                TopicPartition(topic.topic_name, partition)
                for topic in member.assignment.topic_partitions
                for partition in topic.partitions
            ],
        }
    if isinstance(member, _StreamsMember):
        return _streams_member(member.described, member.read)
    return {
        "member": member.member_id,
        "instance_id": member.group_instance_id,
        "client": member.client_id,
        "host": member.client_host.removeprefix("/"),
        "partitions": assigned_partitions(bytes(member.member_assignment)),
    }


def _streams_member(member: StreamsGroupMember, read: Mapping[str, list[str]]) -> dict[str, Any]:
    has, wanted = tasks_of(member.assignment), tasks_of(member.target_assignment)
    return {
        "member": member.member_id,
        "instance_id": member.instance_id,
        "client": member.client_id,
        "host": member.client_host.removeprefix("/"),
        "protocol": "streams",
        "epoch": member.member_epoch,
        "to_give_up": sum(len(has[role] - wanted[role]) for role in ROLES),
        "to_get": sum(len(wanted[role] - has[role]) for role in ROLES),
        "process": member.process_id,
        "tasks": {role: [f"{part}_{number}" for part, number in sorted(has[role])] for role in ROLES},
        "partitions": sorted(
            TopicPartition(topic, number) for part, number in has["active"] for topic in read.get(part, ())
        ),
    }


def tasks_of(assignment: StreamsAssignment) -> dict[str, set[tuple[str, int]]]:
    """Role -> tasks: subtopology and partition of each."""
    lists = (assignment.active_tasks, assignment.standby_tasks, assignment.warmup_tasks)
    return {
        role: {(ids.subtopology_id, number) for ids in tasks for number in ids.partitions}
        for role, tasks in zip(ROLES, lists, strict=True)
    }


def _partition_count(assignment: Any) -> int:
    return sum(len(topic.partitions) for topic in assignment.topic_partitions)


def _shared_count(member: ConsumerGroupMember) -> int:
    """Partitions that it has and is to have."""
    has, wanted = (
        {(topic.topic_id, partition) for topic in assignment.topic_partitions for partition in topic.partitions}
        for assignment in (member.assignment, member.target_assignment)
    )
    return len(has & wanted)
