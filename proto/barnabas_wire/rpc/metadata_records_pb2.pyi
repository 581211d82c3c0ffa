from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MetadataRecord(_message.Message):
    __slots__ = ("register_broker", "unregister_broker", "topic", "partition", "config", "partition_change", "remove_topic", "feature_level", "producer_ids", "broker_registration_change", "no_op", "register_controller", "delegation_token", "user_scram_credential", "client_quota", "access_control_entry", "remove_access_control_entry", "remove_user_scram_credential", "begin_transaction", "end_transaction", "abort_transaction", "remove_delegation_token", "clear_elr", "unregister_controller", "image_hash", "quarantine", "quorum_recovery")
    REGISTER_BROKER_FIELD_NUMBER: _ClassVar[int]
    UNREGISTER_BROKER_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    PARTITION_CHANGE_FIELD_NUMBER: _ClassVar[int]
    REMOVE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    FEATURE_LEVEL_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_IDS_FIELD_NUMBER: _ClassVar[int]
    BROKER_REGISTRATION_CHANGE_FIELD_NUMBER: _ClassVar[int]
    NO_OP_FIELD_NUMBER: _ClassVar[int]
    REGISTER_CONTROLLER_FIELD_NUMBER: _ClassVar[int]
    DELEGATION_TOKEN_FIELD_NUMBER: _ClassVar[int]
    USER_SCRAM_CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    CLIENT_QUOTA_FIELD_NUMBER: _ClassVar[int]
    ACCESS_CONTROL_ENTRY_FIELD_NUMBER: _ClassVar[int]
    REMOVE_ACCESS_CONTROL_ENTRY_FIELD_NUMBER: _ClassVar[int]
    REMOVE_USER_SCRAM_CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    BEGIN_TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    END_TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    ABORT_TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    REMOVE_DELEGATION_TOKEN_FIELD_NUMBER: _ClassVar[int]
    CLEAR_ELR_FIELD_NUMBER: _ClassVar[int]
    UNREGISTER_CONTROLLER_FIELD_NUMBER: _ClassVar[int]
    IMAGE_HASH_FIELD_NUMBER: _ClassVar[int]
    QUARANTINE_FIELD_NUMBER: _ClassVar[int]
    QUORUM_RECOVERY_FIELD_NUMBER: _ClassVar[int]
    register_broker: RegisterBroker
    unregister_broker: UnregisterBroker
    topic: Topic
    partition: Partition
    config: Config
    partition_change: PartitionChange
    remove_topic: RemoveTopic
    feature_level: FeatureLevel
    producer_ids: ProducerIds
    broker_registration_change: BrokerRegistrationChange
    no_op: NoOp
    register_controller: RegisterController
    delegation_token: DelegationToken
    user_scram_credential: UserScramCredential
    client_quota: ClientQuota
    access_control_entry: AccessControlEntry
    remove_access_control_entry: RemoveAccessControlEntry
    remove_user_scram_credential: RemoveUserScramCredential
    begin_transaction: BeginTransaction
    end_transaction: EndTransaction
    abort_transaction: AbortTransaction
    remove_delegation_token: RemoveDelegationToken
    clear_elr: ClearElr
    unregister_controller: UnregisterController
    image_hash: ImageHash
    quarantine: Quarantine
    quorum_recovery: QuorumRecovery
    def __init__(self, register_broker: _Optional[_Union[RegisterBroker, _Mapping]] = ..., unregister_broker: _Optional[_Union[UnregisterBroker, _Mapping]] = ..., topic: _Optional[_Union[Topic, _Mapping]] = ..., partition: _Optional[_Union[Partition, _Mapping]] = ..., config: _Optional[_Union[Config, _Mapping]] = ..., partition_change: _Optional[_Union[PartitionChange, _Mapping]] = ..., remove_topic: _Optional[_Union[RemoveTopic, _Mapping]] = ..., feature_level: _Optional[_Union[FeatureLevel, _Mapping]] = ..., producer_ids: _Optional[_Union[ProducerIds, _Mapping]] = ..., broker_registration_change: _Optional[_Union[BrokerRegistrationChange, _Mapping]] = ..., no_op: _Optional[_Union[NoOp, _Mapping]] = ..., register_controller: _Optional[_Union[RegisterController, _Mapping]] = ..., delegation_token: _Optional[_Union[DelegationToken, _Mapping]] = ..., user_scram_credential: _Optional[_Union[UserScramCredential, _Mapping]] = ..., client_quota: _Optional[_Union[ClientQuota, _Mapping]] = ..., access_control_entry: _Optional[_Union[AccessControlEntry, _Mapping]] = ..., remove_access_control_entry: _Optional[_Union[RemoveAccessControlEntry, _Mapping]] = ..., remove_user_scram_credential: _Optional[_Union[RemoveUserScramCredential, _Mapping]] = ..., begin_transaction: _Optional[_Union[BeginTransaction, _Mapping]] = ..., end_transaction: _Optional[_Union[EndTransaction, _Mapping]] = ..., abort_transaction: _Optional[_Union[AbortTransaction, _Mapping]] = ..., remove_delegation_token: _Optional[_Union[RemoveDelegationToken, _Mapping]] = ..., clear_elr: _Optional[_Union[ClearElr, _Mapping]] = ..., unregister_controller: _Optional[_Union[UnregisterController, _Mapping]] = ..., image_hash: _Optional[_Union[ImageHash, _Mapping]] = ..., quarantine: _Optional[_Union[Quarantine, _Mapping]] = ..., quorum_recovery: _Optional[_Union[QuorumRecovery, _Mapping]] = ...) -> None: ...

class EndpointValue(_message.Message):
    __slots__ = ("listener", "host", "port", "security_protocol")
    LISTENER_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    SECURITY_PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    listener: str
    host: str
    port: int
    security_protocol: str
    def __init__(self, listener: _Optional[str] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., security_protocol: _Optional[str] = ...) -> None: ...

class FeatureRangeValue(_message.Message):
    __slots__ = ("name", "min_level", "max_level")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MIN_LEVEL_FIELD_NUMBER: _ClassVar[int]
    MAX_LEVEL_FIELD_NUMBER: _ClassVar[int]
    name: str
    min_level: int
    max_level: int
    def __init__(self, name: _Optional[str] = ..., min_level: _Optional[int] = ..., max_level: _Optional[int] = ...) -> None: ...

class BrokerIds(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ids: _Optional[_Iterable[int]] = ...) -> None: ...

class Uuids(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, ids: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ServedDirectory(_message.Message):
    __slots__ = ("directory", "broker_epoch")
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    directory: bytes
    broker_epoch: int
    def __init__(self, directory: _Optional[bytes] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class RegisterBroker(_message.Message):
    __slots__ = ("broker_id", "incarnation_id", "broker_epoch", "endpoints", "rack", "is_fenced", "is_in_controlled_shutdown", "directories", "features", "is_in_maintenance", "served", "host")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    IS_FENCED_FIELD_NUMBER: _ClassVar[int]
    IS_IN_CONTROLLED_SHUTDOWN_FIELD_NUMBER: _ClassVar[int]
    DIRECTORIES_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    IS_IN_MAINTENANCE_FIELD_NUMBER: _ClassVar[int]
    SERVED_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    incarnation_id: bytes
    broker_epoch: int
    endpoints: _containers.RepeatedCompositeFieldContainer[EndpointValue]
    rack: str
    is_fenced: bool
    is_in_controlled_shutdown: bool
    directories: _containers.RepeatedScalarFieldContainer[bytes]
    features: _containers.RepeatedCompositeFieldContainer[FeatureRangeValue]
    is_in_maintenance: bool
    served: _containers.RepeatedCompositeFieldContainer[ServedDirectory]
    host: str
    def __init__(self, broker_id: _Optional[int] = ..., incarnation_id: _Optional[bytes] = ..., broker_epoch: _Optional[int] = ..., endpoints: _Optional[_Iterable[_Union[EndpointValue, _Mapping]]] = ..., rack: _Optional[str] = ..., is_fenced: bool = ..., is_in_controlled_shutdown: bool = ..., directories: _Optional[_Iterable[bytes]] = ..., features: _Optional[_Iterable[_Union[FeatureRangeValue, _Mapping]]] = ..., is_in_maintenance: bool = ..., served: _Optional[_Iterable[_Union[ServedDirectory, _Mapping]]] = ..., host: _Optional[str] = ...) -> None: ...

class UnregisterBroker(_message.Message):
    __slots__ = ("broker_id", "broker_epoch")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class BrokerRegistrationChange(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "is_fenced", "is_in_controlled_shutdown", "directories", "is_in_maintenance", "serves")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    IS_FENCED_FIELD_NUMBER: _ClassVar[int]
    IS_IN_CONTROLLED_SHUTDOWN_FIELD_NUMBER: _ClassVar[int]
    DIRECTORIES_FIELD_NUMBER: _ClassVar[int]
    IS_IN_MAINTENANCE_FIELD_NUMBER: _ClassVar[int]
    SERVES_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    is_fenced: bool
    is_in_controlled_shutdown: bool
    directories: Uuids
    is_in_maintenance: bool
    serves: bool
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., is_fenced: bool = ..., is_in_controlled_shutdown: bool = ..., directories: _Optional[_Union[Uuids, _Mapping]] = ..., is_in_maintenance: bool = ..., serves: bool = ...) -> None: ...

class RegisterController(_message.Message):
    __slots__ = ("controller_id", "incarnation_id", "endpoints", "features")
    CONTROLLER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    controller_id: int
    incarnation_id: bytes
    endpoints: _containers.RepeatedCompositeFieldContainer[EndpointValue]
    features: _containers.RepeatedCompositeFieldContainer[FeatureRangeValue]
    def __init__(self, controller_id: _Optional[int] = ..., incarnation_id: _Optional[bytes] = ..., endpoints: _Optional[_Iterable[_Union[EndpointValue, _Mapping]]] = ..., features: _Optional[_Iterable[_Union[FeatureRangeValue, _Mapping]]] = ...) -> None: ...

class Topic(_message.Message):
    __slots__ = ("name", "topic_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: bytes
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[bytes] = ...) -> None: ...

class RemoveTopic(_message.Message):
    __slots__ = ("topic_id",)
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    def __init__(self, topic_id: _Optional[bytes] = ...) -> None: ...

class FaultyReplica(_message.Message):
    __slots__ = ("broker_id", "fault")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    fault: int
    def __init__(self, broker_id: _Optional[int] = ..., fault: _Optional[int] = ...) -> None: ...

class FaultyReplicas(_message.Message):
    __slots__ = ("replicas",)
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    replicas: _containers.RepeatedCompositeFieldContainer[FaultyReplica]
    def __init__(self, replicas: _Optional[_Iterable[_Union[FaultyReplica, _Mapping]]] = ...) -> None: ...

class Partition(_message.Message):
    __slots__ = ("topic_id", "partition_id", "replicas", "directories", "isr", "removing_replicas", "adding_replicas", "elr", "last_known_elr", "leader", "leader_recovery_state", "leader_epoch", "partition_epoch", "faults")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    DIRECTORIES_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    REMOVING_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ADDING_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ELR_FIELD_NUMBER: _ClassVar[int]
    LAST_KNOWN_ELR_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    LEADER_RECOVERY_STATE_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    FAULTS_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition_id: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    directories: _containers.RepeatedScalarFieldContainer[bytes]
    isr: _containers.RepeatedScalarFieldContainer[int]
    removing_replicas: _containers.RepeatedScalarFieldContainer[int]
    adding_replicas: _containers.RepeatedScalarFieldContainer[int]
    elr: _containers.RepeatedScalarFieldContainer[int]
    last_known_elr: _containers.RepeatedScalarFieldContainer[int]
    leader: int
    leader_recovery_state: int
    leader_epoch: int
    partition_epoch: int
    faults: _containers.RepeatedCompositeFieldContainer[FaultyReplica]
    def __init__(self, topic_id: _Optional[bytes] = ..., partition_id: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ..., directories: _Optional[_Iterable[bytes]] = ..., isr: _Optional[_Iterable[int]] = ..., removing_replicas: _Optional[_Iterable[int]] = ..., adding_replicas: _Optional[_Iterable[int]] = ..., elr: _Optional[_Iterable[int]] = ..., last_known_elr: _Optional[_Iterable[int]] = ..., leader: _Optional[int] = ..., leader_recovery_state: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., partition_epoch: _Optional[int] = ..., faults: _Optional[_Iterable[_Union[FaultyReplica, _Mapping]]] = ...) -> None: ...

class PartitionChange(_message.Message):
    __slots__ = ("topic_id", "partition_id", "isr", "leader", "replicas", "removing_replicas", "adding_replicas", "leader_recovery_state", "directories", "elr", "last_known_elr", "faults")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    REMOVING_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ADDING_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    LEADER_RECOVERY_STATE_FIELD_NUMBER: _ClassVar[int]
    DIRECTORIES_FIELD_NUMBER: _ClassVar[int]
    ELR_FIELD_NUMBER: _ClassVar[int]
    LAST_KNOWN_ELR_FIELD_NUMBER: _ClassVar[int]
    FAULTS_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition_id: int
    isr: BrokerIds
    leader: int
    replicas: BrokerIds
    removing_replicas: BrokerIds
    adding_replicas: BrokerIds
    leader_recovery_state: int
    directories: Uuids
    elr: BrokerIds
    last_known_elr: BrokerIds
    faults: FaultyReplicas
    def __init__(self, topic_id: _Optional[bytes] = ..., partition_id: _Optional[int] = ..., isr: _Optional[_Union[BrokerIds, _Mapping]] = ..., leader: _Optional[int] = ..., replicas: _Optional[_Union[BrokerIds, _Mapping]] = ..., removing_replicas: _Optional[_Union[BrokerIds, _Mapping]] = ..., adding_replicas: _Optional[_Union[BrokerIds, _Mapping]] = ..., leader_recovery_state: _Optional[int] = ..., directories: _Optional[_Union[Uuids, _Mapping]] = ..., elr: _Optional[_Union[BrokerIds, _Mapping]] = ..., last_known_elr: _Optional[_Union[BrokerIds, _Mapping]] = ..., faults: _Optional[_Union[FaultyReplicas, _Mapping]] = ...) -> None: ...

class Config(_message.Message):
    __slots__ = ("resource_type", "resource_name", "key", "value")
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    resource_type: int
    resource_name: str
    key: str
    value: str
    def __init__(self, resource_type: _Optional[int] = ..., resource_name: _Optional[str] = ..., key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class FeatureLevel(_message.Message):
    __slots__ = ("name", "level")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    name: str
    level: int
    def __init__(self, name: _Optional[str] = ..., level: _Optional[int] = ...) -> None: ...

class ProducerIds(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "next_producer_id")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    NEXT_PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    next_producer_id: int
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., next_producer_id: _Optional[int] = ...) -> None: ...

class NoOp(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ClearElr(_message.Message):
    __slots__ = ("topic_name",)
    TOPIC_NAME_FIELD_NUMBER: _ClassVar[int]
    topic_name: str
    def __init__(self, topic_name: _Optional[str] = ...) -> None: ...

class UnregisterController(_message.Message):
    __slots__ = ("controller_id",)
    CONTROLLER_ID_FIELD_NUMBER: _ClassVar[int]
    controller_id: int
    def __init__(self, controller_id: _Optional[int] = ...) -> None: ...

class BeginTransaction(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class EndTransaction(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AbortTransaction(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class QuotaEntityPartValue(_message.Message):
    __slots__ = ("type", "name")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    type: str
    name: str
    def __init__(self, type: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class ClientQuota(_message.Message):
    __slots__ = ("entity", "key", "value")
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    entity: _containers.RepeatedCompositeFieldContainer[QuotaEntityPartValue]
    key: str
    value: float
    def __init__(self, entity: _Optional[_Iterable[_Union[QuotaEntityPartValue, _Mapping]]] = ..., key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...

class AccessControlEntry(_message.Message):
    __slots__ = ("id", "resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")
    ID_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    PATTERN_TYPE_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_FIELD_NUMBER: _ClassVar[int]
    id: bytes
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int
    def __init__(self, id: _Optional[bytes] = ..., resource_type: _Optional[int] = ..., resource_name: _Optional[str] = ..., pattern_type: _Optional[int] = ..., principal: _Optional[str] = ..., host: _Optional[str] = ..., operation: _Optional[int] = ..., permission: _Optional[int] = ...) -> None: ...

class RemoveAccessControlEntry(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: bytes
    def __init__(self, id: _Optional[bytes] = ...) -> None: ...

class UserScramCredential(_message.Message):
    __slots__ = ("name", "mechanism", "salt", "stored_key", "server_key", "iterations")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    SALT_FIELD_NUMBER: _ClassVar[int]
    STORED_KEY_FIELD_NUMBER: _ClassVar[int]
    SERVER_KEY_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    mechanism: int
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int
    def __init__(self, name: _Optional[str] = ..., mechanism: _Optional[int] = ..., salt: _Optional[bytes] = ..., stored_key: _Optional[bytes] = ..., server_key: _Optional[bytes] = ..., iterations: _Optional[int] = ...) -> None: ...

class RemoveUserScramCredential(_message.Message):
    __slots__ = ("name", "mechanism")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    name: str
    mechanism: int
    def __init__(self, name: _Optional[str] = ..., mechanism: _Optional[int] = ...) -> None: ...

class DelegationToken(_message.Message):
    __slots__ = ("token_id", "owner", "requester", "renewers", "issue_timestamp_ms", "max_timestamp_ms", "expiration_timestamp_ms")
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    REQUESTER_FIELD_NUMBER: _ClassVar[int]
    RENEWERS_FIELD_NUMBER: _ClassVar[int]
    ISSUE_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRATION_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    token_id: str
    owner: str
    requester: str
    renewers: _containers.RepeatedScalarFieldContainer[str]
    issue_timestamp_ms: int
    max_timestamp_ms: int
    expiration_timestamp_ms: int
    def __init__(self, token_id: _Optional[str] = ..., owner: _Optional[str] = ..., requester: _Optional[str] = ..., renewers: _Optional[_Iterable[str]] = ..., issue_timestamp_ms: _Optional[int] = ..., max_timestamp_ms: _Optional[int] = ..., expiration_timestamp_ms: _Optional[int] = ...) -> None: ...

class RemoveDelegationToken(_message.Message):
    __slots__ = ("token_id",)
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    token_id: str
    def __init__(self, token_id: _Optional[str] = ...) -> None: ...

class PartHashValue(_message.Message):
    __slots__ = ("part", "hash")
    PART_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    part: str
    hash: bytes
    def __init__(self, part: _Optional[str] = ..., hash: _Optional[bytes] = ...) -> None: ...

class ImageHash(_message.Message):
    __slots__ = ("format", "parts")
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    format: int
    parts: _containers.RepeatedCompositeFieldContainer[PartHashValue]
    def __init__(self, format: _Optional[int] = ..., parts: _Optional[_Iterable[_Union[PartHashValue, _Mapping]]] = ...) -> None: ...

class Quarantine(_message.Message):
    __slots__ = ("offset", "epoch", "digest", "principal", "reason")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    offset: int
    epoch: int
    digest: bytes
    principal: str
    reason: str
    def __init__(self, offset: _Optional[int] = ..., epoch: _Optional[int] = ..., digest: _Optional[bytes] = ..., principal: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class QuorumRecovery(_message.Message):
    __slots__ = ("incarnation", "epoch_gap", "producer_id_gap")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_GAP_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_GAP_FIELD_NUMBER: _ClassVar[int]
    incarnation: str
    epoch_gap: int
    producer_id_gap: int
    def __init__(self, incarnation: _Optional[str] = ..., epoch_gap: _Optional[int] = ..., producer_id_gap: _Optional[int] = ...) -> None: ...
