"""What the active controller can be asked about quotas, ACLs, SCRAM credentials and delegation tokens.

May touch:  records_security, image/acls.py, message_mapping.INLINED, barnabas_wire.kafka.   Must not touch: everything else.
Invariants: those of requests.py; no repr shows what someone could log in with.
Read next:  quotas.py, acls.py, scram.py, tokens.py, which answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from barnabas_quorum.controller.request import Request
from barnabas_quorum.image.acls import AccessControlEntry, AclFilter
from barnabas_quorum.message_mapping import INLINED
from barnabas_quorum.records_security import DelegationTokenRecord, QuotaEntity
from barnabas_wire.kafka.errors import KafkaError


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
    """Each entry succeeds or fails alone; one that exists already is left as it is."""

    entries: tuple[AccessControlEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateAclsReply:
    """In the order of the request."""

    errors: tuple[KafkaError | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAcls(Request["DeleteAclsReply"]):
    """Delete what the filters mean; each succeeds or fails alone."""

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
    """A user's credential for one mechanism goes. The mechanism is a number that may be unknown."""

    name: str
    mechanism: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramUpsertion:
    """A user's credential for one mechanism is made or replaced. The broker has derived the keys from the salted password,
    which it does not pass on (RFC 5802)."""

    name: str
    mechanism: int
    iterations: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterUserScramCredentials(Request["AlterUserScramCredentialsReply"]):
    """Each credential succeeds or fails alone; what is wrong about a user is told of the user (KIP-554)."""

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
    """Make a token for `owner`, asked for by `requester` (KIP-48, KIP-373); both `User:name`."""

    owner: str
    requester: str
    renewers: tuple[str, ...] = ()
    max_lifetime_ms: int = -1
    """-1 = delegation.token.max.lifetime.ms, which is also the most that is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateDelegationTokenReply:
    """The token, and the HMAC that its bearer logs in with."""

    token: DelegationTokenRecord = field(metadata=INLINED)
    hmac: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewDelegationToken(Request["DelegationTokenExpiry"]):
    """Let a token live longer."""

    requester: str
    hmac: bytes = field(repr=False)
    renew_period_ms: int = -1
    """From now; -1 = delegation.token.expiry.time.ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireDelegationToken(Request["DelegationTokenExpiry"]):
    """Let a token live no longer than this."""

    requester: str
    hmac: bytes = field(repr=False)
    expiry_period_ms: int = -1
    """From now; negative = remove it at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationTokenExpiry:
    """Answers both: when the token expires, ms since 1970."""

    expiration_timestamp_ms: int
