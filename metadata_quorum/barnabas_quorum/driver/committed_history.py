"""The committed records of a running node's metadata log, read beside the control loop: slice by slice, or for one question.

May touch:  the RaftLog (reading), asyncio only to rest.   Must not touch: the core, the log's end, what is not committed.
Invariants: nothing at or above the high watermark is read; records that concern a question come when their transaction's End is
            read, or not at all; what cannot be read raises nothing: it is reported; the loop is held for no longer than one slice.
Read next:  log_entries.py; ../explain/history.py, which says what concerns a question.

A log that is longer than HISTORY_BYTES_MAX is read from its newest snapshot on. What stood there before comes as records of
that snapshot, the same filter applied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import NamedTuple

from barnabas_quorum.driver import log_entries as opened
from barnabas_quorum.driver.snapshots import LoadedSnapshot
from barnabas_quorum.explain.history import Filter, LogEntry, QuorumLeaderElected
from barnabas_quorum.raft.journal import RaftLog, StoredBatch
from barnabas_quorum.record_codec import UnknownRecord, decode
from barnabas_quorum.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    NoOpRecord,
    QuorumRecoveryRecord,
    Record,
)
from barnabas_wire.kafka.ids import BrokerId, Offset
from barnabas_wire.lazy_dataclass import dataclass
from barnabas_wire.records.batch import crc_is_valid, read_header

HISTORY_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of log that one question reads: some seconds of work in slices."""
SLICE_BYTES = 64 * 1024
"""Read, opened and filtered between two rests: a few milliseconds."""
ENTRIES_MAX = 20_000
"""Most entries that are kept, the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedHistory:
    """What was found."""

    base: tuple[Record, ...]
    """How things stood where the entries begin: records of the snapshot there; none when the log begins at 0."""
    entries: tuple[LogEntry, ...]
    first_offset: Offset
    end_offset: Offset
    """One past the last record that was read."""
    unreadable: tuple[Offset, ...] = ()
    """Where records stand that could not be read; of a damaged batch, its base; of a snapshot, the last offset in it."""


class Slice(NamedTuple):
    """Some committed records that follow each other."""

    entries: list[opened.LogEntry]
    end_offset: Offset
    """Where the next slice begins."""
    is_cut: bool
    """The log was cleaned behind the asked offset: records before `end_offset` are gone."""


def read_slice(
    log: RaftLog, start: Offset, *, high_watermark: Offset, skips: Callable[[bytes], bool] | None = None
) -> Slice:
    """The records from `start` to a batch's end, about SLICE_BYTES of batches; none at or above the high watermark.

    skips: see entries_of.
    """
    if start < log.log_start_offset:
        return Slice([], log.log_start_offset, True)
    batches = log.read(start, end_offset=high_watermark, bytes_max=SLICE_BYTES)
    entries = [entry for batch in batches for entry in _open(batch, start, skips)]
    return Slice(entries, batches[-1].end_offset if batches else high_watermark, False)


def _open(batch: StoredBatch, start: Offset, skips: Callable[[bytes], bool] | None) -> Iterator[opened.LogEntry]:
    header = read_header(batch.data)
    if not crc_is_valid(batch.data, 0, header):
        return iter([opened.damaged_batch(header, "the batch has a wrong checksum")])
    return opened.entries_of(batch.data, header, start=start, skips=skips)


async def find_start_of_last(log: RaftLog, count: int, *, high_watermark: Offset, with_noops: bool) -> Offset:
    """The offset of the record with which the newest `count` begin, or the log's start where it has fewer.

    It is looked for in ever longer pieces from the end, none of them read twice.
    """
    if count == 0:
        return high_watermark
    newest: list[Offset] = []
    stop, reach = high_watermark, count * 2
    while len(newest) < count and stop > log.log_start_offset:
        at = start = max(log.log_start_offset, Offset(high_watermark - reach))
        piece: list[Offset] = []
        while at < stop:
            at = max(at, log.log_start_offset)  # it may be cleaned meanwhile
            batches = log.read(at, end_offset=high_watermark, bytes_max=SLICE_BYTES)
            found = [offset for batch in batches for offset in _offsets(batch, with_noops=with_noops)]
            piece += [offset for offset in found if start <= offset < stop]
            at = batches[-1].end_offset if batches else stop
            await asyncio.sleep(0)
        newest = piece + newest
        stop, reach = start, reach * 4
    return newest[-count] if len(newest) >= count else log.log_start_offset


def _offsets(batch: StoredBatch, *, with_noops: bool) -> list[Offset]:
    header = read_header(batch.data)
    if not crc_is_valid(batch.data, 0, header):
        return [Offset(header.base_offset)]
    return opened.offsets_of(batch.data, header, with_noops=with_noops)


async def read_history(
    log: RaftLog, *, high_watermark: Offset, concerns: Filter, skips: Callable[[bytes], bool] | None = None
) -> CommittedHistory:
    """Read what concerns the question. Raises DamagedSnapshot, OSError.

    skips: whether the value of a record need not be opened, for it cannot concern the question: most are of partitions.
    """
    start, base = log.log_start_offset, []
    unreadable: list[Offset] = []
    snapshots = log.snapshots()
    is_long = log.size_bytes > HISTORY_BYTES_MAX
    begins_at = next((each for each in snapshots if each.end_offset == start), None)
    if is_long and snapshots:
        begins_at = snapshots[-1]
        start = begins_at.end_offset
    if begins_at is not None:
        for group in LoadedSnapshot(log, begins_at).groups():
            for data in group:
                if skips is not None and skips(data):
                    continue
                try:
                    stated = decode(data)
                except UnknownRecord:
                    unreadable.append(Offset(begins_at.end_offset - 1))
                    continue
                if concerns(stated):
                    base.append(stated)
            await asyncio.sleep(0)
    first_offset = start
    entries: list[LogEntry] = []
    held: list[LogEntry] | None = None
    while start < high_watermark:
        found, start, is_cut = read_slice(log, start, high_watermark=high_watermark, skips=skips)
        if is_cut:
            first_offset = start
            entries, held = [], None
        for each in found:
            record = _as_recorded(each)
            if record is None:
                if each.kind == opened.BAD:
                    unreadable.append(each.offset)
                continue
            if isinstance(record, QuorumRecoveryRecord):
                held = None
            if isinstance(record, BeginTransactionRecord):
                held = []
            elif isinstance(record, EndTransactionRecord):
                entries += held or ()
                held = None
            elif isinstance(record, AbortTransactionRecord):
                held = None
            elif concerns(record):
                entry = LogEntry(
                    offset=each.offset, timestamp_ms=each.timestamp_ms, batch_offset=each.batch_offset, record=record
                )
                (entries if held is None else held).append(entry)
        del entries[:-ENTRIES_MAX]
        del unreadable[:-ENTRIES_MAX]
        await asyncio.sleep(0)
    return CommittedHistory(
        base=tuple(base),
        entries=tuple(entries),
        first_offset=first_offset,
        end_offset=start,
        unreadable=tuple(unreadable),
    )


def _as_recorded(entry: opened.LogEntry) -> Record | QuorumLeaderElected | None:
    """What an explanation is made of: decisions, and who was elected; None for the rest."""
    content = entry.content
    if isinstance(content, NoOpRecord):
        return None
    if not isinstance(content, opened.OtherContent):
        return content
    if content.kind != opened.LEADER_CHANGE:
        return None
    return QuorumLeaderElected(leader_id=BrokerId(content.fields["leader_id"]), epoch=entry.epoch)
