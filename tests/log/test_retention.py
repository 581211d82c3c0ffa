"""Which segments may go, and what a log does about it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_log.config import CleanupPolicy
from barnabas_log.memory_disk import MemoryDisk
from barnabas_log.tail import retiring
from barnabas_log.tail.retention import SegmentFacts, deletable_count
from barnabas_wire.kafka.ids import Offset
from tests.support.logs import (
    DIRECTORY,
    NOW_MS,
    append,
    batch_offsets,
    content,
    flush,
    make_batch,
    make_config,
    open_log,
)


def segments(*facts: tuple[int, int]) -> list[SegmentFacts]:
    """Of (size, largest timestamp), ten offsets each."""
    return [SegmentFacts(Offset(10 * n), Offset(10 * n + 10), size, time) for n, (size, time) in enumerate(facts)]


def count(facts: list[SegmentFacts], **changes: int) -> int:
    settings = {
        "now_ms": 1000,
        "retention_ms": -1,
        "retention_bytes": -1,
        "log_start_offset": 0,
        "high_watermark": 1000,
    }
    return deletable_count(facts, **{**settings, **changes})  # type: ignore[arg-type]


def test_time_stops_at_the_first_young_segment() -> None:
    facts = segments((5, 100), (5, 200), (5, 900), (5, 100))
    assert count(facts, retention_ms=700) == 2
    assert count(facts, retention_ms=800) == 1, "exactly as old as allowed stays"
    assert count(facts, retention_ms=50) == 4, "the active one too"
    assert count(facts) == 0


def test_size_takes_only_whole_segments_above_the_limit() -> None:
    facts = segments((100, 0), (100, 0), (50, 0))
    assert [count(facts, retention_bytes=limit) for limit in (250, 151, 150, 50, 49, 0)] == [0, 0, 1, 2, 2, 3]


def test_what_lies_before_the_start_goes() -> None:
    facts = segments((5, 999), (5, 999), (5, 999))
    assert [count(facts, log_start_offset=start) for start in (0, 9, 10, 25, 30)] == [0, 0, 1, 2, 3]


def test_nothing_past_the_high_watermark_goes() -> None:
    facts = segments((100, 0), (100, 0), (100, 0))
    for high_watermark in range(31):
        gone = count(facts, retention_ms=1, retention_bytes=0, log_start_offset=30, high_watermark=high_watermark)
        assert gone == high_watermark // 10


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 50)), min_size=1, max_size=8),
    st.integers(-1, 50),
    st.integers(-1, 60),
    st.integers(0, 80),
)
@settings(max_examples=300, deadline=None)
def test_what_goes_has_a_reason_and_what_stays_first_has_none(
    facts: list[tuple[int, int]], retention_ms: int, retention_bytes: int, high_watermark: int
) -> None:
    listed = segments(*facts)
    gone = count(
        listed, now_ms=50, retention_ms=retention_ms, retention_bytes=retention_bytes, high_watermark=high_watermark
    )
    total = sum(size for size, _ in facts)

    def has_reason(number: int) -> bool:
        size, time = facts[number]
        left = total - sum(size for size, _ in facts[: number + 1])
        is_old = retention_ms >= 0 and 50 - time > retention_ms
        is_excess = retention_bytes >= 0 and left >= retention_bytes
        return size > 0 and listed[number].end_offset <= high_watermark and (is_old or is_excess)

    assert all(has_reason(number) for number in range(gone))
    assert gone == len(facts) or not has_reason(gone)


def fill(log, batches: int, *, timestamp_ms: int) -> None:  # type: ignore[no-untyped-def]
    for _ in range(batches):
        append(log, make_batch(2, timestamp_ms=timestamp_ms))
    log.update_high_watermark(log.log_end_offset)


def test_old_segments_are_renamed_and_then_given_up() -> None:
    disk = MemoryDisk()
    log = open_log(disk, config=make_config(retention_ms=1000, file_delete_delay_ms=70))
    fill(log, 60, timestamp_ms=NOW_MS - 5000)
    fill(log, 10, timestamp_ms=NOW_MS)
    bases, whole = log.base_offsets, content(log)
    gone = retiring.apply_retention(log, NOW_MS)
    assert 0 < gone < len(bases) and log.base_offsets == bases[gone:]
    assert log.log_start_offset == bases[gone] and log.leader_epochs.entries == ((0, bases[gone]),)
    assert whole.endswith(content(log))
    deleted = {name for name in disk.list_directory(DIRECTORY) if name.endswith(".deleted")}
    assert {name[:20] for name in deleted} == {f"{base:020d}" for base in bases[:gone]}
    removals = log.take_removals()
    assert {path for _, path in removals} == {f"{DIRECTORY}/{name}" for name in deleted}
    assert {delay for delay, _ in removals} == {70}
    assert log.take_removals() == [] and retiring.apply_retention(log, NOW_MS) == 0


def test_with_a_clock_that_is_not_believed_nothing_goes_by_time_and_all_else_as_ever() -> None:
    log = open_log(MemoryDisk(), config=make_config(retention_ms=1000))
    fill(log, 60, timestamp_ms=NOW_MS)
    later_ms = NOW_MS + 20 * 86_400_000
    assert retiring.apply_retention(log, later_ms, judges_age=False) == 0 and log.tail.now_ms < later_ms
    log.delete_records_before(log.base_offsets[2])
    assert retiring.apply_retention(log, later_ms, judges_age=False) > 0, "DeleteRecords"
    log.tail.config = make_config(retention_ms=1000, retention_bytes=0)
    assert retiring.apply_retention(log, later_ms, judges_age=False) > 0, "size"
    small = open_log(MemoryDisk(), config=make_config(retention_ms=1000))
    fill(small, 60, timestamp_ms=NOW_MS)
    assert retiring.apply_retention(small, later_ms) > 0, "the same log, believed"


def test_a_wholly_expired_log_goes_on_empty() -> None:
    log = open_log(MemoryDisk(), config=make_config(retention_ms=1000))
    fill(log, 30, timestamp_ms=NOW_MS - 5000)
    assert retiring.apply_retention(log, NOW_MS) == 1
    assert log.is_retention_owed, "the name of the segment that the log goes on in is not durable"
    flush(log)
    assert retiring.apply_retention(log, NOW_MS) == 1
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes, log.segment_count) == (60, 60, 0, 1)
    assert append(log) == 60
    assert batch_offsets(content(log)) == [(60, 60)]


def test_unreplicated_data_stays_however_old() -> None:
    log = open_log(MemoryDisk(), config=make_config(retention_ms=1, retention_bytes=0))
    fill(log, 60, timestamp_ms=5)
    log.high_watermark = Offset(50)
    retiring.apply_retention(log, NOW_MS)
    assert log.log_start_offset <= 50 < log.base_offsets[1]


def test_undated_segments_count_from_their_last_append() -> None:
    log = open_log(MemoryDisk(), config=make_config(retention_ms=1000))
    for minute in range(3):
        append(log, make_batch(timestamp_ms=-1), now_ms=NOW_MS + minute * 60_000)
        log.update_high_watermark(log.log_end_offset)
        assert retiring.apply_retention(log, NOW_MS + minute * 60_000 + 500) == 0
    assert retiring.apply_retention(log, NOW_MS + 121_500) == 0
    assert retiring.apply_retention(log, NOW_MS + 121_501) == 0
    flush(log)
    assert retiring.apply_retention(log, NOW_MS + 121_501) == 1


def test_a_compacted_log_is_never_shortened_by_time_or_size() -> None:
    config = make_config(retention_ms=1, retention_bytes=0, cleanup_policy=CleanupPolicy.COMPACT)
    log = open_log(MemoryDisk(), config=config)
    fill(log, 60, timestamp_ms=5)
    assert retiring.apply_retention(log, NOW_MS) == 0 and log.log_start_offset == 0


def test_what_expires_after_a_crash_leaves_its_producers_known() -> None:
    disk = MemoryDisk()
    config = make_config(segment_bytes=300, retention_bytes=1)
    log = open_log(disk, config=config)
    for sequence in range(4):
        append(log, make_batch(producer_id=7, producer_epoch=0, base_sequence=sequence))
    log.tail.roll(NOW_MS, is_due=True)
    flush(log)
    end = log.log_end_offset
    for _ in range(2):
        log.release_files()
        log = open_log(
            disk, config=config, recovery_point=end, log_start_offset=log.log_start_offset, high_watermark=end
        )
        log.delete_records_before(end)
        for _ in range(2):  # the newest name that is durable stays until the next round
            flush(log)
            retiring.apply_retention(log, NOW_MS)
        flush(log)
    entry = log.producers.get(7)
    assert entry is not None and entry.last.last_sequence == 3
    log.release_files()
