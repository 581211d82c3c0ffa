"""A broker in maintenance: it leads nothing that others can lead, stays in sync, and is so across restarts."""

from __future__ import annotations

import pytest

from barnabas_quorum.controller.requests import CreatableTopic, CreateTopics
from barnabas_quorum.controller.requests_partitions import (
    AlterMaintenance,
    AlterMaintenanceReply,
    ElectionType,
    ElectLeaders,
)
from barnabas_quorum.controller.result import ControllerResult
from barnabas_quorum.image.cluster import EMPTY_CLUSTER, ClusterDelta
from barnabas_quorum.image.features import METADATA_VERSION
from barnabas_quorum.records import FeatureLevelRecord
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId
from tests.metadata_quorum.test_controller_partitions import ids, set_isr
from tests.support.decided_cluster import DecidedCluster


def maintain(cluster: DecidedCluster, broker_id: int, *, is_in_maintenance: bool = True) -> AlterMaintenanceReply:
    reply = cluster.do(AlterMaintenance(broker_id=BrokerId(broker_id), is_in_maintenance=is_in_maintenance))
    assert isinstance(reply, AlterMaintenanceReply)
    return reply


def test_what_it_leads_goes_to_others_and_it_stays_in_sync() -> None:
    cluster = DecidedCluster().start_brokers(1, 2, 3)
    cluster.create("t", [1, 2], [3, 1])
    cluster.create("alone", [1])
    assert maintain(cluster, 1) == AlterMaintenanceReply(handed_over=1, kept=1)
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (2, ids(1, 2))
    assert cluster.partition("alone").leader == 1, "nobody else has it"
    assert maintain(cluster, 1) == AlterMaintenanceReply(handed_over=0, kept=1), "asking again is harmless"


def test_no_election_gives_it_a_leadership_while_another_can_lead() -> None:
    cluster = DecidedCluster().start_brokers(1, 2)
    cluster.create("t", [1, 2])
    maintain(cluster, 1)
    reply = cluster.do(ElectLeaders(election_type=ElectionType.PREFERRED, partitions=(("t", 0),)))
    (refused,) = reply.partitions
    assert refused.error is not None and refused.error.code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert "barnabas broker undrain 1" in refused.error.message
    cluster.fence(2)
    assert cluster.partition("t").leader == 1, "better than none"
    maintain(cluster, 1, is_in_maintenance=False)
    cluster.do(ElectLeaders(election_type=ElectionType.PREFERRED, partitions=(("t", 0),)))
    assert cluster.partition("t").leader == 1


def test_it_hands_over_as_soon_as_another_is_in_sync() -> None:
    cluster = DecidedCluster().start_brokers(1, 2)
    cluster.create("t", [1, 2])
    cluster.fence(2)
    assert maintain(cluster, 1) == AlterMaintenanceReply(handed_over=0, kept=1)
    cluster.start_broker(2)
    reported = set_isr(cluster, "t", 1, 2)
    assert reported is not None and reported.code is ErrorCode.NEW_LEADER_ELECTED
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (2, ids(1, 2))


def test_it_lasts_over_a_restart_and_a_snapshot() -> None:
    cluster = DecidedCluster().start_brokers(1, 2)
    maintain(cluster, 1)
    cluster.start_broker(1)
    assert cluster.image.cluster.in_maintenance == {1}
    delta = ClusterDelta(EMPTY_CLUSTER)
    for record in cluster.image.cluster.to_records():
        delta.replay(record)
    assert delta.apply() == cluster.image.cluster
    cluster.do(CreateTopics(topics=(CreatableTopic(name="n", partition_count=6, replication_factor=1),)))
    assert {cluster.partition("n", index).leader for index in range(6)} == {2}, "new partitions are led by others"


def test_a_cluster_with_older_nodes_refuses() -> None:
    cluster = DecidedCluster().start_brokers(1)
    cluster.commit(ControllerResult(records=[FeatureLevelRecord(name=METADATA_VERSION, level=5)], response=None))
    with pytest.raises(KafkaError, match="features upgrade"):
        maintain(cluster, 1)
    with pytest.raises(KafkaError, match="not registered"):
        maintain(cluster, 9)
