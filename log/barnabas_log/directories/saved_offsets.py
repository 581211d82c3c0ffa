"""What the offset checkpoints of one log directory say: recovery points, log starts, high watermarks, how far logs are clean.

May touch:  the Disk, the logs of the directory.       Must not touch: the loop, clocks, other directories.
Invariants: the recovery point on disk is never above what is durable; no entry is above what its log has by now; an entry of a
            deleted log is gone before a log of the same name exists.
Read next:  manager.py, which says when; checkpoints.py, the format.

Everything that writes blocks. It runs in a disk thread, each minute or so, while the loop runs on; and on the loop
where an entry would be wrong: a log truncated below its recovery point rewrites that file at once, since until then a
crash would skip the proof of bytes written since. It is rare, since the tail that is cut is younger than the last
checkpoint.

Not obvious:
  - Leader epochs are saved before the recovery points that cover them: below the recovery point the file is believed.
  - A topic that is deleted and made again has logs of the old names: what a file says of an earlier log of that name is
    taken out before the new one begins, and a checkpoint under way leaves out what is gone meanwhile. That is done in a disk
    thread as soon as a log is deleted; a log that is made before it is done does it, blocking, for all deleted ones at once.
    It cannot wait: recovery would take the empty file of the new log for the lost one of the old.
  - A log start rises in the file first and in the log later, so that no kill brings deleted records back.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping, Sequence

from barnabas_log.directories import checkpoints
from barnabas_log.directories.checkpoint_twins import Settled, encode_twin, few_of, is_start_doubted, settle
from barnabas_log.directories.directory_state import OWN_DIRECTORY, write_own_file
from barnabas_log.directories.disk_space import Reserve, is_disk_full
from barnabas_log.disk import Disk
from barnabas_log.unified_log import UnifiedLog
from barnabas_wire.kafka.ids import ZERO_UUID, Offset, TopicPartition, Uuid

logger = logging.getLogger(__name__)


class SavedOffsets:
    """The checkpoint files of one log directory. Made on the loop."""

    def __init__(
        self, disk: Disk, directory: str, *, logs: Mapping[TopicPartition, UnifiedLog], reserve: Reserve
    ) -> None:
        """logs: of the directory, as they come and go. reserve: what a full disk keeps free for these files."""
        self.recovery_points: dict[TopicPartition, Offset] = {}
        self.log_starts: dict[TopicPartition, Offset] = {}
        self.high_watermarks: dict[TopicPartition, Offset] = {}
        self.clean_offsets: dict[TopicPartition, Offset] = {}
        """All four as the files have them."""
        self.is_log_start_proved = False
        """After load: whether the log starts were as their twin has them."""
        self.proved_points: dict[TopicPartition, tuple[Uuid, Offset]] = {}
        """After load: up to where logs were flushed for sure, and of which topics they are; empty where nothing is sure."""
        self.doubts: list[str] = []
        """After load: what is wrong with the files."""
        self._starts = Settled({}, None, False)
        self._had_starts = False
        self._has_twins = False
        self._point_ids: dict[TopicPartition, Uuid] = {}
        self.has_recovery_points = False
        """Whether the file of the recovery points could be read: then a log that it does not name is younger than the file."""
        self.has_clean_offsets = False
        """Whether the file of the clean offsets could be read: it names every log with gaps."""
        self.rising_log_starts: dict[UnifiedLog, Offset] = {}
        """Log starts that the file has, or is about to have, before the logs move there."""
        self.deleted: dict[TopicPartition, None] = {}
        """Partitions whose logs are gone: the files may still name them."""
        self.deletion = asyncio.Event()
        """Set when one is added."""
        self._disk = disk
        self._directory = directory
        self._logs = logs
        self._reserve = reserve
        self._saving = threading.Lock()
        """Held while they are written."""

    # -- start -----------------------------------------------------------------------------------------------------

    def load(self, *, was_served: bool = False) -> None:
        """Read the files and their twins, blocking; checkpoint_twins.py says what is believed. Raises OSError.

        was_served: whether the directory says that a version with twins has opened it before.
        """
        points = self._read(checkpoints.RECOVERY_POINTS_FILE)
        starts = self._read(checkpoints.LOG_START_OFFSETS_FILE)
        self.recovery_points = points.offsets
        # Where what was there to prove them is damaged, they may be another file's numbers: a start that is too low loses nothing.
        self.log_starts = {} if starts.twin is None and starts.doubt else starts.offsets
        self.high_watermarks = self._read(checkpoints.HIGH_WATERMARKS_FILE).offsets
        clean = self._read(checkpoints.CLEAN_OFFSETS_FILE)
        self.clean_offsets, self.has_clean_offsets = clean.offsets, clean.is_known
        self.is_log_start_proved = starts.is_proved
        self._starts, self._had_starts = starts, was_served or points.is_known
        self._has_twins = points.twin is not None
        self.has_recovery_points = points.is_known
        if points.twin is not None:
            offsets, self._point_ids = points.twin.offsets, dict(points.twin.topic_ids)
            self.proved_points = {name: (of, offsets[name]) for name, of in self._point_ids.items() if name in offsets}

    def note_doubted_starts(self, logs: Sequence[UnifiedLog]) -> None:
        """After the logs were opened: mark those whose start is not known here, and tell."""
        for log in logs:
            name = log.topic_partition
            log.is_start_doubted = log.log_start_offset < log.log_end_offset and (
                log.is_start_doubted
                or is_start_doubted(self._starts, name, has_twins=self._has_twins, was_written=self._had_starts)
                or log.log_start_offset < self.log_starts.get(name, 0)
            )
        doubted = [log.topic_partition for log in logs if log.is_start_doubted]
        if not doubted:
            return
        doubt = (
            f"{self._directory}/{checkpoints.LOG_START_OFFSETS_FILE} and its twin do not prove where {len(doubted)} logs start "
            f"({few_of(doubted)}): leaders ask their in-sync followers; where there is none, records that were deleted may be "
            "read again, and are to be deleted again"
        )
        logger.warning("%s", doubt)
        if not self._starts.doubt:
            self.doubts.append(doubt)

    @property
    def _files(self) -> dict[str, dict[TopicPartition, Offset]]:
        return {
            checkpoints.RECOVERY_POINTS_FILE: self.recovery_points,
            checkpoints.LOG_START_OFFSETS_FILE: self.log_starts,
            checkpoints.HIGH_WATERMARKS_FILE: self.high_watermarks,
            checkpoints.CLEAN_OFFSETS_FILE: self.clean_offsets,
        }

    def note_missing(self) -> None:
        """After the logs were opened: what the files say of others is to be forgotten."""
        self.deleted = {name: None for saved in self._files.values() for name in saved if name not in self._logs}
        if self.deleted:
            self.deletion.set()

    def recovery_point(self, topic_partition: TopicPartition) -> Offset | None:
        """The recovery point of a log that is to be opened; None where it is lost. The file is there from the end of
        the first start on."""
        return self.recovery_points.get(topic_partition, Offset(0)) if self.has_recovery_points else None

    def has_gaps(self, topic_partition: TopicPartition) -> bool | None:
        """Whether a log that is to be opened has gaps, as far as the file says; None where that is lost, or was never written."""
        return topic_partition in self.clean_offsets if self.has_clean_offsets else None

    def _read(self, name: str) -> Settled:
        path = f"{self._directory}/{name}"
        settled = settle(self._content(path), self._content(f"{self._directory}/{OWN_DIRECTORY}/{name}"), path=path)
        if settled.doubt:
            logger.warning("%s", settled.doubt)  # not an error: a crash between the two writes leaves it so
            self.doubts.append(settled.doubt)
        return settled

    def _content(self, path: str) -> bytes | None:
        try:
            return self._disk.read_file(path)
        except FileNotFoundError:
            return None

    # -- the periodic checkpoints ----------------------------------------------------------------------------------

    def ends(self) -> list[tuple[UnifiedLog, Offset]]:
        """What `save` is to say, taken on the loop: (log, flushed end)."""
        return [(log, log.durability.flushed_end_offset) for log in self._logs.values()]

    def save(self, ends: Sequence[tuple[UnifiedLog, Offset]]) -> None:
        """Write leader epochs, recovery points and log starts, while logs may be truncated or deleted. Raises OSError."""
        for log, _ in ends:
            try:
                log.leader_epochs.save()
            except FileNotFoundError:
                continue  # deleted meanwhile: its directory has another name
        with self._saving:
            # min: a truncation since the ends were taken; one from here on waits for the lock and writes after us. So below.
            here = [(log, end) for log, end in ends if self._has(log)]
            points = {}
            for log, end in here:
                # Behind again: the log may have been cut and refilled since its file, which is believed below the point.
                if log.leader_epochs.is_dirty:
                    end = min(end, self.recovery_points.get(log.topic_partition, Offset(0)))
                points[log.topic_partition] = min(end, log.durability.flushed_end_offset)
            # As they are now, of younger logs too: one that has risen since the ends were taken may be saved and reported already.
            rising = self.rising_log_starts
            starts = {
                log.topic_partition: start
                for log in tuple(self._logs.values())
                if (start := max(rising.get(log, Offset(0)), log.log_start_offset)) > 0
            }
            for name, offsets in (
                (checkpoints.RECOVERY_POINTS_FILE, points),
                (checkpoints.LOG_START_OFFSETS_FILE, starts),
            ):
                self._write(name, offsets)
            self.recovery_points, self.log_starts = points, starts
            self.has_recovery_points = True

    def save_high_watermarks(self, offsets: Sequence[tuple[UnifiedLog, Offset]]) -> None:
        """Write them if one has moved. Raises OSError, also on a full disk: the reserve is not for them."""
        with self._saving:
            # A log that is deleted meanwhile is left out: another may have its name already.
            here = {log.topic_partition: min(offset, log.high_watermark) for log, offset in offsets if self._has(log)}
            if here != self.high_watermarks:
                self._write_both(checkpoints.HIGH_WATERMARKS_FILE, here)
                self.high_watermarks = here

    def save_clean_offset(self, log: UnifiedLog, offset: Offset) -> None:
        """Write how far a log is clean. Raises OSError."""
        self.save_clean_offsets({log: offset})

    def save_clean_offsets(self, offsets: Mapping[UnifiedLog, Offset]) -> None:
        """Write how far these logs are clean, or only the file where it is lost. Raises OSError."""
        with self._saving:
            here = {log.topic_partition: offset for log, offset in offsets.items() if self._has(log)}
            if here or not self.has_clean_offsets:
                clean = {**self.clean_offsets, **here}
                self._write(checkpoints.CLEAN_OFFSETS_FILE, clean)
                self.clean_offsets, self.has_clean_offsets = clean, True

    # -- what must not wait for them -------------------------------------------------------------------------------

    def lower(self, log: UnifiedLog) -> None:
        """The log was cut, or starts over with a lower start and high watermark: no entry may be above what it has now.

        Raises OSError, after each file was tried."""
        self.rising_log_starts.pop(log, None)
        failure: OSError | None = None
        with self._saving:
            for name, saved, offset in (
                (checkpoints.RECOVERY_POINTS_FILE, self.recovery_points, log.durability.flushed_end_offset),
                (checkpoints.LOG_START_OFFSETS_FILE, self.log_starts, log.log_start_offset),
                (checkpoints.HIGH_WATERMARKS_FILE, self.high_watermarks, log.high_watermark),
                (checkpoints.CLEAN_OFFSETS_FILE, self.clean_offsets, log.log_end_offset),
            ):
                if saved.get(log.topic_partition, 0) > offset:
                    saved[log.topic_partition] = offset
                    try:
                        self._write(name, saved)
                    except OSError as error:
                        failure = failure or error
        if failure is not None:
            raise failure

    def replace(self, topic_partition: TopicPartition, topic_id: Uuid, *, end_offset: Offset) -> None:
        """Another log has been put in the place of the partition's, while no broker runs: flushed up to there. Blocks. Raises OSError."""
        with self._saving:
            self._point_ids[topic_partition] = topic_id
            for name, saved in self._files.items():
                saved.pop(topic_partition, None)
                if name == checkpoints.RECOVERY_POINTS_FILE:
                    saved[topic_partition] = end_offset
                self._write(name, saved)

    def begin_raising(self, starts: Mapping[UnifiedLog, Offset]) -> None:
        """The starts of these logs are to move there; `save_rising` writes it."""
        for log, offset in starts.items():
            self.rising_log_starts[log] = max(offset, self.rising_log_starts.get(log, offset))

    def save_rising(self, logs: Sequence[UnifiedLog]) -> None:
        """Write the starts that are rising, of these logs. Raises OSError."""
        with self._saving:
            starts = dict(self.log_starts)
            for log in logs:
                start = self.rising_log_starts.get(log)
                if start is not None and self._has(log):
                    starts[log.topic_partition] = max(start, starts.get(log.topic_partition, start))
            if starts != self.log_starts:
                self._write(checkpoints.LOG_START_OFFSETS_FILE, starts)
                self.log_starts = starts

    def keep_start(self, log: UnifiedLog) -> None:
        """The log has come into the place of another: its start is saved where a checkpoint in between has left that out. Blocks.
        Raises OSError."""
        if self.log_starts.get(log.topic_partition, 0) < log.log_start_offset:
            self.begin_raising({log: log.log_start_offset})
            self.save_rising((log,))
            del self.rising_log_starts[log]

    def begin_anew(self, topic_partition: TopicPartition) -> None:
        """Another log takes the name of one that was taken out, compacted by another cleaner and ending elsewhere: none of it counts as
        proved or clean, and it may have gaps. Its start and high watermark stay. Blocks. Raises OSError."""
        with self._saving:
            for name, saved, offset in (
                (checkpoints.RECOVERY_POINTS_FILE, self.recovery_points, None),
                (checkpoints.CLEAN_OFFSETS_FILE, self.clean_offsets, Offset(0)),
            ):
                if saved.get(topic_partition) != offset:
                    if offset is None:
                        del saved[topic_partition]
                    else:
                        saved[topic_partition] = offset
                    self._write(name, saved)

    def note_deleted(self, topic_partition: TopicPartition) -> None:
        """The log of that name was taken out of the directory's logs; `forget_deleted` is due."""
        self.deleted[topic_partition] = None
        self.deletion.set()

    def forget_deleted(self) -> None:
        """Take out what the files say of deleted logs: a new log starts at 0, and an entry of an earlier one of that name would
        cut it at the next start, or take for committed what is not. Raises OSError."""
        with self._saving:
            # What is deleted from here on is in no checkpoint that is begun later, but may be in the files.
            names = {name for name in tuple(self.deleted) if name not in self._logs}
            for file, saved in (
                (checkpoints.RECOVERY_POINTS_FILE, self.recovery_points),
                (checkpoints.LOG_START_OFFSETS_FILE, self.log_starts),
                (checkpoints.HIGH_WATERMARKS_FILE, self.high_watermarks),
                (checkpoints.CLEAN_OFFSETS_FILE, self.clean_offsets),
            ):
                if any(saved.get(name) for name in names):
                    self._write(file, {name: offset for name, offset in saved.items() if name not in names})
                for name in names:
                    saved.pop(name, None)
            for name in names:
                self.deleted.pop(name, None)

    def _has(self, log: UnifiedLog) -> bool:
        return self._logs.get(log.topic_partition) is log

    def _write(self, name: str, offsets: Mapping[TopicPartition, Offset]) -> None:
        """A checkpoint file; on a full disk in the room that is kept for it."""
        try:
            self._write_both(name, offsets)
        except OSError as error:
            if not is_disk_full(error) or not self._reserve.spend():
                raise
            self._write_both(name, offsets)

    def _write_both(self, name: str, offsets: Mapping[TopicPartition, Offset]) -> None:
        """The twin first: where a crash comes between the two they differ, and the lower of the two is right in either order."""
        topic_ids: Mapping[TopicPartition, Uuid] = {}
        if name == checkpoints.RECOVERY_POINTS_FILE:
            known = {each: log.topic_id for each, log in tuple(self._logs.items())}
            topic_ids = self._point_ids = {
                each: topic_id
                for each in offsets
                if (topic_id := known.get(each) or self._point_ids.get(each)) not in (None, ZERO_UUID)
            }
        own_directory = f"{self._directory}/{OWN_DIRECTORY}"
        named: Mapping[TopicPartition, Offset] = offsets
        if name == checkpoints.LOG_START_OFFSETS_FILE:
            # The twin alone names a start that is in doubt, so that it is in doubt after a kill, too.
            doubted = {each: Offset(0) for each, log in tuple(self._logs.items()) if log.is_start_doubted}
            named = {**doubted, **offsets}
            offsets = {each: offset for each, offset in offsets.items() if each not in doubted}
        write_own_file(self._disk, own_directory, name, encode_twin(name, named, topic_ids))
        checkpoints.write_offsets(self._disk, f"{self._directory}/{name}", offsets)
