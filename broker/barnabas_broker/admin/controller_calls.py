"""Operators' requests to the active controller, in the controller's own messages: what the admin listener forwards as it is.

May touch:  the table of the controller's verbs, gRPC's generic handlers.   Must not touch: what is decided, images.
Invariants: a call is made in its caller's name, whatever its message says; what is no operator's (Request.is_operators) is not
            served here; a refusal is a status with details, as of every call of this listener.
Read next:  docs/adding-a-verb.md; barnabas_quorum/driver/verbs.py.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import grpc
import grpc.aio

from barnabas_broker.admin.edge import AdminEdge, CallersController
from barnabas_quorum.driver.verbs import VERBS, Verb, read_call, write_answer
from barnabas_wire.rpc import controller_pb2

SERVICE = controller_pb2.DESCRIPTOR.services_by_name["Controller"].full_name
OPERATORS_VERBS = tuple(verb for verb in VERBS if verb.request_type.is_operators)


def add_controller_calls(
    server: grpc.aio.Server,
    controller: CallersController,
    *,
    edge: AdminEdge,
    remaining_ms: Callable[[Any], int],
) -> None:
    """Register them on a server that is not started yet. remaining_ms: how long the caller of a context waits."""

    def method(verb: Verb) -> Callable[[Any, Any], Coroutine[Any, Any, Any]]:
        async def forward(message: Any, timeout_ms: int) -> Any:
            reply = await controller.ask(read_call(verb, message), timeout_ms=timeout_ms)
            return write_answer(verb, reply)

        async def call(message: Any, context: Any) -> Any:
            return await edge.answer(verb.method, context, forward(message, remaining_ms(context)))

        return call

    handlers = {
        verb.method: grpc.unary_unary_rpc_method_handler(
            method(verb),
            request_deserializer=verb.call_type.FromString,
            response_serializer=verb.answer_type.SerializeToString,
        )
        for verb in OPERATORS_VERBS
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
