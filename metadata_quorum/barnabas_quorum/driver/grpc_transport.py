"""The quorum's messages over gRPC: the way out to each peer, and the service that takes them in.

May touch:  grpc.aio, the generated types (which stop here).      Must not touch: the core, the log.
Invariants: every call has a deadline; a reply is built with the correlation of its own request; nothing of a peer is
            believed beyond its types: the core judges the values.
Read next:  node.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

import grpc.aio

from barnabas_quorum.errors import BufferExhausted, PeerUnreachable
from barnabas_quorum.raft.messages import (
    BeginQuorumEpochReply,
    BeginQuorumEpochRequest,
    EndQuorumEpochReply,
    EndQuorumEpochRequest,
    EpochStart,
    FetchReply,
    FetchRequest,
    Reply,
    ReplyError,
    Request,
    VoteReply,
    VoteRequest,
)
from barnabas_quorum.raft.voters import ReplicaKey, Voter
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId, Epoch, Offset, Uuid
from barnabas_wire.rpc import quorum_pb2, quorum_pb2_grpc
from barnabas_wire.rpc.options import CHANNEL_OPTIONS

ReplyT = TypeVar("ReplyT", bound=Reply)


class Transport(Protocol):
    """How a replica reaches the voters."""

    async def call(self, request: Request, voter: Voter, *, timeout_s: float) -> Reply:
        """Send and wait for the reply, which carries the request's correlation. A FetchReply's payload is bytes.

        Raises PeerUnreachable when there is no answer, and when it is not from a member of this cluster.
        """
        ...

    async def close(self) -> None:
        """Drop all connections."""
        ...


class GrpcTransport:
    """Transport over one grpc.aio channel per voter. Belongs to one event loop."""

    def __init__(self, *, cluster_id: str) -> None:
        self._cluster_id = cluster_id
        self._channels: dict[tuple[str, int], grpc.aio.Channel] = {}

    async def call(self, request: Request, voter: Voter, *, timeout_s: float) -> Reply:
        """See Transport.call."""
        stub: Any = quorum_pb2_grpc.QuorumStub(self._channel(voter))
        header = _call_header(request, self._cluster_id)
        try:
            match request:
                case FetchRequest():
                    answer = await stub.Fetch(_fetch_call(request, header), timeout=timeout_s)
                    return _fetch_reply(answer, request)
                case VoteRequest():
                    answer = await stub.Vote(_vote_call(request, header), timeout=timeout_s)
                    return VoteReply(
                        **_reply_fields(answer.header, request),
                        is_granted=answer.is_granted,
                        is_pre_vote=request.is_pre_vote,
                    )
                case BeginQuorumEpochRequest():
                    answer = await stub.BeginQuorumEpoch(
                        quorum_pb2.BeginQuorumEpochCall(header=header), timeout=timeout_s
                    )
                    return BeginQuorumEpochReply(**_reply_fields(answer.header, request))
                case EndQuorumEpochRequest():
                    successors = [_replica_to_wire(key) for key in request.successors]
                    answer = await stub.EndQuorumEpoch(
                        quorum_pb2.EndQuorumEpochCall(header=header, successors=successors), timeout=timeout_s
                    )
                    return EndQuorumEpochReply(**_reply_fields(answer.header, request))
        except grpc.aio.AioRpcError as error:
            raise PeerUnreachable(f"{voter}: {error.code().name} {error.details()}") from None
        except ValueError as error:
            raise PeerUnreachable(f"{voter} answered nonsense: {error}") from None

    async def close(self) -> None:
        """See Transport.close."""
        channels = list(self._channels.values())
        self._channels.clear()
        for channel in channels:
            await channel.close()

    def _channel(self, voter: Voter) -> grpc.aio.Channel:
        address = (voter.host, voter.port)
        channel = self._channels.get(address)
        if channel is None:
            host = f"[{voter.host}]" if ":" in voter.host else voter.host
            channel = self._channels[address] = grpc.aio.insecure_channel(
                f"{host}:{voter.port}", options=CHANNEL_OPTIONS
            )
        return channel


class QuorumServicer(quorum_pb2_grpc.QuorumServicer):
    """The service on a controller's gRPC listener."""

    def __init__(self, *, cluster_id: str, handle: Callable[[Request], Awaitable[Reply]]) -> None:
        """handle: QuorumNode.handle."""
        self._cluster_id = cluster_id
        self._handle = handle

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register on a server that is not started yet."""
        quorum_pb2_grpc.add_QuorumServicer_to_server(self, server)

    async def Vote(self, request: Any, context: grpc.aio.ServicerContext) -> Any:
        """See quorum.proto."""
        await self._check_cluster(request.header, context)
        reply = await self._ask(
            lambda: VoteRequest(
                **_request_fields(request.header),
                last_epoch=Epoch(request.last_epoch),
                end_offset=Offset(request.end_offset),
                is_pre_vote=request.is_pre_vote,
            ),
            VoteReply,
            context,
        )
        return quorum_pb2.VoteAnswer(header=_answer_header(reply), is_granted=reply.is_granted)

    async def BeginQuorumEpoch(self, request: Any, context: grpc.aio.ServicerContext) -> Any:
        """See quorum.proto."""
        await self._check_cluster(request.header, context)
        reply = await self._ask(
            lambda: BeginQuorumEpochRequest(**_request_fields(request.header)), BeginQuorumEpochReply, context
        )
        return quorum_pb2.BeginQuorumEpochAnswer(header=_answer_header(reply))

    async def EndQuorumEpoch(self, request: Any, context: grpc.aio.ServicerContext) -> Any:
        """See quorum.proto."""
        await self._check_cluster(request.header, context)
        reply = await self._ask(
            lambda: EndQuorumEpochRequest(
                **_request_fields(request.header),
                successors=tuple(_replica_from_wire(replica) for replica in request.successors),
            ),
            EndQuorumEpochReply,
            context,
        )
        return quorum_pb2.EndQuorumEpochAnswer(header=_answer_header(reply))

    async def Fetch(self, request: Any, context: grpc.aio.ServicerContext) -> Any:
        """See quorum.proto."""
        await self._check_cluster(request.header, context)
        reply = await self._ask(
            lambda: FetchRequest(
                **_request_fields(request.header),
                fetch_offset=Offset(request.fetch_offset),
                last_epoch=Epoch(request.last_epoch),
                high_watermark=Offset(request.high_watermark),
                wait_ms_max=request.wait_ms_max,
            ),
            FetchReply,
            context,
        )
        answer = quorum_pb2.FetchAnswer(
            header=_answer_header(reply), high_watermark=reply.high_watermark, records=reply.payload or b""
        )
        if reply.diverging is not None:
            answer.diverging.epoch = reply.diverging.epoch
            answer.diverging.end_offset = reply.diverging.start_offset
        return answer

    async def _check_cluster(self, header: Any, context: grpc.aio.ServicerContext) -> None:
        if header.cluster_id != self._cluster_id:
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"INCONSISTENT_CLUSTER_ID: this node belongs to cluster {self._cluster_id}, not {header.cluster_id!r}",
            )

    async def _ask(
        self, make_request: Callable[[], Request], kind: type[ReplyT], context: grpc.aio.ServicerContext
    ) -> ReplyT:
        try:
            request = make_request()
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        try:
            reply = await self._handle(request)
        except BufferExhausted as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except PeerUnreachable as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        assert isinstance(reply, kind), f"{request} was answered with {reply}"
        return reply


# --- core types <-> wire types ----------------------------------------------------------------------------------------


def _replica_to_wire(key: ReplicaKey) -> Any:
    return quorum_pb2.Replica(id=key.id, directory_id=bytes(key.directory_id))


def _replica_from_wire(replica: Any) -> ReplicaKey:
    return ReplicaKey(BrokerId(replica.id), Uuid(replica.directory_id))


def _call_header(request: Request, cluster_id: str) -> Any:
    return quorum_pb2.CallHeader(
        cluster_id=cluster_id,
        source=_replica_to_wire(request.source),
        target=_replica_to_wire(request.target),
        epoch=request.epoch,
    )


def _request_fields(header: Any) -> dict[str, Any]:
    """What every request has; the correlation is the receiver's own affair (QuorumNode.handle)."""
    return {
        "correlation": 0,
        "source": _replica_from_wire(header.source),
        "target": _replica_from_wire(header.target),
        "epoch": Epoch(header.epoch),
    }


def _answer_header(reply: Reply) -> Any:
    header = quorum_pb2.AnswerHeader(source=_replica_to_wire(reply.source), epoch=reply.epoch, error=reply.error)
    if reply.leader_id != NO_BROKER:
        header.leader_id = reply.leader_id
    return header


def _reply_fields(header: Any, request: Request) -> dict[str, Any]:
    """What every reply has. Raises ValueError for an error number or a directory id that is none."""
    return {
        "correlation": request.correlation,
        "source": _replica_from_wire(header.source),
        "target": request.source,
        "epoch": Epoch(header.epoch),
        "leader_id": BrokerId(header.leader_id) if header.HasField("leader_id") else NO_BROKER,
        "error": ReplyError(header.error),
    }


def _vote_call(request: VoteRequest, header: Any) -> Any:
    return quorum_pb2.VoteCall(
        header=header,
        last_epoch=request.last_epoch,
        end_offset=request.end_offset,
        is_pre_vote=request.is_pre_vote,
    )


def _fetch_call(request: FetchRequest, header: Any) -> Any:
    return quorum_pb2.FetchCall(
        header=header,
        fetch_offset=request.fetch_offset,
        last_epoch=request.last_epoch,
        high_watermark=request.high_watermark,
        wait_ms_max=request.wait_ms_max,
    )


def _fetch_reply(answer: Any, request: FetchRequest) -> FetchReply:
    """The offsets of the records are not known yet: whoever opens the payload sets epochs and end_offset."""
    diverging = None
    if answer.HasField("diverging"):
        diverging = EpochStart(Epoch(answer.diverging.epoch), Offset(answer.diverging.end_offset))
    return FetchReply(
        **_reply_fields(answer.header, request),
        high_watermark=Offset(answer.high_watermark),
        base_offset=request.fetch_offset,
        end_offset=request.fetch_offset,
        diverging=diverging,
        payload=answer.records,
    )
