"""What goes into a consumer group and what comes out, free of wire versions.

May touch:  nothing.                  Must not touch: everything.
Invariants: requests are validated by who handles them, never here; an outcome is a success, a refusal is a KafkaError.
Read next:  heartbeat.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from barnabas_coordination.group.consumer.member import Owned
from barnabas_coordination.group.consumer.records import ClassicOffer
from barnabas_coordination.group.led_records import Partitions
from barnabas_quorum.image.cluster import BrokerRegistration
from barnabas_quorum.image.topics import TopicsImage
from barnabas_wire.kafka.ids import BrokerId
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeat:
    """ConsumerGroupHeartbeat of one member. None: as it was."""

    group_id: str
    member_id: str
    epoch: int
    """As the member knows it; JOINS, LEAVES, LEAVES_FOR_A_WHILE."""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int | None = None
    topic_names: frozenset[str] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Owned | None = None
    client_id: str = ""
    client_host: str = ""
    may_describe: Callable[[str], bool] = lambda topic: True
    """Whether the member's principal may see a topic that a regular expression matches."""
    classic: ClassicOffer | None = None
    """Set for a JoinGroup of the classic protocol: see classic_members.py."""
    is_unnamed: bool = False
    """Whether a classic member came without an id, and the one here is new."""

    @property
    def is_full(self) -> bool:
        """Whether it says everything, as after a lost answer."""
        has_subscription = self.topic_names is not None or self.topic_regex is not None
        return self.rebalance_timeout_ms is not None and has_subscription and self.owned is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatOutcome:
    """What the member is told."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None
    """What it may use now; None: what it was told last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """What a group's configs come to, or the broker's in their place."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a step looks at beside its group."""

    topics: TopicsImage
    brokers: Mapping[BrokerId, BrokerRegistration]
    metadata_offset: int
    settings: GroupSettings
    default_assignor: str
    size_max: int
    """Members of the group."""
    regex_refresh_interval_ms: int
    now_ms: int


class FindingKind(Enum):
    """What a group waits for, and what is wrong with a member. The values go over the wire."""

    EMPTY = "empty"
    UNRESOLVED = "unresolved"
    """The regular expressions of `others` are being resolved."""
    UNASSIGNED = "unassigned"
    """Targets are due, with the next heartbeat of any member from ends_in_ms on."""
    ASSIGNING = "assigning"
    """Targets are in the making."""
    REVOKING = "revoking"
    """The member has to give up partitions, for which `others` wait; at the end of the time it is put out."""
    WAITING = "waiting"
    """The member waits for partitions that `others` hold."""
    BEHIND = "behind"
    """The member hears of the newest targets with its next heartbeat."""
    REJOINING = "rejoining"
    """The member, of the classic protocol, has to join again."""
    SILENT = "silent"
    """The member's heartbeat is late; at the end of the time it is put out."""
    AWAY = "away"
    """The static member left for a while; at the end of the time it is put out, and its partitions go to `others`."""


class Finding(NamedTuple):
    """One thing that explains a group: see explanation.py."""

    kind: FindingKind
    member_id: str = ""
    partitions: Partitions = MappingProxyType({})
    others: tuple[str, ...] = ()
    since_ms: int | None = None
    """How many milliseconds it has been so; None where that is not known."""
    ends_in_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMemberDescription:
    """One member as ConsumerGroupDescribe shows it."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    epoch: int
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    topic_regex: str | None
    assignment: Partitions
    """What it has and what it still has to give up."""
    target: Partitions
    is_classic: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupDescription:
    """One group as ConsumerGroupDescribe shows it."""

    group_id: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[ConsumerMemberDescription, ...]
    findings: tuple[Finding, ...] = ()
    """Where it was asked for."""
