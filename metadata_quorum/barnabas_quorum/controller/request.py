"""The base of every request to the active controller, and the one way to send it.

May touch:  barnabas_wire.kafka.      Must not touch: everything else.
Invariants: the type of a request names its reply, so that `ask` returns the right type; a request that may be sent twice says
            so itself.
Read next:  requests.py and its neighbours, which declare the requests; decisions.py, where each has its decision.
"""

from __future__ import annotations

import sys
from typing import Any, ClassVar, Generic, Protocol, TypeVar, get_args

from barnabas_wire.kafka.ids import ANONYMOUS

R = TypeVar("R")


class Request(Generic[R]):
    """A request to the active controller; `R` is the type of its reply."""

    __slots__ = ()

    is_nodes_own: ClassVar[bool] = False
    """A node sends it for itself, and again after a refusal or a broken connection: each names what it replaces, or asks for
    something new. So a refusal by a deposed controller does no harm."""
    is_operators: ClassVar[bool] = False
    """An operator asks it in this form, at the admin listener of any node; others are asked by nodes alone."""
    is_read: ClassVar[bool] = False
    """It changes nothing, whatever its outcome."""


def reply_type(request_type: type[Request[Any]]) -> type:
    """The type of reply that a request names."""
    (base,) = (base for base in vars(request_type)["__orig_bases__"] if get_args(base))
    (named,) = get_args(base)
    found: type = getattr(sys.modules[request_type.__module__], named.__forward_arg__)
    return found


class ActiveController(Protocol):
    """The active controller, as its callers see it (the broker room's controller client)."""

    async def ask(
        self,
        request: Request[R],
        *,
        principal: str = ANONYMOUS,
        client_host: str = "",
        timeout_ms: int | None = None,
    ) -> R:
        """The reply, once the decision is committed.

        Args:
            principal: on whose behalf; NODE_PRINCIPAL where a node asks of its own accord.
            client_host: the address that the principal came from.
            timeout_ms: in total, over every controller that is tried; None = the client's default for such a request.

        Raises the KafkaError that refuses the whole request, or REQUEST_TIMED_OUT when no controller answered.
        """
        ...
