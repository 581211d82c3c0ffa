from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ResourceType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RESOURCE_TYPE_UNSPECIFIED: _ClassVar[ResourceType]
    RESOURCE_TYPE_TOPIC: _ClassVar[ResourceType]
    RESOURCE_TYPE_BROKER: _ClassVar[ResourceType]
RESOURCE_TYPE_UNSPECIFIED: ResourceType
RESOURCE_TYPE_TOPIC: ResourceType
RESOURCE_TYPE_BROKER: ResourceType

class KafkaCall(_message.Message):
    __slots__ = ("api_key", "api_version", "body", "validate_only")
    API_KEY_FIELD_NUMBER: _ClassVar[int]
    API_VERSION_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    api_key: int
    api_version: int
    body: bytes
    validate_only: bool
    def __init__(self, api_key: _Optional[int] = ..., api_version: _Optional[int] = ..., body: _Optional[bytes] = ..., validate_only: bool = ...) -> None: ...

class KafkaAnswer(_message.Message):
    __slots__ = ("body",)
    BODY_FIELD_NUMBER: _ClassVar[int]
    body: bytes
    def __init__(self, body: _Optional[bytes] = ...) -> None: ...

class ErrorDetail(_message.Message):
    __slots__ = ("code", "name", "message", "hint", "retriable")
    CODE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    RETRIABLE_FIELD_NUMBER: _ClassVar[int]
    code: int
    name: str
    message: str
    hint: str
    retriable: bool
    def __init__(self, code: _Optional[int] = ..., name: _Optional[str] = ..., message: _Optional[str] = ..., hint: _Optional[str] = ..., retriable: bool = ...) -> None: ...

class Listener(_message.Message):
    __slots__ = ("name", "host", "port")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    name: str
    host: str
    port: int
    def __init__(self, name: _Optional[str] = ..., host: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class Broker(_message.Message):
    __slots__ = ("id", "epoch", "fenced", "in_controlled_shutdown", "rack", "listeners", "leader_count", "replica_count", "in_maintenance", "host")
    ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FENCED_FIELD_NUMBER: _ClassVar[int]
    IN_CONTROLLED_SHUTDOWN_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    LISTENERS_FIELD_NUMBER: _ClassVar[int]
    LEADER_COUNT_FIELD_NUMBER: _ClassVar[int]
    REPLICA_COUNT_FIELD_NUMBER: _ClassVar[int]
    IN_MAINTENANCE_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    id: int
    epoch: int
    fenced: bool
    in_controlled_shutdown: bool
    rack: str
    listeners: _containers.RepeatedCompositeFieldContainer[Listener]
    leader_count: int
    replica_count: int
    in_maintenance: bool
    host: str
    def __init__(self, id: _Optional[int] = ..., epoch: _Optional[int] = ..., fenced: bool = ..., in_controlled_shutdown: bool = ..., rack: _Optional[str] = ..., listeners: _Optional[_Iterable[_Union[Listener, _Mapping]]] = ..., leader_count: _Optional[int] = ..., replica_count: _Optional[int] = ..., in_maintenance: bool = ..., host: _Optional[str] = ...) -> None: ...

class Controller(_message.Message):
    __slots__ = ("id", "listeners", "registered", "incarnation_id", "voter")
    ID_FIELD_NUMBER: _ClassVar[int]
    LISTENERS_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    VOTER_FIELD_NUMBER: _ClassVar[int]
    id: int
    listeners: _containers.RepeatedCompositeFieldContainer[Listener]
    registered: bool
    incarnation_id: str
    voter: bool
    def __init__(self, id: _Optional[int] = ..., listeners: _Optional[_Iterable[_Union[Listener, _Mapping]]] = ..., registered: bool = ..., incarnation_id: _Optional[str] = ..., voter: bool = ...) -> None: ...

class DescribeClusterRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeClusterResponse(_message.Message):
    __slots__ = ("cluster_id", "answered_by", "answered_by_roles", "controller_id", "controller_epoch", "metadata_offset", "brokers", "controllers", "topic_count", "partition_count", "software_version")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_BY_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_BY_ROLES_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_ID_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    CONTROLLERS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_COUNT_FIELD_NUMBER: _ClassVar[int]
    PARTITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_VERSION_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    answered_by: int
    answered_by_roles: _containers.RepeatedScalarFieldContainer[str]
    controller_id: int
    controller_epoch: int
    metadata_offset: int
    brokers: _containers.RepeatedCompositeFieldContainer[Broker]
    controllers: _containers.RepeatedCompositeFieldContainer[Controller]
    topic_count: int
    partition_count: int
    software_version: str
    def __init__(self, cluster_id: _Optional[str] = ..., answered_by: _Optional[int] = ..., answered_by_roles: _Optional[_Iterable[str]] = ..., controller_id: _Optional[int] = ..., controller_epoch: _Optional[int] = ..., metadata_offset: _Optional[int] = ..., brokers: _Optional[_Iterable[_Union[Broker, _Mapping]]] = ..., controllers: _Optional[_Iterable[_Union[Controller, _Mapping]]] = ..., topic_count: _Optional[int] = ..., partition_count: _Optional[int] = ..., software_version: _Optional[str] = ...) -> None: ...

class LostHost(_message.Message):
    __slots__ = ("host", "brokers", "at_min_isr")
    HOST_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    AT_MIN_ISR_FIELD_NUMBER: _ClassVar[int]
    host: str
    brokers: _containers.RepeatedScalarFieldContainer[int]
    at_min_isr: int
    def __init__(self, host: _Optional[str] = ..., brokers: _Optional[_Iterable[int]] = ..., at_min_isr: _Optional[int] = ...) -> None: ...

class DescribeHealthRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeHealthResponse(_message.Message):
    __slots__ = ("is_healthy", "reasons", "controller_id", "controller_epoch", "voters", "voters_down", "brokers", "brokers_fenced", "partitions", "leaderless", "under_min_isr", "under_replicated", "not_preferred_leader", "metadata_timestamp_ms", "brokers_in_maintenance", "acls_in_vain", "acls_in_vain_count", "sharing_host", "hosts_lost")
    IS_HEALTHY_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_ID_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    VOTERS_FIELD_NUMBER: _ClassVar[int]
    VOTERS_DOWN_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FENCED_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    LEADERLESS_FIELD_NUMBER: _ClassVar[int]
    UNDER_MIN_ISR_FIELD_NUMBER: _ClassVar[int]
    UNDER_REPLICATED_FIELD_NUMBER: _ClassVar[int]
    NOT_PREFERRED_LEADER_FIELD_NUMBER: _ClassVar[int]
    METADATA_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    BROKERS_IN_MAINTENANCE_FIELD_NUMBER: _ClassVar[int]
    ACLS_IN_VAIN_FIELD_NUMBER: _ClassVar[int]
    ACLS_IN_VAIN_COUNT_FIELD_NUMBER: _ClassVar[int]
    SHARING_HOST_FIELD_NUMBER: _ClassVar[int]
    HOSTS_LOST_FIELD_NUMBER: _ClassVar[int]
    is_healthy: bool
    reasons: _containers.RepeatedScalarFieldContainer[str]
    controller_id: int
    controller_epoch: int
    voters: _containers.RepeatedScalarFieldContainer[int]
    voters_down: _containers.RepeatedScalarFieldContainer[int]
    brokers: _containers.RepeatedScalarFieldContainer[int]
    brokers_fenced: _containers.RepeatedScalarFieldContainer[int]
    partitions: int
    leaderless: int
    under_min_isr: int
    under_replicated: int
    not_preferred_leader: int
    metadata_timestamp_ms: int
    brokers_in_maintenance: _containers.RepeatedScalarFieldContainer[int]
    acls_in_vain: _containers.RepeatedScalarFieldContainer[str]
    acls_in_vain_count: int
    sharing_host: int
    hosts_lost: _containers.RepeatedCompositeFieldContainer[LostHost]
    def __init__(self, is_healthy: bool = ..., reasons: _Optional[_Iterable[str]] = ..., controller_id: _Optional[int] = ..., controller_epoch: _Optional[int] = ..., voters: _Optional[_Iterable[int]] = ..., voters_down: _Optional[_Iterable[int]] = ..., brokers: _Optional[_Iterable[int]] = ..., brokers_fenced: _Optional[_Iterable[int]] = ..., partitions: _Optional[int] = ..., leaderless: _Optional[int] = ..., under_min_isr: _Optional[int] = ..., under_replicated: _Optional[int] = ..., not_preferred_leader: _Optional[int] = ..., metadata_timestamp_ms: _Optional[int] = ..., brokers_in_maintenance: _Optional[_Iterable[int]] = ..., acls_in_vain: _Optional[_Iterable[str]] = ..., acls_in_vain_count: _Optional[int] = ..., sharing_host: _Optional[int] = ..., hosts_lost: _Optional[_Iterable[_Union[LostHost, _Mapping]]] = ...) -> None: ...

class QuorumReplica(_message.Message):
    __slots__ = ("id", "directory_id", "role", "log_end_offset", "lag_records", "last_fetch_timestamp_ms", "last_caught_up_timestamp_ms", "endpoint")
    ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAG_RECORDS_FIELD_NUMBER: _ClassVar[int]
    LAST_FETCH_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_CAUGHT_UP_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    id: int
    directory_id: str
    role: str
    log_end_offset: int
    lag_records: int
    last_fetch_timestamp_ms: int
    last_caught_up_timestamp_ms: int
    endpoint: str
    def __init__(self, id: _Optional[int] = ..., directory_id: _Optional[str] = ..., role: _Optional[str] = ..., log_end_offset: _Optional[int] = ..., lag_records: _Optional[int] = ..., last_fetch_timestamp_ms: _Optional[int] = ..., last_caught_up_timestamp_ms: _Optional[int] = ..., endpoint: _Optional[str] = ...) -> None: ...

class DescribeQuorumRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeQuorumResponse(_message.Message):
    __slots__ = ("cluster_id", "leader_id", "leader_epoch", "high_watermark", "replicas", "described_at_ms", "recovered_beside")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    DESCRIBED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    RECOVERED_BESIDE_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    leader_id: int
    leader_epoch: int
    high_watermark: int
    replicas: _containers.RepeatedCompositeFieldContainer[QuorumReplica]
    described_at_ms: int
    recovered_beside: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, cluster_id: _Optional[str] = ..., leader_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., high_watermark: _Optional[int] = ..., replicas: _Optional[_Iterable[_Union[QuorumReplica, _Mapping]]] = ..., described_at_ms: _Optional[int] = ..., recovered_beside: _Optional[_Iterable[str]] = ...) -> None: ...

class ListBrokersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListBrokersResponse(_message.Message):
    __slots__ = ("brokers", "controller_id")
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_ID_FIELD_NUMBER: _ClassVar[int]
    brokers: _containers.RepeatedCompositeFieldContainer[Broker]
    controller_id: int
    def __init__(self, brokers: _Optional[_Iterable[_Union[Broker, _Mapping]]] = ..., controller_id: _Optional[int] = ...) -> None: ...

class TopicSummary(_message.Message):
    __slots__ = ("name", "id", "partitions", "replication_factor", "internal", "under_replicated", "leaderless")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    INTERNAL_FIELD_NUMBER: _ClassVar[int]
    UNDER_REPLICATED_FIELD_NUMBER: _ClassVar[int]
    LEADERLESS_FIELD_NUMBER: _ClassVar[int]
    name: str
    id: str
    partitions: int
    replication_factor: int
    internal: bool
    under_replicated: int
    leaderless: int
    def __init__(self, name: _Optional[str] = ..., id: _Optional[str] = ..., partitions: _Optional[int] = ..., replication_factor: _Optional[int] = ..., internal: bool = ..., under_replicated: _Optional[int] = ..., leaderless: _Optional[int] = ...) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ("include_internal",)
    INCLUDE_INTERNAL_FIELD_NUMBER: _ClassVar[int]
    include_internal: bool
    def __init__(self, include_internal: bool = ...) -> None: ...

class ListTopicsResponse(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicSummary]
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicSummary, _Mapping]]] = ...) -> None: ...

class Partition(_message.Message):
    __slots__ = ("partition", "leader", "leader_epoch", "partition_epoch", "replicas", "isr", "elr", "offline_replicas", "flags")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    ELR_FIELD_NUMBER: _ClassVar[int]
    OFFLINE_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    FLAGS_FIELD_NUMBER: _ClassVar[int]
    partition: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    isr: _containers.RepeatedScalarFieldContainer[int]
    elr: _containers.RepeatedScalarFieldContainer[int]
    offline_replicas: _containers.RepeatedScalarFieldContainer[int]
    flags: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, partition: _Optional[int] = ..., leader: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., partition_epoch: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ..., isr: _Optional[_Iterable[int]] = ..., elr: _Optional[_Iterable[int]] = ..., offline_replicas: _Optional[_Iterable[int]] = ..., flags: _Optional[_Iterable[str]] = ...) -> None: ...

class Topic(_message.Message):
    __slots__ = ("name", "id", "internal", "partitions", "overrides", "error")
    class OverridesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    INTERNAL_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    OVERRIDES_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    name: str
    id: str
    internal: bool
    partitions: _containers.RepeatedCompositeFieldContainer[Partition]
    overrides: _containers.ScalarMap[str, str]
    error: ErrorDetail
    def __init__(self, name: _Optional[str] = ..., id: _Optional[str] = ..., internal: bool = ..., partitions: _Optional[_Iterable[_Union[Partition, _Mapping]]] = ..., overrides: _Optional[_Mapping[str, str]] = ..., error: _Optional[_Union[ErrorDetail, _Mapping]] = ...) -> None: ...

class DescribeTopicsRequest(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...

class DescribeTopicsResponse(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[Topic]
    def __init__(self, topics: _Optional[_Iterable[_Union[Topic, _Mapping]]] = ...) -> None: ...

class NewTopic(_message.Message):
    __slots__ = ("name", "partitions", "replication_factor", "configs")
    class ConfigsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: int
    replication_factor: int
    configs: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[int] = ..., replication_factor: _Optional[int] = ..., configs: _Optional[_Mapping[str, str]] = ...) -> None: ...

class CreateTopicsRequest(_message.Message):
    __slots__ = ("topics", "validate_only")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[NewTopic]
    validate_only: bool
    def __init__(self, topics: _Optional[_Iterable[_Union[NewTopic, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class TopicOutcome(_message.Message):
    __slots__ = ("name", "id", "partitions", "replication_factor", "error")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    name: str
    id: str
    partitions: int
    replication_factor: int
    error: ErrorDetail
    def __init__(self, name: _Optional[str] = ..., id: _Optional[str] = ..., partitions: _Optional[int] = ..., replication_factor: _Optional[int] = ..., error: _Optional[_Union[ErrorDetail, _Mapping]] = ...) -> None: ...

class CreateTopicsResponse(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicOutcome]
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicOutcome, _Mapping]]] = ...) -> None: ...

class DeleteTopicsRequest(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...

class DeleteTopicsResponse(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicOutcome]
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicOutcome, _Mapping]]] = ...) -> None: ...

class AddPartitionsRequest(_message.Message):
    __slots__ = ("name", "total", "validate_only")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    name: str
    total: int
    validate_only: bool
    def __init__(self, name: _Optional[str] = ..., total: _Optional[int] = ..., validate_only: bool = ...) -> None: ...

class AddPartitionsResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: TopicOutcome
    def __init__(self, topic: _Optional[_Union[TopicOutcome, _Mapping]] = ...) -> None: ...

class ConfigEntry(_message.Message):
    __slots__ = ("key", "value", "source", "doc")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    DOC_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: str
    source: str
    doc: str
    def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ..., source: _Optional[str] = ..., doc: _Optional[str] = ...) -> None: ...

class DescribeConfigsRequest(_message.Message):
    __slots__ = ("type", "name", "only_overrides")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ONLY_OVERRIDES_FIELD_NUMBER: _ClassVar[int]
    type: ResourceType
    name: str
    only_overrides: bool
    def __init__(self, type: _Optional[_Union[ResourceType, str]] = ..., name: _Optional[str] = ..., only_overrides: bool = ...) -> None: ...

class DescribeConfigsResponse(_message.Message):
    __slots__ = ("entries",)
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[ConfigEntry]
    def __init__(self, entries: _Optional[_Iterable[_Union[ConfigEntry, _Mapping]]] = ...) -> None: ...

class ConfigChange(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: str
    def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class AlterConfigsRequest(_message.Message):
    __slots__ = ("type", "name", "changes", "validate_only")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    type: ResourceType
    name: str
    changes: _containers.RepeatedCompositeFieldContainer[ConfigChange]
    validate_only: bool
    def __init__(self, type: _Optional[_Union[ResourceType, str]] = ..., name: _Optional[str] = ..., changes: _Optional[_Iterable[_Union[ConfigChange, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class AlterConfigsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TopicPartition(_message.Message):
    __slots__ = ("topic", "partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...

class PartitionOutcome(_message.Message):
    __slots__ = ("topic", "partition", "leader", "error")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    leader: int
    error: ErrorDetail
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., leader: _Optional[int] = ..., error: _Optional[_Union[ErrorDetail, _Mapping]] = ...) -> None: ...

class ElectLeadersRequest(_message.Message):
    __slots__ = ("unclean", "all", "partitions")
    UNCLEAN_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    unclean: bool
    all: bool
    partitions: _containers.RepeatedCompositeFieldContainer[TopicPartition]
    def __init__(self, unclean: bool = ..., all: bool = ..., partitions: _Optional[_Iterable[_Union[TopicPartition, _Mapping]]] = ...) -> None: ...

class ElectLeadersResponse(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionOutcome]
    def __init__(self, partitions: _Optional[_Iterable[_Union[PartitionOutcome, _Mapping]]] = ...) -> None: ...

class Reassignment(_message.Message):
    __slots__ = ("topic", "partition", "replicas")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ...) -> None: ...

class AlterReassignmentsRequest(_message.Message):
    __slots__ = ("reassignments", "validate_only")
    REASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    reassignments: _containers.RepeatedCompositeFieldContainer[Reassignment]
    validate_only: bool
    def __init__(self, reassignments: _Optional[_Iterable[_Union[Reassignment, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class AlterReassignmentsResponse(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionOutcome]
    def __init__(self, partitions: _Optional[_Iterable[_Union[PartitionOutcome, _Mapping]]] = ...) -> None: ...

class ListReassignmentsRequest(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topics: _Optional[_Iterable[str]] = ...) -> None: ...

class OngoingReassignment(_message.Message):
    __slots__ = ("topic", "partition", "replicas", "adding", "removing", "isr", "waiting_for", "fenced")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ADDING_FIELD_NUMBER: _ClassVar[int]
    REMOVING_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    WAITING_FOR_FIELD_NUMBER: _ClassVar[int]
    FENCED_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    adding: _containers.RepeatedScalarFieldContainer[int]
    removing: _containers.RepeatedScalarFieldContainer[int]
    isr: _containers.RepeatedScalarFieldContainer[int]
    waiting_for: _containers.RepeatedScalarFieldContainer[int]
    fenced: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ..., adding: _Optional[_Iterable[int]] = ..., removing: _Optional[_Iterable[int]] = ..., isr: _Optional[_Iterable[int]] = ..., waiting_for: _Optional[_Iterable[int]] = ..., fenced: _Optional[_Iterable[int]] = ...) -> None: ...

class ListReassignmentsResponse(_message.Message):
    __slots__ = ("reassignments",)
    REASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    reassignments: _containers.RepeatedCompositeFieldContainer[OngoingReassignment]
    def __init__(self, reassignments: _Optional[_Iterable[_Union[OngoingReassignment, _Mapping]]] = ...) -> None: ...

class AlterMaintenanceRequest(_message.Message):
    __slots__ = ("broker_id", "in_maintenance")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    IN_MAINTENANCE_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    in_maintenance: bool
    def __init__(self, broker_id: _Optional[int] = ..., in_maintenance: bool = ...) -> None: ...

class AlterMaintenanceResponse(_message.Message):
    __slots__ = ("handed_over", "kept")
    HANDED_OVER_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    handed_over: int
    kept: int
    def __init__(self, handed_over: _Optional[int] = ..., kept: _Optional[int] = ...) -> None: ...

class UnregisterBrokerRequest(_message.Message):
    __slots__ = ("broker_id",)
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    def __init__(self, broker_id: _Optional[int] = ...) -> None: ...

class UnregisterBrokerResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FeatureSupport(_message.Message):
    __slots__ = ("node", "min_level", "max_level")
    NODE_FIELD_NUMBER: _ClassVar[int]
    MIN_LEVEL_FIELD_NUMBER: _ClassVar[int]
    MAX_LEVEL_FIELD_NUMBER: _ClassVar[int]
    node: str
    min_level: int
    max_level: int
    def __init__(self, node: _Optional[str] = ..., min_level: _Optional[int] = ..., max_level: _Optional[int] = ...) -> None: ...

class FeatureView(_message.Message):
    __slots__ = ("name", "finalized", "min_level", "max_level", "nodes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FINALIZED_FIELD_NUMBER: _ClassVar[int]
    MIN_LEVEL_FIELD_NUMBER: _ClassVar[int]
    MAX_LEVEL_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    name: str
    finalized: int
    min_level: int
    max_level: int
    nodes: _containers.RepeatedCompositeFieldContainer[FeatureSupport]
    def __init__(self, name: _Optional[str] = ..., finalized: _Optional[int] = ..., min_level: _Optional[int] = ..., max_level: _Optional[int] = ..., nodes: _Optional[_Iterable[_Union[FeatureSupport, _Mapping]]] = ...) -> None: ...

class DescribeFeaturesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeFeaturesResponse(_message.Message):
    __slots__ = ("features", "metadata_offset")
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    features: _containers.RepeatedCompositeFieldContainer[FeatureView]
    metadata_offset: int
    def __init__(self, features: _Optional[_Iterable[_Union[FeatureView, _Mapping]]] = ..., metadata_offset: _Optional[int] = ...) -> None: ...

class FeatureChange(_message.Message):
    __slots__ = ("name", "level", "kind")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    name: str
    level: int
    kind: int
    def __init__(self, name: _Optional[str] = ..., level: _Optional[int] = ..., kind: _Optional[int] = ...) -> None: ...

class UpdateFeaturesRequest(_message.Message):
    __slots__ = ("changes", "validate_only")
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedCompositeFieldContainer[FeatureChange]
    validate_only: bool
    def __init__(self, changes: _Optional[_Iterable[_Union[FeatureChange, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class FeatureOutcome(_message.Message):
    __slots__ = ("name", "before", "level", "error")
    NAME_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    name: str
    before: int
    level: int
    error: ErrorDetail
    def __init__(self, name: _Optional[str] = ..., before: _Optional[int] = ..., level: _Optional[int] = ..., error: _Optional[_Union[ErrorDetail, _Mapping]] = ...) -> None: ...

class UpdateFeaturesResponse(_message.Message):
    __slots__ = ("features",)
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    features: _containers.RepeatedCompositeFieldContainer[FeatureOutcome]
    def __init__(self, features: _Optional[_Iterable[_Union[FeatureOutcome, _Mapping]]] = ...) -> None: ...

class UnregisterControllerRequest(_message.Message):
    __slots__ = ("controller_id",)
    CONTROLLER_ID_FIELD_NUMBER: _ClassVar[int]
    controller_id: int
    def __init__(self, controller_id: _Optional[int] = ...) -> None: ...

class UnregisterControllerResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ChangeVotersRequest(_message.Message):
    __slots__ = ("kind", "id", "directory_id", "host", "port")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ADD: _ClassVar[ChangeVotersRequest.Kind]
        REMOVE: _ClassVar[ChangeVotersRequest.Kind]
    ADD: ChangeVotersRequest.Kind
    REMOVE: ChangeVotersRequest.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    kind: ChangeVotersRequest.Kind
    id: int
    directory_id: str
    host: str
    port: int
    def __init__(self, kind: _Optional[_Union[ChangeVotersRequest.Kind, str]] = ..., id: _Optional[int] = ..., directory_id: _Optional[str] = ..., host: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class ChangeVotersResponse(_message.Message):
    __slots__ = ("id", "directory_id")
    ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    id: int
    directory_id: str
    def __init__(self, id: _Optional[int] = ..., directory_id: _Optional[str] = ...) -> None: ...
