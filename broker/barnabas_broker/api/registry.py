"""The table of Kafka APIs: who handles which key in which versions, and how an error becomes a response.

May touch:  the handler modules.      Must not touch: sockets, clock, logs.
Invariants: ApiVersions is answered from this table, so it cannot lie; an exception becomes a code here and nowhere else.
Read next:  api_versions.py (the shortest handler), produce.py (a direct one).

A handler gets `(services, context, request)` and returns a response object, or an awaitable of one. While an awaitable is
pending, later requests of the same connection wait (Kafka's rule: one request of a connection at a time); other connections
go on. Produce and Fetch are *direct*: they get the undecoded frame and a slot to fill, and may be pipelined.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from barnabas_broker.api.context import RequestContext
from barnabas_broker.api.services import BrokerServices
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.messages import ApiKey

Handler = Callable[[BrokerServices, RequestContext, Any], Any | Awaitable[Any]]
ErrorResponse = Callable[[Any, KafkaError], Any]
"""(decoded request, error) -> response in which every item of the request carries the error."""


@dataclass(slots=True, frozen=True, kw_only=True)
class Api:
    """One row of the table."""

    key: ApiKey
    min_version: int
    """Lowest version advertised; a direct handler may still refuse it (Produce 0-2)."""
    max_version: int
    handler: Any
    is_direct: bool = False
    error_response: ErrorResponse | None = None


APIS: dict[int, Api] = {}
"""The table, by API key. Filled by the decorators when the handler modules are imported (`load_handlers`)."""


def handles(
    key: ApiKey, *, versions: tuple[int, int], on_error: ErrorResponse | None = None
) -> Callable[[Handler], Handler]:
    """Register a handler.

    Args:
        versions: (lowest, highest) served, both inclusive; this is what ApiVersions advertises.
        on_error: builds the response for a KafkaError raised by the handler. None means: the response class has a top-level
            `error_code` (and perhaps `error_message`), which is all that is set.
    """

    def register(handler: Handler) -> Handler:
        _add(Api(key=key, min_version=versions[0], max_version=versions[1], handler=handler, error_response=on_error))
        return handler

    return register


def handles_directly(key: ApiKey, *, versions: tuple[int, int]) -> Callable[[Any], Any]:
    """Register a handler of undecoded frames: `(services, slot, version, frame, position) -> None`. See network/connection.py."""

    def register(handler: Any) -> Any:
        _add(Api(key=key, min_version=versions[0], max_version=versions[1], handler=handler, is_direct=True))
        return handler

    return register


def _add(api: Api) -> None:
    assert api.key not in APIS, f"{api.key.name} has two handlers"
    APIS[api.key] = api
