"""The broker's controller client: finding the active controller, time-outs, lanes, and the replication room's channel."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
import pytest

from barnabas_broker.controller_client.applied import AppliedOffset
from barnabas_broker.controller_client.client import ControllerClient, ControllerUnreachable
from barnabas_broker.controller_client.grpc_transport import GrpcControllerTransport
from barnabas_broker.controller_client.producer_ids import ProducerIdBlock
from barnabas_quorum.controller.requests import (
    AllocateProducerIds,
    BrokerHeartbeat,
    ConfigAlteration,
    ConfigChange,
    ConfigOperation,
    CreatableTopic,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    IncrementalAlterConfigs,
    NotActiveController,
    TopicGrowth,
    TopicReference,
)
from barnabas_quorum.controller.requests_cluster import RegisterController, RegisterControllerReply
from barnabas_quorum.driver.controller_service import ControllerService
from barnabas_quorum.image.features import SUPPORTED_FEATURES
from barnabas_quorum.records import ConfigResourceType
from barnabas_replication.controller import AlterPartitionChannel, AlterPartitionItem, IsrMember
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Endpoint, Epoch, Offset
from barnabas_wire.rpc.options import SERVER_OPTIONS
from tests.support.controllers import Controllers
from tests.support.decided_cluster import CLUSTER_ID, make_driver, registration, uuid
from tests.support.virtual_loop import on_virtual_time


async def serve_broker(controllers: Controllers, broker_id: int = 7) -> None:
    """Register and unfence the client's broker."""
    controllers.broker_epoch = (await controllers.client.ask(registration(broker_id))).broker_epoch
    driver = controllers.active()
    connection = driver.connect(BrokerId(broker_id), controllers.broker_epoch, print)
    await connection.heartbeat(
        BrokerHeartbeat(
            broker_id=BrokerId(broker_id),
            broker_epoch=controllers.broker_epoch,
            metadata_offset=Offset(10**6),
            want_fence=False,
            want_shutdown=False,
        )
    )


TOPIC = CreatableTopic(name="t", partition_count=2, replication_factor=1)
MAKE = CreateTopics(topics=(TOPIC,))


# --- finding the active controller --------------------------------------------------------------------------------------


@on_virtual_time
async def test_a_hint_of_a_controller_that_is_not_active_is_followed_at_once_and_remembered() -> None:
    controllers = Controllers()
    controllers.elect(3)
    controllers.hint = BrokerId(1)
    await controllers.client.ask(registration(7))
    assert controllers.transport.called == [1, 3]
    assert asyncio.get_running_loop().time() < 0.05, "no back-off"
    await controllers.client.ask(registration(8))
    assert controllers.transport.called == [1, 3, 3]


@on_virtual_time
async def test_the_quorums_own_leader_is_asked_first() -> None:
    controllers = Controllers()
    controllers.elect(2)
    controllers.hint = BrokerId(2)
    await controllers.client.ask(registration(7))
    assert controllers.transport.called == [2]


@on_virtual_time
async def test_without_any_hint_everybody_is_asked_in_turn() -> None:
    controllers = Controllers()
    controllers.elect(3)
    for quorum in (controllers.quorums[1], controllers.quorums[2]):
        quorum.depose(None)
    await controllers.client.ask(registration(7))
    assert controllers.transport.called[-1] == 3 and len(controllers.transport.called) <= 3


@on_virtual_time
async def test_two_controllers_that_fail_do_not_hide_the_third() -> None:
    controllers = Controllers()
    failed, asked = None, set()
    for _ in range(6):
        failed = controllers.client.choose_controller(avoid=failed)
        asked.add(failed)
    assert asked == {1, 2, 3}


@on_virtual_time
async def test_a_controller_that_is_down_or_stopped_is_left_for_another() -> None:
    controllers = Controllers()
    controllers.elect(1)
    await controllers.client.ask(registration(7))
    controllers.transport.down = {1}
    controllers.elect(2)
    await controllers.client.ask(registration(8))
    controllers.transport.stopped = {2}
    controllers.elect(3)
    loop = asyncio.get_running_loop()
    start = loop.time()
    (made,) = (await controllers.client.ask(CreateTopics(topics=(TOPIC,), validate_only=True))).topics
    assert 5 <= loop.time() - start < 6, "one attempt's time-out, not the whole deadline"
    assert made.error is not None and made.error.code is ErrorCode.INVALID_REPLICATION_FACTOR


@on_virtual_time
async def test_what_a_node_asks_for_itself_is_asked_again() -> None:
    controllers = Controllers()
    controllers.elect(1)
    await serve_broker(controllers)
    own = RegisterController(
        controller_id=BrokerId(1),
        cluster_id=CLUSTER_ID,
        incarnation_id=uuid(1),
        endpoints=(Endpoint("CONTROLLER", "h", 1),),
        features=SUPPORTED_FEATURES,
    )
    controllers.quorums[1].is_held = True
    asking = asyncio.ensure_future(controllers.client.ask(own))
    await asyncio.sleep(0.1)
    controllers.quorums[1].depose(3)
    controllers.elect(3)
    assert isinstance(await asking, RegisterControllerReply)


@on_virtual_time
async def test_a_change_that_may_have_been_made_is_not_asked_for_again() -> None:
    controllers = Controllers()
    controllers.elect(1)
    await serve_broker(controllers)

    async def create_while(lose: Callable[[], None]) -> KafkaError:
        asking = asyncio.ensure_future(controllers.client.ask(MAKE))
        await asyncio.sleep(0.1)
        lose()
        controllers.elect(3)
        with pytest.raises(KafkaError, match="may have been made or not") as caught:
            await asking
        return caught.value

    controllers.quorums[1].is_held = True
    called = len(controllers.transport.called)
    deposed = await create_while(lambda: controllers.quorums[1].depose(3))
    assert deposed.code is ErrorCode.REQUEST_TIMED_OUT and deposed.is_retriable
    assert controllers.transport.called[called:] == [1], "proposed by 1, perhaps committed by 3"
    controllers.transport.stopped = {1, 2, 3}
    await create_while(lambda: None)
    assert len(controllers.transport.called) == called + 2


@on_virtual_time
async def test_a_change_that_certainly_was_not_made_is_asked_for_again() -> None:
    controllers = Controllers()
    controllers.elect(1)
    await controllers.client.ask(registration(7))
    controllers.elect(3)
    controllers.quorums[1].depose(2)
    controllers.transport.down = {2}
    (made,) = (await controllers.client.ask(MAKE)).topics
    assert made.error is not None and made.error.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert controllers.transport.called[-1] == 3
    assert {1, 2} < set(controllers.transport.called), "one that was not active, one that could not be reached"


@on_virtual_time
async def test_an_election_is_waited_for() -> None:
    controllers = Controllers()
    asking = asyncio.ensure_future(controllers.client.ask(registration(7)))
    await asyncio.sleep(2)
    assert not asking.done()
    controllers.elect(2)
    assert (await asking).broker_epoch > 0
    assert len(controllers.transport.called) < 30, "with back-off"


@on_virtual_time
async def test_whoever_waits_asks_at_once_when_the_quorum_says_who_was_elected() -> None:
    controllers = Controllers()
    asking = asyncio.ensure_future(controllers.client.ask(registration(7)))
    await asyncio.sleep(2)
    loop, called = asyncio.get_running_loop(), len(controllers.transport.called)
    while len(controllers.transport.called) == called:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.05)  # it was just refused, and waits 250 ms
    controllers.elect(2)
    elected_s = loop.time()
    controllers.client.note_elected(BrokerId(2))
    await asking
    assert loop.time() - elected_s < 0.02


@on_virtual_time
async def test_two_controllers_that_point_at_each_other_are_not_asked_without_pause() -> None:
    controllers = Controllers()
    controllers.quorums[1].depose(2)
    controllers.quorums[2].depose(1)
    controllers.quorums[3].depose(1)
    with pytest.raises(KafkaError) as caught:
        await controllers.client.ask(registration(7))
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert len(controllers.transport.called) < 100


@on_virtual_time
async def test_nobody_active_ends_with_a_time_out_that_says_where_to_look() -> None:
    controllers = Controllers()
    controllers.transport.down = {1, 2, 3}
    with pytest.raises(KafkaError, match="quorum status") as caught:
        await controllers.client.ask(MAKE, timeout_ms=1500)
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT and caught.value.is_retriable
    assert 1.5 <= asyncio.get_running_loop().time() < 2


@on_virtual_time
async def test_what_the_active_controller_refuses_is_raised_and_not_tried_again() -> None:
    controllers = Controllers()
    controllers.elect(1)
    controllers.hint = BrokerId(1)
    with pytest.raises(KafkaError) as caught:
        await controllers.client.ask(registration(7, cluster_id="another"))
    assert caught.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert controllers.transport.called == [1]


# --- the verbs ----------------------------------------------------------------------------------------------------------


@on_virtual_time
async def test_every_verb_reaches_the_controller() -> None:
    controllers = Controllers()
    controllers.elect(1)
    await serve_broker(controllers)
    client = controllers.client
    (made,) = (await client.ask(MAKE, principal="User:a")).topics
    assert made.error is None
    growth = TopicGrowth(name="t", partition_count=3)
    (grown,) = (await client.ask(CreatePartitions(topics=(growth,)))).topics
    assert grown.error is None
    change = ConfigChange(key="k", operation=ConfigOperation.SET, value="v")
    resource = ConfigAlteration(resource_type=ConfigResourceType.TOPIC, resource_name="t", changes=(change,))
    (altered,) = (await client.ask(IncrementalAlterConfigs(resources=(resource,)))).resources
    assert altered.error is None
    assert await controllers.own.allocate_producer_ids() == ProducerIdBlock(0, 1000)
    assert await controllers.own.allocate_producer_ids() == ProducerIdBlock(1000, 1000)
    image = controllers.active().controller.committed
    assert len(image.topics.topics["t"].partitions) == 3 and image.configs.topic("t") == {"k": "v"}
    (deleted,) = (await client.ask(DeleteTopics(topics=(TopicReference(name="t"),)))).topics
    assert (deleted.name, deleted.topic_id, deleted.error) == ("t", made.topic_id, None)


@on_virtual_time
async def test_the_replication_rooms_channel_carries_proposals_and_outcomes() -> None:
    controllers = Controllers()
    controllers.elect(1)
    await serve_broker(controllers)
    (made,) = (await controllers.client.ask(MAKE)).topics
    channel: AlterPartitionChannel = controllers.own
    members = (IsrMember(BrokerId(7), controllers.broker_epoch),)
    items = [
        AlterPartitionItem(made.topic_id, "t", index, Epoch(epoch), members, 0) for index, epoch in ((0, 0), (1, 5))
    ]
    good, bad = await channel.alter_partition(items)
    assert (good.error, good.leader_id, good.isr, good.partition_epoch) == (None, 7, (7,), 0)
    assert bad.partition == 1 and bad.error is not None and bad.error.code is ErrorCode.NOT_CONTROLLER
    controllers.broker_epoch -= 1
    with pytest.raises(KafkaError) as caught:
        await channel.alter_partition(items)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH


# --- lanes and gRPC -----------------------------------------------------------------------------------------------------


async def test_a_request_from_another_loop_is_carried_out_on_the_control_lane() -> None:
    lanes: list[int] = []

    class Watched:
        async def call(
            self, controller_id: BrokerId, request: Any, *, principal: str, client_host: str = "", timeout_ms: int
        ) -> Any:
            lanes.append(threading.get_ident())
            raise KafkaError.of(ErrorCode.INVALID_REQUEST, "seen")

    control = asyncio.new_event_loop()
    thread = threading.Thread(target=control.run_forever)
    thread.start()
    try:
        client = ControllerClient(
            Watched(),  # type: ignore[arg-type]
            loop=control,
            controllers=[BrokerId(1)],
            leader_hint=lambda: None,
        )
        with pytest.raises(KafkaError, match="seen"):
            await client.ask(AllocateProducerIds(broker_id=BrokerId(7), broker_epoch=1))
        assert lanes == [thread.ident]
    finally:
        control.call_soon_threadsafe(control.stop)
        thread.join()
        control.close()


async def test_over_grpc_a_refusal_a_dead_port_and_a_deadline_are_told_apart() -> None:
    driver, quorum = make_driver(asyncio.get_running_loop().call_soon, idle_interval_ms=0)
    server = grpc.aio.server(options=SERVER_OPTIONS)
    ControllerService(driver).add_to_server(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    transport = GrpcControllerTransport({BrokerId(1): ("127.0.0.1", port)})
    try:
        with pytest.raises(NotActiveController):
            await transport.call(BrokerId(1), registration(7), principal="", timeout_ms=10_000)
        quorum.elect()
        assert await transport.call(BrokerId(1), registration(7), principal="", timeout_ms=10_000)
        quorum.is_held = True
        with pytest.raises(TimeoutError):
            await transport.call(BrokerId(1), registration(8), principal="", timeout_ms=50)
        quorum.is_held = False
        await server.stop(None)
        with pytest.raises(ControllerUnreachable):
            await transport.call(BrokerId(1), registration(7), principal="", timeout_ms=10_000)
        stream = await transport.open_heartbeats(BrokerId(1))
        with pytest.raises(ControllerUnreachable):
            await stream.receive()
    finally:
        await transport.close()
        await server.stop(None)


@asynccontextmanager
async def over_grpc(applied: AppliedOffset) -> AsyncIterator[ControllerClient]:
    """A client whose only controller is reached over gRPC and knows broker 7, unfenced."""
    driver, quorum = make_driver(asyncio.get_running_loop().call_soon, idle_interval_ms=0)
    server = grpc.aio.server(options=SERVER_OPTIONS)
    ControllerService(driver).add_to_server(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    quorum.elect()
    client = ControllerClient(
        GrpcControllerTransport({BrokerId(1): ("127.0.0.1", port)}, applied=applied),
        loop=asyncio.get_running_loop(),
        controllers=[BrokerId(1)],
        leader_hint=lambda: BrokerId(1),
    )
    epoch = (await client.ask(registration(7))).broker_epoch
    heartbeat = BrokerHeartbeat(
        broker_id=BrokerId(7),
        broker_epoch=epoch,
        metadata_offset=Offset(10**6),
        want_fence=False,
        want_shutdown=False,
    )
    await driver.connect(BrokerId(7), epoch, print).heartbeat(heartbeat)
    try:
        yield client
    finally:
        await client.close()
        await server.stop(None)


async def test_who_made_a_topic_is_answered_when_this_node_knows_it() -> None:
    applied = AppliedOffset()
    async with over_grpc(applied) as client:
        making = asyncio.ensure_future(client.ask(MAKE))
        async with asyncio.timeout(30):
            while not applied._waiting:
                assert not making.done(), "answered although this node does not know the topic"
                await asyncio.sleep(0.001)
        (wanted,) = applied._waiting.values()
        applied.advance(Offset(wanted - 1))
        await asyncio.sleep(0.01)
        assert not making.done()
        applied.advance(wanted)
        (made,) = (await making).topics
        assert made.error is None
        # What a node asks for itself waits for nobody: it may be what the node needs to go on.
        await client.ask(registration(8))


async def test_a_node_that_stands_still_keeps_nobody_waiting_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas_broker.controller_client.client.APPLIED_TIMEOUT_MS", 10)
    async with over_grpc(AppliedOffset()) as client:
        (made,) = (await client.ask(MAKE)).topics
        assert made.error is None
