"""Where every call of a node's admin listener ends: what it raises becomes a status, and it is counted.

May touch:  grpc.aio's context, the clock that measures durations.   Must not touch: what is answered.
Invariants: one edge for all services of a node; a KafkaError becomes a status with details, anything else is a bug that ends
            this call only; a call is counted before its answer leaves, so that who has it finds it counted.
Read next:  errors.py; service.py, explain.py and inspection.py, the services.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from dataclasses import field
from typing import Any, NamedTuple, TypeVar

from barnabas_broker.admin.errors import abort
from barnabas_broker.security.access import Access, AccessControl
from barnabas_broker.security.callers import caller, host_of
from barnabas_quorum.controller.request import ActiveController, Request
from barnabas_quorum.image.rights import RPC_RIGHTS
from barnabas_wire.histogram import Histogram
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId
from barnabas_wire.lazy_dataclass import dataclass

logger = logging.getLogger(__name__)

CANCELLED = "CANCELLED"
"""Answered in the place of an error code: the client went away, or its time was up."""
SERVICES = ("Admin", "Explainer", "Inspection")
"""The gRPC services of the admin listeners."""
R = TypeVar("R")


@dataclass(slots=True)
class AdminStats:
    """What the services have answered."""

    requests: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By (method, name of the error code, NONE or CANCELLED)."""
    seconds: dict[str, Histogram] = field(default_factory=dict)
    """By method; without cancelled calls, since a followed log is one that lasts until then."""


class Caller(NamedTuple):
    """The principal that makes a call, and its address."""

    principal: str
    host: str


_CALLER: ContextVar[Caller] = ContextVar("caller")
"""The caller of the call that runs; gRPC gives each its own task."""
_CLUSTER_RIGHTS = {
    method: row.cluster_right
    for served in ("Controller", *SERVICES)
    for service, _, method, row in ((*name.partition("/"), row) for name, row in RPC_RIGHTS.items())
    if service == served
}
"""What a method demands, by its name. Methods of the controller that are served here have the rows of its service."""


def current_caller() -> Caller:
    """The caller of the call that runs."""
    return _CALLER.get()


class CallersController:
    """The active controller, asked on behalf of whoever made the call that runs."""

    def __init__(self, controller: ActiveController) -> None:
        self._controller = controller

    async def ask(
        self,
        request: Request[R],
        *,
        principal: str = "",
        client_host: str = "",
        timeout_ms: int | None = None,
    ) -> R:
        """See ActiveController. The caller is known here, and cannot be given."""
        assert not principal and not client_host, "an admin service asks for its caller"
        whose = current_caller()
        return await self._controller.ask(
            request, principal=whose.principal, client_host=whose.host, timeout_ms=timeout_ms
        )


class AdminEdge:
    """The edge of one node's admin services. Belongs to the control lane."""

    def __init__(
        self,
        node_id: BrokerId,
        access: AccessControl | None = None,
        *,
        identify: Callable[[Any], str] = lambda context: caller.get(),
    ) -> None:
        """
        Args:
            access: by the ACLs of the control lane's image; None allows everything.
            identify: the principal of a call, "User:NAME", from its gRPC context; by default who the listener says it is.
        """
        self._node_id = node_id
        self._access = access if access is not None else AccessControl()
        self._identify = identify
        self.stats = AdminStats()

    def access_of(self, whose: Caller) -> Access:
        """What a caller may do, by the ACLs."""
        return self._access.of(*whose)

    async def answer(self, method: str, context: Any, work: Coroutine[Any, Any, R], *, counted_as: str = "") -> R:
        """Run one method (its name in the .proto), if its caller may, and give its answer; ends the call with a status when it
        fails. `counted_as`: in the place of the method's name."""
        started_s = time.perf_counter()
        counted = counted_as or method
        error: KafkaError | None = None
        answer: Any = None
        whose = Caller(self._identify(context), host_of(context))
        _CALLER.set(whose)
        try:
            right = _CLUSTER_RIGHTS[method]
            if right is not None:
                self.access_of(whose).require(*right)
            answer = await work
        except KafkaError as refusal:
            work.close()  # where it was not begun
            error = refusal
        except asyncio.CancelledError:
            self.stats.requests[counted, CANCELLED] += 1
            raise
        except Exception as bug:
            logger.exception("admin call %s failed", counted)
            error = KafkaError(f"{counted} failed on node {self._node_id}: {bug!r}")
        code = ErrorCode.NONE if error is None else error.code
        self.stats.requests[counted, code.name] += 1
        self.stats.seconds.setdefault(counted, Histogram()).observe(time.perf_counter() - started_s)
        if error is not None:
            await abort(context, error)
        answered: R = answer
        return answered
