"""The true times of a segment's records, where the headers of its batches do not prove them.

May touch:  a segment, reading; its note.   Must not touch: clocks, the loop, the log.
Invariants: what is said of a segment is of its first `judged_bytes`; a batch that cannot be opened is believed by its
            header, for its records cannot be read either.
Read next:  retiring.py and time_search.py, which ask; segment_note.py, the file.

A producer's header says the greatest time of the batch, and some clients write the first record's time there, or none. Batches are
opaque when they are taken in. So a greatest time that is not above that of the base proves nothing where the batch has several
records, and one that is below it is wrong: before a segment goes by its age, and where a record is looked for by its time, such
batches are opened, in a disk thread. What came of it is kept in memory, and of a sealed segment in <base>.truetime beside it: size of
the log file, CRC-32C of its last bytes (it may be another by now), greatest time, offset of the first record that has it, number of
batches that are still doubtful since their truth found no room, number of the others that lie, and of each position and greatest
time. Without that file, or with one that does not fit, the segment is read again.
"""

from __future__ import annotations

from heapq import heappush, heapreplace
from typing import Final

from barnabas_log.descriptors import is_out_of_descriptors
from barnabas_log.directories.disk_space import is_disk_full
from barnabas_log.disk import Disk
from barnabas_log.read.batch_times import BatchTimes, DatedOffset
from barnabas_log.recovery.segment_note import TrueTime, decode_note, encode_note
from barnabas_log.tail.segment import LYING_MAX, TRUE_TIME_SUFFIX, LogSegment, segment_path
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import Offset
from barnabas_wire.records.batch import BatchHeader
from barnabas_wire.records.crc32c import crc32c
from barnabas_wire.records.inspection import INT64_MAX

CLAIMS_MAX: Final = 8
"""So many of the batches that claim to be the youngest are opened, until one is. If each lies, the youngest of them
counts."""
SLICE_BYTES: Final = 16 * 1024 * 1024
"""What is known is kept after so many bytes: a search that ends early has not read them in vain."""
_TAIL_BYTES: Final = 4096


def is_doubtful(header: BatchHeader) -> bool:
    """Whether its records may be younger than the header says."""
    if header.is_log_append_time or header.base_timestamp_ms < 0:
        return False
    return header.max_timestamp_ms < header.base_timestamp_ms or (
        header.max_timestamp_ms == header.base_timestamp_ms and header.record_count > 1
    )


def is_judged(segment: LogSegment) -> bool:
    """Whether all of the segment is known."""
    return segment.true_time is not None and segment.true_time.judged_bytes == segment.size_bytes


def judge(disk: Disk, segment: LogSegment, *, is_sealed: bool, times: BatchTimes | None = None) -> TrueTime:
    """Read what is not known of the segment, and keep it there; of a sealed one in its note too.

    Reads headers, and opens batches: in a disk thread, with a segment that nothing else changes (LogSegment.freeze).
    times: opens them; None: here, without a pause. Raises CorruptBatch, OSError, SearchStopped.
    """
    times = times or BatchTimes()
    known = segment.true_time or TrueTime()
    if known.judged_bytes == segment.file.size_bytes:
        return known
    path = segment_path(segment.directory, segment.base_offset, TRUE_TIME_SUFFIX)
    if is_sealed and not segment.damaged:
        noted = _read_note(disk, path, segment)
        if noted is not None:
            segment.true_time = noted
            return noted
    size_bytes = segment.file.size_bytes
    found = known
    while found.judged_bytes < size_bytes:
        found = segment.true_time = _judged(segment, found, times, stop=found.judged_bytes + SLICE_BYTES)
    if is_sealed and not segment.damaged and size_bytes == found.judged_bytes:
        lying = sorted(segment.lying.items())
        numbers = [size_bytes, _tail_crc(segment), found.greatest_ms, int(found.offset), found.doubtful, len(lying)]
        numbers += [number for pair in lying for number in pair]
        try:
            disk.write_file_atomically(path, encode_note(numbers))
        except OSError as error:
            if not (is_disk_full(error) or is_out_of_descriptors(error)):
                raise
    return found


def judge_from(segment: LogSegment, start_offset: int, times: BatchTimes) -> TrueTime:
    """The same of the records from an offset on alone, kept nowhere. Raises what `judge` raises."""
    return _judged(segment, TrueTime(), times, start=start_offset)


def _judged(
    segment: LogSegment, known: TrueTime, times: BatchTimes, *, start: int = 0, stop: int | None = None
) -> TrueTime:
    """Extend what is known of a prefix of the segment up to the first batch at or after byte `stop`."""
    size_bytes = segment.file.size_bytes
    judged_bytes, greatest_ms, offset, doubtful = known
    claims: list[tuple[int, int]] = []
    """A heap of (time, -position): the youngest batches whose headers may be believed."""
    for position, header in segment.headers(judged_bytes):
        if stop is not None and position >= stop:
            break
        times.step()
        judged_bytes = position + header.size_bytes
        if header.last_offset < start or not header.record_count:
            continue
        if is_doubtful(header) or header.base_offset < start:
            (greatest_ms, offset), is_known = _later(segment, position, header, times, start, (greatest_ms, offset))
            doubtful += is_doubtful(header) and not is_known
        elif len(claims) < CLAIMS_MAX:
            heappush(claims, (header.max_timestamp_ms, -position))
        elif header.max_timestamp_ms > claims[0][0]:
            heapreplace(claims, (header.max_timestamp_ms, -position))
    else:
        judged_bytes = max(judged_bytes, size_bytes)
    for claim_ms, minus_position in sorted(claims, reverse=True):
        if claim_ms < max(greatest_ms, 0):
            break
        header = segment.header_at(-minus_position)
        (greatest_ms, offset), _ = _later(segment, -minus_position, header, times, start, (greatest_ms, offset))
        if greatest_ms == claim_ms:
            break
    return TrueTime(judged_bytes, greatest_ms, offset, doubtful)


def _later(
    segment: LogSegment, position: int, header: BatchHeader, times: BatchTimes, start: int, known: tuple[int, Offset]
) -> tuple[tuple[int, Offset], bool]:
    """The greatest time of the batch's records and the offset of the first that has it, if that is later than what is known, or the
    same and earlier in the log; and whether what the batch holds is known from now on."""
    is_known = True
    try:
        found = times.first(segment.batch_at(position), from_ms=INT64_MAX, from_offset=start)
    except KafkaError:  # it does not open, and would not for a consumer
        found = DatedOffset(header.max_timestamp_ms, header.last_offset)
    else:
        if found is not None and header.base_offset >= start:
            is_known = segment.note_greatest(position, header, found.timestamp_ms)
    greatest_ms, offset = known
    if found is not None and found.offset >= start:
        found_ms, of_offset = found
        if found_ms > greatest_ms or (found_ms == greatest_ms >= 0 and of_offset < offset):
            return (found_ms, Offset(of_offset)), is_known
    return known, is_known


def _read_note(disk: Disk, path: str, segment: LogSegment) -> TrueTime | None:
    if not disk.exists(path):
        return None
    numbers = decode_note(disk.read_file(path))
    if numbers is None or len(numbers) < 6:
        return None
    size_bytes, tail_crc, greatest_ms, offset, doubtful, count, *lying = numbers
    if len(lying) != 2 * count or count > LYING_MAX:
        return None
    if size_bytes != segment.file.size_bytes or tail_crc != _tail_crc(segment):
        return None
    segment.lying.update(zip(lying[::2], lying[1::2], strict=True))
    return TrueTime(size_bytes, greatest_ms, Offset(offset), doubtful)


def _tail_crc(segment: LogSegment) -> int:
    size_bytes = segment.file.size_bytes
    start = max(0, size_bytes - _TAIL_BYTES)
    return crc32c(segment.file.read(start, size_bytes - start))
