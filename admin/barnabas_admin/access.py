"""Who may do what, as the brokers report it: ACLs, users with SCRAM credentials, quotas; and the requests that change them.

May touch:  answers and requests of the Kafka protocol.    Must not touch: the cluster, printing.
Invariants: a password never leaves this process, only its salted form does.
Read next:  commands/acl.py, commands/user.py, commands/quota.py; console/access.py.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Any

from barnabas_wire.kafka.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from barnabas_wire.kafka.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

RESOURCES = {"any": 1, "topic": 2, "group": 3, "cluster": 4, "transactional-id": 5, "delegation-token": 6, "user": 7}
PATTERNS = {"any": 1, "match": 2, "literal": 3, "prefixed": 4}
OPERATIONS = {
    "any": 1,
    "all": 2,
    "read": 3,
    "write": 4,
    "create": 5,
    "delete": 6,
    "alter": 7,
    "describe": 8,
    "cluster-action": 9,
    "describe-configs": 10,
    "alter-configs": 11,
    "idempotent-write": 12,
    "create-tokens": 13,
    "describe-tokens": 14,
    "two-phase-commit": 15,
}
PERMISSIONS = {"any": 1, "deny": 2, "allow": 3}
MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
SALT_BYTES = 16
ITERATIONS = 8192
DEFAULT = "<default>"
"""Name of the quota of all entities of a type that have none of their own."""


def word(table: Mapping[str, int], number: int) -> str:
    """The word of a number of the protocol; the number itself where this version knows none."""
    return next((word for word, value in table.items() if value == number), str(number))


def acl_row(resource: Any, entry: Any) -> dict[str, str]:
    """An ACL of an answer, in words."""
    return {
        "resource_type": word(RESOURCES, resource.resource_type),
        "resource_name": resource.resource_name,
        "pattern": word(PATTERNS, resource.pattern_type),
        "principal": entry.principal,
        "host": entry.host,
        "operation": word(OPERATIONS, entry.operation),
        "permission": word(PERMISSIONS, entry.permission_type),
    }


def acl_filter(options: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a filter from words: resource, name, pattern, principal, host, operation, permission."""
    return {
        "resource_type_filter": RESOURCES[options["resource"]],
        "resource_name_filter": options["name"],
        "pattern_type_filter": PATTERNS[options["pattern"]],
        "principal_filter": options["principal"],
        "host_filter": options["host"],
        "operation": OPERATIONS[options["operation"]],
        "permission_type": PERMISSIONS[options["permission"]],
    }


def user_rows(answer: Any) -> list[dict[str, Any]]:
    """A row for each credential."""
    return [
        {
            "user": result.user,
            "mechanism": word(MECHANISMS, info.mechanism),
            "iterations": info.iterations,
        }
        for result in answer.results
        for info in result.credential_infos
    ]


def quota_rows(answer: Any) -> list[dict[str, Any]]:
    """A row for each entity; a name of None is the default of its type."""
    return [
        {
            "entity": {part.entity_type: part.entity_name for part in entry.entity},
            "quotas": {value.key: value.value for value in entry.values},
        }
        for entry in answer.entries or ()
    ]


def password_request(
    name: str, password: str, *, mechanism: str, iterations: int = ITERATIONS
) -> AlterUserScramCredentialsRequest:
    """Give a user a credential, or replace it."""
    salt = os.urandom(SALT_BYTES)
    salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)
    upsertion = ScramCredentialUpsertion(
        name=name, mechanism=MECHANISMS[mechanism], iterations=iterations, salt=salt, salted_password=salted
    )
    return AlterUserScramCredentialsRequest(upsertions=[upsertion])


def deletion_request(name: str, *, mechanism: str) -> AlterUserScramCredentialsRequest:
    """Take a credential from a user."""
    return AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name=name, mechanism=MECHANISMS[mechanism])]
    )


def quota_request(
    entity: Mapping[str, str], changes: Mapping[str, float | None], *, is_dry: bool = False
) -> AlterClientQuotasRequest:
    """entity: type (user, client-id, ip) -> name, or DEFAULT. changes: key -> bound, None removes."""
    return AlterClientQuotasRequest(
        entries=[
            EntryData(
                entity=[
                    EntityData(entity_type=kind, entity_name=None if name == DEFAULT else name)
                    for kind, name in entity.items()
                ],
                ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in changes.items()],
            )
        ],
        validate_only=is_dry,
    )
