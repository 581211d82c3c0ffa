"""The one way to make a gRPC server of the house.

May touch:  grpc.aio.                 Must not touch: services.
Invariants: every server has SERVER_OPTIONS and finds a method by its name.
Read next:  options.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc.aio

from barnabas_wire.rpc.options import CONNECTIONS_MAX_KEY, SERVER_OPTIONS


def new_server(
    interceptors: Sequence[grpc.aio.ServerInterceptor] = (), *, connections_max: int | None = None
) -> grpc.aio.Server:
    """A server that is not started yet; the generated add_…_to_server functions take it. `interceptors` see every call first.
    connections_max: more are closed as they come; None: all are taken.

    Generated code registers each method twice: by its name, and as a place where gRPC's core waits for calls of just this
    method. For the latter grpc.aio keeps a task per method, and at every call it sets and drops a callback on each of them:
    with the 19 methods of a controller that was half of the function calls of an idle cluster's active one (counted).
    """
    bound = () if connections_max is None else ((CONNECTIONS_MAX_KEY, connections_max),)
    server = grpc.aio.server(options=(*SERVER_OPTIONS, *bound), interceptors=tuple(interceptors) or None)
    server.add_registered_method_handlers = _leave_it_at_the_names  # type: ignore[method-assign]  # gRPC has no option for it
    return server


def _leave_it_at_the_names(service_name: str, method_handlers: Any) -> None:
    pass
