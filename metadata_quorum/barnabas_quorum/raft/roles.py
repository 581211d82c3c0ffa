"""The roles of a replica, one class each, and the table of legal changes.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: only Prospective becomes Candidate (KIP-996), only Candidate becomes Leader, a Leader leaves by Resigned or
            by a higher epoch. The epoch, its leader and the vote are in the core's hard state and not here, so no change of
            role within an epoch can forget a vote (the bug fixed in Kafka 4.0).
Read next:  election.py.
"""

from __future__ import annotations

from dataclasses import field

from barnabas_quorum.raft.messages import FetchRequest, SnapshotId, VoterChange
from barnabas_quorum.raft.voters import ReplicaKey, Voter
from barnabas_wire.kafka.ids import NO_OFFSET, Epoch, Offset
from barnabas_wire.lazy_dataclass import dataclass

NEVER_MS = 1 << 62
"""A deadline that never comes."""
NO_RECOVERY = Epoch(0)


@dataclass(slots=True)
class Tally:
    """Votes of one election. `resend_ms` has the voters that have not answered, and when to ask them again."""

    granted: set[ReplicaKey]
    rejected: set[ReplicaKey]
    resend_ms: dict[ReplicaKey, int]


@dataclass(slots=True)
class Unattached:
    """Follows nobody: knows no leader of its epoch, or cannot follow it. An observer's deadline never comes."""

    election_deadline_ms: int


@dataclass(slots=True)
class Prospective:
    """Asks for pre-votes in its present epoch before it raises it."""

    election_deadline_ms: int
    tally: Tally


@dataclass(slots=True)
class Candidate:
    """Has raised the epoch, voted for itself, and asks for votes."""

    election_deadline_ms: int
    tally: Tally


@dataclass(slots=True)
class Download:
    """A snapshot being downloaded from the leader of this epoch, even while that leader is unreachable. It never continues
    with another leader, whose file may have different bytes."""

    snapshot_id: SnapshotId
    position: int = 0
    """Bytes received."""
    size: int = -1
    """Size of the whole file according to the first slice; -1 before it."""


@dataclass(slots=True)
class Follower:
    """Fetches from the leader of its epoch."""

    leader: ReplicaKey
    fetch_deadline_ms: int
    """The leader counts as lost unless a fetch succeeds before."""
    has_fetched: bool = False
    """Whether a fetch from this leader succeeded in this epoch; then this replica refuses pre-votes."""
    is_leader_lost: bool = False
    """The leader resigned or its address is dead: grant pre-votes again. Only a hint; a successful fetch clears it."""
    endpoint: Voter | None = None
    """The leader with its address, which need not be in this replica's voter set."""
    is_caught_up: bool = False
    """Whether the last fetch returned everything committed."""


@dataclass(slots=True)
class ReplicaProgress:
    """One replica as the leader knows it; times in ms, -1 before the first."""

    end_offset: Offset
    """Everything below is durable there, according to its last fetch."""
    last_fetch_ms: int
    last_caught_up_ms: int
    end_offset_at_last_fetch: Offset
    """The leader's end when that fetch arrived, even one that diverged or asked for a snapshot: a replica that reaches it by the
    next fetch was caught up then."""
    parked: FetchRequest | None = None
    """A fetch that waits because there is nothing to answer yet."""
    parked_until_ms: int = NEVER_MS
    begin_due_ms: int = NEVER_MS
    """When BeginQuorumEpoch is sent (again), unless it fetches before; voters only."""
    is_voter: bool = False


@dataclass(slots=True)
class Leader:
    """Writes the log of its epoch and counts the replicas that have it."""

    epoch_start: Offset
    """Only records from here on commit by count (Raft 5.4.2); the first is the LeaderChange record."""
    check_quorum_deadline_ms: int
    voters: dict[ReplicaKey, ReplicaProgress]
    """The other voters."""
    observers: dict[ReplicaKey, ReplicaProgress] = field(default_factory=dict)
    endpoint: Voter | None = None
    """This replica with its address, even while it is being removed from the voter set."""
    pending: VoterChange | None = None
    """The change of the voter set that a caller waits for."""
    recovered_epoch: Epoch = NO_RECOVERY
    """The offset of the last quorum recovery in its log. Lost voters may have decided otherwise about what lies below; the
    records right behind make that harmless. So no replica learns that the former is committed before it has the latter."""
    urgent_end: Offset = NO_OFFSET
    """The replicas learn of commits up to here at once, of later ones with the next answer that they get anyway."""


@dataclass(slots=True)
class Resigned:
    """Was leader of this epoch and will not be again: its unflushed tail may be gone, and an (epoch, offset) must
    never name two different records. Votes for nobody in this epoch."""

    election_deadline_ms: int
    successors: tuple[ReplicaKey, ...]
    """Best first; the order determines how long each voter waits before it runs."""
    resend_ms: dict[ReplicaKey, int]
    """The voters that have not acknowledged EndQuorumEpoch."""


Role = Unattached | Prospective | Candidate | Follower | Leader | Resigned

LEGAL_CHANGES: dict[type, frozenset[type]] = {
    Unattached: frozenset({Unattached, Prospective, Follower}),
    Prospective: frozenset({Unattached, Candidate, Follower}),
    Candidate: frozenset({Unattached, Prospective, Follower, Leader}),
    Follower: frozenset({Unattached, Prospective, Follower}),
    Leader: frozenset({Unattached, Follower, Resigned}),
    Resigned: frozenset({Unattached, Follower}),
}
