from google.protobuf.internal import containers as _containers
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

class CallHeader(_message.Message):
    __slots__ = ("cluster_id", "source", "target", "epoch")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    source: Replica
    target: Replica
    epoch: int
    def __init__(self, cluster_id: _Optional[str] = ..., source: _Optional[_Union[Replica, _Mapping]] = ..., target: _Optional[_Union[Replica, _Mapping]] = ..., epoch: _Optional[int] = ...) -> None: ...

class AnswerHeader(_message.Message):
    __slots__ = ("source", "epoch", "leader_id", "error")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    source: Replica
    epoch: int
    leader_id: int
    error: int
    def __init__(self, source: _Optional[_Union[Replica, _Mapping]] = ..., epoch: _Optional[int] = ..., leader_id: _Optional[int] = ..., error: _Optional[int] = ...) -> None: ...

class VoteCall(_message.Message):
    __slots__ = ("header", "last_epoch", "end_offset", "is_pre_vote")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    LAST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    IS_PRE_VOTE_FIELD_NUMBER: _ClassVar[int]
    header: CallHeader
    last_epoch: int
    end_offset: int
    is_pre_vote: bool
    def __init__(self, header: _Optional[_Union[CallHeader, _Mapping]] = ..., last_epoch: _Optional[int] = ..., end_offset: _Optional[int] = ..., is_pre_vote: _Optional[bool] = ...) -> None: ...

class VoteAnswer(_message.Message):
    __slots__ = ("header", "is_granted")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    IS_GRANTED_FIELD_NUMBER: _ClassVar[int]
    header: AnswerHeader
    is_granted: bool
    def __init__(self, header: _Optional[_Union[AnswerHeader, _Mapping]] = ..., is_granted: _Optional[bool] = ...) -> None: ...

class BeginQuorumEpochCall(_message.Message):
    __slots__ = ("header",)
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: CallHeader
    def __init__(self, header: _Optional[_Union[CallHeader, _Mapping]] = ...) -> None: ...

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
    __slots__ = ("header", "fetch_offset", "last_epoch", "high_watermark", "wait_ms_max")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    FETCH_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_MAX_FIELD_NUMBER: _ClassVar[int]
    header: CallHeader
    fetch_offset: int
    last_epoch: int
    high_watermark: int
    wait_ms_max: int
    def __init__(self, header: _Optional[_Union[CallHeader, _Mapping]] = ..., fetch_offset: _Optional[int] = ..., last_epoch: _Optional[int] = ..., high_watermark: _Optional[int] = ..., wait_ms_max: _Optional[int] = ...) -> None: ...

class FetchAnswer(_message.Message):
    __slots__ = ("header", "high_watermark", "diverging", "records")
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
    header: AnswerHeader
    high_watermark: int
    diverging: FetchAnswer.Diverging
    records: bytes
    def __init__(self, header: _Optional[_Union[AnswerHeader, _Mapping]] = ..., high_watermark: _Optional[int] = ..., diverging: _Optional[_Union[FetchAnswer.Diverging, _Mapping]] = ..., records: _Optional[bytes] = ...) -> None: ...
