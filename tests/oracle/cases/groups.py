"""Classic groups: coordinators, joins, syncs, heartbeats, leaves, commits, and groups seen as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.messages.delete_groups import DeleteGroupsRequest
from barnabas_wire.kafka.messages.describe_groups import DescribeGroupsRequest
from barnabas_wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from barnabas_wire.kafka.messages.heartbeat import HeartbeatRequest
from barnabas_wire.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas_wire.kafka.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas_wire.kafka.messages.list_groups import ListGroupsRequest
from barnabas_wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas_wire.kafka.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas_wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from barnabas_wire.kafka.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.oracle.answers import UNKNOWN_ID, Side
from tests.oracle.cases import case

JOIN_VERSIONS = range(10)
SUBSCRIPTION = b"\0\1\0\0\0\1\0\4grow\xff\xff\xff\xff\0\0\0\0"
"""A consumer's subscription to the topic `grow`, version 1."""
ASSIGNMENT = b"\0\1\0\0\0\1\0\4grow\0\0\0\1\0\0\0\0\xff\xff\xff\xff"


def ready(side: Side, group: str) -> str:
    """The group's name, once its coordinator answers."""
    while True:
        answer = side.call(FindCoordinatorRequest(coordinator_keys=[group]), version=4)
        if answer.coordinators[0].error_code == 0:
            break
    while side.call(DescribeGroupsRequest(groups=[group]), version=5).groups[0].error_code != 0:
        pass
    return group


def join_request(group: str, member: str = "", **fields: Any) -> JoinGroupRequest:
    """A consumer's join."""
    protocols = [JoinGroupRequestProtocol("range", SUBSCRIPTION), JoinGroupRequestProtocol("sticky", SUBSCRIPTION)]
    defaults: dict[str, Any] = {
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
    }
    return JoinGroupRequest(**{"group_id": group, "member_id": member, "protocols": protocols} | defaults | fields)


def join(
    side: Side, group: str, member: str = "", *, version: int = 9, on: str = "", **fields: Any
) -> JoinGroupResponse:
    """One join, as it is answered."""
    answer: JoinGroupResponse = side.call(join_request(group, member, **fields), version=version, on=on)
    return answer


def sync(
    side: Side, group: str, member: str, generation: int, *assigned: str, version: int = 5, on: str = "", **fields: Any
) -> Any:
    """One sync; everybody in `assigned` gets the same."""
    assignments = [SyncGroupRequestAssignment(name, ASSIGNMENT) for name in assigned]
    named = {"protocol_type": "consumer", "protocol_name": "range"} | fields
    return side.call(
        SyncGroupRequest(group, generation, member, assignments=assignments, **named), version=version, on=on
    )


def member_of(side: Side, group: str, *, instance: str | None = None) -> tuple[str, int]:
    """(member id, generation) of the only member of a group that is stable then."""
    joined = join(side, group, group_instance_id=instance)
    if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        joined = join(side, group, joined.member_id)
    assert joined.error_code == 0, (side.name, joined)
    synced = sync(side, group, joined.member_id, joined.generation_id, joined.member_id, group_instance_id=instance)
    assert synced.error_code == 0, (side.name, synced)
    return joined.member_id, joined.generation_id


def leave(side: Side, group: str, *members: str, version: int = 5) -> Any:
    """These members go; before v3 the first."""
    identities = [MemberIdentity(member_id=member) for member in members]
    return side.call(LeaveGroupRequest(group, members[0] if members else "", identities), version=version)


# ---- coordinators ----------------------------------------------------------------------------------------------------


@case({"twice.*": "named-twice"})
def find_coordinator(side: Side) -> Iterator[tuple[str, Any]]:
    ready(side, "find-me")
    for version in range(7):
        fields: dict[str, Any] = {"key": "find-me"} if version < 4 else {"coordinator_keys": ["find-me"]}
        yield f"v{version}", side.call(FindCoordinatorRequest(**fields), version=version)
        fields = {"key": ""} if version < 4 else {"coordinator_keys": [""]}
        yield f"v{version} empty", side.call(FindCoordinatorRequest(**fields), version=version)
        if version >= 1:
            fields = {"key": "x"} if version < 4 else {"coordinator_keys": ["x"]}
            yield f"v{version} type 9", side.call(FindCoordinatorRequest(key_type=9, **fields), version=version)
    yield "two", side.call(FindCoordinatorRequest(coordinator_keys=["a", "b"]), version=4)
    yield "twice", side.call(FindCoordinatorRequest(coordinator_keys=["a", "a"]), version=4)
    yield "none", side.call(FindCoordinatorRequest(), version=4)
    yield "share before v6", side.call(FindCoordinatorRequest(key_type=2, coordinator_keys=["x"]), version=5)
    yield "share", side.call(FindCoordinatorRequest(key_type=2, coordinator_keys=["x"]), version=6)


# ---- joins -----------------------------------------------------------------------------------------------------------


@case()
def join_in_every_version(side: Side) -> Iterator[tuple[str, Any]]:
    for version in JOIN_VERSIONS:
        group = ready(side, f"join-{version}")
        joined = join(side, group, version=version)
        yield f"v{version}", joined
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            joined = join(side, group, joined.member_id, version=version)
            yield f"v{version} with the id", joined
        generation, member = joined.generation_id, joined.member_id
        number = min(version, 5)
        yield f"v{version} sync", sync(side, group, member, generation, member, version=number)
        yield f"v{version} sync again", sync(side, group, member, generation, version=number)
        yield f"v{version} heartbeat", side.call(HeartbeatRequest(group, generation, member), version=min(version, 4))
        yield f"v{version} join again", join(side, group, member, version=version)
        yield f"v{version} leave", leave(side, group, member, version=number)
        yield f"v{version} leave again", leave(side, group, member, version=number)


@case()
def join_refused(side: Side) -> Iterator[tuple[str, Any]]:
    group = ready(side, "join-refused")
    for version in (1, 5, 9):
        yield f"v{version} no group", join(side, "", version=version)
        yield f"v{version} strange member", join(side, group, "stranger", version=version)
        yield f"v{version} session too short", join(side, group, version=version, session_timeout_ms=5)
        yield f"v{version} session too long", join(side, group, version=version, session_timeout_ms=2_000_000_000)
        yield f"v{version} session negative", join(side, group, version=version, session_timeout_ms=-1)
        yield f"v{version} no protocols", join(side, group, version=version, protocols=[])
        yield f"v{version} no type", join(side, group, version=version, protocol_type="")
        yield f"v{version} neither", join(side, group, version=version, protocol_type="", protocols=[])
    member, generation = member_of(side, group)
    other = [JoinGroupRequestProtocol("unheard-of", b"")]
    for version in (3, 9):
        yield f"v{version} other type", join(side, group, version=version, protocol_type="connect")
        yield f"v{version} other protocols", join(side, group, version=version, protocols=other)
        yield f"v{version} stranger to a group", join(side, group, "stranger", version=version)
    yield "heartbeat", side.call(HeartbeatRequest(group, generation, member))
    yield "leave", leave(side, group, member)


@case()
def join_of_two(side: Side) -> Iterator[tuple[str, Any]]:
    group = ready(side, "join-two")
    first, generation = member_of(side, group)
    second = join(side, group).member_id
    with ThreadPoolExecutor() as pool:
        entering = pool.submit(join, side, group, second, on="second")
        while True:
            beat = side.call(HeartbeatRequest(group, generation, first))
            if beat.error_code != 0:
                break
        yield "heartbeat while joining", beat
        yield "commit while joining", commit(side, group, "grow-two", member=first, generation=generation)
        yield "sync while joining", sync(side, group, first, generation)
        rejoined = join(side, group, first)
        entered = entering.result()
        yield "generations", (rejoined.generation_id, entered.generation_id)
        yield "leader", (rejoined.leader == first, entered.leader == first)
        yield "members", sorted(len(answer.members) for answer in (rejoined, entered))
        yield "error codes", (rejoined.error_code, entered.error_code)
        yield "protocols", (rejoined.protocol_name, entered.protocol_name, rejoined.skip_assignment)
        generation = rejoined.generation_id
        yield "follower's old generation", sync(side, group, second, generation - 1, on="second")
        following = pool.submit(sync, side, group, second, generation, on="second")
        yield "leader's sync", sync(side, group, first, generation, first)
        yield "follower left out", following.result()
    yield "heartbeat", side.call(HeartbeatRequest(group, generation, second))
    described = side.call(DescribeGroupsRequest(groups=[group]), version=6).groups[0]
    yield "described", (described.group_state, described.protocol_data, len(described.members))
    yield "leave", leave(side, group, second, first)


@case()
def static_members(side: Side) -> Iterator[tuple[str, Any]]:
    group = ready(side, "static")
    member, generation = member_of(side, group, instance="one")

    def beat(name: str, instance: str | None) -> Any:
        return side.call(HeartbeatRequest(group, generation, name, instance))

    yield "heartbeat", beat(member, "one")
    yield "heartbeat without the instance", beat(member, None)
    yield "heartbeat with a wrong id", beat("wrong", "one")
    yield "heartbeat of an unknown instance", beat(member, "two")
    again = join(side, group, group_instance_id="one")
    yield "again", again
    yield "new id", again.member_id != member
    yield "old id is fenced", beat(member, "one")
    yield "old id joins", join(side, group, member, group_instance_id="one")
    yield (
        "commit of the old id",
        commit(side, group, "static-topic", member=member, generation=generation, instance="one"),
    )
    yield "sync of the old id", sync(side, group, member, generation, group_instance_id="one")
    gone = LeaveGroupRequest(group, "", [MemberIdentity("", "one"), MemberIdentity("", "two")])
    yield "leave by instance", side.call(gone, version=5)
    yield "heartbeat after", beat(again.member_id, "one")


# ---- sync, heartbeat, leave ------------------------------------------------------------------------------------------


@case()
def members_refused(side: Side) -> Iterator[tuple[str, Any]]:
    group = ready(side, "members-refused")
    empty = ready(side, "members-nobody")
    member, generation = member_of(side, group)
    for version in range(6):
        yield f"sync v{version} no group", sync(side, "", "x", 1, version=version)
        yield f"sync v{version} unknown group", sync(side, empty, "x", 1, version=version)
        yield f"sync v{version} stranger", sync(side, group, "x", generation, version=version)
        yield f"sync v{version} old generation", sync(side, group, member, generation - 1, version=version)
        yield f"sync v{version} later generation", sync(side, group, member, generation + 1, version=version)
    yield "sync other type", sync(side, group, member, generation, protocol_type="connect")
    yield "sync other protocol", sync(side, group, member, generation, protocol_name="sticky")
    yield "sync no protocol", sync(side, group, member, generation, protocol_name=None)
    for version in range(5):
        for label, name, number in (
            ("unknown group", empty, generation),
            ("no group", "", generation),
            ("old generation", group, generation - 1),
            ("later generation", group, generation + 1),
            ("generation -1", group, -1),
        ):
            yield f"heartbeat v{version} {label}", side.call(HeartbeatRequest(name, number, member), version=version)
        yield f"heartbeat v{version} stranger", side.call(HeartbeatRequest(group, generation, "x"), version=version)
        yield f"heartbeat v{version} no member", side.call(HeartbeatRequest(group, generation, ""), version=version)
    for version in range(6):
        yield f"leave v{version} stranger", leave(side, group, "x", version=version)
        yield f"leave v{version} unknown group", leave(side, empty, "x", version=version)
        yield f"leave v{version} no group", leave(side, "", "x", version=version)
    yield "leave, nobody", leave(side, group)
    yield "leave, two strangers", leave(side, group, "x", "y")
    yield "leave, one of two", leave(side, group, "x", member)


# ---- offsets ---------------------------------------------------------------------------------------------------------


def commit(
    side: Side,
    group: str,
    topic: str,
    *,
    offset: int = 5,
    partition: int = 0,
    member: str = "",
    generation: int = -1,
    instance: str | None = None,
    note: str | None = "note",
    version: int = 9,
) -> Any:
    """One partition's offset."""
    asked = OffsetCommitRequestPartition(partition, offset, 0, note)
    listed = OffsetCommitRequestTopic(topic, side.topic_ids.get(topic, UNKNOWN_ID), [asked])
    request = OffsetCommitRequest(group, generation, member, instance, topics=[listed])
    return side.call(request, version=version)


def fetch_offsets(
    side: Side,
    group: str,
    topic: str | None,
    *partitions: int,
    version: int = 9,
    member: str | None = None,
    epoch: int = -1,
) -> Any:
    """What is committed; a topic of None means everything."""
    old = None if topic is None else [OffsetFetchRequestTopic(topic, list(partitions))]
    new = None
    if topic is not None:
        new = [OffsetFetchRequestTopics(topic, side.topic_ids.get(topic, UNKNOWN_ID), list(partitions))]
    groups = [OffsetFetchRequestGroup(group, member, epoch, new)]
    return side.call(OffsetFetchRequest(group, old, groups), version=version)


@case()
def commit_and_fetch_in_every_version(side: Side) -> Iterator[tuple[str, Any]]:
    topic = side.topic("commit-versions", 3)
    group = ready(side, "commit-versions")
    for version in range(2, 11):
        yield f"commit v{version}", commit(side, group, topic, offset=version, version=version)
        yield f"commit v{version} unknown topic", commit(side, group, "nowhere", version=version)
        yield f"commit v{version} unknown partition", commit(side, group, topic, partition=9, version=version)
        yield (
            f"commit v{version} with a generation",
            commit(side, group, topic, member="x", generation=1, version=version),
        )
        yield f"commit v{version} no group", commit(side, "", topic, version=version)
    yield "no note", commit(side, group, topic, partition=1, note=None)
    yield "long note", commit(side, group, topic, partition=2, note="x" * 5000)
    yield "note of 4096", commit(side, group, topic, partition=2, note="x" * 4096)
    yield "negative offset", commit(side, group, topic, partition=2, offset=-1)
    yield "nothing", side.call(OffsetCommitRequest(group), version=9)
    for version in range(1, 11):
        yield f"fetch v{version}", fetch_offsets(side, group, topic, 0, 1, 2, 9, version=version)
        yield f"fetch v{version} unknown topic", fetch_offsets(side, group, "nowhere", 0, version=version)
        yield f"fetch v{version} unknown group", fetch_offsets(side, "fetch-nobody", topic, 0, version=version)
        yield f"fetch v{version} no group", fetch_offsets(side, "", topic, 0, version=version)
        if version >= 2:
            yield f"fetch v{version} all", fetch_offsets(side, group, None, version=version)
            yield f"fetch v{version} all of nobody", fetch_offsets(side, "fetch-nobody", None, version=version)
    for epoch in (-1, 0, 3):
        yield f"fetch epoch {epoch}", fetch_offsets(side, group, topic, 0, member="x", epoch=epoch)
    two = [OffsetFetchRequestGroup(name, None, -1, None) for name in (group, "fetch-nobody")]
    yield "two groups", side.call(OffsetFetchRequest(groups=two), version=9)
    yield "no groups", side.call(OffsetFetchRequest(), version=9)


@case()
def commit_as_member(side: Side) -> Iterator[tuple[str, Any]]:
    topic = side.topic("commit-member", 2)
    group = ready(side, "commit-member")
    member, generation = member_of(side, group)
    for version in (2, 5, 7, 9, 10):
        commits: dict[str, dict[str, Any]] = {
            "good": {"member": member, "generation": generation},
            "old generation": {"member": member, "generation": generation - 1},
            "later generation": {"member": member, "generation": generation + 1},
            "stranger": {"member": "x", "generation": generation},
            "nobody": {},
            "member without generation": {"member": member},
            "generation without member": {"generation": generation},
            "unknown instance": {"member": member, "generation": generation, "instance": "i" if version >= 7 else None},
        }
        for label, fields in commits.items():
            yield f"v{version} {label}", commit(side, group, topic, version=version, **fields)
    for epoch in (-1, generation, generation + 1):
        yield f"fetch {epoch - generation}", fetch_offsets(side, group, topic, 0, member=member, epoch=epoch)
    yield "fetch as a stranger", fetch_offsets(side, group, topic, 0, member="x", epoch=generation)

    def delete(name: str, *partitions: int, topic: str = topic) -> Any:
        listed = [OffsetDeleteRequestPartition(index) for index in partitions]
        return side.call(OffsetDeleteRequest(name, [OffsetDeleteRequestTopic(topic, listed)]))

    yield "delete, not subscribed", delete(group, 0, 1)
    yield "delete, unknown partition", delete(group, 9)
    yield "delete, unknown topic", delete(group, 0, topic="nowhere")
    yield "delete, unknown group", delete("nobody-at-all", 0)
    yield "delete, no group", delete("", 0)
    other = side.topic("commits-elsewhere")
    commit(side, group, other, member=member, generation=generation)
    yield "delete, subscribed", delete(group, 0, topic=other)
    yield "delete group, not empty", side.call(DeleteGroupsRequest([group]))
    leave(side, group, member)
    yield "delete, subscribed by nobody now", delete(group, 0, topic=other)


# ---- groups as a whole -----------------------------------------------------------------------------------------------


@case({"describe twice.*": "named-twice"})
def groups_as_a_whole(side: Side) -> Iterator[tuple[str, Any]]:
    simple = ready(side, "whole-simple")
    topic = side.topic("whole", 2)
    commit(side, simple, topic)
    full = ready(side, "whole-full")
    member, _ = member_of(side, full)
    for version in range(7):
        for name in (simple, full, "whole-nobody", ""):
            yield f"describe v{version} {name!r}", side.call(DescribeGroupsRequest(groups=[name]), version=version)
        if version >= 3:
            asked = DescribeGroupsRequest(groups=[full, "whole-nobody"], include_authorized_operations=True)
            yield f"describe v{version} operations", side.call(asked, version=version)
    yield "describe none", side.call(DescribeGroupsRequest())
    yield "describe twice", side.call(DescribeGroupsRequest(groups=[simple, simple]))

    def listed(version: int, **filters: list[str]) -> list[Any]:
        found = side.call(ListGroupsRequest(**filters), version=version).groups
        return sorted(
            (group for group in found if group.group_id.startswith("whole-")), key=lambda group: group.group_id
        )

    for version in range(6):
        yield f"list v{version}", listed(version)
    for states in (["Stable"], ["stable"], ["Empty", "Stable"], ["Nonsense"], ["Dead"]):
        for version in (4, 5):
            yield f"list v{version} {states}", listed(version, states_filter=states)
    for types in (["classic"], ["Classic"], ["consumer"], ["nonsense"], ["share"]):
        yield f"list v5 {types}", listed(5, types_filter=types)
    for version in range(3):
        for name in (full, "whole-nobody", ""):
            yield f"delete v{version} {name!r}", side.call(DeleteGroupsRequest([name]), version=version)
    yield "delete twice", side.call(DeleteGroupsRequest([full, full]))
    yield "leave", leave(side, full, member)
    yield "describe empty", side.call(DescribeGroupsRequest(groups=[full]))
    yield "list empty", listed(5)
    yield "delete", side.call(DeleteGroupsRequest([full, simple, "whole-nobody"]))
    yield "list none", listed(5)
    yield "fetch from a deleted group", fetch_offsets(side, simple, topic, 0)
