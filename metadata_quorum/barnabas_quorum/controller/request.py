"""What every request to the active controller is, and the one way to ask it.

May touch:  barnabas_wire.kafka.      Must not touch: everything else.
Invariants: a request names its reply by its type, so that `ask` gives back what was asked for; what may be asked twice says so
            itself.
Read next:  requests.py and its neighbours, which declare the requests; decisions.py, where each has its decision.
"""

from __future__ import annotations

import sys
from typing import Any, ClassVar, Generic, Protocol, TypeVar, get_args

from barnabas_wire.kafka.ids import ANONYMOUS

R = TypeVar("R")


class Request(Generic[R]):
    """What the active controller can be asked; `R` is the type of its reply."""

    __slots__ = ()

    is_nodes_own: ClassVar[bool] = False
    """A node asks it for itself, and asks again when refused or cut off: each names what it replaces, or asks for something
    new. So a refusal by a deposed controller does no harm."""
    is_read: ClassVar[bool] = False
    """It changes nothing, whatever comes of it."""


def reply_type(request_type: type[Request[Any]]) -> type:
    """The type of reply that a request names."""
    (base,) = (base for base in vars(request_type)["__orig_bases__"] if get_args(base))
    (named,) = get_args(base)
    found: type = getattr(sys.modules[request_type.__module__], named.__forward_arg__)
    return found


class ActiveController(Protocol):
    """Whichever controller is active, for who asks it (the broker room's controller client)."""

    async def ask(self, request: Request[R], *, principal: str = ANONYMOUS, timeout_ms: int | None = None) -> R:
        """The reply, once what was decided is committed.

        Args:
            principal: in whose name.
            timeout_ms: in all, over every controller that is tried; None = what the client takes for such a request.

        Raises the KafkaError that refuses the request whole, or REQUEST_TIMED_OUT when no controller answered.
        """
        ...
