"""Laws of the classic group protocol, one step at a time."""

from __future__ import annotations

import copy
from collections import Counter

import pytest

from barnabas_coordination.errors import CoordinatorNotAvailable, MemberIdRequired
from barnabas_coordination.group import admission, joining
from barnabas_coordination.group.joining import NEW_MEMBER_JOIN_TIMEOUT_MS
from barnabas_coordination.group.messages import LeaveOutcome
from barnabas_coordination.group.records import GroupMetadataRecord
from barnabas_coordination.group.states import GroupState, RebalanceReason
from barnabas_wire.kafka.errors import ErrorCode
from tests.broker.coordinator.group_driver import (
    DELAY_MS,
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    TOPIC,
    GroupDriver,
    classic,
    subscription,
)


def state(driver: GroupDriver) -> GroupState:
    return classic(driver.shard)[GROUP].state


def generation(driver: GroupDriver) -> int:
    return classic(driver.shard)[GROUP].generation


# ---- join ------------------------------------------------------------------------------------------------------------


def rebalances(driver: GroupDriver) -> Counter[RebalanceReason]:
    return classic(driver.shard)[GROUP].stats.rebalances


def test_a_new_member_is_reported_its_id_first_and_joins_with_it() -> None:
    driver = GroupDriver()
    first = driver.join()
    required = driver.answers[first]
    assert isinstance(required, MemberIdRequired)
    second = driver.join(required.member_id)
    driver.advance(DELAY_MS)
    joined = driver.joined(second)
    assert (joined.generation, joined.member_id, joined.leader_id) == (1, required.member_id, required.member_id)


def test_before_version_4_a_member_joins_at_once() -> None:
    driver = GroupDriver()
    ticket = driver.join(version=3)
    driver.advance(DELAY_MS)
    assert driver.joined(ticket).generation == 1


def test_an_unknown_member_id_founds_no_group() -> None:
    driver = GroupDriver()
    assert driver.code(driver.join("never-seen")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert GROUP not in driver.shard.groups


def test_the_first_rebalance_waits_for_others_even_when_all_known_members_are_there() -> None:
    driver = GroupDriver()
    ticket = driver.join(version=3)
    driver.advance(DELAY_MS - 1)
    assert driver.is_open(ticket)
    driver.advance(1)
    assert driver.joined(ticket).generation == 1


def test_the_initial_delay_is_extended_by_newcomers_up_to_the_rebalance_timeout() -> None:
    driver = GroupDriver()
    tickets = [driver.join(version=3, rebalance_ms=7_000)]
    for _ in range(2):
        driver.advance(2_999)
        tickets.append(driver.join(version=3, rebalance_ms=7_000))
        driver.advance(1)
        assert all(driver.is_open(ticket) for ticket in tickets)
    driver.advance(1_000)  # 7 s in all: no further extension
    assert {driver.joined(ticket).generation for ticket in tickets} == {1}


def test_without_initial_delay_a_lone_member_is_in_at_once() -> None:
    driver = GroupDriver(group_initial_rebalance_delay_ms=0)
    assert driver.joined(driver.join(version=3)).generation == 1


def test_all_joins_are_answered_together_and_only_the_leader_sees_the_members() -> None:
    driver = GroupDriver()
    tickets = [driver.join(version=3) for _ in range(3)]
    driver.advance(DELAY_MS)
    driver.advance(DELAY_MS)
    outcomes = [driver.joined(ticket) for ticket in tickets]
    leader_id = outcomes[0].leader_id
    assert {o.generation for o in outcomes} == {1}
    for outcome in outcomes:
        reported = {member.member_id for member in outcome.members}
        assert reported == ({o.member_id for o in outcomes} if outcome.member_id == leader_id else set())
        assert all(member.metadata == subscription(TOPIC) for member in outcome.members)


def test_the_protocol_is_the_one_most_members_prefer_among_those_all_share() -> None:
    driver = GroupDriver()
    a, b, c, d = (subscription(TOPIC, tail=letter) for letter in (b"a", b"b", b"c", b"d"))
    tickets = [
        driver.join(version=3, protocols=(("sticky", a), ("range", a), ("robin", a))),
        driver.join(version=3, protocols=(("range", b), ("robin", b))),
        driver.join(version=3, protocols=(("robin", c), ("range", c))),
        driver.join(version=3, protocols=(("robin", d), ("range", d), ("sticky", d))),
    ]
    driver.advance(DELAY_MS)
    driver.advance(DELAY_MS)
    # sticky is not shared; the first member's vote goes to range: 2 to 2, decided by the first member's preference.
    outcomes = [driver.joined(ticket) for ticket in tickets]
    assert {outcome.protocol_name for outcome in outcomes} == {"range"}
    assert [m.metadata for o in outcomes for m in o.members] == [a, b, c, d]


@pytest.mark.parametrize(
    ("protocols", "protocol_type"),
    [((("other", b""),), "consumer"), ((("range", b""),), "connect"), ((), "consumer")],
)
def test_a_member_that_shares_no_protocol_is_refused(
    protocols: tuple[tuple[str, bytes], ...], protocol_type: str
) -> None:
    driver = GroupDriver()
    driver.stable_group(1)
    ticket = driver.join(version=3, protocols=protocols, protocol_type=protocol_type)
    assert driver.code(ticket) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert state(driver) is GroupState.STABLE


def test_a_newcomer_makes_a_stable_group_rebalance_and_the_old_member_joins_again() -> None:
    driver = GroupDriver()
    (old,) = driver.stable_group(1)
    new = driver.join(version=3)
    assert driver.code(driver.heartbeat(old, 1)) is ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.is_open(new)
    again = driver.join(old)
    assert driver.joined(new).generation == driver.joined(again).generation == 2
    assert rebalances(driver) == {RebalanceReason.JOIN: 2}


def test_a_member_that_does_not_come_back_within_the_rebalance_timeout_is_out() -> None:
    driver = GroupDriver()
    old, other = driver.stable_group(2, session_ms=2 * REBALANCE_MS)
    new = driver.join(version=3)
    driver.join(old)
    driver.advance(REBALANCE_MS)
    assert driver.joined(new).generation == 2
    assert driver.code(driver.heartbeat(other, 1)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_when_the_leader_does_not_come_back_another_joined_member_leads() -> None:
    driver = GroupDriver()
    leader, other = driver.stable_group(2)
    again = driver.join(other, protocols=(("range", subscription("more")),))
    driver.advance(SESSION_MS)
    outcome = driver.joined(again)
    assert (outcome.leader_id, len(outcome.members)) == (other, 1)
    assert leader not in classic(driver.shard)[GROUP].members


def test_a_follower_that_asks_again_is_reported_the_current_generation_without_a_rebalance() -> None:
    driver = GroupDriver()
    _, follower = driver.stable_group(2)
    assert driver.joined(driver.join(follower)).generation == 1
    assert state(driver) is GroupState.STABLE


def test_a_leader_that_joins_again_makes_the_group_rebalance() -> None:
    driver = GroupDriver()
    leader, _ = driver.stable_group(2)
    ticket = driver.join(leader)
    assert driver.is_open(ticket)
    assert state(driver) is GroupState.PREPARING_REBALANCE


def test_a_join_whose_answer_was_lost_is_answered_again_before_the_sync() -> None:
    driver = GroupDriver()
    ticket = driver.join(version=3)
    driver.advance(DELAY_MS)
    first = driver.joined(ticket)
    assert driver.joined(driver.join(first.member_id)) == first


def test_a_second_join_of_a_parked_member_answers_the_first() -> None:
    driver = GroupDriver()
    leader, follower = driver.stable_group(2)
    first = driver.join(leader)
    second = driver.join(leader)
    assert driver.code(first) is ErrorCode.REBALANCE_IN_PROGRESS
    driver.join(follower)
    assert driver.joined(second).generation == 2


def test_a_comer_that_was_reported_its_id_is_waited_for_until_its_session_ends() -> None:
    driver = GroupDriver()
    (old,) = driver.stable_group(1)
    comer = driver.answers[driver.join()].member_id
    again = driver.join(old)
    assert driver.is_open(again)
    driver.advance(SESSION_MS)
    assert driver.joined(again).generation == 2
    assert driver.code(driver.join(comer)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_of_which_only_an_id_was_given_out_vanishes() -> None:
    driver = GroupDriver()
    driver.join()
    assert GROUP in driver.shard.groups
    driver.advance(SESSION_MS)
    assert GROUP not in driver.shard.groups
    assert driver.log == []


def test_a_full_group_refuses_newcomers_and_keeps_its_members() -> None:
    driver = GroupDriver(group_max_size=2)
    leader, follower = driver.stable_group(2)
    assert driver.code(driver.join(version=3)) is ErrorCode.GROUP_MAX_SIZE_REACHED
    again = driver.join(leader)
    driver.join(follower)
    assert driver.joined(again).generation == 2


# ---- sync ------------------------------------------------------------------------------------------------------------


def test_syncs_wait_for_the_leaders_and_an_omitted_member_is_assigned_nothing() -> None:
    driver = GroupDriver()
    tickets = [driver.join(version=3) for _ in range(2)]
    driver.advance(DELAY_MS)
    driver.advance(DELAY_MS)
    leader, follower = (driver.joined(ticket) for ticket in tickets)
    waiting = driver.sync(follower.member_id, 1)
    assert driver.is_open(waiting)
    done = driver.sync(leader.member_id, 1, {leader.member_id: b"all", "stranger": b"x"})
    assert (driver.assigned(done), driver.assigned(waiting)) == (b"all", b"")
    assert state(driver) is GroupState.STABLE


def test_no_assignment_leaves_before_its_record_is_committed() -> None:
    driver = GroupDriver()
    ticket = driver.join(version=3)
    driver.advance(DELAY_MS)
    member = driver.joined(ticket).member_id
    driver.holds_commits = True
    first = driver.sync(member, 1, {member: b"a"})
    second = driver.sync(member, 1)
    assert driver.is_open(first) and driver.is_open(second)
    driver.commit()
    assert driver.assigned(first) == driver.assigned(second) == b"a"


def test_a_stable_group_answers_a_repeated_sync_with_the_same_assignment() -> None:
    driver = GroupDriver()
    _, follower = driver.stable_group(2)
    assert driver.assigned(driver.sync(follower, 1)) == b"1"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "robin"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "consumer", "protocol_name": "range"}, ErrorCode.NONE),
    ],
)
def test_a_sync_that_names_another_protocol_is_refused(arguments: dict[str, str], code: ErrorCode) -> None:
    driver = GroupDriver()
    leader, _ = driver.stable_group(2)
    assert driver.code(driver.sync(leader, 1, **arguments)) is code  # type: ignore[arg-type]


def test_a_sync_of_another_generation_or_member_is_refused() -> None:
    driver = GroupDriver()
    leader, _ = driver.stable_group(2)
    assert driver.code(driver.sync(leader, 0)) is ErrorCode.ILLEGAL_GENERATION
    assert driver.code(driver.sync("stranger", 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.code(driver.sync("stranger", 1, group="other")) is ErrorCode.UNKNOWN_MEMBER_ID
    driver.join(version=3)
    assert driver.code(driver.sync(leader, 1)) is ErrorCode.REBALANCE_IN_PROGRESS


def test_parked_syncs_are_sent_back_when_a_member_joins_meanwhile() -> None:
    driver = GroupDriver()
    tickets = [driver.join(version=3) for _ in range(2)]
    driver.advance(DELAY_MS)
    driver.advance(DELAY_MS)
    follower = driver.joined(tickets[1]).member_id
    waiting = driver.sync(follower, 1)
    driver.join(version=3)
    assert driver.code(waiting) is ErrorCode.REBALANCE_IN_PROGRESS
    assert state(driver) is GroupState.PREPARING_REBALANCE


def test_an_assignment_that_cannot_be_written_goes_to_nobody_and_the_group_starts_over() -> None:
    driver = GroupDriver()
    tickets = [driver.join(version=3) for _ in range(2)]
    driver.advance(DELAY_MS)
    driver.advance(DELAY_MS)
    leader, follower = (driver.joined(ticket).member_id for ticket in tickets)
    waiting = driver.sync(follower, 1)
    driver.refuses = CoordinatorNotAvailable()
    done = driver.sync(leader, 1, {leader: b"a", follower: b"b"})
    assert driver.code(done) is driver.code(waiting) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.refuses = None
    assert state(driver) is GroupState.PREPARING_REBALANCE
    assert rebalances(driver) == {RebalanceReason.JOIN: 1, RebalanceReason.WRITE_FAILED: 1}
    again = driver.join(leader), driver.join(follower)
    assert {driver.joined(ticket).generation for ticket in again} == {2}


def test_members_that_never_sync_are_out_after_the_rebalance_timeout() -> None:
    driver = GroupDriver()
    tickets = [driver.join(version=3, session_ms=2 * REBALANCE_MS) for _ in range(2)]
    driver.advance(DELAY_MS)
    driver.advance(DELAY_MS)
    leader, follower = (driver.joined(ticket).member_id for ticket in tickets)
    waiting = driver.sync(follower, 1)
    driver.advance(REBALANCE_MS)
    assert driver.code(waiting) is ErrorCode.REBALANCE_IN_PROGRESS
    assert set(classic(driver.shard)[GROUP].members) == {follower}
    assert driver.code(driver.heartbeat(leader, 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rebalances(driver) == {RebalanceReason.JOIN: 1, RebalanceReason.SYNC_TIMEOUT: 1}


# ---- heartbeats and sessions -----------------------------------------------------------------------------------------


def test_heartbeats_keep_a_member_and_silence_removes_it() -> None:
    driver = GroupDriver()
    leader, follower = driver.stable_group(2)
    for _ in range(5):
        driver.advance(SESSION_MS - 1)
        assert driver.code(driver.heartbeat(leader, 1)) is ErrorCode.NONE
        assert driver.code(driver.heartbeat(follower, 1)) is ErrorCode.NONE
    driver.advance(SESSION_MS - 1)
    driver.heartbeat(leader, 1)
    driver.advance(1)
    assert driver.code(driver.heartbeat(leader, 1)) is ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.code(driver.heartbeat(follower, 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rebalances(driver) == {RebalanceReason.JOIN: 1, RebalanceReason.SESSION_TIMEOUT: 1}


def test_a_heartbeat_of_another_generation_or_member_is_refused() -> None:
    driver = GroupDriver()
    leader, _ = driver.stable_group(2)
    assert driver.code(driver.heartbeat(leader, 0)) is ErrorCode.ILLEGAL_GENERATION
    assert driver.code(driver.heartbeat(leader, 2)) is ErrorCode.ILLEGAL_GENERATION
    assert driver.code(driver.heartbeat("stranger", 1)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_waits_in_a_join_or_sync_does_not_time_out() -> None:
    driver = GroupDriver()
    leader, follower = driver.stable_group(2)
    waiting = driver.join(leader)
    for _ in range(5):
        driver.advance(SESSION_MS // 2)
        driver.heartbeat(follower, 1)
    assert driver.is_open(waiting)
    driver.join(follower)
    parked = driver.sync(follower, 2)
    for _ in range(5):
        driver.advance(SESSION_MS // 2)
        assert driver.code(driver.heartbeat(leader, 2)) is ErrorCode.NONE
    assert driver.is_open(parked)


def test_a_new_member_whose_join_stays_unanswered_is_released_in_the_end() -> None:
    driver = GroupDriver()
    leader, follower = driver.stable_group(2, rebalance_ms=10 * NEW_MEMBER_JOIN_TIMEOUT_MS)
    new = driver.join(version=3)
    for _ in range(NEW_MEMBER_JOIN_TIMEOUT_MS // SESSION_MS + 1):
        driver.advance(SESSION_MS - 1)
        driver.heartbeat(leader, 1)
        driver.heartbeat(follower, 1)
    driver.advance(SESSION_MS // 2)
    assert driver.code(new) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_new_member_whose_connection_dies_leaves_at_once() -> None:
    driver = GroupDriver()
    (old,) = driver.stable_group(1)
    driver.abandon(driver.join(version=3))
    assert driver.joined(driver.join(old)).generation == 2


def test_an_old_member_whose_connection_dies_has_a_session_to_come_back() -> None:
    driver = GroupDriver()
    leader, follower = driver.stable_group(2)
    driver.abandon(driver.join(leader))
    waiting = driver.join(follower)
    driver.advance(SESSION_MS - 1)
    assert driver.is_open(waiting)
    driver.advance(1)
    assert driver.joined(waiting).leader_id == follower


def test_an_abandoned_sync_can_be_asked_again() -> None:
    driver = GroupDriver()
    tickets = [driver.join(version=3) for _ in range(2)]
    driver.advance(DELAY_MS)
    driver.advance(DELAY_MS)
    leader, follower = (driver.joined(ticket).member_id for ticket in tickets)
    driver.abandon(driver.sync(follower, 1))
    driver.sync(leader, 1, {follower: b"f"})
    assert driver.assigned(driver.sync(follower, 1)) == b"f"


def test_a_member_that_abandoned_its_sync_and_never_asks_again_is_out() -> None:
    driver = GroupDriver()
    tickets = [driver.join(version=3) for _ in range(2)]
    driver.advance(DELAY_MS)
    driver.advance(DELAY_MS)
    leader, follower = (driver.joined(ticket).member_id for ticket in tickets)
    driver.abandon(driver.sync(follower, 1))
    driver.sync(leader, 1, {})
    for _ in range(REBALANCE_MS // SESSION_MS * 2):
        driver.advance(SESSION_MS // 2)
        driver.heartbeat(follower, 1)
        driver.heartbeat(leader, 1)
    assert set(classic(driver.shard)[GROUP].members) == {leader}


# ---- leave -----------------------------------------------------------------------------------------------------------


def test_the_last_member_leaves_a_record_of_an_empty_generation() -> None:
    driver = GroupDriver()
    (member,) = driver.stable_group(1)
    left = driver.leave((member, None))
    assert driver.outcome(left) == (LeaveOutcome(member, None, ErrorCode.NONE),)
    assert (state(driver), generation(driver)) == (GroupState.EMPTY, 2)
    record = driver.log[-1]
    assert isinstance(record, GroupMetadataRecord) and record.value is not None
    assert (record.value.generation, record.value.members, record.value.protocol) == (2, (), None)


def test_a_group_whose_emptiness_cannot_be_written_is_empty_all_the_same() -> None:
    driver = GroupDriver()
    (member,) = driver.stable_group(1)
    driver.refuses = CoordinatorNotAvailable()
    left = driver.leave((member, None))
    assert driver.outcome(left) == (LeaveOutcome(member, None, ErrorCode.NONE),)
    assert (state(driver), generation(driver)) == (GroupState.EMPTY, 2)


def test_every_leaving_member_is_answered_in_order() -> None:
    driver = GroupDriver()
    ids = driver.stable_group(3, instances=("a", "b", None))
    static = classic(driver.shard)[GROUP].static_members
    plain = next(member_id for member_id in ids if member_id not in static.values())
    left = driver.leave(("stranger", None), ("", "a"), ("", "nobody"), ("wrong", "b"), (plain, None), (plain, None))
    assert [outcome.error for outcome in driver.outcome(left)] == [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert [outcome[:2] for outcome in driver.outcome(left)][1] == ("", "a")
    assert len(classic(driver.shard)[GROUP].members) == 1
    assert state(driver) is GroupState.PREPARING_REBALANCE
    assert rebalances(driver) == {RebalanceReason.JOIN: 1, RebalanceReason.LEAVE: 1}


def test_a_parked_member_that_is_removed_is_answered() -> None:
    driver = GroupDriver()
    leader, _ = driver.stable_group(2)
    waiting = driver.join(leader)
    driver.leave((leader, None))
    assert driver.code(waiting) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_comer_may_leave_before_it_joined() -> None:
    driver = GroupDriver()
    (old,) = driver.stable_group(1)
    comer = driver.answers[driver.join()].member_id
    waiting = driver.join(old)
    driver.leave((comer, None))
    assert driver.joined(waiting).generation == 2


def test_leaving_an_unknown_group_is_answered_for_every_member() -> None:
    driver = GroupDriver()
    left = driver.leave(("a", None), ("b", "i"))
    assert [outcome.error for outcome in driver.outcome(left)] == [ErrorCode.UNKNOWN_MEMBER_ID] * 2


# ---- static members --------------------------------------------------------------------------------------------------


def test_a_static_member_comes_back_to_its_assignment_without_a_rebalance() -> None:
    driver = GroupDriver()
    ids = driver.stable_group(2, instances=("a", "b"))
    old = classic(driver.shard)[GROUP].static_members["b"]
    back = driver.joined(driver.join(instance="b"))
    assert (back.generation, state(driver)) == (1, GroupState.STABLE)
    assert back.member_id not in ids
    assert driver.assigned(driver.sync(back.member_id, 1, instance="b")) == str(ids.index(old)).encode()
    assert driver.code(driver.heartbeat(old, 1, instance="b")) is ErrorCode.FENCED_INSTANCE_ID
    assert driver.code(driver.heartbeat(old, 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    reloaded = driver.reload().groups[GROUP]
    assert reloaded.static_members["b"] == back.member_id


@pytest.mark.parametrize("version", [8, 9])
def test_a_static_leader_that_comes_back_is_not_asked_to_assign_anew(version: int) -> None:
    driver = GroupDriver()
    old, _ = driver.stable_group(2, instances=("a", "b"))
    instance = next(name for name, member in classic(driver.shard)[GROUP].static_members.items() if member == old)
    back = driver.joined(driver.join(instance=instance, version=version))
    if version == 9:
        assert (back.skip_assignment, back.leader_id, len(back.members)) == (True, back.member_id, 2)
    else:  # it must not take itself for the leader: it would assign, and its sync would be ignored
        assert (back.skip_assignment, back.leader_id, len(back.members)) == (False, old, 0)


def test_a_static_member_that_subscribes_to_other_topics_makes_the_group_rebalance() -> None:
    driver = GroupDriver()
    driver.stable_group(2, instances=("a", "b"))
    ticket = driver.join(instance="b", protocols=(("range", subscription("weather")),))
    assert driver.is_open(ticket)
    assert state(driver) is GroupState.PREPARING_REBALANCE


def test_a_static_member_whose_return_cannot_be_written_stays_who_it_was() -> None:
    driver = GroupDriver()
    driver.stable_group(2, instances=("a", "b"))
    group = classic(driver.shard)[GROUP]
    before = group.static_members["b"]
    driver.refuses = CoordinatorNotAvailable()
    assert driver.code(driver.join(instance="b")) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert group.static_members["b"] == before
    assert driver.code(driver.heartbeat(before, 1, instance="b")) is ErrorCode.NONE


def test_the_older_of_two_parked_static_members_is_fenced() -> None:
    driver = GroupDriver()
    first = driver.join(instance="a")
    second = driver.join(instance="a")
    assert driver.code(first) is ErrorCode.FENCED_INSTANCE_ID
    driver.advance(DELAY_MS)
    driver.advance(DELAY_MS)
    assert len(driver.joined(second).members) == 1


def test_a_static_member_is_not_dropped_for_missing_a_rebalance_but_for_its_session() -> None:
    driver = GroupDriver()
    driver.stable_group(2, instances=("a", None), session_ms=2 * REBALANCE_MS)
    group = classic(driver.shard)[GROUP]
    plain = next(member_id for member_id in group.members if member_id != group.static_members["a"])
    waiting = driver.join(plain, protocols=(("range", subscription("weather")),))
    driver.advance(REBALANCE_MS)
    assert len(driver.joined(waiting).members) == 2
    driver.advance(2 * REBALANCE_MS)
    assert "a" not in group.static_members


# ---- refused writes --------------------------------------------------------------------------------------------------


def everything(driver: GroupDriver) -> dict[str, object]:
    """All that the group knows, copied."""
    return copy.deepcopy({name: known for name, known in vars(classic(driver.shard)[GROUP]).items() if name != "stats"})


def test_a_refused_return_leaves_group_log_and_timers_as_they_were() -> None:
    driver = GroupDriver()
    ids = driver.stable_group(2, instances=("a", "b"))
    before, timers, logged = everything(driver), dict(driver.timers), list(driver.log)
    driver.advance(SESSION_MS // 2)
    driver.refuses = CoordinatorNotAvailable()
    offers = (("range", subscription(TOPIC)), ("sticky", b"more"))
    ticket = driver.join(instance="b", protocols=offers, session_ms=2 * SESSION_MS)
    assert driver.code(ticket) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (everything(driver), driver.timers, driver.log) == (before, timers, logged)
    driver.refuses = None
    back = driver.joined(driver.join(instance="b", protocols=offers, session_ms=2 * SESSION_MS))
    member = classic(driver.shard)[GROUP].members[back.member_id]
    assert (member.protocols, member.session_timeout_ms) == (offers, 2 * SESSION_MS)
    assert back.member_id not in ids


def test_a_refused_assignment_leaves_the_last_one_and_parks_nobody() -> None:
    driver = GroupDriver()
    leader, follower = driver.stable_group(2)
    tickets = driver.join(leader), driver.join(follower)
    assert {driver.joined(ticket).generation for ticket in tickets} == {2}
    group = classic(driver.shard)[GROUP]
    recorded, logged = driver.recorded(), list(driver.log)
    waiting = driver.sync(follower, 2)
    driver.refuses = CoordinatorNotAvailable()
    done = driver.sync(leader, 2, {leader: b"new", follower: b"new"})
    assert driver.code(done) is driver.code(waiting) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (driver.recorded()[GROUP][1:], driver.log) == (recorded[GROUP][1:], logged)
    assert [member.assignment for member in group.members.values()] == [b"0", b"1"]
    assert (state(driver), group.pending_sync, driver.open) == (GroupState.PREPARING_REBALANCE, set(), set())
    assert all(member.awaiting_sync is None for member in group.members.values())
    driver.refuses = None
    driver.advance(REBALANCE_MS)  # nobody comes back: the sessions of those that waited go on
    assert state(driver) is GroupState.EMPTY


def test_a_refused_emptying_leaves_the_log_as_it_was_and_the_group_knows_its_record() -> None:
    driver = GroupDriver()
    (member,) = driver.stable_group(1)
    logged = list(driver.log)
    driver.refuses = CoordinatorNotAvailable()
    driver.leave((member, None))
    assert (driver.log, classic(driver.shard)[GROUP].has_record) == (logged, True)
    assert list(driver.reload().groups[GROUP].members) == [member]

    fresh = GroupDriver(group_initial_rebalance_delay_ms=0)
    joined = fresh.joined(fresh.join(version=3))
    fresh.refuses = CoordinatorNotAvailable()
    fresh.leave((joined.member_id, None))
    assert (state(fresh), classic(fresh.shard)[GROUP].has_record, fresh.log) == (GroupState.EMPTY, False, [])


def test_a_renamed_member_that_never_syncs_is_out_after_the_rebalance_timeout() -> None:
    driver = GroupDriver()
    tickets = [driver.join(instance=name, session_ms=2 * REBALANCE_MS) for name in ("a", "b")]
    driver.advance(DELAY_MS)
    driver.advance(DELAY_MS)
    leader, _ = (driver.joined(ticket).member_id for ticket in tickets)
    driver.sync(leader, 1, {}, instance="a")
    back = driver.joined(driver.join(instance="b", session_ms=2 * REBALANCE_MS)).member_id
    assert classic(driver.shard)[GROUP].pending_sync == {back}
    driver.advance(REBALANCE_MS)
    assert set(classic(driver.shard)[GROUP].members) == {leader}


# ---- commits ---------------------------------------------------------------------------------------------------------


def test_a_commit_without_generation_is_for_empty_groups_only() -> None:
    driver = GroupDriver()
    assert driver.outcome(driver.commit_offset(5)) == (ErrorCode.NONE,)
    (member,) = driver.stable_group(1)
    assert driver.code(driver.commit_offset(6)) is ErrorCode.UNKNOWN_MEMBER_ID
    driver.leave((member, None))
    assert driver.outcome(driver.commit_offset(7)) == (ErrorCode.NONE,)


def test_a_commit_counts_only_from_a_member_of_the_current_generation() -> None:
    driver = GroupDriver()
    (member,) = driver.stable_group(1)
    assert driver.code(driver.commit_offset(1, member_id=member, generation=0)) is ErrorCode.ILLEGAL_GENERATION
    assert driver.code(driver.commit_offset(1, member_id="x", generation=1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.code(driver.commit_offset(1, group="other", generation=1)) is ErrorCode.ILLEGAL_GENERATION
    assert driver.outcome(driver.commit_offset(1, member_id=member, generation=1)) == (ErrorCode.NONE,)


def test_a_commit_is_taken_while_members_gather_and_refused_before_they_are_assigned() -> None:
    driver = GroupDriver()
    (member,) = driver.stable_group(1)
    driver.join(version=3)
    assert driver.outcome(driver.commit_offset(1, member_id=member, generation=1)) == (ErrorCode.NONE,)
    driver.join(member)
    assert state(driver) is GroupState.COMPLETING_REBALANCE
    assert driver.code(driver.commit_offset(2, member_id=member, generation=2)) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_commit_is_a_sign_of_life() -> None:
    driver = GroupDriver()
    (member,) = driver.stable_group(1)
    for _ in range(4):
        driver.advance(SESSION_MS - 1)
        assert driver.outcome(driver.commit_offset(1, member_id=member, generation=1)) == (ErrorCode.NONE,)


# ---- failover --------------------------------------------------------------------------------------------------------


def test_a_stable_group_survives_the_loss_of_its_coordinator_unnoticed() -> None:
    driver = GroupDriver()
    leader, follower = driver.stable_group(2)
    driver.fail_over()
    for member in (leader, follower):
        assert driver.code(driver.heartbeat(member, 1)) is ErrorCode.NONE
    assert driver.assigned(driver.sync(follower, 1)) == b"1"
    driver.advance(SESSION_MS)
    assert (state(driver), generation(driver)) == (GroupState.EMPTY, 2)


def test_a_rebalance_does_not_survive_and_starts_over_from_the_last_assignment() -> None:
    driver = GroupDriver()
    leader, follower = driver.stable_group(2)
    waiting = driver.join(leader)
    driver.fail_over()
    assert driver.code(waiting) is ErrorCode.NOT_COORDINATOR
    assert (state(driver), generation(driver)) == (GroupState.STABLE, 1)
    again = driver.join(leader)
    driver.join(follower)
    assert driver.joined(again).generation == 2


# ---- what a stranger can leave behind --------------------------------------------------------------------------------


def pending(driver: GroupDriver) -> list[str]:
    return list(classic(driver.shard)[GROUP].pending_members)


@pytest.mark.attack("A5", "member ids that were only asked for are counted")
def test_ids_that_were_asked_for_count_as_members() -> None:
    driver = GroupDriver(group_max_size=3)
    asked = [driver.join() for _ in range(4)]
    assert [driver.code(each) for each in asked] == [ErrorCode.MEMBER_ID_REQUIRED] * 3 + [
        ErrorCode.GROUP_MAX_SIZE_REACHED
    ]
    tickets = [driver.join(driver.answers[each].member_id) for each in asked[:3]]
    assert driver.code(driver.join()) is ErrorCode.GROUP_MAX_SIZE_REACHED
    driver.advance(DELAY_MS)
    driver.advance(DELAY_MS)
    assert driver.code(driver.join()) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert len({driver.joined(ticket).generation for ticket in tickets}) == 1


def test_so_many_ids_wait_for_their_owners_and_the_oldest_goes() -> None:
    driver = GroupDriver()
    for _ in range(joining.PENDING_MAX + 5):
        driver.join(session_ms=1_800_000)
    assert len(pending(driver)) == len(driver.timers) == joining.PENDING_MAX
    first = driver.answers["ticket-1"].member_id
    assert driver.code(driver.join(first)) is ErrorCode.UNKNOWN_MEMBER_ID, "it asks for another"
    last = driver.join(pending(driver)[-1])
    driver.advance(DELAY_MS)
    driver.advance(REBALANCE_MS)
    assert driver.joined(last).generation == 1


def test_an_id_ends_with_the_connection_that_asked_for_it() -> None:
    driver = GroupDriver()
    asked = driver.answers[driver.join()].member_id
    driver.perform(driver.shard.forget_pending(GROUP, asked, now_ms=driver.now_ms))
    assert GROUP not in driver.shard.groups and not driver.timers
    (member,) = driver.stable_group(1)
    asked = driver.answers[driver.join()].member_id
    again = driver.join(member, protocols=(("range", subscription(TOPIC, "t")),))
    assert driver.is_open(again), "the generation waits for it"
    driver.perform(driver.shard.forget_pending(GROUP, asked, now_ms=driver.now_ms))
    assert driver.joined(again).generation == 2
    driver.perform(driver.shard.forget_pending(GROUP, member, now_ms=driver.now_ms))
    assert len(classic(driver.shard)[GROUP].members) == 1, "who has joined stays"


@pytest.mark.attack("A5", "what members say of themselves takes bounded memory")
def test_what_members_say_of_themselves_takes_so_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MEMBERS_BYTES_MAX", 10_000)
    driver = GroupDriver()
    large = (("range", bytes(3_000)),)
    tickets = [driver.join(instance=f"i{number}", protocols=large) for number in range(5)]
    assert [driver.code(ticket) for ticket in tickets[3:]] == [ErrorCode.GROUP_MAX_SIZE_REACHED] * 2
    driver.advance(DELAY_MS)
    driver.advance(DELAY_MS)
    first = driver.joined(tickets[0])
    again = driver.join(first.member_id, instance="i0", protocols=large)
    assert driver.is_open(again) or driver.code(again) is ErrorCode.NONE, "who is a member stays one"
    larger = (("range", bytes(4_500)),)
    assert (
        driver.code(driver.join(first.member_id, instance="i0", protocols=larger)) is ErrorCode.GROUP_MAX_SIZE_REACHED
    )
