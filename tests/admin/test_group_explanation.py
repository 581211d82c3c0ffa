"""Why a group is not stable, in words."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas_admin.errors import AdminError
from barnabas_admin.group_explanation import explain, word
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Finding,
    Member,
    TopicPartitions,
)
from barnabas_wire.kafka.messages.describe_groups import DescribedGroup as DescribedClassicGroup
from barnabas_wire.kafka.messages.describe_groups import DescribeGroupsResponse

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
