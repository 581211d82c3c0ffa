"""Runs of batches on a follower: what read_run takes, and that a segment counts a run as it counts one batch after another."""

from __future__ import annotations

from random import Random

import pytest

from barnabas_log.errors import InvalidBatch
from barnabas_log.memory_disk import MemoryDisk
from barnabas_log.tail.batch_run import CRC_WINDOW_BYTES, read_run
from barnabas_log.tail.segment import LogSegment
from barnabas_wire.kafka.ids import Epoch, Offset
from barnabas_wire.records.batch import BatchHeader, Buffer, CorruptBatch
from tests.support.logs import content, make_batch, make_config, open_log


@pytest.fixture
def disk() -> MemoryDisk:
    """An empty disk."""
    return MemoryDisk()


def batches(*epochs: int, start: int = 0, producer_id: int = -1) -> list[bytes]:
    """Batches of two records each, in these epochs."""
    return [
        make_batch(
            2,
            offset=start + 2 * n,
            leader_epoch=Epoch(epoch),
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=2 * n if producer_id >= 0 else -1,
        )
        for n, epoch in enumerate(epochs)
    ]


def run_of(*parts: Buffer, next_offset: int = 0) -> tuple[int, int]:
    """(batches, end) of the run at the beginning."""
    run = read_run(memoryview(b"".join(parts)), 0, next_offset=Offset(next_offset))
    return len(run.headers), run.stop


def test_a_run_ends_with_its_epoch() -> None:
    first, second, third = batches(4, 4, 5)
    assert run_of(first, second, third) == (2, len(first) + len(second))


@pytest.mark.parametrize("position", [0, 8, 16, 23, 60, 80])
def test_a_run_ends_before_a_batch_that_is_not_sound(position: int) -> None:
    sound, broken = batches(1, 1)
    spoilt = bytearray(broken)
    spoilt[position] ^= 0x55
    assert run_of(sound, spoilt) == (1, len(sound))
    with pytest.raises((CorruptBatch, InvalidBatch)):
        run_of(spoilt, next_offset=2)


@pytest.mark.parametrize("left", [1, 11, 60, 61, 75])
def test_a_run_ends_before_a_batch_that_is_cut_off(left: int) -> None:
    sound, cut = batches(1, 1)
    assert run_of(sound, cut[:left]) == (1, len(sound))
    with pytest.raises(CorruptBatch):
        run_of(cut[:left], next_offset=2)


def test_a_large_batch_is_summed_to_its_last_byte() -> None:
    large = bytearray(make_batch(value=bytes(2 * CRC_WINDOW_BYTES + 5)))
    assert run_of(large) == (1, len(large))
    for position in (100, CRC_WINDOW_BYTES + 100, len(large) - 1):
        large[position] ^= 1
        with pytest.raises(CorruptBatch):
            run_of(large)
        large[position] ^= 1


def test_a_run_knows_whether_producers_are_in_it() -> None:
    plain, named = batches(1), batches(1, start=2, producer_id=7)
    assert not read_run(memoryview(plain[0]), 0, next_offset=Offset(0)).has_producers
    assert read_run(memoryview(plain[0] + named[0]), 0, next_offset=Offset(0)).has_producers


def test_a_run_is_one_write(disk: MemoryDisk) -> None:
    log = open_log(disk)
    log.tail.append_as_follower(b"".join(batches(1, 1, 2)), leader_epoch=Epoch(2))
    assert log.written_end_offset == log.log_end_offset == 6
    assert log.active.file.appends == 2  # type: ignore[attr-defined]  # one per epoch


def test_what_must_wait_for_a_flush_is_kept_as_a_copy(disk: MemoryDisk) -> None:
    log, first, second = open_log(disk), *batches(1, 1)
    log.durability.flush_round = _Slow()
    received = bytearray(first + second)
    log.tail.append_as_follower(received, leader_epoch=Epoch(1))
    assert (log.written_end_offset, log.log_end_offset) == (0, 4)
    received[:] = bytes(len(received))  # the next answer takes its place
    log.durability.flush_round = None
    log.tail.append_as_follower(batches(1, start=4)[0], leader_epoch=Epoch(1))
    log.tail.write_pending()
    assert log.written_end_offset == 6
    assert content(log) == first + second + batches(1, start=4)[0]


def test_a_run_that_passes_a_segment_goes_on_in_the_next(disk: MemoryDisk) -> None:
    log = open_log(disk, config=make_config(segment_bytes=400))
    parts = batches(*[1] * 20, producer_id=9)
    log.tail.append_as_follower(b"".join(parts), leader_epoch=Epoch(1))
    assert log.segment_count > 5
    assert content(log) == b"".join(parts)
    entry = log.producers.get(9)
    assert entry is not None and entry.last.last_offset == 39


class _Slow:
    """A flush that takes long."""

    def is_slow(self) -> bool:
        return True


@pytest.mark.parametrize("seed", range(80))
def test_a_segment_counts_a_run_as_batch_after_batch(seed: int) -> None:
    """The same indexes, timestamps and size, and the same batch at which a new segment is due."""
    random = Random(seed)
    config = make_config(
        segment_bytes=random.choice([5_000, 100_000]),
        segment_index_bytes=random.choice([80, 8_000]),
        index_interval_bytes=random.choice([0, 300, 4096]),
        segment_ms=random.choice([50, 10_000]),
        segment_jitter_ms=random.choice([0, 20]),
    )
    headers, offset, time_ms = [], 0, random.choice([-1, 1_000])
    for _ in range(80):
        time_ms = time_ms if random.random() < 0.5 else time_ms + random.randint(-3, 6)
        delta, length = random.randint(0, 5), random.randint(50, 900)
        headers.append(BatchHeader(Offset(offset), length, Epoch(1), 2, 0, 0, delta, 0, time_ms, -1, -1, -1, delta + 1))
        offset += delta + 1

    def segment() -> LogSegment:
        disk = MemoryDisk()
        disk.make_directory("t-0")
        return LogSegment.create(disk, "t-0", Offset(0), config, now_ms=0)

    one, run = segment(), segment()

    def add(to: LogSegment, header: BatchHeader) -> bool:
        size, last_offset, time_ms = header.size_bytes, header.last_offset, header.max_timestamp_ms
        if to.should_roll(config, size_bytes=size, last_offset=last_offset, max_timestamp_ms=time_ms, now_ms=7):
            return False
        to.add_batch(last_offset, time_ms, size)
        return True

    counted = 0
    while counted < len(headers) and add(one, headers[counted]):
        counted += 1
    done = 0
    while done < len(headers):
        if random.random() < 0.5:  # who follows has led, and may lead again
            if not add(run, headers[done]):
                break
            done += 1
            continue
        upto = min(len(headers), done + random.randint(1, random.choice([3, 30])))
        taken = run.add_batches(headers[:upto], done, config=config, now_ms=7)
        done = taken
        if taken < upto:
            break
    assert done == counted
    for name in ("size_bytes", "max_timestamp", "is_index_full", "_bytes_since_index", "_first_timestamp_ms"):
        assert getattr(run, name) == getattr(one, name), name
    for index in ("offset_index", "time_index"):
        mine, other = getattr(run, index), getattr(one, index)
        assert [mine.entry(n) for n in range(len(mine))] == [other.entry(n) for n in range(len(other))], index
