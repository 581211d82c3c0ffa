"""A line for every so many requests: what was asked, by whom, how long it took.

May touch:  the log.                  Must not touch: requests, answers.
Invariants: off costs one comparison for each answer; no name or content of a record is logged.
Read next:  connection.py, which hands in answers as it sends them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas_wire.kafka.messages import ApiKey

if TYPE_CHECKING:
    from barnabas_broker.api.slot import ResponseSlot
    from barnabas_broker.network.requests import ClientRequests

logger = logging.getLogger("barnabas_broker.requests")


class RequestLog:
    """Counts the answers of one node and logs each `every`-th."""

    __slots__ = ("_count", "_every")

    def __init__(self, every: int) -> None:
        self._every = every
        self._count = 0

    def note(self, client: ClientRequests, slot: ResponseSlot, now_s: float) -> None:
        """An answer goes out at `now_s`, on the clock of the slot's start."""
        self._count += 1
        if self._count < self._every:
            return
        self._count = 0
        logger.info(
            "%s v%d of %s at %s on %s: %.3f ms, %d bytes of answer",
            ApiKey(slot.api_key).name,
            slot.version,
            client.principal,
            client.client_host,
            client.listener_name,
            (now_s - slot.started) * 1000,
            slot.size_bytes,
        )
