"""One full value of every record, request, reply and heartbeat: no field has its default. Of what may be None there is a bare value too.

Read next:  test_golden_bytes.py, which compares what these are written as with golden_bytes.txt.
"""

from __future__ import annotations

from typing import Any

from barnabas_quorum.controller.requests import (
    AllocateProducerIds,
    AllocateProducerIdsReply,
    AlteredConfig,
    AlterPartition,
    AlterPartitionReply,
    BrokerHeartbeat,
    BrokerHeartbeatReply,
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
    RegisterBroker,
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
from barnabas_quorum.image.acls import AccessControlEntry, AclFilter
from barnabas_quorum.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    ConfigResourceType,
    EndTransactionRecord,
    FaultyReplica,
    FeatureLevelRecord,
    FeatureRange,
    LeaderRecoveryState,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuorumRecoveryRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    ReplicaFault,
    ServedDirectory,
    TopicRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
)
from barnabas_quorum.records_integrity import ImageHashRecord, PartHash, QuarantineRecord
from barnabas_quorum.records_security import (
    AccessControlEntryRecord,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    ClientQuotaRecord,
    DelegationTokenRecord,
    QuotaEntityPart,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    ScramMechanism,
    UserScramCredentialRecord,
)
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Endpoint, Epoch, Offset, Uuid

PRINCIPAL = "User:alice"


def uuid(number: int) -> Uuid:
    """Sixteen bytes that show their number."""
    return Uuid(number.to_bytes(16, "big"))


def brokers(*ids: int) -> tuple[BrokerId, ...]:
    """Broker ids."""
    return tuple(BrokerId(broker_id) for broker_id in ids)


ERROR = KafkaError.of(ErrorCode.INVALID_CONFIG, "why")
ENDPOINTS = (Endpoint("OUTSIDE", "a.example", 9092, "SASL_SSL"), Endpoint("INSIDE", "b.example", 65535, "PLAINTEXT"))
FEATURES = (FeatureRange("metadata.version", 1, 4), FeatureRange("group.version", 2, 3))
FAULTS = (FaultyReplica(BrokerId(1), ReplicaFault.CORRUPT), FaultyReplica(BrokerId(300), ReplicaFault.NO_ROOM))
ENTITY = (QuotaEntityPart("client-id", None), QuotaEntityPart("user", "u"))
TOKEN = DelegationTokenRecord(
    token_id="id",
    owner="User:a",
    requester="User:b",
    renewers=("User:c", "User:d"),
    issue_timestamp_ms=1_700_000_000_001,
    max_timestamp_ms=1_700_000_000_003,
    expiration_timestamp_ms=1_700_000_000_002,
)
ENTRY = AccessControlEntry(
    resource_type=AclResourceType.TOPIC,
    resource_name="t",
    pattern_type=AclPatternType.PREFIXED,
    principal="User:a",
    host="*",
    operation=AclOperation.READ,
    permission=AclPermission.DENY,
)

RECORDS: list[Any] = [
    RegisterBrokerRecord(
        broker_id=BrokerId(7),
        incarnation_id=uuid(1001),
        broker_epoch=1 << 40,
        endpoints=ENDPOINTS,
        rack="r",
        is_fenced=True,
        is_in_controlled_shutdown=True,
        directories=(uuid(201), uuid(202)),
        features=FEATURES,
    ),
    RegisterBrokerRecord(
        broker_id=BrokerId(0), incarnation_id=uuid(0), broker_epoch=0, endpoints=(), rack=None, is_fenced=False
    ),
    RegisterBrokerRecord(broker_id=BrokerId(1), incarnation_id=uuid(1), broker_epoch=1, endpoints=(), rack=""),
    RegisterBrokerRecord(
        broker_id=BrokerId(7),
        incarnation_id=uuid(1002),
        broker_epoch=2,
        endpoints=(),
        is_in_controlled_shutdown=True,
        is_in_maintenance=True,
    ),
    RegisterBrokerRecord(
        broker_id=BrokerId(7),
        incarnation_id=uuid(1003),
        broker_epoch=9,
        endpoints=(),
        directories=(uuid(201),),
        served=(ServedDirectory(uuid(201), 7), ServedDirectory(uuid(202), 5)),
        host="h",
    ),
    UnregisterBrokerRecord(broker_id=BrokerId(7), broker_epoch=12),
    BrokerRegistrationChangeRecord(broker_id=BrokerId(7), broker_epoch=12, is_fenced=False, serves=True),
    BrokerRegistrationChangeRecord(
        broker_id=BrokerId(7),
        broker_epoch=12,
        is_fenced=True,
        is_in_controlled_shutdown=True,
        directories=(uuid(201), uuid(202)),
    ),
    BrokerRegistrationChangeRecord(
        broker_id=BrokerId(7), broker_epoch=12, is_fenced=False, is_in_controlled_shutdown=False, directories=()
    ),
    BrokerRegistrationChangeRecord(broker_id=BrokerId(7), broker_epoch=12),
    BrokerRegistrationChangeRecord(
        broker_id=BrokerId(7),
        broker_epoch=12,
        is_fenced=True,
        is_in_controlled_shutdown=True,
        directories=(uuid(201),),
        is_in_maintenance=True,
    ),
    BrokerRegistrationChangeRecord(broker_id=BrokerId(7), broker_epoch=12, is_in_maintenance=False),
    RegisterControllerRecord(
        controller_id=BrokerId(3), incarnation_id=uuid(1002), endpoints=ENDPOINTS, features=FEATURES
    ),
    UnregisterControllerRecord(controller_id=BrokerId(3)),
    BeginTransactionRecord(name="Bootstrap records"),
    EndTransactionRecord(),
    AbortTransactionRecord(reason="its leader is gone"),
    TopicRecord(name="t", topic_id=uuid(301)),
    RemoveTopicRecord(topic_id=uuid(301)),
    PartitionRecord(
        topic_id=uuid(301),
        partition_id=5,
        replicas=brokers(1, 2, 300),
        directories=(uuid(201), uuid(202), uuid(203)),
        isr=brokers(2, 1),
        leader=BrokerId(2),
        leader_recovery_state=LeaderRecoveryState.RECOVERING,
        leader_epoch=Epoch(8),
        partition_epoch=9,
        removing_replicas=brokers(1),
        adding_replicas=brokers(300),
        elr=brokers(4),
        last_known_elr=brokers(5, 6),
        faults=FAULTS,
    ),
    PartitionRecord(topic_id=uuid(301), partition_id=0, replicas=(), directories=(), isr=()),
    PartitionChangeRecord(
        topic_id=uuid(301),
        partition_id=5,
        isr=brokers(2, 1),
        leader=BrokerId(2),
        replicas=brokers(1, 2, 300),
        removing_replicas=brokers(1),
        adding_replicas=brokers(300),
        leader_recovery_state=LeaderRecoveryState.RECOVERING,
        directories=(uuid(201), uuid(202), uuid(203)),
        elr=brokers(4),
        last_known_elr=brokers(5, 6),
        faults=FAULTS,
    ),
    PartitionChangeRecord(
        topic_id=uuid(301),
        partition_id=0,
        isr=(),
        leader=BrokerId(-1),
        replicas=(),
        removing_replicas=(),
        adding_replicas=(),
        leader_recovery_state=LeaderRecoveryState.RECOVERED,
        directories=(),
        elr=(),
        last_known_elr=(),
        faults=(),
    ),
    PartitionChangeRecord(topic_id=uuid(301), partition_id=5),
    ClearElrRecord(topic_name="t"),
    QuorumRecoveryRecord(incarnation="second", epoch_gap=1_000_000, producer_id_gap=1 << 40),
    ConfigRecord(resource_type=ConfigResourceType.GROUP, resource_name="g", key="k", value="v"),
    ConfigRecord(resource_type=ConfigResourceType.TOPIC, resource_name="t", key="k", value=""),
    ConfigRecord(resource_type=ConfigResourceType.BROKER, resource_name="", key="k", value=None),
    ConfigRecord(resource_type=ConfigResourceType.CLIENT_METRICS, resource_name="c", key="k", value="v"),
    FeatureLevelRecord(name="metadata.version", level=4),
    ProducerIdsRecord(broker_id=BrokerId(7), broker_epoch=12, next_producer_id=1 << 40),
    NoOpRecord(),
    ClientQuotaRecord(entity=ENTITY, key="producer_byte_rate", value=1.5),
    ClientQuotaRecord(entity=ENTITY, key="producer_byte_rate", value=0.0),
    ClientQuotaRecord(entity=(), key="producer_byte_rate", value=None),
    AccessControlEntryRecord(
        id=uuid(401),
        resource_type=AclResourceType.GROUP,
        resource_name="g",
        pattern_type=AclPatternType.LITERAL,
        principal="User:a",
        host="10.0.0.1",
        operation=AclOperation.IDEMPOTENT_WRITE,
        permission=AclPermission.ALLOW,
    ),
    RemoveAccessControlEntryRecord(id=uuid(401)),
    UserScramCredentialRecord(
        name="u",
        mechanism=ScramMechanism.SCRAM_SHA_512,
        salt=b"salt",
        stored_key=b"stored",
        server_key=b"server",
        iterations=4096,
    ),
    RemoveUserScramCredentialRecord(name="u", mechanism=ScramMechanism.SCRAM_SHA_256),
    TOKEN,
    RemoveDelegationTokenRecord(token_id="id"),
    ImageHashRecord(format=2, parts=(PartHash("topics", bytes(range(16))), PartHash("configs", bytes(16)))),
    QuarantineRecord(offset=Offset(1 << 40), epoch=Epoch(6), digest=b"digest", principal="User:a", reason="why"),
]

REQUESTS: list[Any] = [
    RegisterBroker(
        broker_id=BrokerId(7),
        cluster_id="c",
        incarnation_id=uuid(1001),
        endpoints=ENDPOINTS,
        rack="r",
        directories=(uuid(201), uuid(202)),
        has_offline_directories=True,
        features=FEATURES,
        previous_broker_epoch=12,
        directory_epochs=(12, -1),
        host="h",
    ),
    RegisterBroker(broker_id=BrokerId(0), cluster_id="", incarnation_id=uuid(0), endpoints=()),
    AlterPartition(
        broker_id=BrokerId(7),
        broker_epoch=12,
        partitions=(
            PartitionAlteration(
                topic_id=uuid(301),
                partition_id=5,
                leader_epoch=Epoch(8),
                partition_epoch=9,
                new_isr=(IsrMemberEpoch(broker_id=BrokerId(1), broker_epoch=8), IsrMemberEpoch(broker_id=BrokerId(2))),
                leader_recovery_state=LeaderRecoveryState.RECOVERING,
            ),
        ),
    ),
    CreateTopics(
        topics=(
            CreatableTopic(
                name="t",
                partition_count=3,
                replication_factor=2,
                assignments={1: brokers(2, 1), 0: brokers(1, 300)},
                configs={"b": "", "a": "1"},
            ),
            CreatableTopic(name="u"),
        ),
        validate_only=True,
    ),
    DeleteTopics(topics=(TopicReference(name="t", topic_id=uuid(301)), TopicReference(), TopicReference(name=""))),
    CreatePartitions(
        topics=(
            TopicGrowth(name="t", partition_count=4, assignments=(brokers(1, 2), brokers(3), ())),
            TopicGrowth(name="u", partition_count=-1),
        ),
        validate_only=True,
    ),
    IncrementalAlterConfigs(
        resources=(
            ConfigAlteration(
                resource_type=ConfigResourceType.BROKER,
                resource_name="7",
                changes=(
                    ConfigChange(key="k", operation=ConfigOperation.APPEND, value="v"),
                    ConfigChange(key="l", operation=ConfigOperation.SET, value=""),
                    ConfigChange(key="m", operation=ConfigOperation.DELETE),
                ),
            ),
        ),
        validate_only=True,
    ),
    AllocateProducerIds(broker_id=BrokerId(7), broker_epoch=12),
    ElectLeaders(election_type=ElectionType.UNCLEAN, partitions=(("t", 5), ("u", 0))),
    ElectLeaders(election_type=ElectionType.PREFERRED, partitions=()),
    ElectLeaders(election_type=ElectionType.PREFERRED, partitions=None),
    AlterPartitionReassignments(
        partitions=(
            PartitionReassignment(topic="t", partition_id=1, replicas=brokers(3, 1)),
            PartitionReassignment(topic="t", partition_id=2, replicas=()),
            PartitionReassignment(topic="t", partition_id=3, replicas=None),
        ),
        allow_replication_factor_change=True,
        validate_only=True,
    ),
    ListPartitionReassignments(partitions=(("t", 1),)),
    ListPartitionReassignments(),
    AssignReplicasToDirectories(
        broker_id=BrokerId(7),
        broker_epoch=12,
        placements=(ReplicaPlacement(topic_id=uuid(301), partition_id=5, directory_id=uuid(201)),),
    ),
    AlterReplicaFaults(
        broker_id=BrokerId(7),
        broker_epoch=12,
        reports=(
            ReplicaFaultReport(topic_id=uuid(301), partition_id=5, fault=ReplicaFault.NO_ROOM),
            ReplicaFaultReport(topic_id=uuid(301), partition_id=6, fault=None),
        ),
    ),
    AlterMaintenance(broker_id=BrokerId(7), is_in_maintenance=True),
    UnregisterBroker(broker_id=BrokerId(7)),
    UpdateFeatures(
        updates=(
            FeatureUpdate(name="f", level=2, kind=FeatureUpgrade.SAFE_DOWNGRADE),
            FeatureUpdate(name="g", level=-1),
        ),
        validate_only=True,
    ),
    RegisterController(
        controller_id=BrokerId(3), cluster_id="c", incarnation_id=uuid(1002), endpoints=ENDPOINTS, features=FEATURES
    ),
    UnregisterController(controller_id=BrokerId(3)),
    AlterClientQuotas(
        alterations=(QuotaAlteration(entity=ENTITY, changes=(("a", 1.5), ("b", 0.0), ("c", None))),),
        validate_only=True,
    ),
    CreateAcls(entries=(ENTRY,)),
    DeleteAcls(
        filters=(
            AclFilter(
                resource_type=AclResourceType.TOPIC,
                resource_name="t",
                pattern_type=AclPatternType.MATCH,
                principal="User:a",
                host="h",
                operation=AclOperation.WRITE,
                permission=AclPermission.ALLOW,
            ),
            AclFilter(),
            AclFilter(resource_name=""),
        )
    ),
    AlterUserScramCredentials(
        deletions=(ScramDeletion(name="a", mechanism=-1),),
        upsertions=(
            ScramUpsertion(
                name="b", mechanism=1, iterations=4096, salt=b"salt", stored_key=b"stored", server_key=b"server"
            ),
        ),
    ),
    CreateDelegationToken(owner="User:a", requester="User:b", renewers=("User:c", "User:d"), max_lifetime_ms=1 << 40),
    RenewDelegationToken(requester="User:a", hmac=b"hmac", renew_period_ms=1 << 40),
    ExpireDelegationToken(requester="User:a", hmac=b"hmac", expiry_period_ms=1 << 40),
    WriteImageHash(),
    SignOffRecord(offset=Offset(1 << 40), digest=b"digest", reason="why"),
]

REPLIES: list[tuple[str, Any]] = [
    ("RegisterBroker", RegisterBrokerReply(broker_epoch=1 << 40)),
    (
        "AlterPartition",
        AlterPartitionReply(
            partitions=(
                PartitionAlterationReply(
                    topic_id=uuid(301),
                    partition_id=5,
                    error=ERROR,
                    leader=BrokerId(2),
                    leader_epoch=Epoch(8),
                    isr=brokers(2, 1),
                    leader_recovery_state=LeaderRecoveryState.RECOVERING,
                    partition_epoch=9,
                ),
                PartitionAlterationReply(topic_id=uuid(301), partition_id=0),
            )
        ),
    ),
    (
        "CreateTopics",
        CreateTopicsReply(
            topics=(
                CreatedTopic(
                    name="t",
                    error=ERROR,
                    topic_id=uuid(301),
                    partition_count=2,
                    replication_factor=3,
                    configs={"b": "", "a": "1"},
                ),
                CreatedTopic(name="u"),
            )
        ),
    ),
    (
        "DeleteTopics",
        DeleteTopicsReply(
            topics=(
                DeletedTopic(name="t", topic_id=uuid(301), error=ERROR),
                DeletedTopic(name=None, topic_id=uuid(0)),
                DeletedTopic(name="", topic_id=uuid(0)),
            )
        ),
    ),
    ("CreatePartitions", CreatePartitionsReply(topics=(GrownTopic(name="t", error=ERROR), GrownTopic(name="u")))),
    (
        "IncrementalAlterConfigs",
        IncrementalAlterConfigsReply(
            resources=(
                AlteredConfig(resource_type=ConfigResourceType.TOPIC, resource_name="t", error=ERROR),
                AlteredConfig(resource_type=ConfigResourceType.BROKER, resource_name=""),
            )
        ),
    ),
    ("AllocateProducerIds", AllocateProducerIdsReply(first=1 << 40, count=1000)),
    (
        "ElectLeaders",
        ElectLeadersReply(
            partitions=(
                ElectedPartition(topic="t", partition_id=5, leader=BrokerId(2), error=ERROR),
                ElectedPartition(topic="t", partition_id=0),
            )
        ),
    ),
    (
        "AlterPartitionReassignments",
        AlterPartitionReassignmentsReply(
            partitions=(
                ReassignedPartition(topic="t", partition_id=5, error=ERROR),
                ReassignedPartition(topic="t", partition_id=0),
            )
        ),
    ),
    (
        "ListPartitionReassignments",
        ListPartitionReassignmentsReply(
            partitions=(
                OngoingReassignment(
                    topic="t",
                    partition_id=5,
                    replicas=brokers(3, 1),
                    adding=brokers(3),
                    removing=brokers(1),
                    isr=brokers(1, 300),
                ),
            )
        ),
    ),
    (
        "AssignReplicasToDirectories",
        AssignReplicasToDirectoriesReply(
            replicas=(
                PlacedReplica(topic_id=uuid(301), partition_id=5, error=ERROR),
                PlacedReplica(topic_id=uuid(301), partition_id=0),
            )
        ),
    ),
    (
        "AlterReplicaFaults",
        AlterReplicaFaultsReply(
            replicas=(
                PlacedReplica(topic_id=uuid(301), partition_id=5, error=ERROR),
                PlacedReplica(topic_id=uuid(301), partition_id=0),
            )
        ),
    ),
    ("AlterMaintenance", AlterMaintenanceReply(handed_over=3, kept=1)),
    ("UnregisterBroker", UnregisterBrokerReply()),
    (
        "UpdateFeatures",
        UpdateFeaturesReply(results=(FeatureUpdateResult(name="f", error=ERROR), FeatureUpdateResult(name="g"))),
    ),
    ("RegisterController", RegisterControllerReply()),
    ("UnregisterController", UnregisterControllerReply()),
    ("AlterClientQuotas", AlterClientQuotasReply(errors=(None, ERROR))),
    ("CreateAcls", CreateAclsReply(errors=(ERROR, None))),
    (
        "DeleteAcls",
        DeleteAclsReply(results=(DeletedAcls(error=ERROR, entries=(ENTRY,)), DeletedAcls())),
    ),
    (
        "AlterUserScramCredentials",
        AlterUserScramCredentialsReply(users=(AlteredUser(name="a", error=ERROR), AlteredUser(name="b"))),
    ),
    ("CreateDelegationToken", CreateDelegationTokenReply(token=TOKEN, hmac=b"hmac")),
    ("RenewDelegationToken", DelegationTokenExpiry(expiration_timestamp_ms=1 << 40)),
    ("ExpireDelegationToken", DelegationTokenExpiry(expiration_timestamp_ms=1 << 40)),
    ("WriteImageHash", WriteImageHashReply(offset=Offset(1 << 40))),
    ("SignOffRecord", SignOffRecordReply(offset=Offset(1 << 40))),
]

HEARTBEATS = [
    BrokerHeartbeat(
        broker_id=BrokerId(7),
        broker_epoch=12,
        metadata_offset=Offset(1 << 40),
        want_fence=True,
        want_shutdown=True,
        offline_directories=(uuid(201), uuid(202)),
        clock_skew_ms=-(1 << 40),
    ),
    BrokerHeartbeat(
        broker_id=BrokerId(0), broker_epoch=0, metadata_offset=Offset(-1), want_fence=False, want_shutdown=False
    ),
]
HEARTBEAT_REPLIES = [
    BrokerHeartbeatReply(
        is_caught_up=True,
        is_fenced=True,
        should_shutdown=True,
        report_offset=Offset(1 << 40),
        voters_clock_ms=1_700_000_000_123,
    ),
    BrokerHeartbeatReply(is_fenced=False),
]
ERRORS: list[KafkaError] = [
    ERROR,
    KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR),
    NotActiveController("no", leader_id=BrokerId(0), is_unsettled=True),
    NotActiveController("no", leader_id=None),
]
