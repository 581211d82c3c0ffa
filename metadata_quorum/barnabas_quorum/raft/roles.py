"""What a replica can be, one class each, and the table of legal changes.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: only Prospective becomes Candidate (KIP-996), only Candidate becomes Leader, a Leader leaves by Resigned or
            by a higher epoch. The epoch, its leader and the vote are not here but in the core's hard state: so no
            change of role within an epoch can forget a vote (the bug fixed in Kafka 4.0).
Read next:  election.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from barnabas_quorum.raft.messages import FetchRequest, SnapshotId, VoterChange
from barnabas_quorum.raft.voters import ReplicaKey, Voter
from barnabas_wire.kafka.ids import NO_OFFSET, Epoch, Offset

NEVER_MS = 1 << 62
"""A deadline that does not come."""
NO_RECOVERY = Epoch(0)


@dataclass(slots=True)
class Tally:
    """Votes of one election. `resend_ms` holds the voters that have not answered, and when to ask them again."""

    granted: set[ReplicaKey]
    rejected: set[ReplicaKey]
    resend_ms: dict[ReplicaKey, int]


@dataclass(slots=True)
class Unattached:
    """Follows nobody: knows no leader of its epoch, or cannot follow it. An observer's deadline never comes."""

    election_deadline_ms: int


@dataclass(slots=True)
class Prospective:
    """Asks for pre-votes in its present epoch before it dares to raise it."""

    election_deadline_ms: int
    tally: Tally


@dataclass(slots=True)
class Candidate:
    """Has raised the epoch, voted for itself, and asks for votes."""

    election_deadline_ms: int
    tally: Tally


@dataclass(slots=True)
class Download:
    """A snapshot on its way from the leader of this epoch, also while that leader is out of sight. It never goes on with
    another leader, whose file may differ in its bytes."""

    snapshot_id: SnapshotId
    position: int = 0
    """Bytes that have come."""
    size: int = -1
    """Of the whole file, as the first slice said; -1 before it."""


@dataclass(slots=True)
class Follower:
    """Fetches from the leader of its epoch."""

    leader: ReplicaKey
    fetch_deadline_ms: int
    """Without a successful fetch until then the leader counts as lost."""
    has_fetched: bool = False
    """Whether a fetch from this leader succeeded in this epoch; then a pre-vote is refused."""
    is_leader_lost: bool = False
    """The leader resigned or its address is dead: a pre-vote is granted again. A hint only; a fetch takes it back."""
    endpoint: Voter | None = None
    """The leader with its address, which the voter set here need not hold."""
    is_caught_up: bool = False
    """Whether the last fetch left nothing committed out."""


@dataclass(slots=True)
class ReplicaProgress:
    """One replica as the leader knows it; times in ms, -1 before the first."""

    end_offset: Offset
    """Everything below is durable there, as its last fetch said."""
    last_fetch_ms: int
    last_caught_up_ms: int
    end_offset_at_last_fetch: Offset
    """The leader's own end when that fetch came, also one that diverged or asked for a snapshot: who has reached it by the
    next one was caught up then."""
    parked: FetchRequest | None = None
    """A fetch with nothing to answer yet."""
    parked_until_ms: int = NEVER_MS
    begin_due_ms: int = NEVER_MS
    """When BeginQuorumEpoch is sent (again), unless it fetches before; voters only."""
    is_voter: bool = False


@dataclass(slots=True)
class Leader:
    """Writes the log of its epoch and counts who has it."""

    epoch_start: Offset
    """Only records from here on commit by count (Raft 5.4.2); the first is the LeaderChange record."""
    check_quorum_deadline_ms: int
    voters: dict[ReplicaKey, ReplicaProgress]
    """The other voters."""
    observers: dict[ReplicaKey, ReplicaProgress] = field(default_factory=dict)
    endpoint: Voter | None = None
    """This replica with its address, also while it is being removed from the voter set."""
    pending: VoterChange | None = None
    """The change of the voter set that somebody waits for."""
    recovered_epoch: Epoch = NO_RECOVERY
    """Of the last recovery of the quorum in its log. What lies below may have been decided otherwise by voters that were lost, and
    what makes that harmless stands right behind: nobody is told that the one is committed before it has the other."""
    urgent_end: Offset = NO_OFFSET
    """Up to here commits are told to the replicas at once, beyond with the next answer that they get anyway."""


@dataclass(slots=True)
class Resigned:
    """Was leader of this epoch and will not be again: its unflushed tail may be gone, and an (epoch, offset) must
    never name two different records. Votes for nobody in this epoch."""

    election_deadline_ms: int
    successors: tuple[ReplicaKey, ...]
    """Best first; the order tells each voter how long to wait before it runs."""
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
