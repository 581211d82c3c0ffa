"""What a node tells of the quorum when its leader does not answer."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from barnabas_broker.quorum_view import LeaderView
from barnabas_quorum.driver.grpc_transport import VoterChangeAnswer
from barnabas_quorum.driver.own_replica import OwnReplica
from barnabas_quorum.driver.quorum_description import QuorumDescription
from barnabas_quorum.raft.messages import VoterChange
from barnabas_quorum.raft.voters import Voter, VoterSet
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId
from tests.admin.images import NOW_MS, make_own_replica, make_quorum, make_voters

SELF, LEADER = 1, 2
NOBODY_LISTENS_PORT = 1


class Member:
    """Voter 1 of three, in an epoch that voter 2 was elected in."""

    def __init__(self, *, role: str, unreached: tuple[int, ...]) -> None:
        self._quorum = make_quorum(leader=LEADER)
        self._own = make_own_replica(SELF, self._quorum, role=role, unreached=unreached)
        self.voters: VoterSet = make_voters(port=NOBODY_LISTENS_PORT)

    def describe(self) -> QuorumDescription:
        return self._quorum

    def describe_own(self) -> OwnReplica:
        return self._own

    @property
    def leader_endpoint(self) -> Voter | None:
        return self.voters.by_id(BrokerId(LEADER)) if self._own.role == "follower" else None

    async def ask_for_voters(self, change: VoterChange) -> VoterChangeAnswer:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("role", "unreached", "told"),
    [
        ("follower", (), LEADER),
        ("follower", (3,), LEADER),
        ("follower", (LEADER, 3), NO_BROKER),
        ("prospective", (LEADER, 3), NO_BROKER),
        ("candidate", (), NO_BROKER),
    ],
)
async def test_a_leader_that_was_lost_is_not_told_as_one_that_leads(
    role: str, unreached: tuple[int, ...], told: int
) -> None:
    member = Member(role=role, unreached=unreached)
    view = LeaderView(node_id=BrokerId(SELF), cluster_id="c", quorum=member, clock_ms=lambda: NOW_MS)
    try:
        assert (await view.describe()).leader_id == told
    finally:
        await view.close()


async def test_who_is_asked_between_two_leaders_waits_for_the_next() -> None:
    """Kafka's quorum tool fails with "No value present" where no leader is named."""
    member = Member(role="follower", unreached=())
    named = member._quorum
    member._quorum = replace(named, leader_id=NO_BROKER)
    view = LeaderView(node_id=BrokerId(SELF), cluster_id="c", quorum=member, clock_ms=lambda: NOW_MS)
    asyncio.get_running_loop().call_later(0.2, setattr, member, "_quorum", named)
    try:
        assert (await view.describe()).leader_id == LEADER
    finally:
        await view.close()
