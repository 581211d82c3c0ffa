"""The typed records of the metadata log: every fact about the cluster is one of these, in order (KIP-631).

May touch:  barnabas_wire.kafka.ids.  Must not touch: asyncio, clock, files, protobuf, image, controller.
Invariants: a record is immutable and complete in itself: replaying the same records in the same order gives
            the same image on every node; a field that is None in a *Change* record means "unchanged".
Read next:  image/metadata.py, which replays them; record_codec.py, which writes them as bytes.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from barnabas_quorum.records_integrity import IntegrityRecord
from barnabas_quorum.records_security import SecurityRecord
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId, Endpoint, Epoch, Uuid
from barnabas_wire.lazy_dataclass import dataclass

FIRST_LEADER_EPOCH = Epoch(0)
EPOCHS_PER_RECOVERY = 1_000_000
"""So many leader epochs, and partition epochs, does each recovery of the quorum leave out."""


class ConfigResourceType(IntEnum):
    """What a config belongs to; Kafka's numbers (AdminClient ConfigResource.Type)."""

    TOPIC = 2
    BROKER = 4
    CLIENT_METRICS = 16
    """Which metrics clients push (KIP-714). Needs metadata.version 8."""
    GROUP = 32


class LeaderRecoveryState(IntEnum):
    """Whether a partition's leader was elected uncleanly and has not yet said that it recovered (KIP-704)."""

    RECOVERED = 0
    RECOVERING = 1


class ReplicaFault(IntEnum):
    """Why one replica cannot serve, though its directory is online. 0 on the wire: no fault."""

    CORRUPT = 1
    """Records below the high watermark are damaged. Its copy is incomplete until the damaged range is repaired."""
    NO_ROOM = 2
    """Its directory is out of space. The copy is whole up to its end, and takes no more records."""
    LOST = 3
    """Records that it had are gone, or its directory is an older copy. It leads nothing until it is refilled from another replica, or
    an operator accepts the loss by an unclean election. Needs metadata.version 7."""


class FaultyReplica(NamedTuple):
    """One replica of a partition that is faulty."""

    broker_id: BrokerId
    fault: ReplicaFault


ReplicaFaults = tuple[FaultyReplica, ...]
"""The faulty replicas of one partition, by broker id in ascending order, at most one fault each."""


class FeatureRange(NamedTuple):
    """The levels of one feature that a node can serve, both ends included."""

    name: str
    min_level: int
    max_level: int


class ServedDirectory(NamedTuple):
    """Up to which registration a log directory of a broker is known to have been served from."""

    directory: Uuid
    broker_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerRecord:
    """One process start of a broker. The offset of this record is the broker epoch."""

    broker_id: BrokerId
    incarnation_id: Uuid
    broker_epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    is_fenced: bool = True
    is_in_controlled_shutdown: bool = False
    directories: tuple[Uuid, ...] = ()
    features: tuple[FeatureRange, ...] = ()
    is_in_maintenance: bool = False
    served: tuple[ServedDirectory, ...] = ()
    """By directory. Empty below metadata.version 7."""
    host: str | None = None
    """What is lost with it. None below barnabas.host.version 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBrokerRecord:
    """The broker with this epoch is forgotten."""

    broker_id: BrokerId
    broker_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistrationChangeRecord:
    """A registered broker is fenced or unfenced, shuts down, is maintained, or changes its log directories."""

    broker_id: BrokerId
    broker_epoch: int
    is_fenced: bool | None = None
    is_in_controlled_shutdown: bool | None = None
    directories: tuple[Uuid, ...] | None = None
    is_in_maintenance: bool | None = None
    serves: bool | None = None
    """True: from here on its directories are served from in this epoch. None below metadata.version 7."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterControllerRecord:
    """One process start of a controller, and where it is reached (KIP-919)."""

    controller_id: BrokerId
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterControllerRecord:
    """The controller of this id is forgotten."""

    controller_id: BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginTransactionRecord:
    """What follows, up to its End, takes effect as a whole or, with an Abort, not at all (KIP-868)."""

    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionRecord:
    """The records since Begin take effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortTransactionRecord:
    """The records since Begin are as if they had never been."""

    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord:
    """A topic begins to exist; its partitions follow as PartitionRecords."""

    name: str
    topic_id: Uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveTopicRecord:
    """The topic, its partitions and its configs are gone."""

    topic_id: Uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecord:
    """The whole state of one partition: written at creation, and once per partition in a snapshot."""

    topic_id: Uuid
    partition_id: int
    replicas: tuple[BrokerId, ...]
    directories: tuple[Uuid, ...]
    isr: tuple[BrokerId, ...]
    leader: BrokerId = NO_BROKER
    leader_recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED
    leader_epoch: Epoch = FIRST_LEADER_EPOCH
    partition_epoch: int = 0
    removing_replicas: tuple[BrokerId, ...] = ()
    adding_replicas: tuple[BrokerId, ...] = ()
    elr: tuple[BrokerId, ...] = ()
    last_known_elr: tuple[BrokerId, ...] = ()
    faults: ReplicaFaults = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChangeRecord:
    """What changes in one partition. Replaying it adds 1 to the partition epoch, and 1 to the leader epoch
    iff `leader` is given, even when it names the present leader."""

    topic_id: Uuid
    partition_id: int
    isr: tuple[BrokerId, ...] | None = None
    leader: BrokerId | None = None
    replicas: tuple[BrokerId, ...] | None = None
    removing_replicas: tuple[BrokerId, ...] | None = None
    adding_replicas: tuple[BrokerId, ...] | None = None
    leader_recovery_state: LeaderRecoveryState | None = None
    directories: tuple[Uuid, ...] | None = None
    elr: tuple[BrokerId, ...] | None = None
    last_known_elr: tuple[BrokerId, ...] | None = None
    faults: ReplicaFaults | None = None
    """Only from metadata.version 4 on: an older node would pass over it in silence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearElrRecord:
    """min.insync.replicas changed: eligible leader replicas kept under the old one are void (KIP-966)."""

    topic_name: str = ""
    """"" = every topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumRecoveryRecord:
    """The quorum continues from a survivor that may lack what a lost majority decided. What that majority can have given out and may
    still give out, where nobody sees the recovered quorum, is left out: leader epochs and partition epochs of every partition
    rise by `epoch_gap`, and the producer ids by theirs. So no leader epoch has two leaders, and a replica with records of a
    leader that this log does not know finds by its epochs where to cut. A transaction that is open here ends as aborted.

    Written by `quorum recover` right behind the log it found, whatever metadata.version is: an older node stands still there."""

    incarnation: str
    """The quorum's from here on."""
    epoch_gap: int
    """EPOCHS_PER_RECOVERY for each recovery since that of the log it is written to."""
    producer_id_gap: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRecord:
    """One config key of a topic (resource name = topic), a broker (broker id in text, "" = all brokers) or a group."""

    resource_type: ConfigResourceType
    resource_name: str
    key: str
    value: str | None
    """None removes the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureLevelRecord:
    """The finalized level of a feature of the whole cluster; level 0 removes it."""

    name: str
    level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdsRecord:
    """A block of producer ids was given to a broker; all ids below `next_producer_id` are spent."""

    broker_id: BrokerId
    broker_epoch: int
    next_producer_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOpRecord:
    """Nothing: keeps the high watermark moving in an idle cluster (KIP-835)."""


Record = (
    RegisterBrokerRecord
    | UnregisterBrokerRecord
    | BrokerRegistrationChangeRecord
    | RegisterControllerRecord
    | TopicRecord
    | RemoveTopicRecord
    | PartitionRecord
    | PartitionChangeRecord
    | ClearElrRecord
    | QuorumRecoveryRecord
    | ConfigRecord
    | FeatureLevelRecord
    | ProducerIdsRecord
    | NoOpRecord
    | UnregisterControllerRecord
    | BeginTransactionRecord
    | EndTransactionRecord
    | AbortTransactionRecord
    | SecurityRecord
    | IntegrityRecord
)
