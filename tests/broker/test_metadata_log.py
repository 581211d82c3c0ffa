"""The metadata log on disk: hard state, torn tails, truncation."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from barnabas_broker.node.metadata_log import (
    QUORUM_STATE_FILE,
    DamagedQuorumState,
    MetadataLog,
    decode_hard_state,
    encode_hard_state,
)
from barnabas_log.disk import RealDisk
from barnabas_quorum.driver.committed import data_batch
from barnabas_quorum.raft.journal import INITIAL_HARD_STATE, RaftLog, StoredBatch
from barnabas_quorum.raft.messages import EpochStart, HardState
from barnabas_quorum.raft.voters import ReplicaKey
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId, Epoch, Offset, Uuid

VOTED = HardState(Epoch(7), NO_BROKER, ReplicaKey(BrokerId(3), Uuid(b"\3" * 16)))
PARTITION = "__cluster_metadata-0"


async def opened(directory: Path) -> MetadataLog:
    return await MetadataLog.open(disk=RealDisk(), metadata_directory=str(directory), now_ms=1_000)


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
    assert (log.hard_state, log.end_offset, list(log.epoch_starts())) == (INITIAL_HARD_STATE, 0, [])
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
    for state in (VOTED, INITIAL_HARD_STATE, HardState(Epoch(1), BrokerId(2), None)):
        assert decode_hard_state(encode_hard_state(state), path="x") == state


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"data_version": 0}', encode_hard_state(VOTED)[:-5]])
async def test_damaged_hard_state_stops_the_node(tmp_path: Path, content: bytes) -> None:
    log = await opened(tmp_path)
    await log.save_hard_state(VOTED)
    await log.close()
    (tmp_path / PARTITION / QUORUM_STATE_FILE).write_bytes(content)
    with pytest.raises(DamagedQuorumState, match="vote twice"):
        await opened(tmp_path)
