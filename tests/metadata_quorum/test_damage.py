"""A log that its disk has damaged: what counts as damage, and what its replica may do until it has all back."""

from __future__ import annotations

import pytest

from barnabas_quorum.config import QuorumConfig
from barnabas_quorum.raft.core import QuorumCore
from barnabas_quorum.raft.damage import FlushMark, LogEnd, lost_end
from barnabas_quorum.raft.messages import (
    EpochStart,
    FetchReply,
    FetchRequest,
    HardState,
    Ready,
    ReplyError,
    VoteReply,
    VoteRequest,
)
from barnabas_quorum.raft.roles import NEVER_MS, Follower, Prospective, Unattached
from barnabas_quorum.raft.voters import ReplicaKey, Voter, VoterSet
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId, Epoch, Offset, Uuid

ME, TWO, THREE = (ReplicaKey(BrokerId(i), Uuid(bytes([i]) * 16)) for i in range(1, 4))
VOTERS = VoterSet([Voter(key, "localhost", 1) for key in (ME, TWO, THREE)])


def end(epoch: int, offset: int) -> LogEnd:
    return LogEnd(Epoch(epoch), Offset(offset))


def mark(flushed_end: int, begun: LogEnd, lost: LogEnd | None = None) -> FlushMark:
    return FlushMark(Offset(flushed_end), begun, lost)


@pytest.mark.parametrize(
    ("known", "found", "expected"),
    [
        (None, end(1, 3), None),
        (mark(10, end(2, 12)), end(2, 12), None),
        (mark(10, end(2, 12)), end(2, 15), None),
        # the flush of 10 to 12 may have been cut off by the crash
        (mark(10, end(2, 12)), end(2, 10), None),
        (mark(10, end(2, 12)), end(2, 9), end(2, 12)),
        (mark(10, end(2, 12)), end(0, 0), end(2, 12)),
        # lost before, and not back yet
        (mark(5, end(1, 5), end(2, 12)), end(1, 5), end(2, 12)),
        (mark(5, end(1, 5), end(2, 12)), end(1, 4), end(2, 12)),
        (mark(11, end(2, 11), end(2, 12)), end(2, 12), None),
        (mark(7, end(3, 7), end(2, 12)), end(3, 7), None),
        (mark(7, end(3, 9), end(2, 12)), end(2, 6), end(3, 9)),
    ],
)
def test_only_what_a_flush_is_known_to_have_covered_counts_as_lost(
    known: FlushMark | None, found: LogEnd, expected: LogEnd | None
) -> None:
    assert lost_end(known, found=found) == expected


def damaged_core(*, leader_id: int = NO_BROKER) -> QuorumCore:
    """It had 10 records of epoch 2, and 6 are left."""
    return QuorumCore(
        timing=QuorumConfig(),
        me=ME,
        voters=VOTERS,
        hard_state=HardState(Epoch(2), BrokerId(leader_id), None),
        epoch_starts=(EpochStart(Epoch(1), Offset(0)), EpochStart(Epoch(2), Offset(4))),
        end_offset=Offset(6),
        draw=lambda: 0.5,
        now_ms=0,
        lost_end=end(2, 10),
    )


def turn(core: QuorumCore) -> Ready:
    ready = core.ready()
    assert ready is not None
    core.advance(ready)
    return ready


def vote_of(core: QuorumCore, *, epoch: int, log: LogEnd) -> bool:
    core.step(VoteRequest(9, TWO, ME, Epoch(epoch), log.epoch, log.end_offset, False), 1)
    (reply,) = [message for message in turn(core).send if isinstance(message, VoteReply)]
    assert reply.error is ReplyError.NONE
    return reply.is_granted


def test_damaged_voter_votes_as_its_undamaged_log_would() -> None:
    core = damaged_core()
    assert not vote_of(core, epoch=3, log=end(2, 9)), "it has acknowledged the record at offset 9"
    assert vote_of(core, epoch=4, log=end(2, 10))
    assert vote_of(core, epoch=5, log=end(3, 7))


def test_damaged_voter_does_not_run_until_it_has_all_back() -> None:
    core = damaged_core(leader_id=TWO.id)
    assert isinstance(core.role, Follower)
    core.tick(0)
    (fetch,) = [message for message in turn(core).send if isinstance(message, FetchRequest)]
    assert fetch.fetch_offset == 6, "it reports to the leader what it has, not what it had"
    reply = FetchReply(
        fetch.correlation, TWO, ME, Epoch(2), TWO.id, ReplyError.NONE, Offset(9), Offset(6), Offset(10), None
    )
    reply.epochs = (EpochStart(Epoch(2), Offset(6)),)
    core.step(reply, 5)
    turn(core)
    core.tick(core.deadline_ms())
    assert isinstance(core.role, Unattached) and core.role.election_deadline_ms == NEVER_MS
    core.flushed(Offset(9), core.now_ms)
    assert core.lost_end == end(2, 10)
    core.flushed(Offset(10), core.now_ms)
    assert core.lost_end is None
    assert core.role.election_deadline_ms < NEVER_MS
    turn(core)
    core.tick(core.role.election_deadline_ms)
    assert isinstance(core.role, Prospective)


def test_log_that_reaches_as_far_again_counts_as_undamaged_from_the_start() -> None:
    core = QuorumCore(
        timing=QuorumConfig(),
        me=ME,
        voters=VOTERS,
        hard_state=HardState(Epoch(2), NO_BROKER, None),
        epoch_starts=(EpochStart(Epoch(2), Offset(0)),),
        end_offset=Offset(10),
        draw=lambda: 0.5,
        now_ms=0,
        lost_end=lost_end(mark(8, end(2, 8), end(2, 10)), found=end(2, 10)),
    )
    assert core.may_campaign
