"""Whom a controller asks whether the quorum was recovered without it: all at first, then who has not shown that it agrees."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from barnabas_broker.node.incarnation_watch import IncarnationWatch
from barnabas_quorum.driver.grpc_transport import GrpcTransport, QuorumServicer
from barnabas_quorum.driver.incarnation import Incarnation, IncarnationGuard
from barnabas_quorum.errors import PeerUnreachable
from barnabas_quorum.raft.messages import FetchReply, FetchRequest, Reply, ReplyError, Request
from barnabas_quorum.raft.voters import ReplicaKey, Voter
from barnabas_wire.kafka.ids import BrokerId, Epoch, Offset, Uuid
from barnabas_wire.rpc.server import new_server

KEYS = [ReplicaKey(BrokerId(node_id), Uuid(bytes([node_id]) * 16)) for node_id in (1, 2, 3)]
VOTERS = [Voter(key, "127.0.0.1", 9000 + key.id) for key in KEYS]
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
FETCH = FetchRequest(1, KEYS[1], KEYS[0], Epoch(3), Offset(0), Epoch(0), Offset(0), 0)


def nothing_new(request: Request) -> FetchReply:
    """What the leader, controller 1, answers to a fetch when there is nothing to give."""
    return FetchReply(
        correlation=request.correlation,
        source=KEYS[0],
        target=request.source,
        epoch=request.epoch,
        leader_id=KEYS[0].id,
        error=ReplyError.NONE,
        high_watermark=Offset(0),
        base_offset=Offset(0),
        end_offset=Offset(0),
    )


class Asked(GrpcTransport):
    """Notes who was asked."""

    def __init__(self) -> None:
        super().__init__(cluster_id=CLUSTER_ID)
        self.ports: list[int] = []

    async def describe(self, voter: Voter, *, timeout_s: float) -> Any:
        self.ports.append(voter.port)
        raise PeerUnreachable("nobody")

    def take(self) -> list[int]:
        ports, self.ports = self.ports, []
        return ports


async def test_only_who_has_not_shown_that_it_agrees_since_the_last_look_is_asked() -> None:
    asked, guard = Asked(), IncarnationGuard(may_lead=lambda: False)
    watch = IncarnationWatch(
        asked,
        node_address=("127.0.0.1", 9001),
        voters=lambda: VOTERS,
        addresses=[("127.0.0.1", 9002), ("127.0.0.1", 9009)],
        take_agreeing=guard.take_agreeing,
    )
    await watch.look()
    assert asked.take() == [9002, 9003, 9009]
    guard.note_agreeing(KEYS[1])
    await watch.look()
    assert asked.take() == [9003, 9009]
    await watch.look()
    assert asked.take() == [9002, 9003, 9009], "silence since the last look proves nothing"
    guard.note_agreeing(KEYS[1])
    assert guard.hear(f"1:{KEYS[2].directory_id}") is None, "it goes over"
    await watch.look()
    assert asked.take() == [9002, 9003, 9009], "who agreed before need not agree now"


async def test_a_reply_to_the_former_incarnation_is_not_taken() -> None:
    """It was on its way when this node heard that the quorum was recovered: records of it may be lost to the recovered one."""
    own = IncarnationGuard(may_lead=lambda: False)

    async def handle(request: Request) -> Reply:
        assert own.hear(f"1:{KEYS[2].directory_id}") is None, "it goes over"
        return nothing_new(request)

    server = new_server()
    QuorumServicer(cluster_id=CLUSTER_ID, handle=handle, incarnation=IncarnationGuard()).add_to(server)
    leader = Voter(KEYS[0], "127.0.0.1", server.add_insecure_port("127.0.0.1:0"))
    await server.start()
    transport = GrpcTransport(cluster_id=CLUSTER_ID, incarnation=own)
    try:
        with pytest.raises(PeerUnreachable, match="answered to incarnation first"):
            await transport.call(FETCH, leader, timeout_s=5)
        assert own.take_agreeing() == set()
    finally:
        await transport.close()
        await server.stop(None)


async def test_a_fetch_that_was_served_shows_both_sides_that_they_agree_and_a_refused_one_neither() -> None:
    async def handle(request: Request) -> Reply:
        return nothing_new(request)

    server, guard = new_server(), IncarnationGuard()
    QuorumServicer(cluster_id=CLUSTER_ID, handle=handle, incarnation=guard).add_to(server)
    leader = Voter(KEYS[0], "127.0.0.1", server.add_insecure_port("127.0.0.1:0"))
    await server.start()

    async def fetch(own: IncarnationGuard) -> Reply:
        transport = GrpcTransport(cluster_id=CLUSTER_ID, incarnation=own)
        try:
            async with asyncio.timeout(10):
                return await transport.call(FETCH, leader, timeout_s=5)
        finally:
            await transport.close()

    try:
        own = IncarnationGuard()
        await fetch(own)
        assert own.take_agreeing() == {KEYS[0]}
        assert guard.take_agreeing() == {KEYS[1]}
        stranger = IncarnationGuard(Incarnation(1, Uuid(bytes(16))), may_lead=lambda: False)
        with pytest.raises(PeerUnreachable, match="the quorum was recovered"):
            await fetch(stranger)
        assert stranger.take_agreeing() == guard.take_agreeing() == set()
    finally:
        await server.stop(None)
