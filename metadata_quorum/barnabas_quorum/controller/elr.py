"""Eligible leader replicas: who, outside the ISR, is known to hold every committed record (KIP-966).

May touch:  its arguments.            Must not touch: the image as a whole, everything that waits.
Invariants: ELR and ISR have no member in common; there is an ELR only while the ISR is smaller than the effective
            min.insync.replicas; a replica whose records cannot be trusted any more is in neither; one whose records are
            gone is not the last known leader either.
Read next:  partition_change.py, which keeps these for each partition.

Why it is true: below min.insync.replicas no leader moves the high watermark (replication/isr.py), so whoever was in the ISR
when it fell below holds everything that was ever committed, until the ISR is whole again.

Differs from Kafka
- KIP-966 distrusts every broker that stopped uncleanly. Where log.flush.on.acks=fsync an end counts only when flushed, so
  such a broker still has what was committed; it is distrusted only where log.flush.on.acks=page-cache.
- A broker that registers without the directory that held its replica has lost the records, cleanly stopped or not
  (partition_rules.is_replica_gone). Kafka goes by the stop alone, and lets the last known leader lead whatever disk it comes
  back with. Here it leaves ISR, ELR and last known ELR; if nobody else is left the partition waits for an unclean election.
  A directory that keeps its directory.id while the logs in it are deleted deceives both.
- ClearElrRecord leaves partitions alone whose ISR is empty: without a leader no high watermark moves, so what their ELR
  says stays true whatever min.insync.replicas becomes.
"""

from __future__ import annotations

from collections.abc import Collection

from barnabas_quorum.image.partition import PartitionRegistration
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId


def effective_min_isr(min_insync_replicas: int, replica_count: int) -> int:
    """min.insync.replicas cannot ask for more replicas than there are (KIP-966); replication/isr.py says the same."""
    return min(min_insync_replicas, replica_count)


def known_holders(partition: PartitionRegistration) -> frozenset[BrokerId]:
    """Who is known to hold every committed record; where nobody is, who has the most of anyone."""
    return frozenset({*partition.isr, *partition.elr} or partition.last_known_elr)


def eligible_replicas(
    partition: PartitionRegistration,
    *,
    isr: Collection[BrokerId],
    replicas: Collection[BrokerId],
    min_isr: int,
    lost: Collection[BrokerId],
) -> tuple[BrokerId, ...]:
    """The ELR once the ISR is `isr`, in the order of `replicas`: who was in ISR or ELR and is not any more.

    Args:
        min_isr: the effective one.
        lost: replicas whose records cannot be trusted.
    """
    if len(isr) >= min_isr:
        return ()
    return tuple(
        replica
        for replica in replicas
        if (replica in partition.isr or replica in partition.elr) and replica not in isr and replica not in lost
    )


def last_known_leader(
    partition: PartitionRegistration,
    *,
    isr: Collection[BrokerId],
    replicas: Collection[BrokerId],
    min_isr: int,
    gone: Collection[BrokerId],
) -> tuple[BrokerId, ...]:
    """LastKnownElr once the ISR is `isr`: who led last before the ISR became empty. It has the most of anyone, so it may
    lead again even if it cannot be trusted and there is nobody else (KIP-966's balanced recovery).

    Args:
        gone: replicas that have no record any more; they have the least.
    """
    if len(isr) >= min_isr:
        return ()
    last = partition.last_known_elr
    if partition.isr and not isr:
        last = (partition.leader if partition.leader != NO_BROKER else partition.isr[0],)
    return tuple(replica for replica in last if replica in replicas and replica not in gone)
