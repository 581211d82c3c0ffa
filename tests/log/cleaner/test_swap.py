"""The swap of rewritten segments into a log: whole or not at all, whatever step a crash or a truncation falls into."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from barnabas_log.cleaner.rewrite import Result, rewrite
from barnabas_log.cleaner.sealed import SealedSegments, is_unchanged, last_batches, replace_segments, sealed_segments
from barnabas_log.cleaner.swap import CLEANING_DIRECTORY, OutputCheck, PendingSwap, UnsoundOutput
from barnabas_log.config import CleanupPolicy
from barnabas_log.errors import InvalidBatch
from barnabas_log.memory_disk import MemoryDisk
from barnabas_log.recovery.scrub import CheckFacts, SegmentCheck
from barnabas_log.tail import truncating
from barnabas_log.tail.log_tail import GAP_REFUSALS
from barnabas_log.tail.retiring import apply_retention
from barnabas_log.unified_log import UnifiedLog
from barnabas_wire.kafka.ids import Epoch, Offset
from barnabas_wire.records.batch import Record, build_batch, read_header
from tests.log.cleaner.logs_to_clean import DAY_MS, CompactedLog, Row, rows_of
from tests.support.logs import DIRECTORY, NOW_MS, append, content, flush, make_config, open_log

RUN = f"{DIRECTORY}/{CLEANING_DIRECTORY}/1"
COMPACTED = make_config(cleanup_policy=CleanupPolicy.COMPACT)


class PowerCut(Exception):
    """Raised by a disk in the middle of a swap."""


class CuttableDisk(MemoryDisk):
    """A MemoryDisk whose power is cut before the n-th change of a name, or flush of names."""

    def __init__(self) -> None:
        super().__init__()
        self.changes_left = -1

    def _count(self) -> None:
        if self.changes_left == 0:
            raise PowerCut
        self.changes_left -= 1

    def rename(self, source: Any, target: Any) -> None:
        self._count()
        super().rename(source, target)

    def remove(self, path: Any) -> None:
        self._count()
        super().remove(path)

    def sync_directory(self, path: Any) -> None:
        self._count()
        super().sync_directory(path)

    def write_file_atomically(self, path: Any, data: bytes) -> None:
        self._count()
        super().write_file_atomically(path, data)


def written_log(disk: MemoryDisk, *, keys: int = 7, batches: int = 60) -> UnifiedLog:
    """Several small segments, all flushed and committed."""
    log = open_log(disk, config=COMPACTED)
    for n in range(batches):
        records = [
            Record(i, NOW_MS + n, b"key-%d" % (n if n % 10 == i else -((n * 3 + i) % keys)), b"%d-%d" % (n, i) * 20)
            for i in range(3)
        ]
        append(log, build_batch(records, producer_id=n % 2, producer_epoch=0, base_sequence=n // 2 * 3))
    flush(log)
    log.update_high_watermark(log.log_end_offset)
    assert log.segment_count > 4
    return log


def cleaned(
    disk: MemoryDisk, log: UnifiedLog, *, segment_bytes: int = 4000, **changes: Any
) -> tuple[SealedSegments, Result]:
    """A run's outputs, not swapped in."""
    sealed = sealed_segments(log, log.log_end_offset)
    disk.make_directory(RUN)
    settings: dict[str, Any] = {
        "directory": log.directory,
        "run_directory": RUN,
        "sources": sealed.sources,
        "producers": last_batches(log),
        "segment_bytes": segment_bytes,
        "first_dirty": 0,
    }
    job = CompactedLog([], disk=disk).job(**{**settings, **changes})
    work = rewrite(disk, job)
    try:
        while True:
            next(work)
    except StopIteration as done:
        return sealed, done.value


def swap_all(disk: MemoryDisk, log: UnifiedLog, sealed: SealedSegments, result: Result) -> None:
    for output in result.outputs:
        check = OutputCheck(disk, RUN, output, log.leader_epochs.entries)
        while not check.is_done:
            check.step()
        swap = PendingSwap(disk, log.directory, RUN, output)
        log.pending_swap = swap
        assert swap.prepare() and is_unchanged(log, sealed, output)
        replace_segments(log, sealed.replaced_by(output), swap)
        swap.settle_now()
        log.pending_swap = None


def last_of_each(rows: list[Row]) -> dict[bytes | None, Row]:
    return {row.key: row for row in rows}


def reopened(disk: MemoryDisk, end: Offset, **changes: Any) -> UnifiedLog:
    return open_log(
        disk, config=COMPACTED, high_watermark=end, may_have_gaps=True, **{"recovery_point": end, **changes}
    )


def test_a_swapped_log_is_smaller_reads_on_from_any_offset_and_opens_again() -> None:
    disk = MemoryDisk()
    log = written_log(disk)
    before, size = rows_of(content(log)), log.size_bytes
    sealed, result = cleaned(disk, log)
    swap_all(disk, log, sealed, result)
    after = rows_of(content(log))
    assert last_of_each(after) == last_of_each(before) and log.size_bytes < size / 2
    assert set(after) <= set(before)
    for offset in range(log.log_end_offset):
        read = log.read(Offset(offset), bytes_max=1, end=log.high_watermark, at_least_one_batch=True)
        for part in read.parts:
            part.file.release()
        assert read.size_bytes and read.next_offset > offset, f"a reader is stuck at {offset}"
    end, bases = log.log_end_offset, log.base_offsets
    stale = reopened(disk, end, recovery_point=Offset(0))
    assert stale.log_end_offset == end and rows_of(content(stale)) == after, "also where every batch is proved"
    again = reopened(disk, end)
    assert again.log_end_offset == end and again.base_offsets == bases and not again.damage
    assert rows_of(content(again)) == after
    assert {each.producer_id: each.last.last_sequence for each in again.producers} == {
        each.producer_id: each.last.last_sequence for each in log.producers
    }


def test_what_waits_to_be_removed_is_not_overwritten_by_what_the_next_run_retires() -> None:
    """Giving a large file's blocks back takes time, which the loop has not: whoever removes it later does that in a disk thread."""
    disk = MemoryDisk()
    log = written_log(disk)
    waiting: list[str] = []
    for _ in range(3):
        for n in range(20):
            append(log, build_batch([Record(Offset(0), NOW_MS + n, b"key-0", b"v" * 300)]))
        log.tail.roll(NOW_MS)
        flush(log)
        log.update_high_watermark(log.log_end_offset)
        swap_all(disk, log, *cleaned(disk, log))
        waiting += [path for _, path in log.take_removals()]
    assert len(waiting) == len(set(waiting)) and all(disk.exists(path) for path in waiting)
    assert sum(path.startswith(f"{DIRECTORY}/{0:020d}.log.") for path in waiting) == 3
    reopened(disk, log.log_end_offset)
    assert not any(disk.exists(path) for path in waiting), "a start removes what a stop left"


@pytest.mark.parametrize("seed", range(60))
def test_a_power_cut_at_any_step_leaves_each_segment_old_or_new(seed: int) -> None:
    random = Random(seed)
    disk = CuttableDisk()
    log = written_log(disk)
    before, end = rows_of(content(log)), log.log_end_offset
    sealed, result = cleaned(disk, log, segment_bytes=random.choice([4000, 12_000]))
    disk.make_names_durable(log.directory)
    disk.changes_left = seed
    try:
        swap_all(disk, log, sealed, result)
    except PowerCut:
        pass
    else:
        assert seed > 25, "the steps end somewhere"
    after = disk.crash(random)
    again = reopened(after, end, recovery_point=Offset(random.choice([0, 50, end])))
    assert again.log_end_offset == end and not again.damage
    rows = rows_of(content(again))
    assert last_of_each(rows) == last_of_each(before), f"seed {seed} lost a value"
    assert set(rows) <= set(before) and [row.offset for row in rows] == sorted({row.offset for row in rows})
    left = [
        name for name in after.list_directory(DIRECTORY) if "swap" in name or "cleaned" in name or "cleaning" in name
    ]
    assert not left, "nothing of a swap outlives a start"
    assert reopened(after.crash(random), end).log_end_offset == end, "a second crash changes nothing"


def truncated(log: UnifiedLog, end: Offset) -> Offset:
    truncating.truncate_to(log, Offset(20))
    return log.log_end_offset


def begun_anew(log: UnifiedLog, end: Offset) -> Offset:
    truncating.truncate_fully_and_start_at(log, Offset(200))
    return Offset(200)


def retired(log: UnifiedLog, end: Offset) -> Offset:
    log.update_config(make_config(retention_ms=1, cleanup_policy=CleanupPolicy.COMPACT_AND_DELETE))
    assert apply_retention(log, NOW_MS + DAY_MS)
    return end


@pytest.mark.parametrize("change", [truncated, begun_anew, retired])
@pytest.mark.parametrize("step", ["prepared", "in place"])
@pytest.mark.parametrize("seed", range(5))
def test_what_is_cut_off_or_retired_amid_a_swap_stays_away(
    change: Callable[[UnifiedLog, Offset], Offset], step: str, seed: int
) -> None:
    disk = MemoryDisk()
    log = written_log(disk)
    sealed, result = cleaned(disk, log, segment_bytes=12_000)
    output = result.outputs[0]
    swap = PendingSwap(disk, log.directory, RUN, output)
    log.pending_swap = swap
    assert swap.prepare()
    if step == "in place":
        replace_segments(log, sealed.replaced_by(output), swap)
    end = change(log, log.log_end_offset)
    assert log.pending_swap is None and (step == "in place" or not is_unchanged(log, sealed, output))
    later = build_batch([Record(n, NOW_MS, b"new", b"new" * 200) for n in range(4)])
    for _ in range(30):
        append(log, later, epoch=3)
    flush(log)
    rows, start, log_end = rows_of(content(log)), log.log_start_offset, log.log_end_offset
    assert [row.key for row in rows if row.offset >= end] == [b"new"] * 120
    after = disk.crash(Random(seed))
    again = reopened(after, log_end, log_start_offset=start)
    assert again.log_end_offset == log_end and rows_of(content(again)) == rows


def test_a_truncation_into_a_gap_ends_the_log_before_it() -> None:
    disk = MemoryDisk()
    log = written_log(disk)
    swap_all(disk, log, *cleaned(disk, log, segment_bytes=50_000))
    rows = rows_of(content(log))
    bases = [row.offset for row in rows]
    gap = next(offset for offset in range(bases[0] + 1, 150) if not {offset, offset - 1} & set(bases))
    truncating.truncate_to(log, Offset(gap))
    assert log.log_end_offset <= gap
    flush(log)
    assert rows_of(content(log)) == [row for row in rows if row.offset < log.log_end_offset]
    assert reopened(disk, log.log_end_offset).log_end_offset == log.log_end_offset
    append(log, epoch=5)


def test_an_output_that_is_damaged_or_of_another_epoch_is_not_taken() -> None:
    disk = MemoryDisk()
    log = written_log(disk)
    _, result = cleaned(disk, log)
    output = result.outputs[0]
    path = f"{RUN}/{output.base_offset:020d}.log"
    with pytest.raises(UnsoundOutput):
        OutputCheck(disk, RUN, output, [(Epoch(9), Offset(0))]).step()
    disk.open(path).overwrite(50, b"\xff\xff")
    with pytest.raises(UnsoundOutput, match="checksum"):
        OutputCheck(disk, RUN, output, log.leader_epochs.entries).step()
    disk.open(path).truncate(60)
    with pytest.raises(UnsoundOutput, match="60 bytes instead of"):
        OutputCheck(disk, RUN, output, log.leader_epochs.entries).step()


def fetch_all(log: UnifiedLog, follower: UnifiedLog) -> None:
    while follower.log_end_offset < log.log_end_offset:
        read = log.read(follower.log_end_offset, bytes_max=900, end=log.log_end_offset, at_least_one_batch=True)
        data = b"".join(part.file.read(part.position, part.size) for part in read.parts)
        for part in read.parts:
            part.file.release()
        follower.tail.append_as_follower(data, leader_epoch=Epoch(0))


def test_a_follower_takes_a_compacted_log_and_holds_the_same_bytes() -> None:
    disk, own = MemoryDisk(), MemoryDisk()
    log = written_log(disk)
    swap_all(disk, log, *cleaned(disk, log))
    small = make_config(segment_bytes=1500, cleanup_policy=CleanupPolicy.COMPACT)
    follower = open_log(own, config=small)
    fetch_all(log, follower)
    assert content(follower) == content(log) and follower.segment_count > 1
    flush(follower)
    end = follower.log_end_offset
    again = open_log(own, config=small, high_watermark=end, may_have_gaps=True)
    assert content(again) == content(log) and again.log_end_offset == end and not again.damage
    for offset in range(end):
        assert again.read(Offset(offset), bytes_max=1, end=end, at_least_one_batch=True).size_bytes


def test_a_gap_in_a_log_that_is_not_compacted_is_refused_at_first() -> None:
    """Rot can raise an offset: the leader is checked when we refuse. What it sends again and again, compaction left there once."""
    disk = MemoryDisk()
    log = written_log(disk)
    swap_all(disk, log, *cleaned(disk, log))
    follower = open_log(MemoryDisk())
    for _ in range(GAP_REFUSALS):
        with pytest.raises(InvalidBatch):
            fetch_all(log, follower)
    fetch_all(log, follower)
    assert content(follower) == content(log) and follower.may_have_gaps


def test_an_offset_that_rot_has_raised_is_no_gap() -> None:
    disk = MemoryDisk()
    log = written_log(disk)
    first = log.base_offsets[0]
    file = disk.open(f"{DIRECTORY}/{first:020d}.log")
    second = read_header(file.read(0, 61)).size_bytes
    raised = int.from_bytes(file.read(second, 8), "big") + 64
    file.overwrite(second, raised.to_bytes(8, "big"))
    follower = open_log(MemoryDisk(), config=COMPACTED)
    with pytest.raises(InvalidBatch):
        follower.tail.append_as_follower(file.read(0, file.size_bytes), leader_epoch=Epoch(0))
    assert follower.log_end_offset == 3
    facts = CheckFacts(first, log.base_offsets[1], file.size_bytes, log.leader_epochs.entries, may_have_gaps=True)
    check = SegmentCheck(facts)
    while not check.is_done:
        check.step(file.read)
    assert [(damage.first_offset, damage.end_offset) for damage in check.damages] == [(3, 6)]
    again = reopened(disk, log.log_end_offset, is_clean_shutdown=False)
    assert again.log_end_offset == log.log_end_offset
