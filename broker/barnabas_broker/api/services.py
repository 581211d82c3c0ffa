"""What the API handlers may call: one frozen bundle, built once by node.py.

May touch:  nothing, it only names the parts.     Must not touch: everything.
Invariants: built complete; a handler reaches every part of the broker through this and nothing else.
Read next:  registry.py, context.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from barnabas_broker.api.config import ApiConfig
from barnabas_broker.api.context import ANONYMOUS
from barnabas_broker.api.metadata_bodies import MetadataBodies
from barnabas_quorum.controller.requests import (
    AlteredConfig,
    ConfigAlteration,
    CreatableTopic,
    CreatedTopic,
    DeletedTopic,
    GrownTopic,
    TopicGrowth,
    TopicReference,
)
from barnabas_quorum.raft.voters import Voter
from barnabas_wire.kafka.ids import BrokerId

if TYPE_CHECKING:
    from barnabas_quorum.image.metadata import MetadataImage


class MetadataSource(Protocol):
    """Holds the image that this node answers from (broker/metadata/cache.py)."""

    @property
    def image(self) -> MetadataImage:
        """The current image; swapped as a whole, never changed in place."""
        ...


class ControllerVerbs(Protocol):
    """What handlers ask of the active controller (broker/controller_client.py): one outcome per item, in order; each raises
    KafkaError when it fails whole."""

    async def create_topics(
        self, topics: Sequence[CreatableTopic], *, validate_only: bool = False, principal: str = ANONYMOUS
    ) -> Sequence[CreatedTopic]: ...

    async def delete_topics(
        self, topics: Sequence[TopicReference], *, principal: str = ANONYMOUS
    ) -> Sequence[DeletedTopic]: ...

    async def create_partitions(
        self, topics: Sequence[TopicGrowth], *, validate_only: bool = False, principal: str = ANONYMOUS
    ) -> Sequence[GrownTopic]: ...

    async def incremental_alter_configs(
        self, resources: Sequence[ConfigAlteration], *, validate_only: bool = False, principal: str = ANONYMOUS
    ) -> Sequence[AlteredConfig]: ...


class ProducerIdSource(Protocol):
    """Gives out producer ids, each once in the life of the cluster."""

    async def next_id(self) -> int:
        """The next producer id; raises a retriable KafkaError while no controller answers."""
        ...


class BrokerKey(NamedTuple):
    """One key of this node's properties, as DescribeConfigs reports it."""

    name: str
    value: str
    """In effect, from the properties file or the default."""
    default: str | None
    """None for a key that must be given, or that stands for nothing when it is not."""
    type_name: str
    """boolean, int, double, string or list."""
    doc: str
    is_set: bool
    """True when the properties file sets it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerServices:
    """Everything that a handler may call."""

    node_id: BrokerId
    cluster_id: str
    config: ApiConfig
    replica_manager: Any
    """barnabas_replication.manager.ReplicaManager"""
    metadata: MetadataSource
    controller: ControllerVerbs
    groups: Any
    """coordinator/group/service.py: GroupCoordinator"""
    producer_ids: ProducerIdSource
    clock_ms: Callable[[], int]
    """Wall clock, ms since 1970."""
    quorum_description: Callable[[], Any]
    """-> QuorumDescription of this node's quorum driver, or an awaitable of one."""
    broker_keys: Callable[[], Sequence[BrokerKey]]
    """The node's own keys with their values, for DescribeConfigs."""
    voters: Sequence[Voter] = ()
    """Of the metadata quorum, with the addresses of their controller listeners."""
    metadata_bodies: MetadataBodies = field(default_factory=MetadataBodies)
    """Encoded Metadata answers of the current image."""
