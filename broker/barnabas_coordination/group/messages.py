"""What goes into the group state machine and what comes out, free of wire versions.

May touch:  nothing.                  Must not touch: everything.
Invariants: requests are validated by who handles them, never here; an outcome is a success, a refusal is a KafkaError.
Read next:  classic.py.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import ZERO_UUID, Epoch, Offset, Uuid
from barnabas_wire.lazy_dataclass import dataclass

NO_MEMBER = ""
NO_GENERATION = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """JoinGroup of one member."""

    group_id: str
    member_id: str
    """Empty for a member that has none yet."""
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    """(name, metadata) by falling preference."""
    requires_member_id: bool = True
    """KIP-394 (JoinGroup v4): a new dynamic member first gets its id and must come again with it."""
    supports_skipping_assignment: bool = True
    """KIP-814 (JoinGroup v9): a static leader that comes back may be asked not to assign again."""


class JoinedMember(NamedTuple):
    """What the leader learns of a member."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinOutcome:
    """A member's place in a generation."""

    generation: int
    protocol_type: str | None
    protocol_name: str | None
    leader_id: str
    member_id: str
    members: tuple[JoinedMember, ...] = ()
    """Everyone, for the leader; empty for the others."""
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRef:
    """The member that sends a request, and its generation: Heartbeat, and the head of SyncGroup and OffsetCommit."""

    group_id: str
    member_id: str
    generation: int = NO_GENERATION
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """SyncGroup; the leader's carries the assignments."""

    member: MemberRef
    protocol_type: str | None = None
    """None in versions before 5: not checked."""
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncOutcome:
    """A member's assignment."""

    protocol_type: str | None
    protocol_name: str | None
    assignment: bytes


class LeavingMember(NamedTuple):
    """One member of a LeaveGroup; an empty member id with an instance id removes a static member by name (KIP-571)."""

    member_id: str
    instance_id: str | None


class LeaveOutcome(NamedTuple):
    """What became of one leaving member."""

    member_id: str
    instance_id: str | None
    error: ErrorCode


class OffsetToCommit(NamedTuple):
    """One partition of an OffsetCommit."""

    topic: str
    partition: int
    offset: Offset
    leader_epoch: Epoch
    metadata: str
    topic_id: Uuid = ZERO_UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommit:
    """OffsetCommit of one group."""

    member: MemberRef
    offsets: tuple[OffsetToCommit, ...]
    retention_ms: int = -1
    """Versions 2 to 4: how long the offsets live; -1 = as the broker is configured."""
    knows_epochs: bool = True
    """Whether the version knows the codes of the consumer protocol: OffsetCommit v9, TxnOffsetCommit v6, and later."""


class CommittedOffset(NamedTuple):
    """What a group has committed for one partition; offset -1 when nothing. topic_id: ZERO_UUID when it is not known."""

    offset: Offset
    leader_epoch: Epoch
    metadata: str
    topic_id: Uuid = ZERO_UUID


class MemberDescription(NamedTuple):
    """One member as DescribeGroups shows it; metadata and assignment are empty unless the group is Stable."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """One group as DescribeGroups shows it."""

    group_id: str
    state: str
    protocol_type: str
    protocol_name: str
    members: tuple[MemberDescription, ...]


class GroupListing(NamedTuple):
    """One group as ListGroups shows it."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str
