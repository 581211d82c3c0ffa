from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Fault(_message.Message):
    __slots__ = ("code", "message", "leader_id", "is_unsettled")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    IS_UNSETTLED_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    leader_id: int
    is_unsettled: bool
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., leader_id: _Optional[int] = ..., is_unsettled: bool = ...) -> None: ...

class Caller(_message.Message):
    __slots__ = ("principal", "host")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    principal: str
    host: str
    def __init__(self, principal: _Optional[str] = ..., host: _Optional[str] = ...) -> None: ...

class Listener(_message.Message):
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

class Feature(_message.Message):
    __slots__ = ("name", "min_level", "max_level")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MIN_LEVEL_FIELD_NUMBER: _ClassVar[int]
    MAX_LEVEL_FIELD_NUMBER: _ClassVar[int]
    name: str
    min_level: int
    max_level: int
    def __init__(self, name: _Optional[str] = ..., min_level: _Optional[int] = ..., max_level: _Optional[int] = ...) -> None: ...

class RegisterBrokerCall(_message.Message):
    __slots__ = ("caller", "broker_id", "cluster_id", "incarnation_id", "endpoints", "rack", "directories", "features", "previous_broker_epoch", "has_offline_directories", "directory_epochs", "host")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    DIRECTORIES_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    HAS_OFFLINE_DIRECTORIES_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    broker_id: int
    cluster_id: str
    incarnation_id: bytes
    endpoints: _containers.RepeatedCompositeFieldContainer[Listener]
    rack: str
    directories: _containers.RepeatedScalarFieldContainer[bytes]
    features: _containers.RepeatedCompositeFieldContainer[Feature]
    previous_broker_epoch: int
    has_offline_directories: bool
    directory_epochs: _containers.RepeatedScalarFieldContainer[int]
    host: str
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., broker_id: _Optional[int] = ..., cluster_id: _Optional[str] = ..., incarnation_id: _Optional[bytes] = ..., endpoints: _Optional[_Iterable[_Union[Listener, _Mapping]]] = ..., rack: _Optional[str] = ..., directories: _Optional[_Iterable[bytes]] = ..., features: _Optional[_Iterable[_Union[Feature, _Mapping]]] = ..., previous_broker_epoch: _Optional[int] = ..., has_offline_directories: bool = ..., directory_epochs: _Optional[_Iterable[int]] = ..., host: _Optional[str] = ...) -> None: ...

class RegisterBrokerAnswer(_message.Message):
    __slots__ = ("fault", "broker_epoch")
    FAULT_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    fault: Fault
    broker_epoch: int
    def __init__(self, fault: _Optional[_Union[Fault, _Mapping]] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class HeartbeatMessage(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "metadata_offset", "want_fence", "want_shutdown", "offline_directories", "clock_skew_ms")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    WANT_FENCE_FIELD_NUMBER: _ClassVar[int]
    WANT_SHUTDOWN_FIELD_NUMBER: _ClassVar[int]
    OFFLINE_DIRECTORIES_FIELD_NUMBER: _ClassVar[int]
    CLOCK_SKEW_MS_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    metadata_offset: int
    want_fence: bool
    want_shutdown: bool
    offline_directories: _containers.RepeatedScalarFieldContainer[bytes]
    clock_skew_ms: int
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., metadata_offset: _Optional[int] = ..., want_fence: bool = ..., want_shutdown: bool = ..., offline_directories: _Optional[_Iterable[bytes]] = ..., clock_skew_ms: _Optional[int] = ...) -> None: ...

class HeartbeatAnswer(_message.Message):
    __slots__ = ("fault", "is_caught_up", "is_fenced", "should_shutdown", "report_offset", "voters_clock_ms")
    FAULT_FIELD_NUMBER: _ClassVar[int]
    IS_CAUGHT_UP_FIELD_NUMBER: _ClassVar[int]
    IS_FENCED_FIELD_NUMBER: _ClassVar[int]
    SHOULD_SHUTDOWN_FIELD_NUMBER: _ClassVar[int]
    REPORT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    VOTERS_CLOCK_MS_FIELD_NUMBER: _ClassVar[int]
    fault: Fault
    is_caught_up: bool
    is_fenced: bool
    should_shutdown: bool
    report_offset: int
    voters_clock_ms: int
    def __init__(self, fault: _Optional[_Union[Fault, _Mapping]] = ..., is_caught_up: bool = ..., is_fenced: bool = ..., should_shutdown: bool = ..., report_offset: _Optional[int] = ..., voters_clock_ms: _Optional[int] = ...) -> None: ...

class IsrMember(_message.Message):
    __slots__ = ("broker_id", "broker_epoch")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class PartitionProposal(_message.Message):
    __slots__ = ("topic_id", "partition_id", "leader_epoch", "partition_epoch", "new_isr", "leader_recovery_state")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    NEW_ISR_FIELD_NUMBER: _ClassVar[int]
    LEADER_RECOVERY_STATE_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition_id: int
    leader_epoch: int
    partition_epoch: int
    new_isr: _containers.RepeatedCompositeFieldContainer[IsrMember]
    leader_recovery_state: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., partition_epoch: _Optional[int] = ..., new_isr: _Optional[_Iterable[_Union[IsrMember, _Mapping]]] = ..., leader_recovery_state: _Optional[int] = ...) -> None: ...

class AlterPartitionCall(_message.Message):
    __slots__ = ("caller", "broker_id", "broker_epoch", "partitions")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    broker_id: int
    broker_epoch: int
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionProposal]
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[PartitionProposal, _Mapping]]] = ...) -> None: ...

class PartitionState(_message.Message):
    __slots__ = ("error", "topic_id", "partition_id", "leader", "leader_epoch", "isr", "leader_recovery_state", "partition_epoch")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    LEADER_RECOVERY_STATE_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    error: Fault
    topic_id: bytes
    partition_id: int
    leader: int
    leader_epoch: int
    isr: _containers.RepeatedScalarFieldContainer[int]
    leader_recovery_state: int
    partition_epoch: int
    def __init__(self, error: _Optional[_Union[Fault, _Mapping]] = ..., topic_id: _Optional[bytes] = ..., partition_id: _Optional[int] = ..., leader: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., isr: _Optional[_Iterable[int]] = ..., leader_recovery_state: _Optional[int] = ..., partition_epoch: _Optional[int] = ...) -> None: ...

class AlterPartitionAnswer(_message.Message):
    __slots__ = ("fault", "partitions")
    FAULT_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    fault: Fault
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionState]
    def __init__(self, fault: _Optional[_Union[Fault, _Mapping]] = ..., partitions: _Optional[_Iterable[_Union[PartitionState, _Mapping]]] = ...) -> None: ...

class Replicas(_message.Message):
    __slots__ = ("broker_ids",)
    BROKER_IDS_FIELD_NUMBER: _ClassVar[int]
    broker_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, broker_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class NewTopic(_message.Message):
    __slots__ = ("name", "partition_count", "replication_factor", "assignments", "configs")
    class AssignmentsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: Replicas
        def __init__(self, key: _Optional[int] = ..., value: _Optional[_Union[Replicas, _Mapping]] = ...) -> None: ...
    class ConfigsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    partition_count: int
    replication_factor: int
    assignments: _containers.MessageMap[int, Replicas]
    configs: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., partition_count: _Optional[int] = ..., replication_factor: _Optional[int] = ..., assignments: _Optional[_Mapping[int, Replicas]] = ..., configs: _Optional[_Mapping[str, str]] = ...) -> None: ...

class CreateTopicsCall(_message.Message):
    __slots__ = ("caller", "topics", "validate_only")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    topics: _containers.RepeatedCompositeFieldContainer[NewTopic]
    validate_only: bool
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., topics: _Optional[_Iterable[_Union[NewTopic, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class MadeTopic(_message.Message):
    __slots__ = ("error", "name", "topic_id", "partition_count", "replication_factor", "configs")
    class ConfigsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ERROR_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    error: Fault
    name: str
    topic_id: bytes
    partition_count: int
    replication_factor: int
    configs: _containers.ScalarMap[str, str]
    def __init__(self, error: _Optional[_Union[Fault, _Mapping]] = ..., name: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partition_count: _Optional[int] = ..., replication_factor: _Optional[int] = ..., configs: _Optional[_Mapping[str, str]] = ...) -> None: ...

class CreateTopicsAnswer(_message.Message):
    __slots__ = ("fault", "topics")
    FAULT_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    fault: Fault
    topics: _containers.RepeatedCompositeFieldContainer[MadeTopic]
    def __init__(self, fault: _Optional[_Union[Fault, _Mapping]] = ..., topics: _Optional[_Iterable[_Union[MadeTopic, _Mapping]]] = ...) -> None: ...

class TopicKey(_message.Message):
    __slots__ = ("name", "topic_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: bytes
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[bytes] = ...) -> None: ...

class DeleteTopicsCall(_message.Message):
    __slots__ = ("caller", "topics")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    topics: _containers.RepeatedCompositeFieldContainer[TopicKey]
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., topics: _Optional[_Iterable[_Union[TopicKey, _Mapping]]] = ...) -> None: ...

class GoneTopic(_message.Message):
    __slots__ = ("error", "name", "topic_id")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    error: Fault
    name: str
    topic_id: bytes
    def __init__(self, error: _Optional[_Union[Fault, _Mapping]] = ..., name: _Optional[str] = ..., topic_id: _Optional[bytes] = ...) -> None: ...

class DeleteTopicsAnswer(_message.Message):
    __slots__ = ("fault", "topics")
    FAULT_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    fault: Fault
    topics: _containers.RepeatedCompositeFieldContainer[GoneTopic]
    def __init__(self, fault: _Optional[_Union[Fault, _Mapping]] = ..., topics: _Optional[_Iterable[_Union[GoneTopic, _Mapping]]] = ...) -> None: ...

class MorePartitions(_message.Message):
    __slots__ = ("name", "partition_count", "assignments")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    partition_count: int
    assignments: _containers.RepeatedCompositeFieldContainer[Replicas]
    def __init__(self, name: _Optional[str] = ..., partition_count: _Optional[int] = ..., assignments: _Optional[_Iterable[_Union[Replicas, _Mapping]]] = ...) -> None: ...

class CreatePartitionsCall(_message.Message):
    __slots__ = ("caller", "topics", "validate_only")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    topics: _containers.RepeatedCompositeFieldContainer[MorePartitions]
    validate_only: bool
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., topics: _Optional[_Iterable[_Union[MorePartitions, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class GrownTopicState(_message.Message):
    __slots__ = ("error", "name")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    error: Fault
    name: str
    def __init__(self, error: _Optional[_Union[Fault, _Mapping]] = ..., name: _Optional[str] = ...) -> None: ...

class CreatePartitionsAnswer(_message.Message):
    __slots__ = ("fault", "topics")
    FAULT_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    fault: Fault
    topics: _containers.RepeatedCompositeFieldContainer[GrownTopicState]
    def __init__(self, fault: _Optional[_Union[Fault, _Mapping]] = ..., topics: _Optional[_Iterable[_Union[GrownTopicState, _Mapping]]] = ...) -> None: ...

class ConfigEdit(_message.Message):
    __slots__ = ("key", "operation", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    operation: int
    value: str
    def __init__(self, key: _Optional[str] = ..., operation: _Optional[int] = ..., value: _Optional[str] = ...) -> None: ...

class ConfigEdits(_message.Message):
    __slots__ = ("resource_type", "resource_name", "changes")
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    resource_type: int
    resource_name: str
    changes: _containers.RepeatedCompositeFieldContainer[ConfigEdit]
    def __init__(self, resource_type: _Optional[int] = ..., resource_name: _Optional[str] = ..., changes: _Optional[_Iterable[_Union[ConfigEdit, _Mapping]]] = ...) -> None: ...

class IncrementalAlterConfigsCall(_message.Message):
    __slots__ = ("caller", "resources", "validate_only")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    resources: _containers.RepeatedCompositeFieldContainer[ConfigEdits]
    validate_only: bool
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., resources: _Optional[_Iterable[_Union[ConfigEdits, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class EditedConfig(_message.Message):
    __slots__ = ("error", "resource_type", "resource_name")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    error: Fault
    resource_type: int
    resource_name: str
    def __init__(self, error: _Optional[_Union[Fault, _Mapping]] = ..., resource_type: _Optional[int] = ..., resource_name: _Optional[str] = ...) -> None: ...

class IncrementalAlterConfigsAnswer(_message.Message):
    __slots__ = ("fault", "resources")
    FAULT_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    fault: Fault
    resources: _containers.RepeatedCompositeFieldContainer[EditedConfig]
    def __init__(self, fault: _Optional[_Union[Fault, _Mapping]] = ..., resources: _Optional[_Iterable[_Union[EditedConfig, _Mapping]]] = ...) -> None: ...

class AllocateProducerIdsCall(_message.Message):
    __slots__ = ("caller", "broker_id", "broker_epoch")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    broker_id: int
    broker_epoch: int
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class AllocateProducerIdsAnswer(_message.Message):
    __slots__ = ("fault", "first", "count")
    FAULT_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    fault: Fault
    first: int
    count: int
    def __init__(self, fault: _Optional[_Union[Fault, _Mapping]] = ..., first: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class PartitionName(_message.Message):
    __slots__ = ("topic", "partition_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition_id: int
    def __init__(self, topic: _Optional[str] = ..., partition_id: _Optional[int] = ...) -> None: ...

class PartitionNames(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedCompositeFieldContainer[PartitionName]
    def __init__(self, names: _Optional[_Iterable[_Union[PartitionName, _Mapping]]] = ...) -> None: ...

class ElectLeadersCall(_message.Message):
    __slots__ = ("caller", "election_type", "partitions")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    ELECTION_TYPE_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    election_type: int
    partitions: PartitionNames
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., election_type: _Optional[int] = ..., partitions: _Optional[_Union[PartitionNames, _Mapping]] = ...) -> None: ...

class ElectedLeader(_message.Message):
    __slots__ = ("error", "topic", "partition_id", "leader")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    error: Fault
    topic: str
    partition_id: int
    leader: int
    def __init__(self, error: _Optional[_Union[Fault, _Mapping]] = ..., topic: _Optional[str] = ..., partition_id: _Optional[int] = ..., leader: _Optional[int] = ...) -> None: ...

class ElectLeadersAnswer(_message.Message):
    __slots__ = ("fault", "partitions")
    FAULT_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    fault: Fault
    partitions: _containers.RepeatedCompositeFieldContainer[ElectedLeader]
    def __init__(self, fault: _Optional[_Union[Fault, _Mapping]] = ..., partitions: _Optional[_Iterable[_Union[ElectedLeader, _Mapping]]] = ...) -> None: ...

class WantedReplicas(_message.Message):
    __slots__ = ("topic", "partition_id", "replicas")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition_id: int
    replicas: Replicas
    def __init__(self, topic: _Optional[str] = ..., partition_id: _Optional[int] = ..., replicas: _Optional[_Union[Replicas, _Mapping]] = ...) -> None: ...

class AlterPartitionReassignmentsCall(_message.Message):
    __slots__ = ("caller", "partitions", "allow_replication_factor_change", "validate_only")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    ALLOW_REPLICATION_FACTOR_CHANGE_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    partitions: _containers.RepeatedCompositeFieldContainer[WantedReplicas]
    allow_replication_factor_change: bool
    validate_only: bool
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., partitions: _Optional[_Iterable[_Union[WantedReplicas, _Mapping]]] = ..., allow_replication_factor_change: bool = ..., validate_only: bool = ...) -> None: ...

class ReassignedReplicas(_message.Message):
    __slots__ = ("error", "topic", "partition_id")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    error: Fault
    topic: str
    partition_id: int
    def __init__(self, error: _Optional[_Union[Fault, _Mapping]] = ..., topic: _Optional[str] = ..., partition_id: _Optional[int] = ...) -> None: ...

class AlterPartitionReassignmentsAnswer(_message.Message):
    __slots__ = ("fault", "partitions")
    FAULT_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    fault: Fault
    partitions: _containers.RepeatedCompositeFieldContainer[ReassignedReplicas]
    def __init__(self, fault: _Optional[_Union[Fault, _Mapping]] = ..., partitions: _Optional[_Iterable[_Union[ReassignedReplicas, _Mapping]]] = ...) -> None: ...

class ListPartitionReassignmentsCall(_message.Message):
    __slots__ = ("caller", "partitions")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    partitions: PartitionNames
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., partitions: _Optional[_Union[PartitionNames, _Mapping]] = ...) -> None: ...

class ReassignmentState(_message.Message):
    __slots__ = ("topic", "partition_id", "replicas", "adding", "removing", "isr")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ADDING_FIELD_NUMBER: _ClassVar[int]
    REMOVING_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition_id: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    adding: _containers.RepeatedScalarFieldContainer[int]
    removing: _containers.RepeatedScalarFieldContainer[int]
    isr: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., partition_id: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ..., adding: _Optional[_Iterable[int]] = ..., removing: _Optional[_Iterable[int]] = ..., isr: _Optional[_Iterable[int]] = ...) -> None: ...

class ListPartitionReassignmentsAnswer(_message.Message):
    __slots__ = ("fault", "partitions")
    FAULT_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    fault: Fault
    partitions: _containers.RepeatedCompositeFieldContainer[ReassignmentState]
    def __init__(self, fault: _Optional[_Union[Fault, _Mapping]] = ..., partitions: _Optional[_Iterable[_Union[ReassignmentState, _Mapping]]] = ...) -> None: ...

class ReplicaInDirectory(_message.Message):
    __slots__ = ("topic_id", "partition_id", "directory_id")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition_id: int
    directory_id: bytes
    def __init__(self, topic_id: _Optional[bytes] = ..., partition_id: _Optional[int] = ..., directory_id: _Optional[bytes] = ...) -> None: ...

class AssignReplicasToDirectoriesCall(_message.Message):
    __slots__ = ("caller", "broker_id", "broker_epoch", "placements")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PLACEMENTS_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    broker_id: int
    broker_epoch: int
    placements: _containers.RepeatedCompositeFieldContainer[ReplicaInDirectory]
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., placements: _Optional[_Iterable[_Union[ReplicaInDirectory, _Mapping]]] = ...) -> None: ...

class PlacedReplicaState(_message.Message):
    __slots__ = ("error", "topic_id", "partition_id")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    error: Fault
    topic_id: bytes
    partition_id: int
    def __init__(self, error: _Optional[_Union[Fault, _Mapping]] = ..., topic_id: _Optional[bytes] = ..., partition_id: _Optional[int] = ...) -> None: ...

class AssignReplicasToDirectoriesAnswer(_message.Message):
    __slots__ = ("fault", "replicas")
    FAULT_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    fault: Fault
    replicas: _containers.RepeatedCompositeFieldContainer[PlacedReplicaState]
    def __init__(self, fault: _Optional[_Union[Fault, _Mapping]] = ..., replicas: _Optional[_Iterable[_Union[PlacedReplicaState, _Mapping]]] = ...) -> None: ...

class ReplicaFaultReport(_message.Message):
    __slots__ = ("topic_id", "partition_id", "fault")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition_id: int
    fault: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition_id: _Optional[int] = ..., fault: _Optional[int] = ...) -> None: ...

class AlterReplicaFaultsCall(_message.Message):
    __slots__ = ("caller", "broker_id", "broker_epoch", "reports")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    broker_id: int
    broker_epoch: int
    reports: _containers.RepeatedCompositeFieldContainer[ReplicaFaultReport]
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., reports: _Optional[_Iterable[_Union[ReplicaFaultReport, _Mapping]]] = ...) -> None: ...

class AlterReplicaFaultsAnswer(_message.Message):
    __slots__ = ("fault", "replicas")
    FAULT_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    fault: Fault
    replicas: _containers.RepeatedCompositeFieldContainer[PlacedReplicaState]
    def __init__(self, fault: _Optional[_Union[Fault, _Mapping]] = ..., replicas: _Optional[_Iterable[_Union[PlacedReplicaState, _Mapping]]] = ...) -> None: ...

class AlterMaintenanceCall(_message.Message):
    __slots__ = ("caller", "broker_id", "is_in_maintenance")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    IS_IN_MAINTENANCE_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    broker_id: int
    is_in_maintenance: bool
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., broker_id: _Optional[int] = ..., is_in_maintenance: bool = ...) -> None: ...

class AlterMaintenanceAnswer(_message.Message):
    __slots__ = ("fault", "handed_over", "kept")
    FAULT_FIELD_NUMBER: _ClassVar[int]
    HANDED_OVER_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    fault: Fault
    handed_over: int
    kept: int
    def __init__(self, fault: _Optional[_Union[Fault, _Mapping]] = ..., handed_over: _Optional[int] = ..., kept: _Optional[int] = ...) -> None: ...

class UnregisterBrokerCall(_message.Message):
    __slots__ = ("caller", "broker_id")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    broker_id: int
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., broker_id: _Optional[int] = ...) -> None: ...

class UnregisterBrokerAnswer(_message.Message):
    __slots__ = ("fault",)
    FAULT_FIELD_NUMBER: _ClassVar[int]
    fault: Fault
    def __init__(self, fault: _Optional[_Union[Fault, _Mapping]] = ...) -> None: ...

class FeatureStep(_message.Message):
    __slots__ = ("name", "level", "kind")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    name: str
    level: int
    kind: int
    def __init__(self, name: _Optional[str] = ..., level: _Optional[int] = ..., kind: _Optional[int] = ...) -> None: ...

class UpdateFeaturesCall(_message.Message):
    __slots__ = ("caller", "updates", "validate_only")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    updates: _containers.RepeatedCompositeFieldContainer[FeatureStep]
    validate_only: bool
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., updates: _Optional[_Iterable[_Union[FeatureStep, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class FeatureOutcome(_message.Message):
    __slots__ = ("error", "name")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    error: Fault
    name: str
    def __init__(self, error: _Optional[_Union[Fault, _Mapping]] = ..., name: _Optional[str] = ...) -> None: ...

class UpdateFeaturesAnswer(_message.Message):
    __slots__ = ("fault", "results")
    FAULT_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    fault: Fault
    results: _containers.RepeatedCompositeFieldContainer[FeatureOutcome]
    def __init__(self, fault: _Optional[_Union[Fault, _Mapping]] = ..., results: _Optional[_Iterable[_Union[FeatureOutcome, _Mapping]]] = ...) -> None: ...

class RegisterControllerCall(_message.Message):
    __slots__ = ("caller", "controller_id", "cluster_id", "incarnation_id", "endpoints", "features")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_ID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    controller_id: int
    cluster_id: str
    incarnation_id: bytes
    endpoints: _containers.RepeatedCompositeFieldContainer[Listener]
    features: _containers.RepeatedCompositeFieldContainer[Feature]
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., controller_id: _Optional[int] = ..., cluster_id: _Optional[str] = ..., incarnation_id: _Optional[bytes] = ..., endpoints: _Optional[_Iterable[_Union[Listener, _Mapping]]] = ..., features: _Optional[_Iterable[_Union[Feature, _Mapping]]] = ...) -> None: ...

class RegisterControllerAnswer(_message.Message):
    __slots__ = ("fault",)
    FAULT_FIELD_NUMBER: _ClassVar[int]
    fault: Fault
    def __init__(self, fault: _Optional[_Union[Fault, _Mapping]] = ...) -> None: ...

class UnregisterControllerCall(_message.Message):
    __slots__ = ("caller", "controller_id")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_ID_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    controller_id: int
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., controller_id: _Optional[int] = ...) -> None: ...

class UnregisterControllerAnswer(_message.Message):
    __slots__ = ("fault",)
    FAULT_FIELD_NUMBER: _ClassVar[int]
    fault: Fault
    def __init__(self, fault: _Optional[_Union[Fault, _Mapping]] = ...) -> None: ...

class Outcome(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: Fault
    def __init__(self, error: _Optional[_Union[Fault, _Mapping]] = ...) -> None: ...

class QuotaPart(_message.Message):
    __slots__ = ("type", "name")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    type: str
    name: str
    def __init__(self, type: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class QuotaEdit(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: float
    def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...

class QuotaEdits(_message.Message):
    __slots__ = ("entity", "changes")
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    entity: _containers.RepeatedCompositeFieldContainer[QuotaPart]
    changes: _containers.RepeatedCompositeFieldContainer[QuotaEdit]
    def __init__(self, entity: _Optional[_Iterable[_Union[QuotaPart, _Mapping]]] = ..., changes: _Optional[_Iterable[_Union[QuotaEdit, _Mapping]]] = ...) -> None: ...

class AlterClientQuotasCall(_message.Message):
    __slots__ = ("caller", "alterations", "validate_only")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    ALTERATIONS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    alterations: _containers.RepeatedCompositeFieldContainer[QuotaEdits]
    validate_only: bool
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., alterations: _Optional[_Iterable[_Union[QuotaEdits, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class AlterClientQuotasAnswer(_message.Message):
    __slots__ = ("fault", "errors")
    FAULT_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    fault: Fault
    errors: _containers.RepeatedCompositeFieldContainer[Outcome]
    def __init__(self, fault: _Optional[_Union[Fault, _Mapping]] = ..., errors: _Optional[_Iterable[_Union[Outcome, _Mapping]]] = ...) -> None: ...

class Acl(_message.Message):
    __slots__ = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    PATTERN_TYPE_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_FIELD_NUMBER: _ClassVar[int]
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int
    def __init__(self, resource_type: _Optional[int] = ..., resource_name: _Optional[str] = ..., pattern_type: _Optional[int] = ..., principal: _Optional[str] = ..., host: _Optional[str] = ..., operation: _Optional[int] = ..., permission: _Optional[int] = ...) -> None: ...

class CreateAclsCall(_message.Message):
    __slots__ = ("caller", "entries")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    entries: _containers.RepeatedCompositeFieldContainer[Acl]
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., entries: _Optional[_Iterable[_Union[Acl, _Mapping]]] = ...) -> None: ...

class CreateAclsAnswer(_message.Message):
    __slots__ = ("fault", "errors")
    FAULT_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    fault: Fault
    errors: _containers.RepeatedCompositeFieldContainer[Outcome]
    def __init__(self, fault: _Optional[_Union[Fault, _Mapping]] = ..., errors: _Optional[_Iterable[_Union[Outcome, _Mapping]]] = ...) -> None: ...

class DeleteAclsCall(_message.Message):
    __slots__ = ("caller", "filters")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    FILTERS_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    filters: _containers.RepeatedCompositeFieldContainer[Acl]
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., filters: _Optional[_Iterable[_Union[Acl, _Mapping]]] = ...) -> None: ...

class GoneAcls(_message.Message):
    __slots__ = ("error", "entries")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    error: Fault
    entries: _containers.RepeatedCompositeFieldContainer[Acl]
    def __init__(self, error: _Optional[_Union[Fault, _Mapping]] = ..., entries: _Optional[_Iterable[_Union[Acl, _Mapping]]] = ...) -> None: ...

class DeleteAclsAnswer(_message.Message):
    __slots__ = ("fault", "results")
    FAULT_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    fault: Fault
    results: _containers.RepeatedCompositeFieldContainer[GoneAcls]
    def __init__(self, fault: _Optional[_Union[Fault, _Mapping]] = ..., results: _Optional[_Iterable[_Union[GoneAcls, _Mapping]]] = ...) -> None: ...

class ScramRemoval(_message.Message):
    __slots__ = ("name", "mechanism")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    name: str
    mechanism: int
    def __init__(self, name: _Optional[str] = ..., mechanism: _Optional[int] = ...) -> None: ...

class ScramChange(_message.Message):
    __slots__ = ("name", "mechanism", "iterations", "salt", "stored_key", "server_key")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    SALT_FIELD_NUMBER: _ClassVar[int]
    STORED_KEY_FIELD_NUMBER: _ClassVar[int]
    SERVER_KEY_FIELD_NUMBER: _ClassVar[int]
    name: str
    mechanism: int
    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes
    def __init__(self, name: _Optional[str] = ..., mechanism: _Optional[int] = ..., iterations: _Optional[int] = ..., salt: _Optional[bytes] = ..., stored_key: _Optional[bytes] = ..., server_key: _Optional[bytes] = ...) -> None: ...

class AlterUserScramCredentialsCall(_message.Message):
    __slots__ = ("caller", "deletions", "upsertions")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    DELETIONS_FIELD_NUMBER: _ClassVar[int]
    UPSERTIONS_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    deletions: _containers.RepeatedCompositeFieldContainer[ScramRemoval]
    upsertions: _containers.RepeatedCompositeFieldContainer[ScramChange]
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., deletions: _Optional[_Iterable[_Union[ScramRemoval, _Mapping]]] = ..., upsertions: _Optional[_Iterable[_Union[ScramChange, _Mapping]]] = ...) -> None: ...

class UserOutcome(_message.Message):
    __slots__ = ("error", "name")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    error: Fault
    name: str
    def __init__(self, error: _Optional[_Union[Fault, _Mapping]] = ..., name: _Optional[str] = ...) -> None: ...

class AlterUserScramCredentialsAnswer(_message.Message):
    __slots__ = ("fault", "users")
    FAULT_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    fault: Fault
    users: _containers.RepeatedCompositeFieldContainer[UserOutcome]
    def __init__(self, fault: _Optional[_Union[Fault, _Mapping]] = ..., users: _Optional[_Iterable[_Union[UserOutcome, _Mapping]]] = ...) -> None: ...

class CreateDelegationTokenCall(_message.Message):
    __slots__ = ("caller", "owner", "requester", "renewers", "max_lifetime_ms")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    REQUESTER_FIELD_NUMBER: _ClassVar[int]
    RENEWERS_FIELD_NUMBER: _ClassVar[int]
    MAX_LIFETIME_MS_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    owner: str
    requester: str
    renewers: _containers.RepeatedScalarFieldContainer[str]
    max_lifetime_ms: int
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., owner: _Optional[str] = ..., requester: _Optional[str] = ..., renewers: _Optional[_Iterable[str]] = ..., max_lifetime_ms: _Optional[int] = ...) -> None: ...

class CreateDelegationTokenAnswer(_message.Message):
    __slots__ = ("fault", "token_id", "owner", "requester", "renewers", "issue_timestamp_ms", "max_timestamp_ms", "expiration_timestamp_ms", "hmac")
    FAULT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    REQUESTER_FIELD_NUMBER: _ClassVar[int]
    RENEWERS_FIELD_NUMBER: _ClassVar[int]
    ISSUE_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRATION_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    HMAC_FIELD_NUMBER: _ClassVar[int]
    fault: Fault
    token_id: str
    owner: str
    requester: str
    renewers: _containers.RepeatedScalarFieldContainer[str]
    issue_timestamp_ms: int
    max_timestamp_ms: int
    expiration_timestamp_ms: int
    hmac: bytes
    def __init__(self, fault: _Optional[_Union[Fault, _Mapping]] = ..., token_id: _Optional[str] = ..., owner: _Optional[str] = ..., requester: _Optional[str] = ..., renewers: _Optional[_Iterable[str]] = ..., issue_timestamp_ms: _Optional[int] = ..., max_timestamp_ms: _Optional[int] = ..., expiration_timestamp_ms: _Optional[int] = ..., hmac: _Optional[bytes] = ...) -> None: ...

class RenewDelegationTokenCall(_message.Message):
    __slots__ = ("caller", "requester", "hmac", "renew_period_ms")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    REQUESTER_FIELD_NUMBER: _ClassVar[int]
    HMAC_FIELD_NUMBER: _ClassVar[int]
    RENEW_PERIOD_MS_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    requester: str
    hmac: bytes
    renew_period_ms: int
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., requester: _Optional[str] = ..., hmac: _Optional[bytes] = ..., renew_period_ms: _Optional[int] = ...) -> None: ...

class RenewDelegationTokenAnswer(_message.Message):
    __slots__ = ("fault", "expiration_timestamp_ms")
    FAULT_FIELD_NUMBER: _ClassVar[int]
    EXPIRATION_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    fault: Fault
    expiration_timestamp_ms: int
    def __init__(self, fault: _Optional[_Union[Fault, _Mapping]] = ..., expiration_timestamp_ms: _Optional[int] = ...) -> None: ...

class ExpireDelegationTokenCall(_message.Message):
    __slots__ = ("caller", "requester", "hmac", "expiry_period_ms")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    REQUESTER_FIELD_NUMBER: _ClassVar[int]
    HMAC_FIELD_NUMBER: _ClassVar[int]
    EXPIRY_PERIOD_MS_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    requester: str
    hmac: bytes
    expiry_period_ms: int
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., requester: _Optional[str] = ..., hmac: _Optional[bytes] = ..., expiry_period_ms: _Optional[int] = ...) -> None: ...

class ExpireDelegationTokenAnswer(_message.Message):
    __slots__ = ("fault", "expiration_timestamp_ms")
    FAULT_FIELD_NUMBER: _ClassVar[int]
    EXPIRATION_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    fault: Fault
    expiration_timestamp_ms: int
    def __init__(self, fault: _Optional[_Union[Fault, _Mapping]] = ..., expiration_timestamp_ms: _Optional[int] = ...) -> None: ...

class WriteImageHashCall(_message.Message):
    __slots__ = ("caller",)
    CALLER_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ...) -> None: ...

class WriteImageHashAnswer(_message.Message):
    __slots__ = ("fault", "offset")
    FAULT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    fault: Fault
    offset: int
    def __init__(self, fault: _Optional[_Union[Fault, _Mapping]] = ..., offset: _Optional[int] = ...) -> None: ...

class SignOffRecordCall(_message.Message):
    __slots__ = ("caller", "offset", "digest", "reason")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    offset: int
    digest: bytes
    reason: str
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., offset: _Optional[int] = ..., digest: _Optional[bytes] = ..., reason: _Optional[str] = ...) -> None: ...

class SignOffRecordAnswer(_message.Message):
    __slots__ = ("fault", "offset")
    FAULT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    fault: Fault
    offset: int
    def __init__(self, fault: _Optional[_Union[Fault, _Mapping]] = ..., offset: _Optional[int] = ...) -> None: ...
