"""What the active controller can be asked, and what it answers. The same types serve both ends of the wire.

May touch:  records, barnabas_wire.kafka.   Must not touch: everything else.
Invariants: data only. A whole request that is refused raises KafkaError; where a request has items, each item of the
            reply carries its own error or None.
Read next:  requests_partitions.py for the rest; controller.py, which answers; driver/verbs.py, which writes these as protobuf.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import ClassVar

from barnabas_quorum.controller.request import Request
from barnabas_quorum.errors import NotController
from barnabas_quorum.records import ConfigResourceType, FeatureRange, LeaderRecoveryState
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import NO_BROKER, NO_EPOCH, NO_OFFSET, ZERO_UUID, BrokerId, Endpoint, Epoch, Offset, Uuid

NO_BROKER_EPOCH = -1
"""In PreviousBrokerEpoch: unknown, the last stop was not clean. In an ISR member: the leader does not know it."""


class NotActiveController(NotController):
    """The asked controller is not the active one; `leader_id` is, as far as it knows.

    `is_unsettled`: it was active when it was asked, and what it decided may yet be committed by its successor.
    """

    def __init__(self, message: str, *, leader_id: BrokerId | None, is_unsettled: bool = False) -> None:
        super().__init__(message)
        self.leader_id = leader_id
        self.is_unsettled = is_unsettled


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBroker(Request["RegisterBrokerReply"]):
    """One process start of a broker asks to be part of the cluster (BrokerRegistration, KIP-631)."""

    is_nodes_own: ClassVar[bool] = True
    broker_id: BrokerId
    cluster_id: str
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    directories: tuple[Uuid, ...] = ()
    """The log directories that work."""
    has_offline_directories: bool = False
    """It has others that do not work, and may not even be told by their ids: what was in them may come back."""
    features: tuple[FeatureRange, ...] = ()
    previous_broker_epoch: int = NO_BROKER_EPOCH
    """From the clean-shutdown file; -1 after an unclean stop (KIP-966)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerReply:
    """The registration is committed."""

    broker_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeartbeat(Request["BrokerHeartbeatReply"]):
    """A broker lives, and says how far it has read the metadata (BrokerHeartbeat, KIP-631). Heartbeats have a stream of their own."""

    broker_id: BrokerId
    broker_epoch: int
    metadata_offset: Offset
    """Of the last metadata record it has published to itself; -1 before the first."""
    want_fence: bool
    """True while it is not ready to serve."""
    want_shutdown: bool
    offline_directories: tuple[Uuid, ...] = ()
    """Log directories that failed since this process started (KIP-858)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeartbeatReply:
    """The controller's view of the broker."""

    is_caught_up: bool = False
    """It has read its own registration."""
    is_fenced: bool = True
    should_shutdown: bool = False
    report_offset: Offset = NO_OFFSET
    """Not -1: heartbeat again as soon as the metadata is read up to here (another broker's shutdown waits for it)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrMemberEpoch:
    """A proposed in-sync replica, and the broker epoch the leader knows it by (KIP-903)."""

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
    """The partition as it now is, or why the proposal was refused."""

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
    """A topic to be made: either counts, or a replica list per partition in `assignments`."""

    name: str
    partition_count: int = -1
    """At least 1, or -1 when `assignments` says it. Defaults of the cluster are filled in by the caller."""
    replication_factor: int = -1
    assignments: Mapping[int, tuple[BrokerId, ...]] = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopics(Request["CreateTopicsReply"]):
    """Make topics; each succeeds or fails alone."""

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
    """The overrides it was made with."""


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
    """Delete topics; each succeeds or fails alone."""

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
    """A topic shall have that many partitions."""

    name: str
    partition_count: int
    """The new total."""
    assignments: tuple[tuple[BrokerId, ...], ...] = ()
    """Replicas of each *new* partition; empty lets the controller place them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitions(Request["CreatePartitionsReply"]):
    """Add partitions; each topic succeeds or fails alone."""

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
    """The changes of one topic (its name), one broker (its id in text) or all brokers ("")."""

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
