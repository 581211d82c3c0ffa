"""Metadata, and topics made, deleted, grown and cut."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from barnabas_wire.kafka.ids import ZERO_UUID
from barnabas_wire.kafka.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas_wire.kafka.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas_wire.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas_wire.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas_wire.kafka.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    TopicRequest,
)
from barnabas_wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from barnabas_wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.oracle.answers import UNKNOWN_ID, Side
from tests.oracle.cases import batch, case
from tests.oracle.cases.produce import produce

BAD_NAMES = ("", ".", "..", "a/b", "a b", "ü", "x" * 250, "a\0b", "a,b")
TIMEOUT_MS = 10_000


# ---- Metadata --------------------------------------------------------------------------------------------------------


def metadata(side: Side, *names: str, version: int = 12, **fields: Any) -> Any:
    """Of these topics, without making any."""
    topics = [MetadataRequestTopic(name=name) for name in names]
    given: dict[str, Any] = {"topics": topics, "allow_auto_topic_creation": False} | fields
    return side.call(MetadataRequest(**given), version=version)


@case()
def metadata_in_every_version(side: Side) -> Iterator[tuple[str, Any]]:
    topic = side.topic("metadata-versions", 3)
    for version in range(14):
        yield f"v{version}", metadata(side, topic, version=version)
        if version >= 4:
            yield f"v{version} unknown", metadata(side, "nowhere", version=version)
            yield f"v{version} bad names", metadata(side, *BAD_NAMES, version=version)
            yield f"v{version} twice", metadata(side, topic, topic, version=version)
        if version >= 1:
            yield f"v{version} none", metadata(side, version=version)
        if version >= 8:
            operations = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
            yield f"v{version} operations", metadata(side, topic, "nowhere", version=version, **operations)


@case({"* neither.*": "kafka-stumbles"})
def metadata_by_id(side: Side) -> Iterator[tuple[str, Any]]:
    topic = side.topic("metadata-ids", 2)
    for version in (10, 11, 12, 13):
        for label, asked in (
            ("known", MetadataRequestTopic(topic_id=side.topic_ids[topic], name=None)),
            ("unknown", MetadataRequestTopic(topic_id=UNKNOWN_ID, name=None)),
            ("both", MetadataRequestTopic(topic_id=side.topic_ids[topic], name=topic)),
            ("wrong id", MetadataRequestTopic(topic_id=UNKNOWN_ID, name=topic)),
            ("neither", MetadataRequestTopic(topic_id=ZERO_UUID, name=None)),
        ):
            yield f"v{version} {label}", metadata(side, version=version, topics=[asked])


@case(
    {"v* first.*": "waits-for-topic", "make metadata-made.9": "waits-for-topic", "make a collision": "waits-for-topic"}
)
def metadata_makes_topics(side: Side) -> Iterator[tuple[str, Any]]:
    for version in (1, 4, 9, 12):
        name = f"metadata-made-{version}"
        yield f"v{version} first", metadata(side, name, version=version, allow_auto_topic_creation=True)
        side.wait_for_topic(name)
        made = metadata(side, name, version=version)
        for found in made.topics:
            side.topic_ids[name] = getattr(found, "topic_id", ZERO_UUID)
        yield f"v{version} then", made
    for name in ("a/b", "metadata-made.9", "__consumer_offsets", "__transaction_state", "__cluster_metadata"):
        answer = metadata(side, name, allow_auto_topic_creation=True)
        yield f"make {name}", answer.topics[0].error_code
    yield "make a collision", metadata(side, "metadata-made_9", allow_auto_topic_creation=True).topics[0].error_code


@case({"bad names.*.error_code": "kafka-stumbles"})
def describe_topic_partitions(side: Side) -> Iterator[tuple[str, Any]]:
    first, second = side.topic("describe-a", 3), side.topic("describe-b", 2)

    def ask(*names: str, **fields: Any) -> Any:
        return side.call(DescribeTopicPartitionsRequest(topics=[TopicRequest(name) for name in names], **fields))

    yield "both", ask(first, second)
    yield "order", [topic.name for topic in ask(second, first, "describe-aa").topics]
    yield "unknown", ask("nowhere")
    yield "bad names", ask(*BAD_NAMES)
    for limit in (1, 2, 3, 4, 5, 0, -1):
        yield f"limit {limit}", ask(first, second, response_partition_limit=limit)
    for name, partition in (
        (first, 0),
        (first, 1),
        (first, 3),
        (first, 9),
        (second, 0),
        ("describe-aa", 0),
        ("zzz", 0),
        (first, -1),
    ):
        cursor = DescribeTopicPartitionsRequestCursor(name, partition)
        yield f"from {name} {partition}", ask(first, second, cursor=cursor)


# ---- CreateTopics ----------------------------------------------------------------------------------------------------


def create(side: Side, *topics: CreatableTopic, version: int = 7, validate_only: bool = False) -> Any:
    """The answer, with the configs of each topic left to configs.py; learns the ids."""
    request = CreateTopicsRequest(list(topics), TIMEOUT_MS, validate_only)
    answer = side.call(request, version=version)
    for topic in answer.topics:
        if topic.error_code == 0 and topic.topic_id != ZERO_UUID:
            side.topic_ids[topic.name] = topic.topic_id
        topic.configs = None if topic.configs is None else len(topic.configs) > 0
    return answer


def wanted(name: str, partitions: int = 1, replicas: int = 1, **configs: str | None) -> CreatableTopic:
    """A topic to make; see Side.topic for the configs' names."""
    given = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, configs=given)


def assigned(
    name: str, *assignments: tuple[int, list[int]], partitions: int = -1, replicas: int = -1
) -> CreatableTopic:
    """A topic whose replicas are reported."""
    listed = [CreatableReplicaAssignment(partition, brokers) for partition, brokers in assignments]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, assignments=listed)


@case()
def create_topics_in_every_version(side: Side) -> Iterator[tuple[str, Any]]:
    for version in range(2, 8):
        yield f"v{version}", create(side, wanted(f"create-{version}", 2), version=version)
        yield f"v{version} again", create(side, wanted(f"create-{version}", 2), version=version)
        yield f"v{version} dry", create(side, wanted(f"create-dry-{version}", 2), version=version, validate_only=True)
        yield f"v{version} defaults", create(side, wanted(f"create-defaults-{version}", -1, -1), version=version)


@case()
def create_topics_refused(side: Side) -> Iterator[tuple[str, Any]]:
    taken = side.topic("create-taken")
    refused = {
        "taken": wanted(taken),
        "no partitions": wanted("create-a", 0),
        "negative partitions": wanted("create-a", -2),
        "no replicas": wanted("create-a", 1, 0),
        "negative replicas": wanted("create-a", 1, -2),
        "too many replicas": wanted("create-a", 1, 2),
        "collision": wanted("create.taken"),
        "unknown config": wanted("create-a", no_such_key="1"),
        "config without value": wanted("create-a", retention_ms=None),
        "config not a number": wanted("create-a", retention_ms="long"),
        "config out of range": wanted("create-a", retention_ms="-2"),
        "config too small": wanted("create-a", segment_bytes="10"),
        "config not a choice": wanted("create-a", cleanup_policy="burn"),
        "config empty": wanted("create-a", retention_ms=""),
        "min isr 0": wanted("create-a", min_insync_replicas="0"),
        "assigned": assigned("create-assigned", (0, [1]), (1, [1])),
        "assigned to nobody": assigned("create-a", (0, [])),
        "assigned to a stranger": assigned("create-a", (0, [9])),
        "assigned twice": assigned("create-a", (0, [1, 1])),
        "assigned with a gap": assigned("create-a", (0, [1]), (2, [1])),
        "assigned from one": assigned("create-a", (1, [1])),
        "assigned negative": assigned("create-a", (-1, [1])),
        "partition assigned twice": assigned("create-a", (0, [1]), (0, [1])),
        "assigned unevenly": assigned("create-a", (0, [1]), (1, [1, 2])),
        "assigned and counted": assigned("create-a", (0, [1]), partitions=1),
        "assigned and replicated": assigned("create-a", (0, [1]), replicas=1),
        "metadata topic": wanted("__cluster_metadata"),
        "huge": wanted("create-a", 2_000_000),
        "partitions unknown in v2": wanted("create-a", -1, -1),
    }
    for label, topic in refused.items():
        yield label, create(side, topic, version=3 if label.endswith("v2") else 7, validate_only="huge" in label)
    for name in BAD_NAMES:
        yield f"name {name[:10]!r}", create(side, wanted(name))
    yield "twice", create(side, wanted("create-twice"), wanted("create-twice"))
    yield "twice and good", create(side, wanted("create-twice"), wanted("create-twice"), wanted("create-good"))
    yield "none", create(side)


@case()
def create_topics_compacted(side: Side) -> Iterator[tuple[str, Any]]:
    for policy in ("compact", "compact,delete", "delete"):
        yield policy, create(side, wanted(f"create-{policy.replace(',', '-')}", cleanup_policy=policy))


# ---- DeleteTopics ----------------------------------------------------------------------------------------------------


@case()
def delete_topics(side: Side) -> Iterator[tuple[str, Any]]:
    for version in range(1, 7):
        name = side.topic(f"delete-{version}")

        def ask(*names: str, version: int = version) -> Any:
            request = DeleteTopicsRequest(
                topics=[DeleteTopicState(name) for name in names], topic_names=list(names), timeout_ms=TIMEOUT_MS
            )
            return side.call(request, version=version)

        yield f"v{version} unknown", ask("nowhere")
        yield f"v{version}", ask(name, "nowhere")
        yield f"v{version} again", ask(name)
        yield f"v{version} none", ask()
        yield f"v{version} bad name", ask("a/b")

    def by_state(*states: DeleteTopicState) -> Any:
        return side.call(DeleteTopicsRequest(topics=list(states), timeout_ms=TIMEOUT_MS), version=6)

    topic = side.topic("delete-ids")
    topic_id = side.topic_ids[topic]
    yield "unknown id", by_state(DeleteTopicState(None, UNKNOWN_ID))
    yield "name and id", by_state(DeleteTopicState(topic, topic_id))
    yield "neither", by_state(DeleteTopicState(None, ZERO_UUID))
    yield "twice by name", by_state(DeleteTopicState(topic), DeleteTopicState(topic))
    yield "twice by id", by_state(DeleteTopicState(None, topic_id), DeleteTopicState(None, topic_id))
    yield "by name and by id", by_state(DeleteTopicState(topic), DeleteTopicState(None, topic_id))
    yield "still there", metadata(side, topic)
    yield "by id", by_state(DeleteTopicState(None, topic_id))
    side.wait_for_deletion(topic)
    yield "gone", metadata(side, topic)


# ---- CreatePartitions ------------------------------------------------------------------------------------------------


@case({"huge.*": "kafka-stumbles"})
def create_partitions(side: Side) -> Iterator[tuple[str, Any]]:
    topic = side.topic("grow", 2)

    def ask(
        name: str, count: int, assignments: list[list[int]] | None = None, version: int = 3, dry: bool = False
    ) -> Any:
        listed = None if assignments is None else [CreatePartitionsAssignment(brokers) for brokers in assignments]
        request = CreatePartitionsRequest([CreatePartitionsTopic(name, count, listed)], TIMEOUT_MS, dry)
        return side.call(request, version=version)

    for version in range(4):
        yield f"v{version} same", ask(topic, 2, version=version)
        yield f"v{version} fewer", ask(topic, 1, version=version)
        yield f"v{version} unknown", ask("nowhere", 3, version=version)
    for count in (0, -1):
        yield f"to {count}", ask(topic, count)
    yield "dry", ask(topic, 5, dry=True)
    yield "after dry", metadata(side, topic)
    yield "assigned to a stranger", ask(topic, 3, [[9]])
    yield "assigned to nobody", ask(topic, 3, [[]])
    yield "too many assigned", ask(topic, 3, [[1], [1]])
    yield "too few assigned", ask(topic, 4, [[1]])
    yield "none assigned", ask(topic, 3, [])
    yield "assigned to more", ask(topic, 3, [[1, 1]])
    yield "bad name", ask("a/b", 3)
    yield "huge", ask(topic, 20_000, dry=True)
    twice = [CreatePartitionsTopic(topic, 9, None), CreatePartitionsTopic(topic, 8, None)]
    yield "twice", side.call(CreatePartitionsRequest(twice, TIMEOUT_MS, False))
    yield "assigned", ask(topic, 4, [[1], [1]])
    side.wait_for_topic(topic, 4)
    yield "grown", metadata(side, topic)


# ---- DeleteRecords ---------------------------------------------------------------------------------------------------


def delete_records(side: Side, topic: str, offset: int, *, partition: int = 0, version: int = 2) -> Any:
    """Cut one partition before an offset."""
    asked = DeleteRecordsTopic(topic, [DeleteRecordsPartition(partition, offset)])
    return side.call(DeleteRecordsRequest(topics=[asked], timeout_ms=TIMEOUT_MS), version=version)


@case()
def delete_records_of_partitions(side: Side) -> Iterator[tuple[str, Any]]:
    topic = side.topic("cut", 3)
    for index in range(3):
        for _ in range(3):
            assert produce(side, topic, batch(10), partition=index).error_code == 0
    for version in range(3):
        yield f"v{version} to 12", delete_records(side, topic, 12, partition=version, version=version)
        yield f"v{version} back to 5", delete_records(side, topic, 5, partition=version, version=version)
        yield f"v{version} beyond", delete_records(side, topic, 31, partition=version, version=version)
        yield f"v{version} negative", delete_records(side, topic, -2, partition=version, version=version)
        yield f"v{version} unknown topic", delete_records(side, "nowhere", 0, version=version)
        yield f"v{version} unknown partition", delete_records(side, topic, 0, partition=9, version=version)
        yield f"v{version} to the end", delete_records(side, topic, -1, partition=version, version=version)
        yield f"v{version} at the end", delete_records(side, topic, 30, partition=version, version=version)
    side.call(FindCoordinatorRequest(coordinator_keys=["cut"]), version=4)
    side.wait_for_topic("__consumer_offsets")
    yield "internal", delete_records(side, "__consumer_offsets", 0)
