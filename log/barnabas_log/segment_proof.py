"""One segment is read from its start and proved: its sound end, its indexes made again, and what of it is damaged.

May touch:  the segment it is given, its file reading only.   Must not touch: other segments, clocks, the loop.
Invariants: what counts as sound passed its CRC and continues the offsets; nothing is cut here.
Read next:  recovery.py, which cuts; scrub.py, which judges segments that serve.
"""

from __future__ import annotations

from barnabas_log.batch_run import is_below_next
from barnabas_log.leader_epochs import LeaderEpochs
from barnabas_log.offset_index import RELATIVE_OFFSET_MAX
from barnabas_log.scrub import DamagedRange, find_sound_batch, merge
from barnabas_log.segment import LogSegment
from barnabas_wire.kafka.ids import NO_OFFSET, Offset
from barnabas_wire.records.batch import CRC_START, HEADER, HEADER_BYTES, MAGIC, BatchHeader
from barnabas_wire.records.crc32c import crc32c
from barnabas_wire.tuples import new_tuple

_CHUNK_BYTES = 1024 * 1024


def rebuild_segment(
    segment: LogSegment, epochs: LeaderEpochs | None, *, flushed_end: Offset = NO_OFFSET, may_have_gaps: bool = False
) -> Offset:
    """Scan a segment from its start, make its indexes again and find its sound end; nothing is cut yet.

    Afterwards segment.size_bytes is the sound part. `epochs` learns the batches' epochs and says where they would fall.
    may_have_gaps: compaction may have taken batches.
    What is not sound below `flushed_end` is kept in segment.damaged, if a sound batch not after it follows.
    Returns the offset after the last sound batch.
    """
    segment.damaged = ()
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
            and (header.base_offset == expected or (may_have_gaps and header.base_offset > expected))
            and header.last_offset_delta >= 0
            and header.last_offset - segment.base_offset <= RELATIVE_OFFSET_MAX
            and (epochs is None or header.partition_leader_epoch >= epochs.latest)
        )
        if is_sound:
            if position + size > chunk_start + len(chunk):
                chunk, chunk_start = file.read(position, min(max(_CHUNK_BYTES, size), file_size - position)), position
            at = position - chunk_start
            if header.base_offset != expected:
                is_sound = is_below_next(file.read(position + size, HEADER_BYTES), 0, header.last_offset)
        if is_sound:
            is_sound = crc32c(chunk[at + CRC_START : at + size]) == header.crc
        if not is_sound:
            found = None
            if expected < flushed_end:
                found = find_sound_batch(file.read, position, file_size, header, after=expected, end_offset=flushed_end)
            if found is None:
                break
            _note_damage(segment, expected, Offset(found[1]), position, found[0])
            position, expected = found[0], Offset(found[1])
            segment.size_bytes = position
            continue
        if epochs is not None and header.partition_leader_epoch >= 0:
            epochs.assign(header.partition_leader_epoch, header.base_offset)
        segment.add_batch(header.last_offset, header.max_timestamp_ms, size)
        expected = header.next_offset
        position += size
    return expected


def _note_damage(segment: LogSegment, first: Offset, end: Offset, position: int, stop: int) -> None:
    damage = DamagedRange(first, end, segment.base_offset, position, stop, "not sound below what was flushed")
    segment.damaged = tuple(merge([*segment.damaged, damage]))


def note_damaged_tail(segment: LogSegment, first: Offset, end: Offset) -> None:
    """Nothing from `first` on can be read, though the disk had confirmed it up to `end`."""
    _note_damage(segment, first, end, segment.size_bytes, segment.file.size_bytes)
    segment.size_bytes = segment.file.size_bytes
