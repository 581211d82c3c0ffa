"""What every SASL mechanism is: tokens in, tokens out, a user at the end.

May touch:  nothing.                  Must not touch: sockets, clock, files.
Invariants: a refusal's text goes to the client and shows neither a secret nor whether the user exists.
Read next:  plain.py, scram.py; session.py, which drives them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from barnabas_wire.kafka.errors import ErrorCode, KafkaError


class LoginRefused(KafkaError):
    """The client is not who it claims to be, or did not say it as the mechanism demands."""

    code = ErrorCode.SASL_AUTHENTICATION_FAILED


class Mechanism(Protocol):
    """The server's side of one exchange."""

    user: str | None
    """The user that logged in; None until the exchange is complete."""
    claimed: str
    """The user that the client claims to be, unchecked, for the audit log alone; "" until it says so."""
    expires_ms: int | None
    """When what it logged in with ends, ms since 1970; None: never."""
    is_by_delegation_token: bool
    """Whether it was a delegation token: with one no other is made (KIP-48)."""

    def step(self, token: bytes) -> bytes:
        """Take the client's token, return the server's. Raises LoginRefused."""
        ...


PLAIN = "PLAIN"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
OAUTHBEARER = "OAUTHBEARER"
"""Names, as clients choose them."""
MechanismFactory = Callable[[], Mechanism]
"""Makes the exchange of a new login."""
