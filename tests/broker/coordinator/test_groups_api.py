"""The group and offset APIs in every version they advertise: request bytes in, response bytes out."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas_broker.api import registry
from barnabas_broker.api.context import RequestContext
from barnabas_broker.api.unserved import UnservedNotices
from barnabas_broker.security.access import OPEN_ACCESS
from barnabas_broker.security.audit import AuditLog
from barnabas_broker.security.audit_config import AuditConfig
from barnabas_coordination.group.service import OFFSETS_TOPIC
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Epoch, Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas_wire.kafka.messages.delete_groups import DeleteGroupsRequest
from barnabas_wire.kafka.messages.describe_groups import DescribeGroupsRequest
from barnabas_wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from barnabas_wire.kafka.messages.heartbeat import HeartbeatRequest
from barnabas_wire.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
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
from barnabas_wire.kafka.schema import decode_response, encode_request, message_classes
from tests.broker.coordinator.group_driver import classic, subscription
from tests.broker.coordinator.group_fixture import TOPICS, GroupBench, group_bench
from tests.support import virtual_loop
from tests.support.images import make_image

registry.load_handlers()

SUBSCRIPTION = subscription("flights")


def versions(key: ApiKey) -> Iterable[int]:
    """Everything the API advertises."""
    return range(registry.APIS[key].min_version, registry.APIS[key].max_version + 1)


class Client:
    """Speaks bytes to the handlers, as a connection would."""

    def __init__(self, bench: GroupBench) -> None:
        self.bench = bench
        self.access: Any = OPEN_ACCESS
        self.services: Any = SimpleNamespace(
            node_id=BrokerId(1),
            groups=bench.groups,
            transactions=SimpleNamespace(server_version=lambda: 0),
            metadata=bench.metadata,
            unserved=UnservedNotices(),
            audit=AuditLog(AuditConfig(), node_id=-1, clock_ms=lambda: 0),
        )

    async def call(self, request: Any, version: int, listener: str = "PLAINTEXT") -> Any:
        """Encode, decode, handle, encode, decode."""
        key = ApiKey(request.API_KEY)
        api = registry.APIS[key]
        raw = bytearray()
        encode_request(request, version, raw)
        decoded = registry.decode_request(api, version, memoryview(raw), 0)
        context = RequestContext(
            api_key=key,
            api_version=version,
            correlation_id=7,
            client_id="client",
            listener_name=listener,
            client_host="127.0.0.1",
            now_ms=virtual_loop.now_ms(),
            access=self.access,
        )
        try:
            response = api.handler(self.services, context, decoded)
            if inspect.isawaitable(response):
                response = await response
        except KafkaError as error:
            response = registry.error_response(api, decoded, error)
        frame = registry.encode_answer(key, version, 7, response)
        header = 9 if version >= api.flexible_from else 8
        return decode_response(message_classes(key)[1], version, memoryview(frame), header)

    async def join(self, version: int, group: str = "g") -> tuple[str, int]:
        """Join alone, whatever it takes in this version; returns (member id, generation)."""
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
        )
        joined = await self.call(request, version)
        if version >= 4:
            assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
            assert joined.member_id
            request.member_id = joined.member_id
            joined = await self.call(request, version)
        assert joined.error_code == 0
        assert (joined.leader, joined.protocol_name) == (joined.member_id, "range")
        assert [member.metadata for member in joined.members] == [SUBSCRIPTION]
        return joined.member_id, joined.generation_id

    async def stable(self, group: str = "g") -> tuple[str, int]:
        """Be the one member of a stable group."""
        member_id, generation = await self.join(9, group)
        synced = await self.call(
            SyncGroupRequest(
                group_id=group,
                generation_id=generation,
                member_id=member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[SyncGroupRequestAssignment(member_id=member_id, assignment=b"all")],
            ),
            5,
        )
        assert (synced.error_code, synced.assignment) == (0, b"all")
        return member_id, generation


@asynccontextmanager
async def leading() -> AsyncIterator[Client]:
    """A client of a broker that leads the offsets topic."""
    async with group_bench() as bench:
        await bench.lead()
        yield Client(bench)


def commit_request(*partitions: tuple[str, int, int], topic_ids: dict[str, Uuid], **named: Any) -> OffsetCommitRequest:
    """OffsetCommit of (topic, partition, offset) triples, each topic once, in order."""
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for name, partition, offset in partitions:
        topic = topics.setdefault(
            name, OffsetCommitRequestTopic(name=name, topic_id=topic_ids.get(name, Uuid(b"x" * 16)))
        )
        topic.partitions.append(
            OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_leader_epoch=3, committed_metadata="note"
            )
        )
    return OffsetCommitRequest(**{"group_id": "g", "topics": list(topics.values())} | named)


def topic_ids(client: Client) -> dict[str, Uuid]:
    """Ids of the topics in the image."""
    image = client.bench.metadata.image
    return {name: image.topics.get(name).id for name in TOPICS}  # type: ignore[union-attr]


# ---- FindCoordinator -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
@virtual_loop.on_virtual_time
async def test_a_coordinator_is_found_at_the_listener_that_was_asked(version: int) -> None:
    async with group_bench() as bench:
        client = Client(bench)
        request = FindCoordinatorRequest(key="g", coordinator_keys=["g", "h", "g"])
        answer = await client.call(request, version)
        found = answer.coordinators if version >= 4 else [answer]
        assert [(f.node_id, f.host, f.port, f.error_code) for f in found] == [(1, "127.0.0.1", 9092, 0)] * len(found)
        if version >= 1:
            assert [f.error_message for f in found] == [None] * len(found)
        if version >= 4:
            assert [f.key for f in found] == ["g", "h"]
        elsewhere = await client.call(request, version, listener="OTHER")
        for entry in elsewhere.coordinators if version >= 4 else [elsewhere]:
            assert (entry.error_code, entry.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)


@pytest.mark.parametrize(
    ("key_type", "code"),
    [
        (
            1,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),  # fatal to every client: librdkafka retries INVALID_REQUEST
        (9, ErrorCode.INVALID_REQUEST),
    ],
)
@virtual_loop.on_virtual_time
async def test_coordinators_that_do_not_exist_are_refused_key_by_key_with_a_reason(
    key_type: int, code: ErrorCode
) -> None:
    async with group_bench() as bench:
        request = FindCoordinatorRequest(key="t", key_type=key_type, coordinator_keys=["t", "u"])
        old = await Client(bench).call(request, 2)
        assert old.error_code == code
        new = await Client(bench).call(request, 6)
        assert [(f.key, f.error_code) for f in new.coordinators] == [("t", code), ("u", code)]
        wanted = "transactions" if key_type == 1 else "coordinator"
        assert all(wanted in f.error_message for f in new.coordinators)


@virtual_loop.on_virtual_time
async def test_what_is_not_served_is_refused_for_good_and_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with group_bench() as bench:
        client = Client(bench)
        for version in (0, 1, 0):
            answer = await client.call(ConsumerGroupHeartbeatRequest(group_id="g"), version)
            assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
            assert "set group.protocol=classic" in answer.error_message
        await client.call(FindCoordinatorRequest(key="t", key_type=1), 2)
        assert len(caplog.records) == 2, "one line for each thing that is not served"
        await asyncio.sleep(61)
        await client.call(ConsumerGroupHeartbeatRequest(group_id="g"), 0)
        assert "(2 more since the last such line)" in caplog.records[-1].getMessage()


@pytest.mark.parametrize("version", [0, 3, 4, 6])
@virtual_loop.on_virtual_time
async def test_a_missing_topic_is_made_and_the_client_told_to_come_again(version: int) -> None:
    image = make_image(topics={name: rows for name, rows in TOPICS.items() if name != OFFSETS_TOPIC})
    async with group_bench(image=image) as bench:
        answer = await Client(bench).call(FindCoordinatorRequest(key="g", coordinator_keys=["g"]), version)
        (entry,) = answer.coordinators if version >= 4 else [answer]
        assert entry.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert [topic.name for topic in bench.controller.asked] == [OFFSETS_TOPIC]


# ---- membership ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
@virtual_loop.on_virtual_time
async def test_a_member_joins_in_every_version(version: int) -> None:
    async with group_bench() as bench:
        await bench.lead()
        member_id, generation = await Client(bench).join(version)
        assert generation == 1
        (described,) = bench.groups.describe_group("g").members
        assert described.member_id == member_id
        shard = bench.groups._runtime.shard(bench.groups.partition_for("g"))
        member = classic(shard)["g"].members[member_id]
        assert member.rebalance_timeout_ms == (10_000 if version == 0 else 60_000)


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
@virtual_loop.on_virtual_time
async def test_a_refused_join_keeps_the_members_id(version: int) -> None:
    async with group_bench() as bench:
        request = JoinGroupRequest(
            group_id="g",
            member_id="me",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=1,
            protocol_type="consumer",
        )
        refused = await Client(bench).call(request, version)
        assert (refused.error_code, refused.member_id, refused.generation_id) == (
            ErrorCode.NOT_COORDINATOR,
            "me",
            -1,
        )
        assert refused.protocol_name == (None if version >= 7 else "")


@pytest.mark.parametrize("version", versions(ApiKey.SYNC_GROUP))
@virtual_loop.on_virtual_time
async def test_an_assignment_comes_back_in_every_version(version: int) -> None:
    async with leading() as client:
        member_id, generation = await client.join(9)
        request = SyncGroupRequest(
            group_id="g",
            generation_id=generation,
            member_id=member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupRequestAssignment(member_id=member_id, assignment=b"mine")],
        )
        synced = await client.call(request, version)
        assert (synced.error_code, synced.assignment) == (0, b"mine")
        if version >= 5:
            assert (synced.protocol_type, synced.protocol_name) == ("consumer", "range")
            request.protocol_name = None
            assert (await client.call(request, version)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            request.protocol_name = "range"
        request.generation_id = 9
        assert (await client.call(request, version)).error_code == ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize("version", versions(ApiKey.HEARTBEAT))
@virtual_loop.on_virtual_time
async def test_heartbeats_are_taken_and_refused_in_every_version(version: int) -> None:
    async with leading() as client:
        member_id, generation = await client.stable()
        request = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member_id)
        assert (await client.call(request, version)).error_code == 0
        request.member_id = "stranger"
        assert (await client.call(request, version)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        waiting = asyncio.ensure_future(client.join(3))
        await asyncio.sleep(0)
        request.member_id = member_id
        assert (await client.call(request, version)).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


@pytest.mark.parametrize("version", versions(ApiKey.LEAVE_GROUP))
@virtual_loop.on_virtual_time
async def test_members_leave_in_every_version(version: int) -> None:
    async with leading() as client:
        member_id, _ = await client.stable()
        request = LeaveGroupRequest(
            group_id="g",
            member_id=member_id,
            members=[MemberIdentity(member_id="stranger"), MemberIdentity(member_id=member_id)],
        )
        left = await client.call(request, version)
        assert left.error_code == 0
        if version >= 3:
            assert [(m.member_id, m.error_code) for m in left.members] == [
                ("stranger", ErrorCode.UNKNOWN_MEMBER_ID),
                (member_id, 0),
            ]
        else:
            assert (await client.call(request, version)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert client.bench.groups.describe_group("g").state == "Empty"


# ---- offsets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT))
@virtual_loop.on_virtual_time
async def test_every_partition_of_a_commit_is_answered_once_and_in_order(version: int) -> None:
    async with leading() as client:
        request = commit_request(
            ("flights", 3, 30),
            ("nowhere", 0, 1),
            ("flights", 99, 1),
            ("weather", 0, 5),
            ("flights", 0, 10),
            topic_ids=topic_ids(client),
        )
        answer = await client.call(request, version)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if version < 10 else ErrorCode.UNKNOWN_TOPIC_ID
        assert [[(p.partition_index, p.error_code) for p in topic.partitions] for topic in answer.topics] == [
            [(3, 0), (99, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (0, 0)],
            [(0, unknown)],
            [(0, 0)],
        ]
        named = [topic.topic_id if version >= 10 else topic.name for topic in answer.topics]
        assert named == [topic.topic_id if version >= 10 else topic.name for topic in request.topics]
        assert [tuple(key) for key in client.bench.groups.committed_partitions("g")] == [
            ("flights", 0),
            ("flights", 3),
            ("weather", 0),
        ]


@virtual_loop.on_virtual_time
async def test_a_refused_commit_names_its_error_in_every_partition() -> None:
    async with leading() as client:
        await client.stable()
        request = commit_request(("flights", 0, 1), ("weather", 0, 1), topic_ids=topic_ids(client))
        answer = await client.call(request, 9)
        codes = {partition.error_code for topic in answer.topics for partition in topic.partitions}
        assert codes == {ErrorCode.UNKNOWN_MEMBER_ID}


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT))
@virtual_loop.on_virtual_time
async def test_a_member_commits_in_every_version(version: int) -> None:
    async with leading() as client:
        member_id, generation = await client.stable()
        request = commit_request(
            ("flights", 0, 7),
            topic_ids=topic_ids(client),
            member_id=member_id,
            generation_id_or_member_epoch=generation,
            retention_time_ms=1_000 if 2 <= version <= 4 else -1,
        )
        answer = await client.call(request, version)
        assert answer.topics[0].partitions[0].error_code == 0
        shard = client.bench.groups._runtime.shard(client.bench.groups.partition_for("g"))
        (value,) = shard.offsets.by_group["g"].committed.values()
        assert (value.offset, value.metadata) == (7, "note")
        assert value.leader_epoch == (3 if version >= 6 else -1)
        assert (value.expire_timestamp_ms != -1) == (version <= 4)


@pytest.mark.parametrize("version", [7, 9, 10])
@virtual_loop.on_virtual_time
async def test_an_offset_of_an_earlier_topic_is_not_given_out_for_a_later_one_of_its_name(version: int) -> None:
    async with leading() as client:
        await client.call(commit_request(("flights", 1, 11), topic_ids=topic_ids(client)), 9)
        # Made anew while no coordinator was there to see it deleted.
        client.bench.metadata.image = make_image(topics=TOPICS, topic_ids_from=2000)
        ids = topic_ids(client)
        request = OffsetFetchRequest(
            group_id="g",
            topics=[OffsetFetchRequestTopic(name="flights", partition_indexes=[1])],
            groups=[
                OffsetFetchRequestGroup(
                    group_id="g",
                    topics=[OffsetFetchRequestTopics(name="flights", topic_id=ids["flights"], partition_indexes=[1])],
                )
            ],
        )
        answer = await client.call(request, version)
        (group,) = answer.groups if version >= 8 else [answer]
        assert [p.committed_offset for p in group.topics[0].partitions] == [-1]
        await client.call(commit_request(("flights", 1, 2), topic_ids=ids), 9)
        answer = await client.call(request, version)
        (group,) = answer.groups if version >= 8 else [answer]
        assert [p.committed_offset for p in group.topics[0].partitions] == [2]


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH))
@virtual_loop.on_virtual_time
async def test_a_partition_that_a_fetch_names_again_and_again_is_answered_once(version: int) -> None:
    """Four bytes that name it bring all its metadata back: 64 KiB of requests were 16 MB of answers."""
    async with leading() as client:
        ids = topic_ids(client)
        await client.call(commit_request(("flights", 1, 11), ("flights", 0, 10), topic_ids=ids), 9)
        again = [[1] * 50, [0, 1] * 50]
        topics = [
            OffsetFetchRequestTopics(name="flights", topic_id=ids["flights"], partition_indexes=indexes)
            for indexes in again
        ]
        request = OffsetFetchRequest(
            group_id="g",
            topics=[OffsetFetchRequestTopic(name="flights", partition_indexes=indexes) for indexes in again],
            groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)] * 20,
        )
        answer = await client.call(request, version)
        (group,) = answer.groups if version >= 8 else [answer]
        (topic,) = group.topics
        assert [(p.partition_index, p.committed_offset) for p in topic.partitions] == [(1, 11), (0, 10)]


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH))
@virtual_loop.on_virtual_time
async def test_every_partition_of_a_fetch_is_answered_and_nothing_committed_is_no_error(version: int) -> None:
    async with leading() as client:
        ids = topic_ids(client)
        await client.call(commit_request(("flights", 1, 11), ("weather", 0, 5), topic_ids=ids), 9)
        asked = [("weather", [7, 0]), ("nowhere", [0]), ("flights", [1])]
        request = OffsetFetchRequest(
            group_id="g",
            topics=[OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in asked],
            groups=[
                OffsetFetchRequestGroup(
                    group_id="g",
                    topics=[
                        OffsetFetchRequestTopics(
                            name=name, topic_id=ids.get(name, Uuid(b"x" * 16)), partition_indexes=indexes
                        )
                        for name, indexes in asked
                    ],
                )
            ],
            require_stable=True,
        )
        answer = await client.call(request, version)
        (group,) = answer.groups if version >= 8 else [answer]
        assert group.error_code == 0
        found = [
            [(p.partition_index, p.committed_offset, p.metadata, p.error_code) for p in topic.partitions]
            for topic in group.topics
        ]
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else 0
        assert found == [[(7, -1, "", 0), (0, 5, "note", 0)], [(0, -1, "", unknown)], [(1, 11, "note", 0)]]
        if version >= 5:
            assert group.topics[0].partitions[1].committed_leader_epoch == 3


@pytest.mark.parametrize("version", [v for v in versions(ApiKey.OFFSET_FETCH) if v >= 2])
@virtual_loop.on_virtual_time
async def test_null_topics_fetch_everything_the_group_has_committed(version: int) -> None:
    async with leading() as client:
        ids = topic_ids(client)
        await client.call(commit_request(("weather", 0, 5), ("flights", 1, 11), topic_ids=ids), 9)
        request = OffsetFetchRequest(
            group_id="g",
            topics=None,
            groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("g", "nobody")],
        )
        answer = await client.call(request, version)
        groups = answer.groups if version >= 8 else [answer]
        assert [
            (topic.topic_id if version >= 10 else topic.name, [p.committed_offset for p in topic.partitions])
            for topic in groups[0].topics
        ] == [
            (ids["flights"] if version >= 10 else "flights", [11]),
            (ids["weather"] if version >= 10 else "weather", [5]),
        ]
        if version >= 8:
            assert (groups[1].group_id, groups[1].error_code, groups[1].topics) == ("nobody", 0, [])


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH))
@virtual_loop.on_virtual_time
async def test_a_fetch_from_a_broker_that_does_not_coordinate_the_group_is_refused(version: int) -> None:
    async with group_bench() as bench:
        request = OffsetFetchRequest(
            group_id="g",
            topics=[OffsetFetchRequestTopic(name="flights", partition_indexes=[0])],
            groups=[OffsetFetchRequestGroup(group_id="g", topics=[])],
        )
        answer = await Client(bench).call(request, version)
        if version >= 8:
            assert [group.error_code for group in answer.groups] == [ErrorCode.NOT_COORDINATOR]
        else:
            assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
            assert version < 2 or answer.error_code == ErrorCode.NOT_COORDINATOR


@virtual_loop.on_virtual_time
async def test_offsets_are_deleted_partition_by_partition() -> None:
    async with leading() as client:
        await client.call(commit_request(("flights", 1, 11), ("weather", 0, 5), topic_ids=topic_ids(client)), 9)
        await client.stable()
        request = OffsetDeleteRequest(
            group_id="g",
            topics=[
                OffsetDeleteRequestTopic(
                    name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
                )
                for name, indexes in (("weather", [0, 9]), ("flights", [1]), ("nowhere", [0]))
            ],
        )
        answer = await client.call(request, 0)
        assert [[p.error_code for p in topic.partitions] for topic in answer.topics] == [
            [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
            [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC],
            [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
        ]
        request.group_id = "nobody"
        assert (await client.call(request, 0)).error_code == ErrorCode.GROUP_ID_NOT_FOUND


# ---- groups as a whole -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.LIST_GROUPS))
@virtual_loop.on_virtual_time
async def test_groups_are_listed_and_filtered_in_every_version(version: int) -> None:
    async with leading() as client:
        await client.stable("alive")
        await client.call(commit_request(("flights", 0, 1), topic_ids=topic_ids(client), group_id="simple"), 9)
        everything = await client.call(ListGroupsRequest(), version)
        assert sorted((g.group_id, g.protocol_type) for g in everything.groups) == [
            ("alive", "consumer"),
            ("simple", ""),
        ]
        if version >= 4:
            stable = await client.call(ListGroupsRequest(states_filter=["STABLE"]), version)
            assert [(g.group_id, g.group_state) for g in stable.groups] == [("alive", "Stable")]
        if version >= 5:
            assert {g.group_type for g in everything.groups} == {"classic"}
            assert (await client.call(ListGroupsRequest(types_filter=["Consumer"]), version)).groups == []
            assert len((await client.call(ListGroupsRequest(types_filter=["Classic"]), version)).groups) == 2


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_GROUPS))
@virtual_loop.on_virtual_time
async def test_groups_are_described_in_every_version_and_unknown_ones_are_dead(version: int) -> None:
    async with leading() as client:
        member_id, _ = await client.stable()
        request = DescribeGroupsRequest(groups=["g", "nobody", "g"], include_authorized_operations=version >= 3)
        alive, dead = (await client.call(request, version)).groups
        (member,) = alive.members
        assert (alive.group_id, alive.group_state, alive.protocol_type, alive.protocol_data) == (
            "g",
            "Stable",
            "consumer",
            "range",
        )
        assert (member.member_id, member.client_id, member.member_metadata, member.member_assignment) == (
            member_id,
            "client",
            SUBSCRIPTION,
            b"all",
        )
        assert member.client_host == "/127.0.0.1", "as Java prints an address"
        assert (dead.group_id, dead.group_state) == ("nobody", "Dead")
        assert dead.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)
        if version >= 3:
            assert alive.authorized_operations == 3400, "read, delete, describe, describe and alter configs"


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_GROUPS))
@virtual_loop.on_virtual_time
async def test_every_group_of_a_deletion_is_answered_once(version: int) -> None:
    async with leading() as client:
        await client.stable("alive")
        await client.call(commit_request(("flights", 0, 1), topic_ids=topic_ids(client), group_id="simple"), 9)
        client.bench.groups.on_resigned((client.bench.groups.partition_for("alive") + 1) % 3)
        answer = await client.call(DeleteGroupsRequest(groups_names=["alive", "nobody", "simple", "alive"]), version)
        reported = {result.group_id: result.error_code for result in answer.results}
        assert len(answer.results) == 3
        assert reported["alive"] == ErrorCode.NON_EMPTY_GROUP
        led = set(client.bench.groups.partitions)
        for name, code in (("nobody", ErrorCode.GROUP_ID_NOT_FOUND), ("simple", 0)):
            is_led = client.bench.groups.partition_for(name) in led
            assert reported[name] == (code if is_led else ErrorCode.NOT_COORDINATOR)


@virtual_loop.on_virtual_time
async def test_the_group_without_a_name_can_be_seen_and_deleted() -> None:
    async with leading() as client:
        await client.call(commit_request(("flights", 0, 1), topic_ids=topic_ids(client), group_id=""), 9)
        (described,) = (await client.call(DescribeGroupsRequest(groups=[""]), 5)).groups
        assert (described.error_code, described.group_state) == (0, "Empty")
        (deleted,) = (await client.call(DeleteGroupsRequest(groups_names=[""]), 2)).results
        assert deleted.error_code == 0


@virtual_loop.on_virtual_time
async def test_a_group_epoch_is_never_lost_between_brokers() -> None:
    async with leading() as client:
        member_id, generation = await client.stable()
        partition = client.bench.groups.partition_for("g")
        client.bench.groups.on_resigned(partition)
        request = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member_id)
        assert (await client.call(request, 4)).error_code == ErrorCode.NOT_COORDINATOR
        client.bench.groups.on_elected(partition, Epoch(2))
        await asyncio.sleep(1)
        assert (await client.call(request, 4)).error_code == 0
