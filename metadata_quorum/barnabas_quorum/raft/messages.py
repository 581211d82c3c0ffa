"""The core's input and output: requests, replies, and Ready.

May touch:  nothing.                  Must not touch: asyncio, clock, log, network.
Invariants: data only; the core copies the `correlation` of a request into its reply without interpreting it; records are an
            opaque payload, the core reads only offsets and epochs.
Read next:  core.py.

Plain slots classes, not frozen ones: a simulated hour creates a million of them, and freezing costs 3.5 times (measured).
"""

from __future__ import annotations

from dataclasses import field
from enum import Enum, IntEnum
from typing import Any, NamedTuple

from barnabas_quorum.raft.voters import ReplicaKey, Voter, VoterSet
from barnabas_wire.kafka.ids import BrokerId, Epoch, Offset
from barnabas_wire.lazy_dataclass import dataclass


class ReplyError(IntEnum):
    """The errors of a reply; the numbers are Kafka's error codes."""

    NONE = 0
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    CLUSTER_AUTHORIZATION_FAILED = 31
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
    has_begun: bool = False
    """Every initial voter was blank when this replica began (inquiry.py): if its log is empty, then nothing is lost."""


class LeaderAndEpoch(NamedTuple):
    """The leader of the quorum; None while it is unknown."""

    leader_id: BrokerId | None
    epoch: Epoch


class CommittedBatch(NamedTuple):
    """One committed batch of metadata records, as the listener gets it."""

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
    """Vote or pre-vote (KIP-996). A pre-vote carries the sender's present epoch, not the next one."""

    correlation: int
    source: ReplicaKey
    target: ReplicaKey
    epoch: Epoch
    last_epoch: Epoch
    """Epoch of the last record in the sender's log, 0 when it is empty."""
    end_offset: Offset
    is_pre_vote: bool
    life: int = 0
    """The life in which the target told the sender that it is blank, once it has turned out that all initial voters were at one
    moment; 0 otherwise (inquiry.py)."""


@dataclass(slots=True)
class VoteReply:
    """Reply to VoteRequest; `is_pre_vote` repeats the request's."""

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
    life: int = 0
    """Of a blank replica, the number of this life of its process; -1 of one that gets back what it has lost; 0 of any other, and
    of a version before this field (inquiry.py)."""


@dataclass(slots=True)
class BeginQuorumEpochRequest:
    """The new leader announces itself."""

    correlation: int
    source: ReplicaKey
    target: ReplicaKey
    epoch: Epoch
    leader: Voter | None = None
    """The sender with its address: the receiver may have a voter set without it."""


@dataclass(slots=True)
class BeginQuorumEpochReply:
    """Reply to BeginQuorumEpochRequest."""

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
    """The leader resigns; the `successors` with most of the log come first."""

    correlation: int
    source: ReplicaKey
    target: ReplicaKey
    epoch: Epoch
    successors: tuple[ReplicaKey, ...]


@dataclass(slots=True)
class EndQuorumEpochReply:
    """Reply to EndQuorumEpochRequest."""

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
    """Ask for the records from `fetch_offset` on, and acknowledge all below it as durable here (as in KRaft)."""

    correlation: int
    source: ReplicaKey
    target: ReplicaKey
    epoch: Epoch
    fetch_offset: Offset
    last_epoch: Epoch
    """Epoch of the record before fetch_offset, 0 when there is none."""
    high_watermark: Offset
    """The sender's high watermark; the leader answers at once when it has a higher one (KIP-1166)."""
    wait_ms_max: int
    clock_ms: int = 0
    """The sender's wall clock, set and read by the drivers."""


@dataclass(slots=True)
class FetchReply:
    """Reply to FetchRequest.

    The leader's core fills `base_offset` and `end_offset` with the range that may be read; the driver reads whole batches from
    it, sets `payload`, `epochs` and the `end_offset` really read. The follower's core reads the numbers and passes `payload`
    on in Ready.appends.
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
    """The largest epoch not above the requested one, and its *end* offset at the leader; None when the logs agree."""
    epochs: tuple[EpochStart, ...] = ()
    """Every change of epoch inside the payload; the first entry is at base_offset."""
    payload: Any = None
    snapshot_id: SnapshotId | None = None
    """The requested records are only in this snapshot; the reply has no records then."""
    voter_sets: tuple[tuple[Offset, VoterSet], ...] = ()
    """Every Voters control record inside the payload with its offset; set by the driver, like epochs."""
    leader: Voter | None = None
    """The leader with its address, once known: the asker may have a voter set without it."""


@dataclass(slots=True)
class FetchSnapshotRequest:
    """Ask for a slice of a snapshot (KIP-630). Acknowledges nothing, but shows that the sender is alive."""

    correlation: int
    source: ReplicaKey
    target: ReplicaKey
    epoch: Epoch
    snapshot_id: SnapshotId
    position: int
    """Byte position in the file."""
    bytes_max: int


@dataclass(slots=True)
class FetchSnapshotReply:
    """Reply to FetchSnapshotRequest.

    The leader's core decides whether the slice may be read and how much of it (`bytes_max`). The driver reads it and sets
    `size` and `payload`; `error` becomes POSITION_OUT_OF_RANGE when position is not below the size, SNAPSHOT_NOT_FOUND
    when the file has just been deleted.
    """

    correlation: int
    source: ReplicaKey
    target: ReplicaKey
    epoch: Epoch
    leader_id: BrokerId
    error: ReplyError
    snapshot_id: SnapshotId
    size: int
    """Size of the whole file in bytes."""
    position: int
    payload: Any = b""
    """Bytes. The core reads only their length."""
    bytes_max: int = 0
    """Not on the wire: how much the leader's driver may read."""
    leader: Voter | None = None
    """The leader with its address, once known: the asker may have a voter set without it."""


Request = VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest | FetchRequest | FetchSnapshotRequest
Reply = VoteReply | BeginQuorumEpochReply | EndQuorumEpochReply | FetchReply | FetchSnapshotReply


@dataclass(slots=True)
class Unreachable:
    """Reported by the driver: this request got no answer (connection refused, time-out)."""

    correlation: int
    peer: ReplicaKey


Message = Request | Reply | Unreachable

# --- changes of the voter set -----------------------------------------------------------------------------------------


class VoterChangeKind(Enum):
    """The kinds of change to the voter set, one at a time (KIP-853)."""

    ADD = "add"
    REMOVE = "remove"
    UPDATE = "update"
    """Another address of the same replica."""
    UPGRADE = "upgrade"
    """From kraft.version 0 to 1: the set itself stays. Only on request."""


class VoterChange(NamedTuple):
    """A request to the leader to change the voter set."""

    kind: VoterChangeKind
    voter: Voter
    """REMOVE uses only its key, UPGRADE nothing."""
    correlation: int
    """Comes back in the VoterChangeResult."""
    joiner: ReplicaKey | None = None
    """The observer that asks for itself (auto-join); None when an operator asks. A replica that an operator has removed does not
    come back by itself."""

    @property
    def is_replicas_own(self) -> bool:
        """Whether a replica asks for itself, and no operator does."""
        return self.joiner is not None or self.kind is VoterChangeKind.UPDATE


class VoterRefusal(NamedTuple):
    """Why a change of the voter set was refused; the reason names the rule and the remedy. `is_passing`: the change itself is
    valid, and in a working quorum the obstacle passes by itself."""

    error: ReplyError
    reason: str
    is_passing: bool = False


class VoterChangeResult(NamedTuple):
    """How a change that was begun has ended: NONE when it is committed under the new set. REQUEST_TIMED_OUT when
    leadership was lost meanwhile: the change may still commit, or be undone. (Kafka returns NOT_LEADER_OR_FOLLOWER here, as
    for a change that was never begun and may safely be requested again.)"""

    correlation: int
    error: ReplyError
    reason: str


# --- to the driver ----------------------------------------------------------------------------------------------------


class LeaderChange(NamedTuple):
    """Payload of the control record that opens an epoch; the driver turns it into a control batch (KIP-595)."""

    leader: ReplicaKey
    voters: tuple[ReplicaKey, ...]
    granting: tuple[ReplicaKey, ...]


class Voters(NamedTuple):
    """Payload of a change of the voter set; the driver turns it into one control batch (KIP-853).

    One Voters record; with `writes_version`, a KRaftVersion record precedes it, and the append is two offsets long.
    The set counts from the offset of the Voters record, which is the last of the append.
    """

    voter_set: VoterSet
    writes_version: bool


@dataclass(slots=True)
class Append:
    """Write this at the end of the log. The payload is a proposed or fetched one, a LeaderChange, or a Voters."""

    base_offset: Offset
    end_offset: Offset
    epoch: Epoch
    payload: Any


class SnapshotPart(NamedTuple):
    """Write this into the snapshot being downloaded. Position 0 starts it again, whatever was there."""

    snapshot_id: SnapshotId
    position: int
    data: Any


@dataclass(slots=True)
class SnapshotInstall:
    """The download is complete: freeze it, then drop the whole log and restart it empty at the snapshot's end.

    The driver fills in what it found before it calls advance(); only then does the core's state change.
    """

    snapshot_id: SnapshotId
    voters: VoterSet | None = None
    """The voter set in the snapshot; None when it has none (kraft.version 0)."""
    is_damaged: bool = False
    """The file is not a complete snapshot: the driver deletes it and leaves the log unchanged. The core downloads it again."""


@dataclass(slots=True)
class Ready:
    """What the driver must do now, in the order of these numbers, before it calls advance().

    1. `hard_state` is saved and flushed. 2. `truncate_to` is done and flushed. 3. `snapshot_parts` are written. 4. `install`
    is done, durable, and filled in. 5. `appends` are written, and a flush starts; core.flushed() reports its end. 6. `send`
    goes out; it need not wait for the flush of 5, because the core acknowledges a record only after flushed(). 7. The callers
    that wait for `finished` get their answers. Then what the core's `high_watermark` passed may go to the listener.
    """

    hard_state: HardState | None = None
    truncate_to: Offset | None = None
    appends: list[Append] = field(default_factory=list)
    send: list[Request | Reply] = field(default_factory=list)
    snapshot_parts: list[SnapshotPart] = field(default_factory=list)
    install: SnapshotInstall | None = None
    finished: list[VoterChangeResult] = field(default_factory=list)
