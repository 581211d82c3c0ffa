"""The file that says how far the metadata log was flushed, and what is found in a log that does not reach so far.

May touch:  the Disk (one small file; the log's segments for reading).     Must not touch: the log's end, the quorum's rules.
Invariants: the mark goes to the disk in the same round as the flush it reports; a mark that is torn leaves the one before.
Read next:  barnabas_quorum/raft/damage.py, the rule; metadata_log.py, which says when.

`flush-marks` is a row of records of 36 bytes, big-endian, the last whole one counts:
    flushed end int64 | begun: epoch int32, end int64 | lost: epoch int32 (-1: nothing), end int64 | CRC-32C uint32
An end of -2 in `lost` beside its epoch of -1 means UNKNOWN_END; versions before it read: nothing.
It is started again when it is opened, and when it has grown to MARKS_BYTES_MAX.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from barnabas_log.disk import Disk, File
from barnabas_log.tail.segment import LOG_SUFFIX, segment_path
from barnabas_quorum.raft.damage import UNKNOWN_END, FlushMark, LogEnd
from barnabas_wire.kafka.ids import Epoch, Offset
from barnabas_wire.records.batch import CRC_START, HEADER_BYTES, MAGIC, BatchHeader, CorruptBatch, read_header
from barnabas_wire.records.crc32c import crc32c

FLUSH_MARKS_FILE = "flush-marks"
DAMAGED_SUFFIX = ".damaged"
MARKS_BYTES_MAX = 1024 * 1024
MAGIC_POSITION = 16
_CONTENT = Struct(">qiqiq")
_CRC = Struct(">I")
_RECORD_BYTES = _CONTENT.size + _CRC.size
_NO_EPOCH = -1
_NOTHING_LOST = LogEnd(Epoch(_NO_EPOCH), Offset(-1))
_UNKNOWN_LOST = LogEnd(Epoch(_NO_EPOCH), Offset(-2))


def encode_mark(mark: FlushMark) -> bytes:
    """One record of the file."""
    lost = _UNKNOWN_LOST if mark.lost == UNKNOWN_END else mark.lost or _NOTHING_LOST
    content = _CONTENT.pack(mark.flushed_end, mark.begun.epoch, mark.begun.end_offset, lost.epoch, lost.end_offset)
    return content + _CRC.pack(crc32c(content))


def last_mark(data: bytes) -> FlushMark | None:
    """The last whole record of the file; None when there is none."""
    for start in range(len(data) // _RECORD_BYTES * _RECORD_BYTES - _RECORD_BYTES, -1, -_RECORD_BYTES):
        content = data[start : start + _CONTENT.size]
        if _CRC.unpack_from(data, start + _CONTENT.size)[0] != crc32c(content):
            continue
        flushed_end, epoch, end_offset, lost_epoch, lost_end = _CONTENT.unpack(content)
        lost: LogEnd | None = LogEnd(Epoch(lost_epoch), Offset(lost_end))
        if lost_epoch == _NO_EPOCH:
            lost = UNKNOWN_END if lost == _UNKNOWN_LOST else None
        return FlushMark(Offset(flushed_end), LogEnd(Epoch(epoch), Offset(end_offset)), lost)
    return None


class FlushMarks:
    """The file of one metadata log. Get one with `open`."""

    def __init__(self, disk: Disk, path: str, last: FlushMark | None) -> None:
        self._disk = disk
        self._path = path
        self._file: File | None = None
        self.last = last
        """None on a disk of an older version, until the first `note`."""

    @classmethod
    def open(cls, disk: Disk, directory: str) -> FlushMarks:
        """Read what the former process left. Blocks."""
        path = f"{directory}/{FLUSH_MARKS_FILE}"
        return cls(disk, path, last_mark(disk.read_file(path)) if disk.exists(path) else None)

    def begin_anew(self, mark: FlushMark) -> None:
        """The file holds this mark alone, durable on return. Blocks."""
        self.close()
        self._disk.write_file_atomically(self._path, encode_mark(mark))
        self._file = self._disk.open(self._path)
        self.last = mark

    @property
    def is_begun(self) -> bool:
        """Whether marks may be noted: not while the log is being opened, when the former process's mark is still to be judged."""
        return self._file is not None

    @property
    def is_long(self) -> bool:
        """Whether it is time to start it again."""
        return self._file is not None and self._file.size_bytes > MARKS_BYTES_MAX

    def note(self, mark: FlushMark) -> File:
        """Write a mark into the page cache; the file is to be flushed. `begin_anew` comes before."""
        assert self._file is not None, "a mark before the file was begun"
        self._file.append([encode_mark(mark)])
        self.last = mark
        return self._file

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


class Damage(NamedTuple):
    """Where a log stops making sense though more bytes follow."""

    path: str
    """The path of the segment."""
    position: int
    """The position of the bytes that are no batch, in bytes."""
    offset: Offset
    """The offset of the first record that cannot be read: the sound part ends here."""


class Scan(NamedTuple):
    """What was read of a log from some offset on."""

    sound_end: Offset
    damage: Damage | None
    """None when the log ends with a whole batch, or where a later segment should begin and is missing."""
    control_batches: Sequence[bytes]
    """Sound ones, beyond the damage too, in order."""


def scan_log(disk: Disk, directory: str, bases: Sequence[int], *, start: Offset) -> Scan:
    """Read segments from the one that holds `start` on, and change nothing: which part is sound, and what lies beyond. Blocks.

    Args:
        bases: base offsets of the segments, ascending.
        start: below it all is in a snapshot.
    """
    first = max(0, sum(base <= start for base in bases) - 1)
    expected, epoch = (bases[first] if bases else 0), -1
    damage: Damage | None = None
    control: list[bytes] = []
    for base in bases[first:]:
        if damage is None and base != expected:
            break
        path = segment_path(directory, Offset(base), LOG_SUFFIX)
        data = disk.read_file(path)
        position = 0
        while position < len(data):
            header = _sound_batch(data, position)
            if damage is None:
                if header is None or header.base_offset != expected or header.partition_leader_epoch < epoch:
                    damage = Damage(path, position, Offset(expected))
                else:
                    expected, epoch = header.next_offset, header.partition_leader_epoch
            if header is None:
                magic_at = data.find(bytes([MAGIC]), position + 1 + MAGIC_POSITION)
                position = magic_at - MAGIC_POSITION if magic_at >= 0 else len(data)
                continue
            if header.is_control and header.base_offset >= start:
                control.append(data[position : position + header.size_bytes])
            position += header.size_bytes
    return Scan(Offset(max(expected, start)), damage, control)


def keep_damaged(disk: Disk, directory: str, damage: Damage) -> str:
    """Keep what is cut off, from the damaged batch to the end of its segment, for whoever wants to look. Blocks. Returns the
    path."""
    kept = f"{directory}/{damage.offset:020d}{DAMAGED_SUFFIX}"
    disk.write_file_atomically(kept, disk.read_file(damage.path)[damage.position :])
    return kept


def _sound_batch(data: bytes, position: int) -> BatchHeader | None:
    if len(data) - position < HEADER_BYTES:
        return None
    try:
        header = read_header(data, position)
    except CorruptBatch:
        return None
    end = position + header.size_bytes
    if header.magic != MAGIC or header.last_offset_delta < 0 or end > len(data):
        return None
    return header if crc32c(data[position + CRC_START : end]) == header.crc else None
