"""A controller's look at the others: has the quorum been recovered without it?

May touch:  the quorum's transport.   Must not touch: the core, files (the guard's owner keeps what is heard).
Invariants: asked once before the quorum runs and then for ever, of every address that may know and was not heard of since as
            one of this incarnation; an address that does not answer proves nothing, so a node never waits longer than
            LOOK_TIMEOUT_S for the first look.
Read next:  barnabas_quorum/driver/incarnation.py.

A returning majority that saw only itself would elect by its old voter set; its brokers-to-be would be refused, but it would take
a while to learn why. This look ends it as soon as any recovered controller can be reached.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence

from barnabas_quorum.driver.transport import Transport
from barnabas_quorum.raft.voters import ReplicaKey, Voter
from barnabas_wire.kafka.ids import ZERO_UUID, BrokerId

LOOK_TIMEOUT_S = 0.5
LOOK_INTERVAL_S = 5.0


class IncarnationWatch:
    """Asks; the transport's guard hears. Belongs to the control lane."""

    def __init__(
        self,
        transport: Transport,
        *,
        node_address: tuple[str, int],
        voters: Callable[[], Iterable[Voter]],
        addresses: Sequence[tuple[str, int]],
        take_agreeing: Callable[[], Collection[ReplicaKey]],
    ) -> None:
        """`voters` of this node's own log, read again each time; `addresses` besides: bootstrap servers, first voters;
        `take_agreeing`: the guard's."""
        self._transport = transport
        self._node_address = node_address
        self._voters = voters
        self._addresses = tuple(addresses)
        self._take_agreeing = take_agreeing

    async def look(self) -> None:
        """Ask once whoever has not shown since the last look, by what it sent or answered, that it is of this incarnation."""
        agreeing = self._take_agreeing()
        addresses = {(voter.host, voter.port): voter.key for voter in self._voters()}
        settled = {address for address, key in addresses.items() if key in agreeing} | {self._node_address}
        nobody = ReplicaKey(BrokerId(-1), ZERO_UUID)
        await asyncio.gather(
            *(
                self._transport.describe(Voter(nobody, host, port), timeout_s=LOOK_TIMEOUT_S)
                for host, port in sorted({*addresses, *self._addresses} - settled)
            ),
            return_exceptions=True,
        )

    async def run(self) -> None:
        """Ask again and again, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_INTERVAL_S)
            await self.look()
