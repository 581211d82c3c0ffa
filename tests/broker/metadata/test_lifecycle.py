"""The broker's life with the controller, on virtual time; and once over gRPC."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
import pytest

from barnabas_broker.controller_client.client import ControllerClient
from barnabas_broker.controller_client.grpc_transport import GrpcControllerTransport
from barnabas_broker.metadata.config import LifecycleConfig
from barnabas_broker.metadata.lifecycle import BrokerIdentity, BrokerLifecycle, BrokerState
from barnabas_quorum.controller.requests import BrokerHeartbeatReply, CreatableTopic, CreateTopics, RegisterBrokerReply
from barnabas_quorum.controller.requests_integrity import SignOffRecord
from barnabas_quorum.driver.controller_service import ControllerService
from barnabas_quorum.image.features import SUPPORTED_FEATURES
from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_quorum.raft.messages import CommittedBatch, LeaderAndEpoch
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Endpoint, Epoch, Offset
from barnabas_wire.rpc.options import SERVER_OPTIONS
from tests.support import virtual_loop
from tests.support.controllers import Controllers
from tests.support.decided_cluster import CLUSTER_ID, make_driver, registration, uuid
from tests.support.virtual_loop import on_virtual_time


def identity(**more: Any) -> BrokerIdentity:
    return BrokerIdentity(
        **{
            "broker_id": BrokerId(7),
            "cluster_id": CLUSTER_ID,
            "incarnation_id": uuid(1007),
            "endpoints": (Endpoint("PLAINTEXT", "127.0.0.1", 9007),),
            "rack": "r",
            "directories": (uuid(5007),),
            "features": SUPPORTED_FEATURES,
            **more,
        }
    )


class Incarnation:
    """A broker's lifecycle with three controllers, of which 1 is elected. Metadata reaches the broker when told."""

    task: asyncio.Task[None]

    def __init__(self, controllers: Controllers, lifecycle: BrokerLifecycle) -> None:
        self.controllers = controllers
        self.lifecycle = lifecycle
        self.data_lane_stands = False
        self.stood_at_ms = 0
        self.stopped_ms = 0
        """How long the whole process was stopped."""

    def clock_ms(self) -> int:
        return now_ms() + self.stopped_ms

    def last_tick_ms(self) -> int:
        if not self.data_lane_stands:
            self.stood_at_ms = self.clock_ms()
        return self.stood_at_ms

    @property
    def image(self) -> MetadataImage:
        return self.controllers.active().controller.committed

    def publish(self) -> None:
        self.lifecycle.on_metadata_published(self.image.offset)

    def is_fenced(self, broker_id: int = 7) -> bool:
        return self.image.cluster.brokers[BrokerId(broker_id)].is_fenced

    async def begin(self) -> None:
        await self.lifecycle.wait_registered()
        self.lifecycle.set_ready()
        self.publish()
        await self.lifecycle.wait_unfenced()

    def elect(self, node_id: int) -> None:
        self.controllers.elect(node_id)
        self.lifecycle.on_leader_change(LeaderAndEpoch(BrokerId(node_id), Epoch(0)), Offset(0))


def now_ms() -> int:
    return round(asyncio.get_running_loop().time() * 1000)


@asynccontextmanager
async def living(
    *, elect: int | None = 1, begins: bool = False, config: dict[str, Any] | None = None, **more: Any
) -> AsyncIterator[Incarnation]:
    controllers = Controllers(**(config or {}))
    broker: Incarnation
    lifecycle = BrokerLifecycle(
        identity=identity(**more),
        config=LifecycleConfig(),
        client=controllers.client,
        data_lane_last_tick_ms=lambda: broker.last_tick_ms(),
        clock_ms=lambda: broker.clock_ms(),
    )
    broker = Incarnation(controllers, lifecycle)
    async with controllers.running():
        if elect is not None:
            broker.elect(elect)
        broker.task = asyncio.ensure_future(lifecycle.run())
        try:
            if begins:
                await broker.begin()
            yield broker
        finally:
            broker.task.cancel()
            await asyncio.gather(broker.task, return_exceptions=True)


@on_virtual_time
async def test_a_broker_registers_reads_its_registration_and_is_unfenced() -> None:
    async with living() as broker:
        epoch = await broker.lifecycle.wait_registered()
        assert broker.image.cluster.brokers[BrokerId(7)].epoch == epoch == broker.lifecycle.broker_epoch
        assert broker.lifecycle.state is BrokerState.STARTING
        broker.lifecycle.set_ready()
        await asyncio.sleep(5)
        assert broker.is_fenced(), "its own registration is not applied here yet"
        broker.lifecycle.on_metadata_published(Offset(epoch - 1))
        await asyncio.sleep(5)
        assert broker.is_fenced()
        assert all(beat.want_fence for beat in broker.controllers.transport.streams[-1].sent), "and it does not ask"
        start = asyncio.get_running_loop().time()
        broker.lifecycle.on_metadata_published(Offset(epoch))
        await broker.lifecycle.wait_unfenced()
        assert asyncio.get_running_loop().time() - start < 0.1, "it does not wait for the next heartbeat"
        assert not broker.is_fenced() and not broker.lifecycle.is_fenced
        assert broker.lifecycle.state is BrokerState.RUNNING


@on_virtual_time
async def test_a_broker_that_waits_to_ask_again_registers_with_the_election_it_hears_of() -> None:
    async with living(elect=None) as broker:
        await asyncio.sleep(2)
        loop, called = asyncio.get_running_loop(), len(broker.controllers.transport.called)
        while len(broker.controllers.transport.called) == called:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)  # it was just refused, and waits 250 ms
        elected_s = loop.time()
        broker.elect(2)
        await broker.lifecycle.wait_registered()
        assert loop.time() - elected_s < 0.02


@on_virtual_time
async def test_a_broker_that_is_not_ready_stays_fenced() -> None:
    async with living() as broker:
        await broker.lifecycle.wait_registered()
        broker.publish()
        await asyncio.sleep(20)
        assert broker.is_fenced()
        broker.lifecycle.set_ready()
        await asyncio.sleep(0.1)
        assert not broker.is_fenced()


@on_virtual_time
async def test_heartbeats_keep_it_unfenced_at_their_interval() -> None:
    async with living(begins=True) as broker:
        sent = broker.lifecycle.stats.heartbeats_sent
        await asyncio.sleep(60)
        assert 115 <= broker.lifecycle.stats.heartbeats_sent - sent <= 121
        assert broker.lifecycle.stats.streams_opened == 1
        assert not broker.is_fenced()


@on_virtual_time
async def test_a_broken_stream_is_reopened_within_the_grace() -> None:
    async with living(begins=True) as broker:
        for _ in range(5):
            broker.controllers.transport.cut_streams()
            await asyncio.sleep(3)
        assert not broker.is_fenced()
        assert broker.controllers.active().stats.brokers_fenced == 0
        assert broker.lifecycle.stats.registrations == 1


@on_virtual_time
async def test_a_new_active_controller_is_found_at_once_when_the_quorum_tells_of_it() -> None:
    async with living(begins=True) as broker:
        broker.elect(2)
        await asyncio.sleep(0.2)
        assert broker.controllers.transport.streams[-1].controller_id == 2
        await asyncio.sleep(30)
        assert not broker.is_fenced()
        assert broker.lifecycle.stats.registrations == 1


@pytest.mark.parametrize("turns", range(6))
def test_a_stop_is_never_lost_whatever_breaks_in_the_same_turn(turns: int) -> None:
    async def scene() -> None:
        async with living(begins=True) as broker:
            broker.elect(2)  # an error from the old controller and a word of the new one
            for _ in range(turns):
                await asyncio.sleep(0)
            broker.controllers.transport.cut_streams()
            broker.task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await broker.task

    virtual_loop.run(scene())


@pytest.mark.parametrize("turns", range(6))
def test_nothing_that_breaks_together_ends_the_heartbeats(turns: int) -> None:
    async def scene() -> None:
        async with living(begins=True) as broker:
            broker.elect(2)
            for _ in range(turns):
                await asyncio.sleep(0)
            broker.controllers.transport.cut_streams()
            await asyncio.sleep(30)
            assert not broker.task.done() and not broker.is_fenced()

    virtual_loop.run(scene())


@on_virtual_time
async def test_a_new_active_controller_is_found_when_only_the_streams_broke() -> None:
    async with living(begins=True) as broker:
        broker.controllers.transport.down = {1}
        broker.controllers.transport.cut_streams()
        broker.controllers.elect(3)
        await asyncio.sleep(2)
        assert broker.controllers.transport.streams[-1].controller_id == 3
        assert not broker.is_fenced()


@on_virtual_time
async def test_while_no_controller_answers_each_is_named_once_and_then_that_one_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "barnabas_broker.metadata.lifecycle"):
        async with living(begins=True) as broker:
            for outage in (1, 2):
                caplog.clear()
                broker.controllers.transport.down = {1, 2, 3}
                broker.controllers.transport.cut_streams()
                await asyncio.sleep(60)
                told = [line for line in caplog.messages if "heartbeat stream" in line]
                assert 1 <= len(told) <= 6, (outage, len(told))  # of each: the cut, and that it is out of reach
                assert len(set(told)) == len(told)
                broker.controllers.transport.down = set()
                await asyncio.sleep(5)
                again = [line for line in caplog.messages if "answers heartbeats again" in line]
                assert len(again) == 1 and "after 6" in again[0], again


@on_virtual_time
async def test_a_stopped_controller_that_keeps_its_connections_is_left() -> None:
    async with living(begins=True) as broker:
        broker.controllers.transport.stopped = {1}
        await asyncio.sleep(3)
        broker.controllers.elect(2)
        await asyncio.sleep(5)
        assert broker.controllers.transport.streams[-1].controller_id == 2
        assert not broker.is_fenced()


@on_virtual_time
async def test_a_broker_whose_data_lane_stands_still_is_fenced_and_comes_back_when_it_moves() -> None:
    async with living(begins=True) as broker:
        broker.data_lane_stands = True
        await asyncio.sleep(8.9)
        assert not broker.is_fenced(), "three session time-outs: broker.data.lane.timeout.ms judges the data lane"
        assert broker.lifecycle.stats.heartbeats_held_back == 0
        await asyncio.sleep(4)
        assert broker.is_fenced()
        assert broker.lifecycle.stats.heartbeats_held_back > 0
        broker.data_lane_stands = False
        await asyncio.sleep(3)
        assert not broker.is_fenced()
        assert broker.lifecycle.stats.registrations == 1


@on_virtual_time
async def test_a_process_that_was_stopped_does_not_take_its_data_lane_for_stuck() -> None:
    """Both lanes stood still, and the control lane is the first to look at the clock."""
    async with living(begins=True) as broker:
        await asyncio.sleep(1.2)
        broker.last_tick_ms()  # later than the control lane's last look, and before the stop
        broker.data_lane_stands = True
        broker.stopped_ms = 10_000
        await asyncio.sleep(8.7)
        assert broker.lifecycle.stats.heartbeats_held_back == 0
        await asyncio.sleep(1)
        assert broker.lifecycle.stats.heartbeats_held_back > 0, "nine seconds of its own: it is stuck"


@on_virtual_time
async def test_a_lane_that_did_not_run_does_not_take_the_controller_for_silent() -> None:
    """The answers of that time are still to be read: a broker that broke its stream then would have to come back in a second."""
    async with living(begins=True) as broker:
        await asyncio.sleep(1.2)
        broker.controllers.transport.stopped.add(1)
        await asyncio.sleep(0.7)
        broker.stopped_ms = 2000
        await asyncio.sleep(0.9)
        broker.controllers.transport.stopped.clear()
        await asyncio.sleep(1)
        assert broker.lifecycle.stats.streams_opened == 1
        broker.controllers.transport.stopped.add(1)
        await asyncio.sleep(2.1)
        assert broker.lifecycle.stats.streams_opened > 1, "silent while the lane ran"


@on_virtual_time
async def test_a_lane_that_always_wakes_late_leaves_a_silent_controller_too() -> None:
    async with living(begins=True) as broker:
        broker.controllers.transport.stopped.add(1)
        for _ in range(100):
            broker.stopped_ms += 200
            await asyncio.sleep(0.4)
        assert broker.lifecycle.stats.streams_opened > 1


@on_virtual_time
async def test_a_broker_that_was_replaced_registers_anew() -> None:
    async with living(begins=True) as broker:
        first = broker.lifecycle.broker_epoch
        broker.controllers.transport.cut_streams()
        await broker.controllers.active().handle(registration(7, incarnation=99), principal="")
        async with asyncio.timeout(60):
            while broker.lifecycle.broker_epoch == first:
                await asyncio.sleep(0.01)
        assert broker.lifecycle.stats.registrations == 2
        broker.publish()
        await asyncio.sleep(0.2)
        assert not broker.is_fenced()
        assert broker.image.cluster.brokers[BrokerId(7)].incarnation_id == uuid(1007)


@on_virtual_time
async def test_a_second_process_waits_for_the_first_one_to_go(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with living(elect=1, begins=True) as broker:
        driver = broker.controllers.active()
        second = BrokerLifecycle(
            identity=identity(incarnation_id=uuid(2222)),
            config=LifecycleConfig(),
            client=broker.controllers.client,
            data_lane_last_tick_ms=now_ms,
            clock_ms=now_ms,
        )
        task = asyncio.ensure_future(second.run())
        await asyncio.sleep(10)
        assert second.broker_epoch == -1 and not broker.is_fenced()
        assert driver.controller.committed.cluster.brokers[BrokerId(7)].incarnation_id == uuid(1007)
        reported = [entry.message for entry in caplog.records if "is not registered yet" in entry.message]
        assert len(reported) == 1 and "another process is running as broker 7" in reported[0], "it asks 40 times"
        assert not [entry for entry in caplog.records if entry.levelno >= logging.WARNING], "it may end by itself"
        await asyncio.sleep(10)
        (warned,) = [entry.message for entry in caplog.records if entry.levelno >= logging.WARNING]
        assert warned == reported[0]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"features": ()}, ErrorCode.UNSUPPORTED_VERSION),
        ({"directories": ()}, ErrorCode.INVALID_REGISTRATION),
    ],
)
def test_a_broker_that_the_cluster_refuses_for_good_stops(more: dict[str, Any], code: ErrorCode) -> None:
    async def scene() -> None:
        controllers = Controllers()
        controllers.elect(1)
        lifecycle = BrokerLifecycle(
            identity=identity(**more),
            config=LifecycleConfig(),
            client=controllers.client,
            data_lane_last_tick_ms=now_ms,
            clock_ms=now_ms,
        )
        with pytest.raises(KafkaError) as caught:
            await lifecycle.run()
        assert caught.value.code is code

    virtual_loop.run(scene())


@on_virtual_time
async def test_a_broker_that_finds_no_controller_gives_up_after_the_registration_time_out() -> None:
    controllers = Controllers()
    controllers.transport.down = {1, 2, 3}
    lifecycle = BrokerLifecycle(
        identity=identity(),
        config=LifecycleConfig(),
        client=controllers.client,
        data_lane_last_tick_ms=now_ms,
        clock_ms=now_ms,
    )
    with pytest.raises(KafkaError) as caught:
        await lifecycle.run()
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert 60 <= asyncio.get_running_loop().time() < 70


@on_virtual_time
async def test_a_broker_leaves_in_order_and_the_others_are_heard_without_waiting_for_their_interval() -> None:
    async with living(begins=True) as broker:
        other = BrokerLifecycle(
            identity=identity(broker_id=BrokerId(8), incarnation_id=uuid(1008), directories=(uuid(5008),), rack=None),
            config=LifecycleConfig(),
            client=broker.controllers.client,
            data_lane_last_tick_ms=now_ms,
            clock_ms=now_ms,
        )

        class Applied:
            name = "applied"

            def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
                loop = asyncio.get_running_loop()
                loop.call_soon(broker.lifecycle.on_metadata_published, image.offset)
                loop.call_soon(other.on_metadata_published, image.offset)

        listener = broker.controllers.quorums[1].listener
        assert listener is not None
        listener.loader.publishers = (*listener.loader.publishers, Applied())
        other.set_ready()
        task = asyncio.ensure_future(other.run())
        await other.wait_unfenced()
        topic = CreatableTopic(name="t", assignments={0: (BrokerId(7), BrokerId(8))})
        (made,) = (await broker.controllers.client.ask(CreateTopics(topics=(topic,)))).topics
        assert made.error is None
        start = asyncio.get_running_loop().time()
        assert await broker.lifecycle.leave()
        assert asyncio.get_running_loop().time() - start < 0.5
        assert broker.lifecycle.state is BrokerState.SHUTTING_DOWN
        partition = broker.image.topics.topics["t"].partitions[0]
        assert (partition.leader, partition.isr) == (8, (8,))
        assert broker.is_fenced(7) and not broker.is_fenced(8)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@on_virtual_time
async def test_a_broker_that_has_read_far_enough_reports_as_soon_as_it_is_asked() -> None:
    async with living(begins=True) as broker:
        broker.publish()
        await asyncio.sleep(0.1)
        stream = broker.controllers.transport.streams[-1]
        sent = len(stream.sent)
        stream.push(BrokerHeartbeatReply(report_offset=broker.image.offset))
        await asyncio.sleep(0.1)
        assert len(stream.sent) == sent + 1 and stream.sent[-1].metadata_offset == broker.image.offset
        assert not broker.lifecycle.is_fenced, "the question says nothing of the broker"


@on_virtual_time
async def test_a_broker_that_never_registered_leaves_at_once() -> None:
    async with living(elect=None) as broker:
        await asyncio.sleep(5)
        before = asyncio.get_running_loop().time()
        assert await broker.lifecycle.leave()
        assert asyncio.get_running_loop().time() == before


@on_virtual_time
async def test_a_broker_that_was_never_unfenced_waits_a_moment_for_its_leave() -> None:
    async with living() as broker:
        await broker.lifecycle.wait_registered()
        broker.controllers.transport.down = {1, 2, 3}
        broker.controllers.transport.cut_streams()
        before = asyncio.get_running_loop().time()
        assert not await broker.lifecycle.leave()
        assert asyncio.get_running_loop().time() - before == pytest.approx(1.0)


@on_virtual_time
async def test_a_broker_that_gets_no_leave_stops_without_it() -> None:
    async with living(begins=True) as broker:
        broker.controllers.transport.down = {1, 2, 3}
        broker.controllers.transport.cut_streams()
        assert not await broker.lifecycle.leave()
        assert asyncio.get_running_loop().time() >= 30


def test_a_heartbeat_interval_that_one_loss_would_fence_is_refused() -> None:
    with pytest.raises(ValueError, match="at most half"):
        LifecycleConfig(heartbeat_interval_ms=5000)


# --- over gRPC ----------------------------------------------------------------------------------------------------------


async def test_over_grpc_a_broker_comes_up_survives_a_cut_and_is_fenced_when_its_process_is_gone() -> None:
    class Applied:
        name = "applied"
        lifecycle: BrokerLifecycle

        def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
            self.lifecycle.on_metadata_published(image.offset)

    loop = asyncio.get_running_loop()
    applied = Applied()
    driver, quorum = make_driver(loop.call_soon, publishers=[applied], disconnect_grace_ms=300)
    server = grpc.aio.server(options=SERVER_OPTIONS)
    ControllerService(driver).add_to_server(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    transport = GrpcControllerTransport({BrokerId(1): ("127.0.0.1", port)})
    client = ControllerClient(
        transport,
        loop=loop,
        controllers=[BrokerId(1)],
        leader_hint=lambda: None,
    )
    lifecycle = applied.lifecycle = BrokerLifecycle(
        identity=identity(),
        config=LifecycleConfig(),
        client=client,
        data_lane_last_tick_ms=now_ms,
        clock_ms=now_ms,
    )
    lifecycle.set_ready()
    tasks = [asyncio.ensure_future(driver.run()), asyncio.ensure_future(lifecycle.run())]
    try:
        await asyncio.sleep(0)
        quorum.elect()
        async with asyncio.timeout(30):
            await lifecycle.wait_unfenced()
            tasks[1].cancel()  # the process is gone: its end of the stream with it
            await asyncio.gather(tasks[1], return_exceptions=True)
            await client.close()
            while not driver.controller.committed.cluster.brokers[BrokerId(7)].is_fenced:
                await asyncio.sleep(0.01)
        assert driver.stats.brokers_fenced == 1
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await transport.close()
        await server.stop(None)


@on_virtual_time
async def test_a_broker_that_starts_while_a_bad_record_holds_the_controllers_waits_however_long_and_then_registers() -> (
    None
):
    controllers = Controllers()
    controllers.elect(1)
    quorum = controllers.quorums[1]
    await asyncio.sleep(0.01)
    quorum.batches.append(CommittedBatch(quorum.next_offset, quorum.epoch, 0, (b"\xd2\x09\x00",)))
    bad, quorum.next_offset = quorum.next_offset, Offset(quorum.next_offset + 1)
    quorum.commit_all()
    lifecycle = BrokerLifecycle(
        identity=identity(),
        config=LifecycleConfig(),
        client=controllers.client,
        data_lane_last_tick_ms=now_ms,
        clock_ms=now_ms,
    )
    task = asyncio.ensure_future(lifecycle.run())
    await asyncio.sleep(300.0)
    assert not task.done() and lifecycle.broker_epoch == -1
    sign_off = SignOffRecord(offset=bad, digest=b"", reason="garbage")
    await controllers.drivers[BrokerId(1)].handle(sign_off, principal="User:a")
    await asyncio.sleep(5.0)
    assert lifecycle.broker_epoch >= 0
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@on_virtual_time
async def test_a_broker_that_was_held_up_has_its_whole_time_to_register_afterwards() -> None:
    held = KafkaError.of(ErrorCode.KAFKA_STORAGE_ERROR, "the record at offset 7 cannot be replayed")
    former_life = KafkaError.of(ErrorCode.DUPLICATE_BROKER_REGISTRATION, "another process is running as broker 7")
    refusals = [held] * 200 + [former_life] * 3

    class Client:
        async def ask(self, request: Any) -> RegisterBrokerReply:
            if refusals:
                raise refusals.pop(0)
            return RegisterBrokerReply(broker_epoch=9)

        def choose_controller(self, *, avoid: Any) -> BrokerId:
            return BrokerId(1)

        async def open_heartbeats(self, controller_id: BrokerId) -> Any:
            await asyncio.sleep(3600)

    config = LifecycleConfig()
    lifecycle = BrokerLifecycle(
        identity=identity(),
        config=config,
        client=Client(),  # type: ignore[arg-type]
        data_lane_last_tick_ms=now_ms,
        clock_ms=now_ms,
    )
    task = asyncio.ensure_future(lifecycle.run())
    await asyncio.sleep(2 * 200 + 10)
    assert config.registration_timeout_ms / 1000 < 400, "the script shall outlast the time to register"
    assert not task.done() and lifecycle.broker_epoch == 9
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
