"""SaslAuthenticate (key 36): one token of a SASL exchange in each direction (KIP-152)."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, int16, int64, raw, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class SaslAuthenticateRequest(Message):
    """The client's next token."""

    API_KEY = ApiKey.SASL_AUTHENTICATE
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 2, 2

    auth_bytes: bytes = raw()


@dataclass(slots=True)
class SaslAuthenticateResponse(Message):
    """The server's next token, or why the client is not let in."""

    API_KEY = ApiKey.SASL_AUTHENTICATE
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 2, 2

    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    auth_bytes: bytes = raw()
    session_lifetime_ms: int = int64("1+")  # 0: the connection need not log in again (KIP-368)
