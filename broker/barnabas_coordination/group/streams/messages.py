"""What goes into a Streams group and what comes out, free of wire versions.

May touch:  nothing.                  Must not touch: everything.
Invariants: requests are validated by who handles them, never here; an outcome is a success, a refusal is a KafkaError.
Read next:  heartbeat.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from barnabas_coordination.group.streams.internal_topics import ConfiguredTopology, Status
from barnabas_coordination.group.streams.records import Endpoint, MemberMetadata
from barnabas_coordination.group.streams.soft_state import TaskOffsets
from barnabas_coordination.group.streams.tasks import Task, Tasks
from barnabas_coordination.group.streams.topology import InternalTopic, Topology
from barnabas_quorum.image.topics import TopicsImage
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsHeartbeat:
    """StreamsGroupHeartbeat of one member. None: as it was."""

    group_id: str
    member_id: str
    epoch: int
    """As the member knows it; JOINS, LEAVES, LEAVES_FOR_A_WHILE."""
    endpoint_epoch: int = -1
    """The epoch of the endpoints that the member knows."""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int | None = None
    topology: Topology | None = None
    """Comes with joining alone."""
    owned: Tasks | None = None
    process_id: str | None = None
    endpoint: Endpoint | None = None
    """One that joins without has none."""
    client_tags: tuple[tuple[str, str], ...] | None = None
    offsets: Mapping[Task, int] | None = None
    end_offsets: Mapping[Task, int] | None = None
    shuts_down: bool = False
    """Whether it asks for the end of the application."""
    client_id: str = ""
    client_host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointPartitions:
    """What a member with an endpoint reads: topic -> partitions in order."""

    endpoint: Endpoint
    active: Mapping[str, tuple[int, ...]]
    standby: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsHeartbeatOutcome:
    """What the member is told."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int = 0
    task_offset_interval_ms: int = 0
    acceptable_recovery_lag: int = -1
    statuses: tuple[Status, ...] = ()
    tasks: Tasks | None = None
    """What it is to work on now; None: what it was told last."""
    endpoint_epoch: int = 0
    endpoints: tuple[EndpointPartitions, ...] | None = None
    """None: as it was told last."""
    to_create: tuple[InternalTopic, ...] = ()
    """Internal topics that are missing, for who hands out the answer to make."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsSettings:
    """What a group's configs come to, or the broker's in their place."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    initial_rebalance_delay_ms: int
    standby_replicas: int
    task_offset_interval_ms: int
    acceptable_recovery_lag: int
    rack_tags: tuple[str, ...]
    """Names of tags that members are asked for."""

    @property
    def assignment_configs(self) -> tuple[tuple[str, str], ...]:
        """The configs that targets follow from, as records have them."""
        tags = (("rack.aware.assignment.tags", ",".join(self.rack_tags)),) if self.rack_tags else ()
        return (("num.standby.replicas", str(self.standby_replicas)), *tags)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsSurroundings:
    """What a step looks at beside its group."""

    topics: TopicsImage
    settings: StreamsSettings
    size_max: int
    """Members of the group."""
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsMemberDescription:
    """One member as StreamsGroupDescribe shows it."""

    member_id: str
    epoch: int
    metadata: MemberMetadata
    offsets: TaskOffsets
    assignment: Tasks
    """What it has and what it still has to give up."""
    target: Tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsGroupDescription:
    """One group as StreamsGroupDescribe shows it."""

    group_id: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    topology: Topology | None
    configured: ConfiguredTopology = field(default_factory=ConfiguredTopology)
    members: tuple[StreamsMemberDescription, ...] = ()
