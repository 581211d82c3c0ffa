"""What becomes of one partition: elections and the ISR."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_quorum.controller.partition_change import Election, build_change
from barnabas_quorum.image.topics import PartitionRegistration
from barnabas_quorum.records import LeaderRecoveryState, PartitionChangeRecord
from barnabas_wire.kafka.ids import BrokerId
from tests.metadata_quorum.controller_fixture import uuid


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(number) for number in numbers)


def partition(*, isr: tuple[int, ...] = (1, 2, 3), leader: int = 1, **more: Any) -> PartitionRegistration:
    return PartitionRegistration(
        replicas=ids(1, 2, 3), directories=(uuid(1),) * 3, isr=ids(*isr), leader=BrokerId(leader), **more
    )


def build(before: PartitionRegistration, alive: tuple[int, ...], **more: Any) -> PartitionChangeRecord | None:
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


def test_the_last_isr_member_stays_in_the_isr_when_it_dies() -> None:
    changed = after(partition(isr=(1,)), (2, 3), target_isr=())
    assert (changed.leader, changed.isr) == (-1, ids(1))


def test_the_last_isr_member_leads_again_when_it_is_back() -> None:
    changed = after(partition(isr=(1,), leader=-1), (1, 2, 3))
    assert (changed.leader, changed.isr, changed.leader_recovery_state) == (1, ids(1), LeaderRecoveryState.RECOVERED)


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


members = st.lists(st.sampled_from([1, 2, 3]), unique=True, max_size=3).map(tuple)


@given(members.filter(bool), st.sampled_from([-1, 1, 2, 3]), members, members, st.booleans(), st.sampled_from(Election))
@settings(max_examples=500, deadline=None)
def test_leader_in_isr_isr_in_replicas_never_empty(
    isr: tuple[int, ...],
    leader: int,
    target: tuple[int, ...],
    alive: tuple[int, ...],
    unclean: bool,
    election: Election,
) -> None:
    before = partition(isr=isr, leader=leader if leader in isr else -1)
    target = tuple(member for member in target if member in isr)
    change = build(before, alive, target_isr=ids(*target), allows_unclean=unclean, election=election)
    now = before if change is None else before.merge(change)
    assert now.isr and set(now.isr) <= set(now.replicas)
    assert now.leader == -1 or (now.leader in now.isr and now.leader in alive)
    if not unclean:
        assert set(now.isr) <= set(isr)
    if set(now.isr) & set(alive):
        assert now.leader != -1
