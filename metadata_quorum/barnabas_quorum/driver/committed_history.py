"""The committed records of a running node's metadata log that concern one question, read beside the control loop.

May touch:  the RaftLog (reading), asyncio only to rest.   Must not touch: the core, the log's end, what is not committed.
Invariants: nothing at or above the high watermark is read; records of a transaction come when its End is read, or not at
            all; the loop is held for no longer than one slice.
Read next:  ../explain/history.py, which says what concerns a question.

A log that is longer than HISTORY_BYTES_MAX is read from its newest snapshot on. What stood there before comes as records of
that snapshot, the same filter applied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from barnabas_quorum.driver.control_batches import control_records
from barnabas_quorum.driver.snapshots import LoadedSnapshot
from barnabas_quorum.explain.history import Filter, LogEntry, QuorumLeaderElected
from barnabas_quorum.raft.journal import RaftLog, StoredBatch
from barnabas_quorum.record_codec import decode
from barnabas_quorum.records import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord, Record
from barnabas_wire.kafka.ids import BrokerId, Epoch, Offset
from barnabas_wire.records.batch import iterate_records, read_header
from barnabas_wire.records.control import ControlRecordType, decode_leader_change

HISTORY_BYTES_MAX = 64 * 1024 * 1024
"""Of log that one question reads: some seconds of work in slices."""
SLICE_BYTES = 64 * 1024
"""Read, opened and filtered between two rests: a few milliseconds."""
ENTRIES_MAX = 20_000
"""Most entries that are kept, the newest."""

_NO_OP_HEAD = b"\xa2\x01"
"""How a no-op record begins on the wire (field 20, length-delimited): an idle cluster writes two a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedHistory:
    """What was found."""

    base: tuple[Record, ...]
    """How things stood where the entries begin: records of the snapshot there; none when the log begins at 0."""
    entries: tuple[LogEntry, ...]
    first_offset: Offset
    end_offset: Offset
    """One past the last record that was read."""


async def read_history(log: RaftLog, *, high_watermark: Offset, concerns: Filter) -> CommittedHistory:
    """Read what concerns the question. Raises DamagedSnapshot, UnknownRecord, OSError."""
    start, base = log.log_start_offset, []
    snapshots = log.snapshots()
    is_long = log.size_bytes > HISTORY_BYTES_MAX
    begins_at = next((each for each in snapshots if each.end_offset == start), None)
    if is_long and snapshots:
        begins_at = snapshots[-1]
        start = begins_at.end_offset
    if begins_at is not None:
        for group in LoadedSnapshot(log, begins_at).groups():
            base += [record for record in map(decode, group) if concerns(record)]
            await asyncio.sleep(0)
    first_offset = start
    entries: list[LogEntry] = []
    held: list[LogEntry] | None = None
    while start < high_watermark:
        if start < log.log_start_offset:  # it was cleaned meanwhile
            start = first_offset = log.log_start_offset
            entries = []
        batches = log.read(start, end_offset=high_watermark, bytes_max=SLICE_BYTES)
        if not batches:
            break
        for batch in batches:
            for entry in open_entries(batch):
                record = entry.record
                if isinstance(record, BeginTransactionRecord):
                    held = []
                elif isinstance(record, EndTransactionRecord):
                    entries += held or ()
                    held = None
                elif isinstance(record, AbortTransactionRecord):
                    held = None
                elif concerns(record):
                    (entries if held is None else held).append(entry)
        start = batches[-1].end_offset
        del entries[:-ENTRIES_MAX]
        await asyncio.sleep(0)
    return CommittedHistory(base=tuple(base), entries=tuple(entries), first_offset=first_offset, end_offset=start)


def open_entries(batch: StoredBatch) -> Iterator[LogEntry]:
    """The records of one batch but for no-ops; of control batches, who was elected. Raises CorruptBatch, UnknownRecord."""
    header = read_header(batch.data)
    if header.is_control:
        for offset, kind, value in control_records(batch.data):
            if kind == ControlRecordType.LEADER_CHANGE:
                elected = QuorumLeaderElected(
                    leader_id=BrokerId(decode_leader_change(value).leader_id), epoch=Epoch(batch.epoch)
                )
                yield LogEntry(
                    offset=offset,
                    timestamp_ms=header.max_timestamp_ms,
                    batch_offset=batch.base_offset,
                    record=elected,
                )
        return
    for record in iterate_records(batch.data):
        value = record.value or b""
        if value[: len(_NO_OP_HEAD)] != _NO_OP_HEAD:
            yield LogEntry(
                offset=Offset(record.offset),
                timestamp_ms=record.timestamp_ms,
                batch_offset=batch.base_offset,
                record=decode(value),
            )
