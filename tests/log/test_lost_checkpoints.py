"""A log whose checkpoint files are lost: what its batches show is kept, nothing sound is cut, and what is missing is named."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas_log.config import CleanupPolicy, LogManagerConfig
from barnabas_log.directories.checkpoints import (
    CLEAN_OFFSETS_FILE,
    HIGH_WATERMARKS_FILE,
    LOG_START_OFFSETS_FILE,
    RECOVERY_POINTS_FILE,
    read_offsets,
)
from barnabas_log.directories.directory_state import OWN_DIRECTORY
from barnabas_log.directories.manager import LogManager
from barnabas_log.memory_disk import MemoryDisk
from barnabas_log.recovery import repair
from barnabas_log.recovery.scrub import SegmentCheck
from barnabas_log.unified_log import UnifiedLog
from barnabas_wire.kafka.ids import Epoch, Offset, TopicPartition, Uuid
from barnabas_wire.records.batch import CorruptBatch
from tests.log.cleaner.test_swap import cleaned, swap_all, written_log
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

COMPACTED = make_config(cleanup_policy=CleanupPolicy.COMPACT)
CHECKPOINTS = (RECOVERY_POINTS_FILE, LOG_START_OFFSETS_FILE, HIGH_WATERMARKS_FILE, CLEAN_OFFSETS_FILE)


async def started(disk: MemoryDisk, **config: Any) -> LogManager:
    manager = LogManager(
        disk=disk,
        directories=["data"],
        default_config=make_config(**config),
        clock_ms=lambda: NOW_MS,
        config=LogManagerConfig(reserve_bytes=64),
    )
    await manager.load()
    return manager


def compacted_directory(topic: str) -> tuple[MemoryDisk, bytes]:
    """A broker's directory with one log of that name, compacted; its bytes."""
    disk = MemoryDisk()
    log = written_log(disk)
    swap_all(disk, log, *cleaned(disk, log))
    append(log)
    flush(log)
    before = content(log)
    log.close()
    disk.rename(DIRECTORY, f"data/{topic}-0")
    return disk, before


@pytest.mark.parametrize("left", [b"", b"\xff\x00garbage", None], ids=["empty", "garbage", "gone"])
@pytest.mark.parametrize("lost", [*((each,) for each in CHECKPOINTS), CHECKPOINTS], ids=lambda names: names[0][:12])
@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
async def test_a_compacted_log_is_whole_without_its_checkpoints(
    topic: str, lost: tuple[str, ...], left: bytes | None
) -> None:
    disk, before = compacted_directory(topic)
    name = TopicPartition(topic, 0)
    manager = await started(disk)
    log = manager.logs[name]
    assert content(log) == before and log.tail.has_gaps
    await manager.checkpoints.write_offsets()
    await manager.checkpoints.write_high_watermarks()
    for file in lost:
        for each in (f"data/{file}", f"data/{OWN_DIRECTORY}/{file}"):
            disk.names.pop(each, None)
        if left is not None:
            disk.write_file_atomically(f"data/{file}", left)
    for _ in range(2):  # each time as after a kill
        log = (await started(disk)).logs[name]
        assert content(log) == before and not log.damage
        if lost != (CLEAN_OFFSETS_FILE,):  # else no segment is read that has gaps, until the scrub comes to it
            assert name in read_offsets(disk, f"data/{CLEAN_OFFSETS_FILE}"), (
                "the next start knows it from the file again"
            )


def gapped(disk: MemoryDisk, *bases: int) -> UnifiedLog:
    """What a follower has of a compacted leader: a batch of one record at each of these offsets."""
    log = open_log(disk, config=COMPACTED)
    for base in bases:
        log.tail.append_as_follower(make_batch(offset=base, leader_epoch=Epoch(1)), leader_epoch=Epoch(1))
    flush(log)
    return log


@pytest.mark.parametrize(("may_have_gaps", "kept"), [(True, 8), (None, 8), (False, 1)])
def test_a_gap_before_the_last_batch_is_believed_unless_a_file_says_that_there_is_none(
    may_have_gaps: bool | None, kept: int
) -> None:
    """No batch behind it contradicts an offset that rot has raised."""
    disk = MemoryDisk()
    gapped(disk, 0, 7)
    assert open_log(disk, may_have_gaps=may_have_gaps).log_end_offset == kept


def test_a_gap_that_a_later_batch_proves_ends_no_log() -> None:
    disk = MemoryDisk()
    before = content(gapped(disk, 0, 7, 8))
    again = open_log(disk, may_have_gaps=False)
    assert content(again) == before and again.tail.has_gaps


def test_an_offset_that_rot_raised_is_contradicted_by_the_batch_behind() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    for _ in range(4):
        append(log)
    file = disk.names[f"{DIRECTORY}/{0:020d}.log"].content
    at = len(file) // 4
    assert file[at + 7] == 1
    file[at + 7] |= 0x10
    for may_have_gaps in (True, None, False):
        disk.names[f"{DIRECTORY}/{0:020d}.log"].content[:] = file
        again = open_log(disk, may_have_gaps=may_have_gaps, recovery_point=Offset(4))
        assert [(each.first_offset, each.end_offset) for each in again.damage] == [(1, 2)]


def several_segments(disk: MemoryDisk) -> UnifiedLog:
    log = open_log(disk, config=make_config(segment_bytes=700))
    for _ in range(40):
        append(log)
    flush(log)
    assert log.segment_count > 4
    return log


@pytest.mark.parametrize("recovery_point", [None, Offset(40)])
@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("may_have_gaps", [True, None, False])
def test_a_lost_segment_is_named_and_all_others_are_served(
    recovery_point: Offset | None, is_clean: bool, may_have_gaps: bool | None
) -> None:
    """A sole replica served nothing behind it any more, and later segments were removed."""
    disk = MemoryDisk()
    log = several_segments(disk)
    bases = log.base_offsets
    log.close()
    lost, following = bases[2], bases[3]
    disk.remove(f"{DIRECTORY}/{lost:020d}.log")
    for _ in range(2):
        again = open_log(
            disk,
            recovery_point=recovery_point,
            is_clean_shutdown=is_clean,
            may_have_gaps=may_have_gaps,
            high_watermark=Offset(40),
        )
        assert [(each.first_offset, each.end_offset) for each in again.damage] == [(lost, following)]
        assert again.log_end_offset == 40 and again.base_offsets == [*bases[:2], *bases[3:]]
        for offset in range(40):
            if lost <= offset < following:
                with pytest.raises(CorruptBatch, match=f"offsets {lost} to {following - 1}"):
                    again.read(Offset(offset), bytes_max=1, end=Offset(40), at_least_one_batch=True)
            else:
                read = again.read(Offset(offset), bytes_max=1, end=Offset(40), at_least_one_batch=True)
                assert (
                    batch_offsets(b"".join(each.file.read(each.position, each.size) for each in read.parts))[0][0]
                    == offset
                )


@pytest.mark.parametrize("number", [1, -1])
def test_rot_in_a_log_without_a_recovery_point_costs_what_it_hit(number: int) -> None:
    disk = MemoryDisk()
    log = several_segments(disk)
    bases = log.base_offsets
    log.close()
    disk.names[f"{DIRECTORY}/{bases[number]:020d}.log"].content[70] ^= 1
    again = open_log(disk, recovery_point=None)
    hit = bases[number]
    assert [(each.first_offset, each.end_offset) for each in again.damage] == [(hit, hit + 1)]
    assert again.log_end_offset == 40 and again.base_offsets == bases


def test_a_committed_end_that_is_gone_is_named_though_the_recovery_point_is_lost() -> None:
    disk = MemoryDisk()
    log = several_segments(disk)
    log.close()
    content_ = disk.names[f"{DIRECTORY}/{log.base_offsets[-1]:020d}.log"].content
    content_[-1] ^= 1
    again = open_log(disk, recovery_point=None, high_watermark=Offset(40))
    assert [(each.first_offset, each.end_offset) for each in again.damage] == [(39, 40)]
    assert again.recovery_report.is_flushed_data_lost and again.log_end_offset == 40


async def test_a_young_log_is_no_log_whose_recovery_point_is_lost() -> None:
    """What a power cut tears off a log of a minute, between two segments too, nobody was promised."""
    disk = MemoryDisk()
    manager = await started(disk, segment_bytes=700)
    assert read_offsets(disk, f"data/{RECOVERY_POINTS_FILE}") == {}
    name = TopicPartition("orders", 0)
    log = manager.get_or_create(name, Uuid(b"t" * 16), make_config(segment_bytes=700))
    for _ in range(20):
        append(log)
    torn = log.base_offsets[1]
    disk.names[f"data/orders-0/{torn:020d}.log"].content.clear()
    again = (await started(disk)).logs[name]
    assert again.log_end_offset == torn and not again.damage


def test_a_gap_that_the_next_batch_proves_is_no_damage_for_the_scrub() -> None:
    """The file that names such logs was lost before a clean stop: nothing was proved at the start."""
    disk = MemoryDisk()
    log = gapped(disk, 0, 7, 8, 20)
    log.tail.roll(NOW_MS)
    flush(log)
    log.tail.has_gaps, log.tail.config = False, make_config()
    assert not log.may_have_gaps
    checkable = repair.checkable(log, 0)
    assert checkable is not None
    check = SegmentCheck(checkable.facts)
    while not check.is_done:
        check.step(checkable.segment.file.read)
    assert not check.damages and check.has_gaps
