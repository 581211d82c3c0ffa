"""Why a group is not stable, in words."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas_admin.errors import AdminError
from barnabas_admin.group_explanation import explain, word, word_share
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.messages import describe_share_group_offsets as offsets
from barnabas_wire.kafka.messages import share_group_describe as share
from barnabas_wire.kafka.messages import streams_group_describe as streams
from barnabas_wire.kafka.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Finding,
    Member,
    TopicPartitions,
)
from barnabas_wire.kafka.messages.describe_groups import DescribedGroup as DescribedClassicGroup
from barnabas_wire.kafka.messages.describe_groups import DescribeGroupsResponse
from barnabas_wire.kafka.messages.streams_group_heartbeat import TaskIds

MEMBERS = [
    Member(member_id="a", client_id="app", client_host="/10.0.0.1"),
    Member(member_id="b", instance_id="one", client_id="app", client_host="/10.0.0.2"),
]
A, B = "member a (app at 10.0.0.1)", "member one (app at 10.0.0.2)"


def group(state: str, *findings: Finding, is_former: bool = False) -> DescribedGroup:
    return DescribedGroup(
        group_id="g",
        group_state=state,
        group_epoch=5,
        assignment_epoch=4,
        assignor_name="uniform",
        members=MEMBERS,
        findings=None if is_former else list(findings),
    )


def orders(*partitions: int) -> list[TopicPartitions]:
    return [TopicPartitions(topic_name="orders", partitions=list(partitions))]


@pytest.mark.parametrize(
    ("finding", "fact"),
    [
        (
            Finding("revoking", "a", orders(0, 1), ["b"], 12_000, 288_000),
            f"{A} has had to give up orders-0, orders-1 for 12s; {B} wait for it; it is put out in 4m48s unless it does",
        ),
        (Finding("revoking", "a", orders(0)), f"{A} has had to give up orders-0"),
        (Finding("waiting", "b", orders(0), ["a"]), f"{B} waits for orders-0, which {A} have not given up yet"),
        (
            Finding("silent", "a", since_ms=8_000, ends_in_ms=37_000),
            f"{A} is late: it was last heard 8.0 s ago, and is put out in 37s",
        ),
        (
            Finding("away", "b", orders(2), ["a"], ends_in_ms=2_500),
            f"{B} left for a while and keeps orders-2; it is put out in 2.5 s, which go to {A} then",
        ),
        (Finding("unassigned", ends_in_ms=600), "it changed: the first heartbeat after 0.6 s makes new targets"),
        (Finding("unassigned", ends_in_ms=0), "it changed: the next heartbeat of any member makes new targets"),
        (
            Finding("behind", "a", since_ms=1_000),
            f"{A} has not heard of its new target: its next heartbeat tells it (it was last heard 1.0 s ago)",
        ),
        (
            Finding("waiting", "a", orders(*range(9)), ["gone"]),
            f"{A} waits for 9 partitions (orders-0, orders-1, orders-2, orders-3, orders-4, …), which member gone have not given up yet",
        ),
        (Finding("of a later version", "a"), f"of a later version {A}"),
    ],
)
def test_each_finding_has_its_words(finding: Finding, fact: str) -> None:
    said = word(group("Reconciling", finding))
    assert said.facts == ["epoch 5, targets of epoch 4 by uniform, 2 members", fact]
    assert (said.status, said.summary) == ("reconciling", "group g (consumer) is Reconciling")


def test_a_group_that_is_well_says_so_and_one_with_late_members_does_not() -> None:
    assert word(group("Stable")).summary == "group g (consumer) is Stable: every member has what it is to have"
    late = word(group("Stable", Finding("silent", "a", since_ms=9_000, ends_in_ms=36_000)))
    assert late.status == "unstable-members"
    assert late.steps
    assert late.findings == [
        {"kind": "silent", "member": "a", "partitions": [], "others": [], "since_ms": 9_000, "ends_in_ms": 36_000}
    ]
    assert "upgrade" in word(group("Assigning", is_former=True)).facts[1]


class Coordinator:
    def __init__(self, consumers: Any, classic: DescribedClassicGroup) -> None:
        self.consumers = consumers
        self.classic = classic

    async def call_coordinator(self, group_id: str, request: Any) -> Any:
        if isinstance(request, streams.StreamsGroupDescribeRequest):
            unknown = streams.DescribedGroup(group_id=group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND)
            return streams.StreamsGroupDescribeResponse(groups=[unknown])
        if isinstance(request, share.ShareGroupDescribeRequest):
            none = share.DescribedGroup(group_id=group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND)
            return share.ShareGroupDescribeResponse(groups=[none])
        if not isinstance(request, ConsumerGroupDescribeRequest):
            return DescribeGroupsResponse(groups=[self.classic])
        assert request.explains
        if isinstance(self.consumers, KafkaError):
            raise self.consumers
        return ConsumerGroupDescribeResponse(groups=[self.consumers])


async def test_groups_of_the_classic_protocol_are_explained_by_their_state() -> None:
    unknown = DescribedGroup(group_id="g", error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    for consumers in (unknown, KafkaError.of(ErrorCode.UNSUPPORTED_VERSION, "group.version is 0")):
        joining = DescribedClassicGroup(group_id="g", group_state="PreparingRebalance")
        said = await explain(Coordinator(consumers, joining), "g")  # type: ignore[arg-type]
        assert "waits for its members to join again" in said.summary
        with pytest.raises(AdminError):
            gone = DescribedClassicGroup(group_id="g", error_code=ErrorCode.GROUP_ID_NOT_FOUND, group_state="Dead")
            await explain(Coordinator(consumers, gone), "g")  # type: ignore[arg-type]
    refused = DescribedGroup(group_id="g", error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, error_message="no right")
    with pytest.raises(KafkaError, match="no right"):
        await explain(Coordinator(refused, joining), "g")  # type: ignore[arg-type]


async def test_streams_groups_are_explained_by_their_topics_and_tasks() -> None:
    def tasks(*numbers: int) -> streams.Assignment:
        return streams.Assignment(active_tasks=[TaskIds("0", list(numbers))])

    def thread(name: str, epoch: int, has: streams.Assignment, wanted: streams.Assignment) -> streams.Member:
        return streams.Member(
            member_id=name,
            member_epoch=epoch,
            client_id="app",
            client_host="/h",
            process_id=name,
            assignment=has,
            target_assignment=wanted,
        )

    class StreamsCoordinator:
        described = streams.DescribedGroup(
            group_id="g", group_state="NotReady", obstacle="Source topics x are missing."
        )

        async def call_coordinator(self, group: str, request: Any, **_: Any) -> Any:
            if isinstance(request, ConsumerGroupDescribeRequest):
                unknown = DescribedGroup(group_id=group, error_code=ErrorCode.GROUP_ID_NOT_FOUND)
                return ConsumerGroupDescribeResponse(groups=[unknown])
            assert isinstance(request, streams.StreamsGroupDescribeRequest)
            return streams.StreamsGroupDescribeResponse(groups=[self.described])

    cluster: Any = StreamsCoordinator()
    said = await explain(cluster, "g")
    assert (said.status, said.summary) == ("notready", "group g (streams) is NotReady")
    assert said.facts[1:] == ["its topology cannot run: Source topics x are missing."]
    cluster.described = streams.DescribedGroup(
        group_id="g",
        group_state="Reconciling",
        group_epoch=3,
        assignment_epoch=3,
        members=[
            thread("a", 2, tasks(0, 1), tasks(0)),
            thread("b", 3, tasks(), tasks(1)),
            thread("c", 2, tasks(), tasks(2)),
            thread("d", 3, tasks(3), tasks(3)),
        ],
    )
    said = await explain(cluster, "g")
    assert said.facts == [
        "epoch 3, targets of epoch 3, 4 members in 4 instances",
        "member a (app at h) has to give up 0_1",
        "member b (app at h) waits for 0_1, which a have not given up yet",
        "member c (app at h) hears of its newest tasks with its next heartbeat: it gets 0_2",
    ]
    assert [finding["kind"] for finding in said.findings] == ["revoking", "waiting", "behind"]


def test_a_share_group_is_told_by_its_partitions() -> None:
    described = share.DescribedGroup(
        group_id="g",
        group_state="Stable",
        group_epoch=3,
        assignment_epoch=3,
        assignor_name="simple",
        members=[share.Member(member_id="m", assignment=Assignment(topic_partitions=orders(0)))],
        beginning=orders(2),
    )
    partitions = [
        offsets.ResponsePartition(partition_index=0, start_offset=7, lag=3),
        offsets.ResponsePartition(partition_index=1, start_offset=-1, lag=-1),
    ]
    found = word_share(described, offsets.ResponseGroup("g", [offsets.ResponseTopic("orders", partitions=partitions)]))
    assert (found.status, found.summary) == ("stable", "group g (share) is Stable")
    assert found.facts == [
        "epoch 3, targets of epoch 3 by simple, 1 member",
        "orders-0 begins at offset 7, 3 left, read by 1 member",
        "orders-1 has no start offset yet, read by 0 members",
        "orders-2 has no share state yet: nobody reads it until a share coordinator has begun it",
    ]
    assert found.steps[0][1] == "barnabas cluster health"
