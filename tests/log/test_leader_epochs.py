"""The leader epoch cache: assigning, asking, truncating, and its file."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_log.directories.checkpoints import read_epochs
from barnabas_log.memory_disk import MemoryDisk
from barnabas_log.tail.leader_epochs import LeaderEpochs
from barnabas_wire.kafka.ids import Epoch, Offset


def epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    cache = LeaderEpochs(MemoryDisk(), "d/leader-epoch-checkpoint")
    for epoch, start in entries:
        cache.assign(Epoch(epoch), Offset(start))
    return cache


def test_only_a_newer_epoch_is_taken_and_an_empty_one_gives_way() -> None:
    cache = epochs((1, 0), (3, 10), (3, 12), (2, 15), (5, 20))
    assert cache.entries == ((1, 0), (3, 10), (5, 20))
    cache.assign(Epoch(6), Offset(20))
    assert cache.entries == ((1, 0), (3, 10), (6, 20))


@pytest.mark.parametrize(
    ("asked", "answer"),
    [(-1, (-1, -1)), (0, (0, 5)), (1, (1, 10)), (2, (1, 10)), (3, (3, 20)), (4, (3, 20)), (5, (5, 33)), (6, (-1, -1))],
)
def test_the_end_of_an_epoch(asked: int, answer: tuple[int, int]) -> None:
    cache = epochs((1, 5), (3, 10), (5, 20))
    assert cache.end_offset_for(Epoch(asked), log_end_offset=Offset(33)) == answer


def test_an_empty_cache_knows_no_end() -> None:
    assert epochs().end_offset_for(Epoch(0), log_end_offset=Offset(9)) == (-1, -1)
    assert epochs().latest == -1


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 5)), min_size=1, max_size=12), st.data())
@settings(max_examples=200, deadline=None)
def test_the_cache_agrees_with_a_list_of_every_records_epoch(runs: list[tuple[int, int]], data: st.DataObject) -> None:
    cache, epoch = epochs(), 0
    records: list[int] = []
    for step, count in runs:
        epoch += step
        cache.assign(Epoch(epoch), Offset(len(records)))
        records += [epoch] * count
    start = data.draw(st.integers(0, len(records) - 1))
    end = data.draw(st.integers(start + 1, len(records)))
    cache.truncate_from_end(Offset(end))
    cache.truncate_from_start(Offset(start))
    for offset in range(start, end):
        assert cache.epoch_at(Offset(offset)) == records[offset]
    assert cache.latest == records[end - 1]
    assert cache.entries[0][1] >= start
    for asked in {*records[start:end]}:
        past = [offset for offset in range(start, end) if records[offset] > asked]
        assert cache.end_offset_for(Epoch(asked), log_end_offset=Offset(end)) == (asked, past[0] if past else end)


def test_the_file_is_written_only_when_behind() -> None:
    disk = MemoryDisk()
    disk.make_directory("d")
    cache = LeaderEpochs.load(disk, "d/leader-epoch-checkpoint")
    cache.save()
    assert not disk.exists("d/leader-epoch-checkpoint")
    cache.assign(Epoch(2), Offset(7))
    cache.assign(Epoch(4), Offset(9))
    cache.save()
    assert disk.read_file("d/leader-epoch-checkpoint") == b"0\n2\n2 7\n4 9\n"
    assert not cache.is_dirty
    assert LeaderEpochs.load(disk, "d/leader-epoch-checkpoint").entries == ((2, 7), (4, 9))
    cache.clear()
    cache.save()
    assert read_epochs(disk, "d/leader-epoch-checkpoint") == []


def test_a_file_that_is_being_written_does_not_outlive_what_was_forgotten_meanwhile() -> None:
    """A checkpoint writes it in a disk thread while a log that starts over writes it on the loop."""
    begun, may_end = threading.Event(), threading.Event()

    class SlowOnce(MemoryDisk):
        def write_file_atomically(self, path: Any, data: bytes) -> None:
            if not begun.is_set():
                begun.set()
                assert may_end.wait(10)
            super().write_file_atomically(path, data)

    disk = SlowOnce()
    disk.make_directory("d")
    cache = LeaderEpochs(disk, "d/leader-epoch-checkpoint")
    cache.assign(Epoch(18), Offset(0))
    checkpoint = threading.Thread(target=cache.save)
    checkpoint.start()
    assert begun.wait(10)
    cache.clear()
    starting_over = threading.Thread(target=cache.save)
    starting_over.start()
    starting_over.join(0.05)
    may_end.set()
    checkpoint.join()
    starting_over.join()
    assert read_epochs(disk, "d/leader-epoch-checkpoint") == []
