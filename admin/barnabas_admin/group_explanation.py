"""Why a consumer group is not stable: what its coordinator finds, in words, and what helps.

May touch:  barnabas_wire.client.     Must not touch: printing, the admin service.
Invariants: nothing is said of a member that is where it should be and was heard in time; a time that the coordinator does not know is
            left out.
Read next:  commands/explain.py; barnabas_coordination/group/consumer/explanation.py, which finds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from barnabas_admin.errors import AdminError
from barnabas_admin.progress import duration_text
from barnabas_admin.streams_explanation import facts_and_findings
from barnabas_wire.client.cluster import ClusterClient
from barnabas_wire.client.metadata import known_code
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    DescribedGroup,
    Finding,
    Member,
)
from barnabas_wire.kafka.messages.describe_groups import DescribeGroupsRequest
from barnabas_wire.kafka.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    RequestGroup,
    ResponseGroup,
)
from barnabas_wire.kafka.messages.share_group_describe import DescribedGroup as DescribedShareGroup
from barnabas_wire.kafka.messages.share_group_describe import ShareGroupDescribeRequest
from barnabas_wire.kafka.messages.streams_group_describe import StreamsGroupDescribeRequest

NOT_OF_THIS_TYPE = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
NAMED_MAX = 5
"""Members and partitions that one line names; of more the number is said."""
CLASSIC_STATES: Mapping[str, str] = {
    "Stable": "every member has its assignment",
    "Empty": "it has no members",
    "PreparingRebalance": "it waits for its members to join again; who does not is out when its rebalance time-out ends",
    "CompletingRebalance": "it waits for the assignment of the member that leads it",
}


class Explanation(NamedTuple):
    """What is the matter with a group."""

    status: str
    """One word: stable, reconciling, …; unstable-members for a stable group of which members are late or away."""
    summary: str
    facts: list[str]
    steps: list[tuple[str, str]]
    """(purpose, command)."""
    findings: list[dict[str, Any]]
    """What the facts are made from, for programs."""


async def explain(client: ClusterClient, group: str) -> Explanation:
    """Ask the group's coordinator. Raises AdminError for a group that nobody knows, KafkaError, OSError."""
    try:
        answer = await client.call_coordinator(group, ConsumerGroupDescribeRequest(group_ids=[group], explains=True))
        (described,) = answer.groups
    except KafkaError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        described = DescribedGroup(group_id=group, error_code=ErrorCode.UNSUPPORTED_VERSION)
    if described.error_code in NOT_OF_THIS_TYPE:
        return (
            await _explain_streams(client, group)
            or await _explain_share(client, group)
            or await _explain_classic(client, group)
        )
    if described.error_code:
        raise KafkaError.of(known_code(described.error_code), described.error_message or f"explaining group {group}")
    return word(described)


async def facts_of(client: ClusterClient, group: str) -> list[str]:
    """What a group waits for, beyond its epochs; nothing of one that went meanwhile. Raises KafkaError, OSError."""
    try:
        said = await explain(client, group)
    except AdminError:
        return []
    return said.facts[1:]


async def _explain_streams(client: ClusterClient, group: str) -> Explanation | None:
    """None for a group of another type."""
    try:
        answer = await client.call_coordinator(group, StreamsGroupDescribeRequest(group_ids=[group]))
    except KafkaError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        return None
    (described,) = answer.groups
    if described.error_code in NOT_OF_THIS_TYPE:
        return None
    if described.error_code:
        raise KafkaError.of(known_code(described.error_code), described.error_message or f"explaining group {group}")
    facts, findings = facts_and_findings(described)
    instances = len({member.process_id for member in described.members})
    epochs = f"epoch {described.group_epoch}, targets of epoch {described.assignment_epoch}"
    ending = "" if findings or described.group_state != "Stable" else ": every member has what it is to have"
    return Explanation(
        status=described.group_state.lower(),
        summary=f"group {group} (streams) is {described.group_state}{ending}",
        facts=[f"{epochs}, {len(described.members)} members in {instances} instances", *facts],
        steps=[],
        findings=findings,
    )


async def _explain_share(client: ClusterClient, group: str) -> Explanation | None:
    """None for a group of another type."""
    try:
        answer = await client.call_coordinator(group, ShareGroupDescribeRequest(group_ids=[group]))
        (described,) = answer.groups
        if described.error_code in NOT_OF_THIS_TYPE:
            return None
        if described.error_code:
            raise KafkaError.of(
                known_code(described.error_code), described.error_message or f"explaining group {group}"
            )
        (offsets,) = (
            await client.call_coordinator(group, DescribeShareGroupOffsetsRequest([RequestGroup(group, None)]))
        ).groups
    except KafkaError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        return None
    return word_share(described, offsets)


def word_share(described: DescribedShareGroup, offsets: ResponseGroup) -> Explanation:
    """A share group in words: what its members read, where it begins in each partition and how much is left."""
    group = described.group_id
    held: dict[tuple[str, int], list[str]] = {}
    for member in described.members:
        for topic in member.assignment.topic_partitions:
            for partition in topic.partitions:
                held.setdefault((topic.topic_name, partition), []).append(member.member_id)
    facts = [
        f"epoch {described.group_epoch}, targets of epoch {described.assignment_epoch} by {described.assignor_name}, "
        f"{_count(described.members)}"
    ]
    findings: list[dict[str, Any]] = []
    for begun in offsets.topics:
        for at in begun.partitions:
            members = held.get((begun.topic_name, at.partition_index), [])
            finding = {
                "kind": "partition",
                "topic": begun.topic_name,
                "partition": at.partition_index,
                "start_offset": None if at.start_offset < 0 else at.start_offset,
                "lag": None if at.lag < 0 else at.lag,
                "members": members,
            }
            findings.append(finding)
            start = "has no start offset yet" if at.start_offset < 0 else f"begins at offset {at.start_offset}"
            left = "" if at.lag < 0 else f", {at.lag} left"
            facts.append(f"{begun.topic_name}-{at.partition_index} {start}{left}, read by {_count(members)}")
    for waiting in described.beginning or ():
        for partition in waiting.partitions:
            findings.append({"kind": "beginning", "topic": waiting.topic_name, "partition": partition})
            facts.append(
                f"{waiting.topic_name}-{partition} has no share state yet: nobody reads it until a share coordinator has begun it"
            )
    steps = []
    if described.beginning:
        steps.append(
            ("look whether __share_group_state has leaders and enough replicas in sync", "barnabas cluster health")
        )
    if not described.members:
        steps.append(("start a consumer", ""))
    return Explanation(
        status=described.group_state.lower(),
        summary=f"group {group} (share) is {described.group_state}",
        facts=facts,
        steps=steps,
        findings=findings,
    )


async def _explain_classic(client: ClusterClient, group: str) -> Explanation:
    (described,) = (await client.call_coordinator(group, DescribeGroupsRequest(groups=[group]))).groups
    if described.error_code == ErrorCode.GROUP_ID_NOT_FOUND or described.group_state == "Dead":
        raise AdminError(
            f"group {group!r} does not exist",
            code=ErrorCode.GROUP_ID_NOT_FOUND,
            hint="`barnabas group list` shows the groups",
        )
    if described.error_code:
        raise KafkaError.of(known_code(described.error_code), f"explaining group {group}")
    state = described.group_state
    return Explanation(
        status=state.lower(),
        summary=f"group {group} (classic) is {state}: {CLASSIC_STATES.get(state, '')}",
        facts=[
            f"{len(described.members)} members, which assign among themselves by {described.protocol_data or 'nothing yet'}"
        ],
        steps=[],
        findings=[],
    )


def word(described: DescribedGroup) -> Explanation:
    """The findings of a group of the consumer protocol in words."""
    members = {member.member_id: member for member in described.members}
    findings = described.findings
    state = described.group_state
    facts = [
        f"epoch {described.group_epoch}, targets of epoch {described.assignment_epoch} by {described.assignor_name}, {len(members)} members"
    ]
    if findings is None:
        facts.append("its coordinator runs a version that does not say why: upgrade it")
        findings = []
    facts += [_fact(finding, members) for finding in findings]
    steps = list(dict.fromkeys(step for finding in findings for step in _steps(finding, described.group_id)))
    is_flawed = state == "Stable" and bool(findings)
    summary = f"group {described.group_id} (consumer) is {state}"
    if not findings and state == "Stable":
        summary += ": every member has what it is to have"
    elif is_flawed:
        summary += ", but not all of its members are well"
    return Explanation(
        status="unstable-members" if is_flawed else state.lower(),
        summary=summary,
        facts=facts,
        steps=steps,
        findings=[_fields(finding) for finding in findings],
    )


def _fact(finding: Finding, members: Mapping[str, Member]) -> str:
    who = _name(finding.member_id, members)
    others = _named([_name(each, members) for each in finding.others], "members")
    held = _partitions(finding)
    since = "" if finding.since_ms < 0 else f" for {_duration(finding.since_ms)}"
    ends = "" if finding.ends_in_ms < 0 else f" in {_duration(finding.ends_in_ms)}"
    match finding.kind:
        case "empty":
            return "it has no members"
        case "unresolved":
            return f"the regular expressions of {others} are being resolved: until then they have nothing by them"
        case "unassigned":
            when = (
                "the next heartbeat of any member"
                if finding.ends_in_ms <= 0
                else f"the first heartbeat after {_duration(finding.ends_in_ms)}"
            )
            return f"it changed: {when} makes new targets"
        case "assigning":
            return "it changed: new targets are in the making"
        case "revoking":
            waits = f"; {others} wait for it" if finding.others else ""
            return f"{who} has had to give up {held}{since}{waits}" + (
                f"; it is put out{ends} unless it does" if ends else ""
            )
        case "waiting":
            return f"{who} waits for {held}, which {others} have not given up yet"
        case "behind":
            return f"{who} has not heard of its new target: its next heartbeat tells it" + (
                f" (it was last heard {_duration(finding.since_ms)} ago)" if since else ""
            )
        case "rejoining":
            return f"{who} speaks the classic protocol and has to join again, which it was told"
        case "silent":
            return f"{who} is late: it was last heard {_duration(finding.since_ms)} ago" + (
                f", and is put out{ends}" if ends else ""
            )
        case "away":
            gets = f", which go to {others} then" if finding.others else ""
            return f"{who} left for a while and keeps {held or 'nothing'}; it is put out{ends or ' when its session ends'}{gets}"
    return f"{finding.kind} {who} {held} {others}".rstrip()


def _steps(finding: Finding, group: str) -> list[tuple[str, str]]:
    match finding.kind:
        case "revoking":
            purpose = "a member gives up partitions in its poll: see what its process does between two polls, or end it"
            return [(purpose, f"barnabas group describe {group}")]
        case "silent":
            return [
                (
                    "a member beats while its process runs and reaches its coordinator: look at both, or wait for its end",
                    "",
                )
            ]
        case "away":
            return [("start the static member again before its session ends, or close it for good", "")]
        case "empty":
            return [("start a consumer", "")]
    return []


def _fields(finding: Finding) -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "member": finding.member_id or None,
        "partitions": [
            {"topic": topic.topic_name, "partition": partition}
            for topic in finding.partitions
            for partition in topic.partitions
        ],
        "others": list(finding.others),
        "since_ms": finding.since_ms if finding.since_ms >= 0 else None,
        "ends_in_ms": finding.ends_in_ms if finding.ends_in_ms >= 0 else None,
    }


def _name(member_id: str, members: Mapping[str, Member]) -> str:
    member = members.get(member_id)
    if member is None:
        return f"member {member_id}"
    return f"member {member.instance_id or member_id} ({member.client_id} at {member.client_host.removeprefix('/')})"


def _count(members: Sequence[object]) -> str:
    return f"{len(members)} member{'' if len(members) == 1 else 's'}"


def _partitions(finding: Finding) -> str:
    return _named([f"{t.topic_name}-{number}" for t in finding.partitions for number in t.partitions], "partitions")


def _named(names: Sequence[str], what: str) -> str:
    if len(names) > NAMED_MAX:
        return f"{len(names)} {what} ({', '.join(names[:NAMED_MAX])}, …)"
    return ", ".join(names)


def _duration(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.1f} s" if milliseconds < 10_000 else duration_text(milliseconds / 1000)
