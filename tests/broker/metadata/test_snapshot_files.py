"""Snapshots on disk: whole or not there, after a crash at any step; where the log begins; what opening makes of damage."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from barnabas_broker.metadata.metadata_log import MetadataLog
from barnabas_broker.metadata.snapshot_files import checkpoint_name
from barnabas_log.memory_disk import MemoryDisk
from barnabas_quorum.driver.committed import data_batch
from barnabas_quorum.driver.control_batches import control_batch, voters_records
from barnabas_quorum.driver.snapshot_content import (
    DamagedSnapshot,
    SnapshotRecords,
    prove_snapshot,
    snapshot_batches,
)
from barnabas_quorum.raft.journal import StoredBatch
from barnabas_quorum.raft.messages import EpochStart, SnapshotId
from barnabas_quorum.raft.snapshots import SnapshotFile, next_log_start
from barnabas_quorum.raft.voters import ReplicaKey, Voter, VoterSet
from barnabas_wire.kafka.ids import BrokerId, Epoch, Offset, Uuid
from tests.broker.metadata.test_metadata_log import begin

DIRECTORY = "node/__cluster_metadata-0"


def voter_set(*ids: int, removed: tuple[int, ...] = ()) -> VoterSet:
    def key(node_id: int) -> ReplicaKey:
        return ReplicaKey(BrokerId(node_id), Uuid(bytes([node_id]) * 16))

    return VoterSet([Voter(key(i), "host", 9000 + i) for i in ids], kraft_version=1, removed=[key(i) for i in removed])


VOTERS = voter_set(1, 2, 3, removed=(9,))
GROUPS = [(b"a", b"b"), (b"c" * 3000,), (b"d",)]


def content(epoch: int, *, voters: VoterSet | None = VOTERS) -> bytes:
    return b"".join(snapshot_batches(GROUPS, epoch=Epoch(epoch), timestamp_ms=77, voters=voters))


def reader(data: bytes) -> Callable[[int, int], bytes]:
    return lambda position, size: data[position : position + size]


def at(end_offset: int, epoch: int) -> SnapshotId:
    return SnapshotId(Offset(end_offset), Epoch(epoch))


def batches(first: int, last: int, *, epoch: int = 1) -> list[StoredBatch]:
    """One batch per offset."""
    return [
        data_batch([b"%d" % offset + bytes(40)], base_offset=Offset(offset), epoch=Epoch(epoch), timestamp_ms=5)
        for offset in range(first, last)
    ]


async def opened(disk: MemoryDisk, *, segment_bytes: int = 1 << 30) -> MetadataLog:
    disk.make_directory("node")
    disk.make_names_durable("")
    is_new = not disk.exists("node/__cluster_metadata-0")
    log = await MetadataLog.open(disk=disk, metadata_directory="node", now_ms=1, segment_bytes=segment_bytes)
    if is_new:
        await begin(log)
    return log


async def write(log: MetadataLog, snapshot_id: SnapshotId, *, slice_bytes: int = 100) -> None:
    data = content(snapshot_id.epoch)
    for position in range(0, len(data), slice_bytes):
        log.write_snapshot_part(snapshot_id, position, data[position : position + slice_bytes])


def read_all(log: MetadataLog) -> list[StoredBatch]:
    """All batches; one read ends with its segment."""
    read: list[StoredBatch] = []
    offset = log.log_start_offset
    while offset < log.end_offset:
        read += log.read(offset, end_offset=log.end_offset, bytes_max=1 << 20)
        offset = read[-1].end_offset
    return read


def test_what_is_written_is_read_and_proved() -> None:
    data = content(4)
    records = SnapshotRecords(reader(data), name="it")
    assert list(records.groups()) == GROUPS
    assert records.head == (77, 1, VOTERS, -1)
    none = content(4, voters=None)
    assert prove_snapshot(reader(none), name="it") == (77, 0, None, -1)


def test_a_snapshot_cut_or_changed_at_any_byte_is_refused() -> None:
    data = content(4)
    uncovered = set()
    for cut in range(len(data)):
        with pytest.raises(DamagedSnapshot):
            prove_snapshot(reader(data[:cut]), name="it")
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 0x10
        try:
            prove_snapshot(reader(bytes(changed)), name="it")
        except DamagedSnapshot:
            continue
        uncovered.add(place)
    # Kafka's format leaves the epoch of a batch out of its checksum
    starts = [0]
    while starts[-1] < len(data):
        starts.append(starts[-1] + 12 + int.from_bytes(data[starts[-1] + 8 : starts[-1] + 12], "big"))
    assert uncovered <= {start + byte for start in starts for byte in range(12, 16)}


async def test_the_log_begins_at_its_oldest_snapshot_and_ends_as_before() -> None:
    disk = MemoryDisk()
    log = await opened(disk, segment_bytes=400)
    log.append(batches(0, 30))
    control = control_batch(voters_records(voter_set(1, 2)), base_offset=Offset(30), epoch=Epoch(2), timestamp_ms=5)
    log.append([StoredBatch(Offset(30), Offset(32), Epoch(2), control)])
    log.append(batches(32, 40, epoch=2))
    await log.flush()
    for end_offset in (10, 20):
        await write(log, at(end_offset, 1))
        assert await log.freeze_snapshot(at(end_offset, 1)) == VOTERS
    assert list(log.snapshots()) == [at(10, 1), at(20, 1)]
    assert log.log_start_offset == 0
    await log.delete_before(at(20, 1))
    assert (log.log_start_offset, log.end_offset, list(log.snapshots())) == (20, 40, [at(20, 1)])
    assert f"{DIRECTORY}/{checkpoint_name(at(10, 1))}" not in disk.names
    assert not any(name.endswith(f"{0:020d}.log") for name in disk.names)
    await log.close()

    again = await opened(disk, segment_bytes=400)
    assert (again.log_start_offset, again.end_offset, list(again.snapshots())) == (20, 40, [at(20, 1)])
    assert list(again.epoch_starts()) == [EpochStart(Epoch(1), Offset(20)), EpochStart(Epoch(2), Offset(30))]
    assert list(again.voter_sets()) == [(19, VOTERS), (31, voter_set(1, 2))]
    read = read_all(again)
    assert (read[0].base_offset, read[-1].end_offset) == (20, 40)
    await again.close()


async def test_opening_proves_only_what_lies_behind_the_newest_snapshot() -> None:
    disk = MemoryDisk()
    log = await opened(disk, segment_bytes=400)
    log.append(batches(0, 60))
    await log.flush()
    for end_offset in (10, 50):
        await write(log, at(end_offset, 1))
        await log.freeze_snapshot(at(end_offset, 1))
    await log.close()
    whole = sum(len(inode.content) for name, inode in disk.names.items() if name.endswith(".log"))
    again = await opened(disk, segment_bytes=400)
    assert 0 < again._log.recovery_report.scanned_bytes < whole / 3
    assert again.end_offset == 60
    await again.close()


async def test_a_download_replaces_the_whole_log() -> None:
    disk = MemoryDisk()
    log = await opened(disk)
    log.append(batches(0, 7))
    await log.flush()
    await write(log, at(50, 3))
    assert await log.install_snapshot(at(50, 3)) == VOTERS
    assert (log.log_start_offset, log.end_offset) == (50, 50)
    await log.close()
    log = await opened(disk)
    assert (log.log_start_offset, log.end_offset) == (50, 50)
    assert list(log.epoch_starts()) == [EpochStart(Epoch(3), Offset(50))], "known before the first record is there"
    log.append(batches(50, 55, epoch=3))
    assert await log.flush() == 55
    await log.close()
    again = await opened(disk)
    assert (again.log_start_offset, again.end_offset) == (50, 55)
    assert list(again.epoch_starts()) == [EpochStart(Epoch(3), Offset(50))]
    await again.close()


async def test_a_damaged_download_leaves_the_log_alone() -> None:
    disk = MemoryDisk()
    log = await opened(disk)
    log.append(batches(0, 7))
    await log.flush()
    log.write_snapshot_part(at(50, 3), 0, content(3)[:-1])
    with pytest.raises(DamagedSnapshot):
        await log.install_snapshot(at(50, 3))
    assert (log.log_start_offset, log.end_offset, list(log.snapshots())) == (0, 7, [])
    assert not any(".checkpoint" in name for name in disk.names)
    await log.close()


async def test_a_damaged_snapshot_gives_way_to_an_older_one_and_to_an_error_when_there_is_none() -> None:
    disk = MemoryDisk()
    log = await opened(disk, segment_bytes=400)
    log.append(batches(0, 40))
    await log.flush()
    for end_offset in (20, 30):
        await write(log, at(end_offset, 1))
        await log.freeze_snapshot(at(end_offset, 1))
    await log.delete_before(at(20, 1))
    await log.close()
    disk.names[f"{DIRECTORY}/{checkpoint_name(at(30, 1))}"].content[100] ^= 1
    again = await opened(disk, segment_bytes=400)
    assert (list(again.snapshots()), again.log_start_offset, again.end_offset) == ([at(20, 1)], 20, 40)
    await again.close()
    disk.names[f"{DIRECTORY}/{checkpoint_name(at(20, 1))}"].content[100] ^= 1
    with pytest.raises(DamagedSnapshot, match="are lost here; another node has them") as refused:
        await opened(disk, segment_bytes=400)
    why = str(refused.value)
    assert f"{DIRECTORY}/{checkpoint_name(at(20, 1))} is damaged at byte " in why
    steps = ["are lost here", f"move {DIRECTORY} away", "quorum remove-voter", "quorum add-voter", "quorum recover"]
    assert [step for step in steps if step not in why] == []


@pytest.mark.parametrize("bytes_left", [None, 0, 60])
async def test_a_snapshot_that_is_gone_or_cut_is_the_first_to_go(bytes_left: int | None) -> None:
    """Looking at the retention ended the node; and the log must not begin there."""
    disk = MemoryDisk()
    log = await opened(disk)
    log.append(batches(0, 40))
    await log.flush()
    for end_offset in (20, 30):
        await write(log, at(end_offset, 1))
        await log.freeze_snapshot(at(end_offset, 1))
    path = f"{DIRECTORY}/{checkpoint_name(at(20, 1))}"
    if bytes_left is None:
        disk.remove(path)
    else:
        del disk.names[path].content[bytes_left:]
    with pytest.raises(FileNotFoundError if bytes_left is None else DamagedSnapshot):
        await log.prove_snapshot(at(20, 1))
    await log.prove_snapshot(at(30, 1))
    files = log.snapshot_files()
    assert files == [SnapshotFile(at(20, 1), 0, 0), SnapshotFile(at(30, 1), len(content(1)), 77)]
    assert next_log_start(files, log_bytes=0, now_ms=99, bytes_max=-1, age_ms_max=50) == at(30, 1)


async def test_a_snapshot_under_the_name_of_another_is_damage() -> None:
    """Replayed from the wrong offset on, the log does not fit to it, and the node serves nothing for good."""
    disk = MemoryDisk()
    log = await opened(disk)
    log.append(batches(0, 40))
    await log.flush()
    for end_offset in (20, 30):
        parts = snapshot_batches(GROUPS, epoch=Epoch(1), timestamp_ms=77, voters=None, end_offset=end_offset)
        log.write_snapshot_part(at(end_offset, 1), 0, b"".join(parts))
        await log.freeze_snapshot(at(end_offset, 1))
    older, newest = (f"{DIRECTORY}/{checkpoint_name(at(each, 1))}" for each in (20, 30))
    disk.write_file_atomically(newest, disk.read_file(older))
    with pytest.raises(DamagedSnapshot, match="ends at offset 20"):
        await log.prove_snapshot(at(30, 1))
    await log.close()
    again = await opened(disk)
    assert again.snapshots() == [at(20, 1)]
    await again.close()


async def test_a_gap_below_the_log_start_is_not_taken_for_the_end() -> None:
    """A crash while segments are dropped may keep an older one and lose a later one."""
    disk = MemoryDisk()
    log = await opened(disk, segment_bytes=400)
    log.append(batches(0, 40))
    await log.flush()
    bases = log._log.base_offsets
    start = bases[4]
    await write(log, at(start, 1))
    await log.freeze_snapshot(at(start, 1))
    await log.close()
    del disk.names[f"{DIRECTORY}/{bases[3]:020d}.log"]
    again = await opened(disk, segment_bytes=400)
    assert (again.log_start_offset, again.end_offset) == (start, 40)
    await again.close()


async def test_slices_may_come_again_from_any_place_but_not_with_a_gap() -> None:
    log = await opened(MemoryDisk())
    data = content(3)
    log.write_snapshot_part(at(50, 3), 0, data[:300])
    log.write_snapshot_part(at(50, 3), 100, data[100:200])
    with pytest.raises(AssertionError, match="gap"):
        log.write_snapshot_part(at(50, 3), 201, data[201:])
    log.write_snapshot_part(at(50, 3), 200, data[200:])
    await log.install_snapshot(at(50, 3))
    assert log.read_snapshot(at(50, 3), 0, 1 << 20) == (len(data), data)
    assert log.read_snapshot(at(50, 3), 10, 5) == (len(data), data[10:15])
    assert log.read_snapshot(at(50, 3), len(data), 5) == (len(data), b"")
    with pytest.raises(FileNotFoundError):
        log.read_snapshot(at(51, 3), 0, 1)
    await log.close()


# --- crashes ----------------------------------------------------------------------------------------------------------


class Crashed(Exception):
    """The lights went out here."""


class CrashingDisk(MemoryDisk):
    """Loses power at its nth step: before a rename, a removal or a flush is carried out."""

    def __init__(self) -> None:
        super().__init__()
        self.steps_left = -1

    def _step(self) -> None:
        if self.steps_left == 0:
            raise Crashed
        self.steps_left -= 1

    def rename(self, source: object, target: object) -> None:
        self._step()
        super().rename(source, target)

    def remove(self, path: object) -> None:
        self._step()
        super().remove(path)

    def flush(self, files: object) -> Awaitable[None]:
        self._step()
        return super().flush(files)  # type: ignore[arg-type]

    def write_file_atomically(self, path: object, data: bytes) -> None:
        self._step()
        super().write_file_atomically(path, data)


async def _freeze(log: MetadataLog) -> None:
    await log.freeze_snapshot(at(30, 1))


async def _clean(log: MetadataLog) -> None:
    await log.freeze_snapshot(at(30, 1))
    await log.delete_before(at(30, 1))


async def _install(log: MetadataLog) -> None:
    await log.install_snapshot(at(90, 4))


@pytest.mark.parametrize(("action", "written"), [(_freeze, (30, 1)), (_clean, (30, 1)), (_install, (90, 4))])
async def test_a_crash_at_any_step_leaves_a_log_and_a_snapshot_that_fit(
    action: Callable[[MetadataLog], Awaitable[None]], written: tuple[int, int]
) -> None:
    """Whatever name or byte the crash keeps: what was durable is still there, in the log or in a snapshot below it."""
    finished = False
    step = 0
    while not finished:
        for seed in range(5):
            disk = CrashingDisk()
            log = await opened(disk, segment_bytes=400)
            log.append(batches(0, 20))
            await log.flush()
            await write(log, at(10, 1))
            await log.freeze_snapshot(at(10, 1))
            log.append(batches(20, 40))
            await log.flush()
            durable_end = log._log.flushed_end_offset
            await write(log, at(*written))
            disk.steps_left = step
            try:
                await action(log)
                finished = True
            except Crashed:
                finished = False
            after = disk.crash(Random(seed))
            again = await opened(after, segment_bytes=400)
            newest = again.snapshots()[-1]
            where = f"step {step}, seed {seed}"
            assert newest in (at(10, 1), at(*written)), where
            prove_snapshot(reader(again.read_snapshot(newest, 0, 1 << 20)[1]), name=where)
            assert again.log_start_offset in (10, written[0]), where
            assert again.log_start_offset == again.snapshots()[0].end_offset, where
            assert again.end_offset >= (durable_end if newest == at(10, 1) else newest.end_offset), where
            if finished:
                assert newest == at(*written), where
                assert again.end_offset == (90 if action is _install else durable_end)
            ends = [batch.end_offset for batch in read_all(again)]
            assert ends == list(range(again.log_start_offset + 1, again.end_offset + 1)), where
            again.append(batches(again.end_offset, again.end_offset + 3, epoch=5))
            await again.flush()
            await again.close()
        step += 1
    assert step >= 4, "the crash fell nowhere"
    await asyncio.sleep(0)


@pytest.mark.parametrize("end", [30, 40], ids=["the log ends with it", "the log goes on"])
async def test_of_two_snapshots_with_one_end_the_newer_counts_after_a_crash(end: int) -> None:
    """The older is of the log that was replaced, as in a quorum that was recovered: its file may outlive a crash."""
    disk = CrashingDisk()
    log = await opened(disk)
    log.append(batches(0, end))
    await log.flush()
    await write(log, at(30, 1))
    await log.freeze_snapshot(at(30, 1))
    await write(log, at(30, 7))
    disk.steps_left = 3  # two flushes and the rename make the snapshot whole
    with pytest.raises(Crashed):
        await log.install_snapshot(at(30, 7))
    again = await opened(disk.crash(Random(1)))
    assert list(again.snapshots()) == [at(30, 7)]
    assert (again.log_start_offset, again.end_offset) == (30, 30)
    assert list(again.epoch_starts()) == [EpochStart(Epoch(7), Offset(30))]
    await again.close()


@pytest.mark.parametrize("is_cut_short", [False, True], ids=["installed", "crash before the log is dropped"])
async def test_epochs_of_a_log_that_was_replaced_do_not_count_after_a_crash(is_cut_short: bool) -> None:
    """Epoch 4 wrote what no majority took, and was on disk beside the epochs that count. Were it taken for the log's after its
    replacement, all records of epoch 1 behind the snapshot would be a torn end."""
    disk = CrashingDisk()
    log = await opened(disk)
    log.append(batches(0, 10))
    log.append(batches(10, 20, epoch=4))
    await log.flush()
    await write(log, at(10, 1))
    await log.freeze_snapshot(at(10, 1))
    await log.truncate_to(Offset(10))
    await write(log, at(15, 1))
    if is_cut_short:
        disk.steps_left = 3  # two flushes and the rename make the snapshot whole
        with pytest.raises(Crashed):
            await log.install_snapshot(at(15, 1))
        log = await opened(disk.crash(Random(1)))
        disk = log._disk  # type: ignore[assignment]
    else:
        await log.install_snapshot(at(15, 1))
    assert (log.log_start_offset, log.end_offset) == (15, 15)
    log.append(batches(15, 18))
    await log.flush()
    again = await opened(disk.crash(Random(1)))
    assert (again.end_offset, again.lost_end) == (18, None)
    assert list(again.epoch_starts()) == [EpochStart(Epoch(1), Offset(15))]
    await again.close()
