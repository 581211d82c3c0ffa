"""Looks whether a broker's process is gone: by its listener, as soon as its heartbeat stream broke.

May touch:  sockets.                  Must not touch: the controller, sessions.
Invariants: only a refused connection at every endpoint is a proof; whatever else happens proves nothing.
Read next:  periodic_tasks.py, which asks; explain/brokers.py, which says what follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from barnabas_quorum.explain.brokers import Reach
from barnabas_wire.kafka.ids import Endpoint

PROBE_TIMEOUT_MS = 1000


class BrokerProbe(Protocol):
    """Looks whether a broker's process is gone; simulation replaces it."""

    async def is_refused(self, endpoints: Sequence[Endpoint]) -> bool:
        """True only when every endpoint actively refuses connections: nobody listens there any more."""
        ...


class TcpProbe:
    """BrokerProbe by connecting. A host that does not answer at all proves nothing: the session time-out decides then."""

    async def is_refused(self, endpoints: Sequence[Endpoint]) -> bool:
        """See BrokerProbe."""
        return await reach_of(endpoints) is Reach.REFUSED


async def reach_of(endpoints: Sequence[Endpoint]) -> Reach:
    """REFUSED where every endpoint refuses; else what came of the first that does not."""
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
