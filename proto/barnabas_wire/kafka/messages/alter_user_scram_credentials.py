"""AlterUserScramCredentials (key 51): make, replace and delete SCRAM credentials (KIP-554)."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int8, int16, int32, raw, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class ScramCredentialDeletion:
    """A credential to delete."""

    name: str = string()  # the user's
    mechanism: int = int8()  # 1: SCRAM-SHA-256, 2: SCRAM-SHA-512


@dataclass(slots=True)
class ScramCredentialUpsertion:
    """A credential to make or replace. The client salts and hashes, so the password itself never travels."""

    name: str = string()  # the user's
    mechanism: int = int8()  # 1: SCRAM-SHA-256, 2: SCRAM-SHA-512
    iterations: int = int32()
    salt: bytes = raw()  # drawn at random by the client
    salted_password: bytes = raw()


@dataclass(slots=True)
class AlterUserScramCredentialsRequest(Message):
    """Change credentials of any number of users."""

    API_KEY = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


@dataclass(slots=True)
class AlterUserScramCredentialsResult:
    """The outcome for one user, whatever the number of its credentials."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@dataclass(slots=True)
class AlterUserScramCredentialsResponse(Message):
    """The outcomes by user, deletions and upsertions together."""

    API_KEY = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
