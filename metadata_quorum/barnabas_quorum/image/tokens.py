"""Delegation tokens: image and delta (KIP-48). Their HMACs are not here: they follow from the id and the secret key.

May touch:  records_security.   Must not touch: asyncio, clock, files, controller, secret keys.
Invariants: a token's id, owner and times of issue and end never change; only its expiration does.
Read next:  metadata.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import singledispatchmethod

from barnabas_quorum.records import Record
from barnabas_quorum.records_security import DelegationTokenRecord, RemoveDelegationTokenRecord
from barnabas_wire.kafka.errors import InvariantViolated
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TokensImage:
    """Tokens by id, expired ones too until the controller removes them."""

    tokens: Mapping[str, DelegationTokenRecord]

    def sorted_tokens(self) -> list[DelegationTokenRecord]:
        """By id: the order for whoever decides or prints."""
        return [self.tokens[token_id] for token_id in sorted(self.tokens)]

    def to_records(self) -> Iterator[Record]:
        """Records that replay to this image, canonical order."""
        yield from self.sorted_tokens()


EMPTY_TOKENS = TokensImage(tokens={})


class TokensDelta:
    """Tokens that changed since an image; None = gone."""

    __slots__ = ("changed", "image")

    def __init__(self, image: TokensImage) -> None:
        self.image = image
        self.changed: dict[str, DelegationTokenRecord | None] = {}

    @singledispatchmethod
    def replay(self, record: Record) -> None:
        """Take in one record."""
        raise TypeError(f"delegation tokens have no replay for {type(record).__name__}")

    @replay.register
    def _(self, record: DelegationTokenRecord) -> None:
        self.changed[record.token_id] = record

    @replay.register
    def _(self, record: RemoveDelegationTokenRecord) -> None:
        token_id = record.token_id
        present = self.changed[token_id] if token_id in self.changed else self.image.tokens.get(token_id)
        if present is None:
            raise InvariantViolated(f"delegation token {token_id} is removed but does not exist")
        self.changed[token_id] = None

    @classmethod
    def between(cls, before: TokensImage, after: TokensImage) -> TokensDelta:
        """What leads from one image to another, for whoever loads a snapshot."""
        delta = cls(before)
        for key in before.tokens.keys() | after.tokens.keys():
            found = after.tokens.get(key)
            if before.tokens.get(key) != found:
                delta.changed[key] = found
        return delta

    def apply(self) -> TokensImage:
        """The image after the delta."""
        tokens = {**self.image.tokens, **self.changed}
        return TokensImage(tokens={token_id: token for token_id, token in tokens.items() if token is not None})
