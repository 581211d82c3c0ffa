"""The requests to the active controller and their replies. The same types serve both ends of the wire.

May touch:  records, barnabas_wire.kafka.   Must not touch: everything else.
Invariants: data only. A request that is refused as a whole raises KafkaError; where a request has items, each item of the
            reply carries its own error or None.
Read next:  requests_partitions.py for the rest; controller.py, which decides; driver/verbs.py, which maps these to protobuf.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import IntEnum
from typing import ClassVar

from barnabas_quorum.controller.request import Request
from barnabas_quorum.errors import NotController
from barnabas_quorum.records import ConfigResourceType, FeatureRange, LeaderRecoveryState
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import NO_BROKER, NO_EPOCH, NO_OFFSET, ZERO_UUID, BrokerId, Endpoint, Epoch, Offset, Uuid
from barnabas_wire.lazy_dataclass import dataclass

NO_BROKER_EPOCH = -1
"""As previous broker epoch: unknown, the last stop was unclean. In an ISR member: the leader does not know it."""


class NotActiveController(NotController):
    """The controller is not the active one; `leader_id` is, as far as it knows.

    `is_unsettled`: it was active when the request arrived, and its successor may still commit what it decided.
    """

    def __init__(self, message: str, *, leader_id: BrokerId | None, is_unsettled: bool = False) -> None:
        super().__init__(message)
        self.leader_id = leader_id
        self.is_unsettled = is_unsettled


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBroker(Request["RegisterBrokerReply"]):
    """A broker process registers at its start (BrokerRegistration, KIP-631)."""

    is_nodes_own: ClassVar[bool] = True
    broker_id: BrokerId
    cluster_id: str
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    directories: tuple[Uuid, ...] = ()
    """The log directories that work."""
    has_offline_directories: bool = False
    """It also has directories that do not work, whose ids may be unknown: their contents may come back."""
    features: tuple[FeatureRange, ...] = ()
    previous_broker_epoch: int = NO_BROKER_EPOCH
    """From the clean-shutdown file; -1 after an unclean stop (KIP-966)."""
    directory_epochs: tuple[int, ...] = ()
    """As each of `directories` says: the epoch of its last registration, -1 where it does not say."""
    host: str | None = None
    """What is lost with it (broker.host); None: it alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerReply:
    """The registration is committed."""

    broker_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeartbeat(Request["BrokerHeartbeatReply"]):
    """A broker is alive and reports how far it has read the metadata (BrokerHeartbeat, KIP-631). Heartbeats use a separate stream."""

    broker_id: BrokerId
    broker_epoch: int
    metadata_offset: Offset
    """The last metadata record that the broker has applied; -1 before the first."""
    want_fence: bool
    """True while it is not ready to serve."""
    want_shutdown: bool
    offline_directories: tuple[Uuid, ...] = ()
    """Log directories that failed since this process started (KIP-858)."""
    clock_skew_ms: int = 0
    """How far its clock is ahead of the voters', where that is more than log.retention.clock.skew.max.ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeartbeatReply:
    """The controller's view of the broker."""

    is_caught_up: bool = False
    """It has read its own registration."""
    is_fenced: bool = True
    should_shutdown: bool = False
    report_offset: Offset = NO_OFFSET
    """Unless -1: heartbeat again as soon as the metadata is read up to here (another broker's shutdown waits for it)."""
    voters_clock_ms: int = 0
    """The median of the voters' wall clocks when this was decided; -1 = not known, 0 = of a version that does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrMemberEpoch:
    """A proposed in-sync replica, and its broker epoch as the leader knows it (KIP-903)."""

    broker_id: BrokerId
    broker_epoch: int = NO_BROKER_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionAlteration:
    """A leader proposes an ISR; valid only against exactly these epochs."""

    topic_id: Uuid
    partition_id: int
    leader_epoch: Epoch
    partition_epoch: int
    new_isr: tuple[IsrMemberEpoch, ...]
    leader_recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartition(Request["AlterPartitionReply"]):
    """The ISR changes of one leader broker (AlterPartition, KIP-497)."""

    is_nodes_own: ClassVar[bool] = True
    broker_id: BrokerId
    broker_epoch: int
    partitions: tuple[PartitionAlteration, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionAlterationReply:
    """The partition's new state, or why the proposal was refused."""

    topic_id: Uuid
    partition_id: int
    error: KafkaError | None = None
    leader: BrokerId = NO_BROKER
    leader_epoch: Epoch = NO_EPOCH
    isr: tuple[BrokerId, ...] = ()
    leader_recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED
    partition_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionReply:
    """In the order of the request."""

    partitions: tuple[PartitionAlterationReply, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatableTopic:
    """A topic to create: either counts, or a replica list per partition in `assignments`."""

    name: str
    partition_count: int = -1
    """At least 1, or -1 with `assignments`. The caller fills in the cluster's defaults."""
    replication_factor: int = -1
    assignments: Mapping[int, tuple[BrokerId, ...]] = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopics(Request["CreateTopicsReply"]):
    """Create topics; each succeeds or fails on its own."""

    topics: tuple[CreatableTopic, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTopic:
    """One topic of the reply; ids and counts are unset when `error` is."""

    name: str
    error: KafkaError | None = None
    topic_id: Uuid = ZERO_UUID
    partition_count: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    """The overrides it was created with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicsReply:
    """In the order of the request."""

    topics: tuple[CreatedTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReference:
    """A topic by name, or by id when the name is None."""

    name: str | None = None
    topic_id: Uuid = ZERO_UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopics(Request["DeleteTopicsReply"]):
    """Delete topics; each succeeds or fails on its own."""

    topics: tuple[TopicReference, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedTopic:
    """One topic of the reply."""

    name: str | None
    topic_id: Uuid
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicsReply:
    """In the order of the request."""

    topics: tuple[DeletedTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicGrowth:
    """The new number of partitions of a topic."""

    name: str
    partition_count: int
    """The new total."""
    assignments: tuple[tuple[BrokerId, ...], ...] = ()
    """The replicas of each *new* partition; if empty, the controller places them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitions(Request["CreatePartitionsReply"]):
    """Add partitions; each topic succeeds or fails on its own."""

    topics: tuple[TopicGrowth, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GrownTopic:
    """One topic of the reply."""

    name: str
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsReply:
    """In the order of the request."""

    topics: tuple[GrownTopic, ...]


class ConfigOperation(IntEnum):
    """What to do with a key; Kafka's numbers (KIP-339). APPEND and SUBTRACT are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """One key."""

    key: str
    operation: ConfigOperation
    value: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigAlteration:
    """The changes of one topic (its name), one broker (its id as text) or all brokers ("")."""

    resource_type: ConfigResourceType
    resource_name: str
    changes: tuple[ConfigChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IncrementalAlterConfigs(Request["IncrementalAlterConfigsReply"]):
    """Change configs; each resource succeeds or fails as a whole (KIP-339)."""

    resources: tuple[ConfigAlteration, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlteredConfig:
    """One resource of the reply."""

    resource_type: ConfigResourceType
    resource_name: str
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IncrementalAlterConfigsReply:
    """In the order of the request."""

    resources: tuple[AlteredConfig, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateProducerIds(Request["AllocateProducerIdsReply"]):
    """A broker asks for a block of producer ids (KIP-730)."""

    is_nodes_own: ClassVar[bool] = True
    broker_id: BrokerId
    broker_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateProducerIdsReply:
    """Ids first … first + count - 1 belong to the caller."""

    first: int
    count: int
