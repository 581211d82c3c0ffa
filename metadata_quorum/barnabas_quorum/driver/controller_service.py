"""The controller's gRPC service: every controller serves it, the active one answers.

May touch:  gRPC, the driver, the table of verbs.   Must not touch: images, decisions.
Invariants: an error is an answer (code, message, and the leader with NOT_CONTROLLER), never a gRPC status; a heartbeat
            stream ends after its first error; one broken call never hurts another.
Read next:  verbs.py, controller_driver.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, cast

import grpc
import grpc.aio

from barnabas_quorum.controller.requests import BrokerHeartbeat, BrokerHeartbeatReply
from barnabas_quorum.driver.controller_driver import ControllerDriver, HeartbeatConnection
from barnabas_quorum.driver.faults import fault_of
from barnabas_quorum.driver.verbs import (
    COMMITTED_OFFSET_KEY,
    HEARTBEAT_ANSWER,
    VERBS,
    Verb,
    read_call,
    read_heartbeat,
    write_answer,
)
from barnabas_wire.kafka.errors import ErrorCode, InvariantViolated, KafkaError
from barnabas_wire.kafka.ids import BrokerId
from barnabas_wire.rpc import controller_pb2 as pb
from barnabas_wire.rpc.controller_pb2_grpc import ControllerServicer, add_ControllerServicer_to_server
from barnabas_wire.rpc.peers import PeerGuard

logger = logging.getLogger(__name__)

HEARTBEATS_PENDING_MAX = 16
"""Heartbeats of one stream whose outcome is not committed yet; while there are more, the stream is not read further."""

_ENDED = object()


class ControllerService:
    """The servicer. Its unary methods are made from the table of verbs below the class."""

    def __init__(self, driver: ControllerDriver, *, peers: PeerGuard | None = None) -> None:
        """peers: of a door with mutual TLS; each heartbeat stream is checked by it, as every call is before it comes here."""
        self._driver = driver
        self._peers = peers

    def add_to_server(self, server: grpc.aio.Server) -> None:
        """Register with a server that was made with SERVER_OPTIONS."""
        # Its methods are set below, from the table of verbs: the generated code asks for each by its name.
        add_ControllerServicer_to_server(cast(ControllerServicer, self), server)

    async def answer(self, verb: Verb, message: Any) -> Any:
        """One unary call."""
        try:
            request = read_call(verb, message)
            reply = await self._driver.handle(
                request, principal=message.caller.principal, client_host=message.caller.host
            )
            return write_answer(verb, reply)
        except KafkaError as error:
            return verb.answer_type(fault=fault_of(error))
        except InvariantViolated:
            logger.exception("%s broke an invariant", verb.method)
            raise
        except Exception:
            # the edge of one connection: a bug that this call found; the node continues
            logger.exception("%s failed", verb.method)
            failed = KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR, f"{verb.method} failed; see the controller's log")
            return verb.answer_type(fault=fault_of(failed))

    async def Heartbeats(self, request_iterator: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        """The stream of one broker, until either side ends it."""
        caller = None if self._peers is None else self._peers.caller(context)
        stream = _HeartbeatServerStream(self._driver, context, caller=caller)
        try:
            await stream.serve()
        except* grpc.aio.InternalError as broken:
            # the broker's process or its connection is gone in the middle of a read or write, as happens to processes
            logger.info("the heartbeat stream of %s broke: %s", stream.whose, broken.exceptions[0])
        finally:
            stream.close()


class _HeartbeatServerStream:
    """Reads heartbeats as they come, and writes answers as they are committed: two directions that never wait for each
    other, or a stalled quorum would make a living broker look silent."""

    def __init__(
        self, driver: ControllerDriver, context: grpc.aio.ServicerContext[Any, Any], *, caller: BrokerId | None
    ) -> None:
        """caller: the node that the connection's certificate names; None on a door without TLS."""
        self._driver = driver
        self._context = context
        self._caller = caller
        self._connection: HeartbeatConnection | None = None
        self._outgoing: asyncio.Queue[Any] = asyncio.Queue()
        """Replies, one KafkaError at most, then _ENDED. Bounded by HEARTBEATS_PENDING_MAX and the driver's pushes."""
        self._pending = 0
        self._room = asyncio.Event()

    @property
    def whose(self) -> str:
        """The broker at the other end, in words."""
        if self._connection is None:
            return "a broker that has said nothing yet"
        return f"broker {self._connection.broker_id} (epoch {self._connection.broker_epoch})"

    async def serve(self) -> None:
        """Both directions until the broker ends the stream or an error was written."""
        async with asyncio.TaskGroup() as directions:
            reader = directions.create_task(self._read())
            await self._write()
            reader.cancel()

    def close(self) -> None:
        """The stream is over; reports it to the driver, once."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _write(self) -> None:
        while (item := await self._outgoing.get()) is not _ENDED:
            if isinstance(item, KafkaError):
                await self._context.write(pb.HeartbeatAnswer(fault=fault_of(item)))
                return
            await self._context.write(HEARTBEAT_ANSWER.write(item))

    async def _read(self) -> None:
        try:
            while (message := await self._context.read()) is not grpc.aio.EOF:
                self._take(read_heartbeat(message))
                while self._pending >= HEARTBEATS_PENDING_MAX:
                    self._room.clear()
                    await self._room.wait()
        except KafkaError as error:
            self._outgoing.put_nowait(error)
        finally:
            self._outgoing.put_nowait(_ENDED)

    def _take(self, heartbeat: BrokerHeartbeat) -> None:
        connection = self._connection
        if self._caller is not None and heartbeat.broker_id != self._caller:
            raise KafkaError.of(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                f"this is the certificate of node {self._caller}, and the heartbeat is broker {heartbeat.broker_id}'s",
            )
        if connection is None:
            connection = self._connection = self._driver.connect(
                heartbeat.broker_id, heartbeat.broker_epoch, self._outgoing.put_nowait
            )
        elif (heartbeat.broker_id, heartbeat.broker_epoch) != (connection.broker_id, connection.broker_epoch):
            raise KafkaError.of(
                ErrorCode.INVALID_REQUEST,
                f"a heartbeat stream belongs to one registration, broker {connection.broker_id} epoch "
                f"{connection.broker_epoch}; open another for broker {heartbeat.broker_id} epoch {heartbeat.broker_epoch}",
            )
        self._pending += 1
        connection.heartbeat(heartbeat).add_done_callback(self._answer)

    def _answer(self, outcome: asyncio.Future[BrokerHeartbeatReply]) -> None:
        self._pending -= 1
        self._room.set()
        error = None if outcome.cancelled() else outcome.exception()
        if isinstance(error, KafkaError):
            self._outgoing.put_nowait(error)
        elif error is None and not outcome.cancelled():
            self._outgoing.put_nowait(outcome.result())


def _unary(verb: Verb) -> Callable[[ControllerService, Any, grpc.aio.ServicerContext[Any, Any]], Awaitable[Any]]:
    async def method(self: ControllerService, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        answer = await self.answer(verb, request)
        context.set_trailing_metadata(((COMMITTED_OFFSET_KEY, str(self._driver.committed_offset)),))
        return answer

    method.__name__ = verb.method
    return method


for _verb in VERBS:
    setattr(ControllerService, _verb.method, _unary(_verb))
