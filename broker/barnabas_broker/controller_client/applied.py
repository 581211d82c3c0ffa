"""How far this node has applied the metadata, and who waits until it has.

May touch:  asyncio.                  Must not touch: images, gRPC, the data lane.
Invariants: the offset never goes back; a waiter leaves when its offset is reached or its time is up, whichever is first.
Read next:  client.py, which holds an answer back until what it reports is applied here.

Why: the active controller answers when a change is committed, and each node applies it a moment later. Whoever has made a
topic and asks the same node for it would hear that there is none. (Kafka leaves that to the client, which has to ask again.)
"""

from __future__ import annotations

import asyncio

from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_wire.kafka.ids import Offset


class AppliedOffset:
    """The offset up to which this node has applied the metadata. Control lane only."""

    name = "applied"

    def __init__(self) -> None:
        self._offset = Offset(-1)
        self._waiting: dict[asyncio.Future[None], Offset] = {}

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Publisher, on a node without a broker: what is in the image is applied."""
        self.advance(image.offset)

    def advance(self, offset: Offset) -> None:
        """Everything up to `offset` is applied."""
        self._offset = max(self._offset, offset)
        for future, wanted in self._waiting.items():
            if wanted <= self._offset and not future.done():
                future.set_result(None)

    async def reach(self, offset: Offset, *, timeout_s: float) -> bool:
        """Wait until `offset` is applied; False when it is not within `timeout_s`."""
        if offset <= self._offset:
            return True
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = offset
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            return False
        finally:
            del self._waiting[future]
        return True
