"""The metadata log on a full disk: its reserve first, then it waits, and promises nothing until what it wrote is there."""

from __future__ import annotations

import asyncio

import pytest

from barnabas_broker.metadata import metadata_log
from barnabas_broker.metadata.metadata_log import RESERVE_FILE, MetadataLog
from barnabas_quorum.raft.journal import StoredBatch
from barnabas_wire.kafka.ids import Epoch, Offset
from tests.broker.metadata.test_metadata_log import VOTED, batches, begin
from tests.log.test_disk_space import FullDisk
from tests.support.turns import turns

DIRECTORY = "node/__cluster_metadata-0"


async def opened(disk: FullDisk) -> MetadataLog:
    is_new = not disk.names
    log = await MetadataLog.open(disk=disk, metadata_directory="node", now_ms=1_000)
    if is_new:
        await begin(log)
    return log


def more(first: int, last: int) -> list[StoredBatch]:
    return batches(*((base, 1, 1) for base in range(first, last)))


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_log, "ROOM_RETRY_S", 0)


async def test_the_reserve_is_used_first_and_kept_again_when_there_is_room() -> None:
    disk = FullDisk()
    log = await opened(disk)
    assert f"{DIRECTORY}/{RESERVE_FILE}" in disk.names
    disk.left = 0
    log.append(more(0, 5))
    await log.written()
    assert (await log.flush(), log.end_offset) == (5, 5)
    await log.save_hard_state(VOTED)
    assert f"{DIRECTORY}/{RESERVE_FILE}" not in disk.names
    disk.left = 1 << 40
    await log.settle()
    assert f"{DIRECTORY}/{RESERVE_FILE}" in disk.names
    await log.close()


async def test_without_reserve_it_waits_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_log, "RESERVE_BYTES", 0)
    for left in (0, 40, 100, 170):
        disk = FullDisk()
        log = await opened(disk)
        log.append(more(0, 3))
        await log.written()
        assert await log.flush() == 3
        disk.left = left
        log.append(more(3, 9))
        waiting = asyncio.ensure_future(log.written())
        saving = asyncio.ensure_future(log.save_hard_state(VOTED))
        await turns(50)
        assert not waiting.done() and (left > 100 or not saving.done())
        disk.left = 1 << 20
        await asyncio.gather(waiting, saving)
        assert (await log.flush(), log.hard_state) == (9, VOTED)
        ends = [batch.end_offset for batch in log.read(Offset(0), end_offset=Offset(9), bytes_max=1 << 20)]
        assert ends == list(range(1, 10))
        assert log.epoch_starts()[0].epoch == Epoch(1)
        await log.close()
        again = await opened(disk)
        assert (again.end_offset, again.hard_state, again.lost_end) == (9, VOTED, None)
        await again.close()


async def test_a_flush_without_room_for_its_mark_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_log, "RESERVE_BYTES", 0)
    disk = FullDisk()
    log = await opened(disk)
    log.append(more(0, 3))
    await log.written()
    disk.left = 5
    flushing = asyncio.ensure_future(log.flush())
    await turns(50)
    assert not flushing.done()
    disk.left = 1 << 20
    assert await flushing == 3
    await log.close()


async def test_what_is_no_want_of_room_is_raised() -> None:
    disk = FullDisk()
    log = await opened(disk)
    disk.fail_on = lambda operation, path: operation == "write"
    with pytest.raises(OSError, match="injected"):
        await log.save_hard_state(VOTED)
