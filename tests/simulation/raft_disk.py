"""The disk of one simulated replica, and the replica around it: a log that may begin with a snapshot, and snapshots.

May touch:  its arguments.            Must not touch: the core's decisions, clock, files.
Invariants: what a crash leaves is what an ordered sequence of writes, flushes and renames could leave; a snapshot is the
            digest of what it stands for, so that one taken from a wrong prefix is seen for what it is.
Read next:  raft_simulator.py, the driver's part; raft_invariants.py.

A record is an integer, `epoch << 40 | unique`; one with VOTERS_BIT is a Voters record, whose set is in `voter_sets`. One with
INNER_BIT is not the first of its batch; disk and network hold whole batches only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

from barnabas_quorum.raft import snapshots
from barnabas_quorum.raft.core import QuorumCore
from barnabas_quorum.raft.damage import UNKNOWN_END, FlushMark, LogEnd, has_forgotten, lost_end
from barnabas_quorum.raft.journal import INITIAL_HARD_STATE
from barnabas_quorum.raft.messages import EpochStart, HardState, Ready, SnapshotId, SnapshotPart
from barnabas_quorum.raft.roles import Role
from barnabas_quorum.raft.voters import ReplicaKey, VoterSet
from barnabas_wire.kafka.ids import Epoch, Offset
from tests.simulation.raft_swarm import NEVER_US

EPOCH_SHIFT = 40
VOTERS_BIT = 1 << 39
INNER_BIT = 1 << 38
HASH_MASK = (1 << 61) - 1
EMPTY_DIGEST = 17


class LawBroken(AssertionError):
    """A law of the quorum is broken; the text names the law and the replica."""


def fold(digest: int, values: Sequence[int]) -> int:
    """Digest of a prefix and the records after it."""
    for value in values:
        digest = (digest * 1_000_003 + value) & HASH_MASK
    return digest


class Snapshot(NamedTuple):
    """One snapshot file. Two of the same id, made by two replicas, are two files: their bytes need not be equal."""

    snapshot_id: SnapshotId
    digest: int
    voters: VoterSet | None
    file: int
    size: int


class Slice(NamedTuple):
    """Bytes of a snapshot file."""

    snapshot: Snapshot
    position: int
    length: int

    def __len__(self) -> int:
        return self.length


class SimulatedNode:
    """One replica: its core, its disk, and what the laws last saw of it."""

    __slots__ = (
        "armed_us",
        "base",
        "base_digest",
        "bootstrap_voters",
        "clock_ms",
        "clock_rate",
        "clock_us",
        "core",
        "download",
        "durable_end",
        "flushing_to",
        "full_until_us",
        "hard_state",
        "has_to_prove",
        "id",
        "inbox",
        "incarnation",
        "is_alive",
        "is_emptied",
        "is_paused",
        "key",
        "log",
        "mark",
        "marked_end",
        "missing",
        "seen_epoch",
        "seen_high_watermark",
        "seen_leader",
        "seen_role",
        "sets",
        "snapshots",
        "taking",
        "waiting",
    )

    def __init__(self, key: ReplicaKey, bootstrap_voters: VoterSet) -> None:
        self.key = key
        self.id = key.id
        self.core: QuorumCore
        self.waiting: Ready | None = None
        """A Ready whose hard state, truncation or snapshot is on its way to the disk; no event is taken meanwhile."""
        self.inbox: deque[Any] = deque()
        self.incarnation = 0
        self.is_alive = False
        self.is_paused = False
        self.armed_us = NEVER_US
        self.clock_us = 0
        """Since then its clock has run at `clock_rate`, from `clock_ms` on."""
        self.clock_ms = 0
        self.clock_rate = 1.0
        self.seen_role: Role | None = None
        self.seen_epoch = 0
        self.seen_leader = -1
        self.seen_high_watermark = 0
        self.has_to_prove = False
        """Whether directories may be emptied in this run, so that a start that nothing on the disk explains has to be proved."""
        self.wipe(key, bootstrap_voters)

    def wipe(self, key: ReplicaKey, bootstrap_voters: VoterSet) -> None:
        """A new disk, formatted with a new directory id."""
        self.key = key
        self.bootstrap_voters = bootstrap_voters
        self.hard_state: HardState = INITIAL_HARD_STATE
        self.base = 0
        """Offset of the first record in the log."""
        self.base_digest = EMPTY_DIGEST
        """Of everything before it."""
        self.log: list[int] = []
        self.durable_end = 0
        """How far a crash cannot take the log; between life and death also what is in the file."""
        self.flushing_to = -1
        """The end that the flush in flight covers, -1 when there is none."""
        self.marked_end = 0
        """What was durable when the last finished flush began: the mark that went with it says so."""
        self.mark: FlushMark | None = None
        """What the last life left on the disk about its flushes."""
        self.missing: LogEnd | None = None
        """How far the log reached before bits of it flipped, until it is as far again: the simulator's own account."""
        self.is_emptied = False
        """Lost all, and has not caught up with a leader since: its core has forgotten whatever it says."""
        self.full_until_us = 0
        """Until then no write succeeds."""
        self.sets: list[tuple[int, VoterSet]] = [(-1, bootstrap_voters)]
        """The voter sets of the log, kept by the simulator itself: the core's own history is judged by it."""
        self.snapshots: list[Snapshot] = []
        """Frozen ones, ascending."""
        self.taking: Snapshot | None = None
        """Being written from the replica's own records."""
        self.download: list[Slice] = []
        """Being written from what a leader sent."""

    def __repr__(self) -> str:
        return f"replica {self.id}"

    # --- what is on it ------------------------------------------------------------------------------------------------

    @property
    def end(self) -> int:
        """One past the last record."""
        return self.base + len(self.log)

    @property
    def is_whole(self) -> bool:
        """Whether its disk has all that was flushed to it, its core knows that, and would know it after a crash."""
        if self.missing is not None or self.is_emptied or self.core.lost_end == UNKNOWN_END:
            return False
        return not self.has_to_prove or self.hard_state.has_begun or self.durable_end > 0

    @property
    def voters(self) -> VoterSet:
        """The last set in the log."""
        return self.sets[-1][1]

    def set_before(self, offset: int) -> VoterSet:
        """The set that a log that ends at offset would have."""
        return next(voters for at, voters in reversed(self.sets) if at < offset or at == self.sets[0][0])

    def digest_before(self, offset: int) -> int:
        """Of everything below offset, which is not below the log's start."""
        return fold(self.base_digest, self.log[: offset - self.base])

    def holds(self, offset: int, value: int) -> bool:
        """Whether the record `value` at offset is durable here, in the log or in a snapshot of what was committed."""
        if offset >= self.durable_end:
            return False
        return offset < self.base or self.log[offset - self.base] == value

    def epoch_starts(self) -> list[EpochStart]:
        """As the journal tells them at start."""
        starts = []
        last_epoch = -1
        for offset, value in enumerate(self.log, self.base):
            epoch = value >> EPOCH_SHIFT
            if epoch != last_epoch:
                starts.append(EpochStart(Epoch(epoch), Offset(offset)))
                last_epoch = epoch
        return starts

    def end_at(self, offset: int) -> LogEnd:
        """The log's end, were it cut at offset, which is not below its start."""
        if offset > self.base:
            return LogEnd(Epoch(self.log[offset - 1 - self.base] >> EPOCH_SHIFT), Offset(offset))
        epochs = [each.snapshot_id.epoch for each in self.snapshots if each.snapshot_id.end_offset == offset]
        return LogEnd(epochs[0] if epochs else Epoch(0), Offset(offset))

    def batch_boundary(self, offset: int) -> int:
        """The last place at or before offset where a batch begins, or the log ends."""
        while offset < self.end and self.log[offset - self.base] & INNER_BIT:
            offset -= 1
        return offset

    def snapshot(self, snapshot_id: SnapshotId) -> Snapshot | None:
        """The frozen one of this id."""
        return next((each for each in self.snapshots if each.snapshot_id == snapshot_id), None)

    # --- what changes it ----------------------------------------------------------------------------------------------

    def truncate(self, offset: int) -> None:
        """Durable on return."""
        del self.log[offset - self.base :]
        self.durable_end = self.marked_end = self.end
        while self.sets[-1][0] >= offset:
            self.sets.pop()

    def write_part(self, part: SnapshotPart) -> None:
        """A slice of the download."""
        if part.position == 0:
            self.download = []
        if sum(len(each) for each in self.download) != part.position:
            raise LawBroken(f"{self} writes a snapshot at {part.position} and has {self.download}")
        self.download.append(part.data)

    def freeze_download(self, snapshot_id: SnapshotId) -> Snapshot:
        """Flush and rename."""
        parts, self.download = self.download, []
        first = parts[0].snapshot
        if any(part.snapshot.file != first.file for part in parts):
            raise LawBroken(f"{self} puts slices of several files together: {parts}")
        if first.snapshot_id != snapshot_id or sum(len(part) for part in parts) != first.size:
            raise LawBroken(f"{self} freezes {snapshot_id}, and it has {parts}")
        self.add_snapshot(first)
        return first

    def add_snapshot(self, snapshot: Snapshot) -> None:
        """Frozen: no crash takes it."""
        self.snapshots = sorted([*self.snapshots, snapshot], key=lambda each: each.snapshot_id)

    def restart_at(self, snapshot: Snapshot) -> None:
        """Drop the whole log and begin it anew after the snapshot. Durable on return."""
        end = snapshot.snapshot_id.end_offset
        self.base, self.base_digest, self.log, self.durable_end = end, snapshot.digest, [], end
        self.flushing_to, self.marked_end = -1, end
        self.snapshots = [snapshot]
        self.sets = [(-1, self.bootstrap_voters)] if snapshot.voters is None else [(end - 1, snapshot.voters)]

    def delete_before(self, offset: int) -> None:
        """The log begins at the end of a snapshot."""
        if offset > self.durable_end:
            raise LawBroken(f"{self} begins its log at {offset}, flushed is {self.durable_end}")
        self.base_digest = self.digest_before(offset)
        del self.log[: offset - self.base]
        self.base = offset
        self.snapshots = [each for each in self.snapshots if each.snapshot_id.end_offset >= offset]
        while len(self.sets) > 1 and self.sets[1][0] < offset:
            del self.sets[0]

    def lose_what_is_not_durable(self, random: Random, *, keeps_a_part: bool) -> None:
        """A crash: a random part of what was written since the last flush is there, nothing of a download; of a flush that
        was in flight perhaps the mark."""
        if self.flushing_to >= 0 and random.random() < 0.5:
            flushed_end, begun = self.durable_end, self.flushing_to
        else:
            flushed_end, begun = self.marked_end, self.durable_end
        self.mark = FlushMark(Offset(flushed_end), self.end_at(begun), self.core.lost_end)
        kept = self.durable_end
        if keeps_a_part:
            kept = self.batch_boundary(kept + int(random.random() * (self.end - kept + 1)))
        del self.log[kept - self.base :]
        self.durable_end = kept
        self.flushing_to = -1
        self.download = []
        while self.sets[-1][0] >= kept:
            self.sets.pop()
        if self.taking is not None and self.taking.snapshot_id.end_offset <= kept and random.random() < 0.3:
            self.add_snapshot(self.taking)  # renamed, and nobody was told
        self.taking = None

    @property
    def first_unproved(self) -> int:
        """Where opening begins to read: what lies before is in a snapshot."""
        return max(self.base, self.snapshots[-1].snapshot_id.end_offset) if self.snapshots else self.base

    def flip_a_bit(self, at: int) -> dict[int, int]:
        """Of the batch with this record: opening cuts there. Returns what is gone, and lays down how far it has to come back."""
        assert self.mark is not None
        at = self.batch_boundary(at)
        gone = dict(enumerate(self.log[at - self.base : self.durable_end - self.base], at))
        self.missing = self.mark.begun if self.missing is None else max(self.missing, self.mark.begun)
        del self.log[at - self.base :]
        self.durable_end = at
        while self.sets[-1][0] >= at:
            self.sets.pop()
        return gone

    def recover(self) -> LogEnd | None:
        """What opening does: a snapshot that the log does not agree with takes its place; outdated ones go. Returns where the
        log ended before it was damaged, if it was."""
        point = snapshots.restart_point(
            [each.snapshot_id for each in self.snapshots],
            epoch_starts=self.epoch_starts(),
            log_start=Offset(self.base),
            end_offset=Offset(self.end),
        )
        if point is not None:
            snapshot = self.snapshot(point)
            assert snapshot is not None
            self.restart_at(snapshot)
        self.snapshots = [each for each in self.snapshots if each.snapshot_id.end_offset >= self.base]
        self.marked_end = self.end
        found = self.end_at(self.end)
        mark = self.mark
        has_begun = self.hard_state.has_begun
        if mark is not None and mark.lost == UNKNOWN_END and has_begun:
            mark = mark._replace(lost=None)
        if self.has_to_prove and has_forgotten(mark, found=found, has_hard_state=True, has_begun=has_begun):
            return UNKNOWN_END
        return lost_end(mark, found=found)
