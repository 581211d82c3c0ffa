"""When a broker that starts may be heard: it listens once it has read its own registration, and serves once it is unfenced.

May touch:  asyncio.                  Must not touch: sockets, gRPC, logs.
Invariants: judged by metadata that is applied on the data lane, and by the registration of this process: what an earlier
    process of the same id was says nothing; it opens once, and afterwards only isolation.py shuts it.
Read next:  publisher.py, which shows it every image; ../network/listener.py, which waits for it; isolation.py.

Why: a client asks the first broker that accepts its connection. One that has not read the metadata yet would name no
brokers, no controller and no topics, and some clients (librdkafka) believe that for good. Kafka serves once the broker has
caught up with its own registration; but a fenced broker is in no list of brokers yet, and after a failure of the
whole cluster that list would be empty.

Nothing in the cluster needs a broker before it is unfenced: a fenced broker leads no partition, so no follower fetches from
it, and to be unfenced it needs the controllers alone. Between its registration and its unfencing (milliseconds) it listens
without accepting: the kernel keeps connections, so that followers who hear a moment earlier that it leads wait, and the
controller's probe finds a listener. Before that, connections are refused, and clients try another broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from barnabas_quorum.image.metadata import MetadataImage
from barnabas_wire.kafka.ids import BrokerId, Uuid


class Readiness:
    """Says when to listen and when to serve. Data lane only, but for `is_open`."""

    def __init__(self, *, broker_id: BrokerId, incarnation_id: Uuid, on_registered: Callable[[], None]) -> None:
        """`on_registered` is called once, when this process's registration is applied here."""
        self.is_isolated = False
        """Clients are shut out for now; kept by isolation.py."""
        self._has_opened = False
        self._broker_id = broker_id
        self._incarnation_id = incarnation_id
        self._on_registered = on_registered
        self._is_registered = False
        self._opened = asyncio.Event()

    @property
    def is_open(self) -> bool:
        """Whether clients are served. Any lane may read it."""
        return self._has_opened and not self.is_isolated

    @property
    def has_read_registration(self) -> bool:
        """Whether the metadata here is as new as this process's registration. Data lane only."""
        return self._is_registered

    def look(self, image: MetadataImage) -> None:
        """The data lane has applied this image."""
        if self._has_opened:
            return
        if not self._is_registered and is_registered(image, self._broker_id, self._incarnation_id):
            self._is_registered = True
            self._on_registered()
        if is_in_service(image, self._broker_id, self._incarnation_id):
            self._has_opened = True
            self._opened.set()

    async def wait_open(self) -> None:
        """Returns when clients may be served."""
        await self._opened.wait()


def is_registered(image: MetadataImage, broker_id: BrokerId, incarnation_id: Uuid) -> bool:
    """Whether the image holds the registration of this very process."""
    broker = image.cluster.broker(broker_id)
    return broker is not None and broker.incarnation_id == incarnation_id


def is_in_service(image: MetadataImage, broker_id: BrokerId, incarnation_id: Uuid) -> bool:
    """Whether the image holds the registration of this very process, and it is unfenced."""
    broker = image.cluster.broker(broker_id)
    return broker is not None and broker.incarnation_id == incarnation_id and not broker.is_fenced
