"""SaslHandshake v0-1, SaslAuthenticate v0-2 (KIP-43, KIP-152, KIP-368): a client logs in.

May touch:  the session of its connection.    Must not touch: mechanisms, credentials, sockets.
Invariants: a refusal is answered late, so that guessing is slow, and the connection is closed after it.
Read next:  ../security/sasl/session.py, which decides.
"""

from __future__ import annotations

import asyncio
import logging

from barnabas_broker.api.answers import message_of
from barnabas_broker.api.context import RequestContext
from barnabas_broker.api.registry import handles
from barnabas_broker.api.services import BrokerServices
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas_wire.kafka.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

logger = logging.getLogger(__name__)

LOGIN_BYTES_MAX = 64 * 1024
"""The largest request before the login: any client may send one."""
REFUSAL_DELAY_S = 0.1
"""As connection.failed.authentication.delay.ms of Kafka."""


@handles(ApiKey.SASL_HANDSHAKE, versions=(0, 1), request_bytes_max=LOGIN_BYTES_MAX)
def sasl_handshake(
    services: BrokerServices, context: RequestContext, request: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    """Choose the mechanism; the answer lists all that the listener takes."""
    session = context.session
    if session is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    try:
        session.choose(request.mechanism, context.api_version)
    except KafkaError as refusal:
        logger.info("login from %s on %s refused: %s", context.client_host, context.listener_name, refusal.message)
        return SaslHandshakeResponse(error_code=refusal.code, mechanisms=session.mechanisms)
    return SaslHandshakeResponse(mechanisms=session.mechanisms)


@handles(ApiKey.SASL_AUTHENTICATE, versions=(0, 2), request_bytes_max=LOGIN_BYTES_MAX)
async def sasl_authenticate(
    services: BrokerServices, context: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    """Take the client's token, return the mechanism's."""
    session = context.session
    if session is None:
        raise KafkaError.of(ErrorCode.ILLEGAL_SASL_STATE, "this listener has no SASL")
    try:
        answer, lifetime_ms = session.authenticate(request.auth_bytes, context.now_ms)
    except KafkaError as refusal:
        logger.info("login from %s on %s refused: %s", context.client_host, context.listener_name, refusal.message)
        await asyncio.sleep(REFUSAL_DELAY_S)
        return SaslAuthenticateResponse(error_code=refusal.code, error_message=message_of(refusal))
    return SaslAuthenticateResponse(auth_bytes=answer, session_lifetime_ms=lifetime_ms)
