"""Requests about quotas, ACLs, SCRAM credentials and delegation tokens.

May touch:  records_security, image/acls.py, message_mapping.INLINED, barnabas_wire.kafka.   Must not touch: everything else.
Invariants: those of requests.py; no repr shows anything that would allow a login.
Read next:  quotas.py, acls.py, scram.py, tokens.py, which decide them.
"""

from __future__ import annotations

from dataclasses import field

from barnabas_quorum.controller.request import Request
from barnabas_quorum.image.acls import AccessControlEntry, AclFilter
from barnabas_quorum.message_mapping import INLINED
from barnabas_quorum.records_security import DelegationTokenRecord, QuotaEntity
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaAlteration:
    """The changes of one entity: key -> value, None removes."""

    entity: QuotaEntity
    changes: tuple[tuple[str, float | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterClientQuotas(Request["AlterClientQuotasReply"]):
    """Change quotas; each entity succeeds or fails as a whole (KIP-546)."""

    alterations: tuple[QuotaAlteration, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterClientQuotasReply:
    """In the order of the request."""

    errors: tuple[KafkaError | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateAcls(Request["CreateAclsReply"]):
    """Each entry succeeds or fails on its own; an existing one stays as it is."""

    entries: tuple[AccessControlEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateAclsReply:
    """In the order of the request."""

    errors: tuple[KafkaError | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAcls(Request["DeleteAclsReply"]):
    """Delete the entries that the filters match; each filter succeeds or fails on its own."""

    filters: tuple[AclFilter, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedAcls:
    """What one filter deleted."""

    error: KafkaError | None = None
    entries: tuple[AccessControlEntry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAclsReply:
    """In the order of the request."""

    results: tuple[DeletedAcls, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramDeletion:
    """Delete a user's credential for one mechanism. The mechanism is a number that may be unknown."""

    name: str
    mechanism: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramUpsertion:
    """Create or replace a user's credential for one mechanism. The broker has derived the keys from the salted password, which
    it does not pass on (RFC 5802)."""

    name: str
    mechanism: int
    iterations: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterUserScramCredentials(Request["AlterUserScramCredentialsReply"]):
    """Change credentials; each user succeeds or fails as a whole (KIP-554)."""

    deletions: tuple[ScramDeletion, ...] = ()
    upsertions: tuple[ScramUpsertion, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlteredUser:
    """One user of the reply."""

    name: str
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterUserScramCredentialsReply:
    """Each user once, in the order in which the request first names them."""

    users: tuple[AlteredUser, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateDelegationToken(Request["CreateDelegationTokenReply"]):
    """Create a token for `owner` at the request of `requester` (KIP-48, KIP-373); both `User:name`."""

    owner: str
    requester: str
    renewers: tuple[str, ...] = ()
    max_lifetime_ms: int = -1
    """-1 = delegation.token.max.lifetime.ms, which is also the maximum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateDelegationTokenReply:
    """The token, and the HMAC with which its bearer logs in."""

    token: DelegationTokenRecord = field(metadata=INLINED)
    hmac: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewDelegationToken(Request["DelegationTokenExpiry"]):
    """Extend the validity of a token."""

    requester: str
    hmac: bytes = field(repr=False)
    renew_period_ms: int = -1
    """From now; -1 = delegation.token.expiry.time.ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireDelegationToken(Request["DelegationTokenExpiry"]):
    """End the validity of a token at a given time."""

    requester: str
    hmac: bytes = field(repr=False)
    expiry_period_ms: int = -1
    """From now; negative = remove it at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationTokenExpiry:
    """The reply to both: when the token expires, ms since 1970."""

    expiration_timestamp_ms: int
