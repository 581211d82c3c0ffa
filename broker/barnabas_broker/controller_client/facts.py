"""What a controller knows that is in no log: its own place in the quorum, and when it last heard of each broker.

May touch:  grpc.aio on the control lane.     Must not touch: the quorum's log, decisions.
Invariants: every controller answers for itself alone, so that this works without a leader; a controller that does not answer
            in ASK_TIMEOUT_S is reported as silent, with the error; generated types stop here.
Read next:  admin/explain.py, which asks; barnabas_quorum/explain/leaders.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import grpc.aio

from barnabas_quorum.controller.config import ControllerConfig
from barnabas_quorum.controller.sessions import BrokerSession
from barnabas_quorum.driver.incarnation import IncarnationGuard
from barnabas_quorum.driver.replica_status import ReplicaStatus
from barnabas_quorum.explain.brokers import LiveFacts, SessionFact
from barnabas_quorum.explain.leaders import ControllerReport
from barnabas_quorum.raft.damage import LogEnd
from barnabas_quorum.raft.voters import ReplicaKey, VoterSet
from barnabas_wire.kafka.ids import BrokerId, Epoch, Offset, Uuid
from barnabas_wire.rpc import explain_pb2, explain_pb2_grpc
from barnabas_wire.rpc.dialing import PLAIN_DIALER, Dialer, UnknownPeer

ASK_TIMEOUT_S = 1.0

Address = tuple[str, int]


class ReplicaView(Protocol):
    """What this needs of the node's QuorumNode."""

    def describe_own(self) -> ReplicaStatus:
        """This replica's own place in the quorum."""
        ...


class SessionView(Protocol):
    """What this needs of the node's ControllerDriver."""

    @property
    def is_active(self) -> bool:
        """Whether it leads."""
        ...

    @property
    def active_since_ms(self) -> int:
        """When it became active, in ms on the loop's clock."""
        ...

    def sessions(self) -> Mapping[BrokerId, BrokerSession]:
        """Times on the loop's clock."""
        ...


class ControllerFactsServicer(explain_pb2_grpc.ControllerFactsServicer):
    """Answers for one controller. `clock_ms` is wall time."""

    def __init__(
        self,
        *,
        replica: ReplicaView,
        sessions: SessionView,
        config: ControllerConfig,
        incarnation: IncarnationGuard,
        clock_ms: Callable[[], int],
    ) -> None:
        self._replica = replica
        self._sessions = sessions
        self._config = config
        self._incarnation = incarnation
        self._clock_ms = clock_ms

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register on a controller's gRPC server that is not started yet."""
        explain_pb2_grpc.add_ControllerFactsServicer_to_server(self, server)

    async def DescribeOwnReplica(self, request: Any, context: Any) -> Any:
        """Role, epoch, log and vote."""
        own = self._replica.describe_own()
        return explain_pb2.OwnReplica(
            id=own.key.id,
            directory_id=str(own.key.directory_id),
            role=own.role,
            epoch=own.epoch,
            leader_id=own.leader_id,
            voted_id=own.voted_id,
            last_epoch=own.last_epoch,
            log_end_offset=own.log_end_offset,
            flushed_end_offset=own.flushed_end_offset,
            high_watermark=own.high_watermark,
            voters=str(own.voters),
            incarnation=str(self._incarnation.current),
            unreached=own.unreached,
            recovered_beside=self._incarnation.recovered_beside,
            lost_epoch=own.lost_end.epoch if own.lost_end else 0,
            lost_end_offset=own.lost_end.end_offset if own.lost_end else 0,
        )

    async def DescribeSessions(self, request: Any, context: Any) -> Any:
        """The brokers as this controller hears them; nothing while it does not lead."""
        now_ms = int(asyncio.get_running_loop().time() * 1000)
        source = self._sessions
        return explain_pb2.DescribeSessionsResponse(
            is_active=source.is_active,
            active_ms=now_ms - source.active_since_ms,
            session_timeout_ms=self._config.session_timeout_ms,
            disconnect_grace_ms=self._config.disconnect_grace_ms,
            sessions=[
                explain_pb2.BrokerSession(
                    broker_id=broker_id,
                    broker_epoch=session.broker_epoch,
                    silent_ms=now_ms - session.contact_ms,
                    connections=session.connections,
                    disconnected_ms=-1 if session.lost_ms is None else now_ms - session.lost_ms,
                    clock_skew_ms=session.clock_skew_ms,
                    metadata_offset=session.metadata_offset,
                )
                for broker_id, session in sorted(source.sessions().items())
            ],
            described_at_ms=self._clock_ms(),
        )


async def ask_replica(address: Address, *, dialer: Dialer = PLAIN_DIALER) -> ControllerReport:
    """What the controller at this address says of itself. Raises AioRpcError, UnknownPeer; ValueError for nonsense."""
    answer = await _call(address, "DescribeOwnReplica", explain_pb2.DescribeOwnReplicaRequest(), dialer=dialer)
    return ControllerReport(
        key=ReplicaKey(BrokerId(answer.id), Uuid.parse(answer.directory_id)),
        role=answer.role,
        epoch=Epoch(answer.epoch),
        leader_id=BrokerId(answer.leader_id),
        voted_id=BrokerId(answer.voted_id),
        last_epoch=Epoch(answer.last_epoch),
        log_end_offset=Offset(answer.log_end_offset),
        high_watermark=Offset(answer.high_watermark),
        voters=VoterSet.parse(answer.voters) if answer.voters else VoterSet.unknown(),
        incarnation=answer.incarnation,
        unreached=frozenset(BrokerId(each) for each in answer.unreached),
        recovered_beside=tuple(answer.recovered_beside),
        lost_end=LogEnd(Epoch(answer.lost_epoch), Offset(answer.lost_end_offset)) if answer.lost_end_offset else None,
    )


async def ask_sessions(
    leader_id: BrokerId, address: Address, *, now_ms: int, dialer: Dialer = PLAIN_DIALER
) -> LiveFacts:
    """What the active controller hears of brokers; empty facts when it does not answer, or is active no longer."""
    try:
        request = explain_pb2.DescribeSessionsRequest()
        answer = await _call(address, "DescribeSessions", request, dialer=dialer, node_id=leader_id)
    except (grpc.aio.AioRpcError, UnknownPeer):
        return LiveFacts(now_ms=now_ms)
    if not answer.is_active:
        return LiveFacts(now_ms=now_ms)
    return LiveFacts(
        # The log's time stamps are that controller's too, so its clock is the one to count from.
        now_ms=answer.described_at_ms,
        leader_id=leader_id,
        active_ms=answer.active_ms,
        session_timeout_ms=answer.session_timeout_ms,
        disconnect_grace_ms=answer.disconnect_grace_ms,
        sessions={
            BrokerId(session.broker_id): SessionFact(
                broker_epoch=session.broker_epoch,
                silent_ms=session.silent_ms,
                connections=session.connections,
                disconnected_ms=session.disconnected_ms,
                clock_skew_ms=session.clock_skew_ms,
                metadata_offset=Offset(session.metadata_offset),
            )
            for session in answer.sessions
        },
    )


async def _call(address: Address, method: str, request: Any, *, dialer: Dialer, node_id: BrokerId | None = None) -> Any:
    host, port = address
    async with await dialer.open(host, port, node_id) as channel:
        return await getattr(explain_pb2_grpc.ControllerFactsStub(channel), method)(request, timeout=ASK_TIMEOUT_S)
