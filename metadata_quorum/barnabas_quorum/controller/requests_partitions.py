"""Requests about partitions and their replicas, and their replies.

May touch:  barnabas_wire.kafka, records.   Must not touch: everything else.
Invariants: data only, as in requests.py, of which this is a part.
Read next:  reassignment.py, elections.py, directories.py, replica_faults.py and brokers.py, which decide them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar

from barnabas_quorum.controller.request import Request
from barnabas_quorum.records import ReplicaFault
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId, Uuid
from barnabas_wire.lazy_dataclass import dataclass


class ElectionType(IntEnum):
    """Kafka's numbers (KIP-460)."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectLeaders(Request["ElectLeadersReply"]):
    """Elect leaders now (ElectLeaders, KIP-183, KIP-460)."""

    election_type: ElectionType
    partitions: tuple[tuple[str, int], ...] | None
    """(topic, partition); None = all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectedPartition:
    """One partition of the reply; `leader` is unset when `error` is."""

    topic: str
    partition_id: int
    leader: BrokerId = NO_BROKER
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectLeadersReply:
    """In the order of the request; by topic and number when the request was for all."""

    partitions: tuple[ElectedPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReassignment:
    """One partition's wanted replicas, preferred leader first; None cancels the reassignment under way."""

    topic: str
    partition_id: int
    replicas: tuple[BrokerId, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionReassignments(Request["AlterPartitionReassignmentsReply"]):
    """Change the replicas of partitions; each succeeds or fails on its own (KIP-455)."""

    partitions: tuple[PartitionReassignment, ...]
    allow_replication_factor_change: bool = True
    """False refuses a list that changes the number of replicas (KIP-860)."""
    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignedPartition:
    """One partition of the reply."""

    topic: str
    partition_id: int
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionReassignmentsReply:
    """In the order of the request."""

    partitions: tuple[ReassignedPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPartitionReassignments(Request["ListPartitionReassignmentsReply"]):
    """Which reassignments are under way (KIP-455)."""

    is_read: ClassVar[bool] = True
    partitions: tuple[tuple[str, int], ...] | None = None
    """(topic, partition); None = all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OngoingReassignment:
    """One that is under way."""

    topic: str
    partition_id: int
    replicas: tuple[BrokerId, ...]
    """All current replicas: the wanted ones, then those to be removed."""
    adding: tuple[BrokerId, ...]
    removing: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    """The reassignment is complete when these are all replicas but `removing`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPartitionReassignmentsReply:
    """By topic and number."""

    partitions: tuple[OngoingReassignment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPlacement:
    """The directory in which a broker keeps a replica."""

    topic_id: Uuid
    partition_id: int
    directory_id: Uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignReplicasToDirectories(Request["AssignReplicasToDirectoriesReply"]):
    """A broker with several log directories reports where its replicas are (KIP-858)."""

    is_nodes_own: ClassVar[bool] = True
    broker_id: BrokerId
    broker_epoch: int
    placements: tuple[ReplicaPlacement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedReplica:
    """One replica of the reply."""

    topic_id: Uuid
    partition_id: int
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignReplicasToDirectoriesReply:
    """In the order of the request."""

    replicas: tuple[PlacedReplica, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFaultReport:
    """What is wrong with one replica of the broker that reports it."""

    topic_id: Uuid
    partition_id: int
    fault: ReplicaFault | None
    """None: the replica is healthy and may take records again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterReplicaFaults(Request["AlterReplicaFaultsReply"]):
    """A broker reports replicas that became faulty or healthy again."""

    is_nodes_own: ClassVar[bool] = True
    broker_id: BrokerId
    broker_epoch: int
    reports: tuple[ReplicaFaultReport, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterReplicaFaultsReply:
    """In the order of the request."""

    replicas: tuple[PlacedReplica, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterMaintenance(Request["AlterMaintenanceReply"]):
    """Put a broker into maintenance, or end that. Kafka has no such state."""

    is_operators: ClassVar[bool] = True

    broker_id: BrokerId
    is_in_maintenance: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterMaintenanceReply:
    """What became of the partitions that the broker led."""

    handed_over: int
    kept: int
    """Nobody else is in sync there: it leads on until somebody is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBroker(Request["UnregisterBrokerReply"]):
    """Forget a broker that will not come back (KIP-631)."""

    broker_id: BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBrokerReply:
    """It is forgotten."""
