"""Eligible leader replicas: which replicas outside the ISR are known to hold every committed record (KIP-966).

May touch:  its arguments.            Must not touch: the image as a whole, everything that waits.
Invariants: ELR and ISR have no member in common; there is an ELR only while the ISR is smaller than the effective
            min.insync.replicas; a replica whose records can no longer be trusted is in neither; one whose records are
            gone is not the last known leader either.
Read next:  partition_change.py, which maintains these for each partition.

Why this is safe: below min.insync.replicas no leader moves the high watermark (replication/leader/isr.py). So every replica that was
in the ISR when it shrank below that holds everything that was ever committed, until the ISR is large enough again.

Differs from Kafka
- KIP-966 distrusts every broker that stopped uncleanly. With log.flush.on.acks=fsync an end counts only when flushed, so
  such a broker still has the committed records; it is distrusted only with log.flush.on.acks=page-cache.
- A broker that registers without the directory of its replica has lost the records, cleanly stopped or not
  (partition_rules.is_replica_gone). Kafka looks only at how the broker stopped, and lets the last known leader lead with
  whatever disk it returns. Here it leaves ISR, ELR and last known ELR; if no other replica is left the partition waits for an
  unclean election. Neither notices a directory that keeps its directory.id while its logs are deleted.
- ClearElrRecord does not change partitions whose ISR is empty: without a leader the high watermark does not move, so their
  ELR stays true whatever the new min.insync.replicas.
"""

from __future__ import annotations

from collections.abc import Collection

from barnabas_quorum.image.partition import PartitionRegistration
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId


def effective_min_isr(min_insync_replicas: int, replica_count: int) -> int:
    """min.insync.replicas cannot require more replicas than there are (KIP-966); replication/leader/isr.py applies the same rule."""
    return min(min_insync_replicas, replica_count)


def known_holders(partition: PartitionRegistration) -> frozenset[BrokerId]:
    """The replicas known to hold every committed record; where there are none, the one that has the most."""
    return frozenset({*partition.isr, *partition.elr} or partition.last_known_elr)


def eligible_replicas(
    partition: PartitionRegistration,
    *,
    isr: Collection[BrokerId],
    replicas: Collection[BrokerId],
    min_isr: int,
    lost: Collection[BrokerId],
) -> tuple[BrokerId, ...]:
    """The ELR once the ISR is `isr`, in the order of `replicas`: former members of ISR or ELR that are not in `isr`.

    Args:
        min_isr: the effective min.insync.replicas.
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
    """LastKnownElr once the ISR is `isr`: the last leader before the ISR became empty. It has the most records, so it may
    lead again if there is no other replica, even if it cannot be trusted (KIP-966's balanced recovery).

    Args:
        gone: replicas whose records are gone.
    """
    if len(isr) >= min_isr:
        return ()
    last = partition.last_known_elr
    if partition.isr and not isr:
        last = (partition.leader if partition.leader != NO_BROKER else partition.isr[0],)
    return tuple(replica for replica in last if replica in replicas and replica not in gone)
