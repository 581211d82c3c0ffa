"""Logs for tests of compaction: batches as producers and transactions write them, in segments, and runs over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st

from barnabas_log.cleaner.rewrite import Job, Output, Result, Source, rewrite
from barnabas_log.cleaner.survival import KeyOffsets
from barnabas_log.disk import Disk
from barnabas_log.memory_disk import MemoryDisk
from barnabas_log.tail.aborted_transactions import AbortedTransaction
from barnabas_log.tail.segment import LOG_SUFFIX, LogSegment, segment_path
from barnabas_wire.kafka.ids import Epoch, Offset
from barnabas_wire.records.batch import (
    BatchHeader,
    Record,
    build_batch,
    crc_is_valid,
    iterate_batches,
    iterate_records,
)
from barnabas_wire.records.compression import CompressionType
from barnabas_wire.records.control import ControlRecordType, encode_control_key
from tests.support.logs import NOW_MS, make_config

DIRECTORY, RUN = "data/changes-0", "data/changes-0/.cleaning/1"
DAY_MS = 86_400_000
KEYS = st.sampled_from([b"", b"a", b"b", b"c", b"long key number one", b"long key number two", b"x" * 15, b"x" * 16])
VALUES = st.one_of(st.none(), st.binary(max_size=6), st.just(b"v" * 300))
ROWS = st.lists(st.tuples(KEYS, VALUES, st.integers(-200, 200)), min_size=1, max_size=6)
BATCHES = st.lists(
    st.tuples(ROWS, st.sampled_from(list(CompressionType)), st.integers(-1, 1), st.booleans()), min_size=1, max_size=14
)
"""(rows of (key, value, time), codec, producer or -1, whether a new segment begins with it)"""


class Row(NamedTuple):
    """A record as a test compares it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


class CompactedLog:
    """Segments on a disk in memory, and the rounds of a cleaner over them."""

    def __init__(self, segments: Sequence[bytes], *, disk: Disk | None = None) -> None:
        self.disk = disk or MemoryDisk()
        self.clean = 0
        self.aborted: tuple[AbortedTransaction, ...] = ()
        self.producers: tuple[tuple[int, int, int], ...] = ()
        self.sources: list[Source] = []
        self.disk.make_directory(DIRECTORY)
        for content in segments:
            headers = [header for _, header in iterate_batches(content)]
            base, end = headers[0].base_offset, headers[-1].next_offset
            segment = LogSegment.create(self.disk, DIRECTORY, base, make_config(), now_ms=NOW_MS)
            for header in headers:
                segment.add_batch(header.last_offset, header.max_timestamp_ms, header.size_bytes)
            segment.file.append([content])
            segment.finish()
            segment.close()
            self.sources.append(Source(base, end, len(content)))

    def job(self, *, now_ms: int = NOW_MS, **changes: Any) -> Job:
        """Of a round from where the last one ended."""
        settings: dict[str, Any] = {
            "directory": DIRECTORY,
            "run_directory": RUN,
            "sources": tuple(self.sources),
            "first_dirty": self.clean,
            "segment_bytes": 4000,
            "segment_index_bytes": 10_000,
            "index_interval_bytes": 300,
            "now_ms": now_ms,
            "delete_retention_ms": DAY_MS,
            "map_bytes_max": 1 << 20,
            "producers": self.producers,
            "aborted": self.aborted,
        }
        return Job(**{**settings, **changes})

    def round(self, *, make_keys: Callable[..., KeyOffsets] = KeyOffsets, **changes: Any) -> Result:
        """One run, and its outputs in place of their sources."""
        self.disk.make_directory(RUN)
        job = Job.decode(self.job(**changes).encode())
        work = rewrite(self.disk, job, make_keys=make_keys)
        try:
            while True:
                next(work)
        except StopIteration as done:
            result: Result = done.value
        for output in result.outputs:
            self._replace(output)
        self.disk.remove_tree(RUN)
        self.clean = result.end_offset
        return result

    def _replace(self, output: Output) -> None:
        for source in output.sources:
            self.disk.remove(segment_path(DIRECTORY, source.base_offset, LOG_SUFFIX))
        for suffix in (".log", ".index", ".timeindex", ".txnindex"):
            path = segment_path(RUN, output.base_offset, suffix)
            if suffix == ".txnindex" and not output.aborted:
                self.disk.remove(segment_path(DIRECTORY, output.base_offset, suffix))
                continue
            self.disk.rename(path, segment_path(DIRECTORY, output.base_offset, suffix))
        at = self.sources.index(output.sources[0])
        self.sources[at : at + len(output.sources)] = [Source(output.base_offset, output.end_offset, output.size_bytes)]

    def content(self) -> bytes:
        """All bytes, in order."""
        return b"".join(
            self.disk.read_file(segment_path(DIRECTORY, each.base_offset, LOG_SUFFIX)) for each in self.sources
        )

    def headers(self) -> list[BatchHeader]:
        """Of all batches, each of them proved, with offsets that rise and end as the segments do."""
        found: list[BatchHeader] = []
        for source in self.sources:
            content = self.disk.read_file(segment_path(DIRECTORY, source.base_offset, LOG_SUFFIX))
            assert len(content) == source.size_bytes
            expected = source.base_offset
            for position, header in iterate_batches(content):
                assert crc_is_valid(content, position, header)
                assert header.base_offset >= expected
                expected = header.next_offset
                found.append(header)
            assert expected == source.end_offset
        return found

    def rows(self) -> list[Row]:
        """All records that are data."""
        return rows_of(self.content())


def rows_of(content: bytes) -> list[Row]:
    """The records of whole batches that are data."""
    rows: list[Row] = []
    for position, header in iterate_batches(content):
        if not header.is_control:
            whole = content[position : position + header.size_bytes]
            rows += [Row(each.offset, each.timestamp_ms, each.key, each.value) for each in iterate_records(whole)]
    return rows


def segments_of(content: Sequence[Any]) -> list[bytes]:
    """What BATCHES drew, as segments."""
    segments: list[bytes] = []
    offset, sequences = 0, {0: 0, 1: 0}
    for rows, compression, producer, is_new in content:
        records = [Record(offset + n, NOW_MS + ms, key, value) for n, (key, value, ms) in enumerate(rows)]
        named = (
            {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequences[producer]}
            if producer >= 0
            else {}
        )
        batch = build_batch(records, compression=compression, leader_epoch=Epoch(1), **named)
        if producer >= 0:
            sequences[producer] += len(rows)
        offset += len(rows)
        if is_new or not segments:
            segments.append(b"")
        segments[-1] += batch
    return segments


def marker(offset: int, kind: ControlRecordType, *, producer_id: int, timestamp_ms: int = NOW_MS) -> bytes:
    """The end of a transaction."""
    record = Record(offset, timestamp_ms, encode_control_key(kind), b"\0\0\0\0\0\1")
    return build_batch(
        [record],
        is_control=True,
        is_transactional=True,
        producer_id=producer_id,
        producer_epoch=0,
        leader_epoch=Epoch(1),
    )


def data(offset: int, *rows: tuple[bytes, bytes | None], producer_id: int = -1, is_transactional: bool = True) -> bytes:
    """A batch of a transaction, or of nobody."""
    records = [Record(Offset(offset + n), NOW_MS, key, value) for n, (key, value) in enumerate(rows)]
    if producer_id < 0:
        return build_batch(records, leader_epoch=Epoch(1))
    return build_batch(
        records,
        is_transactional=is_transactional,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        leader_epoch=Epoch(1),
    )
