"""Faulty replicas: who leads, who is in sync and who is eligible once a broker has reported a fault, and once it cleared it."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas_quorum.controller.requests_partitions import AlterReplicaFaults, ElectionType, ReplicaFaultReport
from barnabas_quorum.controller.result import ControllerResult
from barnabas_quorum.image.hashing import digest_of
from barnabas_quorum.records import (
    FaultyReplica,
    FeatureLevelRecord,
    LeaderRecoveryState,
    PartitionChangeRecord,
    ReplicaFault,
)
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId, Uuid
from tests.metadata_quorum.test_controller_partitions import elect, epoch, ids, reassign, set_isr
from tests.support.decided_cluster import DecidedCluster, uuid

CORRUPT, NO_ROOM, LOST = ReplicaFault.CORRUPT, ReplicaFault.NO_ROOM, ReplicaFault.LOST
BOTH = pytest.mark.parametrize("fault", [CORRUPT, NO_ROOM])
ALL = pytest.mark.parametrize("fault", list(ReplicaFault))


def three(**config: Any) -> DecidedCluster:
    cluster = DecidedCluster(**config).start_brokers(1, 2, 3)
    cluster.create("t", [1, 2, 3])
    return cluster


def report(
    cluster: DecidedCluster, broker_id: int, fault: ReplicaFault | None, *, topic_id: Uuid | None = None, index: int = 0
) -> KafkaError | None:
    topic = cluster.image.topics.get("t")
    assert topic is not None
    item = ReplicaFaultReport(topic_id=topic.id if topic_id is None else topic_id, partition_id=index, fault=fault)
    request = AlterReplicaFaults(broker_id=BrokerId(broker_id), broker_epoch=epoch(cluster, broker_id), reports=(item,))
    error: KafkaError | None = cluster.do(request).replicas[0].error
    return error


def state(cluster: DecidedCluster) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    partition = cluster.partition("t")
    return partition.leader, partition.isr, partition.elr


@ALL
def test_a_faulty_leader_hands_over_and_a_faulty_follower_leaves_the_isr(fault: ReplicaFault) -> None:
    cluster = three()
    assert report(cluster, 1, fault) is None
    assert state(cluster) == (2, ids(2, 3), ())
    assert cluster.partition("t").faults == (FaultyReplica(BrokerId(1), fault),)
    records = len(cluster.log)
    assert report(cluster, 1, fault) is None and len(cluster.log) == records, "it is known"
    assert report(cluster, 3, fault) is None
    assert state(cluster) == (2, ids(2), ())


@ALL
def test_a_faulty_replica_joins_no_isr_until_its_broker_clears_it(fault: ReplicaFault) -> None:
    cluster = three()
    report(cluster, 3, fault)
    error = set_isr(cluster, "t", 1, 2, 3)
    assert error is not None and error.code is ErrorCode.INELIGIBLE_REPLICA and fault.name in error.message
    report(cluster, 3, None)
    assert cluster.partition("t").faults == () and state(cluster) == (1, ids(1, 2), ())
    assert set_isr(cluster, "t", 1, 2, 3) is None
    assert state(cluster) == (1, ids(1, 2, 3), ())


@BOTH
def test_the_last_in_sync_keeps_leading_although_faulty_until_a_healthy_one_is_in_sync(fault: ReplicaFault) -> None:
    cluster = three()
    set_isr(cluster, "t", 1)
    report(cluster, 1, fault)
    assert state(cluster) == (1, ids(1), ()), "nobody else could serve even reads"
    error = set_isr(cluster, "t", 1, 2)
    assert error is not None and error.code is ErrorCode.NEW_LEADER_ELECTED
    assert state(cluster) == (2, ids(2), ())


def test_when_all_are_faulty_the_last_serves_reads_and_the_first_healthy_one_takes_over() -> None:
    cluster = three(min_insync_replicas=2)
    for broker_id in (1, 2, 3):
        report(cluster, broker_id, NO_ROOM)
    assert state(cluster) == (3, ids(3), ids(2)), "no room costs no record: who left last is eligible"
    report(cluster, 1, None)
    assert state(cluster) == (3, ids(3), ids(2)), "it may lack records"
    set_isr(cluster, "t", 3, 1)
    assert state(cluster) == (1, ids(1), ids(2, 3))
    report(cluster, 3, None)
    report(cluster, 2, None)
    set_isr(cluster, "t", 1, 2, 3)
    assert state(cluster) == (1, ids(1, 2, 3), ())


def test_only_the_replica_without_room_stays_eligible() -> None:
    for fault, eligible in ((NO_ROOM, ids(2)), (CORRUPT, ())):
        cluster = three(min_insync_replicas=2)
        set_isr(cluster, "t", 1, 2)
        report(cluster, 2, fault)
        assert state(cluster) == (1, ids(1), eligible)
    cluster = three(min_insync_replicas=2)
    set_isr(cluster, "t", 1, 2)
    cluster.fence(2)
    cluster.heartbeat(2)
    assert state(cluster) == (1, ids(1), ids(2))
    report(cluster, 2, CORRUPT)
    assert state(cluster) == (1, ids(1), ()), "found out while it is eligible"


def test_a_partition_without_a_leader_gets_one_as_soon_as_a_fault_clears() -> None:
    cluster = three(min_insync_replicas=2)
    set_isr(cluster, "t", 1, 2)
    report(cluster, 2, NO_ROOM)
    cluster.fence(2)
    cluster.fence(1)
    assert state(cluster) == (NO_BROKER, (), ids(1, 2))
    cluster.heartbeat(2)
    assert state(cluster) == (2, ids(2), ids(1)), "it has every record, and reads go on"
    assert cluster.partition("t").leader_recovery_state is LeaderRecoveryState.RECOVERED
    leader_epoch = cluster.partition("t").leader_epoch
    report(cluster, 2, None)
    assert (cluster.partition("t").faults, cluster.partition("t").leader_epoch) == ((), leader_epoch)


def test_a_corrupt_leader_alone_in_the_isr_gives_way_to_an_eligible_replica() -> None:
    """Whoever is eligible has all that is committed. The corrupt one may lack what the others must fetch to join its ISR."""
    for is_back_before in (True, False):
        cluster = three(min_insync_replicas=2)
        set_isr(cluster, "t", 1, 2)
        cluster.fence(2)
        assert state(cluster) == (1, ids(1), ids(2))
        if is_back_before:
            cluster.heartbeat(2)
        report(cluster, 1, CORRUPT)
        if not is_back_before:
            assert state(cluster) == (1, ids(1), ids(2)), "nobody else could serve even reads"
            cluster.heartbeat(2)
        assert state(cluster) == (2, ids(2), ())
        assert cluster.partition("t").leader_recovery_state is LeaderRecoveryState.RECOVERED


def test_the_last_leader_comes_back_with_its_damage_rather_than_nobody() -> None:
    cluster = three()
    set_isr(cluster, "t", 1)
    report(cluster, 1, CORRUPT)
    cluster.fence(1)
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.elr, partition.last_known_elr) == (NO_BROKER, (), (), ids(1))
    cluster.heartbeat(1)
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr) == (1, ids(1))
    assert partition.leader_recovery_state is LeaderRecoveryState.RECOVERING, "a committed record may be missing"


def test_among_faulty_ones_the_one_that_can_be_read_leads() -> None:
    cluster = three()
    set_isr(cluster, "t", 1, 2)
    topic = cluster.image.topics.get("t")
    assert topic is not None
    both = (FaultyReplica(BrokerId(1), CORRUPT), FaultyReplica(BrokerId(3), NO_ROOM))
    cluster.commit(
        ControllerResult(records=[PartitionChangeRecord(topic_id=topic.id, partition_id=0, faults=both)], response=None)
    )
    report(cluster, 2, NO_ROOM)
    assert state(cluster)[:2] == (2, ids(2))


@BOTH
def test_elections_by_hand_know_faults(fault: ReplicaFault) -> None:
    cluster = three()
    report(cluster, 1, fault)
    assert elect(cluster, ElectionType.PREFERRED) == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
    set_isr(cluster, "t", 2)
    cluster.fence(2)
    assert elect(cluster, ElectionType.UNCLEAN) == [None]
    assert cluster.partition("t").leader == 3, "a healthy one first, also uncleanly"


def test_a_replica_that_is_dropped_or_recreated_is_no_longer_faulty() -> None:
    cluster = three()
    report(cluster, 3, CORRUPT)
    assert reassign(cluster, 1, 2) is None
    assert (cluster.partition("t").replicas, cluster.partition("t").faults) == (ids(1, 2), ())
    report(cluster, 2, CORRUPT)
    cluster.start_broker(2, incarnation=77, directories=(uuid(9002),))
    assert cluster.partition("t").faults == (), "another disk, and nothing on it"


@BOTH
def test_a_broker_does_not_wait_for_its_faulty_replica_to_lead_others(fault: ReplicaFault) -> None:
    cluster = DecidedCluster().start_brokers(1, 2)
    cluster.create("t", [1, 2], [1, 2])
    cluster.fence(1)
    cluster.heartbeat(1)
    set_isr(cluster, "t", 2, 1)
    assert cluster.controller.balance_leaders(now_ms=30_000).records == [], "t-1 still catches up"
    assert report(cluster, 1, fault, index=1) is None
    assert cluster.commit(cluster.controller.balance_leaders(now_ms=30_000)) == 1
    assert [cluster.partition("t", index).leader for index in range(2)] == [1, 2]


def test_reports_that_cannot_be_are_refused() -> None:
    cluster = three()
    cluster.start_brokers(4)
    assert epoch(cluster, 4) >= 0
    for refused, code in (
        (report(cluster, 1, CORRUPT, topic_id=uuid(9)), ErrorCode.UNKNOWN_TOPIC_ID),
        (report(cluster, 1, CORRUPT, index=7), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (report(cluster, 4, CORRUPT), ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ):
        assert refused is not None and refused.code is code and refused.message
    with pytest.raises(KafkaError) as caught:
        cluster.do(AlterReplicaFaults(broker_id=BrokerId(1), broker_epoch=0, reports=()))
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_before_metadata_version_4_no_fault_is_written() -> None:
    cluster = three()
    cluster.commit(ControllerResult(records=[FeatureLevelRecord(name="metadata.version", level=3)], response=None))
    with pytest.raises(KafkaError) as caught:
        report(cluster, 1, CORRUPT)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION and "features upgrade" in caught.value.message


def test_a_partition_without_faults_hashes_as_before_there_were_any() -> None:
    """Nodes of both versions compare hashes in one cluster."""
    topic = three().image.topics.get("t")
    assert topic is not None
    record = topic.partitions[0].to_record(topic_id=uuid(1), partition_id=0)
    assert digest_of("topics", record).hex() == "ba8f7a15f862ed52c718d9b8ce36fbfa", "what 0.1 gave"


def test_who_has_lost_records_leads_nothing_even_if_nobody_else_can() -> None:
    cluster = DecidedCluster(min_insync_replicas=1).start_brokers(1, 2, 3)
    cluster.create("t", [1, 2, 3])
    set_isr(cluster, "t", 1)
    report(cluster, 1, LOST)
    assert state(cluster) == (NO_BROKER, (), ())
    assert cluster.partition("t").last_known_elr == (), "it would be elected by itself"
    cluster.fence(1)
    cluster.start_brokers(1)
    assert state(cluster) == (NO_BROKER, (), ()), "a restart proves nothing"
    report(cluster, 1, None)
    assert state(cluster) == (NO_BROKER, (), ())


def test_who_has_lost_records_is_not_eligible() -> None:
    cluster = three(min_insync_replicas=2)
    set_isr(cluster, "t", 1)
    assert state(cluster) == (1, ids(1), ids(2, 3))
    report(cluster, 2, LOST)
    assert state(cluster) == (1, ids(1), ids(3))
    report(cluster, 1, LOST)
    assert state(cluster) == (3, ids(3), ()), "the eligible one that has its records"


def test_an_operator_who_elects_it_accepts_the_loss() -> None:
    cluster = DecidedCluster().start_brokers(1)
    cluster.create("t", [1])
    report(cluster, 1, LOST)
    assert state(cluster) == (NO_BROKER, (), ())
    assert elect(cluster, ElectionType.UNCLEAN, 0) == [None]
    partition = cluster.partition("t")
    assert (partition.leader, partition.faults) == (1, ())
    assert partition.leader_recovery_state is LeaderRecoveryState.RECOVERING


def test_an_unclean_election_prefers_any_other_to_one_that_lost_records() -> None:
    cluster = three(min_insync_replicas=1)
    set_isr(cluster, "t", 1)
    for broker_id, fault in ((2, CORRUPT), (1, LOST)):
        report(cluster, broker_id, fault)
    report(cluster, 3, CORRUPT)
    assert elect(cluster, ElectionType.UNCLEAN, 0) == [None]
    assert state(cluster)[0] == 2


def test_before_metadata_version_7_no_lost_records_are_written() -> None:
    cluster = three()
    cluster.commit(ControllerResult(records=[FeatureLevelRecord(name="metadata.version", level=6)], response=None))
    error = report(cluster, 1, LOST)
    assert error is not None and error.code is ErrorCode.UNSUPPORTED_VERSION
    assert cluster.partition("t").faults == ()
