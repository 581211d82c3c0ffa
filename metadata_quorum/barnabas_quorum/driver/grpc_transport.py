"""The quorum's messages over gRPC: the way out to each peer, and the service that takes them in.

May touch:  grpc.aio, the generated types (which stop here).      Must not touch: the core, the log.
Invariants: every call has a deadline; a reply is built with the correlation of its own request; nothing of a peer is
            believed beyond its types: the core judges the values.
Read next:  transport.py, which this meets; node.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc.aio

from barnabas_quorum.driver.incarnation import METADATA_KEY, IncarnationGuard
from barnabas_quorum.driver.transport import ChangeVoters, ReplicaIdentity, VoterChangeAnswer
from barnabas_quorum.errors import BufferExhausted, PeerUnreachable
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
    SnapshotId,
    VoterChange,
    VoterChangeKind,
    VoteReply,
    VoteRequest,
)
from barnabas_quorum.raft.voters import ReplicaKey, Voter
from barnabas_wire.kafka.ids import ANONYMOUS, NO_BROKER, BrokerId, Epoch, Offset, Uuid
from barnabas_wire.rpc import quorum_pb2, quorum_pb2_grpc
from barnabas_wire.rpc.dialing import PLAIN_DIALER, Dialer, UnknownPeer

ReplyT = TypeVar("ReplyT", bound=Reply)

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
        header = _call_header(request, self._cluster_id, str(self._incarnation.current))
        try:
            match request:
                case FetchRequest():
                    answer = await stub.Fetch(_fetch_call(request, header), timeout=timeout_s)
                    return _fetch_reply(answer, request)
                case FetchSnapshotRequest():
                    answer = await stub.FetchSnapshot(_fetch_snapshot_call(request, header), timeout=timeout_s)
                    return _fetch_snapshot_reply(answer, request)
                case VoteRequest():
                    answer = await stub.Vote(_vote_call(request, header), timeout=timeout_s)
                    return VoteReply(
                        **_reply_fields(answer.header, request),
                        is_granted=answer.is_granted,
                        is_pre_vote=request.is_pre_vote,
                        life=answer.life,
                    )
                case BeginQuorumEpochRequest():
                    call = quorum_pb2.BeginQuorumEpochCall(header=header, leader=_voter_to_wire(request.leader))
                    answer = await stub.BeginQuorumEpoch(call, timeout=timeout_s)
                    return BeginQuorumEpochReply(**_reply_fields(answer.header, request))
                case EndQuorumEpochRequest():
                    successors = [_replica_to_wire(key) for key in request.successors]
                    answer = await stub.EndQuorumEpoch(
                        quorum_pb2.EndQuorumEpochCall(header=header, successors=successors), timeout=timeout_s
                    )
                    return EndQuorumEpochReply(**_reply_fields(answer.header, request))
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
            key = _replica_from_wire(answer.replica)
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
            voter=_voter_to_wire(change.voter),
            joiner=None if change.joiner is None else _replica_to_wire(change.joiner),
            incarnation=str(self._incarnation.current),
            asker=quorum_pb2.Asker(principal=principal, host=client_host),
        )
        try:
            answer = await (await self._stub(leader)).ChangeVoters(call, timeout=timeout_s)
            return VoterChangeAnswer(ReplyError(answer.error), answer.reason, _voter_from_wire(answer, "leader"))
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


class QuorumServicer(quorum_pb2_grpc.QuorumServicer):
    """The service on a controller's gRPC listener."""

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
        quorum_pb2_grpc.add_QuorumServicer_to_server(self, server)

    async def Vote(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        """See quorum.proto."""
        await self._check_cluster(request.header, context)
        reply = await self._ask(
            lambda: VoteRequest(
                **_request_fields(request.header),
                last_epoch=Epoch(request.last_epoch),
                end_offset=Offset(request.end_offset),
                is_pre_vote=request.is_pre_vote,
                life=request.life,
            ),
            VoteReply,
            context,
        )
        return quorum_pb2.VoteAnswer(header=_answer_header(reply), is_granted=reply.is_granted, life=reply.life)

    async def BeginQuorumEpoch(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        """See quorum.proto."""
        await self._check_cluster(request.header, context)
        reply = await self._ask(
            lambda: BeginQuorumEpochRequest(
                **_request_fields(request.header), leader=_voter_from_wire(request, "leader")
            ),
            BeginQuorumEpochReply,
            context,
        )
        return quorum_pb2.BeginQuorumEpochAnswer(header=_answer_header(reply))

    async def EndQuorumEpoch(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
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

    async def Fetch(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        """See quorum.proto."""
        await self._check_cluster(request.header, context)
        reply = await self._ask(
            lambda: FetchRequest(
                **_request_fields(request.header),
                fetch_offset=Offset(request.fetch_offset),
                last_epoch=Epoch(request.last_epoch),
                high_watermark=Offset(request.high_watermark),
                wait_ms_max=request.wait_ms_max,
                clock_ms=request.clock_ms,
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
        if reply.snapshot_id is not None:
            answer.snapshot_id.CopyFrom(_snapshot_id_to_wire(reply.snapshot_id))
        return answer

    async def FetchSnapshot(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        """See quorum.proto."""
        await self._check_cluster(request.header, context)
        reply = await self._ask(
            lambda: FetchSnapshotRequest(
                **_request_fields(request.header),
                snapshot_id=_snapshot_id_from_wire(request.snapshot_id),
                position=request.position,
                bytes_max=request.bytes_max,
            ),
            FetchSnapshotReply,
            context,
        )
        return quorum_pb2.FetchSnapshotAnswer(
            header=_answer_header(reply),
            snapshot_id=_snapshot_id_to_wire(reply.snapshot_id),
            size=reply.size,
            position=reply.position,
            data=reply.payload,
        )

    async def DescribeReplica(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        """See quorum.proto."""
        await self._check_cluster(request, context)
        if self._identity is None:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "this node is no controller")
        assert self._identity is not None, "abort raises"
        return quorum_pb2.DescribeReplicaAnswer(
            replica=_replica_to_wire(self._identity.key),
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
        return quorum_pb2.ChangeVotersAnswer(error=done.error, reason=done.reason, leader=_voter_to_wire(done.leader))

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

    async def _ask(
        self, make_request: Callable[[], Request], kind: type[ReplyT], context: grpc.aio.ServicerContext[Any, Any]
    ) -> ReplyT:
        try:
            request = make_request()
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        self._incarnation.note_agreeing(request.source)
        try:
            reply = await self._handle(request)
        except BufferExhausted as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except PeerUnreachable as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        assert isinstance(reply, kind), f"{request} was answered with {reply}"
        return reply


# --- core types <-> wire types ----------------------------------------------------------------------------------------


def _change_from_wire(request: Any) -> VoterChange:
    """Raises ValueError, KeyError."""
    voter = _voter_from_wire(request, "voter")
    if voter is None:
        raise ValueError("the change names no voter")
    joiner = _replica_from_wire(request.joiner) if request.HasField("joiner") else None
    kind = VoterChangeKind[quorum_pb2.ChangeVotersCall.Kind.Name(request.kind)]
    return VoterChange(kind, voter, 0, joiner)


def _voter_to_wire(voter: Voter | None) -> Any:
    if voter is None:
        return None
    return quorum_pb2.Voter(replica=_replica_to_wire(voter.key), host=voter.host, port=voter.port)


def _voter_from_wire(message: Any, field: str) -> Voter | None:
    """Raises ValueError for a directory id that is none."""
    if not message.HasField(field):
        return None
    voter = getattr(message, field)
    return Voter(_replica_from_wire(voter.replica), voter.host, voter.port)


def _snapshot_id_to_wire(snapshot_id: SnapshotId) -> Any:
    return quorum_pb2.SnapshotId(end_offset=snapshot_id.end_offset, epoch=snapshot_id.epoch)


def _snapshot_id_from_wire(snapshot_id: Any) -> SnapshotId:
    return SnapshotId(Offset(snapshot_id.end_offset), Epoch(snapshot_id.epoch))


def _replica_to_wire(key: ReplicaKey) -> Any:
    return quorum_pb2.Replica(id=key.id, directory_id=bytes(key.directory_id))


def _replica_from_wire(replica: Any) -> ReplicaKey:
    return ReplicaKey(BrokerId(replica.id), Uuid(replica.directory_id))


def _call_header(request: Request, cluster_id: str, incarnation: str) -> Any:
    return quorum_pb2.CallHeader(
        cluster_id=cluster_id,
        source=_replica_to_wire(request.source),
        target=_replica_to_wire(request.target),
        epoch=request.epoch,
        incarnation=incarnation,
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
    if reply.leader is not None:
        header.leader.CopyFrom(_voter_to_wire(reply.leader))
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
        "leader": _voter_from_wire(header, "leader"),
    }


def _vote_call(request: VoteRequest, header: Any) -> Any:
    return quorum_pb2.VoteCall(
        header=header,
        last_epoch=request.last_epoch,
        end_offset=request.end_offset,
        is_pre_vote=request.is_pre_vote,
        life=request.life,
    )


def _fetch_call(request: FetchRequest, header: Any) -> Any:
    return quorum_pb2.FetchCall(
        header=header,
        fetch_offset=request.fetch_offset,
        last_epoch=request.last_epoch,
        high_watermark=request.high_watermark,
        wait_ms_max=request.wait_ms_max,
        clock_ms=request.clock_ms,
    )


def _fetch_snapshot_call(request: FetchSnapshotRequest, header: Any) -> Any:
    return quorum_pb2.FetchSnapshotCall(
        header=header,
        snapshot_id=_snapshot_id_to_wire(request.snapshot_id),
        position=request.position,
        bytes_max=request.bytes_max,
    )


def _fetch_snapshot_reply(answer: Any, request: FetchSnapshotRequest) -> FetchSnapshotReply:
    return FetchSnapshotReply(
        **_reply_fields(answer.header, request),
        snapshot_id=_snapshot_id_from_wire(answer.snapshot_id),
        size=answer.size,
        position=answer.position,
        payload=answer.data,
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
        snapshot_id=_snapshot_id_from_wire(answer.snapshot_id) if answer.HasField("snapshot_id") else None,
    )
