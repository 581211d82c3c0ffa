"""Producer ids, given out from blocks that the controller allots.

May touch:  the controller client.    Must not touch: the network, the log.
Invariants: an id is given once: blocks never overlap (the controller's record), and a block's rest is lost on restart.
Read next:  api/init_producer_id.py, the only caller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple


class ProducerIdBlock(NamedTuple):
    """Ids first … first + size − 1."""

    first: int
    size: int


class ProducerIds:
    """One broker's source of producer ids; to be used on one event loop."""

    def __init__(self, allocate: Callable[[], Awaitable[ProducerIdBlock]]) -> None:
        """`allocate` asks the controller for a block; it raises a retriable KafkaError while none answers."""
        self._allocate = allocate
        self._next = 0
        self._end = 0
        self._allocation = asyncio.Lock()

    async def next_id(self) -> int:
        """The next id; waits for a block when the last one is used up. Raises what `allocate` raises."""
        if self._next == self._end:
            async with self._allocation:
                if self._next == self._end:  # another waiter may have brought a block meanwhile
                    block = await self._allocate()
                    self._next, self._end = block.first, block.first + block.size
        given = self._next
        self._next += 1
        return given
