"""A consumer group as people and admin clients see it.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network, the metadata.
Invariants: topics are named by their ids: what shows them knows their names.
Read next:  messages.py.
"""

from __future__ import annotations

from barnabas_coordination.group.consumer.group import ConsumerGroup
from barnabas_coordination.group.consumer.member import ConsumerMember
from barnabas_coordination.group.consumer.messages import ConsumerGroupDescription, ConsumerMemberDescription, Finding
from barnabas_coordination.group.led_records import Partitions


def describe(group: ConsumerGroup, assignor: str, findings: tuple[Finding, ...] = ()) -> ConsumerGroupDescription:
    """The group as it is now; `assignor`: the one that makes its targets; `findings`: see explanation.py."""
    return ConsumerGroupDescription(
        group_id=group.group_id,
        state=group.state.value,
        epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor=assignor,
        findings=findings,
        members=tuple(_describe(group, group.members[member_id]) for member_id in sorted(group.members)),
    )


def _describe(group: ConsumerGroup, member: ConsumerMember) -> ConsumerMemberDescription:
    metadata = member.metadata
    return ConsumerMemberDescription(
        member_id=member.member_id,
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        epoch=member.epoch,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        topic_names=metadata.topic_names,
        topic_regex=metadata.topic_regex,
        assignment=_held(member),
        target=group.target(member.member_id),
        is_classic=member.is_classic,
    )


def _held(member: ConsumerMember) -> Partitions:
    topics = sorted(member.assigned.keys() | member.pending.keys())
    return {
        topic_id: tuple(sorted({*member.assigned.get(topic_id, {}), *member.pending.get(topic_id, {})}))
        for topic_id in topics
    }
