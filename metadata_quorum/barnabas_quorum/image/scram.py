"""SCRAM credentials of users: image and delta (KIP-554).

May touch:  records_security.   Must not touch: asyncio, clock, files, controller, passwords.
Invariants: one credential per user and mechanism; no repr shows a key or a salt.
Read next:  metadata.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import singledispatchmethod
from typing import NamedTuple

from barnabas_quorum.records import Record
from barnabas_quorum.records_security import (
    RemoveUserScramCredentialRecord,
    ScramMechanism,
    UserScramCredentialRecord,
)
from barnabas_wire.kafka.errors import InvariantViolated
from barnabas_wire.lazy_dataclass import dataclass


class ScramUser(NamedTuple):
    """Whose credential, for which mechanism."""

    name: str
    mechanism: ScramMechanism


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredential:
    """What a server checks a password with (RFC 5802)."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramImage:
    """Credentials by user and mechanism."""

    credentials: Mapping[ScramUser, ScramCredential]

    def of_user(self, name: str) -> list[tuple[ScramMechanism, ScramCredential]]:
        """The credentials of one user, by mechanism."""
        found = [(mechanism, self.credentials.get(ScramUser(name, mechanism))) for mechanism in ScramMechanism]
        return [(mechanism, credential) for mechanism, credential in found if credential is not None]

    def users(self) -> list[str]:
        """Every user that has a credential, sorted."""
        return sorted({user.name for user in self.credentials})

    def to_records(self) -> Iterator[Record]:
        """Records that replay to this image, canonical order."""
        for user in sorted(self.credentials):
            credential = self.credentials[user]
            yield UserScramCredentialRecord(
                name=user.name,
                mechanism=user.mechanism,
                salt=credential.salt,
                stored_key=credential.stored_key,
                server_key=credential.server_key,
                iterations=credential.iterations,
            )


EMPTY_SCRAM = ScramImage(credentials={})


class ScramDelta:
    """Credentials that changed since an image; None = gone."""

    __slots__ = ("changed", "image")

    def __init__(self, image: ScramImage) -> None:
        self.image = image
        self.changed: dict[ScramUser, ScramCredential | None] = {}

    @singledispatchmethod
    def replay(self, record: Record) -> None:
        """Take in one record."""
        raise TypeError(f"SCRAM credentials have no replay for {type(record).__name__}")

    @replay.register
    def _(self, record: UserScramCredentialRecord) -> None:
        self.changed[ScramUser(record.name, record.mechanism)] = ScramCredential(
            salt=record.salt,
            stored_key=record.stored_key,
            server_key=record.server_key,
            iterations=record.iterations,
        )

    @replay.register
    def _(self, record: RemoveUserScramCredentialRecord) -> None:
        user = ScramUser(record.name, record.mechanism)
        present = self.changed[user] if user in self.changed else self.image.credentials.get(user)
        if present is None:
            raise InvariantViolated(
                f"user {record.name} loses a {record.mechanism.mechanism_name} credential it has not"
            )
        self.changed[user] = None

    @classmethod
    def between(cls, before: ScramImage, after: ScramImage) -> ScramDelta:
        """What leads from one image to another, for whoever loads a snapshot."""
        delta = cls(before)
        for key in before.credentials.keys() | after.credentials.keys():
            found = after.credentials.get(key)
            if before.credentials.get(key) != found:
                delta.changed[key] = found
        return delta

    def apply(self) -> ScramImage:
        """The image after the delta."""
        credentials = {**self.image.credentials, **self.changed}
        return ScramImage(credentials={user: found for user, found in credentials.items() if found is not None})
