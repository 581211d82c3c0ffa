"""Requests that this broker would send to itself: its own handlers, without a socket between.

May touch:  the registry's table.     Must not touch: sockets, the codec.
Invariants: a request is handled as the newest version that is served, by the handler that serves it over the wire; an error becomes
            the response that a client would get.
Read next:  registry.py; barnabas_coordination/brokers.py, which sends.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from barnabas_broker.api.context import RequestContext
from barnabas_broker.api.registry import api_of, error_response
from barnabas_broker.api.services import BrokerServices
from barnabas_wire.kafka.errors import KafkaError


def serve_local_calls(services: BrokerServices) -> Callable[[Any], Awaitable[Any]]:
    """A function from a declared request to its response."""

    async def serve(request: Any) -> Any:
        api = api_of(request.API_KEY)
        assert api is not None and not api.is_direct, f"{request.API_KEY.name} takes undecoded frames"
        context = RequestContext(
            api_key=api.key,
            api_version=api.max_version,
            correlation_id=0,
            client_id=f"broker-{services.node_id}",
            listener_name="",
            client_host="",
            now_ms=services.clock_ms(),
        )
        try:
            response = api.handler(services, context, request)
            return await response if inspect.isawaitable(response) else response
        except KafkaError as error:
            return error_response(api, request, error)

    return serve
