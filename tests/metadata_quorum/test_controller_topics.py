"""Topics: create, delete, grow."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas_quorum.controller.decisions import RECORDS_PER_REQUEST_MAX
from barnabas_quorum.controller.requests import (
    CreatableTopic,
    CreatedTopic,
    CreatePartitions,
    CreateTopics,
    DeletedTopic,
    DeleteTopics,
    GrownTopic,
    TopicGrowth,
    TopicReference,
)
from barnabas_quorum.records import PartitionRecord, TopicRecord
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import INTERNAL_TOPICS, METADATA_TOPIC, BrokerId
from tests.support.decided_cluster import DecidedCluster, registration, uuid


def three() -> DecidedCluster:
    return DecidedCluster().start_brokers(1, 2, 3)


def topic(name: str = "t", partitions: int = 2, factor: int = 3, **more: Any) -> CreatableTopic:
    return CreatableTopic(name=name, partition_count=partitions, replication_factor=factor, **more)


def create(cluster: DecidedCluster, *topics: CreatableTopic, validate_only: bool = False) -> list[CreatedTopic]:
    return list(cluster.do(CreateTopics(topics=topics, validate_only=validate_only)).topics)


def codes(replies: list[Any]) -> list[ErrorCode | None]:
    assert all(reply.error is None or reply.error.message for reply in replies)
    return [None if reply.error is None else reply.error.code for reply in replies]


# --- create -------------------------------------------------------------------------------------------------------------


def test_a_topic_is_created_complete_with_its_configs_and_a_leader_per_partition() -> None:
    cluster = three()
    start = len(cluster.log)
    [made] = create(cluster, topic(partitions=6, configs={"b": "2", "a": "1"}))
    assert made.error is None and (made.partition_count, made.replication_factor) == (6, 3)
    image = cluster.image.topics.get("t")
    assert image is not None and image.id == made.topic_id
    assert isinstance(cluster.log[start], TopicRecord)
    leaders = [partition.leader for partition in image.partitions.values()]
    assert sorted(leaders) == [1, 1, 2, 2, 3, 3]
    for partition in image.partitions.values():
        assert sorted(partition.replicas) == sorted(partition.isr) == [1, 2, 3]
        assert partition.leader == partition.replicas[0] == partition.isr[0]
        assert partition.directories == tuple(uuid(5000 + replica) for replica in partition.replicas)
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
    assert cluster.image.configs.topic("t") == {"a": "1", "b": "2"}


def test_fenced_replicas_are_not_in_the_first_isr() -> None:
    cluster = three()
    cluster.fence(3)
    create(cluster, topic(partitions=4))
    for index in range(4):
        partition = cluster.partition("t", index)
        assert sorted(partition.isr) == [1, 2] and partition.leader in (1, 2) and 3 in partition.replicas


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "x" * 250])
def test_a_name_that_no_file_system_or_metric_could_bear_is_refused(name: str) -> None:
    assert codes(create(three(), topic(name))) == [ErrorCode.INVALID_TOPIC_EXCEPTION]


def test_nobody_makes_the_quorums_own_topic() -> None:
    assert codes(create(three(), topic(METADATA_TOPIC))) == [ErrorCode.INVALID_REQUEST]


def test_values_are_kept_without_the_blanks_around_them() -> None:
    cluster = three()
    create(cluster, topic("t", configs={"a": " 1 "}))
    assert cluster.image.configs.topic("t") == {"a": "1"}


@pytest.mark.parametrize("name", ["x" * 249, "a.b", "__consumer_offsets", "A-1_2.3"])
def test_other_names_are_legal(name: str) -> None:
    assert codes(create(three(), topic(name))) == [None]


def test_a_name_is_taken_once_also_within_a_request() -> None:
    cluster = three()
    assert codes(create(cluster, topic("t"), topic("u"), topic("u"))) == [None, *[ErrorCode.INVALID_REQUEST] * 2]
    assert codes(create(cluster, topic("t"))) == [ErrorCode.TOPIC_ALREADY_EXISTS]


def test_names_that_differ_only_in_dot_and_underscore_collide() -> None:
    cluster = three()
    assert codes(create(cluster, topic("a.b"), topic("a_b"), topic("ab"))) == [
        None,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        None,
    ]
    assert codes(create(cluster, topic("a_b"))) == [ErrorCode.INVALID_TOPIC_EXCEPTION]


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ({"partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"partitions": -1}, ErrorCode.INVALID_PARTITIONS),
        ({"factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"factor": 4}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"partitions": RECORDS_PER_REQUEST_MAX + 1}, ErrorCode.POLICY_VIOLATION),
        ({"configs": {"a": "bad"}}, ErrorCode.INVALID_CONFIG),
        ({"assignments": {0: (1, 2)}}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_counts_and_configs_that_cannot_be_are_refused(what: dict[str, Any], code: ErrorCode) -> None:
    cluster = three()
    start = len(cluster.log)
    assert codes(create(cluster, topic(**what))) == [code]
    assert len(cluster.log) == start


@pytest.mark.parametrize(
    "assignments",
    [
        {0: ()},
        {0: (1, 1)},
        {0: (1, 9)},
        {0: (1, 2), 1: (1,)},
        {1: (1, 2)},
        {0: (4,)},
    ],
)
def test_an_assignment_that_cannot_be_is_refused(assignments: dict[int, tuple[BrokerId, ...]]) -> None:
    cluster = three()
    cluster.do(registration(4))  # registered and fenced
    [made] = create(cluster, CreatableTopic(name="t", assignments=assignments))
    assert codes([made]) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]


def test_an_assignment_is_kept_and_its_first_active_replica_leads() -> None:
    cluster = three()
    cluster.fence(2)
    [made] = create(cluster, CreatableTopic(name="t", assignments={0: (BrokerId(2), BrokerId(3), BrokerId(1))}))
    assert made.error is None
    partition = cluster.partition("t")
    assert (partition.replicas, partition.isr, partition.leader) == ((2, 3, 1), (3, 1), 3)


def test_validate_only_answers_the_same_and_writes_nothing() -> None:
    cluster = three()
    start = len(cluster.log)
    replies = create(cluster, topic("t", configs={"a": "1"}), topic("u", factor=9), validate_only=True)
    assert codes(replies) == [None, ErrorCode.INVALID_REPLICATION_FACTOR]
    assert (replies[0].partition_count, replies[0].replication_factor) == (2, 3)
    assert len(cluster.log) == start


def test_topics_of_one_request_succeed_and_fail_alone() -> None:
    cluster = three()
    assert codes(create(cluster, topic("a"), topic("!"), topic("b"))) == [
        None,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        None,
    ]
    assert sorted(cluster.image.topics.topics) == ["a", "b"]


# --- delete -------------------------------------------------------------------------------------------------------------


def delete(cluster: DecidedCluster, *topics: TopicReference) -> list[DeletedTopic]:
    return list(cluster.do(DeleteTopics(topics=topics)).topics)


def test_a_topic_is_deleted_by_name_or_by_id_and_its_name_is_free_again() -> None:
    cluster = three()
    first, second = create(cluster, topic("a", configs={"k": "v"}), topic("b"))
    replies = delete(cluster, TopicReference(name="a"), TopicReference(topic_id=second.topic_id))
    assert [(reply.name, reply.topic_id, reply.error) for reply in replies] == [
        ("a", first.topic_id, None),
        ("b", second.topic_id, None),
    ]
    assert not cluster.image.topics.topics
    assert cluster.image.configs.topic("a") == {}
    [again] = create(cluster, topic("a"))
    assert again.error is None and again.topic_id != first.topic_id


def test_what_does_not_exist_cannot_be_deleted_and_nothing_twice() -> None:
    cluster = three()
    [made] = create(cluster, topic("a"))
    replies = delete(
        cluster,
        TopicReference(name="x"),
        TopicReference(topic_id=uuid(99)),
        TopicReference(name="a", topic_id=made.topic_id),
        TopicReference(name="a"),
        TopicReference(topic_id=made.topic_id),
    )
    assert codes(replies) == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
        None,
        ErrorCode.INVALID_REQUEST,
    ]


# --- grow ---------------------------------------------------------------------------------------------------------------


def grow(cluster: DecidedCluster, *topics: TopicGrowth, validate_only: bool = False) -> list[GrownTopic]:
    return list(cluster.do(CreatePartitions(topics=topics, validate_only=validate_only)).topics)


def test_a_topic_grows_with_its_own_replication_factor_and_keeps_its_partitions() -> None:
    cluster = three()
    create(cluster, topic("t", partitions=2, factor=2))
    before = [cluster.partition("t", index) for index in range(2)]
    start = len(cluster.log)
    assert codes(grow(cluster, TopicGrowth(name="t", partition_count=5), validate_only=True)) == [None]
    assert len(cluster.log) == start
    assert codes(grow(cluster, TopicGrowth(name="t", partition_count=5))) == [None]
    assert [cluster.partition("t", index) for index in range(2)] == before
    assert [r.partition_id for r in cluster.log[start:] if isinstance(r, PartitionRecord)] == [2, 3, 4]
    assert all(len(cluster.partition("t", index).replicas) == 2 for index in range(5))


def test_new_partitions_may_be_assigned_by_hand() -> None:
    cluster = three()
    cluster.create("t", [1, 2])
    growth = TopicGrowth(name="t", partition_count=2, assignments=((BrokerId(3), BrokerId(1)),))
    assert codes(grow(cluster, growth)) == [None]
    assert cluster.partition("t", 1).replicas == (3, 1)


@pytest.mark.parametrize(
    ("growth", "code"),
    [
        ({"name": "x", "partition_count": 3}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"name": "t", "partition_count": 1}, ErrorCode.INVALID_PARTITIONS),
        ({"name": "t", "partition_count": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"name": "t", "partition_count": 10**9}, ErrorCode.POLICY_VIOLATION),
        ({"name": "t", "partition_count": 3, "assignments": ((1, 2),)}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"name": "t", "partition_count": 2, "assignments": ((1,),)}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_growth_that_cannot_be_is_refused(growth: dict[str, Any], code: ErrorCode) -> None:
    cluster = three()
    cluster.create("t", [1, 2])
    assert codes(grow(cluster, TopicGrowth(**growth))) == [code]


@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
@pytest.mark.parametrize("validate_only", [False, True])
def test_no_topic_grows_in_which_coordinators_look_for_names_by_the_count(name: str, validate_only: bool) -> None:
    cluster = three()
    create(cluster, topic(name, partitions=2, factor=2), topic("__consumer_offsets2", partitions=1, factor=1))
    start = len(cluster.log)
    for growth in ({"partition_count": 3}, {"partition_count": 3, "assignments": ((BrokerId(1), BrokerId(2)),)}):
        (refused,) = grow(cluster, TopicGrowth(name=name, **growth), validate_only=validate_only)
        assert refused.error is not None
        assert refused.error.code is ErrorCode.INVALID_PARTITIONS
        assert name in refused.error.message and "2 partitions" in refused.error.message
    assert len(cluster.log) == start
    assert codes(grow(cluster, TopicGrowth(name="__consumer_offsets2", partition_count=3))) == [None]


def test_a_topic_grows_once_per_request() -> None:
    cluster = three()
    cluster.create("t", [1, 2])
    assert codes(grow(cluster, *[TopicGrowth(name="t", partition_count=2)] * 2)) == [ErrorCode.INVALID_REQUEST] * 2


def test_every_refusal_says_what_to_do() -> None:
    """A sample: the message names the rule and the number that broke it."""
    [made] = create(three(), topic(factor=4))
    assert isinstance(made.error, KafkaError)
    assert "more than the 3 registered brokers" in made.error.message
