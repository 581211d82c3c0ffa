"""What the API handlers may call: frozen bundles, built once by node.py.

May touch:  nothing, it only names the parts.     Must not touch: everything.
Invariants: built complete; a handler reaches every part of the node through these and nothing else; what takes ControlServices
            needs no data lane, so that every node answers it on its admin listener too.
Read next:  registry.py, context.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from barnabas_broker.api.config import ApiConfig
from barnabas_broker.api.context import RequestContext
from barnabas_broker.api.metadata_bodies import MetadataBodies
from barnabas_broker.api.unserved import UnservedNotices
from barnabas_broker.security.access import AccessControl
from barnabas_broker.security.audit import AuditLog
from barnabas_broker.security.audit_config import AuditConfig
from barnabas_broker.telemetry.receiver import ClientTelemetry
from barnabas_quorum.controller.request import ActiveController, Request
from barnabas_quorum.raft.messages import VoterChange
from barnabas_quorum.raft.voters import Voter
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId
from barnabas_wire.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from barnabas_coordination.group.service import GroupCoordinator
    from barnabas_coordination.share.leader import SharePartitions
    from barnabas_coordination.share_state.service import ShareCoordinator
    from barnabas_coordination.transaction.service import TransactionCoordinator
    from barnabas_coordination.transaction.writes import TransactionalWrites
    from barnabas_quorum.driver.quorum_description import QuorumDescription
    from barnabas_quorum.image.metadata import MetadataImage
    from barnabas_replication.manager import ReplicaManager


T = TypeVar("T")


class MetadataSource(Protocol):
    """Holds the image that this node answers from (broker/metadata/cache.py)."""

    @property
    def image(self) -> MetadataImage:
        """The current image; swapped as a whole, never changed in place."""
        ...


class ProducerIdSource(Protocol):
    """Gives out producer ids, each once in a cluster."""

    async def next_id(self) -> int:
        """The next producer id; raises a retriable KafkaError while no controller answers."""
        ...


class BrokerKey(NamedTuple):
    """One key of this node's properties, as DescribeConfigs reports it."""

    name: str
    value: str
    """The value in effect, from the properties file or the default."""
    default: str | None
    """None for a key that must be given, or that stands for nothing when it is not."""
    type_name: str
    """boolean, int, double, string or list."""
    doc: str
    is_set: bool
    """True when the properties file sets it."""
    is_sensitive: bool = False
    """The value is a secret: it is described as null."""


class ChangeVoters(Protocol):
    """Has the quorum's leader change who votes, on behalf of `principal`; ends when that is committed. Raises the KafkaError that
    refuses it."""

    def __call__(self, change: VoterChange, *, principal: str, client_host: str) -> Awaitable[None]:
        """`client_host`: the address that the principal came from."""
        ...


async def refuse_voter_change(change: VoterChange, *, principal: str, client_host: str) -> None:
    """Refuse the change: this broker reaches no quorum."""
    raise KafkaError.of(
        ErrorCode.BROKER_NOT_AVAILABLE, f"no quorum is known here that could {change.kind.value} a voter"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlServices:
    """What a handler may call that only reads the metadata and asks the controller: every node has it, on either lane."""

    node_id: BrokerId
    cluster_id: str
    config: ApiConfig
    metadata: MetadataSource
    controller: ActiveController
    clock_ms: Callable[[], int]
    """Wall clock, ms since 1970."""
    broker_keys: Callable[[], Sequence[BrokerKey]]
    """The node's own keys with their values, for DescribeConfigs."""
    audit: AuditLog = field(default_factory=lambda: AuditLog(AuditConfig(), node_id=-1, clock_ms=lambda: 0))
    """The audit log of this node; by default it writes nothing."""

    def ask(self, context: RequestContext, request: Request[T]) -> Coroutine[Any, Any, T]:
        """Have the active controller decide for the client, with its rights. Raises the KafkaError that refuses it."""
        return self.controller.ask(request, principal=context.principal, client_host=context.client_host)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerServices(ControlServices):
    """Everything that a handler may call."""

    auto_listeners: frozenset[str] = frozenset()
    """Listeners whose clients are told the address of this node that they came to."""
    replica_manager: ReplicaManager
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    shares: SharePartitions
    """Share groups in the partitions that this broker leads."""
    transactional: TransactionalWrites
    """Writes that are part of a transaction, once its coordinator knows of them."""
    share_state: ShareCoordinator
    producer_ids: ProducerIdSource
    quorum_description: Callable[[], Awaitable[QuorumDescription]]
    """The quorum as this node's driver sees it."""
    voters: Callable[[], Sequence[Voter]] = tuple
    """The voters of the metadata quorum, with the addresses of their controller listeners."""
    change_voters: ChangeVoters = refuse_voter_change
    access: AccessControl = field(default_factory=AccessControl)
    """Gives each connection its access; by default, everything."""
    metadata_bodies: MetadataBodies = field(default_factory=MetadataBodies)
    """Encoded Metadata answers of the current image."""
    streams_topics: set[str] = field(default_factory=set)
    """Internal topics of Streams groups that this broker is having made now."""
    telemetry: ClientTelemetry = field(default_factory=ClientTelemetry)
    """What clients push of their own metrics; by default it is not received."""
    unserved: UnservedNotices = field(default_factory=UnservedNotices)
    """Refuses what this version does not serve."""
