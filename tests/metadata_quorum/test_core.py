"""What the scripts and the simulator do not reach: hostile and damaged messages, misuse, forgotten observers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from barnabas_quorum.config import QuorumConfig
from barnabas_quorum.raft.core import QuorumCore
from barnabas_quorum.raft.epoch_history import RECOVERY_EPOCH_GAP
from barnabas_quorum.raft.journal import INITIAL_HARD_STATE
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
    HardState,
    Ready,
    ReplyError,
    SnapshotId,
    Unreachable,
    VoterChange,
    VoterChangeKind,
    VoteReply,
    VoteRequest,
)
from barnabas_quorum.raft.roles import NEVER_MS, Follower, Leader, Prospective, Resigned, Unattached
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


def test_replica_outside_its_own_voter_set_votes_but_never_runs() -> None:
    """It may have been added and not know it; the one who asks counts by its own set (Raft dissertation 4.1)."""
    core = make_core(voters=VoterSet([Voter(TWO, "localhost", 1)]))
    core.step(vote_request(), 1)
    reply = only_reply(core, VoteReply)
    assert (reply.error, reply.is_granted, core.voted) == (ReplyError.NONE, True, TWO)
    assert isinstance(core.role, Unattached) and core.role.election_deadline_ms == NEVER_MS
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


@pytest.mark.parametrize("is_pre_vote", [True, False])
def test_vote_counts_though_it_names_a_leader_that_cannot_be_followed(is_pre_vote: bool) -> None:
    """A set that contains leader 4 elected it; it gave TWO its address, and died. This replica does not know it: if the votes of
    those that remember it did not count, nobody would ever be elected."""
    core = make_core(state=HardState(Epoch(3), NO_BROKER, None if is_pre_vote else ME))
    core.tick(5_000 if is_pre_vote else 0)
    turn(core)
    core.step(VoteReply(1, TWO, ME, Epoch(3), OBSERVER.id, ReplyError.NONE, True, is_pre_vote), 5_001)
    assert (core.epoch, core.is_leader) == ((4, False) if is_pre_vote else (3, True))


@pytest.mark.parametrize("changes", [{"fetch_offset": -1}, {"last_epoch": -1}, {"last_epoch": 99}])
def test_malformed_fetch_is_refused(changes: dict[str, Any]) -> None:
    core = leader_alone()
    core.step(fetch_request(core, **changes), 1)
    assert only_reply(core, FetchReply).error is ReplyError.INVALID_REQUEST


def test_fetch_of_another_epoch_is_refused_and_counts_for_nothing() -> None:
    core = leader_alone()
    core.step(fetch_request(core, epoch=0, last_epoch=0), 1)
    assert only_reply(core, FetchReply).error is ReplyError.FENCED_LEADER_EPOCH
    core.step(fetch_request(core, epoch=9, last_epoch=0, target=STRANGER), 1)
    assert only_reply(core, FetchReply).error is ReplyError.UNKNOWN_LEADER_EPOCH
    assert isinstance(core.role, Leader) and core.role.observers == {}


def test_leader_gives_way_to_a_replica_that_is_ahead_of_it() -> None:
    """A voter raised the epoch, announced it to an observer, and was lost for good. No election would follow, and the observer,
    which never goes back, could fetch from nobody: a broker that no restart helps."""
    core = make_core(state=HardState(Epoch(0), NO_BROKER, ME))
    core.tick(0)
    core.step(VoteReply(1, TWO, ME, Epoch(0), NO_BROKER, ReplyError.NONE, True, False), 1)
    turn(core)
    core.step(fetch_request(core, TWO), 2)
    core.step(fetch_request(core, epoch=3, last_epoch=0), 3)
    ready = turn(core)
    assert ready.hard_state == HardState(Epoch(3), NO_BROKER, None), "before the reply"
    replies = [each for each in ready.send if isinstance(each, FetchReply)]
    assert [(each.source, each.target, each.epoch, each.leader_id) for each in replies] == [
        (ME, TWO, 3, NO_BROKER),
        (ME, OBSERVER, 3, NO_BROKER),
    ]
    assert isinstance(core.role, Unattached) and core.role.election_deadline_ms < NEVER_MS


def test_uncertain_end_of_a_recovered_log_is_not_reported_as_committed_before_the_gap_behind_it() -> None:
    """A broker that were cut off between the two would act on an election that others may have decided otherwise."""
    recovered = Epoch(7 + RECOVERY_EPOCH_GAP)
    core = make_core(
        voters=ALONE,
        state=HardState(recovered, NO_BROKER, None),
        starts=(EpochStart(Epoch(7), Offset(0)), EpochStart(recovered, Offset(10))),
        end=13,
    )
    core.tick(0)
    turn(core)
    core.flushed(core.end_offset, 0)
    assert core.high_watermark == 14
    for offset, epoch, known in ((0, 0, 0), (5, 7, 0), (10, 7, 0), (13, recovered, 0), (14, recovered + 1, 14)):
        core.step(fetch_request(core, fetch_offset=offset, last_epoch=epoch, high_watermark=0), 1)
        reply = only_reply(core, FetchReply)
        assert (reply.high_watermark, reply.end_offset) == (known, 14)

    assert core.snapshot_refusal(SnapshotId(Offset(10), Epoch(7))) is not None, "who begins with it lacks the gap"
    assert core.snapshot_refusal(SnapshotId(Offset(13), recovered)) is None


@pytest.mark.parametrize(("last_epoch", "may_campaign"), [(7, False), (12, False), (7 + RECOVERY_EPOCH_GAP, True)])
def test_former_voter_that_has_read_half_of_a_recovered_log_does_not_run(last_epoch: int, may_campaign: bool) -> None:
    """Up to the recovery its log says that it votes, and so it says to the others; in 12 it was ahead of the survivor."""
    core = make_core(
        state=HardState(Epoch(8 + RECOVERY_EPOCH_GAP), NO_BROKER, None),
        starts=(EpochStart(Epoch(last_epoch), Offset(0)),),
        end=5,
    )
    assert core.is_voter and core.may_campaign is may_campaign
    core.tick(60_000)
    assert any(isinstance(each, VoteRequest) for each in turn(core).send) is may_campaign


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


def test_snapshot_beyond_the_flushed_end_is_not_kept() -> None:
    """The others may have committed it, but the log must not begin where this disk is not durable yet."""
    core = make_core(state=HardState(Epoch(0), NO_BROKER, ME))
    core.tick(0)
    core.step(VoteReply(1, TWO, ME, Epoch(0), NO_BROKER, ReplyError.NONE, True, False), 1)
    turn(core)
    for source in (TWO, THREE):
        core.step(fetch_request(core, source), 2)
    assert (core.high_watermark, core.flushed_end) == (1, 0)
    snapshot_id = SnapshotId(Offset(1), core.epoch)
    assert core.snapshot_refusal(snapshot_id) is None, "it may be written"
    assert not core.snapshot_taken(snapshot_id, 3), "and not be kept"
    core.flushed(Offset(1), 4)
    assert core.snapshot_taken(snapshot_id, 5) and core.snapshots == [snapshot_id]
    core.log_start_moved(Offset(1), 6)
    assert core.log_start == 1


def test_slice_of_a_snapshot_is_bounded_and_shows_that_the_follower_is_alive() -> None:
    core = leader_alone()
    snapshot_id = SnapshotId(Offset(1), core.epoch)
    assert core.snapshot_taken(snapshot_id, 1)
    request = FetchSnapshotRequest(9, OBSERVER, ME, core.epoch, snapshot_id, 5, 1 << 30)
    core.step(request, 700)
    reply = only_reply(core, FetchSnapshotReply)
    assert (reply.error, reply.position, reply.bytes_max) == (
        ReplyError.NONE,
        5,
        QuorumConfig().fetch_snapshot_bytes_max,
    )
    assert isinstance(core.role, Leader) and core.role.observers[OBSERVER].last_fetch_ms == 700
    for change, error in (
        ({"snapshot_id": SnapshotId(Offset(2), core.epoch)}, ReplyError.SNAPSHOT_NOT_FOUND),
        ({"position": -1}, ReplyError.INVALID_REQUEST),
        ({"bytes_max": 0}, ReplyError.INVALID_REQUEST),
        ({"epoch": Epoch(0)}, ReplyError.FENCED_LEADER_EPOCH),
        ({"target": STRANGER}, ReplyError.NOT_LEADER_OR_FOLLOWER),
        ({"epoch": Epoch(9)}, ReplyError.UNKNOWN_LEADER_EPOCH),
    ):
        core.step(replace(request, **change), 701)
        assert only_reply(core, FetchSnapshotReply).error is error


def downloading_core() -> tuple[QuorumCore, FetchSnapshotRequest]:
    """A follower, and its request for the first slice of snapshot 9-1."""
    core, fetch = follower_of_two()
    return core, told_to_download(core, fetch, 10)


def told_to_download(core: QuorumCore, fetch: FetchRequest, now_ms: int) -> FetchSnapshotRequest:
    reply = FetchReply(fetch.correlation, TWO, ME, Epoch(1), TWO.id, ReplyError.NONE, Offset(9), Offset(0), Offset(0))
    reply.snapshot_id = SnapshotId(Offset(9), Epoch(1))
    core.step(reply, now_ms)
    return only_reply(core, FetchSnapshotRequest)


def slice_reply(request: FetchSnapshotRequest, **changes: Any) -> FetchSnapshotReply:
    fields: dict[str, Any] = {
        "correlation": request.correlation,
        "source": TWO,
        "target": ME,
        "epoch": Epoch(1),
        "leader_id": TWO.id,
        "error": ReplyError.NONE,
        "snapshot_id": request.snapshot_id,
        "size": 8,
        "position": request.position,
        "payload": b"abcd",
    }
    return FetchSnapshotReply(**{**fields, **changes})


def test_snapshot_replaces_the_log_when_the_driver_has_done_it() -> None:
    core, first = downloading_core()
    core.step(slice_reply(first), 20)
    ready = turn(core)
    assert [(part.position, part.data) for part in ready.snapshot_parts] == [(0, b"abcd")]
    assert ready.install is None
    (second,) = ready.send
    assert isinstance(second, FetchSnapshotRequest) and second.position == 4
    core.step(slice_reply(second), 30)
    ready = core.ready()  # type: ignore[assignment]
    assert ready.install is not None and core.end_offset == 0, "not before it is done"
    ready.install.voters = VoterSet([Voter(key, "localhost", 1) for key in (TWO, THREE)], kraft_version=1)
    core.advance(ready)
    assert (core.log_start, core.end_offset, core.high_watermark, core.history.last_epoch) == (9, 9, 9, 1)
    assert core.snapshots == [first.snapshot_id]
    assert not core.is_voter and core.voters.keys == (TWO, THREE)
    fetch = only_reply(core, FetchRequest)
    assert (fetch.fetch_offset, fetch.last_epoch) == (9, 1)


@pytest.mark.parametrize(
    "changes",
    [
        {"error": ReplyError.SNAPSHOT_NOT_FOUND, "payload": b""},
        {"error": ReplyError.POSITION_OUT_OF_RANGE, "payload": b""},
        {"payload": b""},
        {"payload": b"too long for it"},
        {"snapshot_id": SnapshotId(Offset(8), Epoch(1))},
        {"position": 1},
    ],
)
def test_download_that_cannot_go_on_is_dropped(changes: dict[str, Any]) -> None:
    core, request = downloading_core()
    core.step(slice_reply(request, **changes), 20)
    assert core.ready() is None
    core.tick(core.deadline_ms())
    assert only_reply(core, FetchRequest).fetch_offset == 0, "the leader says again what to do"


def test_file_that_changes_its_size_is_another_file() -> None:
    core, first = downloading_core()
    core.step(slice_reply(first), 20)
    second = only_reply(core, FetchSnapshotRequest)
    core.step(slice_reply(second, size=9), 30)
    core.tick(core.deadline_ms())
    assert only_reply(core, FetchRequest).fetch_offset == 0


def test_damaged_snapshot_is_downloaded_again_and_the_log_left_alone() -> None:
    core, request = downloading_core()
    core.step(slice_reply(request, size=4), 20)
    ready = core.ready()
    assert ready is not None and ready.install is not None
    ready.install.is_damaged = True
    core.advance(ready)
    assert (core.end_offset, core.log_start, core.snapshots) == (0, 0, [])
    core.tick(core.deadline_ms())
    assert only_reply(core, FetchRequest).fetch_offset == 0


def test_snapshot_that_is_damaged_each_time_is_asked_for_less_and_less() -> None:
    """The leader's own file may be rotten: what a follower downloads again and again is nothing but load."""
    core, request = downloading_core()
    now_ms, pauses = 20, []
    for is_there in (True, False) * 3:
        if is_there:
            core.step(slice_reply(request, size=4), now_ms)
            ready = core.ready()
            assert ready is not None and ready.install is not None
            ready.install.is_damaged = True
            core.advance(ready)
        else:
            core.step(slice_reply(request, error=ReplyError.SNAPSHOT_NOT_FOUND), now_ms)
        pauses.append(core.deadline_ms() - now_ms)
        now_ms = core.deadline_ms()
        core.tick(now_ms)
        request = told_to_download(core, only_reply(core, FetchRequest), now_ms)
    assert pauses == [20, 80, 80, 320, 320, 320]
    core.step(slice_reply(request, size=4), now_ms)
    turn(core)
    assert (core.end_offset, core.backoff_ms()) == (9, 20)


def test_snapshot_is_not_installed_by_who_follows_no_more() -> None:
    core, request = downloading_core()
    core.step(slice_reply(request, size=4), 20)
    core.step(vote_request(epoch=2), 21)
    ready = turn(core)
    assert ready.install is None and ready.snapshot_parts == []
    assert core.end_offset == 0


def test_download_does_not_go_on_with_another_leader() -> None:
    """Its file of the same name may differ in its bytes."""
    core, first = downloading_core()
    core.step(slice_reply(first), 20)
    turn(core)
    core.step(BeginQuorumEpochRequest(7, THREE, ME, Epoch(2)), 30)
    assert only_reply(core, FetchRequest).target == THREE


def test_removed_leader_goes_without_raising_the_epoch() -> None:
    """No leader serves an observer that is ahead of it."""
    both = VoterSet([Voter(key, "localhost", 1) for key in (ME, TWO)], kraft_version=1)
    core = make_core(voters=both, state=HardState(Epoch(0), NO_BROKER, ME))
    core.tick(0)
    core.step(VoteReply(1, TWO, ME, Epoch(0), NO_BROKER, ReplyError.NONE, True, False), 1)
    for now_ms in (2, 3):
        core.flushed(core.end_offset, now_ms)
        core.step(fetch_request(core, TWO), now_ms)
        turn(core)
        if now_ms == 2:
            assert core.change_voters(VoterChange(VoterChangeKind.REMOVE, Voter(ME, "", 0), 5), now_ms) is None
            turn(core)
    assert isinstance(core.role, Resigned)
    core.tick(core.role.election_deadline_ms)
    assert isinstance(core.role, Unattached) and core.epoch == 0


def test_leader_outside_the_own_voter_set_is_followed_at_the_address_it_gives() -> None:
    core = make_core()
    newcomer = Voter(OBSERVER, "far", 7)
    core.step(BeginQuorumEpochRequest(7, OBSERVER, ME, Epoch(4), newcomer), 1)
    ready = turn(core)
    assert isinstance(core.role, Follower) and core.endpoint_of(OBSERVER) == newcomer
    assert [m.target for m in ready.send if isinstance(m, FetchRequest)] == [OBSERVER]


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


def test_leader_that_gives_only_damaged_records_is_given_up() -> None:
    """Its disk returns other bytes than it was given: nothing commits any more, and only another leader can mend that."""
    core, fetch = follower_of_two(end=3)
    now_ms = 0
    while isinstance(core.role, Follower):
        assert now_ms <= QuorumConfig().fetch_timeout_ms, "followed for ever"
        core.step(
            FetchReply(fetch.correlation, TWO, ME, Epoch(1), TWO.id, ReplyError.NONE, Offset(0), Offset(3), Offset(4)),
            now_ms,
        )
        now_ms = core.deadline_ms()
        core.tick(now_ms)
        fetch = next((each for each in turn(core).send if isinstance(each, FetchRequest)), fetch)
    assert isinstance(core.role, Prospective)


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


def test_nothing_committed_is_cut_off_and_nothing_more_is_taken_from_who_demands_it() -> None:
    core, fetch = follower_of_two(end=3)
    core.step(
        FetchReply(fetch.correlation, TWO, ME, Epoch(1), TWO.id, ReplyError.NONE, Offset(3), Offset(3), Offset(3)), 10
    )
    assert core.high_watermark == 3
    again = only_reply(core, FetchRequest)
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
    assert (core.ready(), core.end_offset, core.refused_cut) == (None, 3, EpochStart(Epoch(1), Offset(2)))
    core.tick(11 + QuorumConfig().fetch_timeout_ms // 2)
    later = only_reply(core, FetchRequest)
    more = FetchReply(
        later.correlation, TWO, ME, Epoch(1), TWO.id, ReplyError.NONE, Offset(5), Offset(3), Offset(5), None
    )
    more.epochs = (EpochStart(Epoch(1), Offset(3)),)
    core.step(more, 2000)
    assert (core.end_offset, core.high_watermark) == (3, 3), (
        "its log has grown past ours, and is another one all the same"
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
