"""Keeps one controller registered with the active one: where it is, and what it can (KIP-919).

May touch:  asyncio, the controller client.    Must not touch: the quorum, logs.
Invariants: it asks only while the image does not show this very process; a refusal is reported once and asked again later.
Read next:  metadata_quorum/controller/controllers.py, which decides.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from barnabas_broker.controller_client.client import ADMIN_TIMEOUT_MS, ControllerClient
from barnabas_quorum.controller.requests_cluster import RegisterController
from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_wire.kafka.errors import KafkaError

logger = logging.getLogger(__name__)

RETRY_MS = 1000


class ControllerRegistrar:
    """A publisher of the loader, and a task; belongs to the control lane."""

    name = "controller registration"

    def __init__(
        self, *, identity: RegisterController, client: ControllerClient, image: Callable[[], MetadataImage]
    ) -> None:
        """`image` is the newest that the loader has published."""
        self._identity = identity
        self._client = client
        self._image = image
        self._changed = asyncio.Event()
        self._last_refusal = ""

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """See Publisher."""
        if delta.cluster is not None or delta.features is not None:
            self._changed.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._changed.clear()
            if self._is_needed():
                try:
                    await self._client.ask(self._identity, timeout_ms=ADMIN_TIMEOUT_MS)
                    logger.info("controller %d is registered", self._identity.controller_id)
                except KafkaError as error:
                    if str(error) != self._last_refusal:
                        self._last_refusal = str(error)
                        logger.warning("controller %d is not registered: %s", self._identity.controller_id, error)
                    await asyncio.sleep(RETRY_MS / 1000)
                    continue
            await self._changed.wait()

    def _is_needed(self) -> bool:
        image = self._image()
        if image.features.metadata_version == 0:
            return False  # the cluster has no records yet: its first leader is still writing them
        present = image.cluster.controllers.get(self._identity.controller_id)
        return present is None or (present.incarnation_id, present.endpoints, present.features) != (
            self._identity.incarnation_id,
            self._identity.endpoints,
            self._identity.features,
        )
