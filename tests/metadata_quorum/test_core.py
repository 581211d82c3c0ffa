"""What the scripts and the simulator do not reach: hostile and damaged messages, misuse, forgotten observers."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas_quorum.config import QuorumConfig
from barnabas_quorum.raft.core import QuorumCore
from barnabas_quorum.raft.journal import INITIAL_HARD_STATE
from barnabas_quorum.raft.messages import (
    BeginQuorumEpochReply,
    BeginQuorumEpochRequest,
    EndQuorumEpochReply,
    EndQuorumEpochRequest,
    EpochStart,
    FetchReply,
    FetchRequest,
    HardState,
    Ready,
    ReplyError,
    Unreachable,
    VoteReply,
    VoteRequest,
)
from barnabas_quorum.raft.roles import Follower, Leader, Unattached
from barnabas_quorum.raft.voters import ReplicaKey, Voter, VoterSet
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId, Epoch, Offset, Uuid

ME, TWO, THREE, OBSERVER = (ReplicaKey(BrokerId(i), Uuid(bytes([i]) * 16)) for i in range(1, 5))
VOTERS = VoterSet([Voter(key, "localhost", 1) for key in (ME, TWO, THREE)])
ALONE = VoterSet([Voter(ME, "localhost", 1)])
STRANGER = ReplicaKey(TWO.id, Uuid(bytes(16)))


def make_core(
    *,
    voters: VoterSet = VOTERS,
    state: HardState = INITIAL_HARD_STATE,
    starts: tuple[EpochStart, ...] = (),
    end: int = 0,
) -> QuorumCore:
    return QuorumCore(
        timing=QuorumConfig(),
        me=ME,
        voters=voters,
        hard_state=state,
        epoch_starts=starts,
        end_offset=Offset(end),
        draw=lambda: 0.5,
        now_ms=0,
    )


def turn(core: QuorumCore) -> Ready:
    ready = core.ready()
    assert ready is not None
    core.advance(ready)
    return ready


def only_reply(core: QuorumCore, kind: type) -> Any:
    (reply,) = [message for message in turn(core).send if isinstance(message, kind)]
    return reply


def follower_of_two(*, epoch: int = 1, end: int = 0) -> tuple[QuorumCore, FetchRequest]:
    """A follower and the fetch that it has in flight."""
    starts = (EpochStart(Epoch(1), Offset(0)),) if end else ()
    core = make_core(state=HardState(Epoch(epoch), TWO.id, None), starts=starts, end=end)
    core.tick(0)
    return core, only_reply(core, FetchRequest)


def leader_alone() -> QuorumCore:
    core = make_core(voters=ALONE)
    core.tick(0)
    turn(core)
    core.flushed(core.end_offset, 0)
    assert core.high_watermark == 1
    return core


def vote_request(target: ReplicaKey = ME, *, epoch: int = 1, last_epoch: int = 0, end_offset: int = 0) -> VoteRequest:
    return VoteRequest(7, TWO, target, Epoch(epoch), Epoch(last_epoch), Offset(end_offset), False)


def fetch_request(core: QuorumCore, source: ReplicaKey = OBSERVER, **changes: Any) -> FetchRequest:
    fields: dict[str, Any] = {
        "correlation": 9,
        "source": source,
        "target": ME,
        "epoch": core.epoch,
        "fetch_offset": core.end_offset,
        "last_epoch": core.history.last_epoch,
        "high_watermark": core.high_watermark,
        "wait_ms_max": 500,
    }
    return FetchRequest(**{**fields, **changes})


def test_vote_for_another_disk_is_refused_and_changes_nothing() -> None:
    core = make_core()
    core.step(vote_request(ReplicaKey(ME.id, Uuid(bytes(16))), epoch=9), 1)
    reply = only_reply(core, VoteReply)
    assert (reply.error, reply.is_granted, core.epoch, core.voted) == (ReplyError.INVALID_VOTER_KEY, False, 0, None)
    assert reply.correlation == 7


def test_malformed_vote_is_refused_and_changes_nothing() -> None:
    core = make_core()
    core.step(vote_request(epoch=3, last_epoch=3), 1)
    assert only_reply(core, VoteReply).error is ReplyError.INVALID_REQUEST
    assert core.epoch == 0


def test_observer_is_asked_for_no_vote() -> None:
    core = make_core(voters=VoterSet([Voter(TWO, "localhost", 1)]))
    core.step(vote_request(), 1)
    assert only_reply(core, VoteReply).error is ReplyError.INVALID_VOTER_KEY
    assert core.deadline_ms() < 1 << 60, "it looks for a leader"


def test_leader_that_is_no_voter_is_not_followed() -> None:
    core = make_core()
    core.step(BeginQuorumEpochRequest(7, STRANGER, ME, Epoch(4)), 1)
    assert only_reply(core, BeginQuorumEpochReply).error is ReplyError.INVALID_VOTER_KEY
    core.step(EndQuorumEpochRequest(8, TWO, ReplicaKey(ME.id, Uuid(bytes(16))), Epoch(4), ()), 1)
    assert only_reply(core, EndQuorumEpochReply).error is ReplyError.INVALID_VOTER_KEY
    assert core.epoch == 0


def test_vote_of_a_stranger_does_not_count() -> None:
    core = make_core()
    core.tick(5_000)
    asked = [message for message in turn(core).send if isinstance(message, VoteRequest)]
    assert len(asked) == 2 and asked[0].is_pre_vote
    core.step(VoteReply(1, STRANGER, ME, Epoch(0), NO_BROKER, ReplyError.NONE, True, True), 5_001)
    assert core.epoch == 0
    core.step(VoteReply(1, TWO, ME, Epoch(0), NO_BROKER, ReplyError.NONE, True, True), 5_001)
    assert core.epoch == 1, "a voter's does"


def test_pre_vote_is_no_vote() -> None:
    core = make_core(state=HardState(Epoch(3), NO_BROKER, ME))
    core.tick(0)
    turn(core)
    core.step(VoteReply(1, TWO, ME, Epoch(3), NO_BROKER, ReplyError.NONE, True, True), 1)
    assert not core.is_leader
    core.step(VoteReply(1, TWO, ME, Epoch(3), NO_BROKER, ReplyError.NONE, True, False), 1)
    assert core.is_leader


@pytest.mark.parametrize("changes", [{"fetch_offset": -1}, {"last_epoch": -1}, {"last_epoch": 99}])
def test_malformed_fetch_is_refused(changes: dict[str, Any]) -> None:
    core = leader_alone()
    core.step(fetch_request(core, **changes), 1)
    assert only_reply(core, FetchReply).error is ReplyError.INVALID_REQUEST


def test_fetch_of_another_epoch_is_refused_and_counts_for_nothing() -> None:
    core = leader_alone()
    for epoch, error in ((0, ReplyError.FENCED_LEADER_EPOCH), (9, ReplyError.UNKNOWN_LEADER_EPOCH)):
        core.step(fetch_request(core, epoch=epoch, last_epoch=0), 1)
        assert only_reply(core, FetchReply).error is error
    assert isinstance(core.role, Leader) and core.role.observers == {}


def test_parked_fetch_is_answered_when_its_time_is_over() -> None:
    core = leader_alone()
    core.step(fetch_request(core), 100)
    assert core.ready() is None
    assert core.deadline_ms() == 600
    core.tick(600)
    reply = only_reply(core, FetchReply)
    assert (reply.correlation, reply.error, reply.end_offset) == (9, ReplyError.NONE, 1)


def test_newer_fetch_of_the_same_replica_answers_the_parked_one() -> None:
    core = leader_alone()
    core.step(fetch_request(core), 1)
    core.step(fetch_request(core, correlation=10), 2)
    assert only_reply(core, FetchReply).correlation == 9


def test_silent_observer_is_forgotten() -> None:
    core = leader_alone()
    core.step(fetch_request(core), 1)
    core.tick(600)
    turn(core)
    assert isinstance(core.role, Leader) and list(core.role.observers) == [OBSERVER]
    core.tick(600 + QuorumConfig().observer_session_ms)
    assert core.role.observers == {}


def test_damaged_records_are_fetched_again_after_a_pause() -> None:
    core, fetch = follower_of_two(end=3)
    damaged = FetchReply(fetch.correlation, TWO, ME, Epoch(1), TWO.id, ReplyError.NONE, Offset(0), Offset(3), Offset(4))
    core.step(damaged, 10)
    assert core.ready() is None
    assert core.end_offset == 3
    core.tick(10 + QuorumConfig().retry_backoff_ms)
    assert only_reply(core, FetchRequest).fetch_offset == 3


def test_reply_to_another_fetch_is_ignored() -> None:
    core, fetch = follower_of_two(end=3)
    stale = FetchReply(
        fetch.correlation - 1,
        TWO,
        ME,
        Epoch(1),
        TWO.id,
        ReplyError.NONE,
        Offset(0),
        Offset(3),
        Offset(3),
        EpochStart(Epoch(1), Offset(1)),
    )
    core.step(stale, 10)
    assert (core.ready(), core.end_offset) == (None, 3)


def test_cut_below_the_high_watermark_is_fatal() -> None:
    core, fetch = follower_of_two(end=3)
    core.step(
        FetchReply(fetch.correlation, TWO, ME, Epoch(1), TWO.id, ReplyError.NONE, Offset(3), Offset(3), Offset(3)), 10
    )
    assert core.high_watermark == 3
    again = only_reply(core, FetchRequest)
    with pytest.raises(AssertionError, match="below the high watermark"):
        core.step(
            FetchReply(
                again.correlation,
                TWO,
                ME,
                Epoch(1),
                TWO.id,
                ReplyError.NONE,
                Offset(3),
                Offset(3),
                Offset(3),
                EpochStart(Epoch(1), Offset(2)),
            ),
            11,
        )


def test_two_leaders_of_one_epoch_are_fatal() -> None:
    core, _ = follower_of_two()
    with pytest.raises(AssertionError, match="led by"):
        core.step(BeginQuorumEpochRequest(1, THREE, ME, Epoch(1)), 1)


def test_dead_leader_is_given_up_before_the_fetch_timer() -> None:
    core, fetch = follower_of_two()
    now_ms = 0
    for _ in range(10):
        core.step(Unreachable(fetch.correlation, fetch.target), now_ms)
        assert isinstance(core.role, Follower)
        if core.role.is_leader_lost:
            break
        now_ms = core.deadline_ms()
        core.tick(now_ms)
        fetch = only_reply(core, FetchRequest)
    assert now_ms < 500
    assert core.role.fetch_deadline_ms < QuorumConfig().fetch_timeout_ms  # type: ignore[union-attr]


def test_log_of_a_later_epoch_than_the_hard_state_raises_the_epoch() -> None:
    core = make_core(state=HardState(Epoch(1), TWO.id, TWO), starts=(EpochStart(Epoch(3), Offset(0)),), end=1)
    assert isinstance(core.role, Unattached)
    assert turn(core).hard_state == HardState(Epoch(3), NO_BROKER, None)


def test_driver_that_breaks_the_cycle_is_stopped() -> None:
    core = make_core()
    core.step(vote_request(), 1)
    ready = core.ready()
    with pytest.raises(AssertionError, match="before advance"):
        core.step(vote_request(), 2)
    with pytest.raises(AssertionError, match="before advance"):
        core.tick(2)
    with pytest.raises(AssertionError, match="another ready"):
        core.advance(Ready())
    assert ready is not None
    core.advance(ready)
    with pytest.raises(AssertionError, match="only the leader"):
        core.propose(b"", record_count=1, now_ms=3)
    with pytest.raises(AssertionError, match="the log ends"):
        core.flushed(Offset(5), 3)
