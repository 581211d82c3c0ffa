"""Streams groups (KIP-1071): joining, missing topics, tasks of two members, what is refused, what is described."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from barnabas_wire.kafka.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas_wire.kafka.messages.describe_groups import DescribeGroupsRequest
from barnabas_wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from barnabas_wire.kafka.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas_wire.kafka.messages.list_groups import ListGroupsRequest
from barnabas_wire.kafka.messages.streams_group_describe import StreamsGroupDescribeRequest
from barnabas_wire.kafka.messages.streams_group_heartbeat import (
    CopartitionGroup,
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
    Topology,
)
from barnabas_wire.kafka.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
)
from tests.compat.samples import DEADLINE_S
from tests.oracle.answers import Side
from tests.oracle.cases import case

GROUP_RESOURCE = 32
TAKEN_IN_S = 1.0
"""Kafka's coordinator takes a group's configs in a moment after they were answered, and nothing tells when."""
WITHOUT_DELAYS = {"streams.initial.rebalance.delay.ms": "0", "streams.assignment.interval.ms": "0"}


def prepare(side: Side, group: str, **more: str) -> None:
    """The group's coordinator is there, and nothing is held back."""
    find = FindCoordinatorRequest(coordinator_keys=[group])
    deadline = time.monotonic() + DEADLINE_S
    while side.call(find, version=4).coordinators[0].error_code:
        assert time.monotonic() < deadline, side.name
        time.sleep(0.05)
    configs = [AlterableConfig(key, 0, value) for key, value in (WITHOUT_DELAYS | more).items()]
    answer = side.call(IncrementalAlterConfigsRequest([AlterConfigsResource(GROUP_RESOURCE, group, configs)], False))
    assert not answer.responses[0].error_code, (side.name, answer)
    time.sleep(TAKEN_IN_S)


def words(group: str) -> Topology:
    """Lines are split into words, and words are counted."""
    return Topology(
        subtopologies=[
            Subtopology(
                subtopology_id="0", source_topics=[f"{group}-lines"], repartition_sink_topics=[f"{group}-words"]
            ),
            Subtopology(
                subtopology_id="1",
                repartition_source_topics=[TopicInfo(name=f"{group}-words")],
                state_changelog_topics=[
                    TopicInfo(name=f"{group}-counts", topic_configs=[KeyValue("cleanup.policy", "compact")])
                ],
            ),
        ]
    )


def joining(group: str, member: str, **named: Any) -> StreamsGroupHeartbeatRequest:
    request = StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        endpoint_information_epoch=-1,
        rebalance_timeout_ms=60_000,
        topology=words(group),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id=f"process-{member}",
    )
    return replace(request, **named)


def beat(group: str, member: str, epoch: int, **named: Any) -> StreamsGroupHeartbeatRequest:
    return replace(StreamsGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch), **named)


def beat_until_other(side: Side, group: str, epoch: int, codes: list[int]) -> Any:
    """The answer to the first heartbeat whose statuses are not `codes`: Kafka's coordinator sees new topics a moment after its
    listeners do."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        told = side.call(beat(group, "a", epoch))
        if [status.status_code for status in told.status or ()] != codes or time.monotonic() > deadline:
            return told
        epoch = told.member_epoch
        time.sleep(0.05)


def coded(answer: Any) -> Any:
    """Statuses by their codes: their words are each broker's own."""
    for status in getattr(answer, "status", None) or ():
        status.status_detail = "…"
    answer.endpoint_information_epoch = 0  # counted from where each broker likes
    return answer


def described(side: Side, request: StreamsGroupDescribeRequest, version: int) -> Any:
    """Without what Kafka tells at times: partitions of internal topics (0 where all were there at the first join), and offsets of
    tasks (not those that came with the first join)."""
    answer = side.call(request, version=version)
    for group in answer.groups:
        for part in group.topology.subtopologies:
            for topic in (*part.state_changelog_topics, *part.repartition_source_topics):
                topic.partitions = 0
        for member in group.members:
            member.task_offsets, member.task_end_offsets = [], []
    return answer


@case()
def streams_group_of_one(side: Side) -> Iterator[tuple[str, Any]]:
    group = "streams-one"
    side.topic(f"{group}-lines", 2)
    side.topic(f"{group}-words", 2)
    side.topic(f"{group}-counts", 2)
    prepare(side, group)
    for version in (0, 1):
        said = joining(
            group,
            "a",
            rack_id="r",
            user_endpoint=Endpoint("host", 80),
            client_tags=[KeyValue("zone", "x")],
            task_offsets=[TaskOffset("1", 0, 7)],
            task_end_offsets=[TaskOffset("1", 0, 9)],
        )
        joined = side.call(said, version=version)
        known = joined.endpoint_information_epoch
        yield f"v{version} join", coded(joined)
        yield f"v{version} describe", described(side, StreamsGroupDescribeRequest([group], True), version)
        told = side.call(beat(group, "a", 2, endpoint_information_epoch=known), version=version)
        yield f"v{version} beat", coded(told)
    yield "described with its topology", described(side, StreamsGroupDescribeRequest([group], False, True), 1)
    yield (
        "listed",
        [found for found in side.call(ListGroupsRequest(types_filter=["streams"])).groups if found.group_id == group],
    )
    yield "as a consumer group", side.call(ConsumerGroupDescribeRequest([group]))
    yield "as a classic group", side.call(DescribeGroupsRequest([group]))
    yield "unknown", side.call(StreamsGroupDescribeRequest(["streams-none"]))
    yield "description", side.call(StreamsGroupTopologyDescriptionUpdateRequest(group, "a"))
    yield "leave", coded(side.call(beat(group, "a", -1)))
    yield "leave again", coded(side.call(beat(group, "a", -1)))
    yield "empty", described(side, StreamsGroupDescribeRequest([group]), 1)


@case()
def streams_group_refusals(side: Side) -> Iterator[tuple[str, Any]]:
    group = "streams-refusals"
    side.topic(f"{group}-lines", 1)
    side.topic(f"{group}-words", 1)
    side.topic(f"{group}-counts", 1)
    prepare(side, group)

    def topology(**named: Any) -> Topology:
        first, second = words(group).subtopologies
        return Topology(subtopologies=[replace(first, **named), second])

    for label, request in (
        ("no group", joining("", "a")),
        ("no member", joining(group, "")),
        ("empty instance", joining(group, "a", instance_id="")),
        ("empty rack", joining(group, "a", rack_id="")),
        ("epoch -3", joining(group, "a", member_epoch=-3)),
        ("away without an instance", beat(group, "a", -2)),
        ("no timeout", joining(group, "a", rebalance_timeout_ms=-1)),
        ("no topology", joining(group, "a", topology=None)),
        ("owns at join", joining(group, "a", active_tasks=[TaskIds("0", [0])])),
        ("one list", joining(group, "a", standby_tasks=None, warmup_tasks=None)),
        ("topology later", joining(group, "a", member_epoch=3)),
        ("regex", joining(group, "a", topology=topology(source_topic_regex=["f.*"]))),
        ("internal topic", joining(group, "a", topology=topology(source_topics=["__consumer_offsets"]))),
        ("illegal topic", joining(group, "a", topology=topology(source_topics=["no/name"]))),
        ("unwritten", joining(group, "a", topology=topology(repartition_sink_topics=[]))),
        (
            "changelog with partitions",
            joining(group, "a", topology=topology(state_changelog_topics=[TopicInfo(name=f"{group}-c", partitions=3)])),
        ),
        ("unknown group", beat("streams-none", "a", 3)),
    ):
        yield label, side.call(request).error_code
    yield "join", coded(side.call(joining(group, "a")))
    yield (
        "other topology",
        side.call(joining(group, "b", topology=topology(state_changelog_topics=[TopicInfo(name="x")]))).error_code,
    )
    yield "newer topology", side.call(joining(group, "b", topology=Topology(1, words(group).subtopologies))).error_code
    yield "ahead", side.call(beat(group, "a", 7)).error_code
    yield "unknown member", side.call(beat(group, "x", 2)).error_code
    unknown = [TaskIds("9", [0])]
    yield (
        "unknown task",
        side.call(beat(group, "a", 2, active_tasks=unknown, standby_tasks=[], warmup_tasks=[])).error_code,
    )
    yield "leave", side.call(beat(group, "a", -1)).error_code


@case()
def streams_group_without_its_topics(side: Side) -> Iterator[tuple[str, Any]]:
    group = "streams-bare"
    prepare(side, group)
    yield "no source", coded(side.call(joining(group, "a")))
    yield "not ready", side.call(StreamsGroupDescribeRequest([group])).groups[0].group_state
    yield (
        "listed",
        [
            found.group_state
            for found in side.call(ListGroupsRequest(states_filter=["not_ready"])).groups
            if found.group_id == group
        ],
    )
    told = side.call(beat(group, "a", 2))
    missing = [status.status_code for status in told.status or ()]
    side.topic(f"{group}-lines", 3)
    told = beat_until_other(side, group, told.member_epoch, missing)
    missing = [status.status_code for status in told.status]
    yield "internal topics are missing", (missing, told.member_epoch)
    side.wait_for_topic(f"{group}-words", 3)
    side.wait_for_topic(f"{group}-counts", 3)
    yield "ready", coded(beat_until_other(side, group, told.member_epoch, missing))
    yield "counts", side.call(StreamsGroupDescribeRequest([group])).groups[0].topology
    side.call(beat(group, "a", -1))
    uneven = "streams-uneven"
    side.topic(f"{uneven}-lines", 2)
    side.topic(f"{uneven}-other", 3)
    prepare(side, uneven)
    joined = Topology(
        subtopologies=[
            Subtopology(
                subtopology_id="0",
                source_topics=[f"{uneven}-lines", f"{uneven}-other"],
                copartition_groups=[CopartitionGroup(source_topics=[0, 1])],
            )
        ]
    )
    yield "uneven", coded(side.call(joining(uneven, "a", topology=joined)))


@case()
def streams_group_of_two(side: Side) -> Iterator[tuple[str, Any]]:
    group = "streams-two"
    side.topic(f"{group}-lines", 2)
    simple = Topology(subtopologies=[Subtopology(subtopology_id="0", source_topics=[f"{group}-lines"])])
    prepare(side, group)
    yield "first", coded(side.call(joining(group, "a", topology=simple)))
    yield "second", coded(side.call(joining(group, "b", topology=simple)))
    told = side.call(beat(group, "a", 2))
    kept = told.active_tasks
    yield "gives up", (told.member_epoch, [len(ids.partitions) for ids in kept], [s.status_code for s in told.status])
    told = side.call(beat(group, "a", 2, active_tasks=kept, standby_tasks=[], warmup_tasks=[]))
    yield "gave up", (told.member_epoch, told.error_code)
    told = side.call(beat(group, "b", 3))
    yield "gets", (told.member_epoch, [len(ids.partitions) for ids in told.active_tasks])
    (described,) = side.call(StreamsGroupDescribeRequest([group])).groups
    yield "stable", (described.group_state, described.group_epoch, described.assignment_epoch)
    told = side.call(beat(group, "b", 3, shutdown_application=True))
    yield "shutdown", [status.status_code for status in told.status]
    yield "heard", [status.status_code for status in side.call(beat(group, "a", 3)).status]
    yield "leave", side.call(beat(group, "a", -1)).error_code
    told = side.call(beat(group, "b", 3))
    yield "takes over", (told.member_epoch, [len(ids.partitions) for ids in told.active_tasks])
