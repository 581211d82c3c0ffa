"""What goes into the core and what comes out of it: requests, replies, and Ready.

May touch:  nothing.                  Must not touch: asyncio, clock, log, network.
Invariants: data only; the core copies `correlation` of a request into its reply and reads no meaning into it; records
            pass through as an opaque payload, the core looks at offsets and epochs alone.
Read next:  core.py.

Plain slots classes, not frozen ones: a simulated hour makes a million of them, and freezing costs 3.5 times (measured).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

from barnabas_quorum.raft.voters import ReplicaKey
from barnabas_wire.kafka.ids import BrokerId, Epoch, Offset


class ReplyError(IntEnum):
    """What a replica may answer; the numbers are Kafka's error codes."""

    NONE = 0
    NOT_LEADER_OR_FOLLOWER = 6
    BROKER_NOT_AVAILABLE = 8
    INVALID_REQUEST = 42
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    INVALID_VOTER_KEY = 125


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


@dataclass(slots=True)
class BeginQuorumEpochRequest:
    """The new leader makes itself known."""

    correlation: int
    source: ReplicaKey
    target: ReplicaKey
    epoch: Epoch


@dataclass(slots=True)
class BeginQuorumEpochReply:
    """Answer to BeginQuorumEpochRequest."""

    correlation: int
    source: ReplicaKey
    target: ReplicaKey
    epoch: Epoch
    leader_id: BrokerId
    error: ReplyError


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


Request = VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest | FetchRequest
Reply = VoteReply | BeginQuorumEpochReply | EndQuorumEpochReply | FetchReply


@dataclass(slots=True)
class Unreachable:
    """Told by the driver: this request got no answer (connection refused, time-out)."""

    correlation: int
    peer: ReplicaKey


Message = Request | Reply | Unreachable

# --- to the driver ----------------------------------------------------------------------------------------------------


class LeaderChange(NamedTuple):
    """Payload of the control record that opens an epoch; the driver makes a control batch of it (KIP-595)."""

    leader: ReplicaKey
    voters: tuple[ReplicaKey, ...]
    granting: tuple[ReplicaKey, ...]


@dataclass(slots=True)
class Append:
    """Write this at the end of the log. The payload is what was proposed, fetched, or a LeaderChange."""

    base_offset: Offset
    end_offset: Offset
    epoch: Epoch
    payload: Any


@dataclass(slots=True)
class Ready:
    """What the driver must do now, in the order of the fields, before it calls advance().

    1. `hard_state` is saved and flushed. 2. `truncate_to` is done and flushed. 3. `appends` are written, and a flush is
    started, whose end is told by core.flushed(). 4. `send` goes out; it need not wait for the flush of 3, because the
    core speaks of a record's durability only after flushed(). Then what the core's `high_watermark` passed may go to the
    listener.
    """

    hard_state: HardState | None = None
    truncate_to: Offset | None = None
    appends: list[Append] = field(default_factory=list)
    send: list[Request | Reply] = field(default_factory=list)
