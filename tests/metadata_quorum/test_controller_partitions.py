"""Elections, reassignments, directories and unregistering, as somebody asks the controller for them."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas_quorum.controller.requests import (
    AlterPartition,
    BrokerHeartbeat,
    ConfigAlteration,
    ConfigChange,
    ConfigOperation,
    CreatableTopic,
    CreatePartitions,
    CreateTopics,
    IncrementalAlterConfigs,
    IsrMemberEpoch,
    PartitionAlteration,
    TopicGrowth,
)
from barnabas_quorum.controller.requests_partitions import (
    AlterPartitionReassignments,
    AssignReplicasToDirectories,
    ElectionType,
    ElectLeaders,
    ListPartitionReassignments,
    PartitionReassignment,
    ReplicaPlacement,
    UnregisterBroker,
)
from barnabas_quorum.image.directories import DOUBTED_DIRECTORY
from barnabas_quorum.records import ConfigResourceType, LeaderRecoveryState, PartitionChangeRecord
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Uuid
from tests.support.decided_cluster import DecidedCluster, registration, uuid


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(number) for number in numbers)


def epoch(cluster: DecidedCluster, broker_id: int) -> int:
    return cluster.image.cluster.brokers[BrokerId(broker_id)].epoch


def set_isr(cluster: DecidedCluster, topic: str, *isr: int, index: int = 0) -> KafkaError | None:
    """What the partition's leader proposes."""
    found = cluster.image.topics.get(topic)
    assert found is not None
    partition = found.partitions[index]
    item = PartitionAlteration(
        topic_id=found.id,
        partition_id=index,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        new_isr=tuple(IsrMemberEpoch(broker_id=b, broker_epoch=epoch(cluster, b)) for b in ids(*isr)),
    )
    request = AlterPartition(
        broker_id=partition.leader, broker_epoch=epoch(cluster, partition.leader), partitions=(item,)
    )
    error: KafkaError | None = cluster.do(request).partitions[0].error
    return error


def reassign(cluster: DecidedCluster, *replicas: int, cancel: bool = False, **more: Any) -> ErrorCode | None:
    item = PartitionReassignment(topic="t", partition_id=0, replicas=None if cancel else ids(*replicas))
    [reply] = cluster.do(AlterPartitionReassignments(partitions=(item,), **more)).partitions
    assert reply.error is None or reply.error.message
    return None if reply.error is None else reply.error.code


def elect(cluster: DecidedCluster, kind: ElectionType, *partitions: int) -> list[ErrorCode | None]:
    asked = tuple(("t", index) for index in partitions) or None
    replies = cluster.do(ElectLeaders(election_type=kind, partitions=asked)).partitions
    return [None if reply.error is None else reply.error.code for reply in replies]


def set_config(cluster: DecidedCluster, topic: str, key: str, value: str) -> None:
    kind = ConfigResourceType.TOPIC if topic else ConfigResourceType.BROKER
    change = ConfigChange(key=key, operation=ConfigOperation.SET, value=value)
    resource = ConfigAlteration(resource_type=kind, resource_name=topic, changes=(change,))
    assert cluster.do(IncrementalAlterConfigs(resources=(resource,))).resources[0].error is None


# --- reassignment -------------------------------------------------------------------------------------------------------


def test_a_partition_moves_to_other_brokers_when_they_have_caught_up() -> None:
    cluster = DecidedCluster().start_brokers(1, 2, 3, 4)
    cluster.create("t", [1, 2])
    assert reassign(cluster, 3, 4) is None
    moving = cluster.partition("t")
    assert (moving.replicas, moving.adding_replicas, moving.removing_replicas) == (
        ids(3, 4, 1, 2),
        ids(3, 4),
        ids(1, 2),
    )
    assert moving.directories == (uuid(5003), uuid(5004), uuid(5001), uuid(5002))
    [listed] = cluster.do(ListPartitionReassignments()).partitions
    assert (listed.topic, listed.adding, listed.removing, listed.isr) == ("t", ids(3, 4), ids(1, 2), ids(1, 2))
    assert cluster.do(ListPartitionReassignments(partitions=(("t", 9), ("u", 0)))).partitions == ()
    assert set_isr(cluster, "t", 1, 2, 3) is None
    assert cluster.partition("t").adding_replicas == ids(3, 4), "4 is not there yet"
    error = set_isr(cluster, "t", 1, 2, 3, 4)
    assert error is not None and error.code is ErrorCode.NEW_LEADER_ELECTED
    done = cluster.partition("t")
    assert (done.replicas, done.isr, done.leader) == (ids(3, 4), ids(3, 4), 3)
    assert done.directories == (uuid(5003), uuid(5004))
    assert cluster.do(ListPartitionReassignments()).partitions == ()


def test_shrinking_to_replicas_in_sync_is_done_at_once_and_growing_keeps_the_leader() -> None:
    cluster = DecidedCluster().start_brokers(1, 2, 3)
    cluster.create("t", [1, 2])
    assert reassign(cluster, 2) is None
    assert (cluster.partition("t").replicas, cluster.partition("t").leader) == (ids(2), 2)
    assert reassign(cluster, 2, 1, 3) is None
    assert set_isr(cluster, "t", 2, 1, 3) is None
    assert (cluster.partition("t").replicas, cluster.partition("t").leader) == (ids(2, 1, 3), 2)


def test_another_order_is_another_preferred_leader_and_no_reassignment() -> None:
    cluster = DecidedCluster().start_brokers(1, 2)
    cluster.create("t", [1, 2])
    assert reassign(cluster, 2, 1) is None
    now = cluster.partition("t")
    assert (now.replicas, now.leader, now.adding_replicas) == (ids(2, 1), 1, ())
    assert elect(cluster, ElectionType.PREFERRED, 0) == [None]
    assert cluster.partition("t").leader == 2


def test_a_cancelled_reassignment_goes_back_to_the_replicas_it_began_with() -> None:
    cluster = DecidedCluster().start_brokers(1, 2, 3, 4)
    cluster.create("t", [1, 2])
    assert reassign(cluster, cancel=True) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    reassign(cluster, 3)
    assert set_isr(cluster, "t", 1, 2) is None
    assert reassign(cluster, 4, 1) is None, "another target replaces the first"
    now = cluster.partition("t")
    assert (now.replicas, now.adding_replicas, now.removing_replicas) == (ids(4, 1, 2), ids(4), ids(2))
    assert reassign(cluster, cancel=True) is None
    now = cluster.partition("t")
    assert (now.replicas, now.isr, now.adding_replicas, now.removing_replicas) == (ids(1, 2), ids(1, 2), (), ())


def test_a_cancel_that_would_leave_nobody_in_sync_is_refused_unless_unclean_is_allowed() -> None:
    cluster = DecidedCluster().start_brokers(1, 2, 3, 4)
    cluster.create("t", [1])
    reassign(cluster, 2, 3)
    set_isr(cluster, "t", 1, 2)
    cluster.fence(1)
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (2, ids(2))
    assert reassign(cluster, cancel=True) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(cluster, 4) is ErrorCode.INVALID_REPLICA_ASSIGNMENT, "nor may 2 be dropped for another target"
    cluster.heartbeat(1)
    set_config(cluster, "t", "unclean.leader.election.enable", "true")
    assert reassign(cluster, cancel=True) is None
    now = cluster.partition("t")
    assert (now.replicas, now.leader, now.leader_recovery_state) == (ids(1), 1, LeaderRecoveryState.RECOVERING)


def test_the_only_one_that_holds_what_was_committed_is_not_dropped_while_it_is_down() -> None:
    """Its log would be deleted when it is back."""
    cluster = DecidedCluster().start_brokers(1, 2, 3, 4)
    cluster.create("t", [1])
    reassign(cluster, 2, 3)
    set_isr(cluster, "t", 1, 2)
    cluster.fence(1)
    set_isr(cluster, "t", 2)
    cluster.fence(2)
    before = cluster.partition("t")
    assert (before.leader, before.isr, before.elr) == (-1, (), ids(2))
    assert reassign(cluster, cancel=True) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(cluster, 4) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert cluster.partition("t") == before
    assert reassign(cluster, 2, 4) is None, "it stays"


@pytest.mark.parametrize(
    ("replicas", "more", "code"),
    [
        ((), {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((3, 3), {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((3, 9), {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((4,), {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((3,), {"allow_replication_factor_change": False}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ((3, 4), {"allow_replication_factor_change": False}, None),
    ],
    ids=["none", "twice", "unknown", "nobody in service", "another factor", "one of two fenced"],
)
def test_targets_that_cannot_be_are_refused(
    replicas: tuple[int, ...], more: dict[str, Any], code: ErrorCode | None
) -> None:
    cluster = DecidedCluster().start_brokers(1, 2, 3, 4)
    cluster.create("t", [1, 2])
    cluster.fence(4)
    records = len(cluster.log)
    assert reassign(cluster, *replicas, **more) is code
    assert (len(cluster.log) > records) == (code is None)


def test_what_is_only_validated_or_named_twice_writes_nothing() -> None:
    cluster = DecidedCluster().start_brokers(1, 2, 3)
    cluster.create("t", [1, 2])
    records = len(cluster.log)
    assert reassign(cluster, 2, 3, validate_only=True) is None
    item = PartitionReassignment(topic="t", partition_id=7, replicas=ids(3))
    replies = cluster.do(AlterPartitionReassignments(partitions=(item, item))).partitions
    assert [reply.error.code for reply in replies] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
    ]
    assert len(cluster.log) == records


# --- elections ----------------------------------------------------------------------------------------------------------


def test_the_preferred_leader_leads_when_asked_for_and_in_sync() -> None:
    cluster = DecidedCluster().start_brokers(1, 2)
    cluster.create("t", [1, 2], [2, 1], [1, 2])
    cluster.fence(1)
    assert elect(cluster, ElectionType.PREFERRED, 0, 1) == [
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
    ]
    cluster.heartbeat(1)
    assert elect(cluster, ElectionType.PREFERRED, 0) == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE], "not in sync"
    set_isr(cluster, "t", 2, 1)
    assert elect(cluster, ElectionType.PREFERRED) == [None, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
    assert [cluster.partition("t", i).leader for i in range(3)] == [1, 2, 2]
    assert elect(cluster, ElectionType.PREFERRED, 9, 9) == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
    ]


def test_an_unclean_election_is_made_by_choice_also_where_the_config_forbids_it() -> None:
    cluster = DecidedCluster().start_brokers(1, 2)
    cluster.create("t", [1, 2])
    assert elect(cluster, ElectionType.UNCLEAN, 0) == [ErrorCode.ELECTION_NOT_NEEDED]
    cluster.fence(2)
    cluster.fence(1)
    assert elect(cluster, ElectionType.UNCLEAN, 0) == [ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE]
    cluster.heartbeat(2)
    assert cluster.partition("t").leader == -1
    assert elect(cluster, ElectionType.UNCLEAN, 0) == [None]
    now = cluster.partition("t")
    assert (now.leader, now.isr, now.elr, now.last_known_elr) == (2, ids(2), (), ())
    assert now.leader_recovery_state is LeaderRecoveryState.RECOVERING


def test_leaderships_go_back_only_to_brokers_that_have_settled_and_so_many_at_once() -> None:
    cluster = DecidedCluster(leader_imbalance_elections_max=2).start_brokers(1, 2)
    cluster.create("t", *[[1, 2]] * 4)
    cluster.fence(1)
    cluster.now_ms = 1_000
    cluster.heartbeat(1)
    for index in range(3):
        set_isr(cluster, "t", 2, 1, index=index)

    def balance(now_ms: int) -> int:
        moved: int = cluster.commit(cluster.controller.balance_leaders(now_ms=now_ms))
        return moved

    assert balance(32_000) == 0, "it still catches up with t-3"
    set_isr(cluster, "t", 2, 1, index=3)
    assert balance(30_999) == 0, "it is in service for less than the settle time"
    assert [balance(31_000) for _ in range(3)] == [2, 2, 0]
    assert [cluster.partition("t", i).leader for i in range(4)] == [1, 1, 1, 1]


def test_one_replica_that_never_catches_up_does_not_keep_a_broker_from_leading_for_ever() -> None:
    cluster = DecidedCluster().start_brokers(1, 2)
    cluster.create("t", [1, 2], [1, 2])
    cluster.fence(1)
    cluster.heartbeat(1)
    set_isr(cluster, "t", 2, 1)
    assert cluster.controller.balance_leaders(now_ms=599_999).records == []
    assert cluster.commit(cluster.controller.balance_leaders(now_ms=600_000)) == 1
    assert [cluster.partition("t", i).leader for i in range(2)] == [1, 2]


def test_partitions_without_a_leader_are_looked_at_now_and_then() -> None:
    cluster = DecidedCluster().start_brokers(1, 2)
    cluster.create("t", [1, 2])
    cluster.fence(2)
    cluster.fence(1)
    cluster.heartbeat(2)
    assert cluster.controller.elect_leaderless().records == []
    set_config(cluster, "", "unclean.leader.election.enable", "true")
    assert cluster.partition("t").leader == 2, "the change of config has done it already"


# --- ELR ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("flush", "leader"), [("fsync", 2), ("page-cache", -1)])
@pytest.mark.parametrize("stop", ["clean", "unclean"])
def test_who_stopped_uncleanly_is_eligible_only_where_records_count_when_flushed(
    stop: str, flush: str, leader: int
) -> None:
    cluster = DecidedCluster(min_insync_replicas=2).start_brokers(1, 2, 3)
    cluster.create("t", [1, 2, 3], configs={"log.flush.on.acks": flush})
    for broker_id in (3, 2, 1):
        cluster.fence(broker_id)
    gone = cluster.partition("t")
    assert (gone.isr, gone.elr, gone.leader) == ((), ids(1, 2), -1)
    previous = epoch(cluster, 2) if stop == "clean" else -1
    cluster.start_broker(2, incarnation=77, previous_broker_epoch=previous)
    assert cluster.partition("t").leader == (2 if stop == "clean" else leader)
    cluster.start_broker(3, incarnation=78)
    cluster.start_broker(1, incarnation=79)
    assert cluster.partition("t").leader in (1, 2), "3 was out before"
    if stop == "unclean" and flush == "page-cache":
        assert cluster.partition("t").leader_recovery_state is LeaderRecoveryState.RECOVERING, "the last that led"


@pytest.mark.parametrize("flush", ["fsync", "page-cache"])
@pytest.mark.parametrize("stop", ["clean", "unclean", "fenced"])
def test_a_broker_with_a_new_disk_is_eligible_for_nothing_that_was_on_the_old_one(stop: str, flush: str) -> None:
    cluster = DecidedCluster().start_brokers(1, 2)
    topic_id = cluster.create("t", [1, 2], configs={"log.flush.on.acks": flush})
    cluster.fence(2)
    if stop == "fenced":
        cluster.fence(1)
        assert (cluster.partition("t").elr, cluster.partition("t").last_known_elr) == (ids(1), ids(1))
    previous = epoch(cluster, 1) if stop == "clean" else -1
    cluster.start_broker(1, incarnation=77, directories=(uuid(7001),), previous_broker_epoch=previous)
    wiped = cluster.partition("t")
    assert (wiped.leader, wiped.isr, wiped.elr, wiped.last_known_elr) == (-1, (), (), ())
    place(cluster, topic_id, 1, 7001)
    now = cluster.partition("t")
    assert (now.leader, now.last_known_elr) == (-1, ()), "its new log is empty"
    assert now.directories == (uuid(7001), uuid(5002))
    assert elect(cluster, ElectionType.UNCLEAN, 0) == [None], "by choice it may lead"


def test_the_replaced_disk_of_the_last_leader_known_makes_it_a_stranger_also_while_it_is_away() -> None:
    cluster = DecidedCluster(min_insync_replicas=2).start_brokers(1, 2)
    cluster.create("t", [1, 2], configs={"log.flush.on.acks": "page-cache"})
    set_isr(cluster, "t", 1)
    cluster.fence(2)
    cluster.start_broker(2, incarnation=76)
    assert (cluster.partition("t").leader, cluster.partition("t").elr) == (1, ()), "2 may have lost something"
    cluster.do(registration(1, incarnation=77))
    assert (cluster.partition("t").elr, cluster.partition("t").last_known_elr) == ((), ids(1))
    cluster.do(registration(1, incarnation=78, directories=(uuid(7001),)))
    assert cluster.partition("t").last_known_elr == (), "its third incarnation has another disk"
    cluster.heartbeat(1)
    assert cluster.partition("t").leader == -1


def test_a_directory_that_is_only_offline_keeps_its_replica_eligible_until_another_disk_takes_its_place() -> None:
    both = (uuid(501), uuid(502))
    cluster = DecidedCluster()
    cluster.start_broker(1, directories=both)
    topic_id = cluster.create("t", [1])
    assert place(cluster, topic_id, 1, 502) is None
    cluster.start_broker(1, incarnation=77, directories=both[:1], has_offline_directories=True)
    assert (cluster.partition("t").leader, cluster.partition("t").elr) == (-1, ids(1))
    cluster.start_broker(1, incarnation=78, directories=both)
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (1, ids(1)), "it has its records still"
    cluster.start_broker(1, incarnation=79, directories=both[:1], has_offline_directories=True)
    cluster.start_broker(1, incarnation=80, directories=(both[0], uuid(503)))
    assert (cluster.partition("t").leader, cluster.partition("t").elr) == (-1, ())


def test_where_a_replica_was_may_be_unknown_then_all_directories_must_be_there_still() -> None:
    cluster = DecidedCluster(min_insync_replicas=2)
    both = (uuid(501), uuid(502))
    cluster.start_broker(1, directories=both)
    cluster.start_brokers(2)
    topic_id = cluster.create("t", [1, 2])
    cluster.fence(2)
    cluster.fence(1)
    cluster.start_broker(1, incarnation=77, directories=both)
    assert (cluster.partition("t").leader, cluster.partition("t").elr) == (1, ids(2))
    cluster.start_broker(1, incarnation=78, directories=(uuid(501), uuid(503)))
    assert (cluster.partition("t").leader, cluster.partition("t").elr) == (-1, ids(2))
    assert place(cluster, topic_id, 1, 503) is None
    assert cluster.partition("t").leader == -1


def test_a_directory_that_comes_back_costs_no_replica_that_was_made_without_it() -> None:
    cluster = DecidedCluster(min_insync_replicas=2)
    working, every = (uuid(501), uuid(502)), (uuid(501), uuid(502), uuid(503))
    cluster.start_broker(1, directories=working, has_offline_directories=True)
    cluster.start_brokers(2)
    cluster.create("t", [1, 2])
    cluster.fence(2)
    cluster.fence(1)
    assert cluster.partition("t").elr == ids(1, 2)
    cluster.start_broker(1, incarnation=77, directories=every)
    assert (cluster.partition("t").leader, cluster.partition("t").directories[0]) == (1, uuid(1)), "not reported yet"
    cluster.start_broker(1, incarnation=78, directories=working, has_offline_directories=True)
    assert (cluster.partition("t").leader, cluster.partition("t").elr) == (-1, ids(2)), (
        "it may have been in that one since"
    )


@pytest.mark.parametrize(
    ("directories", "has_offline", "leader"),
    [((502,), True, 1), ((502,), False, -1), ((502, 501), False, -1), ((502, 503), True, -1)],
)
def test_a_replica_that_may_have_been_in_the_failed_directory_is_kept_while_nothing_can_have_taken_its_place(
    directories: tuple[int, ...], has_offline: bool, leader: int
) -> None:
    cluster = DecidedCluster()
    cluster.start_broker(1, directories=(uuid(501), uuid(502)))
    topic_id = cluster.create("t", [1])
    lose(cluster, 1, 501)
    assert (cluster.partition("t").leader, cluster.partition("t").directories) == (1, (DOUBTED_DIRECTORY,))
    records = len(cluster.log)
    lose(cluster, 1, 501)
    assert len(cluster.log) == records, "it is doubted already"
    cluster.start_broker(
        1, incarnation=77, directories=tuple(map(uuid, directories)), has_offline_directories=has_offline
    )
    assert cluster.partition("t").leader == leader
    assert place(cluster, topic_id, 1, 502) is None
    assert (cluster.partition("t").leader, cluster.partition("t").directories) == (leader, (uuid(502),))


def test_a_proposal_with_the_incarnation_before_the_disk_was_replaced_is_refused() -> None:
    cluster = DecidedCluster(min_insync_replicas=2).start_brokers(1, 2)
    topic_id = cluster.create("t", [1, 2])
    was = epoch(cluster, 2)
    cluster.start_broker(2, incarnation=77, directories=(uuid(7002),))
    now = cluster.partition("t")

    def propose(broker_epoch: int) -> KafkaError | None:
        item = PartitionAlteration(
            topic_id=topic_id,
            partition_id=0,
            leader_epoch=now.leader_epoch,
            partition_epoch=cluster.partition("t").partition_epoch,
            new_isr=tuple(
                IsrMemberEpoch(broker_id=b, broker_epoch=e)
                for b, e in zip(ids(1, 2), (epoch(cluster, 1), broker_epoch), strict=True)
            ),
        )
        request = AlterPartition(broker_id=BrokerId(1), broker_epoch=epoch(cluster, 1), partitions=(item,))
        error: KafkaError | None = cluster.do(request).partitions[0].error
        return error

    for broker_epoch in (was, -1, epoch(cluster, 2)):
        error = propose(broker_epoch)
        assert error is not None and error.code is ErrorCode.INELIGIBLE_REPLICA, "nobody knows the new disk yet"
    assert place(cluster, topic_id, 2, 7002) is None
    error = propose(was)
    assert error is not None and error.code is ErrorCode.INELIGIBLE_REPLICA
    assert propose(epoch(cluster, 2)) is None, "it has copied what the leader has"
    assert cluster.partition("t").isr == ids(1, 2)


@pytest.mark.parametrize("where", ["t", ""])
def test_another_min_insync_replicas_clears_elrs_but_of_partitions_without_isr(where: str) -> None:
    cluster = DecidedCluster(min_insync_replicas=2).start_brokers(1, 2)
    cluster.create("t", [1, 2], [1, 2], [2, 1])
    for index in range(3):
        set_isr(cluster, "t", cluster.partition("t", index).leader, index=index)
    assert [cluster.partition("t", i).elr for i in range(3)] == [ids(2), ids(2), ids(1)]
    cluster.fence(2)
    assert (cluster.partition("t", 2).isr, cluster.partition("t", 2).elr) == (ids(1), ids(2)), "elected from the ELR"
    cluster.fence(1)
    cluster.heartbeat(2)
    before = [cluster.partition("t", i) for i in range(3)]
    assert [(p.leader, p.isr, p.elr) for p in before] == [(2, ids(2), ids(1))] * 3
    cluster.fence(2)
    set_config(cluster, where, "min.insync.replicas", "1")
    assert all(
        cluster.partition("t", i).elr == ids(1, 2) or cluster.partition("t", i).elr == ids(2, 1) for i in range(3)
    )
    cluster.heartbeat(2)
    assert [(p.leader, p.isr, p.elr) for p in (cluster.partition("t", i) for i in range(3))] == [(2, ids(2), ())] * 3
    set_config(cluster, where, "min.insync.replicas", "2")
    cluster.heartbeat(1)
    set_isr(cluster, "t", 2, 1)
    set_isr(cluster, "t", 2)
    assert cluster.partition("t").elr == ids(1)
    set_config(cluster, where, "min.insync.replicas", "1")
    assert cluster.partition("t").elr == ()


# --- directories --------------------------------------------------------------------------------------------------------


def place(cluster: DecidedCluster, topic_id: Uuid, broker_id: int, directory: int) -> KafkaError | None:
    placement = ReplicaPlacement(topic_id=topic_id, partition_id=0, directory_id=uuid(directory))
    request = AssignReplicasToDirectories(
        broker_id=BrokerId(broker_id), broker_epoch=epoch(cluster, broker_id), placements=(placement,)
    )
    error: KafkaError | None = cluster.do(request).replicas[0].error
    return error


def lose(cluster: DecidedCluster, broker_id: int, *directories: int) -> None:
    cluster.do(
        BrokerHeartbeat(
            broker_id=BrokerId(broker_id),
            broker_epoch=epoch(cluster, broker_id),
            metadata_offset=cluster.image.offset,
            want_fence=False,
            want_shutdown=False,
            offline_directories=tuple(uuid(directory) for directory in directories),
        )
    )


def test_one_failed_directory_costs_the_leaderships_in_it_and_nothing_else() -> None:
    cluster = DecidedCluster()
    cluster.start_broker(1, directories=(uuid(501), uuid(502)))
    cluster.start_brokers(2)
    first, second = cluster.create("a", [1, 2]), cluster.create("b", [1, 2])
    assert cluster.partition("a").directories == (uuid(1), uuid(5002)), "not reported yet"
    assert place(cluster, first, 1, 501) is None and place(cluster, second, 1, 502) is None
    assert cluster.partition("b").directories == (uuid(502), uuid(5002))
    lose(cluster, 1, 501)
    assert (cluster.partition("a").leader, cluster.partition("a").isr) == (2, ids(2))
    assert (cluster.partition("b").leader, cluster.partition("b").isr) == (1, ids(1, 2))
    assert cluster.image.cluster.brokers[BrokerId(1)].directories == (uuid(502),)
    records = len(cluster.log)
    lose(cluster, 1, 501)
    assert len(cluster.log) == records, "it is known"
    error = set_isr(cluster, "a", 2, 1)
    assert error is not None and error.code is ErrorCode.INELIGIBLE_REPLICA
    assert elect(cluster, ElectionType.PREFERRED) == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]


def test_a_replica_that_turns_out_to_be_in_a_failed_directory_leaves_the_isr() -> None:
    cluster = DecidedCluster()
    cluster.start_broker(1, directories=(uuid(501), uuid(502)))
    cluster.start_brokers(2)
    topic_id = cluster.create("t", [1, 2])
    lose(cluster, 1, 501)
    assert cluster.partition("t").leader == 1
    assert place(cluster, topic_id, 1, 501) is None
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (2, ids(2))


def test_placements_that_cannot_be_are_refused() -> None:
    cluster = DecidedCluster().start_brokers(1, 2)
    topic_id = cluster.create("t", [1])
    for wanted, error in (
        (place(cluster, uuid(9), 1, 5001), ErrorCode.UNKNOWN_TOPIC_ID),
        (place(cluster, topic_id, 2, 5002), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (place(cluster, topic_id, 1, 1), ErrorCode.INVALID_REQUEST),
    ):
        assert wanted is not None and wanted.code is error and wanted.message


# --- unregistering ------------------------------------------------------------------------------------------------------


def unregister(cluster: DecidedCluster, broker_id: int) -> ErrorCode | None:
    try:
        cluster.do(UnregisterBroker(broker_id=BrokerId(broker_id)))
    except KafkaError as error:
        assert error.message
        return error.code
    return None


def test_a_broker_is_forgotten_only_out_of_service_and_when_nothing_hangs_on_it() -> None:
    cluster = DecidedCluster(min_insync_replicas=2).start_brokers(1, 2)
    cluster.create("t", [1, 2])
    assert unregister(cluster, 9) is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert unregister(cluster, 1) is ErrorCode.INVALID_REQUEST, "it is in service"
    cluster.fence(1)
    assert cluster.partition("t").elr == ids(1)
    assert unregister(cluster, 1) is None
    assert BrokerId(1) not in cluster.image.cluster.brokers
    assert (cluster.partition("t").elr, cluster.partition("t").leader) == ((), 2)
    cluster.fence(2)
    assert unregister(cluster, 2) is ErrorCode.INVALID_REQUEST, "nobody else has the records"
    cluster.start_broker(1)
    assert cluster.partition("t").leader == -1
    assert elect(cluster, ElectionType.UNCLEAN, 0) == [None]
    assert unregister(cluster, 2) is None


# --- limits -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "named"),
    [
        ({"topic_partitions_max": 3}, "topic.partitions.max=3"),
        ({"cluster_partitions_max": 5}, "cluster.partitions.max=5"),
        ({"broker_replicas_max": 5}, "broker.replicas.max=5"),
    ],
)
def test_more_partitions_than_there_may_be_are_refused_by_the_key(limit: dict[str, int], named: str) -> None:
    cluster = DecidedCluster(**limit).start_brokers(1)

    def create(*counts: int) -> list[KafkaError | None]:
        topics = tuple(
            CreatableTopic(name=f"t{len(cluster.log)}-{i}", partition_count=count, replication_factor=1)
            for i, count in enumerate(counts)
        )
        return [topic.error for topic in cluster.do(CreateTopics(topics=topics)).topics]

    assert create(3) == [None]
    first, second = create(2, 4)
    assert first is None and second is not None, "counted with what the same request adds"
    assert second.code is ErrorCode.POLICY_VIOLATION and named in second.message
    [topic] = [topic for topic in cluster.image.topics.sorted_topics() if len(topic.partitions) == 3]
    growth = TopicGrowth(name=topic.name, partition_count=4)
    [grown] = cluster.do(CreatePartitions(topics=(growth,))).topics
    assert grown.error is not None and named in grown.error.message


def test_registration_after_a_failed_directory_keeps_it_failed_for_the_same_process() -> None:
    cluster = DecidedCluster()
    both = (uuid(501), uuid(502))
    cluster.start_broker(1, directories=both)
    cluster.start_brokers(2)
    place(cluster, cluster.create("t", [1, 2]), 1, 501)
    lose(cluster, 1, 501)
    cluster.do(registration(1, directories=both))
    assert cluster.image.cluster.brokers[BrokerId(1)].directories == (uuid(502),)
    cluster.start_broker(1, incarnation=77, directories=both)
    assert cluster.image.cluster.brokers[BrokerId(1)].directories == both
    assert not any(isinstance(record, PartitionChangeRecord) for record in cluster.log[-2:])
