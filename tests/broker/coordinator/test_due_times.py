"""When records are due: what a header may say, what is found in batches of any kind, and that nothing of it happens on the loop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from barnabas_coordination.share import due_times
from barnabas_coordination.share.due_times import DUE_MS_MAX, DueTimes, DueTimeStats, Looked, due_time, steps
from barnabas_log.disk import FileRange, RealDisk
from barnabas_wire.records.batch import CorruptBatch, Record, build_batch
from barnabas_wire.records.compression import CompressionType
from barnabas_wire.records.control import build_transaction_marker
from barnabas_wire.records.crc32c import crc32c
from barnabas_wire.records.walk import walk

NOW_MS = 1_700_000_000_000
LATER = NOW_MS + 60_000
NAME = "deliver-at"


def text(due_ms: int) -> bytes:
    return b"%d" % due_ms


def record(
    offset: int, *headers: tuple[str, bytes | None], key: bytes | None = b"k", value: bytes | None = b"v"
) -> Record:
    return Record(offset, NOW_MS, key, value, headers)


@pytest.fixture
def disk() -> Iterator[RealDisk]:
    made = RealDisk()
    yield made
    made.close()


@pytest.fixture
def part_of(tmp_path: Path, disk: RealDisk) -> Callable[..., FileRange]:
    def part(*batches: bytes) -> FileRange:
        path = tmp_path / "0.log"
        path.write_bytes(b"before" + b"".join(batches))
        file = disk.open(str(path))
        return FileRange(file, 6, len(b"".join(batches)))

    return part


def looked_at(part: FileRange, name: str = NAME, now_ms: int = NOW_MS) -> tuple[Looked, DueTimeStats, int]:
    """What is found, the counters, and in how many turns."""
    stats = DueTimeStats()
    *turns, looked = steps(part, name.encode(), now_ms, stats)
    assert looked is not None
    assert not any(turns)
    return looked, stats, len(turns) + 1


def found(part: FileRange, name: str = NAME) -> Sequence[tuple[int, int]]:
    return looked_at(part, name)[0].waiting


@pytest.mark.parametrize(
    ("content", "due_ms"),
    [
        (b"1700000060000", LATER),
        (b" 1700000060000\n", LATER),
        (b"0", 0),
        (LATER.to_bytes(8, "big"), LATER),
        (text(DUE_MS_MAX), DUE_MS_MAX),
        (text(DUE_MS_MAX + 1), None),
        (text(LATER * 1000), None),  # microseconds
        (b"9" * 400, None),
        ((-1).to_bytes(8, "big", signed=True), None),
        (b"-5", None),
        (b"", None),
        (b"1_700", None),
        ("١٢".encode(), None),
        (b"2026-11-28T12:00:00Z", None),
        (b"1.7e12", None),
        (b"\xff" * 8, None),
        (b"\x00" * 7, None),
    ],
)
def test_a_time_is_digits_or_eight_bytes_and_all_else_is_none(content: bytes, due_ms: int | None) -> None:
    assert due_time(content) == due_ms


def test_what_is_not_due_is_found_and_what_is_due_is_not(part_of: Callable[..., FileRange]) -> None:
    records = [
        record(0),
        record(1, (NAME, text(LATER))),
        record(2, (NAME, text(NOW_MS))),
        record(3, (NAME, text(NOW_MS + 1))),
        record(4, (NAME, text(5))),
        record(5, ("other", text(LATER))),
        record(6, ("a", b"b"), (NAME, LATER.to_bytes(8, "big")), ("c", None)),
    ]
    looked, stats, turns = looked_at(part_of(build_batch(records)))
    assert looked == ([(1, LATER), (3, NOW_MS + 1), (6, LATER)], 7)
    assert (stats.walked_records, stats.unreadable, turns) == (7, 0, 1)


def test_records_without_key_or_value_and_of_any_size_are_passed_over(part_of: Callable[..., FileRange]) -> None:
    due = (NAME, text(LATER))
    records = [
        record(0, due, key=None),
        record(1, due, value=None),
        record(2, due, key=None, value=None),
        record(3, due, key=b"k" * 300, value=b"v" * 70_000),
        record(4, ("h" * 200, b"x" * 200), due),
        record(5, (NAME + "-not", text(LATER)), key=NAME.encode(), value=NAME.encode()),
        record(6, ("x", NAME.encode())),
    ]
    assert found(part_of(build_batch(records))) == [(offset, LATER) for offset in range(5)]


def test_the_last_of_several_headers_counts(part_of: Callable[..., FileRange]) -> None:
    records = [
        record(0, (NAME, text(LATER)), (NAME, text(5))),
        record(1, (NAME, text(5)), (NAME, text(LATER))),
        record(2, (NAME, text(LATER)), (NAME, b"soon")),
    ]
    looked, stats, _ = looked_at(part_of(build_batch(records)))
    assert looked.waiting == [(1, LATER)]
    assert stats.unreadable == 1


def test_a_header_that_is_no_time_is_due_at_once_and_counted(part_of: Callable[..., FileRange]) -> None:
    bad: list[bytes | None] = [b"tomorrow", None, b"", text(LATER * 1000)]
    records = [record(offset, (NAME, content)) for offset, content in enumerate(bad)]
    looked, stats, _ = looked_at(part_of(build_batch([*records, record(4, (NAME, text(LATER)))])))
    assert looked.waiting == [(4, LATER)]
    assert stats.unreadable == 4


@pytest.mark.parametrize("codec", list(CompressionType))
def test_a_batch_of_any_codec_at_any_offset_is_opened(
    codec: CompressionType, part_of: Callable[..., FileRange]
) -> None:
    batches = [
        build_batch(
            [record(first + n, *([(NAME, text(LATER + first + n))] * (n % 2))) for n in range(5)], compression=codec
        )
        for first in (1_000_000, 1_000_005, 1_000_020)
    ]
    looked, stats, _ = looked_at(part_of(*batches))
    assert looked.waiting == [
        (n, LATER + n) for n in (1_000_001, 1_000_003, 1_000_006, 1_000_008, 1_000_021, 1_000_023)
    ]
    assert looked.end == 1_000_025
    assert stats.opened_bytes == sum(map(len, batches))


def test_records_are_walked_over_only_where_the_name_stands(part_of: Callable[..., FileRange]) -> None:
    without = build_batch([record(n, ("other", b"1")) for n in range(50)])
    with_one = build_batch([record(50 + n, *([(NAME, text(LATER))] * (n == 7))) for n in range(10)])
    looked, stats, _ = looked_at(part_of(without, with_one))
    assert looked.waiting == [(57, LATER)]
    assert stats.walked_records == 10


def test_markers_of_transactions_are_no_records(part_of: Callable[..., FileRange]) -> None:
    marker = bytearray(
        build_transaction_marker(producer_id=1, producer_epoch=0, coordinator_epoch=1, is_commit=True, now_ms=1)
    )
    marker[:8] = (3).to_bytes(8, "big")
    looked, stats, _ = looked_at(part_of(build_batch([record(n) for n in range(3)]), bytes(marker)), name="")
    assert looked == ([], 4)
    assert stats.unopened_batches == 0


def test_a_batch_that_cannot_be_opened_is_due_at_once_and_others_are_not(part_of: Callable[..., FileRange]) -> None:
    due = (NAME, text(LATER))
    cut = bytearray(build_batch([record(1, due), record(2, due)]))
    cut[57:61] = (3).to_bytes(4, "big")  # it says three records
    cut[17:21] = crc32c(bytes(cut[21:])).to_bytes(4, "big")
    garbled = bytearray(build_batch([record(3, due)], compression=CompressionType.GZIP))
    garbled[70:80] = bytes(10)
    looked, stats, _ = looked_at(
        part_of(build_batch([record(0, due)]), bytes(cut), bytes(garbled), build_batch([record(4, due)]))
    )
    assert {offset for offset, _ in looked.waiting} >= {0, 4}
    assert 3 not in {offset for offset, _ in looked.waiting}
    assert (looked.end, stats.unopened_batches) == (5, 2)


def test_what_opens_to_more_than_the_bound_is_due_at_once(
    part_of: Callable[..., FileRange], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due_times, "OPENED_BYTES_MAX", 10_000)
    bomb = build_batch([record(0, (NAME, text(LATER)), value=bytes(100_000))], compression=CompressionType.GZIP)
    looked, stats, _ = looked_at(part_of(bomb, build_batch([record(1, (NAME, text(LATER)))])))
    assert looked == ([(1, LATER)], 2)
    assert stats.unopened_batches == 1


def test_a_read_ends_with_a_whole_batch_and_says_how_far_it_went(
    part_of: Callable[..., FileRange], monkeypatch: pytest.MonkeyPatch
) -> None:
    due = (NAME, text(LATER))
    batches = [build_batch([record(n, due, value=bytes(400))]) for n in range(5)]
    monkeypatch.setattr(due_times, "READ_BYTES", 2 * len(batches[0]) + 100)
    assert looked_at(part_of(*batches))[0] == ([(0, LATER), (1, LATER)], 2)
    monkeypatch.setattr(due_times, "READ_BYTES", 100)
    assert looked_at(part_of(*batches))[0] == ([(0, LATER)], 1), "one batch in any case"


def test_many_records_take_many_turns_and_none_is_missed(
    part_of: Callable[..., FileRange], monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = [build_batch([record(first + n, (NAME, text(LATER + n))) for n in range(700)]) for first in (0, 700)]
    looked, stats, turns = looked_at(part_of(*batches))
    assert [offset for offset, _ in looked.waiting] == list(range(1_400))
    assert stats.walked_records == 1_400
    assert turns == 1 + 1_400 // due_times.RECORDS_PER_TURN
    monkeypatch.setattr(due_times, "OPENED_PER_TURN", 1)
    assert looked_at(part_of(*batches), "absent")[2] == 2, "opening takes turns too"


def test_bytes_that_are_no_batch_are_an_error(part_of: Callable[..., FileRange]) -> None:
    with pytest.raises(CorruptBatch):
        looked_at(part_of(build_batch([record(0)])[:40]))
    with pytest.raises(CorruptBatch):
        looked_at(part_of(build_batch([record(0)])[:-1]))


async def test_records_are_opened_in_threads_and_counted(
    disk: RealDisk, part_of: Callable[..., FileRange], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[str] = set()
    real = walk

    def noted(*args: Any, **named: Any) -> Any:
        threads.add(threading.current_thread().name)
        return real(*args, **named)

    monkeypatch.setattr(due_times, "walk", noted)
    part = part_of(build_batch([record(n, (NAME, text(LATER))) for n in range(600)]))
    times = DueTimes(disk=disk)
    looked = await times.look(part, header=NAME, now_ms=NOW_MS)
    assert len(looked.waiting) == 600 and looked.end == 600
    assert threads and threading.main_thread().name not in threads
    assert (times.stats.waiting, times.stats.walked_records) == (600, 600)
    assert (await times.look(part, header=NAME, now_ms=LATER)).waiting == []
