"""Which change of the voter set may begin, what it makes of the set, and who asks for itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_quorum.raft import membership
from barnabas_quorum.raft.messages import ReplyError, VoterChange, VoterChangeKind
from barnabas_quorum.raft.roles import ReplicaProgress
from barnabas_quorum.raft.voters import REMOVED_MAX, ReplicaKey, Voter, VoterHistory, VoterSet
from barnabas_wire.kafka.ids import BrokerId, Offset, Uuid


def key(number: int, *, disk: int = 0) -> ReplicaKey:
    return ReplicaKey(BrokerId(number), Uuid(bytes([number, disk]) * 8))


def voter(number: int, *, disk: int = 0) -> Voter:
    return Voter(key(number, disk=disk), f"host-{number}", 9093)


def voters(*numbers: int, removed: tuple[ReplicaKey, ...] = (), kraft_version: int = 1) -> VoterSet:
    return VoterSet([voter(number) for number in numbers], kraft_version=kraft_version, removed=removed)


def refused(
    kind: VoterChangeKind,
    who: Voter,
    present: VoterSet,
    *,
    joiner: ReplicaKey | None = None,
    lagging: tuple[ReplicaKey | None, ...] = (),
) -> ReplyError:
    caught_up = {*present.keys, who.key, joiner or who.key} - set(lagging)
    refusal = membership.refusal(VoterChange(kind, who, 1, joiner), voters=present, caught_up=caught_up)
    assert refusal is None or refusal.reason, "a refusal names the rule"
    return ReplyError.NONE if refusal is None else refusal.error


ADD, REMOVE, UPDATE, UPGRADE = VoterChangeKind


@pytest.mark.parametrize(
    ("kind", "who", "expected"),
    [
        (ADD, voter(4), ReplyError.NONE),
        (ADD, voter(3), ReplyError.DUPLICATE_VOTER),
        (ADD, voter(3, disk=1), ReplyError.DUPLICATE_VOTER),
        (REMOVE, voter(3), ReplyError.NONE),
        (REMOVE, voter(4), ReplyError.VOTER_NOT_FOUND),
        (REMOVE, voter(3, disk=1), ReplyError.VOTER_NOT_FOUND),
        (UPDATE, voter(3)._replace(port=1), ReplyError.NONE),
        (UPDATE, voter(4), ReplyError.VOTER_NOT_FOUND),
        (UPDATE, voter(3, disk=1), ReplyError.VOTER_NOT_FOUND),
    ],
)
def test_what_an_operator_may_ask(kind: VoterChangeKind, who: Voter, expected: ReplyError) -> None:
    assert refused(kind, who, voters(1, 2, 3)) is expected
    if kind is not UPGRADE:
        assert refused(kind, who, voters(1, 2, 3, kraft_version=0)) is ReplyError.UNSUPPORTED_VERSION


def test_last_voter_stays() -> None:
    assert refused(REMOVE, voter(1), voters(1)) is ReplyError.INVALID_REQUEST
    assert refused(REMOVE, voter(1), voters(1, 2)) is ReplyError.NONE


def test_no_voter_is_removed_when_too_few_of_the_others_have_the_log() -> None:
    """The leader would commit nothing more, and were it lost, nobody could be elected."""
    assert refused(REMOVE, voter(2), voters(1, 2, 3), lagging=(key(3),)) is ReplyError.REQUEST_TIMED_OUT
    assert refused(REMOVE, voter(3), voters(1, 2, 3), lagging=(key(3),)) is ReplyError.NONE, "the one that is down"
    assert refused(REMOVE, voter(2), voters(1, 2, 3, 4), lagging=(key(3),)) is ReplyError.NONE
    assert refused(REMOVE, voter(2), voters(1, 2), lagging=(key(2),)) is ReplyError.NONE


def test_only_who_has_caught_up_is_added() -> None:
    assert refused(ADD, voter(4), voters(1), lagging=(key(4),)) is ReplyError.REQUEST_TIMED_OUT
    progress = ReplicaProgress(Offset(5), 900, 800, Offset(5))
    assert membership.is_caught_up(progress, now_ms=1000, silence_ms_max=200)
    assert not membership.is_caught_up(progress, now_ms=1001, silence_ms_max=200)
    assert not membership.is_caught_up(ReplicaProgress(Offset(5), 900, -1, Offset(5)), now_ms=0, silence_ms_max=200)


def test_kraft_version_rises_only_when_asked() -> None:
    static = voters(1, 2, kraft_version=0)
    upgrade = VoterChange(UPGRADE, voter(1), 1)
    assert refused(UPGRADE, voter(1), static) is ReplyError.NONE
    assert membership.changed(static, upgrade) == voters(1, 2)
    assert membership.changed(voters(1, 2), upgrade) == voters(1, 2), "and never twice"


@pytest.mark.parametrize(
    ("has_pending", "high_watermark", "expected"),
    [(False, 12, None), (True, 12, "another change"), (False, 11, "another change"), (False, 10, "leader is new")],
)
def test_one_change_at_a_time_and_only_after_a_commit(
    has_pending: bool, high_watermark: int, expected: str | None
) -> None:
    refusal = membership.may_begin(
        has_pending=has_pending,
        high_watermark=Offset(high_watermark),
        epoch_start=Offset(10),
        last_voters_offset=Offset(11),
    )
    assert (refusal is None) if expected is None else (refusal is not None and expected in refusal.reason)


def test_joiner_asks_for_itself_alone() -> None:
    mine, present = key(3, disk=1), voters(1, 2, 3)
    assert refused(REMOVE, voter(3), present, joiner=mine) is ReplyError.NONE
    assert refused(REMOVE, voter(2), present, joiner=mine) is ReplyError.INVALID_REQUEST
    assert refused(REMOVE, voter(3), present, joiner=key(3)) is ReplyError.INVALID_REQUEST, "a voter needs no joining"
    assert refused(REMOVE, voter(3), present, joiner=mine, lagging=(mine,)) is ReplyError.REQUEST_TIMED_OUT
    assert refused(ADD, voter(4), voters(1, 2), joiner=mine) is ReplyError.INVALID_REQUEST
    assert refused(ADD, voter(3, disk=1), voters(1, 2), joiner=mine) is ReplyError.NONE


def test_removed_replica_comes_back_only_by_an_operator() -> None:
    present = voters(1, 2, 3).without_voter(key(3))
    assert present.removed == (key(3),)
    assert membership.auto_join(voter(3), voters=present, is_caught_up=True) is None
    assert refused(ADD, voter(3), present, joiner=key(3)) is ReplyError.INVALID_REQUEST
    assert refused(ADD, voter(3), present) is ReplyError.NONE
    assert present.with_voter(voter(3)).removed == ()
    old_disk = present.with_voter(voter(3, disk=1))
    assert membership.auto_join(voter(3), voters=old_disk, is_caught_up=True) is None, "nor instead of its successor"


def test_observer_controller_joins_in_two_steps() -> None:
    me = voter(3, disk=1)
    first = membership.auto_join(me, voters=voters(1, 2, 3), is_caught_up=True)
    assert first == VoterChange(REMOVE, voter(3), 0, me.key)
    second = membership.auto_join(me, voters=membership.changed(voters(1, 2, 3), first), is_caught_up=True)
    assert second == VoterChange(ADD, me, 0, me.key)
    joined = membership.changed(voters(1, 2), second)
    assert membership.auto_join(me, voters=joined, is_caught_up=True) is None
    assert membership.auto_join(me, voters=voters(1, 2), is_caught_up=False) is None
    assert membership.auto_join(me, voters=voters(1, 2, kraft_version=0), is_caught_up=True) is None


def test_voter_corrects_its_address() -> None:
    moved = voter(2)._replace(port=1)
    assert membership.own_update(moved, voters=voters(1, 2)) == VoterChange(UPDATE, moved, 0)
    assert membership.own_update(voter(2), voters=voters(1, 2)) is None
    assert membership.own_update(moved, voters=voters(1, 2, kraft_version=0)) is None
    assert membership.own_update(voter(2, disk=1)._replace(port=1), voters=voters(1, 2)) is None


def test_removed_voter_runs_until_its_removal_is_committed() -> None:
    sets = [(Offset(3), voters(1, 2)), (Offset(7), voters(2))]
    assert membership.may_campaign(key(1), sets, high_watermark=Offset(7))
    assert not membership.may_campaign(key(1), sets, high_watermark=Offset(8))
    assert membership.may_campaign(key(2), sets, high_watermark=Offset(8))
    assert not membership.may_campaign(key(3), sets, high_watermark=Offset(0))


def test_memory_of_removals_is_bounded() -> None:
    present = voters(1, removed=tuple(key(2, disk=disk % 256) for disk in range(REMOVED_MAX)))
    longer = present.with_voter(voter(9)).without_voter(key(9))
    assert len(longer.removed) == REMOVED_MAX and longer.removed[-1] == key(9)


changes = st.lists(st.tuples(st.sampled_from([ADD, REMOVE]), st.integers(min_value=1, max_value=6)), max_size=12)


@given(changes)
def test_any_majorities_of_consecutive_sets_meet(wishes: list[tuple[VoterChangeKind, int]]) -> None:
    present = voters(1, 2, 3)
    for kind, number in wishes:
        if refused(kind, voter(number), present) is not ReplyError.NONE:
            continue
        after = membership.changed(present, VoterChange(kind, voter(number), 1))
        everyone = set(present.keys) | set(after.keys)
        assert present.majority + after.majority > len(everyone)
        present = after


@given(st.lists(st.integers(min_value=1, max_value=5), max_size=8), st.integers(min_value=0, max_value=30), st.data())
def test_cut_history_is_that_of_the_shorter_log(numbers: list[int], cut: int, data: st.DataObject) -> None:
    entries = [(Offset(3 * index), voters(number)) for index, number in enumerate(numbers)]
    history = VoterHistory(voters(6), entries)
    history.truncate_to(Offset(cut))
    assert history.entries() == VoterHistory(voters(6), [entry for entry in entries if entry[0] < cut]).entries()
    start = data.draw(st.integers(min_value=0, max_value=cut))
    before = [history.before(Offset(offset)) for offset in range(start, 30)]
    history.forget_before(Offset(start))
    assert [history.before(Offset(offset)) for offset in range(start, 30)] == before
    assert sum(offset < start for offset, _ in history.entries()) <= 1
