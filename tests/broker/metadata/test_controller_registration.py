"""A controller keeps itself registered: once per process, again when it was forgotten, and patiently when refused."""

from __future__ import annotations

import asyncio
from typing import Any

from barnabas_broker.metadata import controller_registration
from barnabas_broker.metadata.controller_registration import ControllerRegistrar
from barnabas_quorum.controller.requests_cluster import RegisterController, UnregisterController
from barnabas_quorum.image.features import SUPPORTED_FEATURES
from barnabas_quorum.image.metadata import MetadataDelta
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Endpoint
from tests.support.decided_cluster import CLUSTER_ID, DecidedCluster, uuid

IDENTITY = RegisterController(
    controller_id=BrokerId(3),
    cluster_id=CLUSTER_ID,
    incarnation_id=uuid(1),
    endpoints=(Endpoint("CONTROLLER", "h", 1),),
    features=SUPPORTED_FEATURES,
)


class Client:
    """A controller client whose requests are decided and committed at once; refuses as often as it is told to."""

    def __init__(self, cluster: DecidedCluster) -> None:
        self.cluster = cluster
        self.refusals = 0
        self.asked = 0

    async def ask(self, request: Any, *, timeout_ms: int) -> Any:
        self.asked += 1
        if self.refusals:
            self.refusals -= 1
            raise KafkaError.of(ErrorCode.REQUEST_TIMED_OUT, "nobody answers")
        return self.cluster.do(request)


async def test_it_registers_once_and_again_when_it_was_forgotten(monkeypatch: Any) -> None:
    monkeypatch.setattr(controller_registration, "RETRY_MS", 0)
    cluster = DecidedCluster()
    client: Any = Client(cluster)
    client.refusals = 2
    registrar = ControllerRegistrar(identity=IDENTITY, client=client, image=lambda: cluster.image)
    running = asyncio.ensure_future(registrar.run())

    async def turn() -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    def tell() -> None:
        delta = MetadataDelta(cluster.images[-2])
        delta.replay(cluster.log[-1])
        registrar.on_metadata_update(delta, cluster.image)

    await turn()
    assert cluster.image.cluster.controllers[BrokerId(3)].endpoints == IDENTITY.endpoints
    assert client.asked == 3
    tell()
    await turn()
    assert client.asked == 3  # it sees itself
    cluster.do(UnregisterController(controller_id=BrokerId(3)))
    tell()
    await turn()
    assert client.asked == 4 and BrokerId(3) in cluster.image.cluster.controllers
    running.cancel()
