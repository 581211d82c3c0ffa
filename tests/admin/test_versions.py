"""Command lines and nodes of this version and the former one speak with each other, and say the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from barnabas_admin.client import ERROR_METADATA_KEY, AdminClient
from barnabas_admin.errors import AdminError, NoAdminListener
from barnabas_broker.security.access import AccessControl
from barnabas_quorum.controller.requests_partitions import OngoingReassignment
from barnabas_quorum.image.acls import AccessControlEntry, AclsImage
from barnabas_quorum.image.authorizer import Authorizer
from barnabas_quorum.records import ConfigResourceType
from barnabas_quorum.records_security import AclOperation, AclPatternType, AclPermission, AclResourceType
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import BrokerId, Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.rpc import admin_pb2 as pb
from barnabas_wire.rpc import admin_pb2_grpc
from barnabas_wire.rpc.admin_verbs import CARRIED_VERBS
from tests.admin.admin_server import AdminServer
from tests.support.images import FakeNode, make_image

REQUESTS: dict[str, Any] = {
    "ListBrokers": pb.ListBrokersRequest(),
    "CreateTopics": pb.CreateTopicsRequest(
        topics=[
            pb.NewTopic(name="new", partitions=-1, replication_factor=-1, configs={"retention.ms": "5"}),
            pb.NewTopic(name="taken", partitions=1, replication_factor=1),
        ],
        validate_only=True,
    ),
    "DeleteTopics": pb.DeleteTopicsRequest(names=["t", "absent"]),
    "AddPartitions": pb.AddPartitionsRequest(name="t", total=4, validate_only=True),
    "DescribeConfigs": pb.DescribeConfigsRequest(type=pb.RESOURCE_TYPE_TOPIC, name="t", only_overrides=True),
    "AlterConfigs": pb.AlterConfigsRequest(
        type=pb.RESOURCE_TYPE_TOPIC,
        name="t",
        changes=[pb.ConfigChange(key="retention.ms", value="5"), pb.ConfigChange(key="segment.ms")],
        validate_only=True,
    ),
    "ElectLeaders": pb.ElectLeadersRequest(
        unclean=True,
        partitions=[pb.TopicPartition(topic=t, partition=p) for t, p in (("t", 9), ("u", 0), ("t", 0))],
    ),
    "AlterReassignments": pb.AlterReassignmentsRequest(
        reassignments=[
            pb.Reassignment(topic="t", partition=0, replicas=[2, 3]),
            pb.Reassignment(topic="u", partition=0),
            pb.Reassignment(topic="t", partition=9),
        ],
        validate_only=True,
    ),
    "ListReassignments": pb.ListReassignmentsRequest(topics=["t"]),
    "UnregisterBroker": pb.UnregisterBrokerRequest(broker_id=7),
}
ANSWERS = {
    "CreateTopics": [
        ("new", "NONE", 1, 3),
        ("taken", "TOPIC_ALREADY_EXISTS", 0, 0),
    ],
    "DeleteTopics": [("t", "NONE"), ("absent", "UNKNOWN_TOPIC_OR_PARTITION")],
    "ElectLeaders": [("t", 9, "ELECTION_NOT_NEEDED"), ("u", 0, "NONE"), ("t", 0, "NONE")],
    "AlterReassignments": [("t", 0, "NONE"), ("u", 0, "NONE"), ("t", 9, "NO_REASSIGNMENT_IN_PROGRESS")],
}


@pytest.fixture(params=["this version", "the former version"])
def server(request: pytest.FixtureRequest) -> Iterator[AdminServer]:
    image = make_image(
        fenced=(3,),
        topics={"t": [((1, 2, 3), (1, 2), 1)], "u": [((1,), (1,), 1)]},
        configs={(ConfigResourceType.TOPIC, "t"): {"retention.ms": "1000"}},
    )
    found = AdminServer(FakeNode(image=image), is_former=request.param == "the former version")
    one, two, three = map(BrokerId, (1, 2, 3))
    for topic in ("t", "u"):
        moving = OngoingReassignment(
            topic=topic, partition_id=0, replicas=(one, two, three), adding=(three,), removing=(one,), isr=(one, two)
        )
        found.controller.ongoing.append(moving)
    yield found
    found.close()


def name_of(item: Any) -> str:
    return item.error.name if item.HasField("error") else "NONE"


def test_every_call_of_the_former_command_line_is_answered(server: AdminServer) -> None:
    """Its requests, as bytes of its own stubs, at a node of this version; a node of the former one stands in for nothing here."""
    assert {*CARRIED_VERBS, "ListBrokers"} == REQUESTS.keys()
    with grpc.insecure_channel(server.address) as channel:
        stub = admin_pb2_grpc.AdminStub(channel)
        found = {name: getattr(stub, name)(request, timeout=10) for name, request in REQUESTS.items()}
    assert [b.id for b in found["ListBrokers"].brokers] == [1, 2, 3] and found["ListBrokers"].controller_id == 1
    check(server, found)


def test_this_command_line_works_at_nodes_of_both_versions(server: AdminServer) -> None:
    with AdminClient(server.address, timeout_s=10) as client:
        assert [b.id for b in client.list_brokers().brokers] == [1, 2, 3]
        found = {
            name: client._carry(verb, REQUESTS[name])  # what each method of the client does
            for name, verb in CARRIED_VERBS.items()
        }
    check(server, found)
    carried = sum(
        server.edge.stats.requests[name, "NONE"] for name in ("CreatePartitions", "AlterPartitionReassignments")
    )
    assert carried == (0 if server.is_former else 2)


def check(server: AdminServer, found: dict[str, Any]) -> None:
    for call, expected in ANSWERS.items():
        fields = ("name", "partitions", "replication_factor") if call == "CreateTopics" else ("name",)
        if call in ("ElectLeaders", "AlterReassignments"):
            told: list[Any] = [(each.topic, each.partition, name_of(each)) for each in found[call].partitions]
        else:
            told = [(each.name, name_of(each), *(getattr(each, f) for f in fields[1:])) for each in found[call].topics]
        assert told == expected, call
    assert "--if-not-exists" in found["CreateTopics"].topics[1].error.hint
    assert (found["AddPartitions"].topic.name, found["AddPartitions"].topic.partitions) == ("t", 4)
    assert [(e.key, e.value, e.source) for e in found["DescribeConfigs"].entries] == [("retention.ms", "1000", "topic")]
    (moving,) = found["ListReassignments"].reassignments
    assert (list(moving.adding), list(moving.removing), list(moving.isr)) == ([3], [1], [1, 2])
    assert (list(moving.waiting_for), list(moving.fenced)) == ([3], [3])
    assert server.controller.checked == 4


def test_a_former_console_sees_what_is_set_for_another_broker(server: AdminServer) -> None:
    server.node.image = make_image(configs={(ConfigResourceType.BROKER, "2"): {"log.retention.ms": "7"}})
    with grpc.insecure_channel(server.address) as channel:
        stub = admin_pb2_grpc.AdminStub(channel)
        request = pb.DescribeConfigsRequest(type=pb.RESOURCE_TYPE_BROKER, name="2")
        (entry,) = stub.DescribeConfigs(request, timeout=10).entries
        assert (entry.key, entry.value, entry.source) == ("log.retention.ms", "7", "broker")
        keys = [
            e.key
            for e in stub.DescribeConfigs(pb.DescribeConfigsRequest(type=pb.RESOURCE_TYPE_BROKER), timeout=10).entries
        ]
        assert keys == ["min.insync.replicas", "num.partitions"]
        with pytest.raises(grpc.RpcError) as refused:
            stub.DescribeConfigs(pb.DescribeConfigsRequest(type=pb.RESOURCE_TYPE_BROKER, name="9"), timeout=10)
    trailer = {each.key: each.value for each in refused.value.trailing_metadata()}
    assert pb.ErrorDetail.FromString(trailer[ERROR_METADATA_KEY]).name == "BROKER_ID_NOT_REGISTERED"


def test_what_cannot_be_carried_is_refused_in_words(admin_server: AdminServer) -> None:
    with AdminClient(admin_server.address, timeout_s=10) as client:
        for call, words in (
            (pb.KafkaCall(api_key=ApiKey.PRODUCE, api_version=9), "not answered at an admin listener"),
            (pb.KafkaCall(api_key=999), "not answered at an admin listener"),
            (pb.KafkaCall(api_key=ApiKey.CREATE_TOPICS, api_version=99), "in versions 2 to 7"),
            (pb.KafkaCall(api_key=ApiKey.CREATE_TOPICS, api_version=7, body=b"\xff"), "CreateTopicsRequest"),
            (pb.KafkaCall(api_key=ApiKey.CREATE_TOPICS, api_version=7, validate_only=True), "says itself"),
            (pb.KafkaCall(api_key=ApiKey.ELECT_LEADERS, api_version=2, body=bytes(5 << 20)), "has at most"),
        ):
            with pytest.raises(AdminError, match=words):
                client.call_former("CallKafka", call)
    stats = admin_server.edge.stats.requests
    assert stats["CallKafka", "UNSUPPORTED_VERSION"] == 2 and stats["CreateTopics", "UNSUPPORTED_VERSION"] == 1


def test_a_change_that_a_node_may_have_seen_is_not_made_again(admin_server: AdminServer) -> None:
    """Brokers are asked only what no admin listener has taken."""
    asked: list[Any] = []
    with AdminClient(admin_server.address, timeout_s=10, ask_brokers=asked.append) as client:
        image, admin_server.node.image = admin_server.node.image, None  # type: ignore[assignment]
        with pytest.raises(AdminError) as failed:
            client.delete_topics(["t"])
        assert failed.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        admin_server.node.image = image
        admin_server.close()
        with pytest.raises(AdminError, match="lost the connection"):
            client.delete_topics(["t"])
    assert not asked


def test_brokers_answer_where_no_admin_listener_takes_a_call(admin_server: AdminServer) -> None:
    """What an admin listener would answer to CallKafka stands for the brokers'."""
    admin_server.node.image = make_image(
        fenced=(3,), topics={"t": [((1, 2, 3), (1, 2), 2)], "__internal": [((3,), (3,), -1)]}
    )
    other = AdminClient(admin_server.address, timeout_s=10)
    absent = NoAdminListener("none is known")
    with (
        other,
        AdminClient("", timeout_s=10, absent=absent, ask_brokers=lambda m: other._carry_one(m, False)) as client,
    ):
        (topic,) = client.list_topics()
        assert (topic.name, topic.under_replicated, topic.leaderless) == ("t", 1, 0)
        found, internal, unknown = client.describe_topics(["t", "__internal", "nope"])
        assert list(found.partitions[0].flags) == ["under-replicated", "at-min-isr", "not-preferred"]
        assert list(found.partitions[0].offline_replicas) == [3]
        assert internal.internal and list(internal.partitions[0].flags) == ["leaderless"]
        assert unknown.error.message == "topic 'nope' does not exist"
        by_view = {each.name: each for each in other.describe_topics(["t", "__internal"])}
        assert by_view["t"].partitions[0].flags == found.partitions[0].flags
        assert [name_of(each) for each in client.delete_topics(["t", "absent"])] == [
            "NONE",
            "UNKNOWN_TOPIC_OR_PARTITION",
        ]
        with pytest.raises(NoAdminListener, match="none is known"):
            client.describe_health()
        with pytest.raises(NoAdminListener, match="none is known"):
            client.alter_reassignments({("t", 0): [1]}, validate_only=True)  # Kafka's message cannot say so


def test_pages_of_many_partitions_are_put_together(admin_server: AdminServer) -> None:
    many = {f"t{number}": [((1,), (1,), 1)] * 900 for number in range(5)}
    admin_server.node.image = make_image(topics=many)
    pages: list[Any] = []

    with AdminClient(admin_server.address, timeout_s=30) as other:

        def ask(message: Any) -> Any:
            pages.append(message)
            return other._carry_one(message, False)

        with AdminClient("", timeout_s=30, absent=NoAdminListener("none"), ask_brokers=ask) as client:
            assert [(t.name, t.partitions) for t in client.list_topics()] == [(name, 900) for name in sorted(many)]
    assert len(pages) == 3


def test_an_ordinary_user_at_an_admin_listener_sees_by_own_rights(server: AdminServer) -> None:
    """A refusal of the cluster's own view stands where there is nothing that own rights show."""
    server.node.image = make_image(topics={"t": [((1,), (1,), 1)], "other": []})
    acls = AclsImage(entries={})
    server.edge._access = AccessControl(Authorizer(super_users=[]), acls=lambda: acls)
    with AdminClient(server.address, timeout_s=10) as client:
        with pytest.raises(AdminError, match="may not DESCRIBE the cluster"):
            client.list_topics()
        allowed = AccessControlEntry(
            resource_type=AclResourceType.TOPIC,
            resource_name="t",
            pattern_type=AclPatternType.LITERAL,
            principal="User:*",
            host="*",
            operation=AclOperation.READ,
            permission=AclPermission.ALLOW,
        )
        acls = AclsImage(entries={Uuid(bytes(16)): allowed})
        if server.is_former:
            with pytest.raises(AdminError, match="may not DESCRIBE the cluster"):
                client.list_topics()
        else:
            assert [topic.name for topic in client.list_topics()] == ["t"]
            (seen, unseen) = client.describe_topics(["t", "other"])
            assert name_of(seen) == "NONE" and name_of(unseen) == "TOPIC_AUTHORIZATION_FAILED"
