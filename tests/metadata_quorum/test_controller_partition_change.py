"""What becomes of one partition: elections and the ISR."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_quorum.controller.partition_change import ElectedFrom, Election, Replicas, build_change, elected_from
from barnabas_quorum.controller.reassignment import original_replicas, reassigned_replicas
from barnabas_quorum.image.partition import PartitionRegistration
from barnabas_quorum.records import LeaderRecoveryState, PartitionChangeRecord
from barnabas_wire.kafka.ids import BrokerId
from tests.support.decided_cluster import uuid


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(number) for number in numbers)


def partition(*, isr: tuple[int, ...] = (1, 2, 3), leader: int = 1, **more: Any) -> PartitionRegistration:
    return PartitionRegistration(
        replicas=ids(1, 2, 3), directories=(uuid(1),) * 3, isr=ids(*isr), leader=BrokerId(leader), **more
    )


def build(before: PartitionRegistration, alive: tuple[int, ...], **more: Any) -> PartitionChangeRecord | None:
    more = {"min_insync_replicas": 1, **more}
    return build_change(before, topic_id=uuid(9), partition_id=0, is_acceptable=lambda b: b in alive, **more)


def after(before: PartitionRegistration, alive: tuple[int, ...], **more: Any) -> PartitionRegistration:
    change = build(before, alive, **more)
    assert change is not None
    return before.merge(change)


def test_nothing_to_change_makes_no_record() -> None:
    assert build(partition(), (1, 2, 3)) is None
    assert build(partition(isr=(1,)), (), target_isr=ids(1)) is not None  # its leader is gone: that is a change
    assert build(partition(isr=(1,), leader=-1), ()) is None


def test_an_acceptable_leader_in_the_isr_keeps_leading_and_its_epoch_stays() -> None:
    changed = after(partition(leader=2), (1, 2, 3), target_isr=ids(2, 3))
    assert (changed.leader, changed.leader_epoch, changed.partition_epoch, changed.isr) == (2, 0, 1, ids(2, 3))


def test_the_next_leader_is_the_first_in_sync_replica_in_replica_order() -> None:
    changed = after(partition(isr=(3, 1, 2)), (2, 3), target_isr=ids(3, 2))
    assert (changed.leader, changed.leader_epoch) == (2, 1)


def test_a_replica_out_of_sync_never_leads_in_a_clean_election() -> None:
    changed = after(partition(isr=(1,)), (2, 3))
    assert (changed.leader, changed.isr, changed.leader_epoch) == (-1, ids(1), 1)


def test_the_last_isr_member_stays_eligible_when_it_dies_and_leads_again_when_it_is_back() -> None:
    gone = after(partition(isr=(1,)), (2, 3), target_isr=())
    assert (gone.leader, gone.isr, gone.elr, gone.last_known_elr) == (-1, (), ids(1), ids(1))
    back = after(gone, (1, 2, 3))
    assert (back.leader, back.isr, back.elr, back.last_known_elr) == (1, ids(1), (), ())
    assert back.leader_recovery_state is LeaderRecoveryState.RECOVERED


def kind(before: PartitionRegistration, alive: tuple[int, ...], **more: Any) -> ElectedFrom | None:
    change = build(before, alive, **more)
    assert change is not None
    return elected_from(before, change)


def test_the_kind_of_an_election_depends_on_the_old_leader_and_the_origin_of_the_new_one() -> None:
    assert kind(partition(leader=2), (1, 2, 3), election=Election.PREFERRED) is ElectedFrom.PREFERRED
    assert kind(partition(leader=2), (1, 3), target_isr=ids(1, 3)) is ElectedFrom.ISR, (
        "2 is gone; 1 happens to be first"
    )
    assert kind(partition(isr=(1,), leader=-1), (1,)) is ElectedFrom.ISR
    assert kind(after(partition(isr=(1,)), (), target_isr=()), (1,)) is ElectedFrom.ISR, "it was eligible"
    assert kind(partition(isr=(1,)), (2, 3), allows_unclean=True) is ElectedFrom.UNCLEAN
    assert kind(partition(isr=(1,)), ()) is None, "nobody was elected"
    assert kind(partition(leader=2), (1, 2, 3), target_isr=ids(2, 3)) is None


def test_an_unclean_election_happens_only_when_allowed_and_needed() -> None:
    changed = after(partition(isr=(1,)), (2, 3), allows_unclean=True)
    assert (changed.leader, changed.isr) == (2, ids(2))
    assert changed.leader_recovery_state is LeaderRecoveryState.RECOVERING
    clean = after(partition(isr=(1, 3)), (2, 3), target_isr=ids(3), allows_unclean=True)
    assert (clean.leader, clean.isr, clean.leader_recovery_state) == (3, ids(3), LeaderRecoveryState.RECOVERED)


def test_the_preferred_leader_takes_over_only_when_asked_and_in_sync() -> None:
    assert build(partition(leader=2), (1, 2, 3)) is None
    assert after(partition(leader=2), (1, 2, 3), election=Election.PREFERRED).leader == 1
    assert build(partition(isr=(2, 3), leader=2), (1, 2, 3), election=Election.PREFERRED) is None
    assert build(partition(leader=2), (2, 3), election=Election.PREFERRED) is None


def test_a_leader_that_recovered_says_so() -> None:
    before = partition(isr=(1,), leader_recovery_state=LeaderRecoveryState.RECOVERING)
    changed = after(before, (1, 2), target_isr=ids(1, 2), leader_recovery_state=LeaderRecoveryState.RECOVERED)
    assert (changed.isr, changed.leader_recovery_state) == (ids(1, 2), LeaderRecoveryState.RECOVERED)
    assert changed.leader_epoch == 0


# --- ELR ----------------------------------------------------------------------------------------------------------------


def test_who_leaves_an_isr_that_falls_below_its_minimum_stays_eligible() -> None:
    one = after(partition(), (1, 2), target_isr=ids(1, 2), min_insync_replicas=2)
    assert (one.isr, one.elr) == (ids(1, 2), ()), "at the minimum the high watermark moves on: 3 falls behind it"
    two = after(one, (1,), target_isr=ids(1), min_insync_replicas=2)
    assert (two.isr, two.elr, two.leader) == (ids(1), ids(2), 1)
    none = after(two, (3,), target_isr=(), min_insync_replicas=2)
    assert (none.isr, none.elr, none.leader, none.last_known_elr) == ((), ids(1, 2), -1, ids(1))
    assert build(none, (3,), min_insync_replicas=2) is None, "3 lacks committed records"
    led = after(none, (2, 3), min_insync_replicas=2)
    assert (led.isr, led.elr, led.leader, led.last_known_elr) == (ids(2), ids(1), 2, ())
    assert led.leader_recovery_state is LeaderRecoveryState.RECOVERED, "nothing is lost by it"
    whole = after(led, (1, 2, 3), target_isr=ids(2, 3), min_insync_replicas=2)
    assert (whole.isr, whole.elr) == (ids(2, 3), ()), "the high watermark moves again without 1"


def test_a_minimum_above_the_replicas_asks_for_all_of_them() -> None:
    changed = after(partition(), (1, 2), target_isr=ids(1, 2), min_insync_replicas=5)
    assert (changed.isr, changed.elr) == (ids(1, 2), ids(3))


def test_a_replica_that_lost_records_is_not_eligible() -> None:
    below = partition(isr=(1,), elr=ids(2, 3))
    assert after(below, (1,), lost=ids(2), min_insync_replicas=2).elr == ids(3)
    gone = after(below, (), target_isr=(), lost=ids(1), min_insync_replicas=2)
    assert (gone.isr, gone.elr, gone.last_known_elr) == ((), ids(2, 3), ids(1))


def test_the_last_known_leader_leads_when_nobody_is_eligible_and_says_that_it_recovers() -> None:
    gone = after(partition(isr=(1,)), (), target_isr=(), lost=ids(1))
    assert (gone.isr, gone.elr, gone.last_known_elr) == ((), (), ids(1))
    assert build(gone, (2, 3)) is None
    back = after(gone, (1, 2, 3))
    assert (back.isr, back.leader, back.leader_recovery_state) == (ids(1), 1, LeaderRecoveryState.RECOVERING)


def test_whose_records_are_gone_leads_only_by_choice_even_if_it_led_last() -> None:
    sole = partition(isr=(1,))
    wiped = after(sole, (), target_isr=(), gone=ids(1), min_insync_replicas=2)
    assert (wiped.leader, wiped.isr, wiped.elr, wiped.last_known_elr) == (-1, (), (), ())
    assert build(wiped, (1, 2, 3), min_insync_replicas=2) is None, "nobody is known to hold what was committed"
    chosen = after(wiped, (2, 3), min_insync_replicas=2, allows_unclean=True)
    assert (chosen.leader, chosen.leader_recovery_state) == (2, LeaderRecoveryState.RECOVERING)
    later = after(partition(isr=(), leader=-1, elr=ids(1, 2), last_known_elr=ids(1)), (), gone=ids(1))
    assert (later.elr, later.last_known_elr) == (ids(2), ()), "and if it was out before"
    unasked = after(partition(isr=(1, 2)), (1, 2), gone=ids(1), min_insync_replicas=2)
    assert (unasked.leader, unasked.isr, unasked.elr) == (2, ids(2), ()), "nobody need ask for its leave"


# --- reassignment -------------------------------------------------------------------------------------------------------


def test_a_reassignment_is_done_when_all_who_stay_are_in_sync() -> None:
    moving = after(partition(), (1, 2, 3, 4), target_replicas=Replicas(ids(2, 3, 4, 1), ids(4), ids(1)))
    assert (moving.replicas, moving.leader, moving.isr) == (ids(2, 3, 4, 1), 1, ids(1, 2, 3))
    assert (moving.leader_epoch, moving.partition_epoch) == (0, 1)
    half = after(moving, (1, 2, 3, 4), target_isr=ids(1, 2, 4))
    assert half.adding_replicas == ids(4), "3 fell out meanwhile: not yet"
    done = after(half, (1, 2, 3, 4), target_isr=ids(1, 2, 4, 3))
    assert (done.replicas, done.isr, done.leader) == (ids(2, 3, 4), ids(2, 4, 3), 2)
    assert (done.adding_replicas, done.removing_replicas, done.leader_epoch) == ((), (), 1)
    assert len(done.directories) == 3


def test_a_reassignment_is_done_by_an_election_that_makes_all_who_stay_in_sync() -> None:
    before = partition(isr=(), leader=-1, elr=ids(3), removing_replicas=ids(2, 3), adding_replicas=ids(1))
    waiting = after(before, (2, 3))
    assert (waiting.leader, waiting.isr, waiting.removing_replicas) == (3, ids(3), ids(2, 3))
    done = after(before, (1, 2), allows_unclean=True, min_insync_replicas=2)
    assert (done.leader, done.replicas, done.isr, done.leader_epoch) == (1, ids(1), ids(1), 1)
    assert (done.adding_replicas, done.removing_replicas, done.elr, done.last_known_elr) == ((), (), (), ())
    assert done.leader_recovery_state is LeaderRecoveryState.RECOVERING


def test_dropped_replicas_mean_a_new_leader_epoch_also_under_the_same_leader() -> None:
    changed = after(partition(leader=2), (1, 2, 3), target_replicas=Replicas(ids(2, 3, 1), (), ids(1)))
    assert (changed.replicas, changed.leader, changed.leader_epoch) == (ids(2, 3), 2, 1)


# --- what always holds --------------------------------------------------------------------------------------------------

BROKERS = (1, 2, 3, 4, 5)


def subsets(of: tuple[int, ...], *, least: int = 0) -> st.SearchStrategy[tuple[int, ...]]:
    return st.permutations(of).flatmap(lambda order: st.integers(least, len(of)).map(lambda n: tuple(order[:n])))


@st.composite
def steps(draw: st.DrawFn) -> dict[str, Any]:
    """What somebody may ask of a partition, as indices and choices that fit any partition."""
    return {
        "kind": draw(st.sampled_from(["isr", "isr", "leave", "alive", "reassign", "cancel", "preferred", "unclean"])),
        "alive": draw(subsets(BROKERS)),
        "order": draw(st.permutations(BROKERS)),
        "count": draw(st.integers(0, 4)),
        "min_isr": draw(st.sampled_from([1, 2, 2, 3])),
        "lost": draw(st.booleans()),
    }


def take(now: PartitionRegistration, step: dict[str, Any]) -> PartitionChangeRecord | None:
    order = ids(*step["order"])
    more: dict[str, Any] = {"min_insync_replicas": step["min_isr"]}
    alive = step["alive"]
    if step["kind"] == "isr":
        if now.leader == -1:
            return None
        alive = (*alive, now.leader)
        members = tuple(b for b in order if b in now.replicas)[: step["count"]]
        more["target_isr"] = tuple(dict.fromkeys((*members, now.leader)))
    elif step["kind"] == "leave":
        more["target_isr"] = tuple(member for member in now.isr if member != order[0])
        more["lost"] = order[:1] if step["lost"] else ()
        alive = tuple(b for b in alive if b != order[0])
    elif step["kind"] in ("reassign", "cancel"):
        if step["kind"] == "reassign":
            wanted = reassigned_replicas(now, order[: max(1, step["count"])])
        else:
            wanted = Replicas(original_replicas(now))
        more["target_isr"] = tuple(member for member in now.isr if member in wanted.all)
        more["target_replicas"] = wanted
        if now.isr and not more["target_isr"]:
            return None
    elif step["kind"] == "preferred":
        more["election"] = Election.PREFERRED
    else:
        more["allows_unclean"] = step["kind"] == "unclean"
    return build(now, alive, **more)


@given(st.lists(steps(), max_size=25))
@settings(max_examples=300, deadline=None)
def test_whatever_is_asked_a_partition_keeps_its_laws(asked: list[dict[str, Any]]) -> None:
    now = partition()
    for step in asked:
        change = take(now, step)
        if change is None:
            continue
        before, now = now, now.merge(change)
        assert now != before, "a record that says nothing is none"
        check_partition_laws(now)
        assert now.partition_epoch == before.partition_epoch + 1
        assert now.leader_epoch - before.leader_epoch in (0, 1)
        is_new_leader = now.leader != before.leader
        has_dropped = not set(before.replicas) <= set(now.replicas)
        assert (now.leader_epoch > before.leader_epoch) == (is_new_leader or has_dropped)
        was_known = {*before.isr, *before.elr}
        if is_new_leader and now.leader != -1 and now.leader_recovery_state is LeaderRecoveryState.RECOVERED:
            asked_for = step["kind"] == "isr"
            assert asked_for or now.leader in was_known, "a clean leader holds every committed record"
        joined = set(now.elr) - was_known
        assert not joined, "nobody becomes eligible who was not in sync"
        if now.elr:
            assert len(now.isr) < min(step["min_isr"], len(now.replicas)), "an ELR only below the minimum"


def check_partition_laws(now: PartitionRegistration) -> None:
    """What is true of every partition in every image."""
    replicas = set(now.replicas)
    assert len(replicas) == len(now.replicas) == len(now.directories) > 0
    for members in (now.isr, now.elr, now.last_known_elr, now.adding_replicas, now.removing_replicas):
        assert len(set(members)) == len(members) and set(members) <= replicas, now
    assert not set(now.isr) & set(now.elr), "ISR and ELR are disjoint"
    assert not set(now.adding_replicas) & set(now.removing_replicas)
    assert now.leader == -1 or now.leader in now.isr, "C4"
    if now.leader_recovery_state is LeaderRecoveryState.RECOVERING:
        assert now.leader == -1 or now.isr
