"""Whom a node tells as the leader when requests to it fail."""

from __future__ import annotations

from barnabas_quorum.driver.quorum_description import describe_quorum
from barnabas_quorum.raft.core import QuorumCore
from barnabas_quorum.raft.messages import FetchReply, FetchRequest, ReplyError
from barnabas_quorum.raft.roles import Follower, Prospective
from barnabas_wire.kafka.ids import NO_BROKER, Epoch, Offset
from tests.metadata_quorum.test_core import ME, TWO, follower_of_two


def leader_told(core: QuorumCore) -> int:
    """While the last request to the leader has failed."""
    return describe_quorum(core, {TWO}, now_ms=core.now_ms, wall_ms=0).leader_id


def hear_leader(core: QuorumCore, fetch: FetchRequest) -> None:
    good = FetchReply(fetch.correlation, TWO, ME, Epoch(1), TWO.id, ReplyError.NONE, Offset(0), Offset(0), Offset(0))
    core.step(good, 5)


def test_a_leader_is_lost_with_the_fetch_timer_and_not_with_one_request() -> None:
    """/readyz and clients would flap under load."""
    core, fetch = follower_of_two()
    assert leader_told(core) == NO_BROKER, "nothing was ever had from it"
    hear_leader(core, fetch)
    assert leader_told(core) == TWO.id
    assert isinstance(core.role, Follower)
    core.tick(core.role.fetch_deadline_ms)
    assert isinstance(core.role, Prospective) and leader_told(core) == NO_BROKER


def test_whom_a_voter_goes_back_to_in_vain_stays_lost() -> None:
    core, fetch = follower_of_two()
    hear_leader(core, fetch)
    for role in (Follower, Prospective):
        assert isinstance(core.role, role)
        while (ready := core.ready()) is not None:
            core.advance(ready)
        core.tick(core.role.fetch_deadline_ms if isinstance(core.role, Follower) else core.role.election_deadline_ms)
    assert isinstance(core.role, Follower) and leader_told(core) == NO_BROKER
    assert describe_quorum(core, (), now_ms=core.now_ms, wall_ms=0).leader_id == TWO.id
