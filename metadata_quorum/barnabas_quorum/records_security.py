"""The typed records of who may do what and how much: ACLs, SCRAM credentials, delegation tokens, client quotas (KIP-631).

May touch:  barnabas_wire.kafka.ids.  Must not touch: asyncio, clock, files, protobuf, image, controller.
Invariants: as in records.py; and no secret shows in a repr, so that no log or dump shows one: what can be used to log in
            (salt, stored key, server key) is hidden there, and `redacted` replaces it by nothing.
Read next:  records.py; image/acls.py, scram.py, tokens.py, quotas.py, which replay these.
"""

from __future__ import annotations

from dataclasses import field, replace
from enum import IntEnum
from typing import Any, NamedTuple

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.lazy_dataclass import dataclass


class QuotaEntityPart(NamedTuple):
    """One side of what a quota is for: entity type (user, client-id, ip) and its name; None = the default of that type."""

    type: str
    name: str | None


QuotaEntity = tuple[QuotaEntityPart, ...]
"""Parts in the order of their types, each type once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientQuotaRecord:
    """One quota key of one entity (KIP-546)."""

    entity: QuotaEntity
    key: str
    value: float | None
    """None removes the key."""


class AclResourceType(IntEnum):
    """What an ACL is about; Kafka's numbers."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclPatternType(IntEnum):
    """How the resource name of an ACL, or of a filter, is meant; Kafka's numbers. ANY and MATCH are for filters."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """What an ACL permits or denies; Kafka's numbers. ANY is for filters."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(IntEnum):
    """Whether an ACL allows; Kafka's numbers. ANY is for filters."""

    ANY = 1
    DENY = 2
    ALLOW = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessControlEntryRecord:
    """One ACL begins to hold."""

    id: Uuid
    resource_type: AclResourceType
    resource_name: str
    pattern_type: AclPatternType
    principal: str
    """`User:name`."""
    host: str
    """An address, or `*`."""
    operation: AclOperation
    permission: AclPermission


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveAccessControlEntryRecord:
    """The ACL of this id holds no more."""

    id: Uuid


class ScramMechanism(IntEnum):
    """Kafka's numbers (KIP-554)."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def mechanism_name(self) -> str:
        """As SASL and Kafka's tools write it."""
        return self.name.replace("_", "-")


@dataclass(frozen=True, slots=True, kw_only=True)
class UserScramCredentialRecord:
    """What a broker needs to check a user's password by one mechanism (RFC 5802); the password is not in it."""

    name: str
    mechanism: ScramMechanism
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveUserScramCredentialRecord:
    """The user cannot log in by this mechanism any more."""

    name: str
    mechanism: ScramMechanism


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationTokenRecord:
    """A delegation token as it now is (KIP-48): written when made and at each renewal. Its HMAC is never stored: it follows
    from the id and delegation.token.secret.key."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    max_timestamp_ms: int
    """Nothing renews it beyond."""
    expiration_timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveDelegationTokenRecord:
    """The token is expired, or was given up."""

    token_id: str


SecurityRecord = (
    ClientQuotaRecord
    | AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | UserScramCredentialRecord
    | RemoveUserScramCredentialRecord
    | DelegationTokenRecord
    | RemoveDelegationTokenRecord
)


def redacted(record: Any) -> Any:
    """The record for a dump: secrets are empty."""
    if isinstance(record, UserScramCredentialRecord):
        return replace(record, salt=b"", stored_key=b"", server_key=b"")
    return record
