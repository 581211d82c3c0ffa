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
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from barnabas_broker.admin.errors import abort
from barnabas_broker.security.callers import caller
from barnabas_quorum.controller.request import ActiveController, Request
from barnabas_wire.histogram import Histogram
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import ANONYMOUS, BrokerId

logger = logging.getLogger(__name__)

CANCELLED = "CANCELLED"
"""In the place of an error code: the client went away, or its time was up."""
R = TypeVar("R")


@dataclass(slots=True)
class AdminStats:
    """What the services have answered."""

    requests: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By (method, name of the error code, NONE or CANCELLED)."""
    seconds: dict[str, Histogram] = field(default_factory=dict)
    """By method; without cancelled calls, since a followed log is one that lasts until then."""


class CallersController:
    """The controller as the admin services ask it: in the name of whoever called them."""

    def __init__(self, controller: ActiveController) -> None:
        self._controller = controller

    async def ask(self, request: Request[R], *, principal: str = ANONYMOUS, timeout_ms: int | None = None) -> R:
        """See ActiveController; a principal that is named wins."""
        whose = caller.get() if principal == ANONYMOUS else principal
        return await self._controller.ask(request, principal=whose, timeout_ms=timeout_ms)


class AdminEdge:
    """The edge of one node's admin services. Belongs to the control lane."""

    def __init__(self, node_id: BrokerId) -> None:
        self._node_id = node_id
        self.stats = AdminStats()

    async def answer(self, method: str, context: Any, work: Awaitable[R]) -> R:
        """Run one method (its name in the .proto) and give its answer; ends the call with a status when it fails."""
        started_s = time.perf_counter()
        error: KafkaError | None = None
        answer: Any = None
        try:
            answer = await work
        except KafkaError as refusal:
            error = refusal
        except asyncio.CancelledError:
            self.stats.requests[method, CANCELLED] += 1
            raise
        except Exception as bug:
            logger.exception("admin call %s failed", method)
            error = KafkaError(f"{method} failed on node {self._node_id}: {bug!r}")
        code = ErrorCode.NONE if error is None else error.code
        self.stats.requests[method, code.name] += 1
        self.stats.seconds.setdefault(method, Histogram()).observe(time.perf_counter() - started_s)
        if error is not None:
            await abort(context, error)
        answered: R = answer
        return answered
