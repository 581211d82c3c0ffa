"""The caller of the admin service: by the certificate that the connection shows, or by the token of a login.

May touch:  grpc.aio's context of a call, the image's SCRAM credentials through what it is given.   Must not touch: what is asked.
Invariants: on a listener with authentication nothing but the login is served to who has not shown who it is; tokens are kept as digests
            and never written; a token ends after TOKEN_LIFETIME_MS, and at once when its user's password is changed or gone.
Read next:  grpc_security.py; ../admin/edge.py, where the calls end; barnabas_wire/rpc/login.proto.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple
from urllib.parse import unquote

import grpc
import grpc.aio

from barnabas_broker.security.audit import AuditLog
from barnabas_broker.security.grpc_security import GrpcListenerSecurity
from barnabas_broker.security.logins import SCRAM_MECHANISMS, Logins
from barnabas_broker.security.principal_mapping import map_subject
from barnabas_broker.security.sasl.mechanism import LoginRefused, Mechanism
from barnabas_broker.security.sasl.session import USER
from barnabas_quorum.image.scram import ScramCredential, ScramImage, ScramUser
from barnabas_wire.kafka.ids import ANONYMOUS
from barnabas_wire.rpc import login_pb2, login_pb2_grpc

logger = logging.getLogger(__name__)

TOKEN_LIFETIME_MS = 600_000
TOKENS_MAX = 10_000
"""One more forgets the oldest of the user that has most."""
EXCHANGES_MAX = 1_000
"""Logins that have begun; one more forgets the oldest of the address that has most."""
EXCHANGE_MS_MAX = 10_000
LOGIN_PREFIX = "/barnabas.admin.v1.Login/"
_SCHEME = "Bearer "
ADMIN = "admin"
"""What the audit log calls the admin listeners."""

caller: ContextVar[str] = ContextVar("caller", default=ANONYMOUS)
"""The principal, "User:NAME", of the admin call that runs in this task."""


def host_of(context: Any) -> str:
    """The address that a call came from, without its port."""
    kind, _, address = context.peer().partition(":")
    if kind not in ("ipv4", "ipv6"):
        return ""
    return str(unquote(address).rpartition(":")[0]).strip("[]")


class _Exchange(NamedTuple):
    mechanism: Mechanism
    name: str
    host: str
    ends_ms: int


class _Token(NamedTuple):
    user: ScramUser
    credential: ScramCredential
    """The credential that the token was given for; another one in the image ends it."""
    expires_ms: int


class AdminCallers(grpc.aio.ServerInterceptor, login_pb2_grpc.LoginServicer):
    """Checks every call of the admin listeners, and serves their logins. Belongs to the control lane."""

    def __init__(
        self,
        security: GrpcListenerSecurity,
        *,
        credentials: Callable[[], ScramImage],
        clock_ms: Callable[[], int],
        audit: AuditLog,
    ) -> None:
        """
        Args:
            credentials: of the image that counts now.
            clock_ms: a clock that never jumps.
        """
        self._security = security
        self._credentials = credentials
        self._clock_ms = clock_ms
        self._audit = audit
        self._logins = Logins(security.config, {}, credentials) if security.protocol.has_sasl else None
        self._exchanges: OrderedDict[bytes, _Exchange] = OrderedDict()
        self._tokens: OrderedDict[bytes, _Token] = OrderedDict()

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register the login on a server that is not started yet."""
        if self._logins is not None:
            login_pb2_grpc.add_LoginServicer_to_server(self, server)

    # -- who calls -----------------------------------------------------------------------------------------------------

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any) -> Any:
        """See grpc.aio."""
        handler = await continuation(handler_call_details)
        if handler is None or handler_call_details.method.startswith(LOGIN_PREFIX):
            return handler
        if handler.unary_stream is not None:
            return grpc.unary_stream_rpc_method_handler(
                self._checked(handler.unary_stream), handler.request_deserializer, handler.response_serializer
            )
        assert handler.unary_unary is not None, (
            f"{handler_call_details.method}: this listener knows no such kind of method"
        )
        return grpc.unary_unary_rpc_method_handler(
            self._checked(handler.unary_unary), handler.request_deserializer, handler.response_serializer
        )

    def _checked(self, behaviour: Any) -> Any:
        async def checked(request: Any, context: Any) -> Any:
            principal = self.principal_of(context)
            if principal is None:
                how = self._how_to_come_in()
                self._refused(context, user="", how="token" if self._logins is not None else "certificate", reason=how)
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, how)
            caller.set(principal or ANONYMOUS)  # this task is the call's own
            return await behaviour(request, context)

        return checked

    def principal_of(self, context: Any) -> str | None:
        """The caller's principal; None where this listener does not know the caller."""
        if self._logins is not None:
            return self._bearer(context)
        certificates = context.auth_context().get("x509_pem_cert")
        if not certificates:
            return None
        from barnabas_broker.security.grpc_credentials import subject_of_pem

        name = map_subject(self._security.rules, subject_of_pem(certificates[0]))
        return None if name is None else USER + name

    def _bearer(self, context: Any) -> str | None:
        words = next((value for key, value in context.invocation_metadata() if key == "authorization"), "")
        if not isinstance(words, str) or not words.startswith(_SCHEME):
            return None
        digest = _digest(words.removeprefix(_SCHEME))
        token = self._tokens.get(digest)
        if token is None:
            return None
        if self._clock_ms() >= token.expires_ms or self._credentials().credentials.get(token.user) != token.credential:
            del self._tokens[digest]
            return None
        return USER + token.user.name

    def _how_to_come_in(self) -> str:
        if self._logins is not None:
            return f"log in first: this admin listener takes {', '.join(self._logins.names)}"
        return "no rule of ssl.principal.mapping.rules takes this certificate"

    # -- the login -----------------------------------------------------------------------------------------------------

    async def BeginLogin(self, request: Any, context: Any) -> Any:
        """See login.proto."""
        assert self._logins is not None, "the service is registered on listeners with logins only"
        factory = self._logins.factory(request.mechanism)
        if factory is None:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, f"this admin listener takes {', '.join(self._logins.names)}"
            )
        assert factory is not None, "abort raises"
        mechanism = factory()
        answer = await self._step(mechanism, request.client_first, context)
        exchange = secrets.token_bytes(16)
        if len(self._exchanges) >= EXCHANGES_MAX:
            del self._exchanges[_oldest_of_loudest({key: each.host for key, each in self._exchanges.items()})]
        ends_ms = self._clock_ms() + EXCHANGE_MS_MAX
        self._exchanges[exchange] = _Exchange(mechanism, request.mechanism, host_of(context), ends_ms)
        return login_pb2.BeginLoginResponse(exchange=exchange, server_first=answer)

    async def FinishLogin(self, request: Any, context: Any) -> Any:
        """See login.proto."""
        exchange = self._exchanges.pop(request.exchange, None)
        if exchange is None or self._clock_ms() >= exchange.ends_ms:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "no login has begun that goes on so: begin again")
        assert exchange is not None, "abort raises"
        mechanism, name = exchange.mechanism, exchange.name
        answer = await self._step(mechanism, request.client_final, context)
        user = ScramUser(mechanism.user or "", SCRAM_MECHANISMS[name])
        credential = self._credentials().credentials.get(user)
        if mechanism.user is None or credential is None:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "user or password is wrong")
        assert credential is not None, "abort raises"
        token = secrets.token_urlsafe(32)
        if len(self._tokens) >= TOKENS_MAX:
            del self._tokens[_oldest_of_loudest({key: each.user for key, each in self._tokens.items()})]
        self._tokens[_digest(token)] = _Token(user, credential, self._clock_ms() + TOKEN_LIFETIME_MS)
        logger.info("%s%s logged in at the admin listener from %s", USER, user.name, context.peer())
        self._audit.logged_in(USER + user.name, host_of(context), listener=ADMIN, how=name)
        return login_pb2.FinishLoginResponse(server_final=answer, token=token, lifetime_ms=TOKEN_LIFETIME_MS)

    async def _step(self, mechanism: Mechanism, token: bytes, context: Any) -> bytes:
        try:
            return mechanism.step(token)
        except LoginRefused as error:
            logger.info("a login at the admin listener from %s was refused: %s", context.peer(), error.message)
            self._refused(context, user=mechanism.claimed, how="SCRAM", reason=error.message)
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, error.message)
            raise  # abort has raised

    def _refused(self, context: Any, *, user: str, how: str, reason: str) -> None:
        self._audit.login_refused(host_of(context), user=user, listener=ADMIN, how=how, reason=reason)


def _oldest_of_loudest(owners: Mapping[bytes, Hashable]) -> bytes:
    """Which one makes room, by who each belongs to, the oldest first: whoever has most pays for one more."""
    counts = Counter(owners.values())
    most = max(counts.values())
    return next(key for key, owner in owners.items() if counts[owner] == most)


def _digest(token: str) -> bytes:
    """What is kept of a token: the time of a look-up reveals nothing, and a memory dump shows none."""
    return hashlib.sha256(token.encode()).digest()
