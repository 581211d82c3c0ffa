"""When a starting broker listens, and when it serves; and that it takes up nothing while it stops."""

from __future__ import annotations

import asyncio

import pytest

from barnabas_broker.metadata.cache import MetadataCache
from barnabas_broker.metadata.readiness import Readiness
from barnabas_broker.network.config import NetworkConfig
from barnabas_broker.network.listener import KafkaServer, ListenAddress
from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_quorum.records import BrokerRegistrationChangeRecord, RegisterBrokerRecord
from barnabas_wire.kafka.ids import BrokerId, Endpoint, Epoch, Offset, Uuid
from barnabas_wire.kafka.messages.api_versions import ApiVersionsRequest
from barnabas_wire.kafka.messages.init_producer_id import InitProducerIdRequest
from barnabas_wire.kafka.messages.metadata import MetadataRequest
from tests.support.listener import (
    LISTENER,
    NODE_ID,
    CountingProducerIds,
    RawClient,
    make_image,
    make_services,
    running_server,
    until,
)

OURS = Uuid(b"incarnation-ours")
FORMER = Uuid(b"incarnation-past")


def registered(image: MetadataImage, incarnation_id: Uuid, *, is_fenced: bool) -> MetadataImage:
    delta = MetadataDelta(image)
    delta.replay(
        RegisterBrokerRecord(
            broker_id=NODE_ID,
            incarnation_id=incarnation_id,
            broker_epoch=image.offset + 1,
            endpoints=(Endpoint(LISTENER, "127.0.0.1", 9092),),
            rack=None,
            is_fenced=is_fenced,
            is_in_controlled_shutdown=False,
            directories=(),
            features=(),
        )
    )
    return delta.apply(Offset(image.offset + 1), Epoch(1), 0)


def with_fencing(image: MetadataImage, *, is_fenced: bool) -> MetadataImage:
    broker = image.cluster.broker(NODE_ID)
    assert broker is not None
    delta = MetadataDelta(image)
    delta.replay(BrokerRegistrationChangeRecord(broker_id=NODE_ID, broker_epoch=broker.epoch, is_fenced=is_fenced))
    return delta.apply(Offset(image.offset + 1), Epoch(1), 0)


async def test_the_gate_opens_with_the_unfencing_of_this_process_and_stays_open() -> None:
    steps: list[str] = []
    readiness = Readiness(broker_id=NODE_ID, incarnation_id=OURS, on_registered=lambda: steps.append("registered"))
    former = registered(MetadataImage.EMPTY, FORMER, is_fenced=False)
    for image in (MetadataImage.EMPTY, former):
        readiness.look(image)
        assert not steps and not readiness.is_open, "an earlier process of this id says nothing of this one"
    ours = registered(former, OURS, is_fenced=True)
    readiness.look(ours)
    readiness.look(ours)
    assert steps == ["registered"] and not readiness.is_open
    unfenced = with_fencing(ours, is_fenced=False)
    readiness.look(unfenced)
    assert readiness.is_open
    await readiness.wait_open()
    readiness.look(with_fencing(unfenced, is_fenced=True))
    assert readiness.is_open and steps == ["registered"]


async def test_connections_are_refused_then_wait_then_are_served() -> None:
    services = make_services(metadata=MetadataCache(MetadataImage.EMPTY))
    server = KafkaServer(addresses=[ListenAddress(LISTENER, "127.0.0.1", 0)], config=NetworkConfig(), services=services)
    await server.start()
    readiness = Readiness(broker_id=NODE_ID, incarnation_id=OURS, on_registered=server.listen)
    task = asyncio.create_task(server.run(wait_open=readiness.wait_open))
    try:
        with pytest.raises(ConnectionRefusedError):
            await RawClient.connect(server)
        fenced = registered(make_image(), OURS, is_fenced=True)
        readiness.look(fenced)
        client = await RawClient.connect(server)
        asking = asyncio.create_task(client.call(MetadataRequest(topics=None), 12))
        done, _ = await asyncio.wait((asking,), timeout=0.1)
        assert not done and server.stats.connections_accepted == 0, "it waits in the kernel"
        image = with_fencing(fenced, is_fenced=False)
        assert isinstance(services.metadata, MetadataCache)
        services.metadata.swap(image)
        readiness.look(image)
        answer = await asyncio.wait_for(asking, 30)
        assert [broker.node_id for broker in answer.brokers] == [NODE_ID] and answer.controller_id == NODE_ID
        assert [topic.error_code for topic in answer.topics] == [0]
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_server_that_is_stopped_before_it_served_refuses_again() -> None:
    server = KafkaServer(
        addresses=[ListenAddress(LISTENER, "127.0.0.1", 0)], config=NetworkConfig(), services=make_services()
    )
    await server.start()
    readiness = Readiness(broker_id=NODE_ID, incarnation_id=OURS, on_registered=server.listen)
    task = asyncio.create_task(server.run(wait_open=readiness.wait_open))
    readiness.look(registered(MetadataImage.EMPTY, OURS, is_fenced=True))
    client = await RawClient.connect(server)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert await asyncio.wait_for(client.is_closed_by_server(), 30)
    with pytest.raises(ConnectionRefusedError):
        await RawClient.connect(server)


async def test_where_every_broker_is_fenced_the_one_that_answers_names_itself() -> None:
    image = with_fencing(make_image(), is_fenced=True)
    async with running_server(make_services(metadata=MetadataCache(image))) as server:
        answer = await (await RawClient.connect(server)).call(MetadataRequest(topics=None), 12)
    assert [broker.node_id for broker in answer.brokers] == [NODE_ID]
    assert answer.controller_id == NODE_ID
    assert BrokerId(2) not in {broker.node_id for broker in answer.brokers}


async def test_a_request_that_comes_while_the_server_stops_ends_without_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ids = CountingProducerIds()
    ids.gate.clear()
    async with running_server(make_services(producer_ids=ids)) as server:
        first, second = await RawClient.connect(server), await RawClient.connect(server)
        await second.call(ApiVersionsRequest(), 3)
        await first.send(first.frame(InitProducerIdRequest(transactional_id=None), 4)[1])
        await until(lambda: server.stats.requests)
        (running,) = [task for task in asyncio.all_tasks() if task.get_coro().__qualname__ == "KafkaServer.run"]  # type: ignore[union-attr]
        running.cancel()
        second.writer.write(second.frame(InitProducerIdRequest(transactional_id=None), 4)[1])
        assert await asyncio.wait_for(second.is_closed_by_server(), 30)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    assert server.stats.connections_closed["bug"] == 0
