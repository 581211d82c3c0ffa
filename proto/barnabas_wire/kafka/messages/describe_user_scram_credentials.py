"""DescribeUserScramCredentials (key 50): which SCRAM credentials users have (KIP-554)."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int8, int16, int32, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class UserName:
    """A user asked about."""

    name: str = string()


@dataclass(slots=True)
class DescribeUserScramCredentialsRequest(Message):
    """Ask which mechanisms users can log in with; secrets are never shown."""

    API_KEY = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    users: list[UserName] | None = array(UserName, nullable="0+")  # null or empty: everyone


@dataclass(slots=True)
class CredentialInfo:
    """A credential without its secrets."""

    mechanism: int = int8()  # 1: SCRAM-SHA-256, 2: SCRAM-SHA-512
    iterations: int = int32()


@dataclass(slots=True)
class DescribeUserScramCredentialsResult:
    """The answer for one user."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


@dataclass(slots=True)
class DescribeUserScramCredentialsResponse(Message):
    """Users and their credentials."""

    API_KEY = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    throttle_time_ms: int = int32()
    # of the whole request
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)
