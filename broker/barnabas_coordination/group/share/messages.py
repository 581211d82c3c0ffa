"""What goes into a share group and what comes out, free of wire versions.

May touch:  nothing.                  Must not touch: everything.
Invariants: requests are validated by who handles them, never here; an outcome is a success, a refusal is a KafkaError.
Read next:  heartbeat.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import NamedTuple

from barnabas_coordination.group.led_records import Partitions
from barnabas_coordination.group.share.records import ShareMemberMetadata, StatePartitions
from barnabas_coordination.share_settings import ShareSettings
from barnabas_coordination.share_state.messages import ShareKey
from barnabas_quorum.image.topics import TopicsImage
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import Offset
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareHeartbeat:
    """ShareGroupHeartbeat of one member. None: as it was."""

    group_id: str
    member_id: str
    epoch: int
    """As the member knows it; JOINS, LEAVES."""
    rack_id: str | None = None
    topic_names: frozenset[str] | None = None
    client_id: str = ""
    client_host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareSurroundings:
    """What a step looks at beside its group."""

    topics: TopicsImage
    settings: ShareSettings
    size_max: int
    """Members of the group."""
    now_ms: int


class StateWork(NamedTuple):
    """What share coordinators are to be asked for one group."""

    state_epoch: int
    begin: Mapping[ShareKey, Offset]
    end: tuple[ShareKey, ...]

    def __bool__(self) -> bool:
        return bool(self.begin or self.end)


class StateDone(NamedTuple):
    """What came of it: None, or why not."""

    state_epoch: int
    begun: Mapping[ShareKey, KafkaError | None]
    ended: Mapping[ShareKey, KafkaError | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMemberDescription:
    """One member as ShareGroupDescribe shows it."""

    member_id: str
    epoch: int
    metadata: ShareMemberMetadata
    assignment: Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupDescription:
    """One group as ShareGroupDescribe shows it."""

    group_id: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[ShareMemberDescription, ...] = ()
    states: StatePartitions = field(default_factory=StatePartitions)
