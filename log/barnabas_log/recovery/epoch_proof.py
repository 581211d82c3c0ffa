"""The leader epochs of a log that is opened: what the checkpoint says, held against the batches.

May touch:  the checkpoint, the segments' headers.   Must not touch: clocks, peers, other files.
Invariants: where the checkpoint is lost, or a batch contradicts it, the epochs are those of the batches.
Read next:  recovery.py, the one caller.

No CRC covers a batch's base offset and leader epoch: one that is out of place here is left out, and the proof judges it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress

from barnabas_log.config import INT32_MAX, INT64_MAX
from barnabas_log.disk import Disk
from barnabas_log.errors import CorruptCheckpoint
from barnabas_log.tail.leader_epochs import LeaderEpochs
from barnabas_log.tail.segment import LogSegment
from barnabas_wire.kafka.ids import NO_EPOCH, NO_OFFSET, Epoch, Offset
from barnabas_wire.records.batch import MAGIC, BatchHeader, CorruptBatch, crc_is_valid

logger = logging.getLogger(__name__)


def load_epochs(
    disk: Disk, path: str, segments: list[LogSegment], *, indexed: int, log_start_offset: Offset
) -> tuple[LeaderEpochs, Offset]:
    """The leader epochs, from the checkpoint; from the headers of all batches where there is none, none that can be
    read, or one that they contradict. And where the log started when the checkpoint was written, as far as that tells;
    NO_OFFSET where it does not.

    indexed: of so many segments the indexes are believed.
    """
    try:
        epochs = LeaderEpochs.load(disk, path)
    except CorruptCheckpoint as error:
        logger.warning("%s; epochs are taken from the batches", error)
        epochs = LeaderEpochs(disk, path)
    told_start = epochs.entries[0][1] if epochs.entries else NO_OFFSET
    with suppress(CorruptBatch, FileNotFoundError):  # what cannot be read contradicts nothing
        contradiction = _contradiction(epochs, segments[:indexed], log_start_offset=log_start_offset)
        if contradiction:
            logger.warning("%s is wrong (%s); epochs are taken from the batches", path, contradiction)
            epochs.clear()
    if not epochs.entries:
        for number in range(len(segments)):
            found: list[tuple[Epoch, Offset]] = []
            with suppress(CorruptBatch):  # rot or a torn tail: the proof judges that, but of few sealed segments
                for header in _headers(segments, number):
                    if not found or header.partition_leader_epoch != found[-1][0]:
                        found.append((header.partition_leader_epoch, header.base_offset))
            # No CRC covers an epoch. One that rose by rot would make every later batch fall, and the proof cut the log there.
            latest = first_epoch(segments[number + 1]) if number + 1 < len(segments) else None
            for epoch, start in found:
                if epoch <= (found[-1][0] if latest is None else latest):
                    epochs.assign(epoch, start)
    return epochs, told_start


def _contradiction(epochs: LeaderEpochs, segments: list[LogSegment], *, log_start_offset: Offset) -> str:
    """Where the batches of these segments are not of the epochs that the entries say; empty where they are. Reads a few headers for each
    entry: a batch bears its epoch, and what the file says beside that is a copy. Raises CorruptBatch, FileNotFoundError."""
    if not segments or not epochs.entries:
        return ""
    limit = None
    before = NO_EPOCH
    for epoch, start in epochs.entries:
        header = batch_from(segments, start)
        if header is None:
            break
        limit = header
        if header.partition_leader_epoch >= 0 and epochs.epoch_at(header.base_offset) != header.partition_leader_epoch:
            return f"offset {header.base_offset} is of epoch {header.partition_leader_epoch}, not of {epochs.epoch_at(header.base_offset)}"
        former = _batch_before(segments, start)
        is_first = before == NO_EPOCH and former is not None and former.base_offset < log_start_offset
        if former is not None and not is_first and 0 <= former.partition_leader_epoch != before:
            return f"offset {former.base_offset} is of epoch {former.partition_leader_epoch}, not of {before}"
        before = epoch
    last = _batch_before(segments, Offset(INT64_MAX)) if limit is not None else None
    if last is not None and 0 <= last.partition_leader_epoch != epochs.epoch_at(last.base_offset):
        return f"offset {last.base_offset} is of epoch {last.partition_leader_epoch}, not of {epochs.epoch_at(last.base_offset)}"
    return ""


def batch_from(segments: list[LogSegment], offset: Offset) -> BatchHeader | None:
    """The first batch that begins at that offset or later, None where there is none."""
    first = max(0, sum(segment.base_offset <= offset for segment in segments) - 1)
    for number in range(first, len(segments)):
        for header in _headers(segments, number, near=offset):
            if header.base_offset >= offset:
                return header
    return None


def _batch_before(segments: list[LogSegment], offset: Offset) -> BatchHeader | None:
    """The last batch that begins before that offset, None where there is none."""
    found = None
    for number in reversed(range(sum(segment.base_offset < offset for segment in segments))):
        for header in _headers(segments, number, near=Offset(offset - 1)):
            if header.base_offset >= offset:
                break
            found = header
        if found is not None:
            return found
    return None


def first_epoch(segment: LogSegment) -> Epoch | None:
    """The leader epoch of its first batch; None where there is none that is sound."""
    try:
        header = segment.header_at(0)
        is_sound = header.magic == MAGIC and crc_is_valid(segment.file.read(0, header.size_bytes), 0, header)
    except CorruptBatch:
        return None
    return header.partition_leader_epoch if is_sound else None


def _headers(segments: list[LogSegment], number: int, *, near: Offset | None = None) -> Iterator[BatchHeader]:
    """The headers of a segment, from the last indexed one at or before an offset on. No CRC covers a base offset: a batch that names
    one outside the segment is rot and is left out. Raises CorruptBatch."""
    segment = segments[number]
    base = segment.base_offset
    end = segments[number + 1].base_offset if number + 1 < len(segments) else base + INT32_MAX
    position = 0 if near is None else segment.offset_index.position_at_or_before(near)
    return (header for _, header in segment.headers(position) if base <= header.base_offset < end)
