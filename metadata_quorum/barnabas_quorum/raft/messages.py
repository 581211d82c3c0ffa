"""What goes into the core and what comes out of it: requests, replies, and Ready.

May touch:  nothing.                  Must not touch: asyncio, clock, log, network.
Invariants: data only; the core copies `correlation` of a request into its reply and reads no meaning into it; records
            pass through as an opaque payload, the core looks at offsets and epochs alone.
Read next:  core.py.

Plain slots classes, not frozen ones: a simulated hour makes a million of them, and freezing costs 3.5 times (measured).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any, NamedTuple

from barnabas_quorum.raft.voters import ReplicaKey, Voter, VoterSet
from barnabas_wire.kafka.ids import BrokerId, Epoch, Offset


class ReplyError(IntEnum):
    """What a replica may answer; the numbers are Kafka's error codes."""

    NONE = 0
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    UNSUPPORTED_VERSION = 35
    INVALID_REQUEST = 42
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127


class HardState(NamedTuple):
    """What must survive a crash: the newest epoch seen, its leader, and whom this replica voted for in it."""

    epoch: Epoch
    leader_id: BrokerId
    """The known leader of this epoch, or -1."""
    voted: ReplicaKey | None


class LeaderAndEpoch(NamedTuple):
    """Who leads the quorum; None while nobody is known to."""

    leader_id: BrokerId | None
    epoch: Epoch


class CommittedBatch(NamedTuple):
    """One committed batch of metadata records, as its listener gets it."""

    base_offset: Offset
    epoch: Epoch
    append_timestamp_ms: int
    records: tuple[bytes, ...]

    @property
    def last_offset(self) -> Offset:
        """Offset of the last record."""
        return Offset(self.base_offset + len(self.records) - 1)


class EpochStart(NamedTuple):
    """The first offset written in an epoch."""

    epoch: Epoch
    start_offset: Offset


class SnapshotId(NamedTuple):
    """A snapshot of everything below an offset; it names its file (`<end offset>-<epoch>.checkpoint`)."""

    end_offset: Offset
    """Exclusive: the first record that is not in the snapshot."""
    epoch: Epoch
    """Epoch of the record at end_offset - 1."""

    def __str__(self) -> str:
        return f"{self.end_offset}-{self.epoch}"


# --- between replicas -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class VoteRequest:
    """Vote, or pre-vote (KIP-996): may I lead? A pre-vote carries the epoch the sender has, not the next one."""

    correlation: int
    source: ReplicaKey
    target: ReplicaKey
    epoch: Epoch
    last_epoch: Epoch
    """Epoch of the last record in the sender's log, 0 when it is empty."""
    end_offset: Offset
    is_pre_vote: bool


@dataclass(slots=True)
class VoteReply:
    """Answer to VoteRequest; `is_pre_vote` repeats the request's."""

    correlation: int
    source: ReplicaKey
    target: ReplicaKey
    epoch: Epoch
    leader_id: BrokerId
    error: ReplyError
    is_granted: bool
    is_pre_vote: bool
    leader: Voter | None = None
    """The leader with its address, once known: the asker may have a voter set without it."""


@dataclass(slots=True)
class BeginQuorumEpochRequest:
    """The new leader makes itself known."""

    correlation: int
    source: ReplicaKey
    target: ReplicaKey
    epoch: Epoch
    leader: Voter | None = None
    """The sender with its address: the receiver may have a voter set without it."""


@dataclass(slots=True)
class BeginQuorumEpochReply:
    """Answer to BeginQuorumEpochRequest."""

    correlation: int
    source: ReplicaKey
    target: ReplicaKey
    epoch: Epoch
    leader_id: BrokerId
    error: ReplyError
    leader: Voter | None = None
    """The leader with its address, once known: the asker may have a voter set without it."""


@dataclass(slots=True)
class EndQuorumEpochRequest:
    """The leader resigns; `successors` are ordered by how much of the log they have, best first."""

    correlation: int
    source: ReplicaKey
    target: ReplicaKey
    epoch: Epoch
    successors: tuple[ReplicaKey, ...]


@dataclass(slots=True)
class EndQuorumEpochReply:
    """Answer to EndQuorumEpochRequest."""

    correlation: int
    source: ReplicaKey
    target: ReplicaKey
    epoch: Epoch
    leader_id: BrokerId
    error: ReplyError
    leader: Voter | None = None
    """The leader with its address, once known: the asker may have a voter set without it."""


@dataclass(slots=True)
class FetchRequest:
    """Give me what follows, and: all below `fetch_offset` is durable here (the acknowledgement of KRaft)."""

    correlation: int
    source: ReplicaKey
    target: ReplicaKey
    epoch: Epoch
    fetch_offset: Offset
    last_epoch: Epoch
    """Epoch of the record before fetch_offset, 0 when there is none."""
    high_watermark: Offset
    """The high watermark the sender knows; the leader answers at once when it has a higher one (KIP-1166)."""
    wait_ms_max: int


@dataclass(slots=True)
class FetchReply:
    """Answer to FetchRequest.

    The leader's core fills `base_offset` and `end_offset` with the range that may be read; the driver reads whole
    batches from it, sets `payload`, `epochs` and the `end_offset` really read. The follower's core looks at the
    numbers and hands `payload` on in Ready.appends.
    """

    correlation: int
    source: ReplicaKey
    target: ReplicaKey
    epoch: Epoch
    leader_id: BrokerId
    error: ReplyError
    high_watermark: Offset
    base_offset: Offset
    end_offset: Offset
    diverging: EpochStart | None = None
    """The largest epoch not above the asked one, and its *end* offset at the leader; None when the logs agree."""
    epochs: tuple[EpochStart, ...] = ()
    """Every change of epoch inside the payload; the first entry is at base_offset."""
    payload: Any = None
    snapshot_id: SnapshotId | None = None
    """What the asker wants is only in this snapshot; there are no records then."""
    voter_sets: tuple[tuple[Offset, VoterSet], ...] = ()
    """Every Voters control record inside the payload with its own offset; filled by the driver, as epochs is."""
    leader: Voter | None = None
    """The leader with its address, once known: the asker may have a voter set without it."""


@dataclass(slots=True)
class FetchSnapshotRequest:
    """Give me a slice of a snapshot (KIP-630). Acknowledges nothing, but shows that the sender lives."""

    correlation: int
    source: ReplicaKey
    target: ReplicaKey
    epoch: Epoch
    snapshot_id: SnapshotId
    position: int
    """Byte in the file."""
    bytes_max: int


@dataclass(slots=True)
class FetchSnapshotReply:
    """Answer to FetchSnapshotRequest.

    The leader's core answers whether the slice may be read and how much of it (`bytes_max`). The driver reads it and sets
    `size` and `payload`; `error` becomes POSITION_OUT_OF_RANGE when position is not below the size, SNAPSHOT_NOT_FOUND
    when the file has just gone.
    """

    correlation: int
    source: ReplicaKey
    target: ReplicaKey
    epoch: Epoch
    leader_id: BrokerId
    error: ReplyError
    snapshot_id: SnapshotId
    size: int
    """Of the whole file, bytes."""
    position: int
    payload: Any = b""
    """Bytes. The core looks at their length alone."""
    bytes_max: int = 0
    """Not on the wire: how much the leader's driver may read."""
    leader: Voter | None = None
    """The leader with its address, once known: the asker may have a voter set without it."""


Request = VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest | FetchRequest | FetchSnapshotRequest
Reply = VoteReply | BeginQuorumEpochReply | EndQuorumEpochReply | FetchReply | FetchSnapshotReply


@dataclass(slots=True)
class Unreachable:
    """Told by the driver: this request got no answer (connection refused, time-out)."""

    correlation: int
    peer: ReplicaKey


Message = Request | Reply | Unreachable

# --- changes of the voter set -----------------------------------------------------------------------------------------


class VoterChangeKind(Enum):
    """What may be asked of the voter set, one at a time (KIP-853)."""

    ADD = "add"
    REMOVE = "remove"
    UPDATE = "update"
    """Another address of the same replica."""
    UPGRADE = "upgrade"
    """From kraft.version 0 to 1: the set itself stays. Never done unasked."""


class VoterChange(NamedTuple):
    """A wish to change the voter set, to the leader."""

    kind: VoterChangeKind
    voter: Voter
    """REMOVE looks at its key alone, UPGRADE at nothing."""
    correlation: int
    """Comes back in the VoterChangeResult."""
    joiner: ReplicaKey | None = None
    """The observer that asks for itself (auto-join); None when an operator asks. Whom an operator has removed does not
    come back by itself."""


class VoterRefusal(NamedTuple):
    """Why a change of the voter set is not begun; the reason names the rule and the way out. `is_passing`: nothing is wrong
    with the change, and what stands in its way goes by itself in a working quorum."""

    error: ReplyError
    reason: str
    is_passing: bool = False


class VoterChangeResult(NamedTuple):
    """How a change that was begun has ended: NONE when it is committed under the new set. REQUEST_TIMED_OUT when
    leadership was lost meanwhile: the change may still commit, or be undone. (Kafka says NOT_LEADER_OR_FOLLOWER here, which
    cannot be told from a change that was never begun and may safely be asked for again.)"""

    correlation: int
    error: ReplyError
    reason: str


# --- to the driver ----------------------------------------------------------------------------------------------------


class LeaderChange(NamedTuple):
    """Payload of the control record that opens an epoch; the driver makes a control batch of it (KIP-595)."""

    leader: ReplicaKey
    voters: tuple[ReplicaKey, ...]
    granting: tuple[ReplicaKey, ...]


class Voters(NamedTuple):
    """Payload of a change of the voter set; the driver makes one control batch of it (KIP-853).

    One Voters record; when `writes_version`, a KRaftVersion record goes before it, and the append is two offsets long.
    The set counts from the offset of the Voters record, which is the last of the append.
    """

    voter_set: VoterSet
    writes_version: bool


@dataclass(slots=True)
class Append:
    """Write this at the end of the log. The payload is what was proposed, fetched, a LeaderChange, or a Voters."""

    base_offset: Offset
    end_offset: Offset
    epoch: Epoch
    payload: Any


class SnapshotPart(NamedTuple):
    """Write this into the snapshot being downloaded. Position 0 begins it anew, whatever was there."""

    snapshot_id: SnapshotId
    position: int
    data: Any


@dataclass(slots=True)
class SnapshotInstall:
    """The download is complete: freeze it, then drop the whole log and restart it empty at the snapshot's end.

    The driver fills in what it found before it calls advance(), which only then changes what the core knows.
    """

    snapshot_id: SnapshotId
    voters: VoterSet | None = None
    """The voter set in the snapshot; None when it holds none (kraft.version 0)."""
    is_damaged: bool = False
    """The file is not a whole snapshot: it is thrown away, the log was left alone. The core downloads it again."""


@dataclass(slots=True)
class Ready:
    """What the driver must do now, in the order of these numbers, before it calls advance().

    1. `hard_state` is saved and flushed. 2. `truncate_to` is done and flushed. 3. `snapshot_parts` are written. 4. `install`
    is done, durable, and filled in. 5. `appends` are written, and a flush is started, whose end is told by core.flushed().
    6. `send` goes out; it need not wait for the flush of 5, because the core speaks of a record's durability only after
    flushed(). 7. Whoever waits for `finished` is answered. Then what the core's `high_watermark` passed may go to the
    listener.
    """

    hard_state: HardState | None = None
    truncate_to: Offset | None = None
    appends: list[Append] = field(default_factory=list)
    send: list[Request | Reply] = field(default_factory=list)
    snapshot_parts: list[SnapshotPart] = field(default_factory=list)
    install: SnapshotInstall | None = None
    finished: list[VoterChangeResult] = field(default_factory=list)
