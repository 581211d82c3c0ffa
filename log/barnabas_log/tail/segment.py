"""One segment: a .log file of batches end to end, and its two sparse indexes.

May touch:  disk.py, the two indexes.     Must not touch: clocks, epochs, producers, other segments.
Invariants: position 0 holds the batch with the base offset; batches follow without gaps; every remembered boundary is the
            start of a batch or the end of the file; the file holds Kafka's bytes and nothing else.
Read next:  segments.py, unified_log.py.

Layout: <20-digit base offset>.log = v2 batches (barnabas_wire/records/batch.py). A crash leaves a prefix of what was
appended since the last flush, or zeros and old bytes after it: recovery cuts at the first batch that is not sound.

Not obvious:
  - `size_bytes` counts what was assigned; `file.size_bytes` what was written. unified_log.py writes before it reads.
  - Boundaries: a sequential reader comes back with the offset where its last read ended, and the high watermark is where
    some follower's read ended, so remembering read ends makes scans of headers the exception.
"""

from __future__ import annotations

import contextlib
import logging
import zlib
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import NamedTuple

from barnabas_log.config import INT32_MAX, LogConfig
from barnabas_log.descriptors import is_out_of_descriptors
from barnabas_log.disk import Disk, File
from barnabas_log.errors import CorruptCheckpoint
from barnabas_log.read.batch_times import BatchTimes, DatedOffset
from barnabas_log.read.offset_index import RELATIVE_OFFSET_MAX, OffsetIndex
from barnabas_log.read.time_index import TimeIndex
from barnabas_log.recovery.scrub import DamagedRange
from barnabas_log.recovery.segment_note import TrueTime
from barnabas_log.tail.aborted_transactions import TXN_CHECK_SUFFIX, TXN_INDEX_SUFFIX
from barnabas_wire.kafka.ids import Offset
from barnabas_wire.records.batch import (
    BASE_OFFSET_FIELD,
    BATCH_LENGTH_FIELD,
    HEADER_BYTES,
    LAST_OFFSET_DELTA_FIELD,
    LOG_OVERHEAD_BYTES,
    MAX_TIMESTAMP_FIELD,
    BatchHeader,
    CorruptBatch,
    HeaderFields,
    read_header,
)
from barnabas_wire.tuples import new_tuple

logger = logging.getLogger(__name__)

BOUNDARIES_MAX = 256
"""Remembered batch boundaries per segment (about 20 KiB)."""
INDEX_INTERVAL_BYTES_MAX = 64 * 1024
"""The most bytes between two index entries, whatever the topic's owner wants: the headers between them are walked over
on the loop, up to a thousand."""
LYING_MAX = 256
"""Batches of a segment whose true time is remembered."""
_SCAN_BYTES = 8192
LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, SNAPSHOT_SUFFIX = ".log", ".index", ".timeindex", ".snapshot"
REPAIR_SUFFIX = ".repair"
"""The suffix of an index that is made again beside the one in use; one that a crash leaves is removed."""
TRUE_TIME_SUFFIX = ".truetime"
NOTE_SUFFIXES = (TXN_CHECK_SUFFIX, TRUE_TIME_SUFFIX)
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, SNAPSHOT_SUFFIX, *NOTE_SUFFIXES)
DELETED_SUFFIX = ".deleted"
_NO_TIMESTAMP = -1


class BatchPlace(NamedTuple):
    """Where a batch is in its segment."""

    position: int
    base_offset: Offset


def segment_path(directory: str, base_offset: int, suffix: str) -> str:
    """File of a segment."""
    return f"{directory}/{base_offset:020d}{suffix}"


def is_offset_name(stem: str) -> bool:
    """Whether that is how an offset is written in the names of a segment's files."""
    return len(stem) == 20 and stem.isdecimal() and stem.isascii()


class LogSegment:
    """One segment of one log. `create` a new one or `open` one that is there."""

    __slots__ = (
        "_bytes_since_index",
        "_disk",
        "_first_timestamp_ms",
        "_has_new_time",
        "_index_room",
        "_jitter",
        "_max_timestamp",
        "_seen_bytes",
        "_seen_ms",
        "base_offset",
        "boundaries",
        "created_ms",
        "damaged",
        "directory",
        "early_end",
        "file",
        "has_gaps",
        "index_interval_bytes",
        "is_index_doubted",
        "is_index_full",
        "is_outgrowing",
        "lying",
        "offset_index",
        "size_bytes",
        "time_index",
        "true_time",
    )

    def __init__(
        self, disk: Disk, directory: str, base_offset: Offset, config: LogConfig, file: File, now_ms: int
    ) -> None:
        self._disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.file = file
        self.size_bytes = file.size_bytes
        self.created_ms = now_ms
        """When it was made, or opened."""
        self._seen_bytes, self._seen_ms = self.size_bytes, now_ms
        self.index_interval_bytes = min(config.index_interval_bytes, INDEX_INTERVAL_BYTES_MAX)
        bytes_max = config.segment_index_bytes
        self.offset_index = OffsetIndex(
            disk, segment_path(directory, base_offset, INDEX_SUFFIX), base_offset, bytes_max=bytes_max
        )
        self.time_index = TimeIndex(
            disk, segment_path(directory, base_offset, TIME_INDEX_SUFFIX), base_offset, bytes_max=bytes_max
        )
        self.is_index_full = False
        self.is_outgrowing = False
        """Whether it takes up to twice its size and any age, while a flush makes its name durable: see UnifiedLog._roll."""
        self._index_room = 0
        self._bytes_since_index = 0
        self.boundaries: dict[int, int] = {}
        """Remembered boundaries: offset -> position of the batch that begins with it."""
        self.damaged: tuple[DamagedRange, ...] = ()
        """Where its bytes are known to be no batches; look-ups pass over them."""
        self.early_end: Offset | None = None
        """Where its last batch ends, if Kafka's cleaner left that before the next segment's base: see early_end.py."""
        self.true_time: TrueTime | None = None
        """What true_times.py found in it; of a part of it where it has grown since."""
        self.lying: dict[int, int] = {}
        """By position, the greatest time of the batches whose header was found to say another one; at most LYING_MAX. What a search
        learns on a frozen copy is known here too; never emptied but replaced, where the positions may come to mean others."""
        self.is_index_doubted = False
        """Whether the offset index was found to name bytes that are not what it says: it is not asked until it is made again."""
        self.has_gaps = False
        """Whether offsets are missing between its batches, as far as segment_proof.py has read it."""
        self._has_new_time = True
        """False while the time index is known to hold the greatest timestamp."""
        self._max_timestamp: tuple[int, int] | None = (_NO_TIMESTAMP, base_offset) if not self.size_bytes else None
        self._first_timestamp_ms: int | None = None
        # Spreads rolls without a random number, so that a run can be replayed: the same on every start and replica.
        self._jitter = zlib.crc32(f"{directory.rpartition('/')[2]}/{base_offset}".encode())

    @classmethod
    def create(cls, disk: Disk, directory: str, base_offset: Offset, config: LogConfig, *, now_ms: int) -> LogSegment:
        """A new, empty segment that can be appended to. Its names are durable after a flush of the directory."""
        file = disk.open(segment_path(directory, base_offset, LOG_SUFFIX), create=True)
        file.truncate(0)
        segment = cls(disk, directory, base_offset, config, file, now_ms)
        segment.offset_index.create()
        segment.time_index.create()
        return segment

    @classmethod
    def open(cls, disk: Disk, directory: str, base_offset: Offset, config: LogConfig, *, now_ms: int) -> LogSegment:
        """A segment that is there; its files are opened when asked. Raises FileNotFoundError."""
        file = disk.open(segment_path(directory, base_offset, LOG_SUFFIX))
        file.rest()
        return cls(disk, directory, base_offset, config, file, now_ms)

    # -- appending -------------------------------------------------------------------------------------------------

    def add_batch(self, last_offset: int, max_timestamp_ms: int, size_bytes: int) -> None:
        """Account for a batch that goes to the end: size, timestamps, an index entry when one is due."""
        position = self.size_bytes
        if not position:
            self._first_timestamp_ms = max_timestamp_ms
        max_timestamp = self._max_timestamp or self.max_timestamp
        if max_timestamp_ms > max_timestamp[0]:
            self._max_timestamp = max_timestamp = (max_timestamp_ms, last_offset)
            self._has_new_time = True
        if self._bytes_since_index > self.index_interval_bytes:
            self.offset_index.append(last_offset - self.base_offset, position)
            if self._has_new_time:
                self.time_index.add(timestamp_ms=max_timestamp[0], offset=max_timestamp[1])
                self._has_new_time = False
            self._bytes_since_index = 0
            self._index_room -= 1
            if self._index_room <= 0:
                self._look_for_index_room()
        self._bytes_since_index += size_bytes
        self.size_bytes = position + size_bytes

    def add_batches(self, headers: Sequence[HeaderFields], start: int, *, config: LogConfig, now_ms: int) -> int:
        """Account for headers[start:] as should_roll and add_batch do it, until one must go to a new segment.

        Returns how many of `headers` are accounted for then. Flat: of a follower's work per batch this is the most.
        """
        size, base_offset = self.size_bytes, self.base_offset
        since_index, interval = self._bytes_since_index, self.index_interval_bytes
        greatest = self._max_timestamp or self.max_timestamp
        indexed_ms = _NO_TIMESTAMP - 1
        add_to_index = self.offset_index.append
        bytes_max = min(config.segment_bytes, INT32_MAX)
        dated_max_ms = self._surely_kept_until_ms(config)
        offset_field, length_field = BASE_OFFSET_FIELD, BATCH_LENGTH_FIELD
        delta_field, time_field = LAST_OFFSET_DELTA_FIELD, MAX_TIMESTAMP_FIELD
        count = len(headers)
        for number in range(start, count):
            header = headers[number]
            batch_bytes = header[length_field] + LOG_OVERHEAD_BYTES
            last_offset = header[offset_field] + header[delta_field]
            timestamp_ms = header[time_field]
            if not size:
                self._first_timestamp_ms = timestamp_ms
                dated_max_ms = self._surely_kept_until_ms(config)
            elif (
                size + batch_bytes > bytes_max
                or timestamp_ms > dated_max_ms
                or last_offset - base_offset > RELATIVE_OFFSET_MAX
                or self.is_index_full
            ):
                self.size_bytes = size
                if self.should_roll(
                    config,
                    size_bytes=batch_bytes,
                    last_offset=last_offset,
                    max_timestamp_ms=timestamp_ms,
                    now_ms=now_ms,
                ):
                    count = number
                    break
            if timestamp_ms > greatest[0]:
                greatest = (timestamp_ms, last_offset)
            if since_index > interval:
                add_to_index(last_offset - base_offset, size)
                if greatest[0] != indexed_ms:
                    indexed_ms = greatest[0]
                    self.time_index.add(timestamp_ms=indexed_ms, offset=greatest[1])
                since_index = 0
                self._index_room -= 1
                if self._index_room <= 0:
                    self._look_for_index_room()
            since_index += batch_bytes
            size += batch_bytes
        self.size_bytes, self._bytes_since_index, self._max_timestamp = size, since_index, greatest
        self._has_new_time = True
        return count

    def _look_for_index_room(self) -> None:
        """Count how many further entries both indexes take: it may be more than thought, as not every batch has a new time."""
        self._index_room = min(self.offset_index.room, self.time_index.room)
        self.is_index_full = self._index_room <= 0

    def _surely_kept_until_ms(self, config: LogConfig) -> int:
        """Records dated up to here do not end the segment by their time; -2 where that must be asked of should_roll."""
        first_ms = self._first_timestamp_ms
        if first_ms is None or first_ms < 0:
            return _NO_TIMESTAMP - 1
        return first_ms + config.segment_ms - config.segment_jitter_ms

    def should_roll(
        self, config: LogConfig, *, size_bytes: int, last_offset: int, max_timestamp_ms: int, now_ms: int
    ) -> bool:
        """Whether a batch must go to a new segment: size, span of record time, full index, offset past 32 bits."""
        size = self.size_bytes
        if not size:
            return False
        if (
            size + size_bytes > config.segment_bytes << self.is_outgrowing
            or self.is_index_full
            or last_offset - self.base_offset > RELATIVE_OFFSET_MAX
            or size + size_bytes > INT32_MAX
        ):
            return True
        if self.is_outgrowing:
            return False
        first_ms = self._first_timestamp_ms
        if first_ms is None:
            try:
                first_ms = self._first_timestamp_ms = self.header_at(0).max_timestamp_ms
            except CorruptBatch:  # rot: it refused every append
                first_ms = self._first_timestamp_ms = _NO_TIMESTAMP
            except OSError as error:
                if not is_out_of_descriptors(error):
                    raise
                return False  # asked again with the next batch
        waited_ms = max_timestamp_ms - first_ms if first_ms >= 0 else now_ms - self.created_ms
        if waited_ms <= config.segment_ms - config.segment_jitter_ms:
            return False
        jitter_ms = self._jitter % (min(config.segment_jitter_ms, config.segment_ms) + 1)
        return waited_ms > config.segment_ms - jitter_ms

    def index_last(self, last_offset: int, position: int) -> None:
        """Name the last batch in the offset index too: a tail that is lost later does not pass for one that was compacted."""
        last = (last_offset - self.base_offset, position)
        if self.offset_index.room > 0 and self.offset_index.last() != last:
            self.offset_index.append(*last)

    def finish(self) -> None:
        """Write out what the indexes hold in memory, with the greatest timestamp last, as at a roll or a clean stop."""
        timestamp_ms, offset = self.max_timestamp
        if timestamp_ms >= 0:
            self.time_index.add(timestamp_ms=timestamp_ms, offset=offset)
        self.offset_index.write_out()
        self.time_index.write_out()

    def become_inactive(self) -> None:
        """Finish, and keep no index in memory."""
        self.finish()
        self.offset_index.unload()
        self.time_index.unload()

    def become_active(self) -> None:
        """Load the indexes, so that the segment can be appended to or truncated.

        Raises CorruptCheckpoint or FileNotFoundError when they cannot be this segment's: then rebuild them by recovery.
        """
        self.offset_index.load()
        self.time_index.load()
        last, position = self.offset_index.last(), 0
        if last is not None:
            _, position = last
            if position >= self.size_bytes:
                raise CorruptCheckpoint(f"{self.offset_index.path} points past the end of its log")
        self._bytes_since_index = self.size_bytes - position
        self._look_for_index_room()

    def begin_rebuild(self) -> None:
        """Forget indexes and size: recovery adds the sound batches again."""
        self.offset_index.create()
        self.time_index.create()
        self.size_bytes = 0
        self.true_time = None
        self.lying = {}
        self.is_index_full = False
        self._bytes_since_index = 0
        self._has_new_time = True
        self.boundaries.clear()
        self._max_timestamp = (_NO_TIMESTAMP, self.base_offset)
        self._first_timestamp_ms = None

    def truncate_to(self, place: BatchPlace) -> None:
        """Drop the batch at `place` and all after it. The indexes must be loaded and everything written."""
        position = place.position
        self.early_end = self.true_time = None
        self.lying = {}
        self.file.truncate(position)
        self.size_bytes = position
        self.offset_index.truncate_to_position(position)
        self.time_index.truncate_to_offset(place.base_offset)
        last, indexed = self.offset_index.last(), 0
        if last is not None:
            _, indexed = last
        self._bytes_since_index = position - indexed
        self.is_index_full = False
        self._has_new_time = True
        self.boundaries = {offset: at for offset, at in self.boundaries.items() if at <= position}
        if not position:
            self._first_timestamp_ms = None
        greatest_ms, of_offset = self.time_index.greatest() or (_NO_TIMESTAMP, int(self.base_offset))
        for _, header in self.headers(self.offset_index.position_at_or_before(of_offset)):
            if header.max_timestamp_ms > greatest_ms:
                greatest_ms, of_offset = header.max_timestamp_ms, header.last_offset
        self._max_timestamp = (greatest_ms, of_offset)

    # -- finding ---------------------------------------------------------------------------------------------------

    @property
    def max_timestamp(self) -> tuple[int, int]:
        """(greatest record timestamp in ms or -1, last offset of the first batch that has it)."""
        return self._max_timestamp or self.load_max_timestamp()

    def newest_ms(self, *, now_ms: int) -> int:
        """Time of its newest record, for retention; where none bears a time, when this was last asked and found it to have grown."""
        if self.size_bytes != self._seen_bytes:
            self._seen_bytes, self._seen_ms = self.size_bytes, now_ms
        greatest_ms = max(self.max_timestamp[0], -1 if self.true_time is None else self.true_time.greatest_ms)
        return greatest_ms if greatest_ms >= 0 else self._seen_ms

    def date_repaired(self, header: BatchHeader) -> None:
        """A batch is readable again: retention counts its time at once, and not only when the time index has it."""
        self.true_time = None
        self.lying = {}
        if header.max_timestamp_ms > self.max_timestamp[0]:
            self._max_timestamp = (header.max_timestamp_ms, header.last_offset)

    def load_max_timestamp(self) -> tuple[int, int]:
        """Take max_timestamp from the time index, whose last entry it is since the segment was finished."""
        if self._max_timestamp is None:
            self._max_timestamp = self.time_index.greatest() or (_NO_TIMESTAMP, self.base_offset)
        return self._max_timestamp

    def remember(self, offset: int, position: int) -> None:
        """Say that the batch starting with `offset` starts at `position` (or will, at the end)."""
        boundaries = self.boundaries
        boundaries[offset] = position
        if len(boundaries) > BOUNDARIES_MAX:
            self.boundaries = dict(list(boundaries.items())[BOUNDARIES_MAX // 2 :])

    def find(self, offset: int) -> BatchPlace:
        """The batch that holds `offset`, which is at least the base offset, or the next one where compaction left none; the end of
        the file if none does."""
        for damage in self.damaged:
            if damage.first_offset <= offset < damage.end_offset:
                return BatchPlace(damage.position, damage.first_offset)
        position = self.boundaries.get(offset)
        if position is not None:
            return new_tuple(BatchPlace, (position, offset))
        next_offset = self.base_offset
        for position, header in self.headers(self._scan_start(offset)):
            if header.last_offset >= offset:
                self.remember(header.base_offset, position)
                return BatchPlace(position, header.base_offset)
            next_offset = header.next_offset
        return BatchPlace(self.file.size_bytes, max(next_offset, self._damaged_end(self.file.size_bytes)))

    def _scan_start(self, offset: int) -> int:
        """A batch boundary from which a scan finds `offset`. An entry of an index that lay on the disk is held against its batch."""
        index = self.offset_index
        if not self.is_index_doubted:
            entry = index.entry_at_or_before(offset)
            if entry is None:
                return 0
            relative_offset, position = entry
            if index.is_own or self._end_of_damage(position) > position:
                return position
            with contextlib.suppress(CorruptBatch):  # another sign of the same
                if self.header_at(position).last_offset == self.base_offset + relative_offset:
                    return position
            self.doubt_index()
        return max((position for known, position in self.boundaries.items() if known <= offset), default=0)

    def doubt_index(self) -> None:
        """The offset index does not fit the log: it rotted, or the log did."""
        logger.warning("%s names bytes where its batches are not; it is made again", self.offset_index.path)
        self.is_index_doubted = True

    def end_before(self, place: BatchPlace) -> Offset:
        """Where the batch before a place ends: of a compacted segment that may be below the place's own offset."""
        end = self.base_offset
        for position, header in self.headers(self._scan_start(place.base_offset - 1)):
            if position >= place.position:
                break
            end = header.next_offset
        return max(end, self._damaged_end(place.position))

    def _damaged_end(self, position: int) -> Offset:
        """Where the last known damage before `position` ends: no header says that."""
        ends = [damage.end_offset for damage in self.damaged if damage.stop <= position]
        return max(ends, default=self.base_offset)

    def cut(self, start: int, *, limit: int) -> int:
        """The last known batch boundary in (start, limit], or `start` if not even one batch fits. `limit`: within the file.

        The index answers without a look at the log; where it is too coarse, the headers after `start` do.
        """
        position = 0 if self.is_index_doubted else self.offset_index.position_up_to(limit)
        if position > start:
            return position
        boundary = start
        for position, header in self.headers(start):
            if position + header.size_bytes > limit:
                break
            boundary = position + header.size_bytes
        return boundary

    def header_at(self, position: int) -> BatchHeader:
        """Header of the batch at a boundary. Raises CorruptBatch."""
        if position < 0:  # as an index says that rotted; the system would take it for an error of the disk
            raise CorruptBatch(f"no batch is at byte {position} of {self.file.path}")
        return read_header(self.file.read(position, HEADER_BYTES))

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each written batch from a boundary on; known damage is passed over. Raises CorruptBatch."""
        if position < 0:
            raise CorruptBatch(f"no batch is at byte {position} of {self.file.path}")
        end = self.file.size_bytes
        chunk, chunk_start = b"", position
        while end - position >= HEADER_BYTES:
            if self.damaged and (stop := self._end_of_damage(position)) > position:
                position = stop
                continue
            if position + HEADER_BYTES > chunk_start + len(chunk):
                chunk, chunk_start = self.file.read(position, min(_SCAN_BYTES, end - position)), position
            header = read_header(chunk, position - chunk_start)
            if position + header.size_bytes > end:
                raise CorruptBatch(f"the batch at {position} of {self.file.path} passes the end {end}")
            yield position, header
            position += header.size_bytes

    def _end_of_damage(self, position: int) -> int:
        """Where the known damage at `position` ends; the position itself where there is none."""
        return next((damage.stop for damage in self.damaged if damage.position <= position < damage.stop), position)

    def batch_at(self, position: int) -> bytes:
        """The batch at a boundary. Raises CorruptBatch."""
        return self.file.read(position, self.header_at(position).size_bytes)

    def note_greatest(self, position: int, header: BatchHeader, greatest_ms: int) -> bool:
        """A batch was opened, and that is the greatest time of its records; whether that is known from now on."""
        if greatest_ms == header.max_timestamp_ms:
            return True
        if len(self.lying) < LYING_MAX or position in self.lying:
            self.lying[position] = greatest_ms
            return True
        return False

    def find_timestamp(
        self,
        timestamp_ms: int,
        *,
        start_offset: int,
        times: BatchTimes,
        is_doubtful: Callable[[BatchHeader], bool] | None = None,
    ) -> DatedOffset | None:
        """The first record at or after both the time and the offset. Opens the batches that may hold it.

        is_doubtful: which of them to open whatever their header says; None believes all that are not known to lie, and the time
        index. Raises CorruptBatch, and what `times` raises.
        """
        index_offset = max(self.time_index.offset_at_or_before(timestamp_ms), start_offset)
        if is_doubtful is not None:
            index_offset = start_offset
        # The time index passes over those that say less than they hold.
        younger = [position for position, greatest_ms in list(self.lying.items()) if greatest_ms >= timestamp_ms]
        for position, header in self.headers(min([self._scan_start(index_offset), *younger])):
            times.step()
            if header.last_offset < start_offset:
                continue
            greatest_ms = self.lying.get(position)
            if greatest_ms is None:
                is_wanted = header.max_timestamp_ms >= timestamp_ms or (is_doubtful is not None and is_doubtful(header))
            else:
                is_wanted = greatest_ms >= timestamp_ms
            if is_wanted:
                times.charge(header)
                found = times.first(self.batch_at(position), from_ms=timestamp_ms, from_offset=start_offset)
                if found is not None and found.timestamp_ms >= timestamp_ms:
                    return found
                if found is not None and header.base_offset >= start_offset:
                    self.note_greatest(position, header, found.timestamp_ms)
        return None

    def freeze(self) -> LogSegment:
        """A copy that a thread may search while this one grows. It holds the file: release that, and close its indexes.

        Raises OSError."""
        frozen = copy(self)
        frozen.offset_index = self.offset_index.freeze()
        frozen.time_index = self.time_index.freeze()
        frozen.boundaries = {}
        self.file.acquire()
        return frozen

    # -- letting go ------------------------------------------------------------------------------------------------

    def rest(self) -> None:
        """Go without open files until one is used."""
        self.file.rest()
        self.offset_index.rest()
        self.time_index.rest()

    def close_indexes(self) -> None:
        """Let go of the index files; a look-up opens them again. Only once the segment is inactive and flushed."""
        self.offset_index.close()
        self.time_index.close()

    def mark_deleted(self, *, keeps_snapshot: bool = False) -> list[str]:
        """Rename every file of the segment to .deleted and close it; returns the new paths. Readers keep their hold.

        keeps_snapshot: the producer state at its base offset stays, for another segment begins there.
        """
        renamed: list[str] = []
        for suffix in SEGMENT_SUFFIXES:
            if keeps_snapshot and suffix == SNAPSHOT_SUFFIX:
                continue
            path = segment_path(self.directory, self.base_offset, suffix)
            if self._disk.exists(path):
                # Never over one that waits to be removed: its blocks would be given back here, on the loop (seen: 20 ms for 1 MB).
                target, number = path + DELETED_SUFFIX, 0
                while self._disk.exists(target):
                    number += 1
                    target = f"{path}.{number}{DELETED_SUFFIX}"
                self._disk.rename(path, target)
                renamed.append(target)
        self.close()
        return renamed

    def close(self) -> None:
        """Let go of the files."""
        self.close_indexes()
        self.file.close()
