"""Laws of the admin client and the service behind it, over real gRPC."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas_admin.client import AdminClient
from barnabas_admin.errors import AdminError
from barnabas_admin.local_ports import find_base_port
from barnabas_quorum.controller.requests import ConfigOperation
from barnabas_quorum.records import ConfigResourceType
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId
from barnabas_wire.rpc import admin_pb2
from tests.admin.admin_server import AdminServer
from tests.support.images import FakeNode, make_image, make_quorum, make_voters

TOPIC = admin_pb2.RESOURCE_TYPE_TOPIC
BROKER = admin_pb2.RESOURCE_TYPE_BROKER


@pytest.fixture
def client(admin_server: AdminServer) -> Iterator[AdminClient]:
    with AdminClient(admin_server.address, timeout_s=10) as found:
        yield found


def test_a_well_cluster_is_healthy(admin_server: AdminServer, client: AdminClient) -> None:
    admin_server.node.image = make_image(topics={"t": [((1, 2, 3), (1, 2, 3), 1)]})
    health = client.describe_health()
    assert health.is_healthy
    assert list(health.reasons) == []
    assert (health.controller_id, list(health.voters), list(health.brokers)) == (1, [1, 2, 3], [1, 2, 3])


def test_every_illness_is_a_reason(admin_server: AdminServer, client: AdminClient) -> None:
    admin_server.node.image = make_image(fenced=(3,), topics={"t": [((1, 2, 3), (1,), 1), ((3,), (3,), -1)]})
    admin_server.node.quorum = make_quorum(silent=(2,))
    health = client.describe_health()
    assert not health.is_healthy
    assert list(health.reasons) == ["voter_down", "broker_down", "leaderless", "under_min_isr", "under_replicated"]
    assert (list(health.voters_down), list(health.brokers_fenced)) == ([2], [3])
    admin_server.node.image = make_image(brokers=())
    admin_server.node.quorum = make_quorum(leader=-1)
    assert list(client.describe_health().reasons) == ["no_controller", "no_broker"]
    admin_server.node.recovered_beside = ("1:x",)
    assert list(client.describe_health().reasons) == ["recovered_twice", "no_controller", "no_broker"]


def test_cluster_counts_and_marks(admin_server: AdminServer, client: AdminClient) -> None:
    admin_server.node.image = make_image(topics={"t": [((1, 2, 3), (1, 2, 3), 1)]}, fenced=(2,))
    found = client.describe_cluster()
    assert [(b.id, b.fenced, b.rack, b.leader_count, b.replica_count) for b in found.brokers] == [
        (1, False, "rack-1", 1, 1),
        (2, True, "rack-2", 0, 1),
        (3, False, "rack-3", 0, 1),
    ]
    assert found.brokers[0].listeners[0].port == 9092
    assert (found.topic_count, found.partition_count, found.metadata_offset) == (1, 1, 100)
    assert [c.listeners[0].port for c in found.controllers] == [9112, 9113, 9114]


def test_a_node_that_does_not_lead_tells_what_the_leader_sees() -> None:
    leader = AdminServer(FakeNode(quorum=make_quorum(ends=(101, 101, 80))))
    voters = make_voters(port=leader.port)
    blind = make_quorum(ends=(-1, 101, -1))
    follower = AdminServer(FakeNode(node_id=BrokerId(2), quorum=blind, voters=voters))
    try:
        with AdminClient(follower.address, timeout_s=10) as client:
            found = client.describe_quorum()
            assert [(r.id, r.role, r.lag_records) for r in found.replicas] == [
                (1, "leader", 0),
                (2, "voter", 0),
                (3, "voter", 21),
            ]
            leader.close()
            # The leader is gone: what this node knows by itself, and no guess at the rest.
            assert [r.lag_records for r in client.describe_quorum().replicas] == [-1, -1, -1]
    finally:
        leader.close()
        follower.close()


def test_topics_get_the_clusters_defaults(admin_server: AdminServer, client: AdminClient) -> None:
    (outcome,) = client.create_topics(["t"], configs={"retention.ms": "1"})
    assert (outcome.partitions, outcome.replication_factor) == (1, 3)
    client.create_topics(["u"], partitions=6, replication_factor=2, validate_only=True)
    asked = [(t.name, t.partition_count, t.replication_factor, dict(t.configs)) for t in admin_server.controller.asked]
    assert asked == [("t", 1, 3, {"retention.ms": "1"}), ("u", 6, 2, {})]
    assert admin_server.controller.validate_only


def test_each_topic_has_its_own_outcome(client: AdminClient) -> None:
    fine, taken = client.create_topics(["fine", "taken"])
    assert not fine.HasField("error")
    assert (taken.error.name, taken.error.retriable) == ("TOPIC_ALREADY_EXISTS", False)
    assert "--if-not-exists" in taken.error.hint
    gone, absent = client.delete_topics(["gone", "absent"])
    assert not gone.HasField("error")
    assert absent.error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_describe_gives_flags_overrides_and_an_error_for_the_unknown(
    admin_server: AdminServer, client: AdminClient
) -> None:
    admin_server.node.image = make_image(
        fenced=(3,),
        topics={"t": [((1, 2, 3), (1, 2), 1)]},
        configs={(ConfigResourceType.TOPIC, "t"): {"retention.ms": "1000"}},
    )
    found, unknown = client.describe_topics(["t", "nope"])
    (partition,) = found.partitions
    assert (list(partition.isr), list(partition.offline_replicas)) == ([1, 2], [3])
    assert list(partition.flags) == ["under-replicated", "at-min-isr"]
    assert dict(found.overrides) == {"retention.ms": "1000"}
    assert unknown.error.name == "UNKNOWN_TOPIC_OR_PARTITION"


def test_internal_topics_are_listed_when_asked_for(admin_server: AdminServer, client: AdminClient) -> None:
    admin_server.node.image = make_image(topics={"b": [], "a": [], "__consumer_offsets": []})
    assert [topic.name for topic in client.list_topics()] == ["a", "b"]
    assert [topic.name for topic in client.list_topics(include_internal=True)] == ["__consumer_offsets", "a", "b"]


def test_a_config_tells_where_its_value_comes_from(admin_server: AdminServer, client: AdminClient) -> None:
    admin_server.node.image = make_image(
        topics={"t": []},
        configs={
            (ConfigResourceType.TOPIC, "t"): {"retention.ms": "1000"},
            (ConfigResourceType.BROKER, ""): {"log.cleanup.policy": "compact"},
        },
    )
    entries = {e.key: (e.value, e.source) for e in client.describe_configs(TOPIC, "t")}
    assert entries["cleanup.policy"] == ("compact", "cluster")
    assert entries["min.insync.replicas"] == ("2", "static")
    assert entries["retention.ms"] == ("1000", "topic")
    assert entries["segment.index.bytes"][1] == "default"
    (override,) = client.describe_configs(TOPIC, "t", only_overrides=True)
    assert override.key == "retention.ms" and "older than" in override.doc
    of_broker = [e.key for e in client.describe_configs(BROKER, "1")]
    assert of_broker == ["log.cleanup.policy", "min.insync.replicas", "num.partitions"]
    assert [e.key for e in client.describe_configs(BROKER, "", only_overrides=True)] == ["log.cleanup.policy"]
    with pytest.raises(AdminError, match="ask broker 9") as refused:
        client.describe_configs(BROKER, "9")
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_a_config_change_sets_and_removes(admin_server: AdminServer, client: AdminClient) -> None:
    client.alter_configs(TOPIC, "t", {"retention.ms": "5", "segment.ms": None})
    with pytest.raises(AdminError, match="no config change"):
        client.alter_configs(TOPIC, "t", {})
    (asked,) = admin_server.controller.asked
    assert [(c.key, c.operation, c.value) for c in asked.changes] == [
        ("retention.ms", ConfigOperation.SET, "5"),
        ("segment.ms", ConfigOperation.DELETE, None),
    ]


def test_an_error_carries_code_message_hint_and_whether_to_retry(
    admin_server: AdminServer, client: AdminClient
) -> None:
    with pytest.raises(AdminError, match="more partitions already") as refused:
        client.add_partitions("t", total=1)
    assert (refused.value.code, refused.value.is_retriable) == (ErrorCode.INVALID_PARTITIONS, False)
    admin_server.controller.refuse = KafkaError.of(ErrorCode.NOT_CONTROLLER, "no controller")
    with pytest.raises(AdminError) as refused:
        client.create_topics(["t"])
    assert refused.value.is_retriable
    assert "quorum status" in refused.value.hint
    assert admin_server.edge.stats.requests["CreateTopics", "NOT_CONTROLLER"] == 1


def test_a_bug_in_a_handler_ends_its_call_and_nothing_else(admin_server: AdminServer, client: AdminClient) -> None:
    image, admin_server.node.image = admin_server.node.image, None  # type: ignore[assignment]
    with pytest.raises(AdminError) as failed:
        client.list_topics()
    assert failed.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    admin_server.node.image = image
    assert client.list_topics() == []


def test_the_client_passes_over_dead_addresses(admin_server: AdminServer) -> None:
    dead = f"127.0.0.1:{find_base_port()}"
    with AdminClient(f"{dead},{admin_server.address}", timeout_s=10) as client:
        assert client.describe_health().is_healthy
    with AdminClient(dead, timeout_s=10) as client, pytest.raises(AdminError, match="no node answers") as failed:
        client.describe_health()
    assert "barnabas dev" in failed.value.hint
