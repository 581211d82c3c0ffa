"""The swap: a rewritten segment takes the place of its sources, whole or not at all, whatever a crash leaves.

May touch:  the Disk it is given.     Must not touch: the loop, clocks, the log.
Invariants: a source's name goes only once the swap record is durable, and that only once all files of the new segment are, under
            their .swap names; a swap of a log that was cut meanwhile never ends at a later start.
Read next:  driver.py for the order of steps; unified_log.py replace_segments; recovery.py, which calls `finish_swaps`.

Names, of a segment with base offset B that replaces B and those after it up to E:
    .cleaning/<run>/B.log, .index, .timeindex, .txnindex   the worker writes these, and nothing else
    B.log.cleaned, ...                                     moved beside the sources; of no account
    B.log.swap, ...                                        the same, all of them durable
    B.swap                                                 the swap record, written last: {"end": E, "sizes": ..., "sources": ...}
    B.log, ...                                             in the place of the source at B; the others are .deleted
What a start finds: with a sound swap record, the swap is finished, whichever of the last renames were lost: sources but B go,
.swap names become final. Without one it is undone: .cleaned and .swap files go, the sources are all there. A directory that a
Kafka left between its renames has .swap and no source at B: that is finished, as Kafka does.

The record goes once the final names are durable, and durably before the log is cut or retired any further: a record that came back
beside later segments of the same names would remove those.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Sequence
from typing import Final, NamedTuple

from barnabas_log.cleaner.rewrite import Output
from barnabas_log.disk import Disk
from barnabas_log.recovery.scrub import CheckFacts, SegmentCheck
from barnabas_log.tail.aborted_transactions import TXN_CHECK_SUFFIX, TXN_INDEX_SUFFIX
from barnabas_log.tail.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    NOTE_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TRUE_TIME_SUFFIX,
    segment_path,
)
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Epoch, Offset

logger = logging.getLogger(__name__)

CLEANING_DIRECTORY: Final = ".cleaning"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
SUFFIXES: Final = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, *NOTE_SUFFIXES, LOG_SUFFIX)
"""The suffixes of the files that are moved, the log last."""


class UnsoundOutput(KafkaError):
    """What a worker wrote is not what may take the place of a segment."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class SwapRecord(NamedTuple):
    """What B.swap says."""

    base_offset: int
    end_offset: int
    size_bytes: int
    """The size of the new .log."""
    sources: tuple[int, ...]
    """Base offsets."""
    has_aborted: bool = False
    """Whether the new segment has aborted transactions, and so a .txnindex."""

    def path(self, directory: str) -> str:
        """Its file."""
        return segment_path(directory, self.base_offset, SWAP_SUFFIX)

    def encode(self) -> bytes:
        """Content of the file."""
        return json.dumps({"version": 0, **self._asdict()}).encode()

    @classmethod
    def decode(cls, content: bytes) -> SwapRecord:
        """Raises ValueError, KeyError or TypeError."""
        fields = json.loads(content)
        return cls(
            int(fields["base_offset"]),
            int(fields["end_offset"]),
            int(fields["size_bytes"]),
            tuple(int(base) for base in fields["sources"]),
            bool(fields.get("has_aborted")),
        )


class PendingSwap:
    """A swap under way. Its blocking steps run in a disk thread, but for `abandon` and `settle_now`, which the loop may
    call during them: the first to get the lock decides."""

    def __init__(self, disk: Disk, directory: str, run_directory: str, output: Output) -> None:
        self._disk = disk
        self._directory = directory
        self._run_directory = run_directory
        self.output = output
        self.record = SwapRecord(
            output.base_offset,
            output.end_offset,
            output.size_bytes,
            tuple(source.base_offset for source in output.sources),
            bool(output.aborted),
        )
        self.is_abandoned = False
        self.is_in_place = False
        """Whether the log has the new segment."""
        self.is_settled = False
        """Whether the record is gone."""
        self._lock = threading.Lock()

    def prepare(self) -> bool:
        """Make the new segment durable under its .swap names, and then the record. False when it was abandoned. Raises OSError."""
        disk, directory, base = self._disk, self._directory, self.output.base_offset
        written = [suffix for suffix in SUFFIXES if disk.exists(segment_path(self._run_directory, base, suffix))]
        for suffix in written:
            file = disk.open(segment_path(self._run_directory, base, suffix))
            try:
                file.sync()
            finally:
                file.close()
        with self._lock:
            if self.is_abandoned:
                return False
            for suffix in written:
                path = segment_path(directory, base, suffix)
                disk.rename(segment_path(self._run_directory, base, suffix), path + CLEANED_SUFFIX)
            for suffix in written:
                path = segment_path(directory, base, suffix)
                disk.rename(path + CLEANED_SUFFIX, path + SWAP_SUFFIX)
            disk.sync_directory(self._run_directory)
            disk.sync_directory(directory)
            disk.write_file_atomically(self.record.path(directory), self.record.encode())
        return True

    def put_in_place(self) -> None:
        """Give the new files their final names, after those of the sources went; on the loop, in one go with the log's change.
        Raises OSError."""
        for suffix in SUFFIXES:
            path = segment_path(self._directory, self.output.base_offset, suffix)
            if self._disk.exists(path + SWAP_SUFFIX):
                self._disk.rename(path + SWAP_SUFFIX, path)
        self.is_in_place = True

    def abandon(self) -> None:
        """The sources are about to change, or have: the swap shall not happen, at no later start either. Blocks. Raises OSError."""
        with self._lock:
            if self.is_abandoned or self.is_in_place:
                return
            self.is_abandoned = True
            undo_swap(self._disk, self._directory, self.record)

    def settle_now(self) -> None:
        """Make the final names durable, then take the record away, durably. Blocks. Raises OSError."""
        with self._lock:
            if self.is_settled or not self.is_in_place:
                return
            self._disk.sync_directory(self._directory)
            self._disk.remove(self.record.path(self._directory))
            self._disk.sync_directory(self._directory)
            self.is_settled = True


def undo_swap(disk: Disk, directory: str, record: SwapRecord) -> None:
    """Take the record away, durably, then the .swap files. Raises OSError."""
    if disk.exists(record.path(directory)):
        disk.remove(record.path(directory))
        disk.sync_directory(directory)
    for suffix in SUFFIXES:
        for half in (CLEANED_SUFFIX, SWAP_SUFFIX):
            disk.remove(segment_path(directory, record.base_offset, suffix) + half)


def finish_swaps(disk: Disk, directory: str) -> list[SwapRecord]:
    """At the start, before anything of the directory is opened: finish the swaps that are recorded, undo the others. Returns those
    finished. Raises OSError."""
    names = disk.list_directory(directory)
    if CLEANING_DIRECTORY in names:
        disk.remove_tree(f"{directory}/{CLEANING_DIRECTORY}")
    if not any(name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX)) for name in names):
        return []
    finished: list[SwapRecord] = []
    records: list[str] = []
    for name in names:
        stem = name.removesuffix(SWAP_SUFFIX)
        if name == stem or not stem.isdecimal():
            continue
        records.append(f"{directory}/{name}")
        try:
            record = SwapRecord.decode(disk.read_file(f"{directory}/{name}"))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            logger.warning("%s/%s is not whole: the swap is undone", directory, name)
            continue
        if _is_to_be_finished(disk, directory, record):
            _finish(disk, directory, record)
            finished.append(record)
    names = disk.list_directory(directory)
    known = set(names)
    for name in names:
        if name.endswith(CLEANED_SUFFIX):
            disk.remove(f"{directory}/{name}")
        elif name.endswith(LOG_SUFFIX + SWAP_SUFFIX) and name.removesuffix(SWAP_SUFFIX) not in known:
            for suffix in SUFFIXES:
                path = f"{directory}/{name.partition('.')[0]}{suffix}"
                if disk.exists(path + SWAP_SUFFIX):
                    disk.rename(path + SWAP_SUFFIX, path)
        elif name.endswith(SWAP_SUFFIX) and name.count(".") > 1:
            disk.remove(f"{directory}/{name}")
    if records:
        disk.sync_directory(directory)
        for path in records:
            disk.remove(path)
        disk.sync_directory(directory)
    return finished


def _is_to_be_finished(disk: Disk, directory: str, record: SwapRecord) -> bool:
    """Whether the new segment is there, under either name."""
    path = segment_path(directory, record.base_offset, LOG_SUFFIX)
    for candidate in (path + SWAP_SUFFIX, path):
        if disk.exists(candidate):
            file = disk.open(candidate)
            size_bytes = file.size_bytes
            file.close()
            return size_bytes == record.size_bytes
    return False


def _finish(disk: Disk, directory: str, record: SwapRecord) -> None:
    logger.info("%s: finishing the swap of %d to %d", directory, record.base_offset, record.end_offset)
    for base in record.sources:
        if base != record.base_offset:
            for suffix in SUFFIXES:
                disk.remove(segment_path(directory, base, suffix))
    for suffix in SUFFIXES:
        path = segment_path(directory, record.base_offset, suffix)
        if disk.exists(path + SWAP_SUFFIX):
            disk.rename(path + SWAP_SUFFIX, path)
        elif suffix == TRUE_TIME_SUFFIX or (suffix in (TXN_INDEX_SUFFIX, TXN_CHECK_SUFFIX) and not record.has_aborted):
            disk.remove(path)  # of the source


class OutputCheck:
    """The broker's own look at what a worker wrote, step by step: CRCs, rising offsets within the range, epochs, indexes."""

    def __init__(self, disk: Disk, run_directory: str, output: Output, epochs: Sequence[tuple[Epoch, Offset]]) -> None:
        self._disk = disk
        self._path = segment_path(run_directory, output.base_offset, LOG_SUFFIX)
        facts = CheckFacts(
            Offset(output.base_offset),
            Offset(output.end_offset),
            output.size_bytes,
            tuple(epochs),
            is_sealed=True,
            may_have_gaps=True,
        )
        index = disk.read_file(segment_path(run_directory, output.base_offset, INDEX_SUFFIX))
        entries = [
            (int.from_bytes(index[at : at + 4], "big"), int.from_bytes(index[at + 4 : at + 8], "big"))
            for at in range(0, len(index), 8)
        ]
        self._check = SegmentCheck(facts, index=entries)
        self._output = output

    @property
    def is_done(self) -> bool:
        """Whether all of it was checked."""
        return self._check.is_done

    def step(self) -> int:
        """Check a chunk, in a disk thread; returns its bytes. Raises UnsoundOutput, OSError."""
        file = self._disk.open(self._path)
        try:
            if file.size_bytes != self._output.size_bytes:
                raise UnsoundOutput(f"{self._path} has {file.size_bytes} bytes instead of {self._output.size_bytes}")
            read = self._check.step(file.read_aside)
        finally:
            file.close()
        if self._check.damages:
            raise UnsoundOutput(f"{self._path}: {self._check.damages[0]}")
        if not self._check.is_index_sound:
            raise UnsoundOutput(f"the index of {self._path} does not fit it")
        return read
