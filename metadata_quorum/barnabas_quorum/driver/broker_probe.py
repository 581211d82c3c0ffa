"""Looks whether a broker's process is gone or runs: by its listener, as soon as its heartbeat stream broke.

May touch:  sockets.                  Must not touch: the controller, sessions.
Invariants: only a refused connection at every endpoint proves that it is gone, and only one that is taken that it runs.
Read next:  periodic_tasks.py, which asks; explain/brokers.py, which says what follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from barnabas_quorum.explain.brokers import Reach
from barnabas_wire.kafka.ids import Endpoint

PROBE_TIMEOUT_MS = 1000


BrokerProbe = Callable[[Sequence[Endpoint]], Awaitable[Reach]]
"""Looks at one broker's endpoints: `reach_of`, or what simulation has in its place."""


async def reach_of(endpoints: Sequence[Endpoint]) -> Reach:
    """REFUSED where every endpoint refuses; else what came of the first that does not. Connects by TCP."""
    for endpoint in endpoints:
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_MS / 1000):
                _, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
        except ConnectionRefusedError:
            continue
        except (OSError, TimeoutError, ValueError, OverflowError):  # the last two: the address is none
            return Reach.NO_ANSWER
        writer.close()
        return Reach.LISTENS
    return Reach.REFUSED if endpoints else Reach.UNKNOWN


async def unknown_reach(_: Sequence[Endpoint]) -> Reach:
    """A probe where no broker can be looked at from outside: the grace and the session decide."""
    return Reach.UNKNOWN
