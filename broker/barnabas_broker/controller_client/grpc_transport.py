"""A broker's way to the controllers over gRPC: one channel to each, and the heartbeat stream on it.

May touch:  grpc.aio on the control lane, the generated types (which stop here).   Must not touch: whom to ask (client.py).
Invariants: every call has a deadline; whether a call that failed may have left is said with its failure.
Read next:  client.py; barnabas_quorum/driver/controller_service.py, the other end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
import grpc.aio

from barnabas_broker.controller_client.applied import AppliedOffset
from barnabas_broker.controller_client.client import ControllerUnreachable, HeartbeatStream, reach_applied
from barnabas_quorum.controller.request import Request
from barnabas_quorum.controller.requests import BrokerHeartbeat, BrokerHeartbeatReply
from barnabas_quorum.driver.faults import error_of
from barnabas_quorum.driver.verbs import (
    COMMITTED_OFFSET_KEY,
    HEARTBEAT,
    VERB_BY_REQUEST,
    read_answer,
    read_heartbeat_answer,
    write_call,
)
from barnabas_wire.kafka.ids import BrokerId, Offset
from barnabas_wire.rpc import controller_pb2 as pb
from barnabas_wire.rpc.controller_pb2_grpc import ControllerStub
from barnabas_wire.rpc.dialing import PLAIN_DIALER, Dialer, UnknownPeer
from barnabas_wire.rpc.options import address_of

if TYPE_CHECKING:
    from barnabas_wire.rpc.controller_pb2_grpc import ControllerAsyncStub

NOT_CONNECTED = "failed to connect to all addresses"
"""gRPC's words for a call that found no connection, and so never left."""
REFUSED = "Connection refused"
"""The system's words, which gRPC hands on, for a host on which no process listens at the port."""

R = TypeVar("R")

_Place = tuple[str, int, BrokerId]
"""Host, port and the controller that is demanded there."""


class GrpcControllerTransport:
    """ControllerTransport over grpc.aio; one channel per controller. Belongs to the control lane."""

    def __init__(
        self,
        addresses: Mapping[BrokerId, tuple[str, int]],
        *,
        applied: AppliedOffset | None = None,
        dialer: Dialer = PLAIN_DIALER,
    ) -> None:
        """`addresses` of each controller's gRPC listener: host, port; they may change. `applied`: how far this node is,
        None for an asker without its own image."""
        self._addresses = addresses
        self._applied = applied
        self._dialer = dialer
        self._generation = dialer.generation
        self._stubs: dict[_Place, ControllerAsyncStub] = {}
        self._channels: dict[_Place, grpc.aio.Channel] = {}

    async def call(
        self, controller_id: BrokerId, request: Request[R], *, principal: str, client_host: str = "", timeout_ms: int
    ) -> R:
        """See ControllerTransport. What somebody else asked for is answered when this node has applied it."""
        verb = VERB_BY_REQUEST[type(request)]
        method = getattr(await self._stub(controller_id), verb.method)
        call = method(
            write_call(verb, request, principal=principal, client_host=client_host), timeout=timeout_ms / 1000
        )
        try:
            answer = await call
            trailer = await call.trailing_metadata()
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise TimeoutError(f"controller {controller_id} did not answer within {timeout_ms} ms") from error
            details = error.details() or error.code().name
            raise ControllerUnreachable(
                f"controller {controller_id} at {self._address(controller_id)}: {details}",
                is_sent=NOT_CONNECTED not in details,
            ) from error
        if answer.HasField("fault"):
            raise error_of(answer.fault)
        if self._applied is not None:
            committed = Offset(int(trailer.get(COMMITTED_OFFSET_KEY, -1)))
            await reach_applied(self._applied, request, committed, timeout_ms=timeout_ms)
        reply: R = read_answer(verb, answer)
        return reply

    async def open_heartbeats(self, controller_id: BrokerId) -> HeartbeatStream:
        """See ControllerTransport."""
        return GrpcHeartbeatStream(controller_id, (await self._stub(controller_id)).Heartbeats())

    async def close(self) -> None:
        """See ControllerTransport."""
        channels, self._channels, self._stubs = self._channels, {}, {}
        for channel in channels.values():
            await channel.close(grace=None)

    async def _stub(self, controller_id: BrokerId) -> ControllerAsyncStub:
        """Raises ControllerUnreachable."""
        if self._generation != self._dialer.generation:
            # calls under way, heartbeats too, keep their channels; the last one lets them go
            self._generation = self._dialer.generation
            self._channels, self._stubs = {}, {}
        host, port = self._endpoint(controller_id)
        place = (host, port, controller_id)
        stub = self._stubs.get(place)
        if stub is None:
            try:
                channel = await self._dialer.open(host, port, controller_id)
            except UnknownPeer as error:
                raise ControllerUnreachable(
                    f"controller {controller_id}: {error}", is_sent=False, is_refused=error.is_refused
                ) from None
            stub = ControllerStub(channel)
            self._channels[place] = channel
            self._stubs[place] = stub
        return stub

    def _endpoint(self, controller_id: BrokerId) -> tuple[str, int]:
        found = self._addresses.get(controller_id)
        if found is None:
            raise ControllerUnreachable(f"controller {controller_id} votes no more", is_sent=False)
        return found

    def _address(self, controller_id: BrokerId) -> str:
        return address_of(*self._endpoint(controller_id))


class GrpcHeartbeatStream:
    """HeartbeatStream over one grpc.aio call. The call has no deadline, since it lasts as long as the broker: keepalive
    pings and the lifecycle's own patience watch over it."""

    def __init__(self, controller_id: BrokerId, call: Any) -> None:
        self._controller_id = controller_id
        self._call = call

    async def send(self, heartbeat: BrokerHeartbeat) -> None:
        """See HeartbeatStream."""
        try:
            await self._call.write(HEARTBEAT.write(heartbeat))
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            raise self._broken(error) from error

    async def receive(self) -> BrokerHeartbeatReply:
        """See HeartbeatStream."""
        try:
            answer = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise self._broken(error) from error
        if answer is grpc.aio.EOF:
            raise ControllerUnreachable(f"controller {self._controller_id} ended the heartbeat stream")
        assert isinstance(answer, pb.HeartbeatAnswer), f"heartbeat was answered with {type(answer).__name__}"
        return read_heartbeat_answer(answer)

    async def close(self) -> None:
        """See HeartbeatStream."""
        self._call.cancel()

    def _broken(self, error: Exception) -> ControllerUnreachable:
        detail = error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error)
        return ControllerUnreachable(
            f"heartbeat stream to controller {self._controller_id}: {detail}", is_refused=REFUSED in str(detail)
        )
