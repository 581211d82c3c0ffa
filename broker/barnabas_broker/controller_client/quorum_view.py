"""The quorum as its leader sees it, from any node.

May touch:  grpc.aio on the control lane, once another node is asked.     Must not touch: the quorum's log and state.
Invariants: only the leader knows how far the others are, so a node that does not lead asks the leader, for about
            LEADER_WAIT_MS until one answers, and otherwise reports what it knows itself; generated types stop here and in
            admin/service.py.
Read next:  admin/service.py.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, cast

from barnabas_quorum.driver.quorum_description import QuorumDescription, ReplicaDescription
from barnabas_quorum.driver.transport import VoterChangeAnswer
from barnabas_quorum.raft.messages import ReplyError, VoterChange
from barnabas_quorum.raft.voters import ReplicaKey, Voter, VoterSet
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Epoch, Offset, Uuid
from barnabas_wire.rpc.dialing import PLAIN_DIALER, Dialer, UnknownPeer
from barnabas_wire.rpc.options import address_of

if TYPE_CHECKING:
    import grpc.aio

    from barnabas_wire.rpc import admin_pb2, admin_pb2_grpc

logger = logging.getLogger(__name__)

ASK_TIMEOUT_S = 1.0
LEADER_WAIT_MS = 2_000
LEADER_LOOK_S = 0.05


class QuorumMember(Protocol):
    """What this needs of the node's own QuorumNode."""

    def describe(self) -> QuorumDescription:
        """The quorum as this node sees it."""
        ...

    @property
    def voters(self) -> VoterSet:
        """The voter set that counts now."""
        ...

    @property
    def leader_endpoint(self) -> Voter | None:
        """The leader with its address, if it is known."""
        ...

    async def ask_for_voters(self, change: VoterChange, *, principal: str, client_host: str) -> VoterChangeAnswer:
        """Have the leader change the voter set. Raises PeerUnreachable."""
        ...


class LeaderView:
    """Describes the quorum, and serves its own description to other nodes. Belongs to the control lane.

    `clock_ms` is wall time.
    """

    def __init__(
        self,
        *,
        node_id: BrokerId,
        cluster_id: str,
        quorum: QuorumMember,
        clock_ms: Callable[[], int],
        recovered_beside: Callable[[], Sequence[str]] = tuple,
        dialer: Dialer = PLAIN_DIALER,
    ) -> None:
        """`recovered_beside`: the other recoveries of the same quorum that this node has met."""
        self._dialer = dialer
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._quorum = quorum
        self._clock_ms = clock_ms
        self._recovered_beside = recovered_beside
        self._channel: grpc.aio.Channel | None = None
        self._channel_to: object = None

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register on a controller's gRPC server that is not started yet."""
        from barnabas_wire.rpc import admin_pb2_grpc

        admin_pb2_grpc.add_QuorumViewServicer_to_server(cast("admin_pb2_grpc.QuorumViewServicer", self), server)

    async def DescribeOwnQuorum(self, request: Any, context: Any) -> Any:
        """What this node sees; another node asks because it takes this one for the leader."""
        return quorum_to_message(self._own(), self._quorum.voters, cluster_id=self._cluster_id, now_ms=self._clock_ms())

    async def describe(self, *, within_ms: int = LEADER_WAIT_MS) -> QuorumDescription:
        """The leader's view where it can be had within so long, else this node's own.

        Between two leaders none is known for a moment, or the last one still, and a leader whose vote was taken hears
        of its successor a second later. Kafka's brokers ask on until a leader answers, and its quorum tool fails where
        none is named.
        """
        deadline_s = time.monotonic() + min(within_ms, LEADER_WAIT_MS) / 1000
        while (own := self._own()).leader_id != self._node_id:
            leader = self._quorum.leader_endpoint
            timeout_s = min(ASK_TIMEOUT_S, max(LEADER_LOOK_S, deadline_s - time.monotonic()))
            if leader is not None and (found := await self._ask(leader, timeout_s=timeout_s)) is not None:
                beside = dict.fromkeys([*found.recovered_beside, *own.recovered_beside])
                return replace(found, recovered_beside=tuple(beside))
            if time.monotonic() >= deadline_s:
                break
            await asyncio.sleep(LEADER_LOOK_S)
        return own

    def now_ms(self) -> int:
        """Wall time, ms since 1970."""
        return self._clock_ms()

    async def ask_for_voters(self, change: VoterChange, *, principal: str, client_host: str) -> VoterChangeAnswer:
        """Have the quorum's leader change the voter set, on behalf of `principal` who came from the address `client_host`; ends
        when that is committed. Raises PeerUnreachable."""
        return await self._quorum.ask_for_voters(change, principal=principal, client_host=client_host)

    async def change_voters(self, change: VoterChange, *, principal: str, client_host: str) -> None:
        """Bring a change to the leader and wait for it. Raises the KafkaError it is refused with."""
        answer = await self.ask_for_voters(change, principal=principal, client_host=client_host)
        if answer.error is not ReplyError.NONE:
            raise KafkaError.of(ErrorCode(answer.error), answer.reason)

    async def close(self) -> None:
        """Close the connection to the leader."""
        if self._channel is not None:
            await self._channel.close()
            self._channel = None

    async def _ask(self, leader: Voter, *, timeout_s: float) -> QuorumDescription | None:
        """What it sees; None when it does not answer, or does not lead."""
        import grpc.aio  # a quorum of one has no other to ask

        from barnabas_wire.rpc import admin_pb2

        try:
            stub = await self._stub(leader)
            message = await stub.DescribeOwnQuorum(admin_pb2.DescribeQuorumRequest(), timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            logger.debug("the quorum's leader %s does not answer: %s", leader, error.details())
            return None
        except UnknownPeer as error:
            logger.debug("the quorum's leader %s cannot be asked: %s", leader, error)
            return None
        found = quorum_from_message(message)
        return found if found.leader_id == leader.key.id else None

    def _own(self) -> QuorumDescription:
        return replace(self._quorum.describe(), recovered_beside=tuple(self._recovered_beside()))

    async def _stub(self, leader: Voter) -> Any:
        """A stub on the one channel that is kept; a channel to a former leader is dropped when its last call ends."""
        from barnabas_wire.rpc import admin_pb2_grpc

        wanted = (leader.host, leader.port, leader.key.id, self._dialer.generation)
        if self._channel is None or self._channel_to != wanted:
            self._channel = await self._dialer.open(leader.host, leader.port, leader.key.id)
            self._channel_to = wanted
        return admin_pb2_grpc.QuorumViewStub(self._channel)


def quorum_to_message(
    quorum: QuorumDescription, voters: VoterSet, *, cluster_id: str, now_ms: int
) -> admin_pb2.DescribeQuorumResponse:
    """The description as the wire carries it; lags are counted from the leader's log end."""
    from barnabas_wire.rpc import admin_pb2

    endpoints = {voter.key: address_of(voter.host, voter.port) for voter in voters}
    leader_end = max((r.log_end_offset for r in quorum.voters if r.key.id == quorum.leader_id), default=-1)

    def describe(replica: ReplicaDescription, role: str) -> admin_pb2.QuorumReplica:
        end = replica.log_end_offset
        return admin_pb2.QuorumReplica(
            id=replica.key.id,
            directory_id=str(replica.key.directory_id),
            role=role,
            log_end_offset=end,
            lag_records=-1 if end < 0 or leader_end < 0 else max(0, leader_end - end),
            last_fetch_timestamp_ms=replica.last_fetch_ms,
            last_caught_up_timestamp_ms=replica.last_caught_up_ms,
            endpoint=endpoints.get(replica.key, ""),
        )

    return admin_pb2.DescribeQuorumResponse(
        cluster_id=cluster_id,
        leader_id=quorum.leader_id,
        leader_epoch=quorum.epoch,
        high_watermark=quorum.high_watermark,
        replicas=[
            describe(replica, "leader" if replica.key.id == quorum.leader_id else "voter") for replica in quorum.voters
        ]
        + [describe(replica, "observer") for replica in quorum.observers],
        described_at_ms=now_ms,
        recovered_beside=quorum.recovered_beside,
    )


def quorum_from_message(message: admin_pb2.DescribeQuorumResponse) -> QuorumDescription:
    """What another node described."""
    replicas = [(replica.role, _replica(replica)) for replica in message.replicas]
    return QuorumDescription(
        leader_id=BrokerId(message.leader_id),
        epoch=Epoch(message.leader_epoch),
        high_watermark=Offset(message.high_watermark),
        voters=tuple(replica for role, replica in replicas if role != "observer"),
        observers=tuple(replica for role, replica in replicas if role == "observer"),
        recovered_beside=tuple(message.recovered_beside),
    )


def _replica(replica: admin_pb2.QuorumReplica) -> ReplicaDescription:
    return ReplicaDescription(
        key=ReplicaKey(BrokerId(replica.id), Uuid.parse(replica.directory_id)),
        log_end_offset=Offset(replica.log_end_offset),
        last_fetch_ms=replica.last_fetch_timestamp_ms,
        last_caught_up_ms=replica.last_caught_up_timestamp_ms,
    )
