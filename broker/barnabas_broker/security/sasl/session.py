"""The login of one connection: which requests it may send, which mechanism it chose, who it is.

May touch:  mechanisms.               Must not touch: sockets, clock (it is given the time), handlers.
Invariants: before the login nothing but ApiVersions, SaslHandshake and SaslAuthenticate is served; after a refusal nothing at
            all; a client that logs in again on the same connection must keep its principal (KIP-368).
Read next:  ../../api/sasl.py, the handlers; ../../network/connection.py, which asks `admits`.

Behaviour: SaslHandshake v0, whose tokens would follow without a header, is refused with UNSUPPORTED_VERSION; it is advertised,
since librdkafka takes a broker without it for one that has no handshake.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import NoReturn

from barnabas_broker.security.sasl.mechanism import LoginRefused, Mechanism, MechanismFactory
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.messages import ApiKey

USER = "User:"
MECHANISM_LENGTH_MAX = 20
"""The longest name of a mechanism (RFC 4422). What a client says beyond that is repeated in no answer and no log."""
_ALWAYS = frozenset((ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE))
_WHILE_LOGGING_IN = frozenset((ApiKey.SASL_AUTHENTICATE,))
_LOGIN = _ALWAYS | _WHILE_LOGGING_IN


class LoginState(Enum):
    """How far a connection's login is."""

    FIRST = auto()
    """No mechanism is chosen yet."""
    CHOSEN = auto()
    """The exchange is under way."""
    COMPLETE = auto()
    REFUSED = auto()
    """The connection is to be closed."""


class SaslSession:
    """The server's side of a connection's login, and of each that follows it."""

    def __init__(self, mechanisms: Mapping[str, MechanismFactory], *, lifetime_ms: int = 0) -> None:
        """
        Args:
            mechanisms: that the listener takes, by name.
            lifetime_ms: how long a login counts; 0 = as long as the connection.
        """
        self.state = LoginState.FIRST
        self.principal: str | None = None
        """The principal that logged in, "User:NAME"; None before the first login."""
        self.is_by_delegation_token = False
        """Whether the login was with one: with a token no other is made (KIP-48)."""
        self._mechanisms = mechanisms
        self._lifetime_ms = lifetime_ms
        self.mechanism = ""
        """The mechanism that the client chose last."""
        self.reason = ""
        """Why it was refused, in words."""
        self.claimed = ""
        """The user that the client claimed to be in the last exchange, unchecked."""
        self._exchange: Mechanism | None = None
        self._expires_ms: int | None = None

    @property
    def mechanisms(self) -> list[str]:
        """The mechanisms that the listener takes."""
        return list(self._mechanisms)

    @property
    def is_limited(self) -> bool:
        """Whether a login counts for a time only, so that requests are checked after it too."""
        return self._expires_ms is not None

    def admits(self, api_key: int, now_ms: int) -> bool:
        """Whether a request of this API may be taken up now; if not, the connection is to be closed."""
        if self.state is LoginState.COMPLETE:
            return api_key in _LOGIN or self._expires_ms is None or now_ms < self._expires_ms
        if self.state is LoginState.FIRST:
            # The second request of a login that has not begun is answered with ILLEGAL_SASL_STATE.
            return api_key in _LOGIN
        return self.state is LoginState.CHOSEN and api_key in _WHILE_LOGGING_IN

    def choose(self, mechanism: str, version: int) -> None:
        """SaslHandshake. Raises KafkaError UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE, UNSUPPORTED_VERSION."""
        if version == 0:
            self._refuse(
                ErrorCode.UNSUPPORTED_VERSION, "SaslHandshake v0 is not served: use a client of Kafka 1.0 or later"
            )
        if self.state is LoginState.COMPLETE and self._expires_ms is None:
            self._refuse(ErrorCode.ILLEGAL_SASL_STATE, "this connection is logged in already")
        self.mechanism = mechanism
        factory = self._mechanisms.get(mechanism)
        if factory is None:
            self._refuse(
                ErrorCode.UNSUPPORTED_SASL_MECHANISM,
                f"this listener takes {', '.join(self._mechanisms)}, not {mechanism[:MECHANISM_LENGTH_MAX]!r}",
            )
        self._exchange = factory()
        self.state = LoginState.CHOSEN

    def authenticate(self, token: bytes, now_ms: int) -> tuple[bytes, int]:
        """SaslAuthenticate: the answer to a token, and the login's lifetime in ms once it is complete (0 before, or endless).

        Raises KafkaError SASL_AUTHENTICATION_FAILED, ILLEGAL_SASL_STATE.
        """
        exchange = self._exchange
        if exchange is None:
            self._refuse(ErrorCode.ILLEGAL_SASL_STATE, "send SaslHandshake first")
        try:
            answer = exchange.step(token)
        except LoginRefused as refusal:
            self.claimed = exchange.claimed
            self.state = LoginState.REFUSED
            self.reason = refusal.message
            raise
        if exchange.user is None:
            return answer, 0
        principal = USER + exchange.user
        if self.principal not in (None, principal):
            self._refuse(
                ErrorCode.SASL_AUTHENTICATION_FAILED, f"this connection is {self.principal}: it cannot become another"
            )
        self.principal = principal
        self._exchange = None
        self.state = LoginState.COMPLETE
        self.is_by_delegation_token = exchange.is_by_delegation_token
        ends = [now_ms + self._lifetime_ms] if self._lifetime_ms else []
        if exchange.expires_ms is not None:
            ends.append(exchange.expires_ms)
        self._expires_ms = min(ends, default=None)
        return answer, 0 if self._expires_ms is None else max(1, self._expires_ms - now_ms)

    def _refuse(self, code: ErrorCode, message: str) -> NoReturn:
        self.state = LoginState.REFUSED
        self.reason = message
        raise KafkaError.of(code, message)
