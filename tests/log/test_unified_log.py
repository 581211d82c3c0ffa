"""Appending, reading, truncating, rolling: what one log promises while it runs."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_log.config import TimestampType
from barnabas_log.disk import RealDisk
from barnabas_log.errors import (
    BatchPassesSegment,
    BatchTooLarge,
    InconsistentTopicId,
    InvalidBatch,
    InvalidTimestamp,
    NotOneBatch,
    OffsetOutOfRange,
    OutOfOrderSequence,
    StorageFailed,
)
from barnabas_log.memory_disk import MemoryDisk
from barnabas_log.tail import retiring, truncating
from barnabas_log.tail.segment import INDEX_INTERVAL_BYTES_MAX
from barnabas_log.unified_log import UnifiedLog
from barnabas_wire.kafka.errors import InvariantViolated, KafkaError
from barnabas_wire.kafka.ids import Epoch, Offset, Uuid
from barnabas_wire.records.batch import CorruptBatch, Record, build_batch, iterate_records, read_header
from barnabas_wire.records.compression import CompressionType
from barnabas_wire.records.crc32c import crc32c
from tests.support.logs import (
    DIRECTORY,
    NOW_MS,
    append,
    batch_offsets,
    content,
    first_at,
    flush,
    make_batch,
    make_config,
    of_greatest_time,
    open_log,
    take,
)


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def log(disk: MemoryDisk) -> UnifiedLog:
    return open_log(disk)


def fill(log: UnifiedLog, batches: int, *, records: int = 2, epoch: int = 0) -> None:
    for _ in range(batches):
        append(log, make_batch(records), epoch=epoch)


class TestAppendAsLeader:
    def test_offsets_and_epoch_are_stamped_and_the_bytes_kept(self, log: UnifiedLog) -> None:
        batch = make_batch(3)
        result = log.tail.append_as_leader(batch, leader_epoch=Epoch(4), now_ms=NOW_MS)
        assert (result.first_offset, result.last_offset, result.record_count) == (0, 2, 3)
        assert (result.max_timestamp_ms, result.log_append_time_ms, result.size_bytes) == (NOW_MS + 2, -1, len(batch))
        append(log, batch, epoch=4)
        stored = content(log)
        assert batch_offsets(stored) == [(0, 2), (3, 5)]
        assert stored[21 : len(batch)] == batch[21:] == stored[len(batch) + 21 :]
        assert read_header(stored).partition_leader_epoch == 4
        assert [record.offset for record in iterate_records(stored)] == [0, 1, 2]

    @pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview])
    def test_the_buffer_may_be_reused_at_once(self, log: UnifiedLog, buffer: type) -> None:
        batch = make_batch(2)
        backing = bytearray(batch)
        log.tail.append_as_leader(buffer(backing), leader_epoch=Epoch(0), now_ms=NOW_MS)
        backing[:] = bytes(len(backing))
        assert content(log)[21:] == batch[21:]

    def test_written_end_follows_only_write_pending(self, log: UnifiedLog) -> None:
        log.tail.append_as_leader(make_batch(2), leader_epoch=Epoch(0), now_ms=NOW_MS)
        assert (log.log_end_offset, log.written_end_offset, log.flushed_end_offset) == (2, 0, 0)
        log.tail.write_pending()
        assert (log.written_end_offset, log.flushed_end_offset) == (2, 0)
        flush(log)
        assert log.flushed_end_offset == 2

    def test_many_appends_are_one_write(self, log: UnifiedLog) -> None:
        for _ in range(5):
            log.tail.append_as_leader(make_batch(), leader_epoch=Epoch(0), now_ms=NOW_MS)
        log.tail.write_pending()
        assert log.active.file.appends == 1  # type: ignore[attr-defined]

    def test_log_append_time_is_stamped_under_a_new_checksum(self, disk: MemoryDisk) -> None:
        log = open_log(disk, config=make_config(message_timestamp_type=TimestampType.LOG_APPEND_TIME))
        result = log.tail.append_as_leader(make_batch(2, timestamp_ms=5), leader_epoch=Epoch(0), now_ms=NOW_MS)
        assert (result.max_timestamp_ms, result.log_append_time_ms) == (NOW_MS, NOW_MS)
        assert {record.timestamp_ms for record in iterate_records(content(log))} == {NOW_MS}
        follower = open_log(MemoryDisk())
        follower.tail.append_as_follower(content(log), leader_epoch=Epoch(0))

    def test_a_repeat_is_answered_with_the_append_time_in_the_log(self, disk: MemoryDisk) -> None:
        config = make_config(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
        log = open_log(disk, config=config)
        batch = make_batch(2, producer_id=9, producer_epoch=0, base_sequence=0, timestamp_ms=5)
        log.tail.append_as_leader(batch, leader_epoch=Epoch(0), now_ms=NOW_MS)
        again = log.tail.append_as_leader(batch, leader_epoch=Epoch(0), now_ms=NOW_MS + 7_000)
        assert again.is_duplicate and again.log_append_time_ms == NOW_MS
        assert {record.timestamp_ms for record in iterate_records(content(log))} == {again.log_append_time_ms}

    @pytest.mark.parametrize(
        ("position", "value", "error"),
        [
            (0, b"\x00\x00\x00\x00\x00\x00\x00\x07", InvalidBatch),
            (16, b"\x01", NotOneBatch),
            (16, b"\x03", CorruptBatch),
            (8, b"\x00\x00\x00\x05", CorruptBatch),
            (8, b"\x7f\xff\xff\xff", NotOneBatch),
            (100, b"!", CorruptBatch),
            (21, b"\x00\x10", InvalidBatch),
            (21, b"\x00\x20", InvalidBatch),
            (21, b"\x00\x05", InvalidBatch),
            (21, b"\x00\x08", InvalidTimestamp),
            (23, b"\x00\x00\x00\x05", InvalidBatch),
            (57, b"\x00\x00\x00\x00", InvalidBatch),
            (35, b"\x00\x00\x7f\xff\xff\xff\xff\xff", InvalidTimestamp),
        ],
    )
    def test_a_bad_batch_is_refused_and_leaves_nothing(
        self, log: UnifiedLog, position: int, value: bytes, error: type[KafkaError]
    ) -> None:
        batch = bytearray(make_batch(2))
        batch[position : position + len(value)] = value
        with pytest.raises(error):
            log.tail.append_as_leader(batch, leader_epoch=Epoch(0), now_ms=NOW_MS)
        assert log.log_end_offset == 0
        log.tail.write_pending()
        assert log.size_bytes == 0

    @pytest.mark.parametrize(
        ("codec", "claimed", "size"),
        [(0, 9, 62), (0, (1 << 31) - 1, 62), (2, 400, 100), (4, (1 << 31) - 1, 62), (4, 1 << 29, 120_000)],
    )
    def test_a_count_that_the_bytes_cannot_hold_is_refused(
        self, log: UnifiedLog, codec: int, claimed: int, size: int
    ) -> None:
        """62 bytes moved the log by 2^31 offsets."""
        with pytest.raises(InvalidBatch, match="cannot be in"):
            append(log, claiming(claimed - 1, codec=codec, size=size))
        assert log.log_end_offset == 0

    @pytest.mark.parametrize("codec", list(CompressionType))
    def test_what_any_codec_makes_of_the_smallest_records_is_taken(self, codec: CompressionType) -> None:
        log = open_log(MemoryDisk(), config=make_config(segment_bytes=1 << 20))
        records = [Record(number, NOW_MS, None, None) for number in range(100_000)]
        append(log, build_batch(records, compression=codec))
        assert log.log_end_offset == 100_000

    def test_a_compacted_batch_is_replicated_and_recovered(self, disk: MemoryDisk, log: UnifiedLog) -> None:
        """Fewer records than offsets: nobody may refuse that but a leader to its client."""
        batch = claiming(9, count=2, size=90)
        log.tail.append_as_follower(batch, leader_epoch=Epoch(0))
        log.tail.append_as_follower(make_batch(1, offset=10, leader_epoch=Epoch(0)), leader_epoch=Epoch(0))
        flush(log)
        again = open_log(disk.crash(Random(1)))
        assert (again.log_end_offset, again.recovery_report.truncated_bytes) == (11, 0)
        assert batch_offsets(content(again)) == [(0, 9), (10, 10)]
        with pytest.raises(InvalidBatch):
            append(again, batch)

    @pytest.mark.parametrize("cut", range(0, 120, 7))
    def test_a_cut_batch_is_refused(self, log: UnifiedLog, cut: int) -> None:
        with pytest.raises(NotOneBatch):
            log.tail.append_as_leader(make_batch()[:cut], leader_epoch=Epoch(0), now_ms=NOW_MS)

    def test_two_batches_are_refused_from_a_client_and_taken_from_the_broker(self, log: UnifiedLog) -> None:
        two = make_batch(2) + make_batch(1, is_control=True)
        with pytest.raises(NotOneBatch):
            log.tail.append_as_leader(two, leader_epoch=Epoch(0), now_ms=NOW_MS)
        result = log.tail.append_as_leader(two, leader_epoch=Epoch(0), now_ms=NOW_MS, is_internal=True)
        assert (result.first_offset, result.last_offset, result.record_count) == (0, 2, 3)
        assert batch_offsets(content(log)) == [(0, 1), (2, 2)]

    def test_sizes_are_bounded(self, disk: MemoryDisk) -> None:
        log = open_log(disk, config=make_config(max_message_bytes=200))
        with pytest.raises(BatchTooLarge, match=r"max\.message\.bytes"):
            append(log, make_batch(value=b"x" * 300))
        log.update_config(make_config(max_message_bytes=10_000))
        with pytest.raises(BatchPassesSegment, match=r"segment\.bytes"):
            append(log, make_batch(value=b"x" * 5000))

    def test_old_timestamps_are_taken_by_default_and_refused_when_told(self, log: UnifiedLog) -> None:
        append(log, make_batch(timestamp_ms=5))
        log.update_config(make_config(message_timestamp_before_max_ms=1000))
        with pytest.raises(InvalidTimestamp):
            append(log, make_batch(timestamp_ms=NOW_MS - 1001))

    def test_an_older_leader_epoch_stops_the_node(self, log: UnifiedLog) -> None:
        append(log, epoch=5)
        with pytest.raises(InvariantViolated):
            append(log, epoch=4)

    def test_a_repeat_is_answered_with_its_first_offsets(self, log: UnifiedLog) -> None:
        sent = [make_batch(2, producer_id=9, producer_epoch=0, base_sequence=2 * n) for n in range(3)]
        for batch in sent:
            append(log, batch)
        again = log.tail.append_as_leader(sent[1], leader_epoch=Epoch(0), now_ms=NOW_MS)
        assert again.is_duplicate and (again.first_offset, again.last_offset, again.size_bytes) == (2, 3, 0)
        assert log.log_end_offset == 6
        with pytest.raises(OutOfOrderSequence):
            append(log, make_batch(2, producer_id=9, producer_epoch=0, base_sequence=8))


def claiming(last_offset_delta: int, *, count: int | None = None, codec: int = 0, size: int) -> bytes:
    """A batch of `size` bytes that says so of itself, under a right checksum."""
    batch = bytearray(make_batch(leader_epoch=Epoch(0))[:61].ljust(size, b"\0"))
    said = last_offset_delta + 1 if count is None else count
    struct.pack_into(">i", batch, 8, size - 12)
    struct.pack_into(">hi", batch, 21, codec, last_offset_delta)
    struct.pack_into(">i", batch, 57, said)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return bytes(batch)


class TestAppendAsFollower:
    def test_a_follower_holds_the_leaders_bytes(self, log: UnifiedLog) -> None:
        for epoch in (0, 0, 3):
            fill(log, 10, epoch=epoch)
        follower = open_log(MemoryDisk())
        offset = Offset(0)
        while offset < log.log_end_offset:
            read = log.read(offset, bytes_max=1000, end=log.log_end_offset, at_least_one_batch=True)
            follower.tail.append_as_follower(take(read), leader_epoch=Epoch(3))
            offset = read.next_offset
        follower.tail.write_pending()
        assert content(follower) == content(log)
        assert follower.leader_epochs.entries == log.leader_epochs.entries == ((0, 0), (3, 40))

    def test_a_gap_an_overlap_and_a_cut_are_refused(self, log: UnifiedLog) -> None:
        log.tail.append_as_follower(make_batch(2, offset=0, leader_epoch=Epoch(0)), leader_epoch=Epoch(0))
        for offset in (0, 1, 3):
            with pytest.raises(InvalidBatch):
                log.tail.append_as_follower(make_batch(1, offset=offset, leader_epoch=Epoch(0)), leader_epoch=Epoch(0))
        with pytest.raises(CorruptBatch):
            log.tail.append_as_follower(make_batch(1, offset=2, leader_epoch=Epoch(0))[:-1], leader_epoch=Epoch(0))
        assert log.log_end_offset == 2

    def test_the_sound_batches_before_a_corrupt_one_are_kept(self, log: UnifiedLog) -> None:
        corrupt = bytearray(make_batch(1, offset=2, leader_epoch=Epoch(0)))
        corrupt[-1] ^= 1
        with pytest.raises(CorruptBatch):
            log.tail.append_as_follower(make_batch(2, leader_epoch=Epoch(0)) + corrupt, leader_epoch=Epoch(0))
        assert (log.log_end_offset, batch_offsets(content(log))) == (2, [(0, 1)])

    def test_an_epoch_may_neither_fall_nor_pass_the_leaders(self, log: UnifiedLog) -> None:
        log.tail.append_as_follower(make_batch(1, leader_epoch=Epoch(4)), leader_epoch=Epoch(5))
        for epoch in (3, 6):
            with pytest.raises(InvalidBatch):
                log.tail.append_as_follower(make_batch(1, offset=1, leader_epoch=Epoch(epoch)), leader_epoch=Epoch(5))

    def test_an_epoch_led_without_a_write_gives_way_to_the_new_leaders(self, log: UnifiedLog) -> None:
        append(log, epoch=2)
        log.tail.assign_epoch_start(Epoch(7), log.log_end_offset)
        assert log.latest_epoch == 7
        log.tail.append_as_follower(make_batch(1, offset=1, leader_epoch=Epoch(6)), leader_epoch=Epoch(8))
        assert log.leader_epochs.entries == ((2, 0), (6, 1))


class TestRead:
    @given(
        sizes=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 400)), min_size=1, max_size=25),
        bytes_max=st.integers(0, 5000),
        interval=st.sampled_from([0, 100, 1000, 100_000]),
        data=st.data(),
    )
    @settings(max_examples=150, deadline=None)
    def test_reading_finds_what_a_linear_scan_finds(
        self, sizes: list[tuple[int, int]], bytes_max: int, interval: int, data: st.DataObject
    ) -> None:
        log = open_log(MemoryDisk(), config=make_config(index_interval_bytes=interval))
        batches = [make_batch(count, value=b"x" * size) for count, size in sizes]
        places: list[tuple[int, int]] = []
        for batch in batches:
            first = append(log, batch)
            places.append((first, log.log_end_offset))
        stored = [(base, end, len(batch)) for (base, end), batch in zip(places, batches, strict=True)]
        bases = log.base_offsets
        for _ in range(10):
            offset = data.draw(st.integers(0, log.log_end_offset - 1))
            end = data.draw(st.sampled_from([end for _, end, _ in stored]))
            minimum = data.draw(st.booleans())
            if data.draw(st.booleans()):
                log.active.boundaries.clear()
            read = log.read(Offset(offset), bytes_max=bytes_max, end=Offset(end), at_least_one_batch=minimum)
            got = batch_offsets(take(read))
            number = next(n for n, (_, batch_end, _) in enumerate(stored) if batch_end > offset)
            limit = min([end, *(base for base in bases if base > offset)])
            visible = [batch for batch in stored[number:] if batch[1] <= limit]
            fitting: list[tuple[int, int, int]] = []
            for place in visible:
                if sum(size for _, _, size in fitting) + place[2] > bytes_max:
                    break
                fitting.append(place)
            wanted = [(base, batch_end - 1) for base, batch_end, _ in visible]
            assert got == wanted[: len(got)], "a read is a run of whole batches from the one with the offset"
            assert read.size_bytes <= bytes_max or (minimum and len(got) == 1)
            if fitting:
                assert got, "what fits is given, if not always as much as fits"
            elif visible and minimum:
                assert got == wanted[:1]
            else:
                assert not got
            assert read.next_offset == (got[-1][1] + 1 if got else offset)
            if got:
                assert read.base_offset == got[0][0]

    def test_a_read_of_everything_that_fits_is_not_cut_short(self, log: UnifiedLog) -> None:
        fill(log, 8)
        read = log.read(Offset(0), bytes_max=1 << 20, end=log.log_end_offset, at_least_one_batch=False)
        assert batch_offsets(take(read))[-1] == (14, 15)

    def test_offsets_outside_the_log_are_out_of_range(self, log: UnifiedLog) -> None:
        fill(log, 2)
        for offset in (-1, 5):
            with pytest.raises(OffsetOutOfRange):
                log.read(Offset(offset), bytes_max=100, end=log.log_end_offset, at_least_one_batch=True)
        assert log.read(Offset(4), bytes_max=100, end=Offset(4), at_least_one_batch=True).parts == ()

    def test_nothing_past_the_bound_is_given(self, log: UnifiedLog) -> None:
        fill(log, 4)
        assert batch_offsets(take(log.read(Offset(0), bytes_max=9999, end=Offset(4), at_least_one_batch=True))) == [
            (0, 1),
            (2, 3),
        ]
        assert log.read(Offset(4), bytes_max=9999, end=Offset(4), at_least_one_batch=True).size_bytes == 0

    def test_a_read_writes_first_what_it_needs(self, log: UnifiedLog) -> None:
        log.tail.append_as_leader(make_batch(), leader_epoch=Epoch(0), now_ms=NOW_MS)
        assert take(log.read(Offset(0), bytes_max=9999, end=Offset(1), at_least_one_batch=True))
        assert log.written_end_offset == 1

    def test_sequential_reads_scan_no_headers(self, log: UnifiedLog, monkeypatch: pytest.MonkeyPatch) -> None:
        log.update_config(make_config(segment_bytes=1 << 30))
        fill(log, 300)
        offset, scans = Offset(0), 0
        scan = type(log.active).headers

        def counted(self, position=0):  # type: ignore[no-untyped-def]
            nonlocal scans
            scans += 1
            return scan(self, position)

        monkeypatch.setattr(type(log.active), "headers", counted)
        while offset < log.log_end_offset:
            read = log.read(offset, bytes_max=3000, end=log.log_end_offset, at_least_one_batch=True)
            take(read)
            offset = read.next_offset
        assert scans <= 1, "the first look-up may scan; after that every start is a remembered read end"

    def test_a_range_outlives_the_deletion_of_its_segment(self, tmp_path) -> None:  # type: ignore[no-untyped-def]
        disk = RealDisk()
        log = open_log(disk, directory=str(tmp_path / "orders-0"))
        fill(log, 60)
        read = log.read(Offset(0), bytes_max=500, end=log.log_end_offset, at_least_one_batch=True)
        log.update_high_watermark(log.log_end_offset)
        log.delete_records_before(log.log_end_offset)
        assert retiring.apply_retention(log, NOW_MS) > 1
        for _, path in log.take_removals():
            disk.remove(path)
        assert batch_offsets(take(read))[0] == (0, 1)
        log.close()
        disk.close()


class TestRoll:
    def test_by_size(self, log: UnifiedLog) -> None:
        fill(log, 60)
        assert log.segment_count > 2
        assert all(segment.size_bytes <= 4000 for segment in log.segments)
        assert [base for base, _ in batch_offsets(content(log))] == list(range(0, 120, 2))

    def test_by_record_time(self, disk: MemoryDisk) -> None:
        log = open_log(disk, config=make_config(segment_ms=1000))
        append(log, make_batch(timestamp_ms=NOW_MS - 5000))
        append(log, make_batch(timestamp_ms=NOW_MS - 4000))
        assert log.base_offsets == [0]
        append(log, make_batch(timestamp_ms=NOW_MS - 3999))
        assert log.base_offsets == [0, 2]

    def test_by_a_full_index(self, disk: MemoryDisk) -> None:
        log = open_log(disk, config=make_config(segment_bytes=1 << 30, segment_index_bytes=80, index_interval_bytes=0))
        fill(log, 20)
        assert log.segment_count > 1
        assert all(len(segment.offset_index) <= 10 for segment in log.segments)

    def test_by_an_offset_past_32_bits(self, log: UnifiedLog) -> None:
        append(log)
        wide = bytearray(make_batch(2, offset=1, leader_epoch=Epoch(0)))
        wide[23:27] = (2**31 - 1).to_bytes(4, "big")
        wide[17:21] = crc32c(bytes(wide[21:])).to_bytes(4, "big")
        log.tail.append_as_follower(wide, leader_epoch=Epoch(0))
        assert log.base_offsets == [0, 1]

    def test_jitter_differs_by_segment_and_is_the_same_each_time(self, disk: MemoryDisk) -> None:
        def rolls(jitter: int) -> list[int]:
            log = open_log(MemoryDisk(), config=make_config(segment_ms=1000, segment_jitter_ms=jitter))
            for n in range(200):
                append(log, make_batch(timestamp_ms=NOW_MS - 100_000 + 20 * n))
            return [int(base) for base in log.base_offsets]

        assert rolls(900) == rolls(900) != rolls(0)
        assert len({b - a for a, b in zip(rolls(0), rolls(0)[1:], strict=False)}) == 1


class TestTruncation:
    @pytest.mark.parametrize("target", range(61))
    def test_the_log_is_a_prefix_after_it(self, log: UnifiedLog, target: int) -> None:
        for n in range(30):
            append(log, make_batch(2), epoch=n // 10)
        flush(log)
        whole, segments = content(log), log.base_offsets
        truncating.truncate_to(log, Offset(target))
        kept = target // 2 * 2
        assert log.log_end_offset == log.written_end_offset == kept
        assert log.flushed_end_offset == kept
        assert whole.startswith(content(log)) and len(batch_offsets(content(log))) == kept // 2
        assert log.leader_epochs.entries == tuple((n, 20 * n) for n in range(3) if 20 * n < kept)
        assert log.base_offsets == [base for base in segments if base < max(target, 1)]
        append(log, make_batch(3), epoch=9)
        assert batch_offsets(content(log))[-1] == (kept, kept + 2)

    def test_the_time_index_holds_the_greatest_time_again(self, disk: MemoryDisk) -> None:
        log = open_log(disk, config=make_config(index_interval_bytes=0))
        append(log, make_batch(2, timestamp_ms=10))
        truncating.truncate_to(log, append(log, make_batch(2, timestamp_ms=20)))
        append(log, make_batch(2, timestamp_ms=5))
        assert log.active.time_index.greatest() == log.active.max_timestamp == (11, 1)

    def test_a_truncated_log_opens_as_one_that_was_never_longer(self, disk: MemoryDisk, log: UnifiedLog) -> None:
        fill(log, 60)
        truncating.truncate_to(log, Offset(33))
        append(log, epoch=1)
        log.close()
        again = open_log(disk, is_clean_shutdown=True)
        assert again.log_end_offset == 33 and batch_offsets(content(again))[-1] == (32, 32)

    @pytest.mark.parametrize("target", [8, 30, 50, 75])
    def test_its_files_become_those_of_a_log_that_was_never_longer(self, disk: MemoryDisk, target: int) -> None:
        other = MemoryDisk()
        log, shorter = open_log(disk), open_log(other)
        batches = [make_batch(2, timestamp_ms=NOW_MS + n) for n in range(50)]
        for batch in batches:
            append(log, batch)
        truncating.truncate_to(log, Offset(target))
        for n, batch in enumerate([*batches[: target // 2], *batches[10:25]]):
            append(shorter, batch)
            if n >= target // 2:
                append(log, batch)
        log.close()
        shorter.close()
        names = [name for name in other.names if name.endswith(("log", "index"))]
        assert len(names) >= 3
        for name in names:
            assert disk.read_file(name) == other.read_file(name), name

    def test_a_truncation_is_itself_flushed(self, disk: MemoryDisk, log: UnifiedLog) -> None:
        fill(log, 10)
        flush(log)
        truncating.truncate_to(log, Offset(6))
        assert log.is_dirty
        flush(log)
        inode = disk.durable_names[f"{DIRECTORY}/{0:020d}.log"]
        assert inode.durable == inode.content == content(log) and not log.is_dirty

    def test_a_segment_active_again_is_not_flushed_as_a_rolled_one(self, log: UnifiedLog) -> None:
        fill(log, 60)
        truncating.truncate_to(log, Offset(10))
        assert not [file.path for file in log.dirty_files() if file.path.endswith("index")]

    def test_a_flush_begun_before_a_truncation_does_not_count_past_it(self, log: UnifiedLog) -> None:
        fill(log, 10)
        files, end = log.dirty_files(), log.written_end_offset
        truncating.truncate_to(log, Offset(6))
        fill(log, 10, epoch=1)
        for file in files:
            file.sync()
        log.mark_flushed(end)
        assert log.flushed_end_offset == 6
        flush(log)
        assert log.flushed_end_offset == 26

    def test_a_segment_active_again_is_flushed_again(self, log: UnifiedLog) -> None:
        fill(log, 60)
        files, end = log.dirty_files(), log.written_end_offset
        truncating.truncate_to(log, Offset(10))
        fill(log, 60, epoch=1)
        for file in files:
            file.sync()
        log.mark_flushed(end)
        assert log.flushed_end_offset == 10
        paths = [file.path for file in log.dirty_files()]
        assert f"{DIRECTORY}/{0:020d}.log" in paths and len(paths) == len(set(paths))

    def test_an_empty_epoch_goes_even_when_nothing_else_does(self, log: UnifiedLog) -> None:
        append(log, epoch=1)
        log.tail.assign_epoch_start(Epoch(3), Offset(1))
        truncating.truncate_to(log, Offset(1))
        assert log.latest_epoch == 1

    def test_starting_over_leaves_an_empty_log_at_the_offset(self, disk: MemoryDisk, log: UnifiedLog) -> None:
        fill(log, 60)
        truncating.truncate_fully_and_start_at(log, Offset(500))
        assert (log.log_start_offset, log.log_end_offset, log.written_end_offset, log.high_watermark) == (500,) * 4
        assert (log.size_bytes, log.segment_count, log.latest_epoch) == (0, 1, -1)
        append(log, epoch=2)
        log.close()
        again = open_log(disk, is_clean_shutdown=True, log_start_offset=Offset(500))
        assert (again.log_start_offset, again.log_end_offset) == (500, 501)

    def test_starting_over_counts_as_durable_only_once_it_is_flushed(self, log: UnifiedLog) -> None:
        """A follower that told before what it begins with joined an ISR, and after a power cut it began at 0."""
        fill(log, 3)
        truncating.truncate_fully_and_start_at(log, Offset(2))
        assert (log.flushed_end_offset, log.is_dirty) == (0, True), "its directory is new"
        flush(log)
        assert (log.flushed_end_offset, log.is_dirty) == (2, False)

    def test_starting_over_at_once_counts_where_the_directory_is_durable(
        self, disk: MemoryDisk, log: UnifiedLog
    ) -> None:
        """Who is to lead if need be has promised to hold what was committed: its end may not fall below that on the way."""
        fill(log, 3)
        flush(log)
        truncating.truncate_fully_and_start_at(log, Offset(2))
        assert log.flushed_end_offset == 2
        again = open_log(disk.crash(Random(1)), recovery_point=Offset(2))
        assert (again.log_start_offset, again.log_end_offset) == (2, 2)

    @pytest.mark.parametrize("offset", [1, 2])
    def test_within_the_batch_of_the_log_start_it_leaves_nothing(self, log: UnifiedLog, offset: int) -> None:
        """Of which DeleteRecords has let go of the first records: an epoch may seem to begin there."""
        append(log, make_batch(3))
        append(log)
        log.update_high_watermark(Offset(4))
        log.delete_records_before(Offset(1))
        truncating.truncate_to(log, Offset(offset))
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset, log.size_bytes) == (1, 1, 1, 0)
        assert append(log) == 1

    def test_starting_over_forgets_the_epochs_durably(self, disk: MemoryDisk, log: UnifiedLog) -> None:
        """Else opening takes what the leader wrote in a lower epoch for a torn end, and cuts it though it was flushed."""
        fill(log, 3, epoch=18)
        flush(log)
        log.leader_epochs.save()
        truncating.truncate_fully_and_start_at(log, Offset(500))
        fill(log, 3, epoch=15)
        flush(log)
        again = open_log(disk.crash(Random(1)), log_start_offset=Offset(500))
        assert (again.log_end_offset, again.latest_epoch) == (506, 15)

    def test_a_cut_epoch_does_not_come_back(self, disk: MemoryDisk, log: UnifiedLog) -> None:
        fill(log, 3, epoch=1)
        fill(log, 3, epoch=18)
        flush(log)
        log.leader_epochs.save()
        truncating.truncate_to(log, Offset(6))
        fill(log, 3, epoch=15)
        flush(log)
        again = open_log(disk.crash(Random(1)), recovery_point=Offset(6))
        assert (again.log_end_offset, again.latest_epoch) == (12, 15)

    def test_producers_are_as_if_the_tail_had_never_been(self, log: UnifiedLog) -> None:
        batches = [make_batch(1, producer_id=4, producer_epoch=0, base_sequence=n) for n in range(60)]
        for batch in batches:
            append(log, batch)
        for target, sequence in ((57, 57), (20, 20)):  # within the last five, and far before them
            truncating.truncate_to(log, Offset(target))
            with pytest.raises(OutOfOrderSequence):
                append(log, batches[sequence + 1])
            assert append(log, batches[sequence]) == target
            truncating.truncate_to(log, Offset(target))


class TestTimestamps:
    def test_the_first_record_at_or_after_a_time_is_found(self, log: UnifiedLog) -> None:
        times = [NOW_MS - 50_000 + 100 * n for n in range(200)]
        for n in range(0, 200, 4):
            append(log, make_batch(4, timestamp_ms=times[n]))
        for n in range(50):
            for delta, wanted in ((0, 4 * n), (-50, 4 * n), (2, 4 * n + 2), (4, 4 * n + 4)):
                found = first_at(log, times[4 * n] + delta)
                assert (found and found[0]) == (wanted if wanted < 200 else None)
        assert of_greatest_time(log) == (199, times[196] + 3)
        assert first_at(log, times[196] + 4) is None

    @given(st.lists(st.integers(0, 60), min_size=1, max_size=60), st.integers(0, 61))
    @settings(max_examples=150, deadline=None)
    def test_unordered_times_are_found_as_by_a_scan(self, times: list[int], asked: int) -> None:
        log = open_log(MemoryDisk(), config=make_config(segment_bytes=700, index_interval_bytes=0))
        for time in times:
            append(log, make_batch(timestamp_ms=time))
        wanted = next(((n, time) for n, time in enumerate(times) if time >= asked), None)
        assert first_at(log, asked) == wanted
        assert of_greatest_time(log) == (times.index(max(times)), max(times))

    @given(st.lists(st.lists(st.integers(-1, 60), min_size=1, max_size=3), min_size=1, max_size=30), st.integers(0, 60))
    @settings(max_examples=150, deadline=None)
    def test_the_greatest_time_is_that_of_what_was_not_deleted(self, batches: list[list[int]], start: int) -> None:
        log = open_log(MemoryDisk(), config=make_config(segment_bytes=700, index_interval_bytes=100))
        for times in batches:
            append(log, build_batch([Record(n, time, b"k", b"v" * 50) for n, time in enumerate(times)]))
        log.update_high_watermark(log.log_end_offset)
        log.delete_records_before(Offset(min(start, log.log_end_offset)))
        left = list(enumerate(time for times in batches for time in times))[log.log_start_offset :]
        greatest = max((time for _, time in left), default=-1)
        wanted = next((each for each in left if each[1] == greatest), None) if greatest >= 0 else None
        assert of_greatest_time(log) == wanted

    def test_a_deleted_start_is_not_found(self, log: UnifiedLog) -> None:
        fill(log, 3)
        log.update_high_watermark(log.log_end_offset)
        log.delete_records_before(Offset(3))
        assert first_at(log, 0) == (3, NOW_MS + 1)


class TestDurability:
    def test_a_new_log_flushes_its_names_first(self, disk: MemoryDisk) -> None:
        log = open_log(disk, topic_id=Uuid(b"t" * 16))
        append(log)
        paths = [file.path for file in log.dirty_files()]
        files = {f"{DIRECTORY}/{name}" for name in (f"{0:020d}.log", "partition.metadata", "topic-id.witness")}
        assert {"data", DIRECTORY, *files} == set(paths)
        log.mark_flushed(log.written_end_offset)
        append(log)
        assert [file.path for file in log.dirty_files()] == [f"{DIRECTORY}/{0:020d}.log"]

    def test_a_rolled_segment_is_flushed_with_its_indexes(self, log: UnifiedLog) -> None:
        fill(log, 15)
        flush(log)
        while log.segment_count == 1:
            append(log)
        names = {file.path.removeprefix(f"{DIRECTORY}/") for file in log.dirty_files()}
        zero, next_base = f"{0:020d}", f"{log.base_offsets[1]:020d}"
        assert {
            f"{zero}.log",
            f"{zero}.index",
            f"{zero}.timeindex",
            f"{next_base}.log",
            f"{next_base}.snapshot",
        } <= names
        assert DIRECTORY in names, "the new names"

    def test_at_most_the_newest_segments_name_may_be_lost(self, disk: MemoryDisk, log: UnifiedLog) -> None:
        while log.segment_count < 5:
            append(log)
            names = [f"{DIRECTORY}/{base:020d}.log" for base in log.base_offsets]
            assert all(name in disk.durable_names for name in names[:-1])

    def test_files_of_a_flush_that_never_came_back_are_asked_for_again(self, log: UnifiedLog) -> None:
        fill(log, 60)
        first = {file.path for file in log.dirty_files()}
        assert first <= {file.path for file in log.dirty_files()}

    def test_a_failed_write_stops_the_log_for_good(self, disk: MemoryDisk, log: UnifiedLog) -> None:
        append(log)
        log.tail.append_as_leader(make_batch(), leader_epoch=Epoch(0), now_ms=NOW_MS)
        disk.fail_on = lambda operation, path: operation == "append"
        with pytest.raises(StorageFailed):
            log.tail.write_pending()
        disk.fail_on = lambda operation, path: False
        for _ in range(2):
            with pytest.raises(StorageFailed):
                log.tail.append_as_leader(make_batch(), leader_epoch=Epoch(0), now_ms=NOW_MS)
        with pytest.raises(StorageFailed):
            log.tail.write_pending()
        assert log.written_end_offset == 1
        assert take(log.read(Offset(0), bytes_max=999, end=Offset(1), at_least_one_batch=True))

    def test_a_segment_that_cannot_be_read_at_the_first_append_fails_the_storage(
        self, disk: MemoryDisk, log: UnifiedLog
    ) -> None:
        """When its records begin is not kept over a restart. Seed 133673529: the producer was told of a bug of ours."""
        append(log)
        log.close()
        again = open_log(disk, is_clean_shutdown=True)
        disk.fail_on = lambda operation, path: operation == "read"
        with pytest.raises(StorageFailed):
            again.tail.append_as_leader(make_batch(), leader_epoch=Epoch(0), now_ms=NOW_MS)

    def test_nor_does_a_follower_go_on_from_it(self, disk: MemoryDisk, log: UnifiedLog) -> None:
        append(log)
        log.close()
        again = open_log(disk, is_clean_shutdown=True)
        disk.fail_on = lambda operation, path: operation == "read"
        with pytest.raises(StorageFailed):
            again.tail.append_as_follower(make_batch(offset=1, leader_epoch=Epoch(0)), leader_epoch=Epoch(0))
        assert again.is_failed

    def test_a_flush_for_which_no_file_can_be_opened_fails_the_storage(
        self, disk: MemoryDisk, log: UnifiedLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The round never began, and its other logs were never flushed again."""

        def fail(path: Any) -> Any:
            raise OSError(5, "Input/output error", path)

        append(log)
        monkeypatch.setattr(disk, "directory", fail)
        with pytest.raises(StorageFailed):
            log.dirty_files()
        assert log.is_failed

    def test_so_does_one_of_a_search_by_time(self, disk: MemoryDisk, log: UnifiedLog) -> None:
        fill(log, 20)
        disk.fail_on = lambda operation, path: operation == "read" and path.endswith(".log")
        with pytest.raises(StorageFailed):
            first_at(log, NOW_MS)
        assert log.is_failed

    def test_so_does_any_of_a_search_for_the_greatest_time(self) -> None:
        for failing in range(100):
            disk, reads = MemoryDisk(), itertools.count()
            log = open_log(disk)
            append(log, make_batch(timestamp_ms=NOW_MS + 9))
            fill(log, 3)
            log.update_high_watermark(log.log_end_offset)
            log.delete_records_before(Offset(2))

            def is_nth_read(operation: str, path: str, reads: Iterator[int] = reads, nth: int = failing) -> bool:
                return operation == "read" and next(reads) == nth

            disk.fail_on = is_nth_read
            try:
                assert of_greatest_time(log) == (2, NOW_MS + 1)
                break
            except StorageFailed:
                assert log.is_failed
        assert failing > 1

    def test_a_read_error_fails_the_storage(self, disk: MemoryDisk, log: UnifiedLog) -> None:
        fill(log, 20)
        log.active.boundaries.clear()
        disk.fail_on = lambda operation, path: operation == "read"
        with pytest.raises(StorageFailed):
            log.read(Offset(11), bytes_max=300, end=log.log_end_offset, at_least_one_batch=True)

    def test_every_file_is_let_go(self, disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch) -> None:
        opened: list[Any] = []

        def counted(make: Any) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                opened.append(make(*args, **kwargs))
                return opened[-1]

            return call

        for name in ("open", "directory"):
            monkeypatch.setattr(disk, name, counted(getattr(disk, name)))
        log = open_log(disk, topic_id=Uuid(b"t" * 16))
        for round_number in range(4):
            fill(log, 40)
            flush(log)
            first_at(log, 0)
            log.update_high_watermark(log.log_end_offset)
            if round_number == 2:
                log.delete_records_before(Offset(100))
                retiring.apply_retention(log, NOW_MS)
                truncating.truncate_to(log, Offset(log.log_end_offset - 50))
        assert sum(file.holders for file in opened) <= 3 * log.segment_count
        log.close()
        assert [file.path for file in opened if file.holders] == []


def test_a_directory_of_another_topic_is_refused(disk: MemoryDisk) -> None:
    log = open_log(disk, topic_id=Uuid(b"a" * 16))
    log.close()
    with pytest.raises(InconsistentTopicId):
        open_log(disk, topic_id=Uuid(b"b" * 16))
    assert open_log(disk).topic_id == Uuid(b"a" * 16)


def test_the_topic_id_of_a_killed_process_is_durable_after_a_clean_stop(disk: MemoryDisk) -> None:
    fill(open_log(disk, topic_id=Uuid(b"a" * 16)), 3)
    disk.make_names_durable(DIRECTORY)
    log = open_log(disk)  # after a kill: what was not flushed is in the page cache still
    log.close()
    for seed in range(5):
        assert open_log(disk.crash(Random(seed))).topic_id == Uuid(b"a" * 16)


@pytest.mark.attack("A2", "a topic's owner cannot make look-ups long")
def test_an_owner_of_a_topic_cannot_make_look_ups_long() -> None:
    """Between two index entries the headers are walked over on the loop: with one entry in a gigabyte a fetch took it for seconds."""
    log = open_log(MemoryDisk(), config=make_config(segment_bytes=1 << 20, index_interval_bytes=2**31 - 1))
    for _ in range(700):
        append(log, make_batch(value=b"v" * 300))
    entries = log.active.offset_index
    positions = [entries.position_at_or_before(Offset(offset)) for offset in range(0, 700, 20)]
    gaps = [after - before for before, after in itertools.pairwise([0, *positions, log.active.size_bytes])]
    assert len(set(positions)) >= 4
    assert max(gaps) <= INDEX_INTERVAL_BYTES_MAX + 20 * 400


@pytest.mark.parametrize("has_directory", [False, True])
def test_a_log_that_starts_over_counts_only_once_its_topic_id_is_durable(disk: MemoryDisk, has_directory: bool) -> None:
    """has_directory: a power cut has left the directory alone, of a log that was made and never flushed."""
    if has_directory:
        disk.make_directory(DIRECTORY)
    topic_id = Uuid(b"t" * 16)
    log = open_log(disk, topic_id=topic_id)
    truncating.truncate_fully_and_start_at(log, Offset(2))
    assert (log.log_end_offset, log.flushed_end_offset) == (2, 0)
    flush(log)
    assert log.flushed_end_offset == 2
    again = open_log(disk.crash(Random(1)), topic_id=topic_id, log_start_offset=Offset(2))
    assert again.log_end_offset == 2
