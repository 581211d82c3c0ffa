"""One partition as the cluster has agreed on it: who holds it, who is in sync, who leads.

May touch:  records, barnabas_wire.kafka.ids.   Must not touch: other partitions, asyncio, clock, files, controller.
Invariants: the partition epoch grows by exactly 1 per change (by its gap with a recovery), the leader epoch never falls.
Read next:  topics.py, which holds all of them; partition_index.py.
"""

from __future__ import annotations

from dataclasses import replace

from barnabas_quorum.records import (
    FIRST_LEADER_EPOCH,
    LeaderRecoveryState,
    PartitionChangeRecord,
    PartitionRecord,
    ReplicaFault,
    ReplicaFaults,
)
from barnabas_wire.kafka.errors import InvariantViolated
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId, Epoch, Uuid
from barnabas_wire.lazy_dataclass import dataclass

EPOCH_MAX = 2**31 - 1
"""Kafka's protocol and our records hold 32 bits of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRegistration:
    """One partition: who holds it, who is in sync, who leads."""

    replicas: tuple[BrokerId, ...]
    """In order of preference: the first is the preferred leader."""
    directories: tuple[Uuid, ...]
    """The log directory of each replica, in the order of `replicas`."""
    isr: tuple[BrokerId, ...]
    removing_replicas: tuple[BrokerId, ...] = ()
    adding_replicas: tuple[BrokerId, ...] = ()
    elr: tuple[BrokerId, ...] = ()
    last_known_elr: tuple[BrokerId, ...] = ()
    faults: ReplicaFaults = ()
    leader: BrokerId = NO_BROKER
    leader_recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED
    leader_epoch: Epoch = FIRST_LEADER_EPOCH
    partition_epoch: int = 0

    @property
    def has_leader(self) -> bool:
        """False while no replica may lead."""
        return self.leader != NO_BROKER

    @property
    def preferred_leader(self) -> BrokerId:
        """The replica that leads when all is well."""
        return self.replicas[0]

    def fault_of(self, broker_id: BrokerId) -> ReplicaFault | None:
        """What is wrong with that broker's replica; None = nothing that anybody has reported."""
        for replica, fault in self.faults:
            if replica == broker_id:
                return fault
        return None

    def merge(self, change: PartitionChangeRecord) -> PartitionRegistration:
        """The registration after a change record (the epoch rules of its docstring)."""
        is_led_anew = change.leader is not None
        return PartitionRegistration(
            replicas=self.replicas if change.replicas is None else change.replicas,
            directories=self.directories if change.directories is None else change.directories,
            isr=self.isr if change.isr is None else change.isr,
            removing_replicas=(
                self.removing_replicas if change.removing_replicas is None else change.removing_replicas
            ),
            adding_replicas=self.adding_replicas if change.adding_replicas is None else change.adding_replicas,
            elr=self.elr if change.elr is None else change.elr,
            last_known_elr=self.last_known_elr if change.last_known_elr is None else change.last_known_elr,
            faults=self.faults if change.faults is None else change.faults,
            leader=self.leader if change.leader is None else change.leader,
            leader_recovery_state=(
                self.leader_recovery_state if change.leader_recovery_state is None else change.leader_recovery_state
            ),
            leader_epoch=Epoch(self.leader_epoch + 1) if is_led_anew else self.leader_epoch,
            partition_epoch=self.partition_epoch + 1,
        )

    def after_recovery(self, epoch_gap: int) -> PartitionRegistration:
        """The registration after a recovery of the quorum. Raises InvariantViolated when no epoch is left."""
        leader_epoch, partition_epoch = Epoch(self.leader_epoch + epoch_gap), self.partition_epoch + epoch_gap
        return checked(replace(self, leader_epoch=leader_epoch, partition_epoch=partition_epoch))

    @classmethod
    def of(cls, record: PartitionRecord) -> PartitionRegistration:
        """The registration a whole PartitionRecord states."""
        return cls(
            replicas=record.replicas,
            directories=record.directories,
            isr=record.isr,
            removing_replicas=record.removing_replicas,
            adding_replicas=record.adding_replicas,
            elr=record.elr,
            last_known_elr=record.last_known_elr,
            faults=record.faults,
            leader=record.leader,
            leader_recovery_state=record.leader_recovery_state,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
        )

    def to_record(self, *, topic_id: Uuid, partition_id: int) -> PartitionRecord:
        """The record that `of` reads back as this registration."""
        return PartitionRecord(
            topic_id=topic_id,
            partition_id=partition_id,
            replicas=self.replicas,
            directories=self.directories,
            isr=self.isr,
            removing_replicas=self.removing_replicas,
            adding_replicas=self.adding_replicas,
            elr=self.elr,
            last_known_elr=self.last_known_elr,
            faults=self.faults,
            leader=self.leader,
            leader_recovery_state=self.leader_recovery_state,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
        )


def checked(partition: PartitionRegistration) -> PartitionRegistration:
    """The same. Raises InvariantViolated on what no image could hold and no snapshot could write: here it is one record's
    fault, equal on all nodes, and later nobody's."""
    if not partition.replicas:
        raise InvariantViolated("a partition without replicas")
    if partition.leader_epoch > EPOCH_MAX or partition.partition_epoch > EPOCH_MAX:
        raise InvariantViolated(f"an epoch beyond {EPOCH_MAX}")
    return partition
