from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ExplainRequest(_message.Message):
    __slots__ = ("subject", "broker_id", "topic", "partition", "replicas")
    class Subject(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        LEADER: _ClassVar[ExplainRequest.Subject]
        BROKER: _ClassVar[ExplainRequest.Subject]
        PARTITION: _ClassVar[ExplainRequest.Subject]
        REASSIGNMENT: _ClassVar[ExplainRequest.Subject]
    LEADER: ExplainRequest.Subject
    BROKER: ExplainRequest.Subject
    PARTITION: ExplainRequest.Subject
    REASSIGNMENT: ExplainRequest.Subject
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    subject: ExplainRequest.Subject
    broker_id: int
    topic: str
    partition: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, subject: _Optional[_Union[ExplainRequest.Subject, str]] = ..., broker_id: _Optional[int] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ...) -> None: ...

class Cause(_message.Message):
    __slots__ = ("offset", "timestamp_ms", "what", "reason", "is_guess")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    IS_GUESS_FIELD_NUMBER: _ClassVar[int]
    offset: int
    timestamp_ms: int
    what: str
    reason: str
    is_guess: bool
    def __init__(self, offset: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., what: _Optional[str] = ..., reason: _Optional[str] = ..., is_guess: bool = ...) -> None: ...

class NextStep(_message.Message):
    __slots__ = ("command", "purpose")
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    PURPOSE_FIELD_NUMBER: _ClassVar[int]
    command: str
    purpose: str
    def __init__(self, command: _Optional[str] = ..., purpose: _Optional[str] = ...) -> None: ...

class ExplainResponse(_message.Message):
    __slots__ = ("subject", "status", "summary", "causes", "facts", "next", "log_from", "log_to", "answered_by", "answered_at_ms")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    CAUSES_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    LOG_FROM_FIELD_NUMBER: _ClassVar[int]
    LOG_TO_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_BY_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    subject: str
    status: str
    summary: str
    causes: _containers.RepeatedCompositeFieldContainer[Cause]
    facts: _containers.RepeatedScalarFieldContainer[str]
    next: _containers.RepeatedCompositeFieldContainer[NextStep]
    log_from: int
    log_to: int
    answered_by: int
    answered_at_ms: int
    def __init__(self, subject: _Optional[str] = ..., status: _Optional[str] = ..., summary: _Optional[str] = ..., causes: _Optional[_Iterable[_Union[Cause, _Mapping]]] = ..., facts: _Optional[_Iterable[str]] = ..., next: _Optional[_Iterable[_Union[NextStep, _Mapping]]] = ..., log_from: _Optional[int] = ..., log_to: _Optional[int] = ..., answered_by: _Optional[int] = ..., answered_at_ms: _Optional[int] = ...) -> None: ...

class DescribeOwnReplicaRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class OwnReplica(_message.Message):
    __slots__ = ("id", "directory_id", "role", "epoch", "leader_id", "voted_id", "last_epoch", "log_end_offset", "flushed_end_offset", "high_watermark", "voters", "incarnation", "unreached", "recovered_beside", "lost_epoch", "lost_end_offset")
    ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    VOTED_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FLUSHED_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    VOTERS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    UNREACHED_FIELD_NUMBER: _ClassVar[int]
    RECOVERED_BESIDE_FIELD_NUMBER: _ClassVar[int]
    LOST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LOST_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    id: int
    directory_id: str
    role: str
    epoch: int
    leader_id: int
    voted_id: int
    last_epoch: int
    log_end_offset: int
    flushed_end_offset: int
    high_watermark: int
    voters: str
    incarnation: str
    unreached: _containers.RepeatedScalarFieldContainer[int]
    recovered_beside: _containers.RepeatedScalarFieldContainer[str]
    lost_epoch: int
    lost_end_offset: int
    def __init__(self, id: _Optional[int] = ..., directory_id: _Optional[str] = ..., role: _Optional[str] = ..., epoch: _Optional[int] = ..., leader_id: _Optional[int] = ..., voted_id: _Optional[int] = ..., last_epoch: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., flushed_end_offset: _Optional[int] = ..., high_watermark: _Optional[int] = ..., voters: _Optional[str] = ..., incarnation: _Optional[str] = ..., unreached: _Optional[_Iterable[int]] = ..., recovered_beside: _Optional[_Iterable[str]] = ..., lost_epoch: _Optional[int] = ..., lost_end_offset: _Optional[int] = ...) -> None: ...

class DescribeSessionsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BrokerSession(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "silent_ms", "connections", "disconnected_ms", "metadata_offset", "clock_skew_ms")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SILENT_MS_FIELD_NUMBER: _ClassVar[int]
    CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    DISCONNECTED_MS_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CLOCK_SKEW_MS_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    silent_ms: int
    connections: int
    disconnected_ms: int
    metadata_offset: int
    clock_skew_ms: int
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., silent_ms: _Optional[int] = ..., connections: _Optional[int] = ..., disconnected_ms: _Optional[int] = ..., metadata_offset: _Optional[int] = ..., clock_skew_ms: _Optional[int] = ...) -> None: ...

class DescribeSessionsResponse(_message.Message):
    __slots__ = ("is_active", "active_ms", "session_timeout_ms", "disconnect_grace_ms", "sessions", "described_at_ms")
    IS_ACTIVE_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_MS_FIELD_NUMBER: _ClassVar[int]
    SESSION_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    DISCONNECT_GRACE_MS_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    DESCRIBED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    is_active: bool
    active_ms: int
    session_timeout_ms: int
    disconnect_grace_ms: int
    sessions: _containers.RepeatedCompositeFieldContainer[BrokerSession]
    described_at_ms: int
    def __init__(self, is_active: bool = ..., active_ms: _Optional[int] = ..., session_timeout_ms: _Optional[int] = ..., disconnect_grace_ms: _Optional[int] = ..., sessions: _Optional[_Iterable[_Union[BrokerSession, _Mapping]]] = ..., described_at_ms: _Optional[int] = ...) -> None: ...
