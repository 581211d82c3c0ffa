"""What of one log is written, what is flushed, and what a flush round under way may claim.

May touch:  the Disk for handles of directories, the files of segments.     Must not touch: batches, the loop, clocks.
Invariants: flushed end <= written end; an offset counts as flushed only once every file and name that it needs is; what was cut off
            while a round was under way is not claimed by that round; of a segment that is retired, or takes appends again, a
            round under way claims nothing; names of segments become durable in the order of their making.
Read next:  unified_log.py, which owns one of these; flush.py, which begins and ends rounds.

A round: `begin_round` names the files that must be flushed for the written end to be durable, `end_round` says that they are.
In between the log is in use: it may grow, roll, be cut. One round of a log at a time; one that never ends is simply
followed by the next, which names its files again.

Not obvious:
  - `end_round` gets an end that was taken when the round began. A cut since then has lowered it: `_round_end_max` keeps to what.
  - The file of a cut log is flushed though nothing of it is new: else a power cut brings back what was cut.
  - `unnamed` counts the newest segments whose names a power cut may take. Truncation removes segments and does not lower it:
    it may be too high, never too low.
"""

from __future__ import annotations

from typing import Protocol

from barnabas_log.disk import Disk, File
from barnabas_log.tail.segment import LogSegment
from barnabas_wire.kafka.ids import Offset


class FlushRound(Protocol):
    """A flush of files that is under way."""

    def is_slow(self) -> bool:
        """Whether it takes so long that a write to its files might wait for it, and nothing that is written now could be acknowledged
        sooner."""
        ...


class Durability:
    """How far one log is durable, and its flush round. It opens handles of directories, and closes every file it was
    given once that is flushed."""

    __slots__ = (
        "_cuts_claimed",
        "_cuts_flushed",
        "_directory",
        "_disk",
        "_files",
        "_files_claimed",
        "_has_new_names",
        "_is_parent_flushed",
        "_round_end_max",
        "_segments",
        "_segments_claimed",
        "_segments_made",
        "_segments_named",
        "_segments_named_claimed",
        "cuts",
        "flush_round",
        "flushed_end_offset",
        "is_directory_durable",
        "written_end_offset",
    )

    def __init__(self, disk: Disk, directory: str, *, end_offset: Offset, is_new: bool) -> None:
        """end_offset: what was found counts as flushed. is_new: the directory of the log was just made."""
        self.written_end_offset = end_offset
        """Everything below is in the file."""
        self.flushed_end_offset = end_offset
        """Everything below is durable; also the recovery point."""
        self.flush_round: FlushRound | None = None
        """The one under way that the log is in; flush.py sets it."""
        self.is_directory_durable = not is_new
        """Whether a power cut leaves the directory, with its topic id."""
        self.cuts = 0
        """Truncations so far."""
        self._disk = disk
        self._directory = directory
        self._segments: list[LogSegment] = []
        self._files: list[File] = []
        self._has_new_names = True
        self._is_parent_flushed = not is_new
        self._segments_made = 1
        self._segments_named = 0
        self._cuts_flushed = 0
        # What belongs to the round under way, or to the last one.
        self._segments_claimed: list[LogSegment] = []
        self._files_claimed: list[File] = []
        self._segments_named_claimed = 0
        self._cuts_claimed = 0
        self._round_end_max: Offset | None = None

    # -- what the log did ------------------------------------------------------------------------------------------

    def add_file(self, file: File) -> None:
        """A small file was written beside the segments: the next round flushes it and closes it."""
        self._files.append(file)

    def rest(self) -> None:
        """What waits to be flushed goes without descriptors until then: of a log that was just opened, perhaps in a thread."""
        for file in self._files:
            file.rest()

    def note_names(self) -> None:
        """Files of the log were made, renamed or removed."""
        self._has_new_names = True

    def add_segment(self, rolled: LogSegment) -> None:
        """A segment was made after `rolled`, which takes no more and is to be flushed with its indexes."""
        self._segments_made += 1
        self._segments.append(rolled)
        self._has_new_names = True

    def forget_segment(self, segment: LogSegment) -> None:
        """It is retired, or takes appends again: a round under way must not settle what it contains by then."""
        for segments in (self._segments, self._segments_claimed):
            if segment in segments:
                segments.remove(segment)

    def note_cut(self) -> None:
        """Bytes were cut off the active segment."""
        self.cuts += 1

    def end_at(self, offset: Offset) -> None:
        """The log ends at `offset` now: nothing may claim more."""
        self.written_end_offset = offset
        self.flushed_end_offset = min(self.flushed_end_offset, offset)
        self._round_end_max = offset if self._round_end_max is None else min(self._round_end_max, offset)
        self._has_new_names = True

    def start_over_at(self, offset: Offset) -> None:
        """After `end_at`: one new segment has replaced all others, and the names were flushed; but the directory's own perhaps
        not, then the beginning counts only with the first round."""
        self._segments_made += 1
        self._segments_named = self._segments_made
        if self.is_directory_durable:
            self.flushed_end_offset = offset
        else:
            self.flushed_end_offset = self._round_end_max = Offset(0)

    # -- names of segments -----------------------------------------------------------------------------------------

    @property
    def unnamed(self) -> int:
        """How many of the newest segments have names that a power cut may take."""
        return self._segments_made - self._segments_named

    @property
    def is_cut_flushed(self) -> bool:
        """Whether no power cut brings back what was cut off."""
        return self._cuts_flushed == self.cuts

    def sync_names(self) -> None:
        """Flush the names, blocking. Raises OSError."""
        self._disk.sync_directory(self._directory)
        self._segments_named = self._segments_made

    # -- rounds ----------------------------------------------------------------------------------------------------

    def is_dirty(self, log_end_offset: Offset) -> bool:
        """Whether a round would make anything durable that is not."""
        return bool(
            self.flushed_end_offset < log_end_offset
            or self._segments
            or self._files
            or self._has_new_names
            or self._cuts_flushed < self.cuts
        )

    def begin_round(self, active: LogSegment) -> list[File]:
        """Every file that must be flushed for the written end to be durable. Raises OSError."""
        self._round_end_max = None
        files: list[File] = []
        if self.flushed_end_offset < self.written_end_offset or self._cuts_flushed < self.cuts:
            files.append(active.file)
        if self._has_new_names:
            self._files.append(self._disk.directory(self._directory))
        if not self._is_parent_flushed:
            self._files.append(self._disk.directory(self._directory.rpartition("/")[0] or "."))
        for segment in self._segments:
            files += (segment.file, segment.offset_index.file, segment.time_index.file)
        self._has_new_names, self._is_parent_flushed = False, True
        files += self._files
        self._segments_named_claimed, self._cuts_claimed = self._segments_made, self.cuts
        self._segments_claimed = list(self._segments)
        self._files_claimed = list(self._files)
        return files

    def end_round(self, offset: Offset) -> None:
        """The files of the last `begin_round` are flushed, and so all below `offset`, the written end then."""
        if self._round_end_max is not None:
            offset = min(offset, self._round_end_max)
        if offset > self.flushed_end_offset:
            self.flushed_end_offset = offset
        self.is_directory_durable = True
        self._segments_named = max(self._segments_named, self._segments_named_claimed)
        self._cuts_flushed = max(self._cuts_flushed, self._cuts_claimed)
        for segment in self._segments_claimed:
            self._segments.remove(segment)
            segment.close_indexes()
        for file in self._files_claimed:
            self._files.remove(file)
            file.close()
        self._segments_claimed, self._files_claimed = [], []

    def release(self) -> None:
        """Close what waits to be flushed, and claim nothing more."""
        for file in self._files:
            file.close()
        self._files, self._files_claimed = [], []
        self._segments, self._segments_claimed = [], []
