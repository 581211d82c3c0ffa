"""StreamsGroupHeartbeat, StreamsGroupDescribe and the topology description: request bytes in, response bytes out; who may what."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas_broker.api.services import BrokerServices
from barnabas_coordination.group.streams.internal_topics import StatusCode
from barnabas_quorum.image.features import GROUP_VERSION, STREAMS_VERSION, FeaturesImage
from barnabas_quorum.image.rights import CLUSTER, CREATE, DESCRIBE, GROUP, READ, TOPIC
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.messages.consumer_group_describe import ConsumerGroupDescribeRequest
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
from tests.broker.coordinator.group_fixture import CONFIG, TOPICS, GroupBench, group_bench
from tests.broker.coordinator.test_groups_api import Client
from tests.support import virtual_loop
from tests.support.images import make_image

INTERNAL = {"app-counts": [((1,), (1,), 1)] * 4, "app-words": [((1,), (1,), 1)] * 4}


@asynccontextmanager
async def served(*, has_topics: bool = True, level: int = 1, **config: Any) -> AsyncIterator[tuple[GroupBench, Client]]:
    image = make_image(topics={**TOPICS, **(INTERNAL if has_topics else {})})
    image = replace(image, features=FeaturesImage(levels={STREAMS_VERSION: level, GROUP_VERSION: 1}))
    settings = replace(CONFIG, **{"group_streams_initial_rebalance_delay_ms": 0} | config)
    async with group_bench(image=image, config=settings) as bench:
        await bench.lead()
        client = Client(bench)
        client.services.controller = bench.controller
        client.services.ask = partial(BrokerServices.ask, client.services)
        client.services.config = SimpleNamespace(default_replication_factor=3)
        client.services.streams_topics = set()
        yield bench, client


def topology(**named: Any) -> Topology:
    parts = [
        Subtopology(subtopology_id="0", source_topics=["flights"], repartition_sink_topics=["app-words"]),
        Subtopology(
            subtopology_id="1",
            repartition_source_topics=[TopicInfo(name="app-words")],
            state_changelog_topics=[
                TopicInfo(name="app-counts", replication_factor=-1, topic_configs=[KeyValue("a", "b")])
            ],
        ),
    ]
    return Topology(subtopologies=[replace(parts[0], **named), parts[1]])


def joining(**named: Any) -> StreamsGroupHeartbeatRequest:
    request = StreamsGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        endpoint_information_epoch=-1,
        rebalance_timeout_ms=60_000,
        topology=topology(),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id="p",
    )
    return replace(request, **named)


class Rights:
    """Refuses what is named here."""

    def __init__(self, *refused: tuple[Any, Any, str]) -> None:
        self.refused = set(refused)

    def may(self, operation: Any, kind: Any, name: str = "", *, is_noted: bool = True) -> bool:
        return (operation, kind, name) not in self.refused

    def require(self, operation: Any, kind: Any, name: str = "") -> None:
        if not self.may(operation, kind, name):
            raise KafkaError.of(
                {GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED, TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED}[kind], "no"
            )

    def operations(self, *asked: Any) -> int:
        return 7


def test_a_member_joins_stays_and_leaves_in_both_versions() -> None:
    async def main() -> None:
        async with served() as (_, client):
            for version in (0, 1):
                joined = await client.call(joining(user_endpoint=Endpoint("h", 80)), version)
                assert (joined.error_code, joined.member_id, joined.status) == (0, "m", [])
                assert (joined.heartbeat_interval_ms, joined.task_offset_interval_ms) == (5_000, 60_000)
                lags = (joined.acceptable_recovery_lag_legacy, joined.acceptable_recovery_lag)
                assert lags == (0, -1 if version == 0 else 10_000)
                assert [(ids.subtopology_id, ids.partitions) for ids in joined.active_tasks] == [
                    ("0", [0, 1, 2, 3]),
                    ("1", [0, 1, 2, 3]),
                ]
                assert (joined.standby_tasks, joined.warmup_tasks) == ([], [])
                (reads,) = joined.partitions_by_user_endpoint
                assert [topic.topic for topic in reads.active_partitions] == ["app-words", "flights"]
                beat = StreamsGroupHeartbeatRequest(
                    group_id="g",
                    member_id="m",
                    member_epoch=joined.member_epoch,
                    endpoint_information_epoch=joined.endpoint_information_epoch,
                )
                stays = await client.call(beat, version)
                assert (stays.error_code, stays.active_tasks, stays.partitions_by_user_endpoint) == (0, None, None)
                beat.member_epoch = -1
                left = await client.call(beat, version)
                assert (left.error_code, left.member_epoch, left.heartbeat_interval_ms) == (0, -1, 0)
                assert (await client.call(beat, version)).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    virtual_loop.run(main())


@pytest.mark.parametrize(
    ("named", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": 3}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"topology": None}, ErrorCode.INVALID_REQUEST),
        ({"standby_tasks": None}, ErrorCode.INVALID_REQUEST),
        ({"active_tasks": [TaskIds("0", [1])]}, ErrorCode.INVALID_REQUEST),
        ({"topology": topology(source_topic_regex=["f.*"])}, ErrorCode.INVALID_REQUEST),
        ({"topology": topology(source_topics=["__consumer_offsets"])}, ErrorCode.STREAMS_INVALID_TOPOLOGY),
        ({"topology": topology(source_topics=["no/name"])}, ErrorCode.STREAMS_INVALID_TOPOLOGY),
        ({"topology": topology(subtopology_id="1")}, ErrorCode.STREAMS_INVALID_TOPOLOGY),
        ({"topology": topology(source_topics=[])}, ErrorCode.STREAMS_INVALID_TOPOLOGY),
        ({"topology": topology(repartition_sink_topics=[])}, ErrorCode.STREAMS_INVALID_TOPOLOGY),
        (
            {"topology": topology(state_changelog_topics=[TopicInfo(name="c", partitions=2)])},
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
        ),
        (
            {"topology": topology(copartition_groups=[CopartitionGroup(source_topics=[1])])},
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
        ),
        ({"topology": topology(source_topics=["flights"] * 6_000)}, ErrorCode.STREAMS_INVALID_TOPOLOGY),
        ({"member_epoch": 3, "topology": None}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"active_tasks": None, "standby_tasks": None, "warmup_tasks": None}, ErrorCode.NONE),
    ],
)
def test_what_breaks_the_protocols_rules_is_refused_in_words(named: dict[str, Any], code: ErrorCode) -> None:
    async def main() -> None:
        async with served() as (bench, client):
            answer = await client.call(joining(**named), 1)
            assert answer.error_code == code, answer.error_message
            assert bool(answer.error_message) == (code is not ErrorCode.NONE)
            assert bool(bench.groups.list_groups()) == (code is ErrorCode.NONE)

    virtual_loop.run(main())


def test_missing_internal_topics_are_made_with_the_members_rights() -> None:
    async def main() -> None:
        async with served(has_topics=False) as (bench, client):
            made = await client.call(joining(), 1)
            assert [(status.status_code, status.status_detail) for status in made.status] == [
                (StatusCode.MISSING_INTERNAL_TOPICS, "Internal topics are missing: app-counts, app-words")
            ]
            assert [(t.name, t.partition_count, t.replication_factor, t.configs) for t in bench.controller.asked] == [
                ("app-counts", 4, 3, {"a": "b"}),
                ("app-words", 4, 3, {}),
            ]
            bench.controller.asked.clear()

            client.access = Rights((CREATE, CLUSTER, ""), (CREATE, TOPIC, "app-words"))
            beat = StreamsGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=made.member_epoch)
            refused = await client.call(beat, 1)
            assert refused.status[0].status_detail.endswith("; Unauthorized to CREATE on topics app-words.")
            assert not bench.controller.asked
            client.access = Rights((CREATE, CLUSTER, ""))
            bench.controller.error = KafkaError.of(ErrorCode.INVALID_REPLICATION_FACTOR, "too few brokers")
            failed = await client.call(beat, 1)
            assert "; Creation failed: " in failed.status[0].status_detail
            assert "too few brokers" in failed.status[0].status_detail
            bench.controller.error = KafkaError.of(ErrorCode.TOPIC_ALREADY_EXISTS, "it is there")
            assert "failed" not in (await client.call(beat, 1)).status[0].status_detail

    virtual_loop.run(main())


def test_each_right_is_asked_for_and_all_topics_or_nothing() -> None:
    async def main() -> None:
        async with served() as (bench, client):
            client.access = Rights((READ, GROUP, "g"))
            assert (await client.call(joining(), 1)).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
            for name in ("flights", "app-words", "app-counts"):
                client.access = Rights((DESCRIBE, TOPIC, name))
                assert (await client.call(joining(), 1)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert not bench.groups.list_groups()
            client.access = Rights()
            assert (await client.call(joining(), 1)).error_code == 0
            ask = StreamsGroupDescribeRequest(group_ids=["g"], include_authorized_operations=True)
            for name in ("flights", "app-words", "app-counts"):
                client.access = Rights((DESCRIBE, TOPIC, name))
                (group,) = (await client.call(ask, 1)).groups
                assert (group.error_code, group.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])
            client.access = Rights((DESCRIBE, GROUP, "g"))
            assert (await client.call(ask, 1)).groups[0].error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
            update = StreamsGroupTopologyDescriptionUpdateRequest(group_id="g", member_id="m")
            client.access = Rights((READ, GROUP, "g"))
            assert (await client.call(update, 0)).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
            client.access = Rights()
            assert (await client.call(update, 0)).error_code == ErrorCode.UNSUPPORTED_VERSION

    virtual_loop.run(main())


def test_a_group_is_described_with_its_topology_and_listed_by_its_type() -> None:
    async def main() -> None:
        async with served() as (bench, client):
            offsets = [TaskOffset("1", 0, 77)]
            await client.call(
                joining(
                    instance_id="i",
                    rack_id="r",
                    user_endpoint=Endpoint("h", 80),
                    client_tags=[KeyValue("zone", "x")],
                    task_offsets=offsets,
                    task_end_offsets=offsets,
                ),
                1,
            )
            await bench.stable_member("classic")
            ask = StreamsGroupDescribeRequest(
                group_ids=["g", "classic", "none"],
                include_authorized_operations=True,
                include_topology_description=True,
            )
            found, classic, none = (await client.call(ask, 1)).groups
            assert (found.group_state, found.group_epoch, found.assignment_epoch) == ("Stable", 2, 2)
            assert (found.assignor_name, found.topology_description_status, found.topology_description) == (
                "sticky",
                1,
                None,
            )
            first, second = found.topology.subtopologies
            assert (first.source_topics, first.repartition_sink_topics) == (["flights"], ["app-words"])
            assert [(t.name, t.partitions) for t in second.state_changelog_topics] == [("app-counts", 4)]
            (member,) = found.members
            assert (member.instance_id, member.rack_id, member.process_id, member.member_epoch) == ("i", "r", "p", 2)
            assert (member.user_endpoint, member.client_tags) == (Endpoint("h", 80), [KeyValue("zone", "x")])
            assert (member.task_offsets, member.task_end_offsets, member.is_classic) == (offsets, offsets, False)
            assert [ids.subtopology_id for ids in member.assignment.active_tasks] == ["0", "1"]
            assert member.target_assignment == member.assignment
            assert {classic.error_code, none.error_code} == {ErrorCode.GROUP_ID_NOT_FOUND}
            (other,) = (await client.call(ConsumerGroupDescribeRequest(group_ids=["g"]), 1)).groups
            assert other.error_code == ErrorCode.GROUP_ID_NOT_FOUND
            listed = (await client.call(ListGroupsRequest(types_filter=["Streams"]), 5)).groups
            assert [(group.group_id, group.group_type, group.protocol_type) for group in listed] == [
                ("g", "streams", "streams")
            ]
            assert (await client.call(StreamsGroupDescribeRequest(group_ids=["g"]), 0)).groups[
                0
            ].group_state == "Stable"

    virtual_loop.run(main())


def test_a_group_that_is_not_ready_is_listed_by_either_spelling() -> None:
    async def main() -> None:
        async with served() as (_, client):
            await client.call(joining(topology=topology(source_topics=["none"])), 1)
            for spelling in ("NotReady", "not_ready"):
                listed = (await client.call(ListGroupsRequest(states_filter=[spelling]), 5)).groups
                assert [group.group_state for group in listed] == ["NotReady"]
            (found,) = (await client.call(StreamsGroupDescribeRequest(group_ids=["g"]), 1)).groups
            assert (found.group_state, found.topology.epoch, found.topology.subtopologies) == ("NotReady", 0, None)
            assert found.obstacle == "Source topics none are missing."

    virtual_loop.run(main())


def test_tags_are_asked_of_clients_that_know_the_status() -> None:
    async def main() -> None:
        async with served(group_streams_rack_aware_assignment_tags=("zone",)) as (_, client):
            assert (await client.call(joining(), 0)).status == []
            (status,) = (await client.call(joining(), 1)).status
            assert status.status_code == StatusCode.MISSING_CLIENT_TAGS

    virtual_loop.run(main())


def test_nothing_is_served_while_the_feature_is_off() -> None:
    async def main() -> None:
        async with served(level=0) as (bench, client):
            answer = await client.call(joining(), 1)
            assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
            assert "streams.version=1" in answer.error_message
            (group,) = (await client.call(StreamsGroupDescribeRequest(group_ids=["g"]), 1)).groups
            assert group.error_code == ErrorCode.UNSUPPORTED_VERSION
            assert not bench.groups.list_groups()

    virtual_loop.run(main())
