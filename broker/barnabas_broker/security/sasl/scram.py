"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), over scramp: a login that shows no password to anybody who listens.

May touch:  its arguments.            Must not touch: sockets, clock, files, passwords (the server has only keys derived from them).
Invariants: a user that does not exist gets a salt of its own, always the same, and fails at the proof like a wrong password;
            the nonce of the last message is the whole one that was agreed on (CVE-2024-56128).
Read next:  mechanism.py; metadata_quorum/image/scram.py, where the credentials are.

Behaviour: `tokenauth=true` of a delegation token is not served: it is refused like an unknown user.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import NamedTuple

from scramp import ScramException, ScramMechanism

from barnabas_broker.security.sasl.mechanism import LoginRefused

TOKEN_BYTES_MAX = 4096
ITERATIONS_OF_UNKNOWN = 4096
_SALT_BYTES = 20


class Verifier(NamedTuple):
    """What the server knows of a user's password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


FindVerifier = Callable[[str], Verifier | None]
"""By user name."""


class Scram:
    """One login with a mechanism of the family."""

    def __init__(self, name: str, find: FindVerifier, *, unknown_key: bytes) -> None:
        """unknown_key: a secret of this process, from which the salts of users that do not exist are made."""
        self.user: str | None = None
        self._claimed: str | None = None
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
                self._server.set_client_first(text)
                return str(self._server.get_server_first()).encode()
            if self._steps == 2:
                self._server.set_client_final(text)
                answer = str(self._server.get_server_final()).encode()
                self.user = self._claimed
                return answer
        except (ScramException, ValueError, IndexError, KeyError) as error:
            wrong = "user or password is wrong" if self._steps == 2 else f"this is not a SCRAM exchange: {error}"
            raise LoginRefused(wrong) from None
        raise LoginRefused("the SCRAM exchange is over")

    def _verifier(self, user: str) -> Verifier:
        found = self._find(user)
        self._claimed = user
        if found is not None:
            return found
        # a stored key of which nobody knows the client key: no proof can be right
        salt = hmac.digest(self._unknown_key, b"salt" + user.encode(), "sha512")[:_SALT_BYTES]
        size = self._server.m.hf().digest_size
        key = hmac.digest(self._unknown_key, b"key" + user.encode(), "sha512")[:size]
        return Verifier(salt, key, key, ITERATIONS_OF_UNKNOWN)
