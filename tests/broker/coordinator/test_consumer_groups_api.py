"""ConsumerGroupHeartbeat and ConsumerGroupDescribe in every version: request bytes in, response bytes out; and what the other APIs say of
consumer groups."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas_quorum.image.features import GROUP_VERSION, FeaturesImage
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas_wire.kafka.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from barnabas_wire.kafka.messages.delete_groups import DeleteGroupsRequest
from barnabas_wire.kafka.messages.describe_groups import DescribeGroupsRequest
from barnabas_wire.kafka.messages.list_groups import ListGroupsRequest
from barnabas_wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas_wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.broker.coordinator.group_fixture import CONFIG, TOPICS, GroupBench, group_bench
from tests.broker.coordinator.test_groups_api import Client
from tests.support import virtual_loop
from tests.support.images import make_image

IMAGE = replace(make_image(topics=TOPICS), features=FeaturesImage(levels={GROUP_VERSION: 1}))


@asynccontextmanager
async def served() -> AsyncIterator[tuple[GroupBench, Client]]:
    async with group_bench(image=IMAGE) as bench:
        await bench.lead()
        yield bench, Client(bench)


def joining(**named: Any) -> ConsumerGroupHeartbeatRequest:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["flights"],
        topic_partitions=[],
    )
    return replace(request, **named)


@virtual_loop.on_virtual_time
async def test_a_member_joins_stays_and_leaves() -> None:
    async with served() as (_, client):
        for version in (0, 1):
            member_id = "" if version == 0 else "m"
            joined: ConsumerGroupHeartbeatResponse = await client.call(joining(member_id=member_id), version)
            assert (joined.error_code, joined.heartbeat_interval_ms) == (0, 5_000)
            assert joined.member_id
            assert joined.assignment is not None
            (topic,) = joined.assignment.topic_partitions
            assert topic.partitions == [0, 1, 2, 3]
            beat = ConsumerGroupHeartbeatRequest(
                group_id="g", member_id=joined.member_id, member_epoch=joined.member_epoch
            )
            stays = await client.call(beat, version)
            assert (stays.error_code, stays.member_epoch, stays.assignment) == (0, joined.member_epoch, None)
            beat.member_epoch = -1
            left = await client.call(beat, version)
            assert (left.error_code, left.member_epoch, left.heartbeat_interval_ms) == (0, -1, 0)
            assert (await client.call(beat, version)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("named", "code"),
    [
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": [TopicPartitions(partitions=[0])]}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_names": None, "subscribed_topic_regex": "(a"}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"member_epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"subscribed_topic_names": []}, ErrorCode.NONE),
    ],
)
@virtual_loop.on_virtual_time
async def test_what_breaks_the_protocols_rules_is_refused_in_words(named: dict[str, Any], code: ErrorCode) -> None:
    async with served() as (bench, client):
        answer = await client.call(joining(**named), 1)
        assert answer.error_code == code
        assert (answer.member_id is None) == (code is not ErrorCode.NONE)
        assert bool(answer.error_message) == (code is not ErrorCode.NONE)
        assert bool(bench.groups.list_groups()) == (code is ErrorCode.NONE)


@virtual_loop.on_virtual_time
async def test_a_topic_that_may_not_be_described_refuses_the_whole_heartbeat() -> None:
    async with served() as (bench, client):
        hidden = {"weather"}

        def require(operation: Any, kind: Any, name: str = "") -> None:
            if name in hidden:
                raise KafkaError.of(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no")

        client.access = SimpleNamespace(
            require=require, may=lambda *a, **k: a[-1] not in hidden, operations=lambda *a: 0
        )
        refused = await client.call(joining(subscribed_topic_names=["flights", "weather"]), 1)
        assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert not bench.groups.list_groups()
        assert (await client.call(joining(), 1)).error_code == 0
        hidden.add("flights")
        described = await client.call(ConsumerGroupDescribeRequest(group_ids=["g"]), 1)
        (group,) = described.groups
        assert (group.error_code, group.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])


@virtual_loop.on_virtual_time
async def test_groups_are_described_by_their_own_api_alone() -> None:
    async with served() as (bench, client):
        await client.call(joining(rack_id="r", instance_id="one"), 1)
        await bench.stable_member("classic")
        answer = await client.call(ConsumerGroupDescribeRequest(group_ids=["g", "classic", "none", "g"]), 1)
        found, classic, none = answer.groups
        assert (found.group_state, found.group_epoch, found.assignment_epoch) == ("Stable", 2, 2)
        assert found.assignor_name == "uniform"
        (member,) = found.members
        assert (member.instance_id, member.rack_id, member.member_epoch, member.member_type) == ("one", "r", 2, 1)
        assert [t.topic_name for t in member.assignment.topic_partitions] == ["flights"]
        assert member.assignment == member.target_assignment
        assert {classic.error_code, none.error_code} == {ErrorCode.GROUP_ID_NOT_FOUND}
        old = await client.call(DescribeGroupsRequest(groups=["g"]), 6)
        assert (old.groups[0].error_code, old.groups[0].group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
        for group_type in ("consumer", "classic"):
            listed = await client.call(ListGroupsRequest(types_filter=[group_type]), 5)
            (one,) = listed.groups
            assert (one.group_type, one.protocol_type) == (group_type, "consumer")
        refused = await client.call(DeleteGroupsRequest(groups_names=["g"]), 2)
        assert refused.results[0].error_code == ErrorCode.NON_EMPTY_GROUP


def commit(epoch: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    topic = OffsetCommitRequestTopic(name="flights", partitions=[partition])
    return OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=epoch, member_id="m", topics=[topic])


def fetch(member_id: str | None, epoch: int) -> OffsetFetchRequest:
    topic = OffsetFetchRequestTopics(name="flights", partition_indexes=[0])
    group = OffsetFetchRequestGroup(group_id="g", member_id=member_id, member_epoch=epoch, topics=[topic])
    return OffsetFetchRequest(groups=[group])


@virtual_loop.on_virtual_time
async def test_offsets_go_by_the_members_epoch() -> None:
    async with served() as (_, client):
        await client.call(joining(), 1)
        for version, epoch, code in (
            (8, 2, ErrorCode.UNSUPPORTED_VERSION),
            (9, 1, ErrorCode.STALE_MEMBER_EPOCH),
            (9, 2, ErrorCode.NONE),
        ):
            answer = await client.call(commit(epoch), version)
            assert answer.topics[0].partitions[0].error_code == code
        for member_id, epoch, code, offset in (
            (None, -1, ErrorCode.NONE, 5),
            ("", -1, ErrorCode.NONE, 5),
            ("m", 2, ErrorCode.NONE, 5),
            ("m", 1, ErrorCode.STALE_MEMBER_EPOCH, -1),
            ("x", 2, ErrorCode.UNKNOWN_MEMBER_ID, -1),
        ):
            (group,) = (await client.call(fetch(member_id, epoch), 9)).groups
            assert group.error_code == code
            assert group.topics[0].partitions[0].committed_offset == offset


@virtual_loop.on_virtual_time
async def test_nothing_is_served_while_the_feature_is_off() -> None:
    async with group_bench() as bench:
        client = Client(bench)
        assert (await client.call(joining(), 1)).error_code == ErrorCode.UNSUPPORTED_VERSION
        answer = await client.call(ConsumerGroupDescribeRequest(group_ids=["g"]), 1)
        assert answer.groups[0].error_code == ErrorCode.UNSUPPORTED_VERSION


@virtual_loop.on_virtual_time
async def test_why_a_group_is_not_stable_is_told_to_who_asks() -> None:
    async with served() as (_, client):
        for name in ("m", "n"):
            await client.call(joining(member_id=name), 1)
        for version in (0, 1):
            (plain,) = (await client.call(ConsumerGroupDescribeRequest(group_ids=["g"]), version)).groups
            assert plain.findings is None
            asked = ConsumerGroupDescribeRequest(group_ids=["g"], explains=True)
            (described,) = (await client.call(asked, version)).groups
            assert described.findings
            assert {finding.kind for finding in described.findings} <= {"unassigned", "behind", "waiting"}
            assert replace(described, findings=None) == plain


@virtual_loop.on_virtual_time
async def test_a_broker_that_is_told_to_serve_classic_groups_alone_refuses_others_in_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = replace(CONFIG, group_coordinator_rebalance_protocols=("classic", "streams"))
    async with group_bench(image=IMAGE, config=config) as bench:
        await bench.lead()
        refused = await Client(bench).call(joining(group_id="shop"), 1)
        assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert "group.coordinator.rebalance.protocols" in refused.error_message
        assert "(group shop)" in caplog.text
    for protocols in ((), ("consumer",), ("classic", "eager")):
        with pytest.raises(ValueError, match="name classic"):
            replace(CONFIG, group_coordinator_rebalance_protocols=protocols)
