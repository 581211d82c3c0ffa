"""How a client is let in: TLS, and a login by SASL, sans-IO, for both drivers.

May touch:  its arguments.            Must not touch: sockets, files.
Invariants: nothing but ApiVersions goes to a broker before the login is complete; a server that does not prove that it knows the
            password too is not talked to (SCRAM); no repr shows a password.
Read next:  aio.py and blocking.py, which drive it.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Generator
from dataclasses import field
from typing import Any

from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas_wire.kafka.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas_wire.lazy_dataclass import dataclass

ITERATIONS_MAX = 1_000_000
"""A server that asks for more wants to keep the client busy (CVE-2026-10143)."""


@dataclass(frozen=True, slots=True)
class SaslLogin:
    """The name and the secret of this client."""

    mechanism: str
    """PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER."""
    username: str
    password: str = field(repr=False)
    token: Callable[[], str] | None = field(default=None, repr=False)
    """What gives the bearer token of the next login; it may take a file or a request, and raise OSError. OAUTHBEARER's alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecurity:
    """What a connection needs before its first request; without either it is plain text."""

    tls: Callable[[], ssl.SSLContext] | None = None
    """The context of the next connection: renewed files make a new one."""
    login: SaslLogin | None = None


PLAINTEXT = ClientSecurity()

LoginSteps = Generator[Any, Any, int]
"""Yields requests, is sent their responses, returns the login's lifetime in ms (0: endless)."""


def login_steps(login: SaslLogin) -> LoginSteps:
    """The exchange of one login. Raises KafkaError when it is refused, and when the server does not prove itself."""
    handshake: SaslHandshakeResponse = yield SaslHandshakeRequest(mechanism=login.mechanism)
    if handshake.error_code:
        raise KafkaError.of(
            _code(handshake.error_code),
            f"the broker takes {', '.join(handshake.mechanisms) or 'no mechanism'}, not {login.mechanism}",
        )
    lifetime_ms = 0
    if login.token is not None:
        exchange = _bearer(login.token)
    else:
        exchange = scram_steps(login) if login.mechanism.startswith("SCRAM") else _plain(login)
    answer = b""
    token = next(exchange)
    while True:
        response: SaslAuthenticateResponse = yield SaslAuthenticateRequest(auth_bytes=token)
        if response.error_code:
            raise KafkaError.of(_code(response.error_code), response.error_message or "the login was refused")
        lifetime_ms = response.session_lifetime_ms
        answer = response.auth_bytes
        try:
            token = exchange.send(answer)
        except StopIteration:
            return lifetime_ms


def _plain(login: SaslLogin) -> Generator[bytes, bytes, None]:
    yield f"\0{login.username}\0{login.password}".encode()


def _bearer(token: Callable[[], str]) -> Generator[bytes, bytes, None]:
    """RFC 7628: GS2 header, the token; what a server answers says why it refuses, and is acknowledged by one byte."""
    answer = yield f"n,,\x01auth=Bearer {token()}\x01\x01".encode()
    if answer:
        yield b"\x01"


def scram_steps(login: SaslLogin) -> Generator[bytes, bytes, None]:
    """Yields the client's messages, is sent the server's; ends when the server has proved itself. Raises KafkaError."""
    from scramp import ScramClient, ScramException  # only who logs in with it needs it

    client = ScramClient([login.mechanism], login.username, login.password)
    try:
        answer = yield client.get_client_first().encode()
        text = answer.decode()
        iterations = next((part[2:] for part in text.split(",") if part.startswith("i=")), "")
        if len(iterations) > len(str(ITERATIONS_MAX)) or (iterations.isdecimal() and int(iterations) > ITERATIONS_MAX):
            raise KafkaError.of(
                ErrorCode.SASL_AUTHENTICATION_FAILED, "the broker asks for more iterations than are done"
            )
        client.set_server_first(text)
        answer = yield client.get_client_final().encode()
        client.set_server_final(answer.decode())
    except (ScramException, UnicodeDecodeError) as error:
        raise KafkaError.of(
            ErrorCode.SASL_AUTHENTICATION_FAILED, f"the broker does not prove that it knows the password: {error}"
        ) from None


def _code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
