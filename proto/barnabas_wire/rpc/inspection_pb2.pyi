from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PartHash(_message.Message):
    __slots__ = ("part", "hash")
    PART_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    part: str
    hash: bytes
    def __init__(self, part: _Optional[str] = ..., hash: _Optional[bytes] = ...) -> None: ...

class Comparison(_message.Message):
    __slots__ = ("offset", "at_ms", "matches", "own", "agreed")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    MATCHES_FIELD_NUMBER: _ClassVar[int]
    OWN_FIELD_NUMBER: _ClassVar[int]
    AGREED_FIELD_NUMBER: _ClassVar[int]
    offset: int
    at_ms: int
    matches: bool
    own: _containers.RepeatedCompositeFieldContainer[PartHash]
    agreed: _containers.RepeatedCompositeFieldContainer[PartHash]
    def __init__(self, offset: _Optional[int] = ..., at_ms: _Optional[int] = ..., matches: bool = ..., own: _Optional[_Iterable[_Union[PartHash, _Mapping]]] = ..., agreed: _Optional[_Iterable[_Union[PartHash, _Mapping]]] = ...) -> None: ...

class BadRecord(_message.Message):
    __slots__ = ("offset", "epoch", "batch_offset", "batch_end_offset", "digest", "size", "head", "reason", "error", "entity", "is_in_snapshot")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BATCH_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BATCH_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    IS_IN_SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    offset: int
    epoch: int
    batch_offset: int
    batch_end_offset: int
    digest: bytes
    size: int
    head: bytes
    reason: str
    error: str
    entity: str
    is_in_snapshot: bool
    def __init__(self, offset: _Optional[int] = ..., epoch: _Optional[int] = ..., batch_offset: _Optional[int] = ..., batch_end_offset: _Optional[int] = ..., digest: _Optional[bytes] = ..., size: _Optional[int] = ..., head: _Optional[bytes] = ..., reason: _Optional[str] = ..., error: _Optional[str] = ..., entity: _Optional[str] = ..., is_in_snapshot: bool = ...) -> None: ...

class Blocked(_message.Message):
    __slots__ = ("record", "following", "since_ms", "read_offset")
    RECORD_FIELD_NUMBER: _ClassVar[int]
    FOLLOWING_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    READ_OFFSET_FIELD_NUMBER: _ClassVar[int]
    record: BadRecord
    following: _containers.RepeatedCompositeFieldContainer[BadRecord]
    since_ms: int
    read_offset: int
    def __init__(self, record: _Optional[_Union[BadRecord, _Mapping]] = ..., following: _Optional[_Iterable[_Union[BadRecord, _Mapping]]] = ..., since_ms: _Optional[int] = ..., read_offset: _Optional[int] = ...) -> None: ...

class PassedOver(_message.Message):
    __slots__ = ("offset", "digest", "principal", "reason")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    offset: int
    digest: bytes
    principal: str
    reason: str
    def __init__(self, offset: _Optional[int] = ..., digest: _Optional[bytes] = ..., principal: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class Uncleanable(_message.Message):
    __slots__ = ("topic", "partition", "fault")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    fault: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., fault: _Optional[str] = ...) -> None: ...

class DescribeImageRequest(_message.Message):
    __slots__ = ("recompute",)
    RECOMPUTE_FIELD_NUMBER: _ClassVar[int]
    recompute: bool
    def __init__(self, recompute: bool = ...) -> None: ...

class DescribeImageResponse(_message.Message):
    __slots__ = ("node_id", "roles", "cluster_id", "applied_offset", "applied_epoch", "high_watermark", "leader_id", "hash_format", "parts", "recomputed", "comparisons", "compared", "mismatched", "blocked", "passed_over", "log_start_offset", "version", "uncleanable", "uncleanable_count")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ROLES_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    APPLIED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    APPLIED_EPOCH_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    HASH_FORMAT_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    RECOMPUTED_FIELD_NUMBER: _ClassVar[int]
    COMPARISONS_FIELD_NUMBER: _ClassVar[int]
    COMPARED_FIELD_NUMBER: _ClassVar[int]
    MISMATCHED_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_FIELD_NUMBER: _ClassVar[int]
    PASSED_OVER_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    UNCLEANABLE_FIELD_NUMBER: _ClassVar[int]
    UNCLEANABLE_COUNT_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    roles: _containers.RepeatedScalarFieldContainer[str]
    cluster_id: str
    applied_offset: int
    applied_epoch: int
    high_watermark: int
    leader_id: int
    hash_format: int
    parts: _containers.RepeatedCompositeFieldContainer[PartHash]
    recomputed: _containers.RepeatedCompositeFieldContainer[PartHash]
    comparisons: _containers.RepeatedCompositeFieldContainer[Comparison]
    compared: int
    mismatched: int
    blocked: Blocked
    passed_over: _containers.RepeatedCompositeFieldContainer[PassedOver]
    log_start_offset: int
    version: str
    uncleanable: _containers.RepeatedCompositeFieldContainer[Uncleanable]
    uncleanable_count: int
    def __init__(self, node_id: _Optional[int] = ..., roles: _Optional[_Iterable[str]] = ..., cluster_id: _Optional[str] = ..., applied_offset: _Optional[int] = ..., applied_epoch: _Optional[int] = ..., high_watermark: _Optional[int] = ..., leader_id: _Optional[int] = ..., hash_format: _Optional[int] = ..., parts: _Optional[_Iterable[_Union[PartHash, _Mapping]]] = ..., recomputed: _Optional[_Iterable[_Union[PartHash, _Mapping]]] = ..., comparisons: _Optional[_Iterable[_Union[Comparison, _Mapping]]] = ..., compared: _Optional[int] = ..., mismatched: _Optional[int] = ..., blocked: _Optional[_Union[Blocked, _Mapping]] = ..., passed_over: _Optional[_Iterable[_Union[PassedOver, _Mapping]]] = ..., log_start_offset: _Optional[int] = ..., version: _Optional[str] = ..., uncleanable: _Optional[_Iterable[_Union[Uncleanable, _Mapping]]] = ..., uncleanable_count: _Optional[int] = ...) -> None: ...

class CompareImagesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CompareImagesResponse(_message.Message):
    __slots__ = ("offset",)
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    offset: int
    def __init__(self, offset: _Optional[int] = ...) -> None: ...

class Entity(_message.Message):
    __slots__ = ("name", "hash")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    name: str
    hash: bytes
    def __init__(self, name: _Optional[str] = ..., hash: _Optional[bytes] = ...) -> None: ...

class ListEntitiesRequest(_message.Message):
    __slots__ = ("part", "comparison_offset")
    PART_FIELD_NUMBER: _ClassVar[int]
    COMPARISON_OFFSET_FIELD_NUMBER: _ClassVar[int]
    part: str
    comparison_offset: int
    def __init__(self, part: _Optional[str] = ..., comparison_offset: _Optional[int] = ...) -> None: ...

class EntityPage(_message.Message):
    __slots__ = ("applied_offset", "entities")
    APPLIED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ENTITIES_FIELD_NUMBER: _ClassVar[int]
    applied_offset: int
    entities: _containers.RepeatedCompositeFieldContainer[Entity]
    def __init__(self, applied_offset: _Optional[int] = ..., entities: _Optional[_Iterable[_Union[Entity, _Mapping]]] = ...) -> None: ...

class LogEntry(_message.Message):
    __slots__ = ("offset", "epoch", "timestamp_ms", "batch_offset", "kind", "json")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    BATCH_OFFSET_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    offset: int
    epoch: int
    timestamp_ms: int
    batch_offset: int
    kind: str
    json: str
    def __init__(self, offset: _Optional[int] = ..., epoch: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., batch_offset: _Optional[int] = ..., kind: _Optional[str] = ..., json: _Optional[str] = ...) -> None: ...

class ReadLogRequest(_message.Message):
    __slots__ = ("follow", "with_noops", "last")
    FROM_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    WITH_NOOPS_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    follow: bool
    with_noops: bool
    last: int
    def __init__(self, follow: bool = ..., with_noops: bool = ..., last: _Optional[int] = ..., **kwargs) -> None: ...

class LogPage(_message.Message):
    __slots__ = ("entries", "high_watermark", "node_id", "leader_id")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[LogEntry]
    high_watermark: int
    node_id: int
    leader_id: int
    def __init__(self, entries: _Optional[_Iterable[_Union[LogEntry, _Mapping]]] = ..., high_watermark: _Optional[int] = ..., node_id: _Optional[int] = ..., leader_id: _Optional[int] = ...) -> None: ...

class DiffImagesRequest(_message.Message):
    __slots__ = ("to",)
    FROM_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    to: int
    def __init__(self, to: _Optional[int] = ..., **kwargs) -> None: ...

class EntityChange(_message.Message):
    __slots__ = ("part", "name", "change", "fields")
    PART_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    part: str
    name: str
    change: str
    fields: _containers.RepeatedCompositeFieldContainer[FieldChange]
    def __init__(self, part: _Optional[str] = ..., name: _Optional[str] = ..., change: _Optional[str] = ..., fields: _Optional[_Iterable[_Union[FieldChange, _Mapping]]] = ...) -> None: ...

class FieldChange(_message.Message):
    __slots__ = ("field", "before", "after")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    field: str
    before: str
    after: str
    def __init__(self, field: _Optional[str] = ..., before: _Optional[str] = ..., after: _Optional[str] = ...) -> None: ...

class DiffImagesResponse(_message.Message):
    __slots__ = ("to", "from_ms", "to_ms", "records", "changes", "answered_by")
    FROM_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    FROM_MS_FIELD_NUMBER: _ClassVar[int]
    TO_MS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_BY_FIELD_NUMBER: _ClassVar[int]
    to: int
    from_ms: int
    to_ms: int
    records: int
    changes: _containers.RepeatedCompositeFieldContainer[EntityChange]
    answered_by: int
    def __init__(self, to: _Optional[int] = ..., from_ms: _Optional[int] = ..., to_ms: _Optional[int] = ..., records: _Optional[int] = ..., changes: _Optional[_Iterable[_Union[EntityChange, _Mapping]]] = ..., answered_by: _Optional[int] = ..., **kwargs) -> None: ...

class SignOffRequest(_message.Message):
    __slots__ = ("offset", "digest", "reason")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    offset: int
    digest: bytes
    reason: str
    def __init__(self, offset: _Optional[int] = ..., digest: _Optional[bytes] = ..., reason: _Optional[str] = ...) -> None: ...

class SignOffResponse(_message.Message):
    __slots__ = ("signed_at_offset",)
    SIGNED_AT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    signed_at_offset: int
    def __init__(self, signed_at_offset: _Optional[int] = ...) -> None: ...
