"""DescribeUserScramCredentials (key 50): which SCRAM credentials users have (KIP-554).

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int8, int16, int32, string


@dataclass(slots=True)
class UserName:
    """A user to describe."""

    name: str = string()  # The user name


@dataclass(slots=True)
class DescribeUserScramCredentialsRequest(Message):
    """DescribeUserScramCredentials request.

    Version 0 is flexible.
    """

    API_KEY = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    # The users to describe, or null or empty to describe all users
    users: list[UserName] | None = array(UserName, nullable="0+")


@dataclass(slots=True)
class CredentialInfo:
    """The mechanism and related information of one credential."""

    mechanism: int = int8()  # The SCRAM mechanism
    iterations: int = int32()  # The number of iterations used in the SCRAM credential


@dataclass(slots=True)
class DescribeUserScramCredentialsResult:
    """The result for one user."""

    user: str = string()  # The user name
    error_code: int = int16()  # The error code, or 0 if there was no error
    # The error message, or null if there was no error
    error_message: str | None = string(nullable="0+", default=None)
    # The mechanism and related information associated with the user's credentials
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


@dataclass(slots=True)
class DescribeUserScramCredentialsResponse(Message):
    """DescribeUserScramCredentials response.

    Version 0 is flexible.
    """

    API_KEY = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    # Duration in ms for which the request was throttled due to a quota violation, or zero
    throttle_time_ms: int = int32()
    error_code: int = int16()  # The error code, or 0 if there was no error
    # The error message, or null if there was no error
    error_message: str | None = string(nullable="0+", default=None)
    # The results, one per user
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)
