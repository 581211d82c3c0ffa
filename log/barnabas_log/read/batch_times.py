"""The times of a batch's records, read for searches and for retention: of few records by a thread, of many by a process.

May touch:  segments, reading; the inspection process, sleep.   Must not touch: the loop, the log.
Invariants: it blocks, so it is called from a disk thread; a thread holds the interpreter for PACE_STEPS records and headers, then
            pauses; a reader that is stopped ends within so many of them, also while the process is at work for it.
Read next:  time_search.py and true_times.py, which read with this; inspection_process.py.

Not obvious: a header of a few bytes can claim millions of records, and whoever may search by time, which takes DESCRIBE alone, has
them opened. Neither what one batch claims nor how many there are may hold the interpreter, which the data loop needs.
"""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from barnabas_log.recovery.inspection_process import InspectionProcess, NoWorker
from barnabas_log.recovery.inspection_worker import SECTION_BYTES_MAX
from barnabas_wire.records.batch import BatchHeader, CorruptBatch, read_header
from barnabas_wire.records.inspection import (
    INT64_MAX,
    INT64_MIN,
    DatedRecord,
    UnsoundRecords,
    find_time,
    opened_section,
)

PACE_STEPS: Final = 256
"""Records and headers between two pauses: some 0.4 ms, by which the loop is late at most."""
PAUSE_S: Final = 0.0005
SEARCHED_RECORDS_MAX: Final = 32_000_000
"""The most records in batches that one search opens, some 30 s of a core. What it has found out by then is kept, so
that the next one continues."""


class SearchStopped(Exception):
    """The result of the search is not waited for any more."""


class SearchExhausted(Exception):
    """The search has opened as many records as one may."""


class DatedOffset(NamedTuple):
    """A record by its time."""

    timestamp_ms: int
    offset: int


class BatchTimes:
    """Reads for one search, or for one look at what is old."""

    def __init__(self, process: InspectionProcess | None = None) -> None:
        """process: for batches of many records; None: all are read here, without a pause."""
        self._process = process
        self._steps = 0
        self._records_left = SEARCHED_RECORDS_MAX
        self._is_stopped = False

    def stop(self) -> None:
        """End it soon, from any thread."""
        self._is_stopped = True

    def step(self, count: int = 1) -> None:
        """So many headers or records are being read. Raises SearchStopped."""
        self._steps += count
        if self._steps >= PACE_STEPS:
            self._steps = 0
            if self._is_stopped:
                raise SearchStopped
            if self._process is not None:
                time.sleep(PAUSE_S)

    def charge(self, header: BatchHeader) -> None:
        """A batch is opened for what is searched, and nothing is learned from it for good. Raises SearchExhausted."""
        self._records_left -= header.record_count
        if self._records_left < 0:
            raise SearchExhausted

    def first(self, batch: bytes, *, from_ms: int, from_offset: int) -> DatedOffset | None:
        """The first record of a batch at or after both, or where none is so late the first of those with the greatest time; None where
        it has none at or after the offset. Raises CorruptBatch, SearchStopped."""
        header = read_header(batch)
        if header.record_count < 0:
            raise CorruptBatch(f"the header counts {header.record_count} records")
        is_dated = header.is_log_append_time
        found = self._find(
            batch,
            header,
            from_offset=from_offset - header.base_offset,
            from_ms=INT64_MIN if is_dated else max(INT64_MIN, min(INT64_MAX, from_ms - header.base_timestamp_ms)),
        )
        if found is None:
            return None
        found_ms = header.max_timestamp_ms if is_dated else header.base_timestamp_ms + found.elapsed_ms
        return DatedOffset(found_ms, header.base_offset + found.offset)

    def _find(self, batch: bytes, header: BatchHeader, *, from_offset: int, from_ms: int) -> DatedRecord | None:
        count = header.record_count
        self.step(count)
        try:
            if self._process is not None and count > PACE_STEPS:
                try:
                    return self._process.find_time(
                        batch, from_offset=from_offset, from_ms=from_ms, is_stopped=lambda: self._is_stopped
                    )
                except NoWorker:  # slow for everybody, and right
                    if self._is_stopped or self._process.is_closed:
                        raise SearchStopped from None
            records = opened_section(batch, header, bytes_max=SECTION_BYTES_MAX)
        except UnsoundRecords as error:
            raise CorruptBatch(error.message) from None
        return find_time(records, count=count, from_offset=from_offset, from_ms=from_ms)
