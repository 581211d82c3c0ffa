"""The controller's gRPC service on loopback, spoken to with the bare stub."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
import pytest

from barnabas_quorum.controller.request import Request
from barnabas_quorum.controller.requests import (
    AllocateProducerIds,
    AllocateProducerIdsReply,
    AlteredConfig,
    AlterPartition,
    AlterPartitionReply,
    ConfigAlteration,
    ConfigChange,
    ConfigOperation,
    CreatableTopic,
    CreatedTopic,
    CreatePartitions,
    CreatePartitionsReply,
    CreateTopics,
    CreateTopicsReply,
    DeletedTopic,
    DeleteTopics,
    DeleteTopicsReply,
    GrownTopic,
    IncrementalAlterConfigs,
    IncrementalAlterConfigsReply,
    IsrMemberEpoch,
    NotActiveController,
    PartitionAlteration,
    PartitionAlterationReply,
    RegisterBrokerReply,
    TopicGrowth,
    TopicReference,
)
from barnabas_quorum.controller.requests_cluster import (
    FeatureUpdate,
    FeatureUpdateResult,
    FeatureUpgrade,
    RegisterController,
    RegisterControllerReply,
    UnregisterController,
    UnregisterControllerReply,
    UpdateFeatures,
    UpdateFeaturesReply,
)
from barnabas_quorum.controller.requests_integrity import (
    SignOffRecord,
    SignOffRecordReply,
    WriteImageHash,
    WriteImageHashReply,
)
from barnabas_quorum.controller.requests_partitions import (
    AlterMaintenance,
    AlterMaintenanceReply,
    AlterPartitionReassignments,
    AlterPartitionReassignmentsReply,
    AlterReplicaFaults,
    AlterReplicaFaultsReply,
    AssignReplicasToDirectories,
    AssignReplicasToDirectoriesReply,
    ElectedPartition,
    ElectionType,
    ElectLeaders,
    ElectLeadersReply,
    ListPartitionReassignments,
    ListPartitionReassignmentsReply,
    OngoingReassignment,
    PartitionReassignment,
    PlacedReplica,
    ReassignedPartition,
    ReplicaFaultReport,
    ReplicaPlacement,
    UnregisterBroker,
    UnregisterBrokerReply,
)
from barnabas_quorum.controller.requests_security import (
    AlterClientQuotas,
    AlterClientQuotasReply,
    AlteredUser,
    AlterUserScramCredentials,
    AlterUserScramCredentialsReply,
    CreateAcls,
    CreateAclsReply,
    CreateDelegationToken,
    CreateDelegationTokenReply,
    DelegationTokenExpiry,
    DeleteAcls,
    DeleteAclsReply,
    DeletedAcls,
    ExpireDelegationToken,
    QuotaAlteration,
    RenewDelegationToken,
    ScramDeletion,
    ScramUpsertion,
)
from barnabas_quorum.driver.controller_driver import ControllerDriver
from barnabas_quorum.driver.controller_service import ControllerService
from barnabas_quorum.driver.faults import error_of, fault_of
from barnabas_quorum.driver.verbs import (
    VERB_BY_REQUEST,
    VERBS,
    read_answer,
    read_call,
    write_answer,
    write_call,
)
from barnabas_quorum.image.acls import AccessControlEntry, AclFilter
from barnabas_quorum.records import ConfigResourceType, FeatureRange, LeaderRecoveryState, ReplicaFault
from barnabas_quorum.records_security import (
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    DelegationTokenRecord,
    QuotaEntityPart,
)
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Endpoint, Epoch, Offset
from barnabas_wire.rpc import controller_pb2 as pb
from barnabas_wire.rpc.controller_pb2_grpc import ControllerStub
from barnabas_wire.rpc.options import CHANNEL_OPTIONS, SERVER_OPTIONS
from tests.support.decided_cluster import HeldQuorum, make_driver, registration, uuid

ERROR = KafkaError.of(ErrorCode.INVALID_CONFIG, "why")
ACL = AccessControlEntry(
    resource_type=AclResourceType.TOPIC,
    resource_name="t",
    pattern_type=AclPatternType.PREFIXED,
    principal="User:a",
    host="*",
    operation=AclOperation.READ,
    permission=AclPermission.DENY,
)
TOKEN = DelegationTokenRecord(
    token_id="id",
    owner="User:a",
    requester="User:b",
    renewers=("User:c",),
    issue_timestamp_ms=1,
    max_timestamp_ms=3,
    expiration_timestamp_ms=2,
)

REQUESTS: list[Request[Any]] = [
    registration(7, rack="r", previous_broker_epoch=12),
    registration(7, rack=None),
    AlterPartition(
        broker_id=BrokerId(1),
        broker_epoch=5,
        partitions=(
            PartitionAlteration(
                topic_id=uuid(3),
                partition_id=2,
                leader_epoch=Epoch(4),
                partition_epoch=9,
                new_isr=(IsrMemberEpoch(broker_id=BrokerId(1), broker_epoch=8), IsrMemberEpoch(broker_id=BrokerId(2))),
                leader_recovery_state=LeaderRecoveryState.RECOVERING,
            ),
        ),
    ),
    CreateTopics(
        topics=(
            CreatableTopic(name="t", partition_count=3, replication_factor=2, configs={"a": "1", "b": ""}),
            CreatableTopic(name="u", assignments={1: (BrokerId(2), BrokerId(1)), 0: (BrokerId(1), BrokerId(2))}),
        ),
        validate_only=True,
    ),
    DeleteTopics(topics=(TopicReference(name=""), TopicReference(topic_id=uuid(4)))),
    CreatePartitions(
        topics=(TopicGrowth(name="t", partition_count=4, assignments=((BrokerId(1), BrokerId(2)), (BrokerId(3),))),),
        validate_only=True,
    ),
    IncrementalAlterConfigs(
        resources=(
            ConfigAlteration(
                resource_type=ConfigResourceType.BROKER,
                resource_name="",
                changes=(
                    ConfigChange(key="k", operation=ConfigOperation.APPEND, value=""),
                    ConfigChange(key="l", operation=ConfigOperation.DELETE),
                ),
            ),
        ),
    ),
    AllocateProducerIds(broker_id=BrokerId(3), broker_epoch=-1),
    ElectLeaders(election_type=ElectionType.UNCLEAN, partitions=None),
    ElectLeaders(election_type=ElectionType.PREFERRED, partitions=()),
    ElectLeaders(election_type=ElectionType.PREFERRED, partitions=(("t", 3), ("u", 0))),
    AlterPartitionReassignments(
        partitions=(
            PartitionReassignment(topic="t", partition_id=1, replicas=(BrokerId(3), BrokerId(1))),
            PartitionReassignment(topic="t", partition_id=2, replicas=()),
            PartitionReassignment(topic="t", partition_id=3, replicas=None),
        ),
        allow_replication_factor_change=False,
        validate_only=True,
    ),
    ListPartitionReassignments(),
    ListPartitionReassignments(partitions=(("t", 1),)),
    AssignReplicasToDirectories(
        broker_id=BrokerId(2),
        broker_epoch=-1,
        placements=(ReplicaPlacement(topic_id=uuid(3), partition_id=2, directory_id=uuid(900)),),
    ),
    AlterReplicaFaults(
        broker_id=BrokerId(2),
        broker_epoch=7,
        reports=(
            ReplicaFaultReport(topic_id=uuid(3), partition_id=2, fault=ReplicaFault.NO_ROOM),
            ReplicaFaultReport(topic_id=uuid(3), partition_id=3, fault=None),
        ),
    ),
    AlterMaintenance(broker_id=BrokerId(4), is_in_maintenance=True),
    UnregisterBroker(broker_id=BrokerId(4)),
    UpdateFeatures(updates=(FeatureUpdate(name="f", level=2, kind=FeatureUpgrade.SAFE_DOWNGRADE),), validate_only=True),
    RegisterController(
        controller_id=BrokerId(3),
        cluster_id="c",
        incarnation_id=uuid(1),
        endpoints=(Endpoint("CONTROLLER", "h", 1),),
        features=(FeatureRange("f", 1, 2),),
    ),
    UnregisterController(controller_id=BrokerId(3)),
    AlterClientQuotas(
        alterations=(
            QuotaAlteration(
                entity=(QuotaEntityPart("client-id", None), QuotaEntityPart("user", "u")),
                changes=(("producer_byte_rate", 1.5), ("gone", None)),
            ),
        ),
        validate_only=True,
    ),
    CreateAcls(entries=(ACL,)),
    DeleteAcls(filters=(AclFilter(), AclFilter(resource_name="", principal="User:a", host="h"))),
    AlterUserScramCredentials(
        deletions=(ScramDeletion(name="a", mechanism=-1),),
        upsertions=(
            ScramUpsertion(name="b", mechanism=1, iterations=4096, salt=b"s", stored_key=b"k", server_key=b"l"),
        ),
    ),
    CreateDelegationToken(owner="User:a", requester="User:b", renewers=("User:c",), max_lifetime_ms=-1),
    RenewDelegationToken(requester="User:a", hmac=b"h", renew_period_ms=5),
    ExpireDelegationToken(requester="User:a", hmac=b"h", expiry_period_ms=-1),
    WriteImageHash(),
    SignOffRecord(offset=Offset(7), digest=b"d", reason="r"),
]

REPLIES: dict[str, list[Any]] = {
    "UpdateFeatures": [
        UpdateFeaturesReply(results=(FeatureUpdateResult(name="f"), FeatureUpdateResult(name="g", error=ERROR)))
    ],
    "RegisterController": [RegisterControllerReply()],
    "UnregisterController": [UnregisterControllerReply()],
    "WriteImageHash": [WriteImageHashReply(offset=Offset(7))],
    "SignOffRecord": [SignOffRecordReply(offset=Offset(7))],
    "AlterClientQuotas": [AlterClientQuotasReply(errors=(None, ERROR))],
    "CreateAcls": [CreateAclsReply(errors=(ERROR, None))],
    "DeleteAcls": [DeleteAclsReply(results=(DeletedAcls(entries=(ACL,)), DeletedAcls(error=ERROR)))],
    "AlterUserScramCredentials": [
        AlterUserScramCredentialsReply(users=(AlteredUser(name="a"), AlteredUser(name="b", error=ERROR)))
    ],
    "CreateDelegationToken": [CreateDelegationTokenReply(token=TOKEN, hmac=b"h")],
    "RenewDelegationToken": [DelegationTokenExpiry(expiration_timestamp_ms=5)],
    "ExpireDelegationToken": [DelegationTokenExpiry(expiration_timestamp_ms=5)],
    "ElectLeaders": [
        ElectLeadersReply(
            partitions=(
                ElectedPartition(topic="t", partition_id=1, leader=BrokerId(2)),
                ElectedPartition(topic="t", partition_id=2, error=ERROR),
            )
        )
    ],
    "AlterPartitionReassignments": [
        AlterPartitionReassignmentsReply(
            partitions=(
                ReassignedPartition(topic="t", partition_id=1),
                ReassignedPartition(topic="t", partition_id=2, error=ERROR),
            )
        )
    ],
    "ListPartitionReassignments": [
        ListPartitionReassignmentsReply(
            partitions=(
                OngoingReassignment(
                    topic="t",
                    partition_id=1,
                    replicas=(BrokerId(3), BrokerId(1)),
                    adding=(BrokerId(3),),
                    removing=(BrokerId(1),),
                    isr=(BrokerId(1),),
                ),
            )
        )
    ],
    "AssignReplicasToDirectories": [
        AssignReplicasToDirectoriesReply(
            replicas=(
                PlacedReplica(topic_id=uuid(1), partition_id=0),
                PlacedReplica(topic_id=uuid(1), partition_id=1, error=ERROR),
            )
        )
    ],
    "AlterReplicaFaults": [
        AlterReplicaFaultsReply(
            replicas=(
                PlacedReplica(topic_id=uuid(1), partition_id=0),
                PlacedReplica(topic_id=uuid(1), partition_id=1, error=ERROR),
            )
        )
    ],
    "AlterMaintenance": [AlterMaintenanceReply(handed_over=2, kept=1)],
    "UnregisterBroker": [UnregisterBrokerReply()],
    "RegisterBroker": [RegisterBrokerReply(broker_epoch=5)],
    "AlterPartition": [
        AlterPartitionReply(
            partitions=(
                PartitionAlterationReply(
                    topic_id=uuid(1),
                    partition_id=0,
                    leader=BrokerId(2),
                    leader_epoch=Epoch(3),
                    isr=(BrokerId(2), BrokerId(1)),
                    leader_recovery_state=LeaderRecoveryState.RECOVERING,
                    partition_epoch=4,
                ),
                PartitionAlterationReply(topic_id=uuid(1), partition_id=1, error=ERROR),
            )
        )
    ],
    "CreateTopics": [
        CreateTopicsReply(
            topics=(
                CreatedTopic(
                    name="t", topic_id=uuid(1), partition_count=2, replication_factor=3, configs={"a": "1", "b": ""}
                ),
                CreatedTopic(name="u", error=ERROR),
            )
        )
    ],
    "DeleteTopics": [
        DeleteTopicsReply(
            topics=(
                DeletedTopic(name="t", topic_id=uuid(1)),
                DeletedTopic(name=None, topic_id=uuid(2), error=ERROR),
            )
        )
    ],
    "CreatePartitions": [CreatePartitionsReply(topics=(GrownTopic(name="t"), GrownTopic(name="u", error=ERROR)))],
    "IncrementalAlterConfigs": [
        IncrementalAlterConfigsReply(
            resources=(
                AlteredConfig(resource_type=ConfigResourceType.TOPIC, resource_name="t", error=ERROR),
                AlteredConfig(resource_type=ConfigResourceType.BROKER, resource_name=""),
            )
        )
    ],
    "AllocateProducerIds": [AllocateProducerIdsReply(first=1000, count=1000)],
}


def plain(value: Any) -> str:
    """For comparison: exceptions have no equality of their own."""
    return repr(value)


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_every_request_arrives_as_it_was_sent(request_: Request[Any]) -> None:
    verb = VERB_BY_REQUEST[type(request_)]
    data = write_call(verb, request_, principal="User:a", client_host="10.0.0.9").SerializeToString()
    message = verb.call_type.FromString(data)
    assert read_call(verb, message) == request_
    assert (message.caller.principal, message.caller.host) == ("User:a", "10.0.0.9")


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.method)
def test_every_reply_arrives_as_it_was_sent(verb: Any) -> None:
    for reply in REPLIES[verb.method]:
        message = verb.answer_type.FromString(write_answer(verb, reply).SerializeToString())
        arrived: Any = read_answer(verb, message)
        assert plain(arrived) == plain(reply)
        assert getattr(arrived, "hmac", None) == getattr(reply, "hmac", None)  # no repr shows it


@pytest.mark.parametrize(
    ("error", "leader_id"),
    [
        (ERROR, None),
        (NotActiveController("no", leader_id=BrokerId(3)), 3),
        (NotActiveController("no", leader_id=BrokerId(0)), 0),
        (NotActiveController("no", leader_id=None), None),
        (NotActiveController("no", leader_id=None, is_unsettled=True), None),
    ],
)
def test_an_error_arrives_with_its_code_message_and_leader(error: KafkaError, leader_id: int | None) -> None:
    arrived = error_of(pb.Fault.FromString(fault_of(error).SerializeToString()))
    assert (type(arrived), arrived.code, arrived.message) == (type(error), error.code, error.message)
    if isinstance(arrived, NotActiveController):
        assert arrived.leader_id == leader_id
        assert isinstance(error, NotActiveController) and arrived.is_unsettled == error.is_unsettled


def test_an_error_code_of_the_future_is_an_unknown_error() -> None:
    error = error_of(pb.Fault(code=9999, message="new"))
    assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR and "9999" in error.message


# --- over the wire ------------------------------------------------------------------------------------------------------


class Served:
    def __init__(self, driver: ControllerDriver, quorum: HeldQuorum, port: int) -> None:
        self.driver, self.quorum, self.port = driver, quorum, port
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=CHANNEL_OPTIONS)
        self.stub = ControllerStub(self.channel)

    async def register(self, broker_id: int) -> int:
        verb = VERBS[0]
        answer = await self.stub.RegisterBroker(write_call(verb, registration(broker_id), principal=""), timeout=10)
        assert not answer.HasField("fault"), answer.fault
        epoch: int = answer.broker_epoch
        return epoch

    def is_fenced(self, broker_id: int) -> bool:
        return self.driver.controller.committed.cluster.brokers[BrokerId(broker_id)].is_fenced


@asynccontextmanager
async def served(*, elect: bool = True, **config: Any) -> AsyncIterator[Served]:
    driver, quorum = make_driver(asyncio.get_running_loop().call_soon, **{"idle_interval_ms": 0, **config})
    server = grpc.aio.server(options=SERVER_OPTIONS)
    ControllerService(driver).add_to_server(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    task = asyncio.ensure_future(driver.run())
    await asyncio.sleep(0)
    if elect:
        quorum.elect()
    made = Served(driver, quorum, port)
    try:
        yield made
    finally:
        await made.channel.close()
        await server.stop(None)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def beat(broker_id: int, epoch: int, **more: Any) -> Any:
    return pb.HeartbeatMessage(broker_id=broker_id, broker_epoch=epoch, metadata_offset=10**6, **more)


async def test_heartbeats_unfence_a_registered_broker() -> None:
    async with served() as controller:
        epoch = await controller.register(1)
        stream = controller.stub.Heartbeats()
        await stream.write(beat(1, epoch))
        answer: Any = await stream.read()
        assert (answer.is_caught_up, answer.is_fenced) == (True, False)
        stream.cancel()


async def test_the_end_of_a_stream_is_seen_and_the_broker_fenced_long_before_its_session_ends() -> None:
    async with served(session_timeout_ms=60_000, disconnect_grace_ms=20) as controller:
        epoch = await controller.register(1)
        stream = controller.stub.Heartbeats()
        await stream.write(beat(1, epoch))
        await stream.read()
        assert not controller.is_fenced(1)
        await controller.channel.close()
        async with asyncio.timeout(20):
            while not controller.is_fenced(1):
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("breaks_in", ["read", "write"])
async def test_a_stream_that_breaks_is_logged_in_one_line(breaks_in: str, caplog: pytest.LogCaptureFixture) -> None:
    class Breaking:
        """A server's end of a connection whose other end dies after one heartbeat."""

        def __init__(self, first: Any) -> None:
            self.incoming = [first]

        async def read(self) -> Any:
            if self.incoming:
                return self.incoming.pop()
            if breaks_in == "read":
                raise grpc.aio.InternalError("Failed ExecuteBatch")
            return await asyncio.get_running_loop().create_future()

        async def write(self, message: Any) -> None:
            if breaks_in == "write":
                raise grpc.aio.InternalError("Failed ExecuteBatch")

    caplog.set_level("INFO", logger="barnabas_quorum.driver.controller_service")
    async with served(session_timeout_ms=60_000, disconnect_grace_ms=20) as controller:
        epoch = await controller.register(1)
        context: Any = Breaking(beat(1, epoch))
        await ControllerService(controller.driver).Heartbeats(None, context)
        (record,) = caplog.records
        assert f"broker 1 (epoch {epoch}) broke: Failed ExecuteBatch" in record.message and record.exc_info is None
        session = controller.driver.controller.sessions.get(BrokerId(1))
        assert session is not None and session.connections == 0


async def test_a_stream_ends_after_its_first_error() -> None:
    async with served() as controller:
        epoch = await controller.register(1)
        for message, code in (
            (beat(1, epoch + 1), ErrorCode.STALE_BROKER_EPOCH),
            (beat(2, epoch), ErrorCode.BROKER_ID_NOT_REGISTERED),
        ):
            stream = controller.stub.Heartbeats()
            await stream.write(message)
            answer: Any = await stream.read()
            assert answer.fault.code == code and answer.fault.message
            assert await stream.read() is grpc.aio.EOF


async def test_a_stream_belongs_to_one_registration() -> None:
    async with served() as controller:
        first, second = await controller.register(1), await controller.register(2)
        stream = controller.stub.Heartbeats()
        await stream.write(beat(1, first))
        await stream.read()
        await stream.write(beat(2, second))
        refusal: Any = await stream.read()
        assert refusal.fault.code == ErrorCode.INVALID_REQUEST


async def test_a_lost_leadership_ends_the_streams_with_the_new_leaders_name() -> None:
    async with served() as controller:
        epoch = await controller.register(1)
        stream = controller.stub.Heartbeats()
        await stream.write(beat(1, epoch))
        await stream.read()
        controller.quorum.depose(leader_id=3)
        answer: Any = await stream.read()
        assert (answer.fault.code, answer.fault.leader_id) == (ErrorCode.NOT_CONTROLLER, 3)
        assert await stream.read() is grpc.aio.EOF
        refused = await controller.stub.CreateTopics(pb.CreateTopicsCall(), timeout=10)
        assert (refused.fault.code, refused.fault.leader_id) == (ErrorCode.NOT_CONTROLLER, 3)


async def test_a_malformed_call_is_refused_and_the_next_one_answered() -> None:
    async with served() as controller:
        bad = pb.DeleteTopicsCall(topics=[pb.TopicKey(topic_id=b"short")])
        answer = await controller.stub.DeleteTopics(bad, timeout=10)
        assert answer.fault.code == ErrorCode.INVALID_REQUEST
        bad_operation = pb.ConfigEdits(resource_type=2, changes=[pb.ConfigEdit(key="k", operation=99)])
        edits = pb.IncrementalAlterConfigsCall(resources=[bad_operation])
        refusal = await controller.stub.IncrementalAlterConfigs(edits, timeout=10)
        assert refusal.fault.code == ErrorCode.INVALID_REQUEST
        assert await controller.register(1) > 0


async def test_a_malformed_heartbeat_is_answered_with_the_reason_and_ends_its_stream() -> None:
    async with served() as controller:
        epoch = await controller.register(1)
        stream = controller.stub.Heartbeats()
        await stream.write(
            pb.HeartbeatMessage(
                broker_id=1, broker_epoch=epoch, offline_directories=[b"longer than the id of a directory"]
            )
        )
        answer: Any = await stream.read()
        assert answer.fault.code == ErrorCode.INVALID_REQUEST and "16 bytes" in answer.fault.message
        assert await stream.read() is grpc.aio.EOF


async def test_a_bug_in_a_decision_costs_one_call_and_not_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served() as controller:

        def buggy(request: Any, *, now_ms: int) -> None:
            raise ZeroDivisionError("a bug")

        with monkeypatch.context() as patch:
            patch.setattr(controller.driver.controller, "decide", buggy)
            answer = await controller.stub.CreateTopics(pb.CreateTopicsCall(), timeout=10)
            assert answer.fault.code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert await controller.register(1) > 0
        assert controller.driver.is_active
