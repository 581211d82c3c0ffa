"""What a node tells of the quorum when its leader does not answer."""

from __future__ import annotations

import asyncio

import pytest

from barnabas_broker.controller_client import quorum_view
from barnabas_broker.controller_client.quorum_view import LeaderView
from barnabas_quorum.driver.quorum_description import QuorumDescription
from barnabas_quorum.driver.transport import VoterChangeAnswer
from barnabas_quorum.raft.messages import VoterChange
from barnabas_quorum.raft.voters import Voter, VoterSet
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId
from barnabas_wire.rpc.server import new_server
from tests.support.images import NOW_MS, make_quorum, make_voters

SELF, LEADER = 1, 2
NOBODY_LISTENS_PORT = 1


class Member:
    """Voter 1 of three, in an epoch that voter 2 was elected in, and whose address it knows."""

    def __init__(self, named: int) -> None:
        self.named = named
        self.voters: VoterSet = make_voters(port=NOBODY_LISTENS_PORT)

    def describe(self) -> QuorumDescription:
        return make_quorum(leader=self.named)

    @property
    def leader_endpoint(self) -> Voter | None:
        return self.voters.by_id(BrokerId(LEADER))

    async def ask_for_voters(self, change: VoterChange, *, principal: str, client_host: str) -> VoterChangeAnswer:
        raise NotImplementedError


async def leader_told_by(member: Member) -> int:
    view = LeaderView(node_id=BrokerId(SELF), cluster_id="c", quorum=member, clock_ms=lambda: NOW_MS)
    try:
        return (await view.describe()).leader_id
    finally:
        await view.close()


@pytest.mark.parametrize("named", [LEADER, NO_BROKER])
async def test_of_a_leader_that_does_not_answer_this_node_tells_what_it_knows_itself(
    named: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quorum_view, "LEADER_WAIT_MS", 100)
    assert await leader_told_by(Member(named)) == named


@pytest.mark.parametrize("named", [LEADER, NO_BROKER])
async def test_who_is_asked_between_two_leaders_waits_for_the_next(named: int) -> None:
    """Kafka's quorum tool fails with "No value present" where no leader is named, and the last one is named for a while."""
    member = Member(named)
    asyncio.get_running_loop().call_later(0.2, setattr, member, "named", SELF)
    assert await leader_told_by(member) == SELF


async def test_a_leader_is_asked_where_it_is_now_and_counts_when_it_leads() -> None:
    """It may have moved to another address, and hear later than others that it leads, or leads no more."""
    at_leader, member = Member(NO_BROKER), Member(LEADER)
    server = new_server()
    LeaderView(node_id=BrokerId(LEADER), cluster_id="c", quorum=at_leader, clock_ms=lambda: NOW_MS).add_to(server)
    moved = make_voters(port=server.add_insecure_port("127.0.0.1:0") - 1)
    await server.start()
    loop = asyncio.get_running_loop()
    loop.call_later(0.1, setattr, member, "voters", moved)
    loop.call_later(0.2, setattr, at_leader, "named", LEADER)
    view = LeaderView(node_id=BrokerId(SELF), cluster_id="c", quorum=member, clock_ms=lambda: NOW_MS)
    started_s = loop.time()
    try:
        assert (await view.describe()).leader_id == LEADER
        assert 0.2 <= loop.time() - started_s < quorum_view.LEADER_WAIT_MS / 1000
    finally:
        await view.close()
        await server.stop(None)
