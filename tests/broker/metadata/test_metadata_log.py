"""The metadata log on disk: hard state, torn tails, truncation."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from barnabas_broker.metadata.flush_marks import DAMAGED_SUFFIX, FLUSH_MARKS_FILE, encode_mark, last_mark
from barnabas_broker.metadata.metadata_log import MetadataLog
from barnabas_broker.metadata.metadata_log_opening import DamagedLog
from barnabas_broker.metadata.quorum_state import (
    QUORUM_STATE_FILE,
    DamagedQuorumState,
    decode_hard_state,
    encode_hard_state,
)
from barnabas_log.disk import RealDisk
from barnabas_quorum.driver.committed import data_batch
from barnabas_quorum.raft.damage import UNKNOWN_END, FlushMark, LogEnd
from barnabas_quorum.raft.journal import INITIAL_HARD_STATE, RaftLog, StoredBatch
from barnabas_quorum.raft.messages import EpochStart, HardState
from barnabas_quorum.raft.voters import ReplicaKey, Voter, VoterSet
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId, Epoch, Offset, Uuid
from barnabas_wire.records.batch import iterate_batches

BEGUN = HardState(Epoch(0), NO_BROKER, None, True)
VOTED = HardState(Epoch(7), NO_BROKER, ReplicaKey(BrokerId(3), Uuid(b"\3" * 16)))
PARTITION = "__cluster_metadata-0"


async def opened(directory: Path, *, formatted_voters: VoterSet | None = None) -> MetadataLog:
    is_new = not (directory / PARTITION).exists()
    log = await MetadataLog.open(
        disk=RealDisk(),
        metadata_directory=str(directory),
        now_ms=1_000,
        replica=ALONE,
        formatted_voters=formatted_voters,
    )
    if is_new:
        await begin(log)
    return log


async def begin(log: MetadataLog) -> None:
    """The quorum begins with this new log."""
    assert log.lost_end == UNKNOWN_END
    await log.save_hard_state(BEGUN)
    await log.note_regained()


def batches(*places: tuple[int, int, int]) -> list[StoredBatch]:
    """From (base offset, count, epoch)."""
    return [
        data_batch(
            [b"%d" % (base + index) for index in range(count)],
            base_offset=Offset(base),
            epoch=Epoch(epoch),
            timestamp_ms=5_000,
        )
        for base, count, epoch in places
    ]


LOG = ((0, 1, 1), (1, 3, 1), (4, 1, 2), (5, 2, 4))


async def test_the_log_keeps_its_promises(tmp_path: Path) -> None:
    log: RaftLog = await opened(tmp_path)
    assert (log.hard_state, log.end_offset, list(log.epoch_starts())) == (BEGUN, 0, [])
    made = batches(*LOG)
    log.append(made[:2])
    log.append(made[2:])
    assert await log.flush() == log.end_offset == 7
    assert list(log.epoch_starts()) == [EpochStart(Epoch(e), Offset(o)) for e, o in ((1, 0), (2, 4), (4, 5))]
    assert list(log.read(Offset(0), end_offset=Offset(7), bytes_max=1 << 20)) == made
    assert list(log.read(Offset(1), end_offset=Offset(5), bytes_max=1 << 20)) == made[1:3]
    assert list(log.read(Offset(2), end_offset=Offset(5), bytes_max=1)) == made[1:2], "at least one, and whole"
    assert list(log.read(Offset(7), end_offset=Offset(7), bytes_max=1)) == []
    await log.truncate_to(Offset(4))
    assert log.end_offset == 4
    assert list(log.epoch_starts()) == [EpochStart(Epoch(1), Offset(0))]
    other = batches((4, 2, 5))
    log.append(other)
    assert await log.flush() == 6
    assert list(log.read(Offset(0), end_offset=Offset(6), bytes_max=1 << 20)) == made[:2] + other
    await log.save_hard_state(VOTED)
    assert log.hard_state == VOTED
    await log.close()


async def test_an_empty_log_is_a_new_one_only_if_its_disk_says_that_the_quorum_began_with_it(tmp_path: Path) -> None:
    log = await MetadataLog.open(disk=RealDisk(), metadata_directory=str(tmp_path / "a"), now_ms=1_000)
    assert log.lost_end == UNKNOWN_END
    await log.close()
    log = await opened(tmp_path / "a")
    assert log.lost_end == UNKNOWN_END, "opening alone proves nothing"
    await begin(log)
    await log.close()
    log = await opened(tmp_path / "a")
    assert (log.lost_end, log.hard_state) == (None, BEGUN)
    log.append(batches(*LOG))
    await log.flush()
    await log.close()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    for path in (tmp_path / "a" / PARTITION).iterdir():
        if path.name != "quorum-state":
            path.unlink()
    log = await opened(tmp_path / "a")
    assert (log.lost_end, log.hard_state.has_begun) == (UNKNOWN_END, False), "what began is gone"
    log.append(batches((0, 2, 1)))
    await log.flush()
    await log.close()
    log = await opened(tmp_path / "a")
    assert (log.end_offset, log.lost_end) == (2, UNKNOWN_END), "it was being filled again"
    await log.note_regained()
    await log.close()
    log = await opened(tmp_path / "a")
    assert (log.end_offset, log.lost_end) == (2, None)
    await log.close()
    (tmp_path / "b" / PARTITION / "quorum-state").unlink()
    log = await opened(tmp_path / "b")
    assert (log.end_offset, log.lost_end) == (7, UNKNOWN_END), "it may have voted in any epoch"
    await log.close()


async def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    log = await opened(tmp_path)
    log.append(batches(*LOG))
    await log.save_hard_state(VOTED)
    await log.close()
    again = await opened(tmp_path)
    assert again.hard_state == VOTED
    assert again.end_offset == 7
    assert [start.epoch for start in again.epoch_starts()] == [1, 2, 4]
    await again.close()


async def test_torn_tail_is_cut_at_every_byte(tmp_path: Path) -> None:
    log = await opened(tmp_path / "whole")
    made = batches((0, 1, 1), (1, 2, 2))
    log.append(made)
    await log.flush()
    first = len(made[0].data)
    segment = f"{PARTITION}/{0:020d}.log"
    for size in range(first, first + len(made[1].data)):
        copy = tmp_path / f"cut-{size}"
        shutil.copytree(tmp_path / "whole", copy)
        os.truncate(copy / segment, size)
        torn = await opened(copy)
        assert (torn.end_offset, [s.epoch for s in torn.epoch_starts()]) == (1, [1])
        torn.append(made[1:])
        assert list(torn.read(Offset(0), end_offset=Offset(3), bytes_max=1 << 20)) == made
        await torn.close()
        shutil.rmtree(copy)
    await log.close()


def test_hard_state_file_is_kafkas() -> None:
    assert encode_hard_state(VOTED) == (
        b'{"leaderId": -1, "leaderEpoch": 7, "votedId": 3, "votedDirectoryId": "AwMDAwMDAwMDAwMDAwMDAw", '
        b'"data_version": 1}'
    )
    for state in (VOTED, INITIAL_HARD_STATE, BEGUN, HardState(Epoch(1), BrokerId(2), None)):
        assert decode_hard_state(encode_hard_state(state), path="x") == state


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"data_version": 0}', encode_hard_state(VOTED)[:-5]])
async def test_damaged_hard_state_stops_the_node(tmp_path: Path, content: bytes) -> None:
    log = await opened(tmp_path)
    await log.save_hard_state(VOTED)
    await log.close()
    (tmp_path / PARTITION / QUORUM_STATE_FILE).write_bytes(content)
    with pytest.raises(DamagedQuorumState, match="vote twice"):
        await opened(tmp_path)


ALONE = ReplicaKey(BrokerId(1), Uuid(b"\1" * 16))
ONE_VOTER = VoterSet([Voter(ALONE, "localhost", 9093)])


def flip(directory: Path, offset_of_batch: int) -> Path:
    """Turn one bit of the batch that begins at this offset, in its records."""
    segment = directory / PARTITION / f"{0:020d}.log"
    data = bytearray(segment.read_bytes())
    position = next(at for at, header in iterate_batches(data) if header.base_offset == offset_of_batch)
    data[position + 65] ^= 4
    segment.write_bytes(data)
    return segment


def marks_bytes(directory: Path) -> int:
    return next(directory.rglob("flush-marks")).stat().st_size


async def written(directory: Path) -> None:
    log = await opened(directory)
    log.append(batches(*LOG))
    await log.flush()
    await log.close()


async def test_damage_to_flushed_records_is_no_unfinished_write(tmp_path: Path) -> None:
    await written(tmp_path)
    segment = flip(tmp_path, 1)
    whole = segment.read_bytes()
    log = await opened(tmp_path)
    assert log.end_offset == 1, "what cannot be read is cut, and all behind it"
    assert log.lost_end == LogEnd(Epoch(4), Offset(7))
    kept = (tmp_path / PARTITION / f"{1:020d}{DAMAGED_SUFFIX}").read_bytes()
    assert whole.endswith(kept) and len(kept) == len(whole) - len(segment.read_bytes())
    await log.close()
    log = await opened(tmp_path)
    assert log.lost_end == LogEnd(Epoch(4), Offset(7)), "a second restart still knows"
    log.append(batches(*LOG)[1:])
    await log.flush()
    await log.note_regained()
    await log.close()
    log = await opened(tmp_path)
    assert (log.end_offset, log.lost_end) == (7, None)
    await log.close()


@pytest.mark.parametrize("cut_bytes", [1, 200])
async def test_flushed_records_that_are_not_there_are_damage_too(tmp_path: Path, cut_bytes: int) -> None:
    await written(tmp_path)
    segment = tmp_path / PARTITION / f"{0:020d}.log"
    os.truncate(segment, segment.stat().st_size - cut_bytes)
    log = await opened(tmp_path)
    assert log.end_offset < 7 and log.lost_end == LogEnd(Epoch(4), Offset(7))
    await log.close()


async def test_only_voter_refuses_to_go_on_without_what_was_flushed(tmp_path: Path) -> None:
    await written(tmp_path)
    segment = flip(tmp_path, 4)
    before = segment.read_bytes()
    with pytest.raises(DamagedLog, match=r"offset 7.*offset 4 on.*\.log is damaged at byte \d+.*flush-marks"):
        await opened(tmp_path, formatted_voters=ONE_VOTER)
    assert segment.read_bytes() == before, "nothing is changed before a person has decided"
    (tmp_path / PARTITION / FLUSH_MARKS_FILE).unlink()
    log = await opened(tmp_path, formatted_voters=ONE_VOTER)
    assert (log.end_offset, log.lost_end) == (4, None), "a person gave the rest up"
    await log.close()


async def test_write_that_no_flush_covered_is_cut_without_a_word(tmp_path: Path) -> None:
    disk = RealDisk()
    log = await MetadataLog.open(disk=disk, metadata_directory=str(tmp_path), now_ms=1_000)
    await begin(log)
    made = batches(*LOG)
    log.append(made[:3])
    await log.flush()
    await log.settle()
    log.append(made[3:])
    lost_with_power = tmp_path.with_name(f"{tmp_path.name}-after")
    shutil.copytree(tmp_path, lost_with_power)
    await log.close()
    flip(lost_with_power, 5)
    log = await opened(lost_with_power, formatted_voters=ONE_VOTER)
    assert (log.end_offset, log.lost_end) == (5, None)
    await log.close()


async def test_flush_that_was_under_way_is_not_counted_before_it_is_settled(tmp_path: Path) -> None:
    log = await opened(tmp_path)
    made = batches(*LOG)
    log.append(made[:3])
    await log.flush()
    log.append(made[3:])
    await log.flush()
    under_way, settled = (
        tmp_path.with_name(f"{tmp_path.name}-under_way"),
        tmp_path.with_name(f"{tmp_path.name}-settled"),
    )
    shutil.copytree(tmp_path, under_way)
    await log.settle()
    shutil.copytree(tmp_path, settled)
    await log.close()
    for directory, lost in ((under_way, None), (settled, LogEnd(Epoch(4), Offset(7)))):
        flip(directory, 5)
        log = await opened(directory)
        assert (log.end_offset, log.lost_end) == (5, lost)
        await log.close()


async def after_power_cut(path: Path, log: MetadataLog) -> MetadataLog:
    """The log as a copy of its files has it at this moment."""
    copy = path.with_name(f"{path.name}-after")
    shutil.copytree(path, copy)
    await log.close()
    return await opened(copy)


async def test_cut_that_a_leader_ordered_is_no_damage(tmp_path: Path) -> None:
    await written(tmp_path)
    log = await opened(tmp_path)
    await log.truncate_to(Offset(4))
    log = await after_power_cut(tmp_path, log)
    assert (log.end_offset, log.lost_end) == (4, None)
    await log.close()


async def test_a_quiet_moment_in_the_middle_of_a_cut_does_not_make_it_damage(tmp_path: Path) -> None:
    """`settle` is a task of its own. Were it to note the old end behind the cut's mark, a crash now would leave a voter that does
    not run for election for want of records that no leader has."""
    await written(tmp_path)
    log = await opened(tmp_path)
    cut = asyncio.ensure_future(log.truncate_to(Offset(4)))
    await asyncio.sleep(0)
    assert not cut.done() and log.end_offset == 7, "its mark is on the way to the disk"
    await log.settle()
    await cut
    log = await after_power_cut(tmp_path, log)
    assert (log.end_offset, log.lost_end) == (4, None)
    await log.close()


async def test_marks_do_not_pile_up_and_the_last_one_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas_broker.metadata.flush_marks.MARKS_BYTES_MAX", 100)
    log = await opened(tmp_path)
    for batch in batches(*((offset, 1, 1) for offset in range(20))):
        log.append([batch])
        await log.flush()
        assert marks_bytes(tmp_path) <= 100 + 2 * 36
    lost_with_power = tmp_path.with_name(f"{tmp_path.name}-after")
    shutil.copytree(tmp_path, lost_with_power)
    await log.close()
    flip(lost_with_power, 18)
    log = await opened(lost_with_power)
    assert (log.end_offset, log.lost_end) == (18, LogEnd(Epoch(1), Offset(20)))
    await log.close()


def test_torn_mark_leaves_the_one_before() -> None:
    first = FlushMark(Offset(5), LogEnd(Epoch(2), Offset(7)), None)
    second = FlushMark(Offset(7), LogEnd(Epoch(3), Offset(9)), LogEnd(Epoch(2), Offset(30)))
    data = encode_mark(first) + encode_mark(second)
    assert last_mark(data) == second
    assert {last_mark(data[:size]) for size in range(len(data) // 2, len(data))} == {first}
    assert last_mark(data[:-1] + bytes([data[-1] ^ 1])) == first
    assert last_mark(b"") is last_mark(data[:20]) is None


async def test_log_that_gives_nothing_back_does_not_hang_the_search_for_voters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await written(tmp_path)
    monkeypatch.setattr("barnabas_broker.metadata.metadata_log_opening.iterate_batches", lambda data: iter(()))
    with pytest.raises(DamagedLog, match="gives nothing back at 0"):
        async with asyncio.timeout(20):
            await opened(tmp_path)
