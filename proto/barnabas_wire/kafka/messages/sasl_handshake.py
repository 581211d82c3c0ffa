"""SaslHandshake (key 17): which mechanism a client logs in with (KIP-43)."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import NEVER_FLEXIBLE, Message, array, int16, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class SaslHandshakeRequest(Message):
    """Name the mechanism. After v0 its tokens follow without a header, after v1 in SaslAuthenticate (KIP-152)."""

    API_KEY = ApiKey.SASL_HANDSHAKE
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, NEVER_FLEXIBLE

    mechanism: str = string()


@dataclass(slots=True)
class SaslHandshakeResponse(Message):
    """Whether the listener takes it, and all that it takes."""

    API_KEY = ApiKey.SASL_HANDSHAKE
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, NEVER_FLEXIBLE

    error_code: int = int16()
    mechanisms: list[str] = array(string)
