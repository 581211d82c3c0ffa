"""Controller requests and replies to protobuf and back, for both ends of the wire: one table of every call of the service.

May touch:  controller, message_mapping, faults.py, barnabas_wire.rpc.controller_pb2.   Must not touch: asyncio, gRPC, images.
Invariants: reading what was written gives an equal value; a frame that does not fit (a uuid of another length, an
            unknown enum number, a missing fault code) raises INVALID_REQUEST and nothing else; every call of the service has
            its request, and every request its call: the same name, and Call and Answer behind it for the messages.
Read next:  controller_service.py (server end) and the broker room's controller client (client end); docs/adding-a-verb.md.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from barnabas_quorum.controller.controller import REQUESTS
from barnabas_quorum.controller.request import Request, reply_type
from barnabas_quorum.controller.requests import BrokerHeartbeat, BrokerHeartbeatReply
from barnabas_quorum.controller.requests_integrity import SignOffRecord
from barnabas_quorum.driver.faults import error_of, fault_of
from barnabas_quorum.message_mapping import Conversion, MappingMismatch, MessageMapping, mapping_of
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.rpc import controller_pb2 as pb

COMMITTED_OFFSET_KEY = "barnabas-committed-offset"
"""Trailing metadata of every answer: the metadata offset that the controller had committed when it answered."""
HEARTBEATS = "Heartbeats"
"""The one method that is no call: heartbeats have a stream of their own."""

_CONVERSIONS: dict[type, Conversion] = {KafkaError: Conversion(pb.Fault, fault_of, error_of)}
_ANSWER_ENVELOPE = frozenset({"fault"})


class Verb(NamedTuple):
    """One call: its name in the service, and what is asked and answered in both forms."""

    method: str
    request_type: type[Request[Any]]
    call_type: Any
    """Protobuf message of the request; has a `caller`."""
    answer_type: Any
    """Protobuf message of the reply; has a `fault`."""
    call: MessageMapping
    answer: MessageMapping


def write_call(verb: Verb, request: Request[Any], *, principal: str, client_host: str = "") -> Any:
    """The protobuf message of a request, on behalf of `principal` who came from the address `client_host`."""
    message = verb.call.write(request)
    message.caller.principal = principal
    if client_host:
        message.caller.host = client_host
    return message


def read_call(verb: Verb, message: Any) -> Request[Any]:
    """The request in a protobuf message. Raises KafkaError INVALID_REQUEST on what does not fit."""
    try:
        request: Request[Any] = verb.call.read(message)
        return request
    except ValueError as error:
        raise KafkaError.of(ErrorCode.INVALID_REQUEST, f"{verb.method}: {error}") from error


def write_answer(verb: Verb, reply: Any) -> Any:
    """The protobuf message of a reply."""
    return verb.answer.write(reply)


def read_answer(verb: Verb, message: Any) -> Any:
    """The reply in a protobuf message. Raises KafkaError UNKNOWN_SERVER_ERROR on what does not fit."""
    try:
        return verb.answer.read(message)
    except ValueError as error:
        raise KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR, f"answer of {verb.method}: {error}") from error


def _verb(method: str, request_type: type[Request[Any]]) -> Verb:
    call_type, answer_type = getattr(pb, f"{method}Call"), getattr(pb, f"{method}Answer")
    return Verb(
        method=method,
        request_type=request_type,
        call_type=call_type,
        answer_type=answer_type,
        call=mapping_of(request_type, call_type, envelope=frozenset({"caller"}), conversions=_CONVERSIONS),
        answer=mapping_of(reply_type(request_type), answer_type, envelope=_ANSWER_ENVELOPE, conversions=_CONVERSIONS),
    )


def _verbs() -> tuple[Verb, ...]:
    # a sign-off is not decided on an image: it is what is done while there is none to decide on (blocked_controller.py)
    kinds = {kind.__name__: kind for kind in (*REQUESTS, SignOffRecord) if kind is not BrokerHeartbeat}
    methods = [method.name for method in pb.DESCRIPTOR.services_by_name["Controller"].methods]
    if set(methods) != {*kinds, HEARTBEATS}:
        raise MappingMismatch(
            f"requests and the service's methods differ in {sorted(set(methods) ^ {*kinds, HEARTBEATS})}"
        )
    return tuple(_verb(method, kinds[method]) for method in methods if method != HEARTBEATS)


VERBS: tuple[Verb, ...] = _verbs()
"""Every call of the service, in its order."""
VERB_BY_REQUEST: dict[type, Verb] = {verb.request_type: verb for verb in VERBS}

HEARTBEAT = mapping_of(BrokerHeartbeat, pb.HeartbeatMessage)
"""A heartbeat as it travels."""
HEARTBEAT_ANSWER = mapping_of(BrokerHeartbeatReply, pb.HeartbeatAnswer, envelope=_ANSWER_ENVELOPE)
"""Its reply, where it has no fault."""


def read_heartbeat(message: Any) -> BrokerHeartbeat:
    """The heartbeat in a protobuf message. Raises KafkaError INVALID_REQUEST on what does not fit."""
    try:
        heartbeat: BrokerHeartbeat = HEARTBEAT.read(message)
        return heartbeat
    except ValueError as error:
        raise KafkaError.of(ErrorCode.INVALID_REQUEST, f"{HEARTBEATS}: {error}") from error


def read_heartbeat_answer(message: Any) -> BrokerHeartbeatReply:
    """The reply that travelled. Raises KafkaError when it carries a fault."""
    if message.HasField("fault"):
        raise error_of(message.fault)
    reply: BrokerHeartbeatReply = HEARTBEAT_ANSWER.read(message)
    return reply
