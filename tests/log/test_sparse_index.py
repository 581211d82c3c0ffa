"""The two index files: Kafka's layout, and every look-up as a linear scan would answer, in memory and on disk."""

from __future__ import annotations

import struct
from bisect import bisect_right
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_log.errors import CorruptCheckpoint
from barnabas_log.memory_disk import MemoryDisk, MemoryFile
from barnabas_log.read.offset_index import OffsetIndex
from barnabas_log.read.sparse_index import PAGE_READS_MAX
from barnabas_log.read.time_index import TimeIndex
from barnabas_wire.kafka.ids import Offset


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directory("d")
    return disk


def offset_index(disk: MemoryDisk, *, bytes_max: int = 8000) -> OffsetIndex:
    index = OffsetIndex(disk, "d/100.index", Offset(100), bytes_max=bytes_max)
    index.create()
    return index


steps = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 500)), max_size=40)


@given(steps, st.booleans(), st.data())
@settings(max_examples=200, deadline=None)
def test_offset_look_ups_equal_a_scan(moves: list[tuple[int, int]], is_unloaded: bool, data: st.DataObject) -> None:
    disk = MemoryDisk()
    disk.make_directory("d")
    index = offset_index(disk)
    entries, offset, position = [], 100, 0
    for step, size in moves:
        offset, position = offset + step, position + size
        entries.append((offset, position))
        index.add(last_offset=offset, position=position)
        if data.draw(st.booleans()):
            index.write_out()
    if is_unloaded:
        index.unload()
    assert len(index) == len(entries)
    for asked in range(99, offset + 2):
        assert index.position_at_or_before(asked) == max((p for o, p in entries if o <= asked), default=0)
    for asked in {0, *(p + d for _, p in entries for d in (-1, 0, 1))}:
        below = [entry for entry in entries if entry[1] <= asked]
        assert index.floor(asked, column=1) == (None if not below else (below[-1][0] - index.base_offset, below[-1][1]))


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4000)), min_size=1, max_size=8),
    st.lists(st.integers(0, 30_000)),
)
@settings(max_examples=60, deadline=None)
def test_look_ups_in_files_of_many_pages_equal_a_scan(runs: list[tuple[int, int]], asked: list[int]) -> None:
    """Entries at unequal steps: runs of dense and of sparse ones."""
    disk = MemoryDisk()
    disk.make_directory("d")
    index = offset_index(disk, bytes_max=1 << 20)
    ends, offset = [], 100
    for step, count in runs:
        for _ in range(count):
            offset += step
            ends.append(offset)
            index.add(last_offset=offset, position=len(ends))
    index.unload()
    for each in (*asked, ends[0] - 1, ends[0], ends[-1] - 1, ends[-1], *ends[510:514]):
        assert index.position_at_or_before(each) == bisect_right(ends, each)


@pytest.mark.parametrize("is_uneven", [False, True])
def test_a_look_up_in_an_old_segment_reads_few_pages(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch, is_uneven: bool
) -> None:
    """A fetch of old records does it on the event loop, perhaps from a cold disk."""
    count = 1 << 18  # 1 GiB at index.interval.bytes
    index = offset_index(disk, bytes_max=8 * count)
    random = Random(1)
    position = 0
    for number in range(1, count):
        offset = number * 40 if not is_uneven else 40 * number**2 >> 18
        position += 4096 + random.randint(0, 2000)
        index.append(offset + number, position)
    index.unload()
    pages: list[int] = []
    read = MemoryFile.read
    monkeypatch.setattr(MemoryFile, "read", lambda file, at, size: pages.append(at // 4096) or read(file, at, size))  # type: ignore[func-returns-value]
    worst = 0
    for _ in range(200):
        pages.clear()
        index.position_up_to(random.randint(0, position))
        index.position_at_or_before(random.randint(0, 41 * count))
        worst = max(worst, len(pages))
    assert worst <= (2 * 3 + 1 if not is_uneven else 2 * PAGE_READS_MAX)


@given(steps, st.integers(0, 400), st.booleans())
@settings(max_examples=200, deadline=None)
def test_time_look_ups_equal_a_scan(moves: list[tuple[int, int]], asked: int, is_unloaded: bool) -> None:
    disk = MemoryDisk()
    disk.make_directory("d")
    index = TimeIndex(disk, "d/100.timeindex", Offset(100), bytes_max=9999)
    index.create()
    entries: list[tuple[int, int]] = []
    offset, time = 100, 0
    for step, jump in moves:
        offset, time = offset + step, time + jump % 4
        index.add(timestamp_ms=time, offset=offset)
        if not entries or time > entries[-1][0]:
            entries.append((time, offset))
    if is_unloaded:
        index.unload()
    assert index.offset_at_or_before(asked) == max((o for t, o in entries if t <= asked), default=100)
    assert index.greatest() == (entries[-1] if entries else None)


def test_the_files_have_kafkas_layout(disk: MemoryDisk) -> None:
    index = offset_index(disk)
    index.add(last_offset=104, position=4200)
    index.add(last_offset=300, position=9000)
    index.write_out()
    assert disk.read_file("d/100.index") == struct.pack(">iiii", 4, 4200, 200, 9000)
    times = TimeIndex(disk, "d/100.timeindex", Offset(100), bytes_max=8000)
    times.create()
    times.add(timestamp_ms=2**40, offset=104)
    times.add(timestamp_ms=2**40, offset=300)
    times.unload()
    assert disk.read_file("d/100.timeindex") == struct.pack(">qi", 2**40, 4)


def test_what_was_written_is_loaded_and_grows_on(disk: MemoryDisk) -> None:
    index = offset_index(disk)
    index.add(last_offset=104, position=10)
    index.unload()
    index.close()
    again = OffsetIndex(disk, "d/100.index", Offset(100), bytes_max=8000)
    again.load()
    again.add(last_offset=109, position=20)
    again.write_out()
    again.write_out()
    assert len(disk.read_file("d/100.index")) == 16


@pytest.mark.parametrize("keep", range(6))
def test_truncation_reaches_the_file(disk: MemoryDisk, keep: int) -> None:
    index = offset_index(disk)
    for n in range(5):
        index.add(last_offset=101 + n, position=100 * n)
        if n == 2:
            index.write_out()
    index.truncate_to_position(100 * keep - 50)
    assert len(index) == min(keep, 5)
    index.add(last_offset=150, position=1000)
    index.write_out()
    assert len(disk.read_file("d/100.index")) == 8 * (min(keep, 5) + 1)
    assert index.position_at_or_before(150) == 1000


@pytest.mark.parametrize("content", [b"\0" * 7, struct.pack(">iiii", 4, 9, 4, 12), struct.pack(">iiii", 4, 9, 5, 8)])
def test_a_file_that_is_no_index_is_refused(disk: MemoryDisk, content: bytes) -> None:
    disk.write_file_atomically("d/100.index", content)
    index = OffsetIndex(disk, "d/100.index", Offset(100), bytes_max=8000)
    with pytest.raises(CorruptCheckpoint):
        index.load()


def test_full_leaves_room_for_the_entry_of_the_roll(disk: MemoryDisk) -> None:
    index = offset_index(disk, bytes_max=24)
    times = TimeIndex(disk, "d/100.timeindex", Offset(100), bytes_max=36)
    times.create()
    for n in range(3):
        assert index.room > 0
        index.add(last_offset=101 + n, position=n + 1)
    assert index.room == 0
    for n in range(2):
        assert times.room > 0
        times.add(timestamp_ms=n, offset=101 + n)
    assert times.room == 0
