"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), over scramp: a login that shows no password to anybody who listens.

May touch:  its arguments.            Must not touch: sockets, clock, files, passwords (the server has only keys derived from them).
Invariants: a user that does not exist gets a salt of its own, always the same, and fails at the proof like a wrong password;
            the nonce of the last message is the whole one that was agreed on (CVE-2024-56128), or the client's own and then that one,
            as librdkafka before 2.6.1 sends it; nothing else may precede it (Kafka takes anything that ends with its own part).
Read next:  mechanism.py; metadata_quorum/image/scram.py, where the credentials are.

Behaviour: with the extension `tokenauth=true` the user is the id of a delegation token and the password its HMAC (KIP-48); who logs in
is the token's owner. scramp refuses extensions, so it gets the message without them, and the text that was signed.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from scramp import ScramException, ScramMechanism

from barnabas_broker.security.sasl.mechanism import LoginRefused

TOKEN_BYTES_MAX = 4096
ITERATIONS_OF_UNKNOWN = 4096
TOKEN_EXTENSION_AT = ",tokenauth"
TOKEN_EXTENSION = "=true"
_SALT_BYTES = 20


class Verifier(NamedTuple):
    """What the server knows of a user's password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class TokenVerifier(NamedTuple):
    """A delegation token."""

    owner: str
    """User name."""
    password: str
    expires_ms: int


FindToken = Callable[[str], TokenVerifier | None]
"""By token id; None for one that is not there, or not any more."""
FindVerifier = Callable[[str], Verifier | None]
"""By user name."""


class Scram:
    """One login with a mechanism of the family."""

    def __init__(
        self, name: str, find: FindVerifier, *, unknown_key: bytes, find_token: FindToken = lambda token_id: None
    ) -> None:
        """unknown_key: a secret of this process, from which the salts of users that do not exist are made."""
        self.user: str | None = None
        self.claimed = ""
        self.expires_ms: int | None = None
        self.is_by_delegation_token = False
        self._name = name
        self._find_token = find_token
        self._owner: str | None = None
        """Who the login is for once the proof is right."""
        self._find = find
        self._unknown_key = unknown_key
        self._server = ScramMechanism(name).make_server(self._verifier)
        self._steps = 0

    def step(self, token: bytes) -> bytes:
        """client-first gives server-first, client-final gives server-final. Raises LoginRefused."""
        if len(token) > TOKEN_BYTES_MAX:
            raise LoginRefused(f"the SCRAM token is longer than {TOKEN_BYTES_MAX} bytes")
        try:
            text = token.decode("utf-8")
        except UnicodeDecodeError:
            raise LoginRefused("the SCRAM token is not UTF-8") from None
        try:
            self._steps += 1
            if self._steps == 1:
                self._take_first(text)
                return str(self._server.get_server_first()).encode()
            if self._steps == 2:
                self._allow_own_nonce_twice(text)
                self._server.set_client_final(text)
                answer = str(self._server.get_server_final()).encode()
                self.user = self._owner
                return answer
        except (ScramException, ValueError, IndexError, KeyError) as error:
            wrong = "user or password is wrong" if self._steps == 2 else f"this is not a SCRAM exchange: {error}"
            raise LoginRefused(wrong) from None
        raise LoginRefused("the SCRAM exchange is over")

    def _take_first(self, text: str) -> None:
        message, *extensions = text.split(TOKEN_EXTENSION_AT)
        self.is_by_delegation_token = extensions == [TOKEN_EXTENSION]
        if not self.is_by_delegation_token:
            self._server.set_client_first(text)
            return
        self._server.set_client_first(message)
        self._server.client_first_bare += TOKEN_EXTENSION_AT + TOKEN_EXTENSION

    def _allow_own_nonce_twice(self, client_final: str) -> None:
        """What the client signs has the server's part either way, so that a proof still counts for this exchange alone."""
        agreed = self._server.nonce
        twice = f"{str(agreed).removesuffix(str(self._server.s_nonce))}{agreed}"
        if f"r={twice}" in client_final.split(","):
            self._server.nonce = type(agreed)(twice)

    def _verifier(self, user: str) -> Verifier:
        self.claimed = user
        found = self._token(user) if self.is_by_delegation_token else self._find(user)
        if not self.is_by_delegation_token:
            self._owner = user
        if found is not None:
            return found
        # a stored key of which nobody knows the client key: no proof can be right
        salt = hmac.digest(self._unknown_key, b"salt" + user.encode(), "sha512")[:_SALT_BYTES]
        size = self._server.m.hf().digest_size
        key = hmac.digest(self._unknown_key, b"key" + user.encode(), "sha512")[:size]
        return Verifier(salt, key, key, ITERATIONS_OF_UNKNOWN)

    def _token(self, token_id: str) -> Verifier | None:
        token = self._find_token(token_id)
        if token is None:
            return None
        self._owner, self.expires_ms = token.owner, token.expires_ms
        return _verifier_of_token(self._name, token.password)


@lru_cache(maxsize=1024)
def _verifier_of_token(mechanism: str, password: str) -> Verifier:
    """Derived once: it takes 2.5 ms, and anybody may ask for it before the login."""
    salt, stored_key, server_key, iterations = ScramMechanism(mechanism).make_auth_info(
        password, iteration_count=ITERATIONS_OF_UNKNOWN
    )
    return Verifier(salt, stored_key, server_key, iterations)
