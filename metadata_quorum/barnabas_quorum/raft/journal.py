"""The disk that the quorum needs: hard state, log and snapshots; the caller decides when to make them durable.

May touch:  its arguments.            Must not touch: asyncio, clock, files (an implementation brings them).
Invariants: save_hard_state, truncate, freeze and install are durable on return; append is not, until a flush that began
            after it returned. The log begins where its oldest snapshot ends, or at 0; so nothing is missing below its start.
Read next:  ../driver/node.py, which drives it; broker/metadata/metadata_log.py, which keeps it on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from barnabas_quorum.raft.damage import LogEnd
from barnabas_quorum.raft.messages import EpochStart, HardState, SnapshotId
from barnabas_quorum.raft.snapshots import SnapshotFile
from barnabas_quorum.raft.voters import VoterSet
from barnabas_wire.kafka.ids import NO_BROKER, Epoch, Offset

INITIAL_HARD_STATE = HardState(Epoch(0), NO_BROKER, None)


class StoredBatch(NamedTuple):
    """One v2 batch of the metadata log with its offsets and epoch."""

    base_offset: Offset
    end_offset: Offset
    epoch: Epoch
    data: bytes


class RaftLog(Protocol):
    """Hard state and log of one replica. Synchronous members touch no more than the page cache."""

    @property
    def hard_state(self) -> HardState:
        """As last saved; INITIAL_HARD_STATE on a new disk."""
        ...

    @property
    def end_offset(self) -> Offset:
        """One past the last record."""
        ...

    @property
    def log_start_offset(self) -> Offset:
        """First record that can be read; everything below it is in the oldest snapshot."""
        ...

    def epoch_starts(self) -> Sequence[EpochStart]:
        """All epochs in the log, ascending; if it begins at a snapshot, the first entry is that snapshot's epoch, at the
        snapshot's end or before."""
        ...

    def voter_sets(self) -> Sequence[tuple[Offset, VoterSet]]:
        """Every voter set in the log at the offset of its record, ascending; before them the newest snapshot's, at the offset
        before its end. As found on opening."""
        ...

    def snapshots(self) -> Sequence[SnapshotId]:
        """The complete snapshots, ascending; without the bootstrap checkpoint (0-0)."""
        ...

    @property
    def lost_end(self) -> LogEnd | None:
        """Where the log ended before its disk damaged it, until it reaches that far again (damage.py); None if undamaged."""
        ...

    async def note_regained(self) -> None:
        """The log reaches that far again: `lost_end` is None from now on. Durable on return."""
        ...

    async def save_hard_state(self, state: HardState) -> None:
        """Durable on return."""
        ...

    def append(self, batches: Sequence[StoredBatch]) -> None:
        """Write batches that continue the log. Not durable yet."""
        ...

    async def written(self) -> None:
        """Return once everything appended is written: at once, or when a full disk has room again."""
        ...

    async def when_there_is_space(self, work: Callable[[], None]) -> None:
        """Run `work`, which writes to the page cache; if the disk is full, again when there is room. Raises what `work` raises
        for any other reason."""
        ...

    async def truncate_to(self, offset: Offset) -> None:
        """Drop everything from offset on. Durable on return. Never called while a flush is in flight."""
        ...

    async def flush(self) -> Offset:
        """Make everything appended before this call durable; returns the durable end offset."""
        ...

    async def settle(self) -> None:
        """In a quiet moment, note durably how far the log is flushed, so that damage to its last records can be detected."""
        ...

    def read(self, offset: Offset, *, end_offset: Offset, bytes_max: int) -> Sequence[StoredBatch]:
        """Whole batches from the one that contains offset, below end_offset; at least one if there is one."""
        ...

    def write_snapshot_part(self, snapshot_id: SnapshotId, position: int, data: bytes) -> None:
        """Write bytes of an unfinished snapshot at `position`, which is at or before its end. Not durable."""
        ...

    def drop_snapshot_part(self, snapshot_id: SnapshotId) -> None:
        """Give up an unfinished snapshot."""
        ...

    async def freeze_snapshot(self, snapshot_id: SnapshotId) -> VoterSet | None:
        """Complete an unfinished snapshot; durable on return. Its end must not exceed what is flushed. Returns its voter set.

        Raises KafkaError CORRUPT_MESSAGE, and drops the part, when it is not complete.
        """
        ...

    async def drop_snapshot(self, snapshot_id: SnapshotId) -> None:
        """Delete a complete snapshot at which the log does not begin."""
        ...

    async def install_snapshot(self, snapshot_id: SnapshotId) -> VoterSet | None:
        """Freeze a downloaded snapshot, then drop the whole log and restart it empty at the snapshot's end; durable on
        return. Returns its voter set. Never called while a flush is in flight.

        Raises as freeze_snapshot does; the log is unchanged then.
        """
        ...

    def read_snapshot(self, snapshot_id: SnapshotId, position: int, bytes_max: int) -> tuple[int, bytes]:
        """(size of the whole snapshot, bytes at `position`). Raises FileNotFoundError for an unknown id."""
        ...

    def snapshot_files(self) -> Sequence[SnapshotFile]:
        """The complete snapshots with their sizes and ages."""
        ...

    @property
    def size_bytes(self) -> int:
        """Size of the log's segments."""
        ...

    async def prove_snapshot(self, snapshot_id: SnapshotId) -> None:
        """Read all of a snapshot to check it. Raises DamagedSnapshot, or FileNotFoundError, when that fails."""
        ...

    async def delete_before(self, snapshot_id: SnapshotId) -> None:
        """The log begins at this snapshot's end from now on: delete older snapshots and whole segments below it."""
        ...

    async def close(self) -> None:
        """Flush and release the files."""
        ...
