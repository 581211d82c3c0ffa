"""The rules of elections, one by one."""

from __future__ import annotations

import pytest

from barnabas_quorum.raft.election import (
    Start,
    election_delay_ms,
    first_delay_ms,
    handover_delay_ms,
    is_up_to_date,
    is_well_formed,
    lost_leader_delay_ms,
    may_grant,
    start_after_restart,
)
from barnabas_quorum.raft.messages import HardState, VoteRequest
from barnabas_quorum.raft.roles import (
    LEGAL_CHANGES,
    NEVER_MS,
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    Tally,
    Unattached,
)
from barnabas_quorum.raft.voters import ReplicaKey, Voter, VoterSet
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId, Epoch, Offset, Uuid

KEYS = [ReplicaKey(BrokerId(i), Uuid(bytes([i]) * 16)) for i in range(1, 4)]
ME, OTHER, THIRD = KEYS
VOTERS = VoterSet([Voter(key, "localhost", 1) for key in KEYS])


def request(*, epoch: int = 5, last_epoch: int = 4, end_offset: int = 10, is_pre_vote: bool = False) -> VoteRequest:
    return VoteRequest(1, OTHER, ME, Epoch(epoch), Epoch(last_epoch), Offset(end_offset), is_pre_vote)


def grant(
    role: Role, ask: VoteRequest, *, voted: ReplicaKey | None = None, leader_id: BrokerId = NO_BROKER, my_end: int = 10
) -> bool:
    return may_grant(ask, role=role, voted=voted, leader_id=leader_id, last_epoch=Epoch(4), end_offset=Offset(my_end))


@pytest.mark.parametrize(
    ("theirs", "mine", "expected"),
    [
        ((4, 10), (4, 10), True),
        ((4, 11), (4, 10), True),
        ((4, 9), (4, 10), False),
        ((5, 1), (4, 10), True),
        ((3, 99), (4, 1), False),
        ((0, 0), (0, 0), True),
    ],
)
def test_later_last_epoch_wins_then_length(theirs: tuple[int, int], mine: tuple[int, int], expected: bool) -> None:
    assert (
        is_up_to_date(
            last_epoch=Epoch(theirs[0]),
            end_offset=Offset(theirs[1]),
            my_last_epoch=Epoch(mine[0]),
            my_end_offset=Offset(mine[1]),
        )
        is expected
    )


def test_candidate_cannot_have_records_of_the_epoch_it_runs_for() -> None:
    assert is_well_formed(request(epoch=5, last_epoch=4))
    assert not is_well_formed(request(epoch=5, last_epoch=5))
    assert is_well_formed(request(epoch=5, last_epoch=5, is_pre_vote=True))
    assert not is_well_formed(request(epoch=5, last_epoch=6, is_pre_vote=True))
    assert not is_well_formed(request(end_offset=-1))
    assert not is_well_formed(request(last_epoch=-1))


def roles_without_vote() -> list[Role]:
    tally = Tally({ME}, set(), {})
    return [
        Leader(Offset(0), NEVER_MS, {}),
        Follower(THIRD, 0),
        Candidate(0, tally),
        Resigned(0, (), {}),
    ]


@pytest.mark.parametrize("role", roles_without_vote(), ids=lambda role: type(role).__name__)
def test_standard_vote_is_never_given_by(role: Role) -> None:
    assert not grant(role, request(end_offset=99))


@pytest.mark.parametrize(
    "role", [Unattached(0), Prospective(0, Tally({ME}, set(), {}))], ids=lambda r: type(r).__name__
)
def test_standard_vote_is_given_once(role: Role) -> None:
    assert grant(role, request())
    assert not grant(role, request(), my_end=11), "log not up to date"
    assert grant(role, request(), voted=OTHER), "the same candidate may ask again"
    assert not grant(role, request(), voted=OTHER, my_end=11), "but not with less than it had then"
    assert not grant(role, request(), voted=THIRD), "one vote per epoch"
    assert not grant(role, request(), leader_id=THIRD.id), "the epoch has its leader"


def test_pre_vote_is_refused_while_the_leader_is_seen() -> None:
    ask = request(is_pre_vote=True)
    assert grant(Follower(THIRD, 0), ask), "has not fetched from it yet"
    assert not grant(Follower(THIRD, 0, has_fetched=True), ask)
    assert grant(Follower(THIRD, 0, has_fetched=True, is_leader_lost=True), ask)
    assert not grant(Leader(Offset(0), NEVER_MS, {}), ask)
    for role in (Unattached(0), Candidate(0, Tally({ME}, set(), {})), Resigned(0, (), {})):
        assert grant(role, ask)
        assert not grant(role, ask, my_end=11)


def test_pre_vote_does_not_depend_on_the_vote() -> None:
    assert grant(Unattached(0), request(is_pre_vote=True), voted=THIRD, leader_id=THIRD.id)


@pytest.mark.parametrize(
    ("state", "last_epoch", "expected"),
    [
        (HardState(Epoch(0), NO_BROKER, None), 0, Start.UNATTACHED),
        (HardState(Epoch(3), NO_BROKER, None), 4, Start.UNATTACHED),
        (HardState(Epoch(3), ME.id, ME), 3, Start.RESIGNED),
        (HardState(Epoch(3), ME.id, None), 2, Start.RESIGNED),
        (HardState(Epoch(3), NO_BROKER, ME), 2, Start.CANDIDATE),
        (HardState(Epoch(3), OTHER.id, ME), 2, Start.FOLLOWER),
        (HardState(Epoch(3), OTHER.id, OTHER), 3, Start.FOLLOWER),
        (HardState(Epoch(3), NO_BROKER, OTHER), 2, Start.UNATTACHED),
        (HardState(Epoch(3), BrokerId(77), None), 2, Start.UNATTACHED),
    ],
)
def test_start_after_restart(state: HardState, last_epoch: int, expected: Start) -> None:
    assert start_after_restart(state, last_epoch=Epoch(last_epoch), me=ME, voters=VOTERS, may_campaign=True) is expected


def test_removed_leader_does_not_resign_again() -> None:
    """It raises no epoch any more; and it follows nobody in the epoch that it led itself."""
    others = VoterSet([Voter(key, "localhost", 1) for key in (OTHER, THIRD)])
    state = HardState(Epoch(3), ME.id, ME)
    start = start_after_restart(state, last_epoch=Epoch(3), me=ME, voters=others, may_campaign=False)
    assert start is Start.UNATTACHED


def test_wiped_disk_is_another_replica_and_does_not_run() -> None:
    wiped = ReplicaKey(ME.id, Uuid(bytes(16)))
    assert wiped not in VOTERS
    state = HardState(Epoch(3), NO_BROKER, wiped)
    start = start_after_restart(state, last_epoch=Epoch(0), me=wiped, voters=VOTERS, may_campaign=False)
    assert start is Start.UNATTACHED


def test_waits() -> None:
    assert election_delay_ms(election_timeout_ms=1000, draw=0.0) == 1000
    assert election_delay_ms(election_timeout_ms=1000, draw=0.999) == 1999
    assert lost_leader_delay_ms(election_timeout_ms=1000, draw=0.0) == 250
    assert lost_leader_delay_ms(election_timeout_ms=1000, draw=0.999) < 1000


def test_voters_of_a_new_quorum_run_one_after_the_other_within_half_a_time_out() -> None:
    spans = [
        [first_delay_ms(VOTERS, key, election_timeout_ms=1000, draw=draw) for draw in (0.999, 0.0)] for key in KEYS
    ]
    assert spans[0] == [0, 0]
    assert spans[0][1] < spans[1][0] < spans[1][1] < spans[2][0] < spans[2][1] < 500
    alone = VoterSet([Voter(ME, "localhost", 1)])
    assert first_delay_ms(alone, ME, election_timeout_ms=1000, draw=0.5) == 0
    assert [handover_delay_ms(tuple(KEYS), key, delay_ms_max=1000) for key in KEYS] == [0, 250, 500]
    assert handover_delay_ms((OTHER,), ME, delay_ms_max=1000) == 1000


def test_only_a_prospective_becomes_candidate_and_only_a_candidate_leader() -> None:
    assert {old for old, new in LEGAL_CHANGES.items() if Candidate in new} == {Prospective}
    assert {old for old, new in LEGAL_CHANGES.items() if Leader in new} == {Candidate}
    assert {old for old, new in LEGAL_CHANGES.items() if Resigned in new} == {Leader}
