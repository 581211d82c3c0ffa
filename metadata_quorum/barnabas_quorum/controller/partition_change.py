"""The heart of the controller: what becomes of one partition when its ISR shall change or a leader is wanted.

May touch:  its arguments.            Must not touch: the image as a whole, sessions, everything that waits.
Invariants: leader ∈ ISR or there is none; ISR ⊆ replicas and never empty: the last member stays even when fenced, since
            it alone is known to hold every committed record; only an unclean election, asked for by config, breaks that.
Read next:  partitions.py, which asks for changes; image/topics.py (merge), which replays them.

Order of steps as in KIP-966's builder, without reassignment and ELR: target ISR, election, leader, ISR, recovery state.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from barnabas_quorum.image.topics import PartitionRegistration
from barnabas_quorum.records import LeaderRecoveryState, PartitionChangeRecord
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId, Uuid


class Election(Enum):
    """Whom to prefer when more than one replica may lead."""

    ONLINE = "online"
    """Keep the present leader while it may lead."""
    PREFERRED = "preferred"
    """The first replica, if it may lead; else as ONLINE."""


def build_change(
    partition: PartitionRegistration,
    *,
    topic_id: Uuid,
    partition_id: int,
    is_acceptable: Callable[[BrokerId], bool],
    target_isr: tuple[BrokerId, ...] | None = None,
    election: Election = Election.ONLINE,
    allows_unclean: bool = False,
    leader_recovery_state: LeaderRecoveryState | None = None,
) -> PartitionChangeRecord | None:
    """The change that gives the partition its target ISR and the leader it then should have; None when nothing changes.

    Args:
        is_acceptable: whether a broker may lead: registered, unfenced, not shutting down (kraft 2.6).
        target_isr: the wanted ISR, None = as it is; empty = the present one stays (no ELR to fall back on).
        allows_unclean: the topic's unclean.leader.election.enable.
        leader_recovery_state: what the leader reports of itself, None = as it is.
    """
    isr = target_isr if target_isr else partition.isr
    recovery = partition.leader_recovery_state if leader_recovery_state is None else leader_recovery_state
    leader = _elect(partition, isr, is_acceptable, election)
    if leader == NO_BROKER and allows_unclean:
        leader = next((replica for replica in partition.replicas if is_acceptable(replica)), NO_BROKER)
        if leader != NO_BROKER:
            isr, recovery = (leader,), LeaderRecoveryState.RECOVERING

    change = PartitionChangeRecord(
        topic_id=topic_id,
        partition_id=partition_id,
        leader=leader if leader != partition.leader else None,
        isr=isr if isr != partition.isr else None,
        leader_recovery_state=recovery if recovery != partition.leader_recovery_state else None,
    )
    is_unchanged = change.leader is None and change.isr is None and change.leader_recovery_state is None
    return None if is_unchanged else change


def _elect(
    partition: PartitionRegistration,
    isr: tuple[BrokerId, ...],
    is_acceptable: Callable[[BrokerId], bool],
    election: Election,
) -> BrokerId:
    """A clean election: only members of the ISR, in the order of the replica list."""

    def may_lead(replica: BrokerId) -> bool:
        return replica in isr and is_acceptable(replica)

    if election is Election.PREFERRED and may_lead(partition.preferred_leader):
        return partition.preferred_leader
    if partition.leader != NO_BROKER and may_lead(partition.leader):
        return partition.leader
    return next((replica for replica in partition.replicas if may_lead(replica)), NO_BROKER)
