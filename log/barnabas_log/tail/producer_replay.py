"""What a log's batches say of its producers: the state of idempotent and transactional ones, read from snapshot and headers.

May touch:  the Disk and segments, reading; a snapshot, to keep what was read.   Must not touch: clocks, the loop.
Invariants: a state at an offset is the same whether it was kept while the batches were appended or read from them later, but for
            what `unread` names.
Read next:  producer_state.py, the state itself; recovery.py and truncating.py, which read it again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from barnabas_log.directories.disk_space import is_disk_full
from barnabas_log.disk import Disk
from barnabas_log.tail.aborted_transactions import AbortedTransaction
from barnabas_log.tail.producer_snapshots import encode_snapshot, list_snapshots, load_newest_snapshot, snapshot_path
from barnabas_log.tail.producer_state import ProducerState
from barnabas_log.tail.segment import LogSegment
from barnabas_wire.kafka.ids import NO_OFFSET, Offset
from barnabas_wire.kafka.primitives import MalformedMessage
from barnabas_wire.records.batch import BatchHeader, Buffer, CorruptBatch, crc_is_valid, iterate_records
from barnabas_wire.records.compression import CorruptCompressedData
from barnabas_wire.records.control import ControlRecordType, decode_control_key, decode_transaction_end

logger = logging.getLogger(__name__)


def load_producers(
    disk: Disk,
    directory: str,
    segments: Sequence[LogSegment],
    *,
    end_offset: Offset,
    high_watermark: Offset,
    doubted_from: Offset = NO_OFFSET,
    known_from: Offset = NO_OFFSET,
) -> ProducerState:
    """Producer state at `end_offset`: the newest snapshot not after it, and the batches since. Reads headers only.

    high_watermark: a snapshot does not have the transactions whose markers are not below it, and readers must know those: where
    there may be any, one from further down is used (Kafka takes the newest).
    doubted_from: snapshots after it may lack batches and are not used; NO_OFFSET trusts all.
    known_from: end of the damage below the log start, which is never repaired; NO_OFFSET without any.
    """
    newest = end_offset if doubted_from == NO_OFFSET else min(doubted_from, end_offset)
    state = load_newest_snapshot(disk, directory, at_or_before=newest)
    if state.has_transactions and state.end_offset > high_watermark:
        state = load_newest_snapshot(disk, directory, at_or_before=high_watermark)
    known_from = max(known_from, segments[0].base_offset if segments else NO_OFFSET)
    if known_from > state.end_offset:
        # What came between is damaged or deleted. A producer that wrote there would be known by an older batch, and its next one
        # refused as out of order.
        state.clear(known_from)
    replay_producers(state, segments, end_offset=end_offset)
    return state


def replay_producers(state: ProducerState, segments: Sequence[LogSegment], *, end_offset: Offset) -> None:
    """Bring producer state up to `end_offset` from the headers of the batches since its own end.

    A segment that cannot be read to its end is named in `state.unread`, and the replay continues with the next one.
    """
    for number, segment in enumerate(segments):
        if number + 1 < len(segments) and segments[number + 1].base_offset <= state.end_offset:
            continue
        if segment.base_offset >= end_offset or state.end_offset >= end_offset:
            break
        try:
            start = segment.find(state.end_offset).position if state.end_offset > segment.base_offset else 0
            for position, header in segment.headers(start):
                if header.base_offset >= end_offset:
                    break
                if header.base_offset >= state.end_offset:
                    batch = segment.file.read(position, header.size_bytes) if is_marker(header) else b""
                    if batch and not crc_is_valid(batch, 0, header):
                        raise CorruptBatch(f"the checksum of the marker at offset {header.base_offset} is wrong")
                    aborted = note_producer(state, header, batch)
                    if aborted is not None:
                        state.aborted.append(aborted)
        except CorruptBatch as error:
            # Rot below what was flushed. One damaged batch must not keep a broker and all its other logs from starting.
            logger.error("%s: %s; what producers wrote behind that is not known", segment.file.path, error)
            state.unread = (*state.unread, segment.base_offset)
    state.end_offset = end_offset


def is_marker(header: BatchHeader) -> bool:
    """Whether the batch may end a transaction: what it says is in its record."""
    return header.is_control and header.producer_id >= 0


def note_producer(state: ProducerState, header: BatchHeader, batch: Buffer = b"") -> AbortedTransaction | None:
    """Add an appended batch to the producer state; `batch`: all of it, where it is a marker. Returns the transaction that it
    aborts."""
    if header.producer_id < 0:
        return None
    if header.is_control:
        marker = _marker_in(batch, header)
        if marker is None:
            return None
        coordinator_epoch, is_commit = marker
        return state.end_transaction(
            producer_id=header.producer_id,
            epoch=header.producer_epoch,
            coordinator_epoch=coordinator_epoch,
            offset=header.last_offset,
            timestamp_ms=header.max_timestamp_ms,
            is_commit=is_commit,
        )
    if header.is_transactional:
        state.begin_transaction(
            producer_id=header.producer_id,
            epoch=header.producer_epoch,
            first_offset=header.base_offset,
            last_offset=header.last_offset,
        )
    if header.base_sequence >= 0:
        state.update(
            producer_id=header.producer_id,
            epoch=header.producer_epoch,
            first_sequence=header.base_sequence,
            last_offset=header.last_offset,
            offset_delta=header.last_offset_delta,
            timestamp_ms=header.max_timestamp_ms,
        )
    return None


def _marker_in(batch: Buffer, header: BatchHeader) -> tuple[int, bool] | None:
    """Coordinator epoch and whether it commits; None for a control batch that is no marker, or of which compaction left the header."""
    try:
        record = next(iterate_records(batch), None)
        kind = None if record is None else decode_control_key(record.key or b"")
        if record is None or kind not in (ControlRecordType.COMMIT, ControlRecordType.ABORT):
            return None
        return decode_transaction_end(record.value or b""), kind == ControlRecordType.COMMIT
    except (MalformedMessage, CorruptCompressedData) as error:
        logger.error(
            "the control batch at offset %d cannot be read, its transaction stays open: %s", header.base_offset, error
        )
        return None


def keep_producers(disk: Disk, directory: str, producers: ProducerState, *, since: Offset) -> None:
    """Make the state durable where the proof removed the snapshots since the newest segment began: retention may take the segments
    that it was read from, and what their producers wrote last would be forgotten with them."""
    if producers.unread or any(offset >= since for offset in list_snapshots(disk, directory)):
        return
    try:
        disk.write_file_atomically(snapshot_path(directory, producers.end_offset), encode_snapshot(producers))
    except OSError as error:
        if not is_disk_full(error):
            raise
        logger.warning("%s: no room for a snapshot of its producers: the next roll writes one", directory)
