"""Batches whose headers do not say how young their records are: what goes by age, and what a search by time finds."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from barnabas_log.config import CleanupPolicy, LogManagerConfig
from barnabas_log.directories.manager import LogManager
from barnabas_log.memory_disk import MemoryDisk
from barnabas_log.read import batch_times, true_times
from barnabas_log.read.batch_times import BatchTimes, SearchExhausted, SearchStopped
from barnabas_log.read.time_search import search_by_time
from barnabas_log.read.true_times import is_judged
from barnabas_log.recovery.inspection_process import InspectionProcess
from barnabas_log.recovery.segment_note import TrueTime
from barnabas_log.tail import retiring
from barnabas_log.tail import segment as segment_module
from barnabas_log.tail.segment import LogSegment
from barnabas_log.unified_log import UnifiedLog
from barnabas_wire.kafka.ids import Epoch, Offset, TopicPartition, Uuid
from barnabas_wire.records.batch import Record, build_batch, iterate_batches, iterate_records
from barnabas_wire.records.compression import CompressionType
from barnabas_wire.records.crc32c import crc32c
from tests.support import logs as logs_support
from tests.support.logs import (
    DIRECTORY,
    NOW_MS,
    append,
    content,
    first_at,
    flush,
    make_config,
    of_greatest_time,
    open_log,
)

ORDERS, TOPIC_ID = TopicPartition("orders", 0), Uuid(b"t" * 16)


def says(batch: bytes, max_timestamp_ms: int) -> bytes:
    """The batch with that MaxTimestamp in its header, and its checksum made anew."""
    body = bytearray(batch)
    body[35:43] = max_timestamp_ms.to_bytes(8, "big", signed=True)
    body[17:21] = crc32c(bytes(body[21:])).to_bytes(4, "big")
    return bytes(body)


def batch_of(*times: int, offset: int = 0, claim: int | None = None, **kwargs: Any) -> bytes:
    """A batch with a record per time; its header claims the first one's as the greatest, or `claim`."""
    records = [Record(Offset(offset + n), each, b"k%d" % n, b"v" * 30) for n, each in enumerate(times)]
    return says(build_batch(records, **kwargs), times[0] if claim is None else claim)


def walk(log: UnifiedLog) -> list[tuple[int, int]]:
    """(offset, time) of every record from the log start on."""
    data = content(log)
    return [
        (record.offset, record.timestamp_ms)
        for position, header in iterate_batches(data)
        for record in iterate_records(data[position : position + header.size_bytes])
        if record.offset >= log.log_start_offset
    ]


def test_a_fresh_record_behind_an_old_one_does_not_go() -> None:
    log = open_log(MemoryDisk(), config=make_config(retention_ms=30_000))
    append(log, batch_of(NOW_MS - 60_000, NOW_MS - 1_000))
    log.tail.roll(NOW_MS)
    append(log)
    flush(log)
    log.update_high_watermark(log.log_end_offset)
    assert retiring.apply_retention(log, NOW_MS) == 0
    assert retiring.apply_retention(log, NOW_MS + 28_000) == 0
    assert retiring.apply_retention(log, NOW_MS + 29_001) == 1


@pytest.mark.parametrize("is_sealed", [True, False])
@pytest.mark.parametrize("kind", [CompressionType.NONE, CompressionType.GZIP])
async def test_a_broker_keeps_it_and_lets_it_go_in_time(is_sealed: bool, kind: CompressionType) -> None:
    now = NOW_MS
    disk = MemoryDisk()
    config = make_config(retention_ms=30_000)
    for _ in range(2):  # the second time from what the first one stored
        manager = LogManager(
            disk=disk,
            directories=["data"],
            default_config=config,
            clock_ms=lambda: now,
            config=LogManagerConfig(reserve_bytes=64),
        )
        await manager.load()
        log = manager.get_or_create(ORDERS, TOPIC_ID, config)
        if not log.log_end_offset:
            append(log, batch_of(NOW_MS - 60_000, NOW_MS - 1_000, compression=kind))
            if is_sealed:
                log.tail.roll(now)
                append(log, batch_of(NOW_MS - 1_000))
        flush(log)
        log.update_high_watermark(log.log_end_offset)
        await manager.apply_retention()
        assert log.log_start_offset == 0 and disk.exists(f"{DIRECTORY}/{0:020d}.truetime") == is_sealed
        await manager.close()
    await manager.load()
    log = manager.get_or_create(ORDERS, TOPIC_ID, config)
    log.update_high_watermark(log.log_end_offset)
    now = NOW_MS + 29_001
    for _ in range(3):
        await manager.apply_retention()
        flush(log)
    assert log.log_start_offset >= 2
    log.take_removals()


def test_a_segment_that_cannot_be_read_does_not_go_by_its_age() -> None:
    disk = MemoryDisk()
    log = open_log(disk, config=make_config(retention_ms=30_000))
    append(log, batch_of(NOW_MS - 60_000, NOW_MS))
    log.tail.roll(NOW_MS)
    append(log)
    flush(log)
    log.update_high_watermark(log.log_end_offset)
    disk.names[f"{DIRECTORY}/{0:020d}.log"].content[8:12] = b"\x00\x00\x00\x01"
    assert retiring.apply_retention(log, NOW_MS) == 0 and log.untimed == (0,)


def lying_log(disk: MemoryDisk, seed: int) -> UnifiedLog:
    """Several segments of batches of every kind: sound, too low, without, too high; in order of time or not."""
    random = Random(seed)
    config = make_config(segment_bytes=random.choice([500, 1200, 100_000]), cleanup_policy=CleanupPolicy.COMPACT)
    log = open_log(disk, config=config)
    for number in range(30):
        base = NOW_MS + number * 10 + random.randint(-60, 60)
        times = [base + random.randint(-25, 25) for _ in range(random.randint(1, 4))]
        claim = random.choice([times[0], times[0], max(times), -1, max(times) + random.randint(1, 90)])
        if claim == max(times) + 0 and len(times) == 1:
            claim = times[0]
        data = batch_of(
            *times,
            offset=log.log_end_offset,
            claim=claim,
            leader_epoch=Epoch(0),
            compression=random.choice([CompressionType.NONE, CompressionType.LZ4]),
        )
        log.tail.append_as_follower(data, leader_epoch=Epoch(0))
    flush(log)
    log.update_high_watermark(log.log_end_offset)
    return log


def assert_found_as_walked(log: UnifiedLog) -> None:
    records = walk(log)
    greatest = max(time for _, time in records)
    assert of_greatest_time(log) == next(each for each in records if each[1] == greatest)
    for asked in {time + delta for _, time in records for delta in (-1, 0, 1)}:
        assert first_at(log, asked) == next((each for each in records if each[1] >= asked), None), asked


@pytest.mark.parametrize("seed", range(40))
def test_a_search_answers_as_a_walk_of_the_records(seed: int) -> None:
    disk = MemoryDisk()
    log = lying_log(disk, seed)
    assert_found_as_walked(log)
    log.delete_records_before(Offset(log.log_end_offset // 3))
    assert_found_as_walked(log)
    log.tail.append_as_follower(
        batch_of(NOW_MS + 5, NOW_MS + 9_000, offset=log.log_end_offset, leader_epoch=Epoch(0)), leader_epoch=Epoch(0)
    )
    assert of_greatest_time(log) == (log.log_end_offset - 1, NOW_MS + 9_000)
    log.close()
    notes = [name for name in disk.list_directory(DIRECTORY) if name.endswith(".truetime")]
    for number, name in enumerate(notes):
        inode = disk.names[f"{DIRECTORY}/{name}"]
        if number % 3 == 0:
            disk.remove(f"{DIRECTORY}/{name}")
        elif number % 3 == 1:
            inode.content[seed % len(inode.content)] ^= 1
    again = open_log(disk, config=log.config, is_clean_shutdown=True, recovery_point=log.log_end_offset)
    again.delete_records_before(Offset(0))
    assert_found_as_walked(again)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("lying_max", [0, 2])
def test_a_search_is_right_with_more_liars_than_are_remembered(
    seed: int, lying_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_module, "LYING_MAX", lying_max)
    disk = MemoryDisk()
    log = lying_log(disk, seed)
    for _ in range(2):
        assert_found_as_walked(log)
        assert all(len(segment.lying) <= lying_max for segment in log.segments)
        log.delete_records_before(Offset(log.log_end_offset // 3))


def test_the_process_finds_what_a_thread_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_times, "PACE_STEPS", 1)
    process = InspectionProcess()
    monkeypatch.setattr(logs_support, "BatchTimes", lambda: BatchTimes(process))
    try:
        for seed in (3, 4):
            assert_found_as_walked(lying_log(MemoryDisk(), seed))
        assert process.started == 1
    finally:
        process.close()


def test_a_header_that_lies_is_found_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may DESCRIBE had each search open it anew: 28 s of CPU for 6 KB."""
    disk = MemoryDisk()
    log = open_log(disk)
    for number in range(12):  # more than are opened to find the youngest
        append(log, batch_of(NOW_MS + number, NOW_MS + number, claim=NOW_MS + 50))
    append(log, batch_of(NOW_MS + 60))
    flush(log)
    log.update_high_watermark(log.log_end_offset)
    opened: list[int] = []
    real = LogSegment.batch_at

    def noted(segment: LogSegment, position: int) -> bytes:
        opened.append(position)
        return real(segment, position)

    monkeypatch.setattr(LogSegment, "batch_at", noted)
    for asked in (40, 30, 35, 50):
        assert first_at(log, NOW_MS + asked) == (24, NOW_MS + 60)
    assert len(opened) == len(set(opened)) + 4, "each liar once, and the one that is found each time"
    log.tail.roll(NOW_MS)
    log.segments[0].true_time = None  # it was judged while it was active, which leaves no note
    of_greatest_time(log)
    log.close()
    again = open_log(disk, config=log.config, is_clean_shutdown=True, recovery_point=log.log_end_offset)
    opened.clear()
    assert first_at(again, NOW_MS + 40) == (24, NOW_MS + 60)
    assert len(opened) == 1, "the note beside the segment says who lies"


def test_a_search_opens_so_many_records_and_the_next_one_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_times, "SEARCHED_RECORDS_MAX", 7)
    log = open_log(MemoryDisk())
    for number in range(20):
        append(log, batch_of(NOW_MS + number, NOW_MS + number, claim=NOW_MS + 50 + number))
    append(log, batch_of(NOW_MS + 90))
    flush(log)
    log.update_high_watermark(log.log_end_offset)
    ended = 0
    while True:
        try:
            found = first_at(log, NOW_MS + 40)
            break
        except SearchExhausted:
            ended += 1
    assert found == (40, NOW_MS + 90)
    assert 3 <= ended <= 7, "three liars a search; of twenty the eight that claim most were opened to find the youngest"


def test_who_stops_a_search_loses_no_more_than_a_slice_of_what_it_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(true_times, "SLICE_BYTES", 300)
    monkeypatch.setattr(batch_times, "PACE_STEPS", 1)
    log = open_log(MemoryDisk(), config=make_config(segment_bytes=100_000))
    for number in range(20):
        append(log, batch_of(NOW_MS + number, NOW_MS + number + 1))
    flush(log)
    log.update_high_watermark(log.log_end_offset)
    search = search_by_time(log, NOW_MS + 15)
    seen: list[int] = []
    real = LogSegment.batch_at

    def stopping(segment: LogSegment, position: int) -> bytes:
        seen.append(position)
        if len(seen) == 10:
            search.times.stop()
        return real(segment, position)

    monkeypatch.setattr(LogSegment, "batch_at", stopping)
    with pytest.raises(SearchStopped):
        search.first_at(NOW_MS + 15)
    search.close()
    assert len(seen) == 10, "it ends with the batch at hand"
    known = log.active.true_time
    assert known is not None and seen[-1] - 300 <= known.judged_bytes <= seen[-1]
    assert first_at(log, NOW_MS + 15) == (29, NOW_MS + 15)


def test_what_is_known_is_not_read_again() -> None:
    disk = MemoryDisk()
    log = lying_log(disk, 1)
    first_at(log, NOW_MS + 10_000)
    of_greatest_time(log)
    assert all(is_judged(segment) for segment in log.segments if segment.size_bytes)
    base = log.active.base_offset
    at = log.active.true_time
    append_at = log.log_end_offset
    log.tail.append_as_follower(
        batch_of(NOW_MS + 50_000, offset=append_at, leader_epoch=Epoch(0)), leader_epoch=Epoch(0)
    )
    assert log.active.base_offset != base or log.active.true_time == at, "ingest pays nothing"
    assert of_greatest_time(log) == (append_at, NOW_MS + 50_000)


def test_a_note_of_another_segment_is_not_believed() -> None:
    disk = MemoryDisk()
    log = lying_log(disk, 2)
    of_greatest_time(log)
    notes = [f"{DIRECTORY}/{name}" for name in disk.list_directory(DIRECTORY) if name.endswith(".truetime")]
    if len(notes) > 1:
        disk.names[notes[0]].content[:] = disk.names[notes[1]].content
    for segment in log.segments:
        segment.true_time = None
    assert_found_as_walked(log)
    assert TrueTime().greatest_ms == -1
