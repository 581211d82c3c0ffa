"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), over scramp: a login that shows no password to anybody who listens.

May touch:  its arguments.            Must not touch: sockets, clock, files, passwords (the server has only keys derived from them).
Invariants: a user that does not exist gets iterations and a salt as others have, always the same, and fails at the proof like a wrong
            password; a credential that changed or a token that ended during the exchange lets no client in;
            the nonce of the last message is the whole one that was agreed on (CVE-2024-56128), or the client's own and then that one,
            as librdkafka before 2.6.1 sends it; nothing else may precede it (Kafka takes anything that ends with its own part).
Read next:  mechanism.py; ../unknown_users.py; metadata_quorum/image/scram.py, where the credentials are.

Behaviour: with the extension `tokenauth=true` the user is the id of a delegation token and the password its HMAC
(KIP-48); the principal is the token's owner. scramp refuses extensions, so it gets the message without them, and the
text that was signed.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from scramp import ScramException, ScramMechanism

from barnabas_broker.security.sasl.mechanism import LoginRefused
from barnabas_broker.security.unknown_users import Likeness

TOKEN_BYTES_MAX = 4096
WRONG = "user or password is wrong"
TOKEN_EXTENSION_AT = ",tokenauth"
TOKEN_EXTENSION = "=true"


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
FindLikeness = Callable[[], Likeness]
"""What users look like that do not exist, as of now."""


class Scram:
    """One login with a mechanism of the family."""

    def __init__(
        self, name: str, find: FindVerifier, *, unknown: FindLikeness, find_token: FindToken = lambda token_id: None
    ) -> None:
        self.user: str | None = None
        self.claimed = ""
        self.expires_ms: int | None = None
        self.is_by_delegation_token = False
        self._name = name
        self._find_token = find_token
        self._owner: str | None = None
        """The user that the login is for once the proof is right."""
        self._find = find
        self._unknown = unknown
        self._found: Verifier | None = None
        """What the exchange began with."""
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
                if self._look_up(self.claimed) != self._found:
                    raise LoginRefused(WRONG)  # the password was changed meanwhile, or the token has ended
                self.user = self._owner
                return answer
        except (ScramException, ValueError, IndexError, KeyError) as error:
            wrong = WRONG if self._steps == 2 else f"this is not a SCRAM exchange: {error}"
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
        self._found = self._look_up(user)
        if not self.is_by_delegation_token:
            self._owner = user
        if self._found is not None:
            return self._found
        # a stored key whose client key is unknown: no proof can be right
        like = self._unknown()
        size = self._server.m.hf().digest_size
        key = hmac.digest(like.key, b"key" + user.encode(), "sha512")[:size]
        return Verifier(like.salt(user), key, key, like.iterations)

    def _look_up(self, user: str) -> Verifier | None:
        return self._token(user) if self.is_by_delegation_token else self._find(user)

    def _token(self, token_id: str) -> Verifier | None:
        token = self._find_token(token_id)
        if token is None:
            return None
        self._owner, self.expires_ms = token.owner, token.expires_ms
        like = self._unknown()  # a token that is there looks as one that is not
        return _verifier_of_token(self._name, token.password, like.salt(token_id), like.iterations)


@lru_cache(maxsize=1024)
def _verifier_of_token(mechanism: str, password: str, salt: bytes, iterations: int) -> Verifier:
    """Derived once: it takes 5 ms, and anybody may ask for it before the login."""
    _, stored_key, server_key, _ = ScramMechanism(mechanism).make_auth_info(
        password, iteration_count=iterations, salt=salt
    )
    return Verifier(salt, stored_key, server_key, iterations)
