"""SCRAM credentials of users: create, replace, delete (KIP-554, RFC 5802). Image in, records out.

May touch:  image, features, hashlib and hmac.   Must not touch: passwords in the clear, everything that waits.
Invariants: neither a password nor its salted form gets here, only keys derived from it; no message contains a key.
Read next:  image/scram.py.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from typing import NamedTuple

from barnabas_quorum.controller.decisions import RECORDS_PER_BATCH_MAX, DecisionContext, decides
from barnabas_quorum.controller.features import require_metadata_version
from barnabas_quorum.controller.requests_security import (
    AlteredUser,
    AlterUserScramCredentials,
    AlterUserScramCredentialsReply,
    ScramDeletion,
    ScramUpsertion,
)
from barnabas_quorum.controller.result import ControllerResult
from barnabas_quorum.image.features import METADATA_VERSION_SECURITY
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.image.scram import ScramUser
from barnabas_quorum.records import Record
from barnabas_quorum.records_security import (
    RemoveUserScramCredentialRecord,
    ScramMechanism,
    UserScramCredentialRecord,
)
from barnabas_wire.kafka.errors import ErrorCode, KafkaError

ITERATIONS_MIN = 4096
ITERATIONS_MAX = 16384
HASHES = {ScramMechanism.SCRAM_SHA_256: "sha256", ScramMechanism.SCRAM_SHA_512: "sha512"}


class ScramKeys(NamedTuple):
    """The stored form of a password."""

    stored_key: bytes
    server_key: bytes


def derive_keys(mechanism: ScramMechanism, salted_password: bytes) -> ScramKeys:
    """StoredKey and ServerKey of a salted password (RFC 5802, 3)."""
    name = HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", name)
    return ScramKeys(hashlib.new(name, client_key).digest(), hmac.digest(salted_password, b"Server Key", name))


@decides(AlterUserScramCredentials)
def alter_scram_credentials(
    image: MetadataImage, request: AlterUserScramCredentials, context: DecisionContext
) -> ControllerResult[AlterUserScramCredentialsReply]:
    """Each user succeeds or fails as a whole: UNSUPPORTED_SASL_MECHANISM, UNACCEPTABLE_CREDENTIAL, DUPLICATE_RESOURCE,
    RESOURCE_NOT_FOUND. Raises POLICY_VIOLATION, UNSUPPORTED_VERSION."""
    require_metadata_version(image, METADATA_VERSION_SECURITY, "SCRAM credentials")
    changes: list[ScramDeletion | ScramUpsertion] = [*request.deletions, *request.upsertions]
    if len(changes) > RECORDS_PER_BATCH_MAX:
        raise KafkaError.of(
            ErrorCode.POLICY_VIOLATION,
            f"one request may change at most {RECORDS_PER_BATCH_MAX} credentials; split it into several",
        )
    times = Counter((change.name, change.mechanism) for change in changes)
    errors: dict[str, KafkaError | None] = dict.fromkeys(change.name for change in changes)
    records: dict[str, list[Record]] = {name: [] for name in errors}
    for change in changes:
        try:
            if times[change.name, change.mechanism] > 1:
                raise KafkaError.of(
                    ErrorCode.DUPLICATE_RESOURCE, f"a credential of {change.name} is changed twice; change it once"
                )
            records[change.name].append(_change(image, change))
        except KafkaError as refusal:
            errors[change.name] = errors[change.name] or refusal
    return ControllerResult(
        records=[record for name, made in records.items() if errors[name] is None for record in made],
        response=AlterUserScramCredentialsReply(
            users=tuple(AlteredUser(name=name, error=error) for name, error in errors.items())
        ),
    )


def _change(image: MetadataImage, change: ScramDeletion | ScramUpsertion) -> Record:
    if not change.name:
        raise KafkaError.of(ErrorCode.UNACCEPTABLE_CREDENTIAL, "a credential needs a user name")
    try:
        mechanism = ScramMechanism(change.mechanism)
    except ValueError:
        known = ", ".join(f"{known.value} {known.mechanism_name}" for known in ScramMechanism)
        raise KafkaError.of(
            ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"mechanism {change.mechanism} is unknown; use one of {known}"
        ) from None
    if isinstance(change, ScramDeletion):
        if ScramUser(change.name, mechanism) not in image.scram.credentials:
            raise KafkaError.of(
                ErrorCode.RESOURCE_NOT_FOUND, f"user {change.name} has no {mechanism.mechanism_name} credential"
            )
        return RemoveUserScramCredentialRecord(name=change.name, mechanism=mechanism)
    if not ITERATIONS_MIN <= change.iterations <= ITERATIONS_MAX:
        raise KafkaError.of(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"{change.iterations} iterations; use {ITERATIONS_MIN} to {ITERATIONS_MAX}",
        )
    size = hashlib.new(HASHES[mechanism]).digest_size
    if not change.salt or len(change.stored_key) != size or len(change.server_key) != size:
        raise KafkaError.of(
            ErrorCode.UNACCEPTABLE_CREDENTIAL, f"{mechanism.mechanism_name} needs a salt and keys of {size} bytes"
        )
    return UserScramCredentialRecord(
        name=change.name,
        mechanism=mechanism,
        salt=change.salt,
        stored_key=change.stored_key,
        server_key=change.server_key,
        iterations=change.iterations,
    )
