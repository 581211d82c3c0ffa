from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Replica(_message.Message):
    __slots__ = ("id", "directory_id")
    ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    id: int
    directory_id: bytes
    def __init__(self, id: _Optional[int] = ..., directory_id: _Optional[bytes] = ...) -> None: ...

class Voter(_message.Message):
    __slots__ = ("replica", "host", "port")
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    replica: Replica
    host: str
    port: int
    def __init__(self, replica: _Optional[_Union[Replica, _Mapping]] = ..., host: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class SnapshotId(_message.Message):
    __slots__ = ("end_offset", "epoch")
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    end_offset: int
    epoch: int
    def __init__(self, end_offset: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class CallHeader(_message.Message):
    __slots__ = ("cluster_id", "source", "target", "epoch", "incarnation")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    source: Replica
    target: Replica
    epoch: int
    incarnation: str
    def __init__(self, cluster_id: _Optional[str] = ..., source: _Optional[_Union[Replica, _Mapping]] = ..., target: _Optional[_Union[Replica, _Mapping]] = ..., epoch: _Optional[int] = ..., incarnation: _Optional[str] = ...) -> None: ...

class AnswerHeader(_message.Message):
    __slots__ = ("source", "epoch", "leader_id", "error", "leader")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    source: Replica
    epoch: int
    leader_id: int
    error: int
    leader: Voter
    def __init__(self, source: _Optional[_Union[Replica, _Mapping]] = ..., epoch: _Optional[int] = ..., leader_id: _Optional[int] = ..., error: _Optional[int] = ..., leader: _Optional[_Union[Voter, _Mapping]] = ...) -> None: ...

class VoteCall(_message.Message):
    __slots__ = ("header", "last_epoch", "end_offset", "is_pre_vote", "life")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    LAST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    IS_PRE_VOTE_FIELD_NUMBER: _ClassVar[int]
    LIFE_FIELD_NUMBER: _ClassVar[int]
    header: CallHeader
    last_epoch: int
    end_offset: int
    is_pre_vote: bool
    life: int
    def __init__(self, header: _Optional[_Union[CallHeader, _Mapping]] = ..., last_epoch: _Optional[int] = ..., end_offset: _Optional[int] = ..., is_pre_vote: bool = ..., life: _Optional[int] = ...) -> None: ...

class VoteAnswer(_message.Message):
    __slots__ = ("header", "is_granted", "life")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    IS_GRANTED_FIELD_NUMBER: _ClassVar[int]
    LIFE_FIELD_NUMBER: _ClassVar[int]
    header: AnswerHeader
    is_granted: bool
    life: int
    def __init__(self, header: _Optional[_Union[AnswerHeader, _Mapping]] = ..., is_granted: bool = ..., life: _Optional[int] = ...) -> None: ...

class BeginQuorumEpochCall(_message.Message):
    __slots__ = ("header", "leader")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    header: CallHeader
    leader: Voter
    def __init__(self, header: _Optional[_Union[CallHeader, _Mapping]] = ..., leader: _Optional[_Union[Voter, _Mapping]] = ...) -> None: ...

class BeginQuorumEpochAnswer(_message.Message):
    __slots__ = ("header",)
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: AnswerHeader
    def __init__(self, header: _Optional[_Union[AnswerHeader, _Mapping]] = ...) -> None: ...

class EndQuorumEpochCall(_message.Message):
    __slots__ = ("header", "successors")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    SUCCESSORS_FIELD_NUMBER: _ClassVar[int]
    header: CallHeader
    successors: _containers.RepeatedCompositeFieldContainer[Replica]
    def __init__(self, header: _Optional[_Union[CallHeader, _Mapping]] = ..., successors: _Optional[_Iterable[_Union[Replica, _Mapping]]] = ...) -> None: ...

class EndQuorumEpochAnswer(_message.Message):
    __slots__ = ("header",)
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: AnswerHeader
    def __init__(self, header: _Optional[_Union[AnswerHeader, _Mapping]] = ...) -> None: ...

class FetchCall(_message.Message):
    __slots__ = ("header", "fetch_offset", "last_epoch", "high_watermark", "wait_ms_max", "clock_ms")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    FETCH_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_MAX_FIELD_NUMBER: _ClassVar[int]
    CLOCK_MS_FIELD_NUMBER: _ClassVar[int]
    header: CallHeader
    fetch_offset: int
    last_epoch: int
    high_watermark: int
    wait_ms_max: int
    clock_ms: int
    def __init__(self, header: _Optional[_Union[CallHeader, _Mapping]] = ..., fetch_offset: _Optional[int] = ..., last_epoch: _Optional[int] = ..., high_watermark: _Optional[int] = ..., wait_ms_max: _Optional[int] = ..., clock_ms: _Optional[int] = ...) -> None: ...

class FetchAnswer(_message.Message):
    __slots__ = ("header", "high_watermark", "diverging", "records", "snapshot_id")
    class Diverging(_message.Message):
        __slots__ = ("epoch", "end_offset")
        EPOCH_FIELD_NUMBER: _ClassVar[int]
        END_OFFSET_FIELD_NUMBER: _ClassVar[int]
        epoch: int
        end_offset: int
        def __init__(self, epoch: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...
    HEADER_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    DIVERGING_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    header: AnswerHeader
    high_watermark: int
    diverging: FetchAnswer.Diverging
    records: bytes
    snapshot_id: SnapshotId
    def __init__(self, header: _Optional[_Union[AnswerHeader, _Mapping]] = ..., high_watermark: _Optional[int] = ..., diverging: _Optional[_Union[FetchAnswer.Diverging, _Mapping]] = ..., records: _Optional[bytes] = ..., snapshot_id: _Optional[_Union[SnapshotId, _Mapping]] = ...) -> None: ...

class FetchSnapshotCall(_message.Message):
    __slots__ = ("header", "snapshot_id", "position", "bytes_max")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    header: CallHeader
    snapshot_id: SnapshotId
    position: int
    bytes_max: int
    def __init__(self, header: _Optional[_Union[CallHeader, _Mapping]] = ..., snapshot_id: _Optional[_Union[SnapshotId, _Mapping]] = ..., position: _Optional[int] = ..., bytes_max: _Optional[int] = ...) -> None: ...

class FetchSnapshotAnswer(_message.Message):
    __slots__ = ("header", "snapshot_id", "size", "position", "data")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    header: AnswerHeader
    snapshot_id: SnapshotId
    size: int
    position: int
    data: bytes
    def __init__(self, header: _Optional[_Union[AnswerHeader, _Mapping]] = ..., snapshot_id: _Optional[_Union[SnapshotId, _Mapping]] = ..., size: _Optional[int] = ..., position: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class DescribeReplicaCall(_message.Message):
    __slots__ = ("cluster_id", "incarnation")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    incarnation: str
    def __init__(self, cluster_id: _Optional[str] = ..., incarnation: _Optional[str] = ...) -> None: ...

class DescribeReplicaAnswer(_message.Message):
    __slots__ = ("replica", "kraft_version_min", "kraft_version_max", "incarnation")
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    KRAFT_VERSION_MIN_FIELD_NUMBER: _ClassVar[int]
    KRAFT_VERSION_MAX_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    replica: Replica
    kraft_version_min: int
    kraft_version_max: int
    incarnation: str
    def __init__(self, replica: _Optional[_Union[Replica, _Mapping]] = ..., kraft_version_min: _Optional[int] = ..., kraft_version_max: _Optional[int] = ..., incarnation: _Optional[str] = ...) -> None: ...

class Asker(_message.Message):
    __slots__ = ("principal", "host")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    principal: str
    host: str
    def __init__(self, principal: _Optional[str] = ..., host: _Optional[str] = ...) -> None: ...

class ChangeVotersCall(_message.Message):
    __slots__ = ("cluster_id", "kind", "voter", "joiner", "incarnation", "asker")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ADD: _ClassVar[ChangeVotersCall.Kind]
        REMOVE: _ClassVar[ChangeVotersCall.Kind]
        UPDATE: _ClassVar[ChangeVotersCall.Kind]
        UPGRADE: _ClassVar[ChangeVotersCall.Kind]
    ADD: ChangeVotersCall.Kind
    REMOVE: ChangeVotersCall.Kind
    UPDATE: ChangeVotersCall.Kind
    UPGRADE: ChangeVotersCall.Kind
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    VOTER_FIELD_NUMBER: _ClassVar[int]
    JOINER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ASKER_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    kind: ChangeVotersCall.Kind
    voter: Voter
    joiner: Replica
    incarnation: str
    asker: Asker
    def __init__(self, cluster_id: _Optional[str] = ..., kind: _Optional[_Union[ChangeVotersCall.Kind, str]] = ..., voter: _Optional[_Union[Voter, _Mapping]] = ..., joiner: _Optional[_Union[Replica, _Mapping]] = ..., incarnation: _Optional[str] = ..., asker: _Optional[_Union[Asker, _Mapping]] = ...) -> None: ...

class ChangeVotersAnswer(_message.Message):
    __slots__ = ("error", "reason", "leader")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    error: int
    reason: str
    leader: Voter
    def __init__(self, error: _Optional[int] = ..., reason: _Optional[str] = ..., leader: _Optional[_Union[Voter, _Mapping]] = ...) -> None: ...
