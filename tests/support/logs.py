"""The one constructor of a log, its batches and its bytes for tests of this room."""

from __future__ import annotations

from typing import Any

from barnabas_log.config import LogConfig
from barnabas_log.disk import Disk
from barnabas_log.read.batch_times import BatchTimes
from barnabas_log.read.time_search import search_by_time
from barnabas_log.recovery.opening import open_partition_log
from barnabas_log.unified_log import LogRead, UnifiedLog
from barnabas_wire.kafka.ids import ZERO_UUID, Epoch, Offset, TopicPartition
from barnabas_wire.records.batch import Record, build_batch, iterate_batches

DIRECTORY = "data/orders-0"
ORDERS = TopicPartition("orders", 0)
NOW_MS = 1_700_000_000_000


def make_config(**overrides: Any) -> LogConfig:
    """Small segments and dense indexes unless told otherwise."""
    settings: dict[str, Any] = {"segment_bytes": 4000, "index_interval_bytes": 300, "retention_ms": -1}
    return LogConfig(**{**settings, **overrides})


def open_log(disk: Disk, *, directory: str = DIRECTORY, config: LogConfig | None = None, **kwargs: Any) -> UnifiedLog:
    """A log on the disk, opened as after an unclean stop unless told otherwise."""
    settings: dict[str, Any] = {"topic_partition": ORDERS, "topic_id": ZERO_UUID, "now_ms": NOW_MS}
    return open_partition_log(disk=disk, directory=directory, config=config or make_config(), **{**settings, **kwargs})


def make_batch(
    count: int = 1, *, offset: int = 0, value: bytes = b"v" * 50, timestamp_ms: int = NOW_MS, **kwargs: Any
) -> bytes:
    """A batch of `count` records, one ms apart."""
    records = [Record(offset + n, timestamp_ms + n, b"k%d" % n, value) for n in range(count)]
    return build_batch(records, **kwargs)


def append(log: UnifiedLog, batch: bytes | None = None, *, epoch: int = 0, now_ms: int = NOW_MS) -> Offset:
    """Append one batch as leader and write it; returns its first offset."""
    result = log.tail.append_as_leader(batch or make_batch(), leader_epoch=Epoch(epoch), now_ms=now_ms)
    log.tail.write_pending()
    return result.first_offset


def flush(log: UnifiedLog) -> None:
    """A flush round by hand."""
    files = log.dirty_files()
    end = log.written_end_offset
    for file in files:
        file.sync()
    log.mark_flushed(end)


def take(read: LogRead) -> bytes:
    """The bytes of a read, and its ranges released."""
    data = b"".join(part.file.read(part.position, part.size) for part in read.parts)
    for part in read.parts:
        part.file.release()
    assert len(data) == read.size_bytes
    return data


def content(log: UnifiedLog) -> bytes:
    """All bytes of the log from its start, by reading it through."""
    pieces: list[bytes] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, bytes_max=1 << 30, end=log.log_end_offset, at_least_one_batch=True)
        pieces.append(take(read))
        assert read.next_offset > offset
        offset = read.next_offset
    return b"".join(pieces)


def batch_offsets(data: bytes) -> list[tuple[int, int]]:
    """(base, last) offset of each batch; the bytes must be whole batches."""
    batches = list(iterate_batches(data))
    assert sum(header.size_bytes for _, header in batches) == len(data)
    return [(header.base_offset, header.last_offset) for _, header in batches]


def first_at(log: UnifiedLog, timestamp_ms: int) -> tuple[Offset, int] | None:
    """The first record at or after the time."""
    search = search_by_time(log, timestamp_ms, BatchTimes())
    try:
        return search.first_at(timestamp_ms)
    except OSError as error:
        raise log.tail.failed_by(error) from error
    finally:
        search.close()


def of_greatest_time(log: UnifiedLog) -> tuple[Offset, int] | None:
    """The first record with the greatest time."""
    search = search_by_time(log, None, BatchTimes())
    try:
        return search.of_greatest()
    except OSError as error:
        raise log.tail.failed_by(error) from error
    finally:
        search.close()
