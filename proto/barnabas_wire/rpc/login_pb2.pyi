from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class BeginLoginRequest(_message.Message):
    __slots__ = ("mechanism", "client_first")
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIRST_FIELD_NUMBER: _ClassVar[int]
    mechanism: str
    client_first: bytes
    def __init__(self, mechanism: _Optional[str] = ..., client_first: _Optional[bytes] = ...) -> None: ...

class BeginLoginResponse(_message.Message):
    __slots__ = ("exchange", "server_first")
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIRST_FIELD_NUMBER: _ClassVar[int]
    exchange: bytes
    server_first: bytes
    def __init__(self, exchange: _Optional[bytes] = ..., server_first: _Optional[bytes] = ...) -> None: ...

class FinishLoginRequest(_message.Message):
    __slots__ = ("exchange", "client_final")
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FINAL_FIELD_NUMBER: _ClassVar[int]
    exchange: bytes
    client_final: bytes
    def __init__(self, exchange: _Optional[bytes] = ..., client_final: _Optional[bytes] = ...) -> None: ...

class FinishLoginResponse(_message.Message):
    __slots__ = ("server_final", "token", "lifetime_ms")
    SERVER_FINAL_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    LIFETIME_MS_FIELD_NUMBER: _ClassVar[int]
    server_final: bytes
    token: str
    lifetime_ms: int
    def __init__(self, server_final: _Optional[bytes] = ..., token: _Optional[str] = ..., lifetime_ms: _Optional[int] = ...) -> None: ...
