"""A .txnindex that is not what was written: its entries come from the markers again, and no aborted record is read as committed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from barnabas_log.config import LogManagerConfig
from barnabas_log.directories.manager import LogManager
from barnabas_log.memory_disk import MemoryDisk
from barnabas_log.recovery import aborted_proof
from barnabas_log.tail import truncating
from barnabas_log.tail.aborted_transactions import AbortedTransaction
from barnabas_log.unified_log import UnifiedLog
from barnabas_wire.kafka.ids import Offset, TopicPartition
from tests.log.test_transactions_in_a_log import end, write
from tests.support.logs import DIRECTORY, NOW_MS, append, content, flush, make_config, open_log

CONFIG = make_config(segment_bytes=1200)


def path(base: int, suffix: str) -> str:
    return f"{DIRECTORY}/{base:020d}{suffix}"


def with_transactions(disk: MemoryDisk, *, count: int = 24) -> UnifiedLog:
    """Several segments, most with aborted transactions, some of which begin in the segment before; flushed."""
    log = open_log(disk, config=CONFIG)
    random = Random(3)
    for number in range(count):
        write(log, 7)
        write(log, 8)
        append(log)
        end(log, 7, is_commit=bool(number % 3))
        if random.random() < 0.6:
            end(log, 8, is_commit=not number % 4)
    flush(log)
    log.update_high_watermark(log.log_end_offset)
    assert sum(1 for base in log.base_offsets[:-1] if disk.exists(path(base, ".txnindex"))) > 3
    return log


def aborted_by_segment(log: UnifiedLog) -> dict[int, list[AbortedTransaction]]:
    bases = [*log.base_offsets, log.log_end_offset]
    return {
        base: [each for each in log.aborted if base <= each.last_offset < following]
        for base, following in pairwise(bases)
    }


Damage = Callable[[MemoryDisk, str], None]


def _missing(disk: MemoryDisk, name: str) -> None:
    disk.remove(name)


def _set(change: Callable[[bytes], bytes]) -> Damage:
    def apply(disk: MemoryDisk, name: str) -> None:
        disk.names[name].content[:] = change(bytes(disk.names[name].content))

    return apply


def _flip(position: int, bit: int) -> Damage:
    return _set(lambda data: data[:position] + bytes([data[position] ^ 1 << bit]) + data[position + 1 :])


FORMS: dict[str, Damage] = {
    "missing": _missing,
    "empty": _set(lambda data: b""),
    "an entry short": _set(lambda data: data[:-34]),
    "cut": _set(lambda data: data[:-3]),
    "zeros": _set(lambda data: bytes(len(data))),
    "garbage": _set(lambda data: b"\xa5" * len(data)),
    "doubled": _set(lambda data: data + data),
    "garbage behind": _set(lambda data: data + b"\x00" * 34),
    "another producer": _flip(9, 1),
    "a later beginning": _flip(17, 0),
    "a higher stable offset": _flip(29, 4),
}


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_a_damaged_file_is_made_again_from_its_segment(
    form: str, is_clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    disk = MemoryDisk()
    log = with_transactions(disk)
    known, good = list(log.aborted), {}
    bases, at = log.base_offsets, log.log_end_offset
    log.close()
    for base in bases:
        name = path(base, ".txnindex")
        if not disk.exists(name):
            continue
        good[name] = bytes(disk.names[name].content)
        FORMS[form](disk, name)
        caplog.clear()
        again = open_log(disk, config=CONFIG, is_clean_shutdown=is_clean, recovery_point=at, high_watermark=at)
        assert list(again.aborted) == known, f"{name} {form}"
        assert disk.read_file(name) == good[name]
        if is_clean or base != bases[-1]:
            assert f"{base:020d}.txnindex is lost or damaged" in caplog.text
        again.close()
    assert len(good) > 3


def test_each_bit_of_a_file_counts() -> None:
    disk = MemoryDisk()
    log = with_transactions(disk, count=8)
    known, at = list(log.aborted), log.log_end_offset
    base = next(base for base in log.base_offsets if disk.exists(path(base, ".txnindex")))
    log.close()
    name = path(base, ".txnindex")
    good = bytes(disk.names[name].content)
    for position in range(len(good)):
        for bit in range(8):
            _flip(position, bit)(disk, name)
            again = open_log(disk, config=CONFIG, is_clean_shutdown=True, recovery_point=at, high_watermark=at)
            assert list(again.aborted) == known and bytes(disk.names[name].content) == good, (position, bit)


@pytest.mark.parametrize("form", ["missing", "empty", "cut", "zeros", "garbage"])
def test_a_damaged_note_costs_nothing(form: str) -> None:
    disk = MemoryDisk()
    log = with_transactions(disk)
    known, at = list(log.aborted), log.log_end_offset
    base = next(base for base in log.base_offsets if disk.exists(path(base, ".txncheck")))
    log.close()
    FORMS[form](disk, path(base, ".txncheck"))
    again = open_log(disk, config=CONFIG, is_clean_shutdown=True, recovery_point=at, high_watermark=at)
    assert list(again.aborted) == known


def test_a_file_of_another_partition_is_not_believed() -> None:
    disk, other = MemoryDisk(), MemoryDisk()
    log = with_transactions(disk)
    known, at, base = list(log.aborted), log.log_end_offset, log.base_offsets[1]
    log.close()
    theirs = open_log(other, config=CONFIG)
    write(theirs, 9)
    marker = end(theirs, 9, is_commit=False)
    flush(theirs)
    assert marker < log.base_offsets[2]
    disk.names[path(base, ".txnindex")].content[:] = other.read_file(path(0, ".txnindex"))
    again = open_log(disk, config=CONFIG, is_clean_shutdown=True, recovery_point=at, high_watermark=at)
    assert list(again.aborted) == known


def test_sound_files_are_believed_without_a_look_at_their_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start of a broker with many segments costs what it cost."""
    disk = MemoryDisk()
    log = with_transactions(disk)
    at = log.log_end_offset
    log.close()
    walked: list[int] = []
    original = aborted_proof.read_aborted

    def read(*rest: Any) -> list[AbortedTransaction] | None:
        walked.append(rest[3])
        return original(*rest)

    monkeypatch.setattr(aborted_proof, "read_aborted", read)
    open_log(disk, config=CONFIG, is_clean_shutdown=True, recovery_point=at, high_watermark=at)
    assert not walked
    base = log.base_offsets[2]
    disk.remove(path(base, ".txnindex"))
    open_log(disk, config=CONFIG, is_clean_shutdown=True, recovery_point=at, high_watermark=at)
    assert walked == [base], "and of a damaged one, only its own segment is read"


def test_a_log_that_was_cut_and_grew_again_has_notes_of_what_it_is_now() -> None:
    disk = MemoryDisk()
    log = with_transactions(disk)
    log.close()
    log = open_log(disk, config=CONFIG, is_clean_shutdown=True, recovery_point=log.log_end_offset)
    truncating.truncate_to(log, log.base_offsets[3])
    for _ in range(12):
        write(log, 8)
        append(log)
        end(log, 8, is_commit=True)
    flush(log)
    known, at = list(log.aborted), log.log_end_offset
    log.close()
    again = open_log(disk, config=CONFIG, is_clean_shutdown=True, recovery_point=at, high_watermark=at)
    assert list(again.aborted) == known and not again.aborted.unsound


async def served(disk: MemoryDisk) -> tuple[LogManager, UnifiedLog]:
    manager = LogManager(
        disk=disk,
        directories=["data"],
        default_config=CONFIG,
        clock_ms=lambda: NOW_MS,
        config=LogManagerConfig(reserve_bytes=64),
    )
    await manager.load()
    return manager, manager.logs[TopicPartition("orders", 0)]


@pytest.mark.parametrize("has_notes", [True, False])
@pytest.mark.parametrize("form", FORMS)
async def test_the_scrub_compares(form: str, has_notes: bool) -> None:
    """Also of a former version's files, which have no notes and are believed at the start where they look like some."""
    disk = MemoryDisk()
    log = with_transactions(disk)
    known, bases = list(log.aborted), log.base_offsets
    base = next(base for base in bases[1:-1] if len(aborted_by_segment(log)[base]) > 1)
    log.close()
    name = path(base, ".txnindex")
    good = disk.read_file(name)
    if has_notes:
        manager, again = await served(disk)
        FORMS[form](disk, name)
    else:
        for each in bases:
            if disk.exists(path(each, ".txncheck")):
                disk.remove(path(each, ".txncheck"))
        FORMS[form](disk, name)
        manager, again = await served(disk)
    for each in bases[:-1]:
        await manager.repairs.check(again, each)
    if form == "missing" and not has_notes:
        return  # nobody can know that there was one, but by reading all of a log that has transactions
    assert list(again.aborted) == known and disk.read_file(name) == good
    assert disk.exists(path(base, ".txncheck")) and not again.aborted.unproved
    assert content(again)


def test_a_damaged_file_beside_a_damaged_segment_keeps_what_it_says() -> None:
    disk = MemoryDisk()
    log = with_transactions(disk)
    at, base = log.log_end_offset, log.base_offsets[2]
    log.close()
    disk.names[path(base, ".log")].content[8:12] = b"\x00\x00\x00\x01"
    FORMS["garbage behind"](disk, path(base, ".txnindex"))
    again = open_log(disk, config=CONFIG, is_clean_shutdown=True, recovery_point=Offset(at), high_watermark=at)
    assert [each for each in again.aborted if each.last_offset >= base] and base in again.aborted.unproved
