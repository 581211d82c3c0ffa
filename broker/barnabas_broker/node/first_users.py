"""Users that a cluster begins with: `format --add-scram`, by which it is closed from its first second (KIP-900).

May touch:  hashlib, random bytes.    Must not touch: files (storage.py writes what this makes), sockets.
Invariants: the password ends here; what is written is the derived keys, as for every other user; no error shows a password.
Read next:  storage.py, which puts the records into the bootstrap checkpoint; barnabas_quorum/controller/scram.py.

A user is written as in Kafka: `SCRAM-SHA-512=[name=alice,password=…]`, with iterations=N and salt="BASE64" if wanted, or, in place of the
password, saltedpassword="BASE64" with its salt.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
from collections.abc import Iterable

from barnabas_broker.metadata.meta_properties import StorageError
from barnabas_broker.security.unknown_users import ITERATIONS, SALT_BYTES
from barnabas_quorum.controller.scram import HASHES, ITERATIONS_MAX, ITERATIONS_MIN, derive_keys
from barnabas_quorum.records_security import ScramMechanism, UserScramCredentialRecord

FORM = "write MECHANISM=[name=NAME,password=PASSWORD], MECHANISM SCRAM-SHA-256 or SCRAM-SHA-512"
_ARGUMENT = re.compile(r"(SCRAM-SHA-256|SCRAM-SHA-512)=\[(.*)\]", re.DOTALL)
_FIELD = re.compile(r'\s*(name|password|salt|iterations|saltedpassword)=(?:"([^"]*)"|([^,]*))\s*(?:,|$)')


def parse_users(arguments: Iterable[str]) -> list[UserScramCredentialRecord]:
    """The credentials of every `--add-scram`. Raises StorageError."""
    records = [_parse(argument) for argument in arguments]
    names = [(record.name, record.mechanism) for record in records]
    for name, mechanism in names:
        if names.count((name, mechanism)) > 1:
            raise StorageError(f"--add-scram names {name} twice with {mechanism.mechanism_name}: once will do")
    return records


def _parse(argument: str) -> UserScramCredentialRecord:
    found = _ARGUMENT.fullmatch(argument.strip())
    if found is None:
        raise StorageError(f"--add-scram cannot be read: {FORM}")
    mechanism = ScramMechanism[found.group(1).replace("-", "_")]
    fields = _fields(found.group(2))
    name = fields.get("name", "")
    if not name:
        raise StorageError(f"--add-scram names no user: {FORM}")
    iterations = _iterations(name, fields.get("iterations", str(ITERATIONS)))
    if ("password" in fields) is ("saltedpassword" in fields):
        raise StorageError(f"--add-scram for {name}: give either password or saltedpassword")
    salt = _base64(name, "salt", fields["salt"]) if "salt" in fields else os.urandom(SALT_BYTES)
    if "saltedpassword" in fields:
        if "salt" not in fields:
            raise StorageError(f"--add-scram for {name}: a saltedpassword needs its salt")
        salted = _base64(name, "saltedpassword", fields["saltedpassword"])
    else:
        if not fields["password"]:
            raise StorageError(f"--add-scram for {name}: the password is empty")
        salted = hashlib.pbkdf2_hmac(HASHES[mechanism], fields["password"].encode(), salt, iterations)
    keys = derive_keys(mechanism, salted)
    return UserScramCredentialRecord(
        name=name,
        mechanism=mechanism,
        salt=salt,
        stored_key=keys.stored_key,
        server_key=keys.server_key,
        iterations=iterations,
    )


def _fields(text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    position = 0
    while position < len(text):
        found = _FIELD.match(text, position)
        if found is None or found.end() == position or found.group(1) in fields:
            raise StorageError(f"--add-scram cannot be read: {FORM}; a value with a comma goes into quotes")
        key, quoted, plain = found.groups()
        fields[key] = plain if quoted is None else quoted
        position = found.end()
    return fields


def _iterations(name: str, text: str) -> int:
    if not text.isdigit() or not ITERATIONS_MIN <= int(text) <= ITERATIONS_MAX:
        raise StorageError(f"--add-scram for {name}: iterations={text}; use {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    return int(text)


def _base64(name: str, key: str, text: str) -> bytes:
    try:
        value = base64.b64decode(text, validate=True)
    except binascii.Error:
        value = b""
    if not value:
        raise StorageError(f"--add-scram for {name}: {key} is not base64")
    return value
