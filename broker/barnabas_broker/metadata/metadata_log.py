"""The metadata log on disk: the quorum's RaftLog over a UnifiedLog, with the quorum-state file and the snapshots beside it.

May touch:  the Disk, one UnifiedLog. Must not touch: the quorum's rules, other logs.
Invariants: hard state is replaced whole and flushed before save returns; flush reports the end it was begun for; nothing that
            was flushed is ever cut as an unfinished write; what is in the log are Kafka's v2 batches with the quorum epoch as
            leader epoch, so Kafka's own tools can dump it; the log begins where the oldest whole snapshot ends, and at 0
            where there is none.
Read next:  barnabas_quorum/raft/journal.py, the interface; metadata_log_opening.py, what opening looks for; quorum_state.py;
            snapshot_files.py; barnabas_log/unified_log.py.

Files, all in `<metadata directory>/__cluster_metadata-0/`:
    quorum-state              the hard state (quorum_state.py). A crash leaves the old or the new. Gone beside a log: the vote is
                              forgotten, and the replica asks the others before it votes again (barnabas_quorum/raft/inquiry.py)
    <base offset>.log, …      segments; a crash may leave a torn tail, which opening cuts. Whole segments below the log start
                              go when the log is cleaned
    flush-marks               how far the log was flushed, written with each flush (flush_marks.py)
    reserve                   room for what must be written on a full disk (barnabas_log/directories/disk_space.py)
    <offset>.damaged          what opening cut off though it had been flushed, for a person to look at; nothing reads it
    *.checkpoint              snapshots (snapshot_files.py)
    .lock                     locked while the process runs: a second one would vote twice
The log has its own Disk, so that its flushes never queue behind those of the data.

Not obvious:
- A full disk ends nothing. What must be written spends the reserve first, and waits for room when that is gone: the
  driver is blocked meanwhile, so this replica neither votes nor acknowledges nor leads on, as with a disk that hangs,
  and the others elect another leader. It continues without help.
- A snapshot is frozen when the log below its end is flushed, and the epochs with it, so everything below the newest snapshot is proved
  already: opening reads the log from there on, not from the beginning.
- What opening cuts though a flush mark says that it was flushed is damage (barnabas_quorum/raft/damage.py). A voter among
  others continues and gets it back from them; until then `lost_end` binds it. A voter that is alone has no other to get
  it from: the log is left as it is, and opening refuses with the way out. Nothing is lost by a mistake that a person
  can mend.
- A crash between the freeze of a downloaded snapshot and the drop of the log leaves the old log beside a newer snapshot.
  Opening ends what was begun (as Kafka's truncateToLatestSnapshot does).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

from barnabas_broker.metadata.flush_marks import FlushMarks
from barnabas_broker.metadata.metadata_log_opening import (
    DamagedLog,
    choose_start,
    find_voter_sets,
    look_for_damage,
    remove_segments_below,
)
from barnabas_broker.metadata.quorum_state import QUORUM_STATE_FILE, decode_hard_state, encode_hard_state
from barnabas_broker.metadata.snapshot_files import SnapshotFiles
from barnabas_log.config import LogConfig
from barnabas_log.directories.disk_space import Reserve, is_disk_full
from barnabas_log.disk import Disk, File
from barnabas_log.errors import DiskFull, InconsistentTopicId
from barnabas_log.recovery.opening import open_partition_log
from barnabas_log.tail import retiring, truncating
from barnabas_log.tail.segment import LOG_SUFFIX, segment_path
from barnabas_log.unified_log import UnifiedLog
from barnabas_quorum.driver.snapshot_content import SnapshotHead
from barnabas_quorum.raft.damage import UNKNOWN_END, FlushMark, LogEnd, has_forgotten, lost_end
from barnabas_quorum.raft.journal import INITIAL_HARD_STATE, StoredBatch
from barnabas_quorum.raft.messages import EpochStart, HardState, SnapshotId
from barnabas_quorum.raft.snapshots import SnapshotFile, restart_point
from barnabas_quorum.raft.voters import ReplicaKey, VoterSet
from barnabas_wire.kafka.ids import (
    METADATA_TOPIC,
    METADATA_TOPIC_ID,
    Epoch,
    Offset,
    TopicPartition,
)
from barnabas_wire.records.batch import iterate_batches

logger = logging.getLogger("barnabas_broker.node.metadata_log")  # the name that operators set a level of

RESERVE_FILE = "reserve"
RESERVE_BYTES = 1024 * 1024
"""Some ten thousand metadata records."""
ROOM_RETRY_S = 0.5
SEGMENT_BYTES = 1024 * 1024 * 1024
SEGMENT_MS = 7 * 24 * 3_600_000


class MetadataLog:
    """RaftLog on disk. Get one with `open`; belongs to the loop it was opened on."""

    def __init__(
        self,
        disk: Disk,
        log: UnifiedLog,
        snapshots: SnapshotFiles,
        head: SnapshotHead | None,
        state_path: str,
        hard_state: HardState | None,
        marks: FlushMarks,
    ) -> None:
        """`head`: of the newest snapshot. `hard_state`: None when there is no file of it."""
        self._disk = disk
        self._log = log
        self._snapshots = snapshots
        self._state_path = state_path
        self._hard_state = hard_state or INITIAL_HARD_STATE
        self._has_hard_state = hard_state is not None
        self._marks = marks
        self._reserve = Reserve(disk, f"{log.directory}/{RESERVE_FILE}", RESERVE_BYTES)
        self._is_waiting = False
        self._unwritten: Sequence[StoredBatch] = ()
        """The newest batches, while want of room keeps them from the file."""
        self._lost_end: LogEnd | None = None
        self._is_cutting = False
        """True between the mark of a cut and the cut: the flushed end is not what it is going to be."""
        self._voter_sets = find_voter_sets(log, snapshots, head)

    @classmethod
    async def open(
        cls,
        *,
        disk: Disk,
        metadata_directory: str,
        now_ms: int,
        segment_bytes: int = SEGMENT_BYTES,
        segment_ms: int = SEGMENT_MS,
        replica: ReplicaKey | None = None,
        formatted_voters: VoterSet | None = None,
    ) -> MetadataLog:
        """Open, or make on a new disk; cuts a torn tail. `disk` is this log's own and is closed with it.

        Args:
            replica, formatted_voters: the replica that will run on it, and the voters before any Voters record, so that
                a voter that is alone is known for one. Tools that only look leave them out.

        Raises DamagedQuorumState, DamagedLog, DamagedSnapshot when a snapshot that is needed cannot be read, DirectoryLocked,
        OSError.
        """
        directory = f"{metadata_directory}/{METADATA_TOPIC}-0"
        config = LogConfig(segment_bytes=segment_bytes, segment_ms=segment_ms, retention_ms=-1, retention_bytes=-1)
        opened: MetadataLog = await disk.run(
            cls._open, disk, directory, config, now_ms, replica, formatted_voters or VoterSet.unknown()
        )
        await disk.run(opened._reserve.take)
        # The directory's own name must be durable before the first vote that is written into it.
        await opened.flush()
        unfinished = restart_point(
            opened.snapshots(),
            epoch_starts=opened.epoch_starts(),
            log_start=opened.log_start_offset,
            end_offset=opened.end_offset,
        )
        if unfinished is not None:
            logger.info("the log was not yet dropped for snapshot %s: dropping it", unfinished)
            await opened._restart_at(unfinished)
        elif opened.snapshots() and opened.end_offset == opened.log_start_offset:
            await opened._begin_epochs(opened.snapshots()[-1])  # the drop may have been cut short behind it
        if opened.hard_state.has_begun and opened._find_lost_end(opened._end_at(opened.end_offset)) == UNKNOWN_END:
            await opened.save_hard_state(opened.hard_state._replace(has_begun=False))  # no more: what began is lost
        await opened.when_there_is_space(opened._begin_marks)
        return opened

    @classmethod
    def _open(
        cls,
        disk: Disk,
        directory: str,
        config: LogConfig,
        now_ms: int,
        replica: ReplicaKey | None,
        formatted_voters: VoterSet,
    ) -> MetadataLog:
        disk.make_directory(directory)
        disk.lock_directory(directory)
        disk.sync_directory(directory.rpartition("/")[0])
        state_path = f"{directory}/{QUORUM_STATE_FILE}"
        hard_state = None
        if disk.exists(state_path):
            hard_state = decode_hard_state(disk.read_file(state_path), path=state_path)
        snapshots = SnapshotFiles.open(disk, directory)
        head, start = choose_start(disk, directory, snapshots)
        remove_segments_below(disk, directory, start)
        marks = FlushMarks.open(disk, directory)
        look_for_damage(
            disk, directory, marks.last, snapshots=snapshots, head=head, replica=replica, voters=formatted_voters
        )
        try:
            log = open_partition_log(
                disk=disk,
                directory=directory,
                topic_partition=TopicPartition(METADATA_TOPIC, 0),
                topic_id=METADATA_TOPIC_ID,
                config=config,
                now_ms=now_ms,
                recovery_point=snapshots.ids[-1].end_offset if snapshots.ids else Offset(0),
                log_start_offset=start,
                keeps_damage=False,  # a log that ends before its newest snapshot is one that the snapshot replaces, or judged above
            )
        except InconsistentTopicId as error:  # of a log that is always of the same topic
            raise DamagedLog(
                f"{error}. If {directory} is this node's metadata log, replace partition.metadata in it by another controller's, where it "
                "is the same, and remove topic-id.witness, which is written anew; else put the right directory there"
            ) from error
        report = log.recovery_report
        if report.truncated_bytes:
            logger.info("cut %d bytes of an unfinished write off the metadata log", report.truncated_bytes)
        opened = cls(disk, log, snapshots, head, state_path, hard_state, marks)
        last = opened._voter_sets[-1][1] if opened._voter_sets else formatted_voters
        if replica is not None and replica in last and len(last) == 1:
            opened._has_hard_state = (
                True  # no other voter asked it for a vote, so the state that is gone held none that counts
            )
        return opened

    def _begin_marks(self) -> None:
        """All that was found is flushed; what is missing beyond it is remembered."""
        found = self._end_at(self.end_offset)
        self._lost_end = self._find_lost_end(found)
        if self._lost_end == UNKNOWN_END:
            if found.end_offset:
                logger.error(
                    "%s is gone, or this log was being filled again when the node stopped: this node does not run for controller "
                    "and votes for nobody until it has heard from the other controllers and caught up with the active one",
                    self._state_path,
                )
        elif self._lost_end is not None:
            logger.error(
                "the metadata log was flushed up to offset %d and is sound up to %d: this node does not run for controller, "
                "and votes as if it had all, until it has fetched the rest from the active controller. If none is elected because "
                "a majority is in this state, barnabas-server quorum recover says what is left",
                self._lost_end.end_offset,
                found.end_offset,
            )
        self._marks.begin_anew(FlushMark(found.end_offset, found, self._lost_end))

    def _find_lost_end(self, found: LogEnd) -> LogEnd | None:
        mark = self._marks.last
        has_begun = self._hard_state.has_begun
        if mark is not None and mark.lost == UNKNOWN_END and has_begun:
            mark = mark._replace(lost=None)  # of before it began
        if has_forgotten(mark, found=found, has_hard_state=self._has_hard_state, has_begun=has_begun):
            return UNKNOWN_END
        return lost_end(mark, found=found)

    def _end_at(self, offset: Offset) -> LogEnd:
        """Where the log would end, were it cut there."""
        epochs = [start.epoch for start in self.epoch_starts() if start.start_offset < offset]
        snapshot = [each.epoch for each in self._snapshots.ids if each.end_offset <= offset]
        return LogEnd(max([*epochs[-1:], *snapshot[-1:]], default=Epoch(0)), offset)

    @property
    def lost_end(self) -> LogEnd | None:
        """See RaftLog.lost_end."""
        return self._lost_end

    async def note_regained(self) -> None:
        """See RaftLog.note_regained."""
        if self._lost_end != UNKNOWN_END:
            logger.warning(
                "the metadata log has all records back that its disk had lost, up to offset %d", self.end_offset
            )
        elif self.end_offset:
            logger.info("the metadata log has caught up, up to offset %d", self.end_offset)
        self._lost_end = None
        last = self._marks.last
        # An empty log needs none: the hard state says that it has begun.
        if last is not None and self._marks.is_begun and self.end_offset:
            await self._disk.flush([await self._noted(last._replace(lost=None))])

    @property
    def hard_state(self) -> HardState:
        """See RaftLog.hard_state."""
        return self._hard_state

    @property
    def end_offset(self) -> Offset:
        """See RaftLog.end_offset."""
        return self._log.log_end_offset

    @property
    def log_start_offset(self) -> Offset:
        """See RaftLog.log_start_offset."""
        return self._log.log_start_offset

    def epoch_starts(self) -> Sequence[EpochStart]:
        """See RaftLog.epoch_starts."""
        starts = [EpochStart(epoch, start) for epoch, start in self._log.leader_epochs.entries]
        start = self._log.log_start_offset
        oldest = next((each for each in self._snapshots.ids if each.end_offset == start), None)
        if oldest is not None and (not starts or starts[0].start_offset > start):
            starts.insert(0, EpochStart(oldest.epoch, start))
        return starts

    def voter_sets(self) -> Sequence[tuple[Offset, VoterSet]]:
        """See RaftLog.voter_sets."""
        return self._voter_sets

    def snapshots(self) -> Sequence[SnapshotId]:
        """See RaftLog.snapshots."""
        return self._snapshots.ids

    def snapshot_files(self) -> Sequence[SnapshotFile]:
        """See RaftLog.snapshot_files."""
        return self._snapshots.files()

    @property
    def size_bytes(self) -> int:
        """See RaftLog.size_bytes."""
        return self._log.size_bytes

    async def save_hard_state(self, state: HardState) -> None:
        """See RaftLog.save_hard_state."""
        data = encode_hard_state(state)
        while True:
            try:
                await self._disk.run(self._disk.write_file_atomically, self._state_path, data)
            except OSError as error:
                await self._await_space(error)
            else:
                break
        self._note_space()
        self._hard_state = state

    async def when_there_is_space(self, work: Callable[[], None]) -> None:
        """See RaftLog.when_there_is_space."""
        while True:
            try:
                work()
            except OSError as error:
                await self._await_space(error)
            else:
                break
        self._note_space()

    async def written(self) -> None:
        """See RaftLog.written."""
        while True:
            try:
                self._write_on()
            except DiskFull as error:
                await self._await_space(error)
            else:
                break
        self._note_space()

    async def _await_space(self, error: OSError | DiskFull) -> None:
        """Make room by the reserve, or give others time to make some. Raises what is no want of room."""
        if not isinstance(error, DiskFull) and not is_disk_full(error):
            raise error
        if await self._disk.run(self._reserve.spend):
            logger.warning(
                "the disk of the metadata log is full, and its reserve is used: free space there (%s)", error
            )
            return
        if not self._is_waiting:
            self._is_waiting = True
            logger.error(
                "the disk of the metadata log is full: this node neither votes nor leads the quorum until there is room. Free "
                "space in %s; it goes on by itself (%s)",
                self._log.directory,
                error,
            )
        await asyncio.sleep(ROOM_RETRY_S)

    def _note_space(self) -> None:
        if self._is_waiting:
            self._is_waiting = False
            logger.warning("the disk of the metadata log has room again")

    def append(self, batches: Sequence[StoredBatch]) -> None:
        """See RaftLog.append."""
        # A leader's own batches have their offsets and epoch already, so both kinds go the follower's way, which also
        # checks every CRC once more.
        # Without room they stay queued: `written` waits for it, before anything that follows from them is said.
        self._unwritten = batches
        with contextlib.suppress(DiskFull):
            self._write_on()

    def _write_on(self) -> None:
        """Append what is left of the newest batches, and write all. Raises DiskFull."""
        left = [batch for batch in self._unwritten if batch.base_offset >= self._log.log_end_offset]
        if left:
            self._log.tail.append_as_follower(b"".join([batch.data for batch in left]), leader_epoch=left[-1].epoch)
        self._log.tail.write_pending(is_forced=True)
        self._unwritten = ()

    async def truncate_to(self, offset: Offset) -> None:
        """See RaftLog.truncate_to."""
        await self._mark_cut(FlushMark(offset, self._end_at(offset), self._lost_end))
        truncating.truncate_to(self._log, offset)
        assert self._log.log_end_offset == offset, f"{offset} lies inside a batch"
        cut = self._disk.open(segment_path(self._log.directory, self._log.base_offsets[-1], LOG_SUFFIX))
        try:
            await self._disk.flush([*self._log.dirty_files(), cut])
            self._log.mark_flushed(offset)
            self._is_cutting = False
        finally:
            cut.close()

    async def _mark_cut(self, mark: FlushMark) -> None:
        """Before a cut, for a crash in between must not make a loss of what was cut on purpose. Nor may `settle`, a task of its
        own, note in between what is about to go."""
        self._is_cutting = True
        await self._disk.flush([await self._noted(mark)])

    async def _noted(self, mark: FlushMark) -> File:
        """The file with the mark. The waiting is for room."""
        while True:
            try:
                return self._marks.note(mark)
            except OSError as error:
                await self._await_space(error)

    async def flush(self) -> Offset:
        """See RaftLog.flush."""
        files = self._log.dirty_files()
        end_offset = self._log.written_end_offset
        if files:
            begun = LogEnd(max(self._log.leader_epochs.latest, Epoch(0)), end_offset)
            marked = await self._mark(begun)
            try:
                await self._disk.flush([*files, *marked])
            except OSError as error:
                self._log.tail.fail(error)
                raise
        self._log.mark_flushed(end_offset)
        return end_offset

    async def _mark(self, begun: LogEnd) -> list[File]:
        """The file with the mark of the flush that is about to begin; none while the log is being opened."""
        last = self._marks.last
        if last is None or not self._marks.is_begun:
            return []
        if self._marks.is_long:
            # Inline, some milliseconds once in many thousand flushes: a cut may want to write its mark meanwhile.
            with contextlib.suppress(OSError):  # a full disk: it grows on
                self._marks.begin_anew(last)
        return [await self._noted(FlushMark(self._log.flushed_end_offset, begun, self._lost_end))]

    async def settle(self) -> None:
        """See RaftLog.settle."""
        flushed_end = self._log.flushed_end_offset
        last = self._marks.last
        if last is None or not self._marks.is_begun or self._is_cutting:
            return
        if last.flushed_end < flushed_end:
            mark = FlushMark(flushed_end, self._end_at(flushed_end), self._lost_end)
            await self._disk.flush([await self._noted(mark)])
        if not self._reserve.is_held:
            await self._disk.run(self._reserve.take)  # it was used; where there is room again it is kept again

    def read(self, offset: Offset, *, end_offset: Offset, bytes_max: int) -> Sequence[StoredBatch]:
        """See RaftLog.read."""
        found = self._log.read(offset, bytes_max=bytes_max, end=end_offset, at_least_one_batch=True)
        batches: list[StoredBatch] = []
        for file, position, size in found.parts:
            data = file.read(position, size)
            file.release()
            for start, header in iterate_batches(data):
                batches.append(
                    StoredBatch(
                        header.base_offset,
                        header.next_offset,
                        header.partition_leader_epoch,
                        data[start : start + header.size_bytes],
                    )
                )
        return batches

    # -- snapshots ---------------------------------------------------------------------------------------------------

    def write_snapshot_part(self, snapshot_id: SnapshotId, position: int, data: bytes) -> None:
        """See RaftLog.write_snapshot_part."""
        self._snapshots.write_part(snapshot_id, position, data)

    def drop_snapshot_part(self, snapshot_id: SnapshotId) -> None:
        """See RaftLog.drop_snapshot_part."""
        self._snapshots.drop_part(snapshot_id)

    async def freeze_snapshot(self, snapshot_id: SnapshotId) -> VoterSet | None:
        """See RaftLog.freeze_snapshot."""
        assert snapshot_id.end_offset <= self._log.flushed_end_offset, f"{snapshot_id} goes beyond what is durable"
        await self._disk.run(self._log.leader_epochs.save)
        return (await self._snapshots.freeze(snapshot_id)).voters

    async def drop_snapshot(self, snapshot_id: SnapshotId) -> None:
        """See RaftLog.drop_snapshot."""
        await self._snapshots.retire([snapshot_id])
        await self._disk.run(self._remove_retired)

    async def install_snapshot(self, snapshot_id: SnapshotId) -> VoterSet | None:
        """See RaftLog.install_snapshot."""
        voters = (await self._snapshots.freeze(snapshot_id)).voters
        await self._restart_at(snapshot_id)
        return voters

    async def _restart_at(self, snapshot_id: SnapshotId) -> None:
        """Drop the log and the older snapshots; the empty log is durable on return."""
        if self._marks.is_begun:
            end = LogEnd(snapshot_id.epoch, snapshot_id.end_offset)
            await self._mark_cut(FlushMark(Offset(0), end, self._lost_end))
        truncating.truncate_fully_and_start_at(self._log, snapshot_id.end_offset)
        await self._begin_epochs(snapshot_id)
        await self.flush()
        self._is_cutting = False
        await self._snapshots.retire([each for each in self._snapshots.ids if each != snapshot_id])
        await self._disk.run(self._remove_retired)

    async def _begin_epochs(self, snapshot_id: SnapshotId) -> None:
        """Begin the leader epochs of an empty log, durably, before anything is appended. The file may still have those
        of the log that was replaced, which may be higher though nothing of them was ever committed: opening would take
        our first batch for a torn end."""
        self._log.leader_epochs.clear()
        self._log.tail.assign_epoch_start(snapshot_id.epoch, snapshot_id.end_offset)
        await self._disk.run(self._log.leader_epochs.save)

    def read_snapshot(self, snapshot_id: SnapshotId, position: int, bytes_max: int) -> tuple[int, bytes]:
        """See RaftLog.read_snapshot."""
        return self._snapshots.read(snapshot_id, position, bytes_max)

    async def prove_snapshot(self, snapshot_id: SnapshotId) -> None:
        """See RaftLog.prove_snapshot."""
        await self._disk.run(self._snapshots.prove, snapshot_id)

    async def delete_before(self, snapshot_id: SnapshotId) -> None:
        """See RaftLog.delete_before."""
        log = self._log
        assert log.log_start_offset <= snapshot_id.end_offset <= log.log_end_offset, (
            f"{snapshot_id} lies outside the log"
        )
        log.update_high_watermark(snapshot_id.end_offset)
        log.delete_records_before(snapshot_id.end_offset)
        await self._snapshots.retire([each for each in self._snapshots.ids if each < snapshot_id])
        retiring.apply_retention(log, 0)
        await self._snapshots.flush_directory()
        await self._disk.run(self._remove_retired)

    def _remove_retired(self) -> None:
        self._snapshots.remove_retired()
        for _, path in self._log.take_removals():
            self._disk.remove(path)

    async def close(self) -> None:
        """See RaftLog.close; the Disk is closed too."""
        self._snapshots.close()
        await self._disk.run(self._log.close)
        if not self._log.is_failed:
            end = self._end_at(self.end_offset)
            await self._disk.run(self._marks.begin_anew, FlushMark(end.end_offset, end, self._lost_end))
        self._marks.close()
        self._disk.close()
