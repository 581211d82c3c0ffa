"""Why a consumer group is not stable, and what happens next: one finding for each thing that it waits for.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: a group about which nothing is found is stable, and all of its members were heard in time; times that a new coordinator
            cannot know yet are None.
Read next:  reconciliation.py for the states of a member; barnabas_admin/group_explanation.py, which words the findings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from barnabas_coordination.group.consumer import fencing
from barnabas_coordination.group.consumer.group import ConsumerGroup
from barnabas_coordination.group.consumer.member import ConsumerMember, partitions_of
from barnabas_coordination.group.consumer.messages import Finding, FindingKind, Surroundings
from barnabas_coordination.group.consumer.records import MemberState
from barnabas_coordination.group.led_records import Partitions
from barnabas_wire.kafka.ids import Uuid

LATE_AFTER: Final = 1.5
"""Heartbeat intervals without a word after which a member is late."""


def explain(group: ConsumerGroup, around: Surroundings) -> tuple[Finding, ...]:
    """What of the group first, then by member."""
    findings = list(_of_group(group, around))
    for member_id in sorted(group.members):
        findings += _of_member(group, group.members[member_id], around)
    return tuple(findings)


def _of_group(group: ConsumerGroup, around: Surroundings) -> Iterator[Finding]:
    if not group.members:
        yield Finding(FindingKind.EMPTY)
        return
    unresolved = sorted(
        member.member_id for member in group.members.values() if member.regex and member.regex not in group.regexes
    )
    if unresolved:
        yield Finding(FindingKind.UNRESOLVED, others=tuple(unresolved))
    if group.epoch > group.assignment_epoch:
        if group.soft.target_job is not None:
            yield Finding(FindingKind.ASSIGNING)
            return
        held_back_ms = group.assignment_timestamp_ms + around.settings.assignment_interval_ms - around.now_ms
        is_held_back = group.assignment_timestamp_ms != 0 and 0 < held_back_ms <= around.settings.assignment_interval_ms
        yield Finding(FindingKind.UNASSIGNED, ends_in_ms=held_back_ms if is_held_back else 0)


def _of_member(group: ConsumerGroup, member: ConsumerMember, around: Surroundings) -> Iterator[Finding]:
    member_id, now_ms = member.member_id, around.now_ms
    timeout_ms = fencing.session_timeout_ms(member.metadata, around.settings)
    heard_ms = group.soft.last_heartbeat_ms.get(member_id)
    since_ms = None if heard_ms is None else max(0, now_ms - heard_ms)
    ends_in_ms = None if since_ms is None else max(0, timeout_ms - since_ms)
    if member.has_left_for_a_while:
        held = partitions_of(member.assigned)
        yield Finding(FindingKind.AWAY, member_id, held, _waiting_for(group, held), since_ms, ends_in_ms)
        return
    interval_ms = timeout_ms / 3 if member.is_classic else around.settings.heartbeat_interval_ms
    if since_ms is not None and since_ms > LATE_AFTER * interval_ms:
        yield Finding(FindingKind.SILENT, member_id, since_ms=since_ms, ends_in_ms=ends_in_ms)
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        held = partitions_of(member.pending)
        revoking = group.soft.revoking.get(member_id)
        yield Finding(
            FindingKind.REVOKING,
            member_id,
            held,
            _waiting_for(group, held),
            None if revoking is None else max(0, now_ms - revoking.since_ms),
            None if revoking is None else max(0, revoking.until_ms - now_ms),
        )
    elif member.state is MemberState.UNRELEASED_PARTITIONS:
        missing, holders = _held_by_others(group, member)
        yield Finding(FindingKind.WAITING, member_id, missing, holders)
    elif member.epoch < group.assignment_epoch:
        yield Finding(FindingKind.BEHIND, member_id, since_ms=since_ms)
    if member_id in group.soft.joining:
        yield Finding(FindingKind.REJOINING, member_id)


def _held_by_others(group: ConsumerGroup, member: ConsumerMember) -> tuple[Partitions, tuple[str, ...]]:
    """What of its target the member has to wait for, and for whom."""
    missing: dict[Uuid, list[int]] = defaultdict(list)
    holders: set[str] = set()
    for topic_id, partitions in group.target(member.member_id).items():
        for partition in partitions:
            holder = group.holder(topic_id, partition)
            if holder not in (None, member.member_id):
                missing[topic_id].append(partition)
                holders.add(holder)
    return {topic_id: tuple(partitions) for topic_id, partitions in missing.items()}, tuple(sorted(holders))


def _waiting_for(group: ConsumerGroup, held: Partitions) -> tuple[str, ...]:
    """The members that are to have some of these partitions."""
    wanted = {(topic_id, partition) for topic_id, partitions in held.items() for partition in partitions}
    return tuple(
        sorted(
            member_id
            for member_id, target in group.targets.items()
            if member_id in group.members
            and any(
                (topic_id, partition) in wanted and group.holder(topic_id, partition) != member_id
                for topic_id, partitions in target.items()
                for partition in partitions
            )
        )
    )
