"""The heart of the controller: the change of one partition when its ISR or replicas are to change or it needs a leader.

May touch:  its arguments.            Must not touch: the image as a whole, sessions, everything that waits.
Invariants: leader ∈ ISR or there is none; ISR ⊆ replicas; ISR and ELR are disjoint, and the ISR is empty only while an ELR
            or a last known leader can be elected, or their disks are gone and only an unclean election helps;
            adding and removing ⊆ replicas; only an unclean election, enabled by config or requested by hand, elects a
            leader that may lack committed records; a faulty replica (ReplicaFault) is in the ISR only while it leads, and
            leads only while no healthy replica of the ISR may.
Read next:  elr.py and partition_rules.py; partitions.py, elections.py and reassignment.py, which build changes here;
            image/topics.py (merge), which replays them.

The steps have the order of Kafka's PartitionChangeBuilder (KIP-966): completed reassignment, ELR, election, leader epoch for
dropped replicas, ISR, last known leader, directories and replicas, recovery state. Differs from Kafka: a reassignment that an
election completes is complete at once. In Kafka it waits for an ISR change, which a new leader that is alone in sync never
proposes.

Faults (Kafka has none for single replicas). A healthy replica leads: a faulty leader hands over and faulty members leave the
ISR. Where no healthy replica is in sync, the faulty leader stays: it can serve reads, the others catch up from it, and the
first in sync takes over. A corrupt replica may have lost what the others must fetch to catch up: if the whole ISR is corrupt,
a healthy eligible replica leads, as if the ISR were empty. A replica without room has every record and stays eligible. A
corrupt one may lack a committed record, so it leaves the ELR: elected from there it would count as clean. It may still be the
last known leader, which has the most records. One that has LOST records is in none of the sets and leads nothing: elected by
itself it would have others cut what it lacks. Only an unclean election, that of an operator above all, lets it lead, and with that
the loss is accepted: it is faulty no more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import NamedTuple, TypeVar

from barnabas_quorum.controller.elr import effective_min_isr, eligible_replicas, last_known_leader
from barnabas_quorum.image.cluster import NO_DOMAINS, Domains
from barnabas_quorum.image.directories import UNASSIGNED_DIRECTORY
from barnabas_quorum.image.partition import PartitionRegistration
from barnabas_quorum.records import (
    FaultyReplica,
    LeaderRecoveryState,
    PartitionChangeRecord,
    ReplicaFault,
    ReplicaFaults,
)
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId, Uuid

T = TypeVar("T")


class Election(Enum):
    """Whom to prefer when more than one replica may lead."""

    ONLINE = "online"
    """Keep the present leader while it may lead."""
    PREFERRED = "preferred"
    """The first replica if it may lead, else as ONLINE."""


class ElectedFrom(Enum):
    """How a partition got another leader."""

    PREFERRED = "preferred"
    """Handed back to the first replica by a leader that could have continued."""
    ISR = "isr"
    """The leader could not continue, or there was none; the new one was in sync, or eligible."""
    UNCLEAN = "unclean"
    """Neither: records may be lost."""


class Replicas(NamedTuple):
    """The replicas of a partition, and those being added or removed."""

    all: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()


class _Elected(NamedTuple):
    leader: BrokerId
    is_unclean: bool = False


def build_change(
    partition: PartitionRegistration,
    *,
    topic_id: Uuid,
    partition_id: int,
    is_acceptable: Callable[[BrokerId], bool],
    min_insync_replicas: int,
    target_isr: tuple[BrokerId, ...] | None = None,
    target_replicas: Replicas | None = None,
    directory_for: Callable[[BrokerId], Uuid] = lambda broker_id: UNASSIGNED_DIRECTORY,
    lost: Collection[BrokerId] = (),
    gone: Collection[BrokerId] = (),
    election: Election = Election.ONLINE,
    spared: Collection[BrokerId] = (),
    allows_unclean: bool = False,
    domains_of: Callable[[BrokerId], Domains] = lambda broker_id: NO_DOMAINS,
    leader_recovery_state: LeaderRecoveryState | None = None,
    target_faults: ReplicaFaults | None = None,
) -> PartitionChangeRecord | None:
    """The change to the wanted ISR, replicas and faults, with the leader that follows; None when nothing changes.

    Args:
        is_acceptable: whether a broker may lead (partition_rules.acceptable).
        min_insync_replicas: the topic's value, not yet limited to the number of replicas.
        target_isr: the wanted ISR, None = no change.
        target_replicas: the wanted replicas, None = no change. A reassignment that this completes ends.
        directory_for: where the replica of a broker that is new to the partition will be.
        lost: replicas whose records can no longer be trusted; they are not eligible to lead.
        gone: replicas whose records are certainly gone; they are in no ISR, and not the last known leader either. Those with the
            fault LOST are so as well.
        spared: brokers in maintenance: in sync as others, and leading only what no other healthy replica may lead.
        allows_unclean: let a replica lead that may lack committed records, if no other may lead.
        domains_of: what each broker is lost with. An unclean leader is rather one that shares no rack, and then no host, with a
            replica that may not lead: what has taken that one may take its neighbours next, and with them what is left.
        leader_recovery_state: reported by the leader, None = no change.
        target_faults: the faulty replicas, None = no change. A replica that is dropped, or gone, is no longer faulty.
    """
    faults = dict(partition.faults if target_faults is None else target_faults)
    emptied = {*gone, *(replica for replica, fault in faults.items() if fault is ReplicaFault.LOST)}
    lost = {*lost, *emptied, *(replica for replica, fault in faults.items() if fault is ReplicaFault.CORRUPT)}
    isr = tuple(member for member in (partition.isr if target_isr is None else target_isr) if member not in emptied)
    wanted = target_replicas or Replicas(partition.replicas, partition.adding_replicas, partition.removing_replicas)
    if any(member in wanted.all and member not in faults and is_acceptable(member) for member in isr):
        isr = tuple(member for member in isr if member not in faults)
    completed = completed_reassignment(wanted, isr)
    if completed is not None:
        wanted, isr = completed
    isr = tuple(member for member in isr if member in wanted.all)
    min_isr = effective_min_isr(min_insync_replicas, len(wanted.all))
    elr = eligible_replicas(partition, isr=isr, replicas=wanted.all, min_isr=min_isr, lost=lost)
    if all(faults.get(member) is ReplicaFault.CORRUPT for member in isr) and any(
        member not in faults and is_acceptable(member) for member in elr
    ):
        isr = ()
    last_known = last_known_leader(partition, isr=isr, replicas=wanted.all, min_isr=min_isr, gone=emptied)
    recovery = partition.leader_recovery_state if leader_recovery_state is None else leader_recovery_state

    elected = _elect(
        partition,
        replicas=wanted.all,
        isr=isr,
        elr=elr,
        last_known=last_known,
        faults=faults,
        is_acceptable=is_acceptable,
        election=election,
        spared=spared,
        allows_unclean=allows_unclean,
        domains_of=domains_of,
    )
    leader = elected.leader
    if elected.is_unclean:
        isr, elr, recovery = (leader,), (), LeaderRecoveryState.RECOVERING
        if faults.get(leader) is ReplicaFault.LOST:
            del faults[leader]
    elif leader != NO_BROKER and not isr:
        isr, elr = (leader,), tuple(replica for replica in elr if replica != leader)
    elif leader in faults:
        # the leader is faulty because no healthy replica may lead; other faulty ones leave the ISR
        isr = tuple(member for member in isr if member not in faults or member == leader)
        elr = eligible_replicas(partition, isr=isr, replicas=wanted.all, min_isr=min_isr, lost=lost)
    completed = completed_reassignment(wanted, isr)
    if completed is not None:
        # only the new leader was missing: no ISR change will follow to complete the reassignment
        wanted, isr = completed
        min_isr = effective_min_isr(min_insync_replicas, len(wanted.all))
        elr = tuple(replica for replica in elr if replica in wanted.all)
    if isr:
        last_known = ()
    if len(isr) >= min_isr:
        elr = ()

    directories = _directories(partition, wanted.all, directory_for)
    is_led_anew = leader != partition.leader or not set(partition.replicas) <= set(wanted.all)
    change = PartitionChangeRecord(
        topic_id=topic_id,
        partition_id=partition_id,
        # a new leader epoch shows dropped replicas that they no longer count
        leader=leader if is_led_anew else None,
        isr=_if_changed(isr, partition.isr),
        replicas=_if_changed(wanted.all, partition.replicas),
        adding_replicas=_if_changed(wanted.adding, partition.adding_replicas),
        removing_replicas=_if_changed(wanted.removing, partition.removing_replicas),
        directories=_if_changed(directories, partition.directories),
        elr=_if_changed(elr, partition.elr),
        last_known_elr=_if_changed(last_known, partition.last_known_elr),
        leader_recovery_state=recovery if recovery != partition.leader_recovery_state else None,
        faults=_if_changed(_faults_left(faults, wanted.all, gone), partition.faults),
    )
    return None if is_unchanged(change) else change


def faults_with(
    partition: PartitionRegistration, brokers: Collection[BrokerId], fault: ReplicaFault | None
) -> ReplicaFaults:
    """The partition's faults once these brokers' replicas have this one, or none."""
    others = [faulty for faulty in partition.faults if faulty.broker_id not in brokers]
    ours = [] if fault is None else [FaultyReplica(broker_id, fault) for broker_id in brokers]
    return tuple(sorted([*others, *ours]))


def completed_reassignment(wanted: Replicas, isr: tuple[BrokerId, ...]) -> tuple[Replicas, tuple[BrokerId, ...]] | None:
    """The replicas and the ISR after the reassignment; None while it is not complete, or there is none.

    It is complete when every replica that stays is in sync. Earlier, the partition would for a time have fewer good copies
    than its replication factor promises.
    """
    if not wanted.adding and not wanted.removing:
        return None
    staying = tuple(replica for replica in wanted.all if replica not in wanted.removing)
    if not staying or not set(staying) <= set(isr):
        return None
    return Replicas(staying), tuple(member for member in isr if member in staying)


def elected_from(before: PartitionRegistration, change: PartitionChangeRecord) -> ElectedFrom | None:
    """The kind of election behind a change; None when it elects no other leader."""
    leader = change.leader
    if leader is None or leader in (NO_BROKER, before.leader):
        return None
    if change.leader_recovery_state is LeaderRecoveryState.RECOVERING or leader not in (*before.isr, *before.elr):
        return ElectedFrom.UNCLEAN
    replicas = before.replicas if change.replicas is None else change.replicas
    isr = before.isr if change.isr is None else change.isr
    return ElectedFrom.PREFERRED if leader == replicas[0] and before.leader in isr else ElectedFrom.ISR


def is_unchanged(change: PartitionChangeRecord) -> bool:
    """Whether the record changes nothing."""
    return change == PartitionChangeRecord(topic_id=change.topic_id, partition_id=change.partition_id)


def _elect(
    partition: PartitionRegistration,
    *,
    replicas: tuple[BrokerId, ...],
    isr: tuple[BrokerId, ...],
    elr: tuple[BrokerId, ...],
    last_known: tuple[BrokerId, ...],
    is_acceptable: Callable[[BrokerId], bool],
    faults: Mapping[BrokerId, ReplicaFault],
    election: Election,
    spared: Collection[BrokerId],
    allows_unclean: bool,
    domains_of: Callable[[BrokerId], Domains],
) -> _Elected:
    """A healthy member of the ISR, or of the ELR when the ISR is empty, in the order of the replica list, one that is not spared
    first; else a faulty one; else the last known leader; else, where it is allowed, any live replica: healthy ones first, and of
    these one in another rack, then on another host, than those that may not lead."""
    candidates = isr or elr

    healthy = [r for r in replicas if r in candidates and r not in faults and is_acceptable(r)]
    for able in ([replica for replica in healthy if replica not in spared], healthy):
        if election is Election.PREFERRED and replicas[0] in able:
            return _Elected(replicas[0])
        if partition.leader in able:
            return _Elected(partition.leader)
        if able:
            return _Elected(able[0])
    faulty = [replica for replica in replicas if replica in candidates and replica in faults and is_acceptable(replica)]
    if faulty:
        # A replica without room can still serve every record, so a corrupt one comes last. Between equals the leader stays.
        return _Elected(min(faulty, key=lambda r: (faults[r] is ReplicaFault.CORRUPT, r != partition.leader)))
    if not isr and not elr and len(last_known) == 1 and is_acceptable(last_known[0]):
        return _Elected(last_known[0], is_unclean=True)
    if allows_unclean:
        live = [replica for replica in replicas if is_acceptable(replica)]
        hit = [domains_of(replica) for replica in replicas if replica not in live]

        def doubts(replica: BrokerId) -> tuple[bool, bool, bool, bool]:
            its = domains_of(replica)
            is_rack_hit = its.rack is not None and its.rack in {each.rack for each in hit}
            is_host_hit = its.host is not None and its.host in {each.host for each in hit}
            return replica in faults, faults.get(replica) is ReplicaFault.LOST, is_rack_hit, is_host_hit

        if live:
            return _Elected(min(live, key=doubts), is_unclean=True)
    return _Elected(NO_BROKER)


def _directories(
    partition: PartitionRegistration, replicas: tuple[BrokerId, ...], directory_for: Callable[[BrokerId], Uuid]
) -> tuple[Uuid, ...]:
    if replicas == partition.replicas:
        return partition.directories
    known = dict(zip(partition.replicas, partition.directories, strict=False))
    return tuple(known[replica] if replica in known else directory_for(replica) for replica in replicas)


def _faults_left(
    faults: Mapping[BrokerId, ReplicaFault], replicas: tuple[BrokerId, ...], gone: Collection[BrokerId]
) -> ReplicaFaults:
    return tuple(
        FaultyReplica(replica, faults[replica])
        for replica in sorted(faults)
        if replica in replicas and replica not in gone
    )


def _if_changed(now: tuple[T, ...], before: tuple[T, ...]) -> tuple[T, ...] | None:
    return None if now == before else now
