"""What the API handlers may call: one frozen bundle, built once by node.py.

May touch:  nothing, it only names the parts.     Must not touch: everything.
Invariants: built complete; a handler reaches every part of the broker through this and nothing else.
Read next:  registry.py, context.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from barnabas_broker.api.config import ApiConfig
from barnabas_wire.kafka.ids import BrokerId

if TYPE_CHECKING:
    from barnabas_quorum.image.metadata import MetadataImage


class MetadataSource(Protocol):
    """Holds the image that this node answers from (broker/metadata/cache.py)."""

    @property
    def image(self) -> MetadataImage:
        """The current image; swapped as a whole, never changed in place."""
        ...


class ProducerIdSource(Protocol):
    """Gives out producer ids, each once in the life of the cluster."""

    async def next_id(self) -> int:
        """The next producer id; raises a retriable KafkaError while no controller answers."""
        ...


class BrokerKey(NamedTuple):
    """One broker-wide key as DescribeConfigs reports it."""

    name: str
    value: str
    default: str | None
    type_name: str
    """boolean, int, long, double, string or list."""
    doc: str
    is_set: bool
    """True when the node's properties file sets it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerServices:
    """Everything that a handler may call."""

    node_id: BrokerId
    cluster_id: str
    config: ApiConfig
    replica_manager: Any
    """barnabas_replication.manager.ReplicaManager"""
    metadata: MetadataSource
    controller: Any
    """broker/controller_client.py: the typed requests to the active controller."""
    groups: Any
    """coordinator/group/service.py: GroupCoordinator"""
    producer_ids: ProducerIdSource
    clock_ms: Callable[[], int]
    """Wall clock, ms since 1970."""
    quorum_description: Callable[[], Any]
    """-> QuorumDescription of this node's quorum driver, or an awaitable of one."""
    broker_keys: Callable[[], Sequence[BrokerKey]]
    """The node's own keys with their values, for DescribeConfigs."""
