"""The quorum's messages over gRPC: the way out to each peer, and the service that takes them in; one table of both.

May touch:  grpc.aio, the generated types (which stop here), message_mapping.      Must not touch: the core, the log.
Invariants: every call has a deadline; a reply is built with the correlation of its own request; nothing of a peer is
            believed beyond its types: the core judges the values.
Read next:  transport.py, which this meets; node.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, cast

import grpc.aio

from barnabas_quorum.driver.incarnation import METADATA_KEY, IncarnationGuard
from barnabas_quorum.driver.transport import ChangeVoters, ReplicaIdentity, VoterChangeAnswer
from barnabas_quorum.errors import BufferExhausted, PeerUnreachable
from barnabas_quorum.message_mapping import Conversion, MessageMapping, mapping_of
from barnabas_quorum.raft.messages import (
    BeginQuorumEpochReply,
    BeginQuorumEpochRequest,
    EndQuorumEpochReply,
    EndQuorumEpochRequest,
    EpochStart,
    FetchReply,
    FetchRequest,
    FetchSnapshotReply,
    FetchSnapshotRequest,
    Reply,
    ReplyError,
    Request,
    VoterChange,
    VoterChangeKind,
    VoteReply,
    VoteRequest,
)
from barnabas_quorum.raft.voters import ReplicaKey, Voter
from barnabas_wire.kafka.ids import ANONYMOUS, NO_BROKER, BrokerId, Epoch, Offset
from barnabas_wire.rpc import quorum_pb2, quorum_pb2_grpc
from barnabas_wire.rpc.dialing import PLAIN_DIALER, Dialer, UnknownPeer

_NAMELESS = -1
_Place = tuple[str, int, int]
"""Host, port and the node that is demanded there."""


class GrpcTransport:
    """Transport over one grpc.aio channel per voter. Belongs to one event loop."""

    def __init__(
        self, *, cluster_id: str, incarnation: IncarnationGuard | None = None, dialer: Dialer = PLAIN_DIALER
    ) -> None:
        self._cluster_id = cluster_id
        self._incarnation = incarnation or IncarnationGuard()
        self._dialer = dialer
        self._generation = dialer.generation
        self._channels: dict[_Place, grpc.aio.Channel] = {}
        self._stubs: dict[_Place, Any] = {}

    async def call(self, request: Request, voter: Voter, *, timeout_s: float) -> Reply:
        """See Transport.call."""
        asked_in = self._incarnation.current
        reply = await self._call(request, voter, timeout_s=timeout_s)
        if self._incarnation.current != asked_in:
            raise PeerUnreachable(f"{voter} answered to incarnation {str(asked_in) or 'first'}, which is no more")
        if isinstance(reply, FetchReply):
            self._incarnation.note_agreeing(reply.source)
        return reply

    async def _call(self, request: Request, voter: Voter, *, timeout_s: float) -> Reply:
        stub = await self._stub(voter)
        rpc = RPC_BY_REQUEST[type(request)]
        header = _CallHeader(
            self._cluster_id, request.source, request.target, request.epoch, str(self._incarnation.current)
        )
        call = rpc.call.write(request, header=CALL_HEADER.write(header))
        try:
            return _read_reply(rpc, await getattr(stub, rpc.name)(call, timeout=timeout_s), request)
        except grpc.aio.AioRpcError as error:
            raise self._failed(error, voter) from None
        except ValueError as error:
            raise PeerUnreachable(f"{voter} answered nonsense: {error}") from None

    async def describe(self, voter: Voter, *, timeout_s: float) -> ReplicaIdentity:
        """See Transport.describe."""
        call = quorum_pb2.DescribeReplicaCall(cluster_id=self._cluster_id, incarnation=str(self._incarnation.current))
        try:
            answer = await (await self._stub(voter)).DescribeReplica(call, timeout=timeout_s)
            self._incarnation.hear(answer.incarnation)
            key = REPLICA.read(answer.replica)
        except grpc.aio.AioRpcError as error:
            raise self._failed(error, voter) from None
        except ValueError as error:
            raise PeerUnreachable(f"{voter} answered nonsense: {error}") from None
        return ReplicaIdentity(key, answer.kraft_version_min, answer.kraft_version_max)

    async def change_voters(
        self, change: VoterChange, leader: Voter, *, principal: str, client_host: str, timeout_s: float
    ) -> VoterChangeAnswer:
        """See Transport.change_voters."""
        call = quorum_pb2.ChangeVotersCall(
            cluster_id=self._cluster_id,
            kind=change.kind.name,
            voter=_write_voter(change.voter),
            joiner=None if change.joiner is None else REPLICA.write(change.joiner),
            incarnation=str(self._incarnation.current),
            asker=quorum_pb2.Asker(principal=principal, host=client_host),
        )
        try:
            answer = await (await self._stub(leader)).ChangeVoters(call, timeout=timeout_s)
            return VoterChangeAnswer(ReplyError(answer.error), answer.reason, _read_leader(answer))
        except grpc.aio.AioRpcError as error:
            raise self._failed(error, leader) from None
        except ValueError as error:
            raise PeerUnreachable(f"{leader} answered nonsense: {error}") from None

    async def close(self) -> None:
        """See Transport.close."""
        channels = list(self._channels.values())
        self._channels.clear()
        self._stubs.clear()
        for channel in channels:
            await channel.close()

    def _hear_refusal(self, error: grpc.aio.AioRpcError) -> None:
        """A peer of another incarnation refuses, and says which is its own; nonsense says nothing."""
        for key, value in error.trailing_metadata() or ():
            if key == METADATA_KEY:
                with contextlib.suppress(ValueError):
                    self._incarnation.hear(value.decode() if isinstance(value, bytes) else value)

    async def _stub(self, voter: Voter) -> Any:
        """Raises PeerUnreachable when the address shows no node of this cluster."""
        if self._generation != self._dialer.generation:
            # calls under way keep their channels; the last one lets them go
            self._generation = self._dialer.generation
            self._channels.clear()
            self._stubs.clear()
        place = self._place(voter)
        stub = self._stubs.get(place)
        if stub is None:
            try:
                channel = await self._dialer.open(*place)
            except UnknownPeer as error:
                raise PeerUnreachable(str(error)) from None
            stub = quorum_pb2_grpc.QuorumStub(channel)
            self._channels[place] = channel
            self._stubs[place] = stub
        return stub

    def _place(self, voter: Voter) -> _Place:
        node_id = voter.key.id if self._dialer.demands_names else _NAMELESS
        return voter.host, voter.port, max(node_id, _NAMELESS)

    def _failed(self, error: grpc.aio.AioRpcError, voter: Voter) -> PeerUnreachable:
        """What a call that failed means; takes in what the answer says besides."""
        self._hear_refusal(error)
        place = self._place(voter)
        if self._dialer.demands_names and place[2] == _NAMELESS:
            # whoever listens at an address that was asked without an id may be another one the next time
            self._channels.pop(place, None)
            self._stubs.pop(place, None)
        return PeerUnreachable(f"{voter}: {error.code().name} {error.details()}")


class QuorumServicer:
    """The service on a controller's gRPC listener. The methods that carry the core's requests are made from RPCS below the class."""

    def __init__(
        self,
        *,
        cluster_id: str,
        handle: Callable[[Request], Awaitable[Reply]],
        identity: ReplicaIdentity | None = None,
        change_voters: ChangeVoters | None = None,
        incarnation: IncarnationGuard | None = None,
    ) -> None:
        """handle, identity, change_voters: QuorumNode's. Without the latter two the node takes no part in such changes."""
        self._cluster_id = cluster_id
        self._handle = handle
        self._identity = identity
        self._change_voters = change_voters
        self._incarnation = incarnation or IncarnationGuard()

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register on a server that is not started yet."""
        quorum_pb2_grpc.add_QuorumServicer_to_server(cast(quorum_pb2_grpc.QuorumServicer, self), server)

    async def DescribeReplica(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        """See quorum.proto."""
        await self._check_cluster(request, context)
        if self._identity is None:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "this node is no controller")
        assert self._identity is not None, "abort raises"
        return quorum_pb2.DescribeReplicaAnswer(
            replica=REPLICA.write(self._identity.key),
            kraft_version_min=self._identity.kraft_version_min,
            kraft_version_max=self._identity.kraft_version_max,
            incarnation=str(self._incarnation.current),
        )

    async def ChangeVoters(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        """See quorum.proto."""
        await self._check_cluster(request, context)
        if self._change_voters is None:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "this node is no controller")
        assert self._change_voters is not None, "abort raises"
        try:
            change = _change_from_wire(request)
        except (ValueError, KeyError) as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        asker = request.asker
        done = await self._change_voters(change, principal=asker.principal or ANONYMOUS, client_host=asker.host)
        return quorum_pb2.ChangeVotersAnswer(
            error=done.error, reason=done.reason, leader=done.leader and _write_voter(done.leader)
        )

    async def _check_cluster(self, header: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        if header.cluster_id != self._cluster_id:
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"INCONSISTENT_CLUSTER_ID: this node belongs to cluster {self._cluster_id}, not {header.cluster_id!r}",
            )
        await self._check_incarnation(header, context)

    async def _check_incarnation(self, header: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        try:
            reason = self._incarnation.hear(header.incarnation)
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        if reason is not None:
            own = str(self._incarnation.current).encode()
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, reason, ((METADATA_KEY, own),))

    async def answer(self, rpc: Rpc, call: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        """One call that carries a request of the core."""
        await self._check_cluster(call.header, context)
        try:
            header = CALL_HEADER.read(call.header)
            # the correlation is the receiver's own affair (QuorumNode.handle)
            request = rpc.call.read(call, correlation=0, source=header.source, target=header.target, epoch=header.epoch)
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        self._incarnation.note_agreeing(request.source)
        try:
            reply = await self._handle(request)
        except BufferExhausted as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except PeerUnreachable as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        assert isinstance(reply, rpc.reply_type), f"{request} was answered with {reply}"
        return _write_reply(rpc, reply)


# --- core types <-> wire types ----------------------------------------------------------------------------------------


class _CallHeader(NamedTuple):
    """What every call carries."""

    cluster_id: str
    source: ReplicaKey
    target: ReplicaKey
    epoch: Epoch
    incarnation: str


class _AnswerHeader(NamedTuple):
    """What every answer carries."""

    source: ReplicaKey
    epoch: Epoch
    leader_id: BrokerId | None
    error: ReplyError
    leader: Voter | None


class Rpc(NamedTuple):
    """A request of the core and its reply, as they travel."""

    name: str
    reply_type: type[Reply]
    call: MessageMapping
    answer: MessageMapping
    payload: str
    """The answer's field of bytes, which are the reply's payload; empty where it has none."""
    repeated: Callable[[Any], dict[str, Any]]
    """What a reply has of its request, and does not travel."""


def _write_voter(voter: Voter) -> Any:
    return quorum_pb2.Voter(replica=REPLICA.write(voter.key), host=voter.host, port=voter.port)


def _read_voter(message: Any) -> Voter:
    return Voter(REPLICA.read(message.replica), message.host, message.port)


def _write_diverging(found: EpochStart) -> Any:
    return quorum_pb2.FetchAnswer.Diverging(epoch=found.epoch, end_offset=found.start_offset)


def _read_diverging(message: Any) -> EpochStart:
    return EpochStart(Epoch(message.epoch), Offset(message.end_offset))


_CONVERSIONS = {
    Voter: Conversion(quorum_pb2.Voter, _write_voter, _read_voter),
    EpochStart: Conversion(quorum_pb2.FetchAnswer.Diverging, _write_diverging, _read_diverging),
}
REPLICA = mapping_of(ReplicaKey, quorum_pb2.Replica)
CALL_HEADER = mapping_of(_CallHeader, quorum_pb2.CallHeader)
ANSWER_HEADER = mapping_of(_AnswerHeader, quorum_pb2.AnswerHeader, conversions=_CONVERSIONS)
_OF_HEADERS = frozenset({"correlation", "source", "target", "epoch"})


def _rpc(
    name: str,
    request_type: type[Request],
    reply_type: type[Reply],
    *,
    payload: str = "",
    local: tuple[str, ...] = (),
    repeated: Callable[[Any], dict[str, Any]] = lambda request: {},
) -> Rpc:
    """`local`: fields of the reply that do not travel."""
    call, answer = getattr(quorum_pb2, f"{name}Call"), getattr(quorum_pb2, f"{name}Answer")
    envelope = {"header", payload} if payload else {"header"}
    omitted = {*_OF_HEADERS, "leader_id", "error", "leader", *local, *(["payload"] if payload else ())}
    return Rpc(
        name,
        reply_type,
        mapping_of(request_type, call, envelope=frozenset({"header"}), omitted=_OF_HEADERS, conversions=_CONVERSIONS),
        mapping_of(
            reply_type, answer, envelope=frozenset(envelope), omitted=frozenset(omitted), conversions=_CONVERSIONS
        ),
        payload,
        repeated,
    )


def _fetched(request: FetchRequest) -> dict[str, Any]:
    """The offsets of the records are not known yet: whoever opens the payload sets epochs and end_offset."""
    return {"base_offset": request.fetch_offset, "end_offset": request.fetch_offset}


RPC_BY_REQUEST: dict[type[Request], Rpc] = {
    VoteRequest: _rpc(
        "Vote",
        VoteRequest,
        VoteReply,
        local=("is_pre_vote",),
        repeated=lambda request: {"is_pre_vote": request.is_pre_vote},
    ),
    BeginQuorumEpochRequest: _rpc("BeginQuorumEpoch", BeginQuorumEpochRequest, BeginQuorumEpochReply),
    EndQuorumEpochRequest: _rpc("EndQuorumEpoch", EndQuorumEpochRequest, EndQuorumEpochReply),
    FetchRequest: _rpc(
        "Fetch",
        FetchRequest,
        FetchReply,
        payload="records",
        local=("base_offset", "end_offset", "epochs", "voter_sets"),
        repeated=_fetched,
    ),
    FetchSnapshotRequest: _rpc(
        "FetchSnapshot", FetchSnapshotRequest, FetchSnapshotReply, payload="data", local=("bytes_max",)
    ),
}


def _method(rpc: Rpc) -> Callable[[QuorumServicer, Any, Any], Awaitable[Any]]:
    async def method(self: QuorumServicer, call: Any, context: Any) -> Any:
        return await self.answer(rpc, call, context)

    return method


for _each in RPC_BY_REQUEST.values():
    setattr(QuorumServicer, _each.name, _method(_each))


def _write_reply(rpc: Rpc, reply: Reply) -> Any:
    leader_id = None if reply.leader_id == NO_BROKER else reply.leader_id
    header = _AnswerHeader(reply.source, reply.epoch, leader_id, reply.error, reply.leader)
    others = {rpc.payload: reply.payload or b""} if isinstance(reply, FetchReply | FetchSnapshotReply) else {}
    return rpc.answer.write(reply, header=ANSWER_HEADER.write(header), **others)


def _read_reply(rpc: Rpc, answer: Any, request: Request) -> Reply:
    """Raises ValueError for an error number or a directory id that is none."""
    header = ANSWER_HEADER.read(answer.header)
    others = {"payload": getattr(answer, rpc.payload)} if rpc.payload else {}
    reply: Reply = rpc.answer.read(
        answer,
        correlation=request.correlation,
        source=header.source,
        target=request.source,
        epoch=header.epoch,
        leader_id=NO_BROKER if header.leader_id is None else header.leader_id,
        error=header.error,
        leader=header.leader,
        **rpc.repeated(request),
        **others,
    )
    return reply


def _change_from_wire(request: Any) -> VoterChange:
    """Raises ValueError, KeyError."""
    if not request.HasField("voter"):
        raise ValueError("the change names no voter")
    joiner = REPLICA.read(request.joiner) if request.HasField("joiner") else None
    kind = VoterChangeKind[quorum_pb2.ChangeVotersCall.Kind.Name(request.kind)]
    return VoterChange(kind, _read_voter(request.voter), 0, joiner)


def _read_leader(answer: Any) -> Voter | None:
    return _read_voter(answer.leader) if answer.HasField("leader") else None
