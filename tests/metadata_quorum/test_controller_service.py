"""The controller's gRPC service on loopback, spoken to with the bare stub."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pprint import pformat
from typing import Any

import grpc.aio
import pytest

from barnabas_quorum.controller.request import Request
from barnabas_quorum.controller.requests import NotActiveController
from barnabas_quorum.driver.controller_driver import ControllerDriver
from barnabas_quorum.driver.controller_service import ControllerService
from barnabas_quorum.driver.faults import error_of, fault_of
from barnabas_quorum.driver.verbs import (
    VERB_BY_REQUEST,
    VERBS,
    read_answer,
    read_call,
    write_answer,
    write_call,
)
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId
from barnabas_wire.rpc import controller_pb2 as pb
from barnabas_wire.rpc.controller_pb2_grpc import ControllerStub
from barnabas_wire.rpc.options import CHANNEL_OPTIONS, SERVER_OPTIONS
from tests.metadata_quorum.golden_values import ERROR, REPLIES, REQUESTS
from tests.support.decided_cluster import HeldQuorum, make_driver, registration


def plain(value: Any) -> str:
    """For comparison: exceptions have no equality of their own, and maps have no order on the wire."""
    return pformat(value)


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_every_request_arrives_as_it_was_sent(request_: Request[Any]) -> None:
    verb = VERB_BY_REQUEST[type(request_)]
    data = write_call(verb, request_, principal="User:a", client_host="10.0.0.9").SerializeToString()
    message = verb.call_type.FromString(data)
    assert read_call(verb, message) == request_
    assert (message.caller.principal, message.caller.host) == ("User:a", "10.0.0.9")


def test_every_verb_has_a_request_and_a_reply_here() -> None:
    assert {type(each) for each in REQUESTS} == set(VERB_BY_REQUEST)
    assert {method for method, _ in REPLIES} == {verb.method for verb in VERBS}


@pytest.mark.parametrize(("method", "reply"), REPLIES, ids=[method for method, _ in REPLIES])
def test_every_reply_arrives_as_it_was_sent(method: str, reply: Any) -> None:
    (verb,) = (each for each in VERBS if each.method == method)
    message = verb.answer_type.FromString(write_answer(verb, reply).SerializeToString())
    arrived: Any = read_answer(verb, message)
    assert plain(arrived) == plain(reply)
    assert getattr(arrived, "hmac", None) == getattr(reply, "hmac", None)  # no repr shows it


@pytest.mark.parametrize(
    ("error", "leader_id"),
    [
        (ERROR, None),
        (NotActiveController("no", leader_id=BrokerId(3)), 3),
        (NotActiveController("no", leader_id=BrokerId(0)), 0),
        (NotActiveController("no", leader_id=None), None),
        (NotActiveController("no", leader_id=None, is_unsettled=True), None),
    ],
)
def test_an_error_arrives_with_its_code_message_and_leader(error: KafkaError, leader_id: int | None) -> None:
    arrived = error_of(pb.Fault.FromString(fault_of(error).SerializeToString()))
    assert (type(arrived), arrived.code, arrived.message) == (type(error), error.code, error.message)
    if isinstance(arrived, NotActiveController):
        assert arrived.leader_id == leader_id
        assert isinstance(error, NotActiveController) and arrived.is_unsettled == error.is_unsettled


def test_an_error_code_of_the_future_is_an_unknown_error() -> None:
    error = error_of(pb.Fault(code=9999, message="new"))
    assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR and "9999" in error.message


# --- over the wire ------------------------------------------------------------------------------------------------------


class Served:
    def __init__(self, driver: ControllerDriver, quorum: HeldQuorum, port: int) -> None:
        self.driver, self.quorum, self.port = driver, quorum, port
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=CHANNEL_OPTIONS)
        self.stub = ControllerStub(self.channel)

    async def register(self, broker_id: int) -> int:
        verb = VERBS[0]
        answer = await self.stub.RegisterBroker(write_call(verb, registration(broker_id), principal=""), timeout=10)
        assert not answer.HasField("fault"), answer.fault
        epoch: int = answer.broker_epoch
        return epoch

    def is_fenced(self, broker_id: int) -> bool:
        return self.driver.controller.committed.cluster.brokers[BrokerId(broker_id)].is_fenced


@asynccontextmanager
async def served(*, elect: bool = True, **config: Any) -> AsyncIterator[Served]:
    driver, quorum = make_driver(asyncio.get_running_loop().call_soon, **{"idle_interval_ms": 0, **config})
    server = grpc.aio.server(options=SERVER_OPTIONS)
    ControllerService(driver).add_to_server(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    task = asyncio.ensure_future(driver.run())
    await asyncio.sleep(0)
    if elect:
        quorum.elect()
    made = Served(driver, quorum, port)
    try:
        yield made
    finally:
        await made.channel.close()
        await server.stop(None)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def beat(broker_id: int, epoch: int, **more: Any) -> Any:
    return pb.HeartbeatMessage(broker_id=broker_id, broker_epoch=epoch, metadata_offset=10**6, **more)


async def test_heartbeats_unfence_a_registered_broker() -> None:
    async with served() as controller:
        epoch = await controller.register(1)
        stream = controller.stub.Heartbeats()
        await stream.write(beat(1, epoch))
        answer: Any = await stream.read()
        assert (answer.is_caught_up, answer.is_fenced) == (True, False)
        stream.cancel()


async def test_the_end_of_a_stream_is_seen_and_the_broker_fenced_long_before_its_session_ends() -> None:
    async with served(session_timeout_ms=60_000, disconnect_grace_ms=20) as controller:
        epoch = await controller.register(1)
        stream = controller.stub.Heartbeats()
        await stream.write(beat(1, epoch))
        await stream.read()
        assert not controller.is_fenced(1)
        await controller.channel.close()
        async with asyncio.timeout(20):
            while not controller.is_fenced(1):
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("breaks_in", ["read", "write"])
async def test_a_stream_that_breaks_is_logged_in_one_line(breaks_in: str, caplog: pytest.LogCaptureFixture) -> None:
    class Breaking:
        """A server's end of a connection whose other end dies after one heartbeat."""

        def __init__(self, first: Any) -> None:
            self.incoming = [first]

        async def read(self) -> Any:
            if self.incoming:
                return self.incoming.pop()
            if breaks_in == "read":
                raise grpc.aio.InternalError("Failed ExecuteBatch")
            return await asyncio.get_running_loop().create_future()

        async def write(self, message: Any) -> None:
            if breaks_in == "write":
                raise grpc.aio.InternalError("Failed ExecuteBatch")

    caplog.set_level("INFO", logger="barnabas_quorum.driver.controller_service")
    async with served(session_timeout_ms=60_000, disconnect_grace_ms=20) as controller:
        epoch = await controller.register(1)
        context: Any = Breaking(beat(1, epoch))
        await ControllerService(controller.driver).Heartbeats(None, context)
        (record,) = caplog.records
        assert f"broker 1 (epoch {epoch}) broke: Failed ExecuteBatch" in record.message and record.exc_info is None
        session = controller.driver.controller.sessions.get(BrokerId(1))
        assert session is not None and session.connections == 0


async def test_a_stream_ends_after_its_first_error() -> None:
    async with served() as controller:
        epoch = await controller.register(1)
        for message, code in (
            (beat(1, epoch + 1), ErrorCode.STALE_BROKER_EPOCH),
            (beat(2, epoch), ErrorCode.BROKER_ID_NOT_REGISTERED),
        ):
            stream = controller.stub.Heartbeats()
            await stream.write(message)
            answer: Any = await stream.read()
            assert answer.fault.code == code and answer.fault.message
            assert await stream.read() is grpc.aio.EOF


async def test_a_stream_belongs_to_one_registration() -> None:
    async with served() as controller:
        first, second = await controller.register(1), await controller.register(2)
        stream = controller.stub.Heartbeats()
        await stream.write(beat(1, first))
        await stream.read()
        await stream.write(beat(2, second))
        refusal: Any = await stream.read()
        assert refusal.fault.code == ErrorCode.INVALID_REQUEST


async def test_a_lost_leadership_ends_the_streams_with_the_new_leaders_name() -> None:
    async with served() as controller:
        epoch = await controller.register(1)
        stream = controller.stub.Heartbeats()
        await stream.write(beat(1, epoch))
        await stream.read()
        controller.quorum.depose(leader_id=3)
        answer: Any = await stream.read()
        assert (answer.fault.code, answer.fault.leader_id) == (ErrorCode.NOT_CONTROLLER, 3)
        assert await stream.read() is grpc.aio.EOF
        refused = await controller.stub.CreateTopics(pb.CreateTopicsCall(), timeout=10)
        assert (refused.fault.code, refused.fault.leader_id) == (ErrorCode.NOT_CONTROLLER, 3)


async def test_a_malformed_call_is_refused_and_the_next_one_answered() -> None:
    async with served() as controller:
        bad = pb.DeleteTopicsCall(topics=[pb.TopicKey(topic_id=b"short")])
        answer = await controller.stub.DeleteTopics(bad, timeout=10)
        assert answer.fault.code == ErrorCode.INVALID_REQUEST
        bad_operation = pb.ConfigEdits(resource_type=2, changes=[pb.ConfigEdit(key="k", operation=99)])
        edits = pb.IncrementalAlterConfigsCall(resources=[bad_operation])
        refusal = await controller.stub.IncrementalAlterConfigs(edits, timeout=10)
        assert refusal.fault.code == ErrorCode.INVALID_REQUEST
        assert await controller.register(1) > 0


async def test_a_malformed_heartbeat_is_answered_with_the_reason_and_ends_its_stream() -> None:
    async with served() as controller:
        epoch = await controller.register(1)
        stream = controller.stub.Heartbeats()
        await stream.write(
            pb.HeartbeatMessage(
                broker_id=1, broker_epoch=epoch, offline_directories=[b"longer than the id of a directory"]
            )
        )
        answer: Any = await stream.read()
        assert answer.fault.code == ErrorCode.INVALID_REQUEST and "16 bytes" in answer.fault.message
        assert await stream.read() is grpc.aio.EOF


async def test_a_bug_in_a_decision_costs_one_call_and_not_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served() as controller:

        def buggy(request: Any, *, now_ms: int) -> None:
            raise ZeroDivisionError("a bug")

        with monkeypatch.context() as patch:
            patch.setattr(controller.driver.controller, "decide", buggy)
            answer = await controller.stub.CreateTopics(pb.CreateTopicsCall(), timeout=10)
            assert answer.fault.code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert await controller.register(1) > 0
        assert controller.driver.is_active
