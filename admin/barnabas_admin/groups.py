"""Consumer groups as the brokers know them: which there are, who is in them, how far they are behind.

May touch:  barnabas_wire.client.     Must not touch: printing, the offsets topic.
Invariants: a group without members is described too, with its committed offsets and lag.
Read next:  kafka.py.
"""

from __future__ import annotations

from typing import Any

from barnabas_admin.errors import AdminError
from barnabas_admin.kafka import assigned_partitions
from barnabas_wire.client.cluster import ClusterClient
from barnabas_wire.client.metadata import LATEST, known_code
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.kafka.messages.describe_groups import DescribeGroupsRequest
from barnabas_wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from barnabas_wire.kafka.messages.list_groups import ListGroupsRequest
from barnabas_wire.kafka.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup


async def list_groups(client: ClusterClient) -> list[dict[str, Any]]:
    """Every group with its state and coordinator, by name. Raises KafkaError, OSError."""
    view = await client.metadata([])
    groups = []
    for broker_id in sorted(view.brokers):
        answer = await client.call(ListGroupsRequest(), broker_id=broker_id)
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
    view = await client.metadata()
    answer = await client.call_coordinator(group, DescribeGroupsRequest(groups=[group]))
    (described,) = answer.groups
    offsets = await client.call_coordinator(
        group,
        OffsetFetchRequest(group_id=group, topics=None, groups=[OffsetFetchRequestGroup(group_id=group, topics=None)]),
    )
    names = {topic_id: name for name, topic_id in view.topic_ids.items()}
    committed = {
        TopicPartition(topic.name or names.get(topic.topic_id, str(topic.topic_id)), entry.partition_index): (
            entry.committed_offset
        )
        for answered in offsets.groups
        for topic in answered.topics
        for entry in topic.partitions
        if entry.committed_offset >= 0
    }
    is_absent = described.error_code == ErrorCode.GROUP_ID_NOT_FOUND or described.group_state == "Dead"
    if is_absent and not committed:
        raise AdminError(
            f"group {group!r} does not exist",
            code=ErrorCode.GROUP_ID_NOT_FOUND,
            hint="`barnabas group list` shows the groups",
        )
    if described.error_code and not is_absent:
        raise KafkaError.of(known_code(described.error_code), f"describing group {group}")
    found = await client.call(FindCoordinatorRequest(key=group, coordinator_keys=[group]))
    members = [_member(member) for member in described.members]
    owners = {partition: member for member in members for partition in member["partitions"]}
    wanted = sorted(committed.keys() | owners.keys())
    # A topic may have been deleted since the group committed for it.
    living = [p for p in wanted if p.partition in view.topics.get(p.topic, {})]
    ends = await client.list_offsets(dict.fromkeys(living, LATEST)) if living else {}
    rows = []
    for partition in wanted:
        offset, end = committed.get(partition), ends.get(partition)
        owner = owners.get(partition, {})
        rows.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "committed": offset,
                "end": None if end is None else int(end.offset),
                "lag": None if end is None or offset is None else max(0, int(end.offset) - offset),
                "member": owner.get("member"),
                "client": owner.get("client"),
                "host": owner.get("host"),
            }
        )
    return {
        "group": group,
        "state": described.group_state,
        "protocol_type": described.protocol_type,
        "protocol": described.protocol_data,
        "coordinator": found.coordinators[0].node_id if found.coordinators else found.node_id,
        "total_lag": sum(row["lag"] or 0 for row in rows),
        "members": [
            member | {"partitions": [{"topic": p.topic, "partition": p.partition} for p in member["partitions"]]}
            for member in members
        ],
        "partitions": rows,
    }


def _member(member: Any) -> dict[str, Any]:
    return {
        "member": member.member_id,
        "instance_id": member.group_instance_id,
        "client": member.client_id,
        "host": member.client_host.removeprefix("/"),
        "partitions": assigned_partitions(bytes(member.member_assignment)),
    }
