"""ShareGroupHeartbeat, ShareGroupDescribe and the offsets of share groups: request bytes in, response bytes out; who may what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from barnabas_coordination.share_state.messages import ShareKey
from barnabas_quorum.image.features import SHARE_VERSION, FeaturesImage
from barnabas_quorum.image.rights import DELETE, DESCRIBE, GROUP, READ, TOPIC
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Epoch, Offset
from barnabas_wire.kafka.messages import alter_share_group_offsets as alter
from barnabas_wire.kafka.messages import delete_share_group_offsets as delete
from barnabas_wire.kafka.messages import describe_share_group_offsets as offsets
from barnabas_wire.kafka.messages.delete_groups import DeleteGroupsRequest
from barnabas_wire.kafka.messages.list_groups import ListGroupsRequest
from barnabas_wire.kafka.messages.share_group_describe import ShareGroupDescribeRequest
from barnabas_wire.kafka.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.broker.coordinator.group_fixture import TOPICS, GroupBench, group_bench
from tests.broker.coordinator.test_groups_api import Client
from tests.broker.coordinator.test_streams_groups_api import Rights
from tests.support import virtual_loop
from tests.support.images import make_image

LOST = KafkaError.of(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no share coordinator")


@asynccontextmanager
async def served(*, level: int = 2) -> AsyncIterator[tuple[GroupBench, Client]]:
    image = replace(make_image(topics=TOPICS), features=FeaturesImage(levels={SHARE_VERSION: level}))
    async with group_bench(image=image) as bench:
        await bench.lead()
        client = Client(bench)
        yield bench, client


def joining(**named: Any) -> ShareGroupHeartbeatRequest:
    return replace(ShareGroupHeartbeatRequest(group_id="g", member_id="m", subscribed_topic_names=["flights"]), **named)


async def settled(client: Client) -> int:
    """A member that has all partitions; its epoch."""
    joined = await client.call(joining(), 1)
    assert (joined.error_code, joined.member_epoch, joined.heartbeat_interval_ms) == (0, 2, 5_000)
    assert joined.assignment.topic_partitions == []
    await asyncio.sleep(0.1)
    told = await client.call(joining(member_epoch=2, subscribed_topic_names=None), 1)
    assert [each.partitions for each in told.assignment.topic_partitions] == [[0, 1, 2, 3]]
    return int(told.member_epoch)


def asked(*partitions: int, topic: str = "flights") -> offsets.DescribeShareGroupOffsetsRequest:
    topics = [offsets.RequestTopic(topic, list(partitions))] if partitions else None
    return offsets.DescribeShareGroupOffsetsRequest([offsets.RequestGroup("g", topics)])


def test_a_member_joins_is_described_and_leaves() -> None:
    async def main() -> None:
        async with served() as (_, client):
            epoch = await settled(client)
            same = await client.call(joining(member_epoch=epoch, subscribed_topic_names=None), 1)
            assert (same.error_code, same.assignment) == (0, None), "nothing changed"
            (group,) = (await client.call(ShareGroupDescribeRequest(["g"]), 1)).groups
            assert (group.group_state, group.group_epoch, group.assignor_name) == ("Stable", 3, "simple")
            (member,) = group.members
            assert (member.member_id, member.subscribed_topic_names) == ("m", ["flights"])
            assert [each.topic_name for each in member.assignment.topic_partitions] == ["flights"]
            (listed,) = (await client.call(ListGroupsRequest(types_filter=["share"]), 5)).groups
            assert (listed.group_id, listed.group_type, listed.protocol_type) == ("g", "share", "share")
            left = await client.call(joining(member_epoch=-1), 1)
            assert (left.error_code, left.member_epoch, left.heartbeat_interval_ms) == (0, -1, 0)
            (gone,) = (await client.call(ShareGroupDescribeRequest(["other"]), 1)).groups
            assert gone.error_code == ErrorCode.GROUP_ID_NOT_FOUND

    virtual_loop.run(main())


@pytest.mark.parametrize(
    "broken",
    [
        {"group_id": ""},
        {"member_id": ""},
        {"member_id": "m" * 37},
        {"rack_id": ""},
        {"member_epoch": -2},
        {"subscribed_topic_names": None},
        {"subscribed_topic_names": []},
    ],
)
def test_what_breaks_the_protocol_never_reaches_the_coordinator(broken: dict[str, Any]) -> None:
    async def main() -> None:
        async with served() as (bench, client):
            answer = await client.call(joining(**broken), 1)
            assert answer.error_code == ErrorCode.INVALID_REQUEST and answer.error_message
            assert not bench.groups.existing_groups()

    virtual_loop.run(main())


def test_offsets_are_described_with_their_lag() -> None:
    async def main() -> None:
        async with served() as (bench, client):
            await settled(client)
            flights = bench.metadata.image.topics.get("flights")
            assert flights is not None
            key = ShareKey("g", flights.id, 1)
            await bench.persister.read(key, leader_epoch=Epoch(4))
            await bench.persister.write(
                key,
                state_epoch=Epoch(2),
                leader_epoch=Epoch(4),
                start_offset=Offset(90),
                complete_count=3,
                batches=(),
            )
            for version in (0, 1):
                (group,) = (await client.call(asked(), version)).groups
                (topic,) = group.topics
                found = [(each.start_offset, each.leader_epoch, each.lag) for each in topic.partitions]
                lag = 7 if version else -1
                assert found == [(-1, 0, -1), (90, 4, lag), (-1, 0, -1), (-1, 0, -1)]
            bench.brokers.is_reachable = False
            (group,) = (await client.call(asked(1, 9), 1)).groups
            assert [(each.start_offset, each.lag) for each in group.topics[0].partitions] == [(90, -1), (-1, -1)]
            bench.persister.fails = lambda call, key: LOST
            (group,) = (await client.call(asked(1), 1)).groups
            assert (group.topics[0].partitions[0].start_offset, group.topics[0].partitions[0].error_code) == (-1, 0)

    virtual_loop.run(main())


def test_offsets_are_altered_and_deleted_and_the_group_goes() -> None:
    async def main() -> None:
        async with served() as (bench, client):
            await settled(client)
            wanted = alter.AlterShareGroupOffsetsRequest(
                "g",
                [
                    alter.RequestTopic("flights", [alter.RequestPartition(0, 5), alter.RequestPartition(9, 5)]),
                    alter.RequestTopic("nowhere", [alter.RequestPartition(0, 5)]),
                ],
            )
            assert (await client.call(wanted, 0)).error_code == ErrorCode.NON_EMPTY_GROUP
            await client.call(joining(member_epoch=-1), 1)
            answer = await client.call(wanted, 0)
            codes = [[each.error_code for each in topic.partitions] for topic in answer.responses]
            assert codes == [[0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION], [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]]
            (group,) = (await client.call(asked(0), 1)).groups
            assert [(each.start_offset, each.lag) for each in group.topics[0].partitions] == [(5, 95)]
            forgets = delete.DeleteShareGroupOffsetsRequest(
                "g", [delete.RequestTopic(name) for name in ("flights", "weather", "nowhere")]
            )
            answer = await client.call(forgets, 0)
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert [each.error_code for each in answer.responses] == [0, unknown, unknown]
            assert not bench.persister.kept
            other = await client.call(delete.DeleteShareGroupOffsetsRequest("other", []), 0)
            assert other.error_code == ErrorCode.GROUP_ID_NOT_FOUND
            (deleted,) = (await client.call(DeleteGroupsRequest(["g"]), 3)).results
            assert deleted.error_code == 0 and not bench.groups.existing_groups()

    virtual_loop.run(main())


def test_a_group_is_deleted_with_its_states() -> None:
    async def main() -> None:
        async with served() as (bench, client):
            await settled(client)
            await client.call(joining(member_epoch=-1), 1)
            assert bench.persister.kept
            bench.persister.fails = lambda call, key: LOST
            (failed,) = (await client.call(DeleteGroupsRequest(["g"]), 3)).results
            assert failed.error_code == LOST.code
            bench.persister.fails = lambda call, key: None
            (deleted,) = (await client.call(DeleteGroupsRequest(["g"]), 3)).results
            assert deleted.error_code == 0
            assert not bench.persister.kept and not bench.groups.existing_groups()

    virtual_loop.run(main())


def test_nothing_is_served_while_the_feature_is_off() -> None:
    async def main() -> None:
        async with served(level=0) as (_, client):
            answer = await client.call(joining(), 1)
            assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION and "share.version" in answer.error_message
            (group,) = (await client.call(ShareGroupDescribeRequest(["g"]), 1)).groups
            assert group.error_code == ErrorCode.UNSUPPORTED_VERSION
            (group,) = (await client.call(asked(), 1)).groups
            assert group.error_code == ErrorCode.UNSUPPORTED_VERSION
            for request in (alter.AlterShareGroupOffsetsRequest("g"), delete.DeleteShareGroupOffsetsRequest("g")):
                assert (await client.call(request, 0)).error_code == ErrorCode.UNSUPPORTED_VERSION

    virtual_loop.run(main())


def test_each_needs_its_rights() -> None:
    async def main() -> None:
        async with served() as (_, client):
            await settled(client)
            client.access = Rights((DESCRIBE, TOPIC, "flights"), (READ, TOPIC, "flights"))
            no = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert (await client.call(joining(), 1)).error_code == no
            (group,) = (await client.call(ShareGroupDescribeRequest(["g"]), 1)).groups
            assert (group.error_code, group.members) == (no, [])
            (group,) = (await client.call(asked(), 1)).groups
            assert group.topics == [], "what may not be described is left out"
            (group,) = (await client.call(asked(0), 1)).groups
            assert [each.error_code for each in group.topics[0].partitions] == [no]
            client.access = Rights((READ, TOPIC, "flights"))
            await client.call(joining(member_epoch=-1), 1)
            wanted = alter.AlterShareGroupOffsetsRequest(
                "g", [alter.RequestTopic("flights", [alter.RequestPartition(0, 5)])]
            )
            assert (await client.call(wanted, 0)).responses[0].partitions[0].error_code == no
            forgets = delete.DeleteShareGroupOffsetsRequest("g", [delete.RequestTopic("flights")])
            assert (await client.call(forgets, 0)).responses[0].error_code == no
            client.access = Rights((READ, GROUP, "g"), (DESCRIBE, GROUP, "g"), (DELETE, GROUP, "g"))
            no = ErrorCode.GROUP_AUTHORIZATION_FAILED
            assert [(await client.call(each, 0)).error_code for each in (wanted, forgets)] == [no, no]
            assert (await client.call(joining(), 1)).error_code == no
            assert (await client.call(asked(), 1)).groups[0].error_code == no

    virtual_loop.run(main())
