from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Fault(_message.Message):
    __slots__ = ("code", "message", "leader_id")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    leader_id: int
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., leader_id: _Optional[int] = ...) -> None: ...

class Caller(_message.Message):
    __slots__ = ("principal",)
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    principal: str
    def __init__(self, principal: _Optional[str] = ...) -> None: ...

class Listener(_message.Message):
    __slots__ = ("name", "host", "port", "security_protocol")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    SECURITY_PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    name: str
    host: str
    port: int
    security_protocol: str
    def __init__(self, name: _Optional[str] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., security_protocol: _Optional[str] = ...) -> None: ...

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
    __slots__ = ("caller", "broker_id", "cluster_id", "incarnation_id", "listeners", "rack", "directories", "features", "previous_broker_epoch")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    LISTENERS_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    DIRECTORIES_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    broker_id: int
    cluster_id: str
    incarnation_id: bytes
    listeners: _containers.RepeatedCompositeFieldContainer[Listener]
    rack: str
    directories: _containers.RepeatedScalarFieldContainer[bytes]
    features: _containers.RepeatedCompositeFieldContainer[Feature]
    previous_broker_epoch: int
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., broker_id: _Optional[int] = ..., cluster_id: _Optional[str] = ..., incarnation_id: _Optional[bytes] = ..., listeners: _Optional[_Iterable[_Union[Listener, _Mapping]]] = ..., rack: _Optional[str] = ..., directories: _Optional[_Iterable[bytes]] = ..., features: _Optional[_Iterable[_Union[Feature, _Mapping]]] = ..., previous_broker_epoch: _Optional[int] = ...) -> None: ...

class RegisterBrokerAnswer(_message.Message):
    __slots__ = ("fault", "broker_epoch")
    FAULT_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    fault: Fault
    broker_epoch: int
    def __init__(self, fault: _Optional[_Union[Fault, _Mapping]] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class HeartbeatMessage(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "metadata_offset", "want_fence", "want_shutdown")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    WANT_FENCE_FIELD_NUMBER: _ClassVar[int]
    WANT_SHUTDOWN_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    metadata_offset: int
    want_fence: bool
    want_shutdown: bool
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., metadata_offset: _Optional[int] = ..., want_fence: _Optional[bool] = ..., want_shutdown: _Optional[bool] = ...) -> None: ...

class HeartbeatAnswer(_message.Message):
    __slots__ = ("fault", "is_caught_up", "is_fenced", "should_shutdown", "report_offset")
    FAULT_FIELD_NUMBER: _ClassVar[int]
    IS_CAUGHT_UP_FIELD_NUMBER: _ClassVar[int]
    IS_FENCED_FIELD_NUMBER: _ClassVar[int]
    SHOULD_SHUTDOWN_FIELD_NUMBER: _ClassVar[int]
    REPORT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    fault: Fault
    is_caught_up: bool
    is_fenced: bool
    should_shutdown: bool
    report_offset: int
    def __init__(self, fault: _Optional[_Union[Fault, _Mapping]] = ..., is_caught_up: _Optional[bool] = ..., is_fenced: _Optional[bool] = ..., should_shutdown: _Optional[bool] = ..., report_offset: _Optional[int] = ...) -> None: ...

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
    __slots__ = ("fault", "topic_id", "partition_id", "leader", "leader_epoch", "isr", "leader_recovery_state", "partition_epoch")
    FAULT_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    LEADER_RECOVERY_STATE_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    fault: Fault
    topic_id: bytes
    partition_id: int
    leader: int
    leader_epoch: int
    isr: _containers.RepeatedScalarFieldContainer[int]
    leader_recovery_state: int
    partition_epoch: int
    def __init__(self, fault: _Optional[_Union[Fault, _Mapping]] = ..., topic_id: _Optional[bytes] = ..., partition_id: _Optional[int] = ..., leader: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., isr: _Optional[_Iterable[int]] = ..., leader_recovery_state: _Optional[int] = ..., partition_epoch: _Optional[int] = ...) -> None: ...

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
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., topics: _Optional[_Iterable[_Union[NewTopic, _Mapping]]] = ..., validate_only: _Optional[bool] = ...) -> None: ...

class MadeTopic(_message.Message):
    __slots__ = ("fault", "name", "topic_id", "partition_count", "replication_factor", "configs")
    class ConfigsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    FAULT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    fault: Fault
    name: str
    topic_id: bytes
    partition_count: int
    replication_factor: int
    configs: _containers.ScalarMap[str, str]
    def __init__(self, fault: _Optional[_Union[Fault, _Mapping]] = ..., name: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partition_count: _Optional[int] = ..., replication_factor: _Optional[int] = ..., configs: _Optional[_Mapping[str, str]] = ...) -> None: ...

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
    __slots__ = ("fault", "name", "topic_id")
    FAULT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    fault: Fault
    name: str
    topic_id: bytes
    def __init__(self, fault: _Optional[_Union[Fault, _Mapping]] = ..., name: _Optional[str] = ..., topic_id: _Optional[bytes] = ...) -> None: ...

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
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., topics: _Optional[_Iterable[_Union[MorePartitions, _Mapping]]] = ..., validate_only: _Optional[bool] = ...) -> None: ...

class GrownTopicState(_message.Message):
    __slots__ = ("fault", "name")
    FAULT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    fault: Fault
    name: str
    def __init__(self, fault: _Optional[_Union[Fault, _Mapping]] = ..., name: _Optional[str] = ...) -> None: ...

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
    __slots__ = ("resource_type", "resource_name", "edits")
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    EDITS_FIELD_NUMBER: _ClassVar[int]
    resource_type: int
    resource_name: str
    edits: _containers.RepeatedCompositeFieldContainer[ConfigEdit]
    def __init__(self, resource_type: _Optional[int] = ..., resource_name: _Optional[str] = ..., edits: _Optional[_Iterable[_Union[ConfigEdit, _Mapping]]] = ...) -> None: ...

class IncrementalAlterConfigsCall(_message.Message):
    __slots__ = ("caller", "resources", "validate_only")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    resources: _containers.RepeatedCompositeFieldContainer[ConfigEdits]
    validate_only: bool
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., resources: _Optional[_Iterable[_Union[ConfigEdits, _Mapping]]] = ..., validate_only: _Optional[bool] = ...) -> None: ...

class EditedConfig(_message.Message):
    __slots__ = ("fault", "resource_type", "resource_name")
    FAULT_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    fault: Fault
    resource_type: int
    resource_name: str
    def __init__(self, fault: _Optional[_Union[Fault, _Mapping]] = ..., resource_type: _Optional[int] = ..., resource_name: _Optional[str] = ...) -> None: ...

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
