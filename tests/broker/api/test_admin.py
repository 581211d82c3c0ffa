"""Metadata, topics, configs, cluster and quorum as a client sees them; changes go to a controller that remembers."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas_broker.api import configs
from barnabas_broker.api.config import ApiConfig
from barnabas_broker.api.metadata import CREATED_TOPICS_MAX
from barnabas_broker.api.services import BrokerKey
from barnabas_broker.metadata.cache import MetadataCache
from barnabas_quorum.controller.requests import (
    AlteredConfig,
    ConfigOperation,
    CreatedTopic,
    CreatePartitions,
    CreatePartitionsReply,
    CreateTopics,
    CreateTopicsReply,
    DeletedTopic,
    DeleteTopics,
    DeleteTopicsReply,
    GrownTopic,
    IncrementalAlterConfigs,
    IncrementalAlterConfigsReply,
)
from barnabas_quorum.driver.quorum_description import QuorumDescription, ReplicaDescription
from barnabas_quorum.image.metadata import MetadataDelta
from barnabas_quorum.raft.messages import VoterChange, VoterChangeKind
from barnabas_quorum.raft.voters import ReplicaKey, Voter
from barnabas_quorum.records import ConfigRecord, ConfigResourceType
from barnabas_replication.follower import fetcher
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import ANONYMOUS, ZERO_UUID, BrokerId, Epoch, Offset, Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.add_raft_voter import AddRaftVoterRequest, Listener
from barnabas_wire.kafka.messages.alter_configs import AlterableConfig as ReplacedConfig
from barnabas_wire.kafka.messages.alter_configs import AlterConfigsRequest
from barnabas_wire.kafka.messages.alter_configs import AlterConfigsResource as ReplacedResource
from barnabas_wire.kafka.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas_wire.kafka.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas_wire.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas_wire.kafka.messages.describe_cluster import DescribeClusterRequest
from barnabas_wire.kafka.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas_wire.kafka.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from barnabas_wire.kafka.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    TopicRequest,
)
from barnabas_wire.kafka.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas_wire.kafka.messages.init_producer_id import InitProducerIdRequest
from barnabas_wire.kafka.messages.list_config_resources import ListConfigResourcesRequest
from barnabas_wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas_wire.kafka.messages.remove_raft_voter import RemoveRaftVoterRequest
from tests.support.listener import (
    CLUSTER_ID,
    TOPIC,
    TOPIC_ID,
    RawClient,
    connected,
    make_image,
    make_services,
    running_server,
    until,
)


class RememberingController:
    """Says yes to everything but names that begin with "bad", and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    @staticmethod
    def _judge(name: str | None) -> KafkaError | None:
        if name is not None and name.startswith("bad"):
            return KafkaError.of(ErrorCode.POLICY_VIOLATION, f"{name} is bad")
        return None

    async def ask(self, request: Any, *, principal: str, client_host: str) -> Any:
        self.asked.append(request)
        match request:
            case CreateTopics():
                return CreateTopicsReply(
                    topics=tuple(
                        CreatedTopic(
                            name=topic.name,
                            error=self._judge(topic.name),
                            topic_id=TOPIC_ID,
                            partition_count=topic.partition_count,
                            replication_factor=topic.replication_factor,
                            configs=topic.configs,
                        )
                        for topic in request.topics
                    )
                )
            case DeleteTopics():
                return DeleteTopicsReply(
                    topics=tuple(
                        DeletedTopic(name=topic.name or "found-by-id", topic_id=TOPIC_ID, error=self._judge(topic.name))
                        for topic in request.topics
                    )
                )
            case CreatePartitions():
                return CreatePartitionsReply(
                    topics=tuple(GrownTopic(name=topic.name, error=self._judge(topic.name)) for topic in request.topics)
                )
            case IncrementalAlterConfigs():
                return IncrementalAlterConfigsReply(
                    resources=tuple(
                        AlteredConfig(
                            resource_type=resource.resource_type,
                            resource_name=resource.resource_name,
                            error=self._judge(resource.resource_name),
                        )
                        for resource in request.resources
                    )
                )
        raise AssertionError(f"nobody here asks {request}")


def configured_image() -> Any:
    delta = MetadataDelta(make_image())
    for kind, name, key, value in (
        (ConfigResourceType.TOPIC, TOPIC, "retention.ms", "1000"),
        (ConfigResourceType.BROKER, "", "log.segment.bytes", "2000000"),
        (ConfigResourceType.BROKER, "1", "message.max.bytes", "3000000"),
    ):
        delta.replay(ConfigRecord(resource_type=kind, resource_name=name, key=key, value=value))
    return delta.apply(Offset(20), Epoch(1), 2_000)


KEYS = (
    BrokerKey("log.retention.ms", "5000", "604800000", "int", "how long", True),
    BrokerKey("log.segment.bytes", "1073741824", "1073741824", "int", "how large", False),
    BrokerKey("node.id", "1", None, "int", "who", True),
)


@pytest.mark.parametrize("version", range(14))
async def test_metadata_names_brokers_leaders_and_replicas_in_every_version(version: int) -> None:
    async with connected(make_services()) as (_, client):
        request = MetadataRequest(topics=[] if version == 0 else None)
        for _ in range(2):  # the second answer comes from the cache
            answer = await client.call(request, version)
            assert [(broker.node_id, broker.host, broker.port) for broker in answer.brokers] == [(1, "127.0.0.1", 9092)]
            (topic,) = answer.topics
            assert topic.name == TOPIC
            assert [part.partition_index for part in topic.partitions] == [0, 1, 2]
            part = topic.partitions[0]
            assert (part.error_code, part.leader_id, part.replica_nodes, part.isr_nodes) == (0, 1, [1, 2], [1])
            if version >= 1:
                assert answer.controller_id == 1
            if version >= 2:
                assert answer.cluster_id == CLUSTER_ID
            if version >= 5:
                assert part.offline_replicas == [2]
            if version >= 7:
                assert part.leader_epoch == 4
            if version >= 10:
                assert topic.topic_id == TOPIC_ID


async def test_the_cached_answer_goes_with_the_image_it_was_made_from() -> None:
    cache = MetadataCache(make_image())
    async with connected(make_services(metadata=cache)) as (_, client):
        assert len((await client.call(MetadataRequest(topics=None), 12)).topics[0].partitions) == 3
        cache._image = make_image(partitions=5)
        assert len((await client.call(MetadataRequest(topics=None), 12)).topics[0].partitions) == 5


async def test_an_empty_list_names_no_topic_and_unknown_names_and_ids_have_their_errors() -> None:
    services = make_services(config=ApiConfig(auto_create_topics_enable=False))
    async with connected(services) as (_, client):
        assert (await client.call(MetadataRequest(topics=[]), 12)).topics == []
        stranger = Uuid(b"no-such-topic-id")
        asked = [
            MetadataRequestTopic(name="nowhere"),
            MetadataRequestTopic(name="a/b"),
            MetadataRequestTopic(name=None, topic_id=stranger),
            MetadataRequestTopic(name=None, topic_id=TOPIC_ID),
        ]
        answer = await client.call(MetadataRequest(topics=asked), 12)
        assert [(topic.error_code, topic.name) for topic in answer.topics] == [
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "nowhere"),
            (ErrorCode.INVALID_TOPIC_EXCEPTION, "a/b"),
            (ErrorCode.UNKNOWN_TOPIC_ID, None),
            (0, TOPIC),
        ]


class SilentController:
    """One that is asked and never answers, as while no controller is there."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def ask(self, request: CreateTopics, **options: Any) -> Any:
        self.asked += [topic.name for topic in request.topics]
        await asyncio.Event().wait()


async def test_metadata_of_a_missing_topic_does_not_wait_for_a_controller_that_is_not_there() -> None:
    controller = SilentController()
    async with connected(make_services(controller=controller)) as (_, client):
        request = MetadataRequest(topics=[MetadataRequestTopic(name="new"), MetadataRequestTopic(name=TOPIC)])
        answer = await asyncio.wait_for(client.call(request, 12), 20)  # the controller's own time is 30 s
        assert [(topic.name, topic.error_code) for topic in answer.topics] == [
            ("new", ErrorCode.LEADER_NOT_AVAILABLE),
            (TOPIC, 0),
        ]
        assert controller.asked == ["new"]


async def test_one_request_brings_a_bounded_number_of_topics_into_being() -> None:
    controller = RememberingController()
    async with connected(make_services(controller=controller)) as (_, client):
        request = MetadataRequest(topics=[MetadataRequestTopic(name=f"t{i}") for i in range(2_000)])
        answer = await client.call(request, 12)
        assert {topic.error_code for topic in answer.topics} == {ErrorCode.LEADER_NOT_AVAILABLE}
        assert len(answer.topics) == 2_000
        assert [topic.name for topic in controller.asked[0].topics] == [f"t{i}" for i in range(CREATED_TOPICS_MAX)]


async def test_a_topic_that_is_named_twice_is_answered_once_and_ids_count_from_version_12_on() -> None:
    async with connected(make_services()) as (_, client):
        twice = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)] * 2)
        by_id = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=TOPIC_ID)])
        for version in (0, 9, 12):
            assert [topic.name for topic in (await client.call(twice, version)).topics] == [TOPIC]
        for version in (10, 11):
            assert [topic.error_code for topic in (await client.call(by_id, version)).topics] == [
                ErrorCode.INVALID_REQUEST
            ]
        assert [topic.name for topic in (await client.call(by_id, 12)).topics] == [TOPIC]


async def test_what_anybody_may_do_is_reported_when_asked() -> None:
    unknown, topic_operations, cluster_operations = -(2**31), 3576, 8096
    async with connected(make_services()) as (_, client):
        asked = MetadataRequest(
            topics=[MetadataRequestTopic(name=TOPIC)],
            include_topic_authorized_operations=True,
            include_cluster_authorized_operations=True,
        )
        for request, topics, cluster in (
            (MetadataRequest(topics=asked.topics), unknown, unknown),
            (asked, topic_operations, cluster_operations),
            (MetadataRequest(topics=asked.topics), unknown, unknown),  # the cache tells them apart
        ):
            answer = await client.call(request, 8)
            assert answer.topics[0].topic_authorized_operations == topics
            assert answer.cluster_authorized_operations == cluster
        described = await client.call(DescribeClusterRequest(include_cluster_authorized_operations=True), 0)
        assert described.cluster_authorized_operations == cluster_operations
        paged = await client.call(DescribeTopicPartitionsRequest(topics=[TopicRequest(name=TOPIC)]), 0)
        assert paged.topics[0].topic_authorized_operations == topic_operations


async def test_asking_creates_a_topic_where_both_sides_allow_it() -> None:
    controller = RememberingController()
    services = make_services(controller=controller, config=ApiConfig(num_partitions=4, default_replication_factor=2))
    async with connected(services) as (_, client):
        names = ["new", TOPIC, "bad-new", "__consumer_offsets", "in valid"]
        asked = [MetadataRequestTopic(name=name) for name in names]
        answer = await client.call(MetadataRequest(topics=asked, allow_auto_topic_creation=True), 12)
        assert [topic.error_code for topic in answer.topics] == [
            ErrorCode.LEADER_NOT_AVAILABLE,
            0,
            ErrorCode.POLICY_VIOLATION,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ]
        (call,) = controller.asked
        assert [(topic.name, topic.partition_count, topic.replication_factor) for topic in call.topics] == [
            ("new", 4, 2),
            ("bad-new", 4, 2),
        ]
        await client.call(MetadataRequest(topics=asked, allow_auto_topic_creation=False), 12)
        assert len(controller.asked) == 1


async def test_metadata_has_the_addresses_of_the_listener_that_was_asked() -> None:
    async with running_server(make_services(), listener="OTHER") as server:
        client = await RawClient.connect(server, "OTHER")
        answer = await client.call(MetadataRequest(topics=[]), 12)
        assert [(broker.host, broker.port) for broker in answer.brokers] == [("other.example", 1001)]


async def test_partitions_are_described_page_by_page() -> None:
    async with connected(make_services()) as (_, client):
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=TOPIC), TopicRequest(name="absent")], response_partition_limit=2
        )
        first = await client.call(request, 0)
        assert [topic.name for topic in first.topics] == ["absent", TOPIC]
        assert first.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [part.partition_index for part in first.topics[1].partitions] == [0, 1]
        assert (first.next_cursor.topic_name, first.next_cursor.partition_index) == (TOPIC, 2)
        request.cursor = DescribeTopicPartitionsRequestCursor(topic_name=TOPIC, partition_index=2)
        second = await client.call(request, 0)
        assert [part.partition_index for part in second.topics[0].partitions] == [2]
        assert second.next_cursor is None
        for name, partition in (("elsewhere", 0), (TOPIC, -1)):
            request.cursor = DescribeTopicPartitionsRequestCursor(topic_name=name, partition_index=partition)
            refused = await client.call(request, 0)
            assert {topic.error_code for topic in refused.topics} == {ErrorCode.INVALID_REQUEST}


@pytest.mark.parametrize("version", range(2, 8))
async def test_topics_are_created_with_defaults_and_refused_one_by_one(version: int) -> None:
    controller = RememberingController()
    services = make_services(controller=controller, config=ApiConfig(num_partitions=6, default_replication_factor=3))
    async with connected(services) as (_, client):
        config = CreatableTopicConfig(name="retention.ms", value="77")
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(name="plain", num_partitions=-1, replication_factor=-1, configs=[config]),
                CreatableTopic(
                    name="placed",
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2])],
                ),
                CreatableTopic(name="twice", num_partitions=1, replication_factor=1),
                CreatableTopic(name="twice", num_partitions=1, replication_factor=1),
                CreatableTopic(name="bad", num_partitions=1, replication_factor=1),
            ],
            timeout_ms=5000,
        )
        answer = await client.call(request, version)
        assert {topic.name: topic.error_code for topic in answer.topics} == {
            "plain": 0,
            "placed": 0,
            "twice": ErrorCode.INVALID_REQUEST,
            "bad": ErrorCode.POLICY_VIOLATION,
        }
        assert answer.topics[0].error_message is None
        (call,) = controller.asked
        assert [(topic.name, topic.partition_count, topic.replication_factor) for topic in call.topics] == [
            ("plain", 6, 3),
            ("placed", -1, -1),
            ("bad", 1, 1),
        ]
        assert call.topics[1].assignments == {0: (1, 2)}
        if version >= 5:
            configs = {config.name: (config.value, config.config_source) for config in answer.topics[0].configs}
            assert configs["retention.ms"] == ("77", 1)
            assert configs["cleanup.policy"] == ("delete", 5)
        if version >= 7:
            assert answer.topics[0].topic_id == TOPIC_ID


async def test_a_controller_that_cannot_be_reached_refuses_every_topic() -> None:
    async with connected(make_services()) as (_, client):
        created = await client.call(CreateTopicsRequest(topics=[CreatableTopic(name="a"), CreatableTopic(name="b")]), 7)
        assert [(topic.name, topic.error_code) for topic in created.topics] == [
            ("a", ErrorCode.NOT_CONTROLLER),
            ("b", ErrorCode.NOT_CONTROLLER),
        ]
        deleted = await client.call(DeleteTopicsRequest(topic_names=["a"], timeout_ms=1000), 5)
        assert deleted.responses[0].error_code == ErrorCode.NOT_CONTROLLER


@pytest.mark.parametrize("version", range(1, 7))
async def test_topics_are_deleted_by_name_and_by_id(version: int) -> None:
    controller = RememberingController()
    async with connected(make_services(controller=controller)) as (_, client):
        request = DeleteTopicsRequest(topic_names=["one", "bad", "two", "two"], timeout_ms=1000)
        if version >= 6:
            request = DeleteTopicsRequest(
                topics=[
                    DeleteTopicState(name="one"),
                    DeleteTopicState(name=None, topic_id=TOPIC_ID),
                    DeleteTopicState(name="both", topic_id=TOPIC_ID),
                ],
                timeout_ms=1000,
            )
        answer = await client.call(request, version)
        found = [(result.name, result.error_code) for result in answer.responses]
        if version >= 6:
            assert found == [("one", 0), ("found-by-id", 0), ("both", ErrorCode.INVALID_REQUEST)]
            assert [topic.topic_id for topic in controller.asked[0].topics] == [ZERO_UUID, TOPIC_ID]
        else:
            assert found == [("one", 0), ("bad", ErrorCode.POLICY_VIOLATION), ("two", ErrorCode.INVALID_REQUEST)]


async def test_a_topic_named_by_name_and_by_id_is_not_deleted() -> None:
    controller = RememberingController()
    async with connected(make_services(controller=controller)) as (_, client):
        both = [DeleteTopicState(name=TOPIC), DeleteTopicState(name=None, topic_id=TOPIC_ID)]
        (reported,) = (await client.call(DeleteTopicsRequest(topics=both, timeout_ms=1000), 6)).responses
        assert (reported.name, reported.topic_id, reported.error_code) == (TOPIC, TOPIC_ID, ErrorCode.INVALID_REQUEST)
        assert controller.asked == []


async def test_deletion_may_be_switched_off() -> None:
    services = make_services(controller=RememberingController(), config=ApiConfig(delete_topic_enable=False))
    async with connected(services) as (_, client):
        answer = await client.call(DeleteTopicsRequest(topic_names=["one"], timeout_ms=1000), 5)
        assert answer.responses[0].error_code == ErrorCode.TOPIC_DELETION_DISABLED


async def test_topics_grow() -> None:
    controller = RememberingController()
    async with connected(make_services(controller=controller)) as (_, client):
        request = CreatePartitionsRequest(
            topics=[
                CreatePartitionsTopic(name="one", count=9, assignments=None),
                CreatePartitionsTopic(name="bad", count=2, assignments=None),
                CreatePartitionsTopic(name="nowhere", count=2, assignments=[]),
            ],
            timeout_ms=1000,
        )
        for version in range(4):
            answer = await client.call(request, version)
            assert [(result.name, result.error_code) for result in answer.results] == [
                ("one", 0),
                ("bad", ErrorCode.POLICY_VIOLATION),
                ("nowhere", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            ]
        assert controller.asked[0].topics[0].partition_count == 9


@pytest.mark.parametrize("version", range(1, 5))
async def test_a_topics_configs_say_where_each_value_comes_from(version: int) -> None:
    services = make_services(metadata=MetadataCache(configured_image()), broker_keys=lambda: KEYS)
    async with connected(services) as (_, client):
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(resource_type=2, resource_name=TOPIC, configuration_keys=None),
                DescribeConfigsResource(resource_type=2, resource_name=TOPIC, configuration_keys=["retention.ms"]),
                DescribeConfigsResource(resource_type=2, resource_name="absent", configuration_keys=None),
                DescribeConfigsResource(resource_type=8, resource_name="2", configuration_keys=None),
                DescribeConfigsResource(resource_type=2, resource_name=TOPIC, configuration_keys=[]),
            ],
            include_synonyms=True,
        )
        answer = await client.call(request, version)
        everything, one, absent, loggers, none = answer.results
        assert none.configs == everything.configs, "an empty list of keys asks for all of them"
        if version >= 3:
            types = {config.name: config.config_type for config in everything.configs}
            assert [types[name] for name in ("min.insync.replicas", "retention.ms", "cleanup.policy")] == [3, 5, 7]
        found = {config.name: (config.value, config.config_source) for config in everything.configs}
        assert found["retention.ms"] == ("1000", 1)
        assert found["segment.bytes"] == ("2000000", 3)
        assert found["max.message.bytes"] == ("3000000", 2)
        assert found["min.insync.replicas"] == ("1", 5)
        assert "cleanup.policy" in found
        assert found["leader.replication.throttled.replicas"] == ("", 5), "a throttle that was forgotten can be seen"
        (retention,) = one.configs
        assert [(synonym.value, synonym.source) for synonym in retention.synonyms] == [
            ("1000", 1),
            ("5000", 4),
            ("604800000", 5),
        ]
        assert absent.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert loggers.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", [1, 4])
async def test_describing_the_same_resource_again_and_again_costs_one_description(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """15 KB of requests took 43 s of the loop: each of 3,000 resources made its entries, and the node's keys, anew."""
    asked = 0

    def count_keys() -> tuple[BrokerKey, ...]:
        nonlocal asked
        asked += 1
        return KEYS

    services = make_services(metadata=MetadataCache(configured_image()), broker_keys=count_keys)
    async with connected(services) as (_, client):
        names = [(2, TOPIC), (4, "1"), (4, "")] * 500
        resources = [
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
            for kind, name in names
        ]
        answer = await client.call(DescribeConfigsRequest(resources=resources), version)
        assert [(result.resource_type, result.resource_name) for result in answer.results] == names
        assert all(result == answer.results[i % 3] for i, result in enumerate(answer.results))
        assert all(result.configs for result in answer.results)
        assert asked <= 3


async def test_a_description_of_many_resources_gives_way_and_ends_at_its_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(configs, "ANSWER_BYTES_MAX", 100_000)
    monkeypatch.setattr(configs, "ENTRIES_PER_TURN", 100)
    services = make_services(metadata=MetadataCache(configured_image()), broker_keys=lambda: KEYS)
    async with running_server(services) as server:
        client, other = await RawClient.connect(server), await RawClient.connect(server)
        resources = [
            DescribeConfigsResource(resource_type=2, resource_name=TOPIC, configuration_keys=["retention.ms", f"x{i}"])
            for i in range(5_000)
        ]
        correlation_id, frame = client.frame(DescribeConfigsRequest(resources=resources), 4)
        await client.send(frame)
        await until(lambda: server.stats.requests[ApiKey.DESCRIBE_CONFIGS << 16 | 4])
        assert (await other.call(DescribeClusterRequest(), 1)).error_code == 0
        assert not client.reader._buffer  # type: ignore[attr-defined]  # the other was served in between
        answer = client.decode(ApiKey.DESCRIBE_CONFIGS, 4, correlation_id, await client.read_frame())
        codes = [result.error_code for result in answer.results]
        described = codes.index(ErrorCode.INVALID_REQUEST)
        assert codes == [0] * described + [ErrorCode.INVALID_REQUEST] * (5_000 - described)
        assert 100 < described < 4_000
        assert "another request" in answer.results[-1].error_message


@pytest.mark.parametrize("version", [0, 2])
async def test_an_error_that_quotes_a_long_name_is_an_answer(version: int) -> None:
    """Its words did not fit the wire's 32,767 bytes: the connection ended as by a bug."""
    services = make_services(controller=RememberingController(), metadata=MetadataCache(configured_image()))
    async with connected(services) as (server, client):
        name = "x" * 32_767
        replaced = ReplacedResource(resource_type=2, resource_name=name, configs=[])
        answer = await client.call(AlterConfigsRequest(resources=[replaced]), version)
        (result,) = answer.responses
        assert (result.error_code, result.resource_name) == (ErrorCode.INVALID_TOPIC_EXCEPTION, name)
        assert len(result.error_message) < 5_000
        assert server.stats.connections_closed["bug"] == 0


async def test_a_broker_describes_itself_and_what_holds_for_all() -> None:
    services = make_services(metadata=MetadataCache(configured_image()), broker_keys=lambda: KEYS)
    async with connected(services) as (_, client):
        resources = [
            DescribeConfigsResource(resource_type=4, resource_name=name, configuration_keys=None)
            for name in ("1", "", "2")
        ]
        answer = await client.call(DescribeConfigsRequest(resources=resources), 4)
        own, everyone, other = answer.results
        found = {config.name: (config.value, config.config_source, config.read_only) for config in own.configs}
        assert found["log.segment.bytes"] == ("2000000", 3, False)
        assert found["log.retention.ms"] == ("5000", 4, False)
        assert found["node.id"] == ("1", 4, True)
        assert [(config.name, config.value) for config in everyone.configs] == [("log.segment.bytes", "2000000")]
        assert other.error_code == ErrorCode.INVALID_REQUEST


async def test_configs_are_changed_one_by_one_or_replaced() -> None:
    controller = RememberingController()
    services = make_services(controller=controller, metadata=MetadataCache(configured_image()))
    async with connected(services) as (_, client):
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=2,
                    resource_name=TOPIC,
                    configs=[AlterableConfig(name="retention.ms", config_operation=1, value=None)],
                ),
                AlterConfigsResource(resource_type=1, resource_name="metrics"),
                AlterConfigsResource(resource_type=16, resource_name="not-yet"),
                AlterConfigsResource(
                    resource_type=2,
                    resource_name="t",
                    configs=[AlterableConfig(name="k", config_operation=9, value="v")],
                ),
                AlterConfigsResource(resource_type=2, resource_name="bad"),
                AlterConfigsResource(resource_type=2, resource_name="a/b"),
                AlterConfigsResource(
                    resource_type=2,
                    resource_name="u",
                    configs=[AlterableConfig(name="retention.ms", config_operation=3, value="1")],
                ),
            ]
        )
        answer = await client.call(request, 1)
        assert [(result.resource_name, result.error_code) for result in answer.responses] == [
            (TOPIC, 0),
            ("metrics", ErrorCode.INVALID_REQUEST),
            ("not-yet", ErrorCode.UNSUPPORTED_VERSION),  # nor is a controller of a former version asked
            ("t", ErrorCode.INVALID_REQUEST),
            ("bad", ErrorCode.POLICY_VIOLATION),
            ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("u", ErrorCode.INVALID_CONFIG),
        ]
        assert controller.asked[0].resources[0].changes[0].operation is ConfigOperation.DELETE

        replace = AlterConfigsRequest(
            resources=[
                ReplacedResource(
                    resource_type=2, resource_name=TOPIC, configs=[ReplacedConfig(name="segment.ms", value="5")]
                )
            ]
        )
        assert (await client.call(replace, 2)).responses[0].error_code == 0
        changes = controller.asked[1].resources[0].changes
        assert [(change.key, change.operation, change.value) for change in changes] == [
            ("segment.ms", ConfigOperation.SET, "5"),
            ("retention.ms", ConfigOperation.DELETE, None),
        ]


async def test_log_levels_are_read_and_changed_on_the_broker_that_is_asked() -> None:
    name, package = fetcher.__name__, "barnabas_replication"
    controller = RememberingController()
    async with connected(make_services(controller=controller)) as (_, client):

        async def levels() -> dict[str, tuple[str, int]]:
            resource = DescribeConfigsResource(resource_type=8, resource_name="1", configuration_keys=None)
            (found,) = (await client.call(DescribeConfigsRequest(resources=[resource]), 4)).results
            return {config.name: (config.value, config.config_source) for config in found.configs}

        async def change(*changes: tuple[str, int, str | None], broker: str = "1", only_check: bool = False) -> int:
            configs = [AlterableConfig(key, operation, value) for key, operation, value in changes]
            resource = AlterConfigsResource(resource_type=8, resource_name=broker, configs=configs)
            request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=only_check)
            (answer,) = (await client.call(request, 1)).responses
            return int(answer.error_code)

        before = await levels()
        assert before["root"][1] == 6 and before[name] == before[package] == before["root"]
        try:
            assert await change((name, 0, "TRACE"), only_check=True) == 0
            assert await levels() == before
            assert await change((name, 0, "ERROR"), ("nobody", 0, "ERROR")) == ErrorCode.INVALID_CONFIG
            assert await levels() == before, "all or nothing"
            assert await change((package, 0, "ERROR"), (name, 0, "DEBUG")) == 0
            found = await levels()
            assert (found[package][0], found[name][0]) == ("ERROR", "DEBUG")
            assert fetcher.logger.isEnabledFor(logging.DEBUG)
            assert await change((name, 1, None)) == 0
            assert (await levels())[name][0] == "ERROR", "its parent's"
        finally:
            assert await change((package, 1, None)) == 0
        assert await levels() == before
        assert await change((name, 0, "LOUD")) == ErrorCode.INVALID_CONFIG
        assert await change((name, 2, "INFO")) == ErrorCode.INVALID_REQUEST
        assert await change(("root", 1, None)) == ErrorCode.INVALID_REQUEST
        assert await change((name, 0, "INFO"), broker="2") == ErrorCode.INVALID_REQUEST
        assert controller.asked == []


async def test_config_resources_are_listed() -> None:
    async with connected(make_services()) as (_, client):
        everything = await client.call(ListConfigResourcesRequest(resource_types=[]), 1)
        found = [(resource.resource_type, resource.resource_name) for resource in everything.config_resources]
        assert found == [(2, TOPIC), (4, "1"), (4, "2"), (8, "1"), (8, "2")]
        assert (await client.call(ListConfigResourcesRequest(), 0)).config_resources == []
        strange = await client.call(ListConfigResourcesRequest(resource_types=[2, 77]), 1)
        assert (strange.error_code, strange.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])


async def test_the_cluster_is_described() -> None:
    async with connected(make_services()) as (_, client):
        for version in range(3):
            answer = await client.call(DescribeClusterRequest(), version)
            assert (answer.cluster_id, answer.controller_id) == (CLUSTER_ID, 1)
            assert [broker.broker_id for broker in answer.brokers] == [1]
        fenced = await client.call(DescribeClusterRequest(include_fenced_brokers=True), 2)
        assert [(broker.broker_id, broker.is_fenced) for broker in fenced.brokers] == [(1, False), (2, True)]
        controllers = await client.call(DescribeClusterRequest(endpoint_type=2), 1)
        assert controllers.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


async def test_the_quorum_is_described() -> None:
    voter = ReplicaDescription(
        key=ReplicaKey(BrokerId(1), Uuid(b"directory-of-1..")),
        log_end_offset=Offset(12),
        last_fetch_ms=-1,
        last_caught_up_ms=-1,
    )
    description = QuorumDescription(
        leader_id=BrokerId(1), epoch=Epoch(3), high_watermark=Offset(11), voters=(voter,), observers=()
    )

    async def from_the_leader() -> QuorumDescription:
        return description

    address = Voter(voter.key, "controller.example", 19092)
    async with connected(make_services(quorum_description=from_the_leader, voters=lambda: (address,))) as (_, client):
        request = DescribeQuorumRequest(
            topics=[
                DescribeQuorumRequestTopicData(
                    topic_name=name, partitions=[DescribeQuorumRequestPartitionData(partition_index=0)]
                )
                for name in ("__cluster_metadata", "other")
            ]
        )
        for version in range(3):
            answer = await client.call(request, version)
            ours, other = (topic.partitions[0] for topic in answer.topics)
            assert (ours.leader_id, ours.leader_epoch, ours.high_watermark) == (1, 3, 11)
            assert [(replica.replica_id, replica.log_end_offset) for replica in ours.current_voters] == [(1, 12)]
            assert other.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if version >= 2:
                (node,) = answer.nodes
                (listener,) = node.listeners
                assert (node.node_id, listener.name, listener.port) == (1, "CONTROLLER", 19092)


async def test_voters_are_added_and_removed_by_way_of_the_quorums_leader() -> None:
    asked: list[VoterChange] = []
    refusal: list[KafkaError] = []

    async def change(wanted: VoterChange, *, principal: str, client_host: str) -> None:
        assert (principal, client_host) == (ANONYMOUS, "127.0.0.1")
        asked.append(wanted)
        if refusal:
            raise refusal.pop()

    directory = Uuid(b"directory-of-4..")
    voter = Voter(ReplicaKey(BrokerId(4), directory), "controller.example", 19093)
    async with connected(make_services(change_voters=change)) as (server, client):

        def adding(**more: Any) -> AddRaftVoterRequest:
            fields: dict[str, Any] = {
                "cluster_id": CLUSTER_ID,
                "timeout_ms": 5000,
                "voter_id": 4,
                "voter_directory_id": directory,
                "listeners": [Listener(name="CONTROLLER", host=voter.host, port=voter.port)],
            }
            return AddRaftVoterRequest(**(fields | more))

        for version in range(2):
            assert (await client.call(adding(), version)).error_code == 0
        removing = RemoveRaftVoterRequest(cluster_id=None, voter_id=4, voter_directory_id=directory)
        assert (await client.call(removing, 0)).error_code == 0
        assert asked[:2] == [VoterChange(VoterChangeKind.ADD, voter, 0)] * 2
        assert (asked[2].kind, asked[2].voter.key) == (VoterChangeKind.REMOVE, voter.key)
        refusal.append(KafkaError.of(ErrorCode.DUPLICATE_VOTER, "it votes already"))
        refused = await client.call(adding(), 1)
        assert (refused.error_code, refused.error_message) == (ErrorCode.DUPLICATE_VOTER, "it votes already")
        asked.clear()
        for request, code in (
            (adding(cluster_id="another"), ErrorCode.INCONSISTENT_CLUSTER_ID),
            (adding(listeners=[]), ErrorCode.INVALID_REQUEST),
            (adding(voter_id=-1), ErrorCode.INVALID_REQUEST),
            (adding(voter_directory_id=ZERO_UUID), ErrorCode.INVALID_REQUEST),
            (RemoveRaftVoterRequest(cluster_id="another", voter_id=4), ErrorCode.INCONSISTENT_CLUSTER_ID),
        ):
            assert (await client.call(request, 0)).error_code == code
        assert not asked
    async with running_server(make_services()) as server:
        answer = await (await RawClient.connect(server)).call(removing, 0)
        assert answer.error_code == ErrorCode.BROKER_NOT_AVAILABLE


async def test_producer_ids_are_given_once_and_transactions_refused_before_every_node_serves_them() -> None:
    async with connected(make_services(transactions=SimpleNamespace(server_version=lambda: 0))) as (_, client):
        given = []
        for version in range(6):
            answer = await client.call(InitProducerIdRequest(transactional_id=None), version)
            assert (answer.error_code, answer.producer_epoch) == (0, 0)
            given.append(answer.producer_id)
        assert len(set(given)) == 6
        refused = await client.call(InitProducerIdRequest(transactional_id="mine"), 4)
        assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert refused.producer_id == -1
        for request in (
            InitProducerIdRequest(transactional_id=None, producer_id=given[0]),
            InitProducerIdRequest(transactional_id=None, producer_epoch=0),
        ):
            refused = await client.call(request, 4)
            assert (refused.error_code, refused.producer_id) == (ErrorCode.INVALID_REQUEST, -1)
