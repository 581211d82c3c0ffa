"""What a check of a segment finds: every flipped bit, nothing in sound bytes, and how a log serves what is left."""

from __future__ import annotations

import random

import pytest

from barnabas_log.memory_disk import MemoryDisk
from barnabas_log.recovery import repair
from barnabas_log.recovery.scrub import (
    CHUNK_BYTES,
    CheckFacts,
    DamagedRange,
    SegmentCheck,
    find_sound_batch,
    newest_in_time_index,
    pause_s,
    plan_pass,
)
from barnabas_log.tail import retiring, truncating
from barnabas_log.unified_log import UnifiedLog
from barnabas_wire.kafka.errors import InvariantViolated
from barnabas_wire.kafka.ids import Epoch, Offset
from barnabas_wire.records.batch import CorruptBatch, iterate_batches
from tests.support.logs import NOW_MS, append, batch_offsets, content, flush, make_batch, make_config, open_log, take


def check(log: UnifiedLog, base_offset: int) -> SegmentCheck:
    """All of a segment."""
    checkable = repair.checkable(log, base_offset)
    assert checkable is not None
    file = checkable.segment.file
    found = SegmentCheck(checkable.facts)
    while not found.is_done:
        found.step(file.read)
    return found


def filled(disk: MemoryDisk, *, batches: int = 8, segment_bytes: int = 4000, value: bytes = b"v" * 50) -> UnifiedLog:
    log = open_log(disk, config=make_config(segment_bytes=segment_bytes))
    for number in range(batches):
        append(log, make_batch(1 + number % 3, value=value), epoch=number // 3)
    flush(log)
    return log


def test_every_flipped_bit_is_found_and_nothing_else_is_given_up() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    data = disk.names[log.segments[0].file.path].content
    whole = bytes(data)
    batches = list(iterate_batches(whole))
    for position in range(len(whole)):
        for bit in (position % 8, 7):
            data[position] ^= 1 << bit
            (damage,) = check(log, 0).damages
            (hit,) = [header for at, header in batches if at <= position < at + header.size_bytes]
            assert damage.first_offset == hit.base_offset and damage.end_offset == hit.next_offset, position
            assert damage.position <= position < damage.stop
            data[position] ^= 1 << bit
    assert bytes(data) == whole and not check(log, 0).damages


def test_zeroed_and_missing_bytes_are_one_range() -> None:
    rng = random.Random(4)
    disk = MemoryDisk()
    log = filled(disk, batches=12)
    data = disk.names[log.segments[0].file.path].content
    whole = bytes(data)
    end = log.log_end_offset
    for _ in range(200):
        start = rng.randrange(len(whole))
        stop = min(len(whole), start + rng.randrange(1, 600))
        data[start:stop] = bytes(stop - start)
        damages = check(log, 0).damages
        lost = {
            header.base_offset
            for at, header in iterate_batches(whole)
            if data[at : at + header.size_bytes] != whole[at : at + header.size_bytes]
        }
        assert {d for damage in damages for d in range(damage.first_offset, damage.end_offset)} >= lost
        data[:] = whole
        del data[start:]
        (damage,) = check(log, 0).damages
        assert damage.end_offset == end and damage.stop == start
        data[:] = whole


def test_a_batch_larger_than_a_chunk_is_checked_and_a_length_is_not_believed() -> None:
    disk = MemoryDisk()
    log = filled(disk, batches=3, segment_bytes=1 << 24, value=b"v" * (CHUNK_BYTES + 1000))
    data = disk.names[log.segments[0].file.path].content
    found = check(log, 0)
    assert found.batches == 3 and not found.damages
    data[CHUNK_BYTES // 2] ^= 4
    assert [(each.first_offset, each.end_offset) for each in check(log, 0).damages] == [(0, 1)]
    data[CHUNK_BYTES // 2] ^= 4
    data[9] ^= 8  # its length: half a MiB more
    assert [(each.first_offset, each.end_offset) for each in check(log, 0).damages] == [(0, 1)]


def test_an_index_that_says_something_else_is_found() -> None:
    disk = MemoryDisk()
    log = filled(disk, batches=60)
    base = log.base_offsets[0]
    checkable = repair.checkable(log, base)
    assert checkable is not None and checkable.facts.is_sealed
    raw = disk.read_file(checkable.index_path)
    entries = [
        (int.from_bytes(raw[n : n + 4], "big"), int.from_bytes(raw[n + 4 : n + 8], "big"))
        for n in range(0, len(raw), 8)
    ]
    assert len(entries) > 3

    def is_sound(index: list[tuple[int, int]]) -> bool:
        found = SegmentCheck(checkable.facts, index=index)
        while not found.is_done:
            found.step(checkable.segment.file.read)
        return found.is_index_sound

    assert is_sound(entries)
    assert not is_sound([(a, b + 1) for a, b in entries])
    assert not is_sound([(a + 1, b) for a, b in entries])
    assert not is_sound([*entries, (entries[-1][0] + 1, 1 << 20)])


def test_a_damaged_batch_without_a_successor_ends_the_search() -> None:
    batch = make_batch(2)
    assert find_sound_batch(lambda at, size: batch[at : at + size], 0, len(batch), None, after=0, end_offset=9) is None


def test_a_pass_goes_on_after_what_was_checked_last() -> None:
    segments = [("b", 0, 0), ("a", 1, 50), ("a", 1, 0)]
    assert plan_pass(segments, None) == [("a", 1, 0), ("a", 1, 50), ("b", 0, 0)]
    assert plan_pass(segments, ("a", 1, 7)) == [("a", 1, 50), ("b", 0, 0)]
    assert plan_pass(segments, ("b", 0, 0)) == []


@pytest.mark.parametrize(
    ("bytes_read", "batches", "segments", "took_s", "pause"),
    [
        (1_000_000, 0, 0, 0.02, 0.08),
        (1_000_000, 1000, 0, 0.0, 0.2),
        (1_000_000, 0, 10, 0.0, 0.5),
        (10, 0, 0, 1.0, 0),
    ],
    ids=["the rate", "small batches count for more", "small segments count for more", "it took longer"],
)
def test_the_pause_after_a_step(bytes_read: int, batches: int, segments: int, took_s: float, pause: float) -> None:
    found = pause_s(
        bytes_read=bytes_read, batches=batches, segments=segments, bytes_per_second=10_000_000, took_s=took_s
    )
    assert found == pytest.approx(pause)


def test_a_time_index_that_falls_or_is_cut_is_found() -> None:
    entries = [(5, 1), (9, 4), (12, 4)]
    raw = b"".join(a.to_bytes(8, "big") + b.to_bytes(4, "big") for a, b in entries)
    assert newest_in_time_index(raw) == 12 and newest_in_time_index(b"") == -1
    assert newest_in_time_index(raw[:-1]) is None and newest_in_time_index(raw + raw) is None


def damaged_log(disk: MemoryDisk) -> tuple[UnifiedLog, DamagedRange, bytes]:
    """A log with a batch damaged in its first segment, known to it; and its bytes before that."""
    log = filled(disk, batches=60)
    whole = content(log)
    data = disk.names[log.segments[0].file.path].content
    _, (at, hit), *_ = iterate_batches(bytes(data))
    data[at + 5] ^= 64  # of its base offset, which no checksum covers
    (damage,) = check(log, 0).damages
    assert damage.first_offset == hit.base_offset
    assert repair.set_damage(log, 0, [damage]) and not repair.set_damage(log, 0, [damage])
    return log, damage, whole


def test_reads_end_before_damage_and_everything_else_is_served() -> None:
    log, damage, whole = damaged_log(MemoryDisk())
    served = {}
    for offset in range(log.log_end_offset):
        if damage.first_offset <= offset < damage.end_offset:
            with pytest.raises(CorruptBatch, match="cannot be read"):
                log.read(Offset(offset), bytes_max=1 << 20, end=log.log_end_offset, at_least_one_batch=True)
            continue
        read = log.read(Offset(offset), bytes_max=1 << 20, end=log.log_end_offset, at_least_one_batch=True)
        for first, last in batch_offsets(take(read)):
            assert last < damage.first_offset or first >= damage.end_offset
            served[first] = last
        assert read.base_offset <= offset < read.next_offset
    assert sum(last - first + 1 for first, last in served.items()) == log.log_end_offset - (
        damage.end_offset - damage.first_offset
    )
    assert len(whole) > 4000


def test_a_repair_puts_back_every_byte_and_a_wrong_size_is_refused() -> None:
    disk = MemoryDisk()
    log, damage, whole = damaged_log(disk)
    good = whole[damage.position : damage.stop]
    with pytest.raises(InvariantViolated):
        repair.replace_damaged(log, damage, good + good)
    repair.replace_damaged(log, damage, good)
    assert not check(log, 0).damages
    repair.set_damage(log, 0, [])
    assert content(log) == whole


def test_truncation_into_damage_ends_the_log_before_it_and_forgets_it() -> None:
    log, damage, _ = damaged_log(MemoryDisk())
    truncating.truncate_to(log, Offset(damage.end_offset - 1))
    assert log.log_end_offset == damage.first_offset and not log.damage
    append(log, make_batch(5), epoch=50)
    read = log.read(damage.first_offset, bytes_max=1 << 20, end=log.log_end_offset, at_least_one_batch=True)
    assert batch_offsets(take(read))[0][0] == damage.first_offset


def test_a_check_that_began_before_a_truncation_counts_for_nothing() -> None:
    disk = MemoryDisk()
    log = filled(disk, batches=60)
    checked = [repair.checkable(log, base) for base in log.base_offsets]
    assert all(each is not None and repair.is_unchanged(log, each) for each in checked)
    truncating.truncate_to(log, Offset(log.log_end_offset - 1))
    assert not any(each is not None and repair.is_unchanged(log, each) for each in checked)


@pytest.mark.parametrize("is_clean_shutdown", [False, True])
def test_damage_below_what_was_flushed_costs_nothing_else(is_clean_shutdown: bool) -> None:
    """A restart cuts neither at the damage nor what is behind it, and keeps the end: it may all be committed."""
    disk = MemoryDisk()
    log = open_log(disk, config=make_config(segment_bytes=1 << 20))
    for _ in range(9):
        append(log, make_batch(3), epoch=2)
    whole, end = content(log), log.log_end_offset
    log.close()
    data = disk.names[log.segments[0].file.path].content
    batches = list(iterate_batches(whole))
    for number in (4, 8):
        at, hit = batches[number]
        data[at + 9] ^= 1  # its length, so that even a look at the headers stumbles over it
        found = open_log(disk, recovery_point=end, is_clean_shutdown=is_clean_shutdown, config=log.config)
        is_looked_at = (
            not is_clean_shutdown or number == 8
        )  # after a clean stop the end alone: the scrub finds the rest
        ranges = [(damage.first_offset, damage.end_offset) for damage in found.damage]
        assert ((hit.base_offset, hit.next_offset) in ranges) == is_looked_at
        assert found.log_end_offset == end
        if is_looked_at:
            read = found.read(Offset(0), bytes_max=1 << 20, end=Offset(12), at_least_one_batch=True)
            assert take(read) == whole[: batches[4][0]]
        found.release_files()
    assert append(open_log(disk, recovery_point=end, config=log.config), make_batch(1), epoch=3) == end


def test_damage_from_before_the_log_start_to_the_end_is_kept_as_damage() -> None:
    """Begun anew empty, the only replica in sync would give offsets again that are committed elsewhere."""
    disk = MemoryDisk()
    log = open_log(disk, config=make_config(segment_bytes=1 << 20))
    append(log, make_batch(4), epoch=2)
    end = log.log_end_offset
    log.close()
    data = disk.names[log.segments[0].file.path].content
    data[-1] ^= 1
    found = open_log(disk, recovery_point=end, log_start_offset=Offset(1), config=log.config)
    assert [(damage.first_offset, damage.end_offset) for damage in found.damage] == [(0, end)]
    assert (found.log_start_offset, found.log_end_offset) == (1, end)
    assert append(found, make_batch(1), epoch=3) == end


def test_a_segment_whose_newest_records_are_damaged_expires_with_the_next() -> None:
    """Of what cannot be read nobody knows the time: it went as early as the oldest that can be read."""
    disk = MemoryDisk()
    log = open_log(disk, config=make_config(segment_bytes=1 << 20, retention_ms=1_000))
    for second in (1, 5):
        append(log, make_batch(2, timestamp_ms=NOW_MS + second * 1000), epoch=2)
    end = log.log_end_offset
    log.close()
    disk.names[log.segments[0].file.path].content[-1] ^= 1
    found = open_log(disk, recovery_point=end, config=log.config, now_ms=NOW_MS + 5_500)
    found.high_watermark = end
    flush(found)
    assert found.damage
    assert retiring.apply_retention(found, NOW_MS + 5_500) == 0
    append(found, make_batch(timestamp_ms=NOW_MS + 6_000), epoch=2, now_ms=NOW_MS + 6_000)
    found.high_watermark = found.log_end_offset
    assert retiring.apply_retention(found, NOW_MS + 6_900) == 0
    assert retiring.apply_retention(found, NOW_MS + 7_100) > 0
    assert found.log_start_offset >= end


def test_damage_below_the_log_start_misleads_no_read() -> None:
    """The rotten header says that its batch reaches further than the log start. Followers were sent it for ever, and refused it."""
    disk = MemoryDisk()
    log = open_log(disk, config=make_config(segment_bytes=1 << 20))
    for _ in range(4):
        append(log, make_batch(2), epoch=2)
    disk.names[log.segments[0].file.path].content[25] ^= 0x80  # of lastOffsetDelta
    log.high_watermark = log.log_end_offset
    log.log_start_offset = Offset(3)
    log.segments[0].boundaries.clear()
    assert not repair.set_damage(log, 0, check(log, 0).damages), "nobody has to repair it"
    assert not log.damage
    read = log.read(Offset(4), bytes_max=1, end=log.log_end_offset, at_least_one_batch=True)
    assert batch_offsets(take(read)) == [(4, 5)]


def test_truncation_to_where_damage_ends_keeps_all_before_it() -> None:
    """No header is left that says where a segment ends whose tail is damaged: the log ended at 0 then, with all its bytes."""
    disk = MemoryDisk()
    log = open_log(disk, config=make_config(segment_bytes=1 << 20, index_interval_bytes=0))
    for _ in range(4):
        append(log, make_batch(2), epoch=2)
    end = log.log_end_offset
    log.close()
    disk.names[log.segments[0].file.path].content[-1] ^= 1
    found = open_log(disk, recovery_point=end, config=log.config)
    append(found, make_batch(1), epoch=2)
    truncating.truncate_to(found, end)
    assert found.log_end_offset == end
    assert [(damage.first_offset, damage.end_offset) for damage in found.damage] == [(end - 2, end)]
    assert append(found, make_batch(1), epoch=2) == end


@pytest.mark.parametrize("damaged", [3, 5], ids=["in the middle", "at the end"])
def test_an_epoch_that_began_in_a_damaged_range_is_known_from_its_file(damaged: int) -> None:
    """Unknown, it would make this replica cut committed records: its history parts from the leader's where it does not."""
    disk = MemoryDisk()
    log = open_log(disk, config=make_config(segment_bytes=1 << 20))
    for number in range(6):
        append(log, make_batch(2), epoch=number // damaged)
    whole, end = content(log), log.log_end_offset
    log.close()
    data = disk.names[log.segments[0].file.path].content
    at, _ = list(iterate_batches(whole))[damaged]
    data[at + 70] ^= 1
    found = open_log(disk, recovery_point=end, config=log.config)
    assert found.leader_epochs.entries == ((0, 0), (1, 2 * damaged))
    assert found.latest_epoch == 1


def test_an_epoch_that_began_in_a_damaged_range_is_learned_from_its_repair() -> None:
    disk = MemoryDisk()
    log = open_log(disk, config=make_config(segment_bytes=1 << 20))
    for number in range(6):
        append(log, make_batch(2), epoch=number // 3)
        if number == 2:
            log.leader_epochs.save()
            saved = bytes(disk.names[f"{log.directory}/leader-epoch-checkpoint"].content)
    whole, end = content(log), log.log_end_offset
    log.close()
    epochs = log.leader_epochs.entries
    disk.names[f"{log.directory}/leader-epoch-checkpoint"].content[:] = saved
    data = disk.names[log.segments[0].file.path].content
    at, _ = list(iterate_batches(whole))[3]
    data[at + 70] ^= 1
    found = open_log(disk, recovery_point=end, config=log.config)
    assert found.leader_epochs.entries == ((0, 0), (1, 8))
    repair.seal(found, 0)
    (damage,) = found.damage
    repair.replace_damaged(found, damage, whole[damage.position : damage.stop])
    assert found.leader_epochs.entries == epochs == ((Epoch(0), 0), (Epoch(1), 6))


def test_facts_without_epochs_are_no_reason_for_alarm() -> None:
    batch = make_batch(2)
    found = SegmentCheck(CheckFacts(Offset(0), Offset(2), len(batch), ()))
    found.step(lambda at, size: batch[at : at + size])
    assert found.is_done and not found.damages
