"""Logs as Apache Kafka's cleaner leaves them: segments that end before the next one begins, an empty one, batches that are headers
alone. They open, read, follow, truncate, and are cleaned again; and a tail that the disk lost is still damage."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas_log.config import CleanupPolicy
from barnabas_log.memory_disk import MemoryDisk
from barnabas_log.recovery import repair
from barnabas_log.recovery.scrub import DamagedRange, SegmentCheck
from barnabas_log.tail import truncating
from barnabas_log.tail.segment import LogSegment
from barnabas_log.unified_log import UnifiedLog
from barnabas_wire.kafka.ids import Epoch, Offset
from barnabas_wire.records.batch import Record, build_batch, empty_batch, iterate_batches, read_header
from tests.log.cleaner.logs_to_clean import CompactedLog, rows_of
from tests.log.cleaner.test_swap import RUN, cleaned, last_of_each, swap_all, written_log
from tests.support.logs import DIRECTORY, NOW_MS, append, batch_offsets, content, flush, make_config, open_log, take

COMPACTED = make_config(cleanup_policy=CleanupPolicy.COMPACT)
END = Offset(70)


def batch(offset: int, *keys: str, epoch: int = 1) -> bytes:
    """A batch with a record per key; "" leaves that offset out."""
    records = [
        Record(Offset(offset + n), NOW_MS + offset, key.encode(), b"%d" % (offset + n) * 30)
        for n, key in enumerate(keys)
        if key
    ]
    return build_batch(records, leader_epoch=Epoch(epoch))


KAFKAS: dict[int, bytes] = {
    # ends at 6 of 10, and has a hole at 3
    0: batch(0, "a", "b", "c") + batch(4, "d", "e"),
    # nothing is left of it
    10: b"",
    # begins late, a header alone in it, ends at 31 of 40
    20: batch(23, "f", "g") + empty_batch(Offset(27), Epoch(1)) + batch(28, "h", "i", "j", epoch=2),
    # ends where the next one begins: Kafka keeps the last batch of each round
    40: batch(42, "a", epoch=2) + batch(50, "b", "k", epoch=2),
    52: batch(52, "a", "b", epoch=3) * 1 + b"".join(batch(at, "c", "d", epoch=3) for at in range(54, END, 2)),
}


def kafkas_files(disk: MemoryDisk) -> None:
    disk.make_directory(DIRECTORY)
    for base, data in KAFKAS.items():
        segment = LogSegment.create(disk, DIRECTORY, Offset(base), COMPACTED, now_ms=NOW_MS)
        for _, header in iterate_batches(data):
            segment.add_batch(header.last_offset, header.max_timestamp_ms, header.size_bytes)
        segment.file.append([data])
        segment.finish()
        segment.close()


def opened(disk: MemoryDisk, **changes: Any) -> UnifiedLog:
    settings = {"config": COMPACTED, "recovery_point": END, "high_watermark": END, "is_clean_shutdown": True}
    return open_log(disk, **{**settings, **changes})


def damages(log: UnifiedLog) -> list[DamagedRange]:
    """What a check of every segment finds."""
    found: list[DamagedRange] = []
    for base in log.base_offsets:
        checkable = repair.checkable(log, base)
        if checkable is None:
            continue
        check = SegmentCheck(checkable.facts)
        while not check.is_done:
            check.step(checkable.segment.file.read)
        found += check.damages
    return found


def assert_readable(log: UnifiedLog) -> None:
    """From every offset on there is something, and nothing is left out or comes twice."""
    offsets = [base for base, _ in batch_offsets(b"".join(KAFKAS.values()))]
    for offset in range(END):
        for bytes_max in (1, 1 << 20):
            read = log.read(Offset(offset), bytes_max=bytes_max, end=END, at_least_one_batch=True)
            assert read.size_bytes and read.next_offset > offset, f"a reader is stuck at {offset}"
            (part,) = read.parts
            header = read_header(part.file.read(part.position, part.size))
            part.file.release()
            assert header.last_offset >= offset and header.base_offset in offsets
            assert not any(header.next_offset <= other <= offset for other in offsets), "it begins too early"


@pytest.mark.parametrize("is_clean", [True, False])
def test_what_kafka_compacted_opens_and_reads_from_every_offset(is_clean: bool) -> None:
    disk = MemoryDisk()
    kafkas_files(disk)
    log = opened(disk, is_clean_shutdown=is_clean, may_have_gaps=True)
    assert log.log_end_offset == END and not log.damage and log.segment_count == len(KAFKAS)
    assert content(log) == b"".join(KAFKAS.values())
    assert_readable(log)
    assert not damages(log)


def test_an_unclean_start_that_proves_such_an_end_keeps_what_follows() -> None:
    """The recovery point is in the segment behind it, so both are proved."""
    disk = MemoryDisk()
    kafkas_files(disk)
    log = opened(disk, is_clean_shutdown=False, may_have_gaps=True, recovery_point=Offset(40))
    assert log.log_end_offset == END and not log.damage and not damages(log)
    assert content(log) == b"".join(KAFKAS.values())


def test_a_directory_that_was_copied_in_is_known_to_have_gaps_once_its_topic_is() -> None:
    disk = MemoryDisk()
    kafkas_files(disk)
    log = opened(disk)
    log.tail.has_settings = False
    assert not log.tail.has_gaps
    log.update_config(COMPACTED)
    assert log.tail.has_gaps and not damages(log)
    plain = opened(disk, config=make_config())
    plain.update_config(make_config())
    assert not plain.tail.has_gaps and damages(plain), "a log that was never compacted has lost these tails"


def test_our_cleaner_closes_such_ends_and_keeps_the_last_of_each_key() -> None:
    disk = MemoryDisk()
    kafkas_files(disk)
    log = opened(disk, may_have_gaps=True)
    for n in range(20):
        append(log, batch(0, "a", "b" if n % 2 else "m"), epoch=3)
    log.tail.roll(NOW_MS)
    flush(log)
    log.update_high_watermark(log.log_end_offset)
    before = rows_of(content(log))
    sealed, result = cleaned(disk, log, epochs=log.leader_epochs.entries)
    assert result.end_offset == log.active.base_offset
    swap_all(disk, log, sealed, result)
    after = rows_of(content(log))
    assert last_of_each(after) == last_of_each(before) and set(after) < set(before)
    assert len(after) == len(last_of_each(before))
    assert not damages(log) and all(segment.early_end is None for segment in log.segments)
    headers = {base: list(iterate_batches(disk.read_file(f"{DIRECTORY}/{base:020d}.log"))) for base in log.base_offsets}
    for base, following in zip(log.base_offsets, log.base_offsets[1:], strict=False):
        assert headers[base][-1][1].next_offset == following, f"{base} ends early"
    again = opened(disk, recovery_point=log.log_end_offset, may_have_gaps=True, is_clean_shutdown=False)
    assert rows_of(content(again)) == after and not again.damage and not damages(again)


def test_a_run_per_segment_closes_each_end() -> None:
    disk = MemoryDisk()
    kafkas_files(disk)
    log = opened(disk, may_have_gaps=True)
    sealed, result = cleaned(disk, log, segment_bytes=1, epochs=log.leader_epochs.entries)
    swap_all(disk, log, sealed, result)
    assert log.base_offsets == [0, 10, 40, 52], "the one that has nothing joined the next one"
    fillers = {base: disk.read_file(f"{DIRECTORY}/{base:020d}.log")[-61:] for base in (0, 10)}
    assert fillers == {0: empty_batch(Offset(9), Epoch(1)), 10: empty_batch(Offset(39), Epoch(2))}
    assert not damages(log)
    disk.make_directory(RUN)
    assert not cleaned(disk, log, segment_bytes=1)[1].outputs, "a second run has nothing to do"


def test_a_follower_takes_it_and_ends_each_segment_where_the_next_begins() -> None:
    disk = MemoryDisk()
    kafkas_files(disk)
    log = opened(disk, may_have_gaps=True)
    follower = open_log(MemoryDisk(), config=make_config(segment_bytes=300, cleanup_policy=CleanupPolicy.COMPACT))
    while follower.log_end_offset < END:
        read = log.read(follower.log_end_offset, bytes_max=200, end=END, at_least_one_batch=True)
        follower.tail.append_as_follower(take(read), leader_epoch=Epoch(3))
    assert content(follower) == content(log) and follower.segment_count > 2 and follower.log_end_offset == END
    flush(follower)
    assert not damages(follower)


@pytest.mark.parametrize("offset", [5, 6, 8, 10, 15, 20, 25, 31, 39, 40, 41, 55])
def test_it_may_be_cut_at_any_offset(offset: int) -> None:
    disk = MemoryDisk()
    kafkas_files(disk)
    log = opened(disk, may_have_gaps=True)
    truncating.truncate_to(log, Offset(offset))
    kept = [each for each in rows_of(b"".join(KAFKAS.values())) if each.offset < log.log_end_offset]
    assert log.log_end_offset <= offset and rows_of(content(log)) == kept
    log.update_high_watermark(Offset(0))
    append(log, batch(0, "z"), epoch=4)
    assert log.active.early_end is None and len(rows_of(content(log))) == len(kept) + 1


def test_a_tail_that_the_disk_lost_is_damage_also_in_a_compacted_log() -> None:
    """Whole batches are gone, as where the disk lost a write: of a segment that our cleaner wrote, and of one that was appended."""
    disk = MemoryDisk()
    log = written_log(disk)
    sealed, result = cleaned(disk, log)
    swap_all(disk, log, sealed, result)
    end, bases = log.log_end_offset, log.base_offsets
    rewritten = {output.base_offset for output in result.outputs}
    assert rewritten and len(bases) > 2
    for number, base in enumerate(bases[:-1]):
        path = f"{DIRECTORY}/{base:020d}.log"
        whole = disk.read_file(path)
        last, header = list(iterate_batches(whole))[-1]
        indexes = {suffix: disk.read_file(f"{DIRECTORY}/{base:020d}{suffix}") for suffix in (".index", ".timeindex")}
        file = disk.open(path)
        file.truncate(last)
        for is_clean in (True, False):
            for suffix, raw in indexes.items():
                disk.write_file_atomically(f"{DIRECTORY}/{base:020d}{suffix}", raw)
            again = open_log(
                disk,
                config=COMPACTED,
                recovery_point=end,
                high_watermark=end,
                may_have_gaps=True,
                is_clean_shutdown=is_clean,
            )
            found = [*again.damage, *damages(again)]
            assert found and found[0].end_offset == bases[number + 1], f"{base} passes for compacted"
            assert found[0].first_offset <= header.base_offset
        file.append([whole[last:]])
        file.close()


def test_a_lost_tail_is_damage_also_where_times_fall() -> None:
    """Then the time index does not name the last batch: what our cleaner writes names it in the offset index."""
    disk = MemoryDisk()
    log = open_log(disk, config=COMPACTED)
    for n in range(40):
        append(log, build_batch([Record(Offset(0), NOW_MS - n, b"key-%d" % (n % 25), b"v" * 60)]))
    flush(log)
    log.update_high_watermark(log.log_end_offset)
    sealed, result = cleaned(disk, log, index_interval_bytes=1 << 20)
    assert result.outputs
    swap_all(disk, log, sealed, result)
    path = f"{DIRECTORY}/{0:020d}.log"
    last = list(iterate_batches(disk.read_file(path)))[-1][0]
    disk.open(path).truncate(last)
    again = open_log(
        disk, config=COMPACTED, recovery_point=log.log_end_offset, may_have_gaps=True, is_clean_shutdown=True
    )
    assert again.damage or damages(again)


def test_the_end_of_a_clean_log_that_kafka_wrote_is_not_cleaned_for_ever() -> None:
    disk = MemoryDisk()
    kafkas_files(disk)
    log = CompactedLog([], disk=disk)
    opened_log = opened(disk, may_have_gaps=True)
    _, result = cleaned(disk, opened_log)
    assert result.end_offset == opened_log.active.base_offset and log.clean == 0
