"""A log directory that a copy from before was put in place of: found when its broker registers, by the epoch that it names."""

from __future__ import annotations

import pytest

from barnabas_quorum.controller.requests_partitions import (
    AssignReplicasToDirectories,
    ElectionType,
    PlacedReplica,
    ReplicaPlacement,
)
from barnabas_quorum.controller.result import ControllerResult
from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_quorum.records import FaultyReplica, FeatureLevelRecord, LeaderRecoveryState, ReplicaFault
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId, Epoch, Offset
from tests.metadata_quorum.test_controller_partitions import elect, ids, set_isr
from tests.support.decided_cluster import DecidedCluster, registration, uuid

LOST = FaultyReplica(BrokerId(1), ReplicaFault.LOST)
ONE, TWO = uuid(201), uuid(202)


def comes_back(cluster: DecidedCluster, *epochs: int, incarnation: int = 50, directories: tuple[int, ...] = ()) -> int:
    """Broker 1 registers with what its directories name."""
    cluster.fence(1)
    named = tuple(map(uuid, directories)) or (uuid(5001),)
    request = registration(1, incarnation=incarnation, directories=named, directory_epochs=epochs)
    epoch: int = cluster.do(request).broker_epoch
    return epoch


def state(cluster: DecidedCluster) -> tuple[int, tuple[int, ...], tuple[int, ...], tuple[FaultyReplica, ...]]:
    partition = cluster.partition("t")
    return partition.leader, partition.isr, partition.elr, partition.faults


def served_once(*replicas: int, min_isr: int = 2) -> tuple[DecidedCluster, int, int]:
    """A cluster in which broker 1 served twice; both epochs."""
    cluster = DecidedCluster(min_insync_replicas=min_isr).start_brokers(1, 2, 3)
    first = cluster.image.cluster.brokers[BrokerId(1)].epoch
    cluster.create("t", list(replicas))
    cluster.fence(1)
    second = cluster.start_broker(1, incarnation=40, directory_epochs=(first,))
    return cluster, first, second


def test_the_last_eligible_one_is_not_elected_with_an_older_copy_until_an_operator_says_so() -> None:
    cluster, first, _ = served_once(1)
    assert state(cluster) == (1, ids(1), (), ())
    comes_back(cluster, first)
    cluster.heartbeat(1)
    assert state(cluster) == (NO_BROKER, (), (), (LOST,))
    assert cluster.partition("t").last_known_elr == (), "it would be elected by itself"
    assert elect(cluster, ElectionType.UNCLEAN, 0) == [None]
    assert state(cluster) == (1, ids(1), (), ())
    assert cluster.partition("t").leader_recovery_state is LeaderRecoveryState.RECOVERING


def test_it_leaves_the_isr_and_is_not_eligible_and_the_others_lead() -> None:
    cluster, first, _ = served_once(1, 2, 3)
    set_isr(cluster, "t", 1, 2, 3)
    leader = cluster.partition("t").leader
    comes_back(cluster, first)
    assert cluster.partition("t").leader != 1 or leader != 1
    assert 1 not in {*cluster.partition("t").isr, *cluster.partition("t").elr}


def test_what_names_the_epoch_that_was_served_is_as_it_was() -> None:
    cluster, _, second = served_once(1)
    comes_back(cluster, second)
    assert state(cluster) == (NO_BROKER, (), ids(1), ())
    cluster.heartbeat(1)
    assert state(cluster) == (1, ids(1), (), ())


def test_a_crash_between_the_registration_and_its_note_is_no_older_copy() -> None:
    """Of all brokers at once, as a power cut may have it, and time and again."""
    cluster, _, second = served_once(1)
    for incarnation in (60, 61, 62):
        comes_back(cluster, second, incarnation=incarnation)  # registered, never unfenced: never written
    cluster.heartbeat(1)
    assert state(cluster) == (1, ids(1), (), ())
    newest = cluster.image.cluster.brokers[BrokerId(1)].epoch
    comes_back(cluster, newest, incarnation=70)
    comes_back(cluster, second, incarnation=71)
    assert state(cluster)[3] == (LOST,), "and now it was served from"


def test_a_directory_that_names_no_epoch_proves_nothing() -> None:
    cluster, _, _ = served_once(1)
    comes_back(cluster, -1)
    cluster.heartbeat(1)
    comes_back(cluster, incarnation=51)
    cluster.heartbeat(1)
    assert state(cluster) == (1, ids(1), (), ())


@pytest.mark.parametrize(("epochs", "is_struck"), [((True, False), True), ((False, True), False)])
def test_of_two_directories_only_the_replicas_in_the_copied_one_leave(
    epochs: tuple[bool, bool], is_struck: bool
) -> None:
    cluster = DecidedCluster(min_insync_replicas=1)
    old = cluster.start_broker(1, directories=(ONE, TWO), directory_epochs=(-1, -1))
    topic_id = cluster.create("t", [1])
    placement = ReplicaPlacement(topic_id=topic_id, partition_id=0, directory_id=ONE)
    reply = cluster.do(AssignReplicasToDirectories(broker_id=BrokerId(1), broker_epoch=old, placements=(placement,)))
    assert reply.replicas == (PlacedReplica(topic_id=topic_id, partition_id=0, error=None),)
    cluster.fence(1)
    new = cluster.start_broker(1, incarnation=40, directories=(ONE, TWO), directory_epochs=(old, old))
    comes_back(cluster, *(old if is_old else new for is_old in epochs), directories=(201, 202))
    cluster.heartbeat(1)
    assert state(cluster) == ((NO_BROKER, (), (), (LOST,)) if is_struck else (1, ids(1), (), ()))


def test_what_a_failed_directory_last_served_is_remembered_until_it_is_back() -> None:
    cluster = DecidedCluster(min_insync_replicas=1)
    old = cluster.start_broker(1, directories=(ONE, TWO), directory_epochs=(-1, -1))
    comes_back(
        cluster, old, directories=(202,), incarnation=51
    )  # the first was taken out of log.dirs, and is forgotten
    assert [each.directory for each in cluster.image.cluster.brokers[BrokerId(1)].served] == [TWO]
    cluster.heartbeat(1)
    cluster.fence(1)
    request = registration(1, incarnation=52, directories=(ONE,), directory_epochs=(-1,), has_offline_directories=True)
    cluster.do(request)
    assert [each.directory for each in cluster.image.cluster.brokers[BrokerId(1)].served] == [TWO]


def test_below_metadata_version_7_nothing_is_written_or_concluded() -> None:
    cluster = DecidedCluster(min_insync_replicas=1)
    cluster.commit(ControllerResult(records=[FeatureLevelRecord(name="metadata.version", level=6)], response=None))
    old = cluster.start_broker(1)
    cluster.create("t", [1])
    comes_back(cluster, old)
    cluster.heartbeat(1)
    comes_back(cluster, old, incarnation=51)
    cluster.heartbeat(1)
    assert state(cluster) == (1, ids(1), (), ())
    assert cluster.image.cluster.brokers[BrokerId(1)].served == ()


def test_what_was_served_is_in_the_snapshot() -> None:
    cluster, _, second = served_once(1)
    delta = MetadataDelta(MetadataImage.EMPTY)
    for record in cluster.image.to_records():
        delta.replay(record)
    again = delta.apply(Offset(1), Epoch(1), 0)
    assert again.cluster.brokers[BrokerId(1)].served == cluster.image.cluster.brokers[BrokerId(1)].served
    assert dict(again.cluster.brokers[BrokerId(1)].served) == {uuid(5001): second}
