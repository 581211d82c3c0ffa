"""Registration, fencing, controlled shutdown, and elections when brokers come and go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from barnabas_quorum.controller import controller
from barnabas_quorum.controller.requests import BrokerHeartbeat, CreatableTopic, CreateTopics
from barnabas_quorum.controller.result import ControllerResult
from barnabas_quorum.image.features import (
    HOST_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_REPLICA_FAULTS,
    SUPPORTED_FEATURES,
)
from barnabas_quorum.image.hosts import count_sharing_host
from barnabas_quorum.records import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    FeatureRange,
    LeaderRecoveryState,
    PartitionChangeRecord,
    RegisterBrokerRecord,
)
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Endpoint, Epoch, Offset
from tests.support.decided_cluster import DecidedCluster, registration, uuid


def refusal(cluster: DecidedCluster, request: Any) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        cluster.controller.decide(request, now_ms=cluster.now_ms)
    assert caught.value.message, "a refusal says why"
    return caught.value


# --- registration -------------------------------------------------------------------------------------------------------


def test_the_broker_epoch_is_the_offset_of_its_registration() -> None:
    cluster = DecidedCluster()
    epoch = cluster.do(registration(1)).broker_epoch
    record = cluster.log[epoch]
    assert isinstance(record, RegisterBrokerRecord)
    assert record.broker_epoch == epoch and record.is_fenced


def test_a_new_incarnation_gets_a_higher_epoch_and_is_fenced() -> None:
    cluster = DecidedCluster().start_brokers(1)
    first = cluster.image.cluster.brokers[BrokerId(1)].epoch
    second = cluster.do(registration(1, incarnation=77)).broker_epoch
    broker = cluster.image.cluster.brokers[BrokerId(1)]
    assert second > first and broker.epoch == second
    assert broker.is_fenced and broker.incarnation_id == uuid(77)


def test_a_host_is_kept_from_the_level_on_that_every_node_reads_and_goes_with_the_next_registration() -> None:
    cluster = DecidedCluster()
    cluster.do(registration(1, host="h1"))
    assert cluster.image.cluster.brokers[BrokerId(1)].host == "h1"
    cluster.do(registration(1, host="h2"))
    assert cluster.image.cluster.brokers[BrokerId(1)].host == "h2", "the same process, after its properties changed"
    before = cluster.image.to_records()
    assert any(isinstance(record, RegisterBrokerRecord) and record.host == "h2" for record in before)
    cluster.commit(ControllerResult(records=[FeatureLevelRecord(name=HOST_VERSION, level=0)], response=None))
    cluster.do(registration(1, incarnation=78, host="h1"))
    assert cluster.image.cluster.brokers[BrokerId(1)].host is None


def test_replicas_of_a_topic_are_on_as_many_hosts_as_there_are() -> None:
    cluster = DecidedCluster()
    for broker in range(1, 7):
        cluster.do(registration(broker, host=f"h{broker % 3}"))
        cluster.heartbeat(broker)
    cluster.do(CreateTopics(topics=(CreatableTopic(name="t", partition_count=24, replication_factor=3),)))
    assert count_sharing_host(cluster.image) == 0
    for partition in cluster.image.topics.get("t").partitions.values():  # type: ignore[union-attr]
        assert len({replica % 3 for replica in partition.replicas}) == 3


def test_the_same_incarnation_keeps_its_epoch_and_its_fencing() -> None:
    cluster = DecidedCluster().start_brokers(1)
    before = cluster.image.cluster.brokers[BrokerId(1)]
    records = len(cluster.log)
    assert cluster.do(registration(1)).broker_epoch == before.epoch
    assert len(cluster.log) == records, "a repeated registration writes nothing"
    endpoints = (Endpoint("PLAINTEXT", "other", 1),)
    assert cluster.do(registration(1, endpoints=endpoints)).broker_epoch == before.epoch
    assert cluster.image.cluster.brokers[BrokerId(1)] == replace(before, endpoints=endpoints)


def test_a_second_process_is_refused_while_the_first_is_connected() -> None:
    cluster = DecidedCluster().start_brokers(1)
    cluster.controller.sessions.connect(BrokerId(1), cluster.image.cluster.brokers[BrokerId(1)].epoch, now_ms=0)
    error = refusal(cluster, registration(1, incarnation=77))
    assert error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.now_ms = 9000
    assert cluster.do(registration(1, incarnation=77)).broker_epoch > 0, "a silent one does not block"


@pytest.mark.parametrize("state", ["connection broke", "fenced", "shutting down", "never seen by this controller"])
def test_a_quick_restart_is_let_in_at_once(state: str) -> None:
    cluster = DecidedCluster().start_brokers(1, 2)
    cluster.create("t", [1, 2])
    epoch = cluster.image.cluster.brokers[BrokerId(1)].epoch
    cluster.controller.sessions.connect(BrokerId(1), epoch, now_ms=0)
    if state == "connection broke":
        cluster.controller.sessions.disconnect(BrokerId(1), epoch, now_ms=0)
    elif state == "fenced":
        cluster.fence(1)
    elif state == "shutting down":
        cluster.heartbeat(1, want_shutdown=True)
    else:
        cluster.controller.release()
        cluster.controller.claim(epoch=Epoch(2), next_offset=Offset(len(cluster.log)), now_ms=0)
    assert cluster.do(registration(1, incarnation=77)).broker_epoch > epoch


@pytest.mark.parametrize("previous", [-1, "stored"], ids=["unclean", "clean"])
def test_a_new_incarnation_leaves_every_isr(previous: int | str) -> None:
    cluster = DecidedCluster().start_brokers(1, 2)
    cluster.create("t", [1, 2], [2, 1])
    cluster.create("alone", [1])
    epoch = cluster.image.cluster.brokers[BrokerId(1)].epoch
    cluster.do(registration(1, incarnation=77, previous_broker_epoch=epoch if previous == "stored" else -1))
    found = [cluster.partition("t", 0), cluster.partition("t", 1), cluster.partition("alone")]
    assert [(partition.isr, partition.leader) for partition in found] == [((2,), 2), ((2,), 2), ((), -1)]
    assert found[2].elr == (1,), "what counted was on its disk"
    records = cluster.log[-4:-1]
    assert all(isinstance(record, PartitionChangeRecord) for record in records), "partitions come first"
    assert isinstance(cluster.log[-1], RegisterBrokerRecord)
    assert cluster.log[-1].broker_epoch == len(cluster.log) - 1, "the epoch counts them"


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"broker_id": -1}, ErrorCode.INVALID_REGISTRATION),
        ({"endpoints": ()}, ErrorCode.INVALID_REGISTRATION),
        ({"endpoints": (Endpoint("A", "h", 1), Endpoint("A", "h", 2))}, ErrorCode.INVALID_REGISTRATION),
        ({"endpoints": (Endpoint("A", "kafka..example", 1),)}, ErrorCode.INVALID_REGISTRATION),
        ({"endpoints": (Endpoint("A", "a\0b", 1),)}, ErrorCode.INVALID_REGISTRATION),
        ({"endpoints": (Endpoint("A", "-oProxyCommand=touch", 1),)}, ErrorCode.INVALID_REGISTRATION),
        ({"endpoints": (Endpoint("A", "h$(touch)", 1),)}, ErrorCode.INVALID_REGISTRATION),
        ({"endpoints": (Endpoint("A", "h", 1 << 16),)}, ErrorCode.INVALID_REGISTRATION),
        ({"endpoints": (Endpoint("A", "h", -1),)}, ErrorCode.INVALID_REGISTRATION),
        ({"directories": ()}, ErrorCode.INVALID_REGISTRATION),
        ({"directories": (uuid(500), uuid(500))}, ErrorCode.INVALID_REGISTRATION),
        ({"directories": (uuid(1),)}, ErrorCode.INVALID_REGISTRATION),
        ({"directories": (uuid(5002),)}, ErrorCode.INVALID_REGISTRATION),
        ({"features": ()}, ErrorCode.UNSUPPORTED_VERSION),
        ({"features": (FeatureRange(METADATA_VERSION, 2, 3),)}, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_a_registration_that_cannot_be_is_refused_with_its_code(what: dict[str, Any], code: ErrorCode) -> None:
    cluster = DecidedCluster().start_brokers(2)
    assert (
        refusal(cluster, registration(1, **what) if "broker_id" not in what else replace(registration(1), **what)).code
        is code
    )


# --- heartbeats ---------------------------------------------------------------------------------------------------------


def test_a_broker_is_unfenced_only_when_it_has_read_its_own_registration() -> None:
    cluster = DecidedCluster()
    epoch = cluster.do(registration(1)).broker_epoch
    behind = cluster.heartbeat(1, offset=epoch - 1)
    assert (behind.is_caught_up, behind.is_fenced) == (False, True)
    unwilling = cluster.heartbeat(1, offset=epoch, want_fence=True)
    assert (unwilling.is_caught_up, unwilling.is_fenced) == (True, True)
    assert not cluster.heartbeat(1, offset=epoch).is_fenced
    assert cluster.image.cluster.is_active(BrokerId(1))


def test_a_heartbeat_of_a_former_registration_is_stale() -> None:
    cluster = DecidedCluster().start_brokers(1)
    old = cluster.image.cluster.brokers[BrokerId(1)].epoch
    cluster.do(registration(1, incarnation=77))
    for broker_id, code in ((1, ErrorCode.STALE_BROKER_EPOCH), (2, ErrorCode.BROKER_ID_NOT_REGISTERED)):
        heartbeat = BrokerHeartbeat(
            broker_id=BrokerId(broker_id),
            broker_epoch=old,
            metadata_offset=Offset(99),
            want_fence=False,
            want_shutdown=False,
        )
        assert refusal(cluster, heartbeat).code is code


def test_a_broker_may_ask_to_be_fenced() -> None:
    cluster = DecidedCluster().start_brokers(1, 2)
    cluster.create("t", [1, 2])
    assert cluster.heartbeat(1, want_fence=True).is_fenced
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (2, (2,))


def test_a_heartbeat_that_changes_nothing_writes_nothing() -> None:
    cluster = DecidedCluster().start_brokers(1)
    records = len(cluster.log)
    for _ in range(3):
        cluster.heartbeat(1)
    assert len(cluster.log) == records


# --- fencing ------------------------------------------------------------------------------------------------------------


def test_a_dead_brokers_partitions_get_new_leaders_before_it_is_fenced() -> None:
    cluster = DecidedCluster().start_brokers(1, 2, 3)
    cluster.create("t", [1, 2, 3], [2, 3, 1], [3, 1, 2])
    start = len(cluster.log)
    cluster.fence(1)
    written = cluster.log[start:]
    assert [type(record) for record in written] == [PartitionChangeRecord] * 3 + [BrokerRegistrationChangeRecord]
    assert [cluster.partition("t", i).leader for i in range(3)] == [2, 2, 3]
    assert all(1 not in cluster.partition("t", i).isr for i in range(3))
    assert [cluster.partition("t", i).leader_epoch for i in range(3)] == [1, 0, 0], "only a new leader is a new epoch"


def test_the_last_in_sync_replica_stays_eligible_and_leads_when_it_is_back() -> None:
    cluster = DecidedCluster().start_brokers(1, 2)
    cluster.create("t", [1, 2])
    cluster.fence(2)
    cluster.fence(1)
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (-1, ())
    assert cluster.partition("t").elr == (1,)
    cluster.heartbeat(2)
    assert cluster.partition("t").leader == -1, "2 was out of sync: it may not lead"
    start = len(cluster.log)
    cluster.heartbeat(1)
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (1, (1,))
    assert [type(record) for record in cluster.log[start:]] == [
        BrokerRegistrationChangeRecord,
        PartitionChangeRecord,
    ], "unfencing writes the registration first"


@pytest.mark.parametrize("where", ["topic", "cluster"])
def test_unclean_election_follows_the_topics_config(where: str) -> None:
    cluster = DecidedCluster(unclean_leader_election_enable=where == "cluster").start_brokers(1, 2)
    configs = {"unclean.leader.election.enable": "true"} if where == "topic" else {}
    cluster.create("t", [1, 2], configs=configs)
    cluster.create("strict", [1, 2], configs={"unclean.leader.election.enable": "false"})
    cluster.fence(2)
    cluster.heartbeat(2)
    cluster.fence(1)
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (2, (2,))
    assert cluster.partition("t").leader_recovery_state is LeaderRecoveryState.RECOVERING
    assert (cluster.partition("strict").leader, cluster.partition("strict").elr) == (-1, (1,))


@pytest.mark.parametrize(
    ("places", "elected"),
    [
        ({1: ("r1", "h1"), 2: ("r1", "h1"), 3: ("r1", "h2"), 4: ("r2", "h3")}, 4),
        ({1: ("r1", "h1"), 2: ("r1", "h1"), 3: ("r1", "h2"), 4: ("r1", "h1")}, 3),
        ({1: (None, "h1"), 2: (None, "h1"), 3: (None, None), 4: (None, "h2")}, 3),
        ({1: (None, "h1"), 2: (None, "h1"), 3: (None, "h1"), 4: (None, "h1")}, 2),
        ({1: (None, None), 2: (None, None), 3: (None, "h1"), 4: (None, "h1")}, 2),
    ],
)
def test_an_unclean_leader_is_rather_in_another_rack_and_on_another_host_than_the_lost_one(
    places: dict[int, tuple[str | None, str | None]], elected: int
) -> None:
    cluster = DecidedCluster()
    for broker_id, (rack, host) in places.items():
        cluster.start_broker(broker_id, rack=rack, host=host)
    cluster.create("t", [1, 2, 3, 4], configs={"unclean.leader.election.enable": "true"})
    for broker_id in (2, 3, 4):
        cluster.fence(broker_id)
    for broker_id in (2, 3, 4):
        cluster.heartbeat(broker_id)
    assert cluster.partition("t").isr == (1,)
    cluster.fence(1)
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (elected, (elected,))


def test_the_broker_dead_for_longest_is_fenced_first_and_then_no_more() -> None:
    cluster = DecidedCluster().start_brokers(1, 2, 3)
    for broker_id, now_ms in ((2, 1000), (1, 2000), (3, 30_000)):
        cluster.now_ms = now_ms
        cluster.heartbeat(broker_id)
    assert cluster.controller.next_deadline_ms() == 4000
    assert cluster.controller.stale_brokers(now_ms=3_999) == []
    assert cluster.controller.stale_brokers(now_ms=30_000) == [2, 1]
    cluster.fence(2)
    assert cluster.controller.stale_brokers(now_ms=30_000) == [1]
    cluster.fence(1)
    assert cluster.controller.stale_brokers(now_ms=30_000) == []
    assert cluster.controller.fence([BrokerId(1)]).records == []


def test_no_more_dead_brokers_are_fenced_at_once_than_have_so_many_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "RECORDS_PER_REQUEST_MAX", 5)
    cluster = DecidedCluster().start_brokers(1, 2, 3, 4)
    cluster.create("t", *[[1, 2, 4]] * 3)
    cluster.create("s", [3, 4], [4, 3])
    assert cluster.controller.stale_brokers(now_ms=30_000) == [1], "two have six replicas"
    cluster.fence(1)
    assert cluster.controller.stale_brokers(now_ms=30_000) == [2, 3], "and they have five"
    cluster.fence(2)
    cluster.fence(3)
    cluster.create("u", [4], [4])
    assert cluster.controller.stale_brokers(now_ms=30_000) == [4], "one is fenced whatever it holds"


def test_a_lost_host_is_fenced_in_one_go_and_hands_nothing_to_itself() -> None:
    cluster = DecidedCluster(min_insync_replicas=2)
    for broker_id in (11, 12, 21):
        cluster.start_broker(broker_id, host=f"h{broker_id // 10}")
    cluster.create("t", [11, 12, 21], [12, 21, 11], [21, 11, 12])
    cluster.create("lone", [11, 12])
    before = len(cluster.log)
    cluster.commit(cluster.controller.fence([BrokerId(12), BrokerId(11)]))
    changes = [record for record in cluster.log[before:] if isinstance(record, PartitionChangeRecord)]
    assert [(change.partition_id, change.leader, change.isr) for change in changes] == [
        (0, -1, ()),
        (0, 21, (21,)),
        (1, 21, (21,)),
        (2, None, (21,)),
    ]
    assert [type(record) for record in cluster.log[before + 4 :]] == [BrokerRegistrationChangeRecord] * 2
    assert cluster.partition("t", 0).elr == (11, 12), "they had every record that was committed"
    cluster.start_broker(12, host="h1", previous_broker_epoch=cluster.image.cluster.brokers[BrokerId(12)].epoch)
    assert cluster.partition("lone").leader == 12


# --- controlled shutdown ------------------------------------------------------------------------------------------------


def test_a_leaving_broker_hands_over_first_and_goes_when_all_others_know() -> None:
    cluster = DecidedCluster().start_brokers(1, 2, 3)
    cluster.create("t", [1, 2, 3])
    for broker_id in (2, 3):
        cluster.heartbeat(broker_id)
    known = cluster.image.offset
    reply = cluster.heartbeat(1, want_shutdown=True)
    assert (reply.should_shutdown, reply.is_fenced) == (False, False)
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (2, (2, 3))
    assert not cluster.image.cluster.is_active(BrokerId(1)), "it may not lead or join an ISR any more"
    cluster.heartbeat(2)
    cluster.heartbeat(3, offset=known)
    assert not cluster.heartbeat(1, want_shutdown=True).should_shutdown, "3 has not read of the new leader"
    cluster.heartbeat(3)
    reply = cluster.heartbeat(1, want_shutdown=True)
    assert (reply.should_shutdown, reply.is_fenced) == (True, True)
    assert cluster.image.cluster.brokers[BrokerId(1)].is_fenced


def test_a_broker_that_leads_nothing_goes_at_once() -> None:
    cluster = DecidedCluster().start_brokers(1, 2)
    cluster.create("t", [2, 1])
    assert cluster.heartbeat(1, want_shutdown=True).should_shutdown
    assert cluster.partition("t").isr == (2,)
    assert cluster.heartbeat(1, want_shutdown=True).should_shutdown, "and may ask again"


def test_a_broker_that_left_is_not_unfenced_until_it_registers_again() -> None:
    cluster = DecidedCluster().start_brokers(1, 2)
    cluster.create("t", [1, 2])
    cluster.heartbeat(1, want_shutdown=True)
    cluster.heartbeat(2)
    cluster.heartbeat(1, want_shutdown=True)
    assert cluster.heartbeat(1).is_fenced
    cluster.start_broker(1, incarnation=77)
    assert cluster.image.cluster.is_active(BrokerId(1))


def test_the_last_broker_can_leave_too() -> None:
    cluster = DecidedCluster().start_brokers(1)
    cluster.create("t", [1])
    assert not cluster.heartbeat(1, want_shutdown=True).should_shutdown
    assert (cluster.partition("t").leader, cluster.partition("t").elr) == (-1, (1,))
    assert cluster.heartbeat(1, want_shutdown=True).should_shutdown


def test_a_broker_of_the_former_version_keeps_the_session_that_its_slow_heartbeats_need() -> None:
    """It heartbeats every 2 s: against a session of 3 s one late heartbeat would fence it in the middle of an upgrade."""
    former = tuple(
        feature._replace(max_level=METADATA_VERSION_REPLICA_FAULTS - 1) if feature.name == METADATA_VERSION else feature
        for feature in SUPPORTED_FEATURES
    )
    cluster = DecidedCluster()
    level = FeatureLevelRecord(name=METADATA_VERSION, level=METADATA_VERSION_REPLICA_FAULTS - 1)
    cluster.commit(ControllerResult(records=[level], response=None))
    cluster.start_broker(1, features=former)
    cluster.start_broker(2)
    cluster.now_ms = 1000
    cluster.heartbeat(1)
    cluster.heartbeat(2)
    assert cluster.controller.stale_brokers(now_ms=9_999) == [2]
    cluster.fence(2)
    assert cluster.controller.next_deadline_ms() == 10_000
    assert cluster.controller.stale_brokers(now_ms=9_999) == []
    assert cluster.controller.stale_brokers(now_ms=10_000) == [1]
