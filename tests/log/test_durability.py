"""What a flush round may claim while the log goes on."""

from __future__ import annotations

import pytest

from barnabas_log.memory_disk import MemoryDisk
from barnabas_log.tail.durability import Durability
from barnabas_log.tail.segment import LogSegment
from barnabas_wire.kafka.ids import Offset
from tests.support.logs import DIRECTORY, NOW_MS, make_config


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directory(DIRECTORY)
    return disk


def segment(disk: MemoryDisk, base: int = 0) -> LogSegment:
    return LogSegment.create(disk, DIRECTORY, Offset(base), make_config(), now_ms=NOW_MS)


def durability(disk: MemoryDisk, *, end: int = 0, is_new: bool = True) -> Durability:
    return Durability(disk, DIRECTORY, end_offset=Offset(end), is_new=is_new)


def paths(it: Durability, active: LogSegment) -> list[str]:
    return [file.path.removeprefix(f"{DIRECTORY}/") for file in it.begin_round(active)]


def test_a_new_log_flushes_its_directory_and_that_of_all_logs_once(disk: MemoryDisk) -> None:
    active, it = segment(disk), durability(disk)
    assert not it.is_directory_durable and it.unnamed == 1
    assert paths(it, active) == [DIRECTORY, "data"]
    it.end_round(Offset(0))
    assert it.is_directory_durable and it.unnamed == 0 and not it.is_dirty(Offset(0))
    assert paths(it, active) == []


def test_what_is_written_after_a_round_began_is_not_claimed(disk: MemoryDisk) -> None:
    active, it = segment(disk), durability(disk, is_new=False)
    it.written_end_offset = Offset(7)
    assert active.file.path in [file.path for file in it.begin_round(active)]
    it.written_end_offset = Offset(9)
    it.end_round(Offset(7))
    assert it.flushed_end_offset == 7 and it.is_dirty(Offset(9))


def test_what_is_cut_during_a_round_is_not_claimed_even_when_it_is_written_again(disk: MemoryDisk) -> None:
    active, it = segment(disk), durability(disk, is_new=False)
    it.written_end_offset = Offset(7)
    it.begin_round(active)
    it.note_cut()
    it.end_at(Offset(3))
    it.written_end_offset = Offset(8)
    it.end_round(Offset(7))
    assert it.flushed_end_offset == 3
    assert not it.is_cut_flushed, "the cut came after the round began"
    assert active.file.path in [file.path for file in it.begin_round(active)]
    it.end_round(Offset(8))
    assert it.flushed_end_offset == 8 and it.is_cut_flushed


def test_a_segment_that_takes_appends_again_is_not_settled_by_the_round_under_way(disk: MemoryDisk) -> None:
    old, active, it = segment(disk), segment(disk, 5), durability(disk, is_new=False)
    it.add_segment(old)
    it.begin_round(active)
    it.forget_segment(old)
    it.add_segment(old)
    it.end_round(Offset(0))
    assert old.file in it.begin_round(active), "it is flushed once more"


def test_names_made_during_a_round_are_not_claimed(disk: MemoryDisk) -> None:
    old, active, it = segment(disk), segment(disk, 5), durability(disk, is_new=False)
    it.begin_round(old)
    it.add_segment(old)
    it.end_round(Offset(0))
    assert it.unnamed == 1 and it.is_dirty(Offset(0))
    it.sync_names()
    assert it.unnamed == 0 and active.file.path in disk.durable_names


@pytest.mark.parametrize("is_new", [False, True])
def test_a_log_begun_anew_counts_only_where_its_directory_is_durable(disk: MemoryDisk, is_new: bool) -> None:
    active, it = segment(disk, 50), durability(disk, is_new=is_new)
    it.begin_round(active)
    it.end_at(Offset(50))
    it.start_over_at(Offset(50))
    assert it.flushed_end_offset == (0 if is_new else 50)
    it.end_round(Offset(50))
    assert it.flushed_end_offset == (0 if is_new else 50), "the round under way knows nothing of it"
    it.begin_round(active)
    it.end_round(Offset(50))
    assert it.flushed_end_offset == 50


def test_what_waits_to_be_flushed_is_closed_when_it_is_let_go(disk: MemoryDisk) -> None:
    it = durability(disk)
    file = disk.open(f"{DIRECTORY}/partition.metadata", create=True)
    it.add_file(file)
    it.release()
    assert file.is_closed  # type: ignore[attr-defined]
    it.end_round(Offset(0))
