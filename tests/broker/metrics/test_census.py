"""Laws of counting health from an image, and of a node's own life and readiness."""

from __future__ import annotations

import pytest

from barnabas_broker.metrics.census import (
    AT_MIN_ISR,
    CORRUPT,
    LEADERLESS,
    NO_ROOM,
    NOT_PREFERRED,
    UNDER_MIN_ISR,
    UNDER_REPLICATED,
    min_insync_replicas,
    partition_flags,
    take_census,
)
from barnabas_broker.metrics.health import LANE_SILENCE_MS_MAX, METADATA_LAG_RECORDS_MAX, find_dead, find_unready
from barnabas_quorum.image.loader import MetadataLoader
from barnabas_quorum.image.metadata import MetadataDelta
from barnabas_quorum.raft.messages import CommittedBatch
from barnabas_quorum.records import ConfigResourceType, FaultyReplica, PartitionChangeRecord, ReplicaFault
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId, Epoch, Offset, TopicPartition
from tests.support.images import make_image

LEADER = BrokerId(1)


@pytest.mark.parametrize(
    ("isr", "leader", "flags"),
    [
        ((1, 2, 3), 1, []),
        ((2, 1, 3), 2, [NOT_PREFERRED]),
        ((1, 2), 1, [UNDER_REPLICATED, AT_MIN_ISR]),
        ((1,), 1, [UNDER_REPLICATED, UNDER_MIN_ISR]),
        ((1,), -1, [LEADERLESS, UNDER_REPLICATED, UNDER_MIN_ISR]),
    ],
)
def test_flags_of_a_partition_with_three_replicas_and_min_isr_two(
    isr: tuple[int, ...], leader: int, flags: list[str]
) -> None:
    image = make_image(topics={"t": [((1, 2, 3), isr, leader)]})
    partition = image.topics.partition(TopicPartition("t", 0))
    assert partition is not None
    assert partition_flags(partition, min_isr=2) == flags


def test_faulty_replicas_are_flagged_and_counted_by_what_is_wrong() -> None:
    image = make_image(topics={"t": [((1, 2, 3), (3,), 3)]})
    topic = image.topics.get("t")
    assert topic is not None
    faults = tuple(
        FaultyReplica(BrokerId(n), fault) for n, fault in ((1, ReplicaFault.NO_ROOM), (2, ReplicaFault.CORRUPT))
    )
    delta = MetadataDelta(image)
    delta.replay(PartitionChangeRecord(topic_id=topic.id, partition_id=0, faults=faults))
    image = delta.apply(Offset(101), Epoch(4), 0)
    partition = image.topics.partition(TopicPartition("t", 0))
    assert partition is not None
    assert partition_flags(partition, min_isr=1) == [UNDER_REPLICATED, AT_MIN_ISR, NOT_PREFERRED, CORRUPT, NO_ROOM]
    assert take_census(image, static_min_isr=1).faulty == {ReplicaFault.NO_ROOM: 1, ReplicaFault.CORRUPT: 1}


def test_a_min_isr_above_the_replicas_is_not_a_lasting_alarm() -> None:
    partition = make_image(topics={"t": [((1,), (1,), 1)]}).topics.partition(TopicPartition("t", 0))
    assert partition is not None
    assert partition_flags(partition, min_isr=2) == []


def test_min_isr_is_the_topics_then_the_clusters_then_the_files() -> None:
    key = "min.insync.replicas"
    topic = (ConfigResourceType.TOPIC, "t")
    cluster = (ConfigResourceType.BROKER, "")
    bare = make_image(topics={"t": []})
    assert min_insync_replicas(bare, "t", static_default=1) == 1
    assert min_insync_replicas(make_image(configs={cluster: {key: "2"}}), "t", static_default=1) == 2
    both = make_image(configs={cluster: {key: "2"}, topic: {key: "3"}})
    assert min_insync_replicas(both, "t", static_default=1) == 3


def test_census_counts_every_partition_once() -> None:
    image = make_image(topics={"a": [((1, 2, 3), (1, 2, 3), 1), ((2, 3, 1), (2,), 2)], "b": [((3, 1, 2), (1, 2), 1)]})
    census = take_census(image, static_min_isr=2)
    assert (census.topics, census.partitions) == (2, 3)
    assert census.flags == {UNDER_REPLICATED: 2, UNDER_MIN_ISR: 1, AT_MIN_ISR: 1, NOT_PREFERRED: 1}
    assert census.led == {1: 2, 2: 1}
    assert census.held == {1: 3, 2: 3, 3: 3}


def test_a_lane_that_stopped_turning_is_dead() -> None:
    ticks = {"data": 0, "control": LANE_SILENCE_MS_MAX}
    assert find_dead(now_ms=LANE_SILENCE_MS_MAX, last_tick_ms=ticks) == []
    (reason,) = find_dead(now_ms=LANE_SILENCE_MS_MAX + 1, last_tick_ms=ticks)
    assert "data lane" in reason


def readiness(
    *, node_id: int = 1, is_broker: bool = True, leader_id: BrokerId = LEADER, behind: int = 0, is_serving: bool = True
) -> list[str]:
    image = make_image(brokers=(1, 2), fenced=(2,))
    return find_unready(
        node_id=BrokerId(node_id),
        is_broker=is_broker,
        image=image,
        leader_id=leader_id,
        high_watermark=Offset(image.offset + 1 + behind),
        is_serving=is_serving,
    )


def test_a_broker_is_ready_when_unfenced_and_informed() -> None:
    assert readiness() == []
    assert readiness(node_id=2) == ["broker 2 is fenced"]
    assert readiness(node_id=9) == ["broker 9 is not registered"]
    (reason,) = readiness(is_serving=False)
    assert "serves clients in a moment" in reason
    assert readiness(leader_id=NO_BROKER) == ["no leader of the metadata quorum is known"]
    assert readiness(behind=METADATA_LAG_RECORDS_MAX) == []
    assert "behind" in readiness(behind=METADATA_LAG_RECORDS_MAX + 1)[0]


def test_a_controller_alone_is_ready_without_being_registered_as_broker() -> None:
    assert readiness(node_id=9, is_broker=False, is_serving=False) == []


def test_readiness_is_about_this_node_and_not_the_cluster() -> None:
    image = make_image(fenced=(2, 3), topics={"t": [((1, 2, 3), (1,), -1)]})
    assert (
        find_unready(
            node_id=BrokerId(1), is_broker=True, image=image, leader_id=LEADER, high_watermark=Offset(image.offset + 1)
        )
        == []
    )


def test_a_node_that_a_bad_record_blocks_is_not_ready_and_says_where() -> None:
    loader = MetadataLoader()
    loader.on_commit([CommittedBatch(Offset(7), Epoch(1), 0, (b"\xd2\x09\x00",))])
    image = make_image(brokers=(1, 2))
    (reason,) = find_unready(
        node_id=BrokerId(1),
        is_broker=True,
        image=image,
        leader_id=LEADER,
        high_watermark=Offset(image.offset + 1),
        blocked=loader.blocked,
    )
    assert "offset 7" in reason and "barnabas quorum quarantine list" in reason
