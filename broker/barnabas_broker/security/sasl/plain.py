"""PLAIN (RFC 4616): user and password in one token, in the clear.

May touch:  its arguments.            Must not touch: sockets, clock, files.
Invariants: an unknown user and a wrong password cost the same and read the same; passwords are compared in constant time
            (CVE-2021-38153).
Read next:  mechanism.py.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from barnabas_broker.security.sasl.mechanism import LoginRefused

TOKEN_BYTES_MAX = 4096


class Plain:
    """One login with PLAIN."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        """passwords: of all users, by name."""
        self.user: str | None = None
        self.claimed = ""
        self.expires_ms: int | None = None
        self.is_by_delegation_token = False
        self._passwords = passwords

    def step(self, token: bytes) -> bytes:
        """authzid NUL user NUL password; the answer is empty. Raises LoginRefused."""
        if len(token) > TOKEN_BYTES_MAX:
            raise LoginRefused(f"the PLAIN token is longer than {TOKEN_BYTES_MAX} bytes")
        try:
            parts = token.decode("utf-8").split("\0")
        except UnicodeDecodeError:
            raise LoginRefused("the PLAIN token is not UTF-8") from None
        if len(parts) != 3 or not parts[1] or not parts[2]:
            raise LoginRefused("the PLAIN token is not [authorization id] NUL user NUL password")
        authorization_id, user, password = parts
        self.claimed = user
        expected = self._passwords.get(user)
        is_right = hmac.compare_digest(password.encode(), (expected or "").encode())
        if expected is None or not is_right:
            raise LoginRefused("user or password is wrong")
        if authorization_id not in ("", user):
            raise LoginRefused("a client may log in for itself only: leave the authorization id empty")
        self.user = user
        return b""
