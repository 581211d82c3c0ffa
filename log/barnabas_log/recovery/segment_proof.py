"""One segment is read from its start and proved: its sound end, its indexes made again, and what of it is damaged.

May touch:  the segment it is given, its file reading only.   Must not touch: other segments, clocks, the loop.
Invariants: what counts as sound passed its CRC and is of later offsets than all before it; nothing is cut here.
Read next:  recovery.py, which cuts; scrub.py, which judges segments that serve.

Not obvious:
  - A batch whose CRC is right, and whose offsets rise, is no torn tail, whatever is missing before it: a write that was cut short
    leaves lower offsets or a wrong CRC. But no CRC covers the offset itself, and rot that raises it looks like a gap that
    compaction left. The batch behind it decides: rot is contradicted by it. Where none is behind, see `_is_gap`.
"""

from __future__ import annotations

from enum import Enum, auto

from barnabas_log.read.offset_index import RELATIVE_OFFSET_MAX
from barnabas_log.recovery.scrub import DamagedRange, find_sound_batch, is_offset_raised, merge
from barnabas_log.tail.leader_epochs import LeaderEpochs
from barnabas_log.tail.segment import LogSegment
from barnabas_wire.kafka.ids import NO_OFFSET, Epoch, Offset
from barnabas_wire.records.batch import CRC_START, HEADER, HEADER_BYTES, MAGIC, BatchHeader
from barnabas_wire.records.crc32c import crc32c
from barnabas_wire.tuples import new_tuple

_CHUNK_BYTES = 1024 * 1024


class Gaps(Enum):
    """What is known of offsets that are missing between the batches of a log, since compaction took some here or at its leader."""

    NEVER = auto()
    """The log is not compacted."""
    UNTOLD = auto()
    """cleaner-offset-checkpoint names none: one is believed where the batch behind it proves it."""
    UNKNOWN = auto()
    """That file is lost: one without a batch behind it is believed too."""
    KNOWN = auto()
    """It has some."""


def rebuild_segment(
    segment: LogSegment,
    epochs: LeaderEpochs | None,
    *,
    flushed_end: Offset = NO_OFFSET,
    following: Offset = NO_OFFSET,
    epoch_max: Epoch | None = None,
    gaps: Gaps = Gaps.UNTOLD,
) -> Offset:
    """Scan a segment from its start, make its indexes again and find its sound end; nothing is cut yet.

    Afterwards segment.size_bytes is the sound part, and segment.has_gaps says whether a gap was proved. `epochs` learns the batches'
    epochs and says where they would fall.
    following: base offset of the next segment, which no batch of this one reaches; NO_OFFSET leaves that out. epoch_max: that one's
    first epoch, which none of this one passes.
    What is not sound below `flushed_end` is kept in segment.damaged, if a sound batch not after it follows.
    Returns the offset after the last sound batch.
    """
    segment.damaged = ()
    segment.has_gaps = is_behind_gap = False
    file, file_size = segment.file, segment.file.size_bytes
    segment.begin_rebuild()
    expected = segment.base_offset
    chunk, chunk_start, position = b"", 0, 0
    while file_size - position >= HEADER_BYTES:
        if position + HEADER_BYTES > chunk_start + len(chunk):
            chunk, chunk_start = file.read(position, min(_CHUNK_BYTES, file_size - position)), position
        header = new_tuple(BatchHeader, HEADER.unpack_from(chunk, position - chunk_start))
        size = header.size_bytes
        is_sound = (
            header.magic == MAGIC
            and size >= HEADER_BYTES
            and position + size <= file_size
            and (header.base_offset == expected or (gaps is not Gaps.NEVER and header.base_offset > expected))
            and header.last_offset_delta >= 0
            and not 0 <= following <= header.last_offset
            and header.last_offset - segment.base_offset <= RELATIVE_OFFSET_MAX
            and (epochs is None or header.partition_leader_epoch >= epochs.latest)
            and (epoch_max is None or header.partition_leader_epoch <= epoch_max)
        )
        if is_sound:
            if position + size > chunk_start + len(chunk):
                chunk, chunk_start = file.read(position, min(max(_CHUNK_BYTES, size), file_size - position)), position
            at = position - chunk_start
            is_sound = crc32c(chunk[at + CRC_START : at + size]) == header.crc
            if is_sound and header.base_offset != expected:
                is_sound = _is_gap(segment, header, position, expected=expected, following=following, gaps=gaps)
        if not is_sound:
            found = None
            if expected < flushed_end:
                found = find_sound_batch(file.read, position, file_size, header, after=expected, end_offset=flushed_end)
            if found is None:
                break
            _note_damage(segment, expected, Offset(found[1]), position, found[0])
            position, expected = found[0], Offset(found[1])
            segment.size_bytes, is_behind_gap = position, False
            continue
        segment.has_gaps = segment.has_gaps or is_behind_gap
        is_behind_gap = header.base_offset != expected
        if epochs is not None and header.partition_leader_epoch >= 0:
            epochs.assign(header.partition_leader_epoch, header.base_offset)
        segment.add_batch(header.last_offset, header.max_timestamp_ms, size)
        expected = header.next_offset
        position += size
    segment.has_gaps = segment.has_gaps or is_behind_gap
    return expected


def _is_gap(
    segment: LogSegment, header: BatchHeader, position: int, *, expected: Offset, following: Offset, gaps: Gaps
) -> bool:
    """Whether a batch with a right CRC that begins after `expected` is where it says, and what is missing was compacted.

    The batch behind it contradicts an offset that rot has raised. Where there is no such batch it is believed if it ends where the
    next segment begins, if there are other gaps, or if it is not known that there are none.
    """
    is_raised = is_offset_raised(
        segment.file.read,
        position,
        header,
        expected=expected,
        size_bytes=segment.file.size_bytes,
        end_offset=following,
    )
    if is_raised is not None:
        return not is_raised
    return gaps is not Gaps.UNTOLD or segment.has_gaps or header.next_offset == following


def _note_damage(segment: LogSegment, first: Offset, end: Offset, position: int, stop: int) -> None:
    damage = DamagedRange(first, end, segment.base_offset, position, stop, "not sound below what was flushed")
    segment.damaged = tuple(merge([*segment.damaged, damage]))


def note_damaged_tail(segment: LogSegment, first: Offset, end: Offset) -> None:
    """Nothing from `first` on can be read, though the disk had confirmed it up to `end`."""
    _note_damage(segment, first, end, segment.size_bytes, segment.file.size_bytes)
    segment.size_bytes = segment.file.size_bytes
