"""One run of compaction over one log: its sealed segments in, fewer and smaller ones out, in a directory of the run.

May touch:  the Disk it is given: the sources to read, the run's directory to write.   Must not touch: the loop, clocks, the log.
Invariants: nothing outside the run's directory changes; what comes out covers the offsets of its sources exactly; memory is the
            map's bound, a chunk and a batch.
Read next:  survival.py, which decides; worker.py, which does this in a process; swap.py for what becomes of the outputs.

A generator that yields the bytes it has read and written since: whoever drives it sets the pace.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Final, NamedTuple

from barnabas_log.cleaner.survival import (
    NO_TIMESTAMP,
    KeyOffsets,
    LastBatch,
    Rules,
    Transactions,
    forgets_deletions,
    survivor,
)
from barnabas_log.config import INT32_MAX, LogConfig
from barnabas_log.disk import Disk
from barnabas_log.tail.aborted_transactions import (
    TXN_CHECK_SUFFIX,
    TXN_INDEX_SUFFIX,
    AbortedTransaction,
    encode,
    encode_check,
)
from barnabas_log.tail.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, LogSegment, segment_path
from barnabas_wire.kafka.ids import Epoch, Offset
from barnabas_wire.records.batch import (
    CRC_START,
    HEADER_BYTES,
    MAGIC,
    BatchHeader,
    Buffer,
    CorruptBatch,
    empty_batch,
    read_header,
)
from barnabas_wire.records.crc32c import crc32c

CHUNK_BYTES: Final = 1024 * 1024
"""Read, and written, at a time."""


class Source(NamedTuple):
    """A sealed segment."""

    base_offset: int
    end_offset: int
    """The next segment's base."""
    size_bytes: int


class Job(NamedTuple):
    """What a run is to do. It goes to the worker as JSON."""

    directory: str
    """The path of the log's directory."""
    run_directory: str
    """Exists, and is of this run alone."""
    sources: tuple[Source, ...]
    """All segments from the log's first to the last that may be cleaned, rising."""
    first_dirty: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    now_ms: int
    delete_retention_ms: int
    map_bytes_max: int
    producers: tuple[tuple[int, int, int], ...] = ()
    """(producer id, epoch, last data offset) of each that lives."""
    aborted: tuple[AbortedTransaction, ...] = ()
    """Those that overlap the sources."""
    epochs: tuple[tuple[int, int], ...] = ()
    """The log's (leader epoch, start offset), rising."""
    level: int | None = None
    """The compression level; None for the codec's own."""

    def encode(self) -> bytes:
        """One line."""
        return json.dumps(self._asdict()).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> Job:
        """A job from its line. Raises ValueError, KeyError or TypeError."""
        fields: dict[str, Any] = json.loads(line)
        fields["sources"] = tuple(Source(*each) for each in fields["sources"])
        fields["producers"] = tuple((each[0], each[1], each[2]) for each in fields["producers"])
        fields["aborted"] = tuple(AbortedTransaction(*each) for each in fields["aborted"])
        fields["epochs"] = tuple((each[0], each[1]) for each in fields["epochs"])
        return cls(**fields)


class Output(NamedTuple):
    """A segment of the run's directory that takes the place of its sources."""

    base_offset: int
    end_offset: int
    size_bytes: int
    sources: tuple[Source, ...]
    aborted: tuple[AbortedTransaction, ...]
    """The aborted transactions whose markers it has."""
    forgotten_below: int = 0
    """Deletions at lower offsets may have gone with this rewrite; 0: none have."""


class Result(NamedTuple):
    """What came of a run."""

    end_offset: int
    """Everything below is clean."""
    outputs: tuple[Output, ...]
    """The outputs in order; a source that no output names stays as it is."""
    keys: int
    bytes_read: int
    bytes_written: int

    def encode(self) -> bytes:
        """One line."""
        return json.dumps(self._asdict()).encode() + b"\n"

    @classmethod
    def decode(cls, fields: dict[str, Any]) -> Result:
        """A result from what `encode` made. Raises ValueError, KeyError or TypeError."""
        outputs = tuple(
            Output(
                base,
                end,
                size,
                tuple(Source(*each) for each in sources),
                tuple(AbortedTransaction(*each) for each in aborted),
                forgotten,
            )
            for base, end, size, sources, aborted, forgotten in fields["outputs"]
        )
        return cls(**{**fields, "outputs": outputs})


def rewrite(disk: Disk, job: Job, *, make_keys: Callable[..., KeyOffsets] = KeyOffsets) -> Generator[int, None, Result]:
    """Do the job, a chunk between two yields. Raises CorruptBatch, CorruptCompressedData, OSError.

    make_keys: KeyOffsets or what does the same faster.
    """
    keys = make_keys(bytes_max=job.map_bytes_max)
    transactions = Transactions(job.aborted)
    bytes_read, is_full = 0, False
    for source in job.sources:
        if source.end_offset <= job.first_dirty:
            continue
        for batch, header, read in _batches(disk, job.directory, source):
            if read:
                bytes_read += read
                yield read
            if header.last_offset < job.first_dirty:
                continue
            if not keys.has_room(header.record_count):
                is_full = True
                break
            keys.note(batch, header, transactions)
        if is_full:
            break
    # One that Kafka's cleaner wrote may end before its end offset, which is clean all the same.
    end_offset = int(keys.latest) + 1 if is_full or not job.sources else job.sources[-1].end_offset
    rules = Rules(
        job.now_ms,
        job.delete_retention_ms,
        {producer_id: LastBatch(epoch, last) for producer_id, epoch, last in job.producers},
        job.level,
    )
    chosen = [source for source in job.sources if source.base_offset < end_offset]
    transactions = Transactions(job.aborted)
    outputs: list[Output] = []
    bytes_written = 0
    groups = deque(group_sources(chosen, [_index_bytes(disk, job.directory, each) for each in chosen], job))
    while groups:
        work = _rewrite_group(disk, job, groups, keys, transactions, rules, round_end=end_offset)
        output, read, written = yield from work
        bytes_read += read
        bytes_written += written
        if output is not None:
            outputs.append(output)
    return Result(max(end_offset, job.first_dirty), tuple(outputs), keys.key_count, bytes_read, bytes_written)


def group_sources(sources: Sequence[Source], index_bytes: Sequence[int], job: Job) -> list[list[Source]]:
    """Neighbours that surely fit into one segment: by size, index size and span of offsets."""
    groups: list[list[Source]] = []
    size = indexed = 0
    for source, index in zip(sources, index_bytes, strict=True):
        if (
            groups
            and size + source.size_bytes <= job.segment_bytes
            and indexed + index <= job.segment_index_bytes
            and source.end_offset - groups[-1][0].base_offset <= INT32_MAX
        ):
            groups[-1].append(source)
            size += source.size_bytes
            indexed += index
        else:
            groups.append([source])
            size, indexed = source.size_bytes, index
    return groups


def _rewrite_group(
    disk: Disk,
    job: Job,
    groups: deque[list[Source]],
    keys: KeyOffsets,
    transactions: Transactions,
    rules: Rules,
    *,
    round_end: int,
) -> Generator[int, None, tuple[Output | None, int, int]]:
    """Take the first group, and further ones while no record is left. Returns the output, if anything changes, and the bytes read and
    written.

    A fetch reads one segment, and librdkafka takes eleven answers without a record for a record that it has no room for.
    """
    group = groups.popleft()
    base_offset, group_end = Offset(group[0].base_offset), group[-1].end_offset
    config = LogConfig(
        segment_bytes=INT32_MAX,
        segment_index_bytes=job.segment_index_bytes,
        index_interval_bytes=job.index_interval_bytes,
    )
    segment = LogSegment.create(disk, job.run_directory, base_offset, config, now_ms=job.now_ms)
    bytes_read, waiting, is_changed, has_records = 0, 0, False, False
    aborted_before = len(transactions.kept)
    parts: list[Buffer] = []
    forgotten_below = 0
    last_offset, last_position = int(base_offset) - 1, 0
    try:
        for source in group:
            for batch, header, read in _batches(disk, job.directory, source):
                if read:
                    bytes_read += read
                    yield read
                kept = survivor(
                    batch,
                    header,
                    keys,
                    transactions,
                    rules,
                    keeps_end=header.next_offset in (round_end, group_end),
                )
                is_changed = is_changed or kept is not batch
                if forgets_deletions(batch, header, kept, rules):
                    forgotten_below = header.next_offset
                if kept is None:
                    continue
                kept_header = header if kept is batch else read_header(kept)
                has_records = has_records or kept_header.record_count > 0
                last_offset, last_position = header.last_offset, segment.size_bytes
                segment.add_batch(last_offset, kept_header.max_timestamp_ms, len(kept))
                parts.append(kept)
                waiting += len(kept)
                if waiting >= CHUNK_BYTES:
                    segment.file.append(parts)
                    yield waiting
                    parts, waiting = [], 0
            if source is group[-1] and not has_records and groups and _fits(groups[0], base_offset, segment.size_bytes):
                group += groups.popleft()
                group_end = group[-1].end_offset
        if last_offset + 1 < group_end:
            # As Kafka's cleaner leaves segments. From here on this one ends where the next one begins.
            filler = empty_batch(Offset(group_end - 1), _epoch_at(job, group_end - 1))
            last_offset, last_position, is_changed = group_end - 1, segment.size_bytes, True
            segment.add_batch(last_offset, NO_TIMESTAMP, len(filler))
            parts.append(filler)
            waiting += len(filler)
        if parts:
            segment.file.append(parts)
            yield waiting
        segment.index_last(last_offset, last_position)
        segment.finish()
        aborted = tuple(transactions.kept[aborted_before:])
        if aborted:
            entries = b"".join(map(encode, aborted))
            for suffix, content in ((TXN_INDEX_SUFFIX, entries), (TXN_CHECK_SUFFIX, encode_check(entries))):
                index = disk.open(segment_path(job.run_directory, base_offset, suffix), create=True)
                index.append([content])
                index.close()
        output = Output(base_offset, group_end, segment.size_bytes, tuple(group), aborted, forgotten_below)
    finally:
        segment.close()
    if is_changed or len(group) > 1:
        return output, bytes_read, output.size_bytes
    for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, TXN_CHECK_SUFFIX):
        disk.remove(segment_path(job.run_directory, base_offset, suffix))
    return None, bytes_read, output.size_bytes


def _fits(group: Sequence[Source], base_offset: int, size_bytes: int) -> bool:
    """Whether the indexes can name a group's positions and offsets in a segment that has `size_bytes` already."""
    size_bytes += sum(source.size_bytes for source in group)
    return size_bytes <= INT32_MAX and group[-1].end_offset - base_offset <= INT32_MAX


def _epoch_at(job: Job, offset: int) -> Epoch:
    """Leader epoch that the log has there."""
    return Epoch(max((epoch for epoch, start in job.epochs if start <= offset), default=0))


def _index_bytes(disk: Disk, directory: str, source: Source) -> int:
    """The size, in bytes, of the larger of the source's indexes."""
    sizes = [0]
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        file = disk.open(segment_path(directory, source.base_offset, suffix))
        sizes.append(file.size_bytes)
        file.close()
    return max(sizes)


def _batches(disk: Disk, directory: str, source: Source) -> Iterator[tuple[bytes, BatchHeader, int]]:
    """Each batch, proved, its header, and how many bytes were read since the last one. Raises CorruptBatch."""
    path = segment_path(directory, source.base_offset, LOG_SUFFIX)
    file = disk.open(path)
    try:
        end, position, expected = source.size_bytes, 0, source.base_offset
        chunk, start, read = b"", 0, 0
        while position < end:
            if position + HEADER_BYTES > start + len(chunk):
                chunk, start = file.read_aside(position, min(CHUNK_BYTES, end - position)), position
                read += len(chunk)
            header = read_header(chunk, position - start)
            size = header.size_bytes
            if position + size > start + len(chunk):
                chunk, start = file.read_aside(position, min(max(CHUNK_BYTES, size), end - position)), position
                read += len(chunk)
            at = position - start
            batch = chunk[at : at + size]
            if (
                len(batch) < size
                or header.magic != MAGIC
                or header.base_offset < expected
                or header.next_offset > source.end_offset
                or crc32c(batch[CRC_START:]) != header.crc
            ):
                raise CorruptBatch(f"{path}: the batch at byte {position} is damaged")
            yield batch, header, read
            read = 0
            position += size
            expected = header.next_offset
    finally:
        file.close()
