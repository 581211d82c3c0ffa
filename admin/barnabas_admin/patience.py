"""Questions of long work: asked again while nodes restart and controllers change.

May touch:  the clock.                Must not touch: what it asks.
Invariants: only for what changes nothing, or what may be done twice; an error that no waiting mends is raised at once.
Read next:  moving.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from barnabas_admin.errors import AdminError
from barnabas_wire.kafka.errors import ErrorCode

T = TypeVar("T")

TROUBLE_S_MAX = 60.0
"""Long work outlives this long without an answer, and no longer."""
PAUSE_S = 0.3
_MAY_PASS = frozenset((ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER))


def patiently(ask: Callable[[], T], *, within_s: float = TROUBLE_S_MAX) -> T:
    """What `ask` returns, as soon as it does; raises its AdminError when it may not pass, or after `within_s` seconds."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            return ask()
        except AdminError as error:
            if not (error.is_retriable or error.code in _MAY_PASS) or time.monotonic() > deadline:
                raise
            time.sleep(PAUSE_S)
