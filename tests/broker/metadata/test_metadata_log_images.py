"""The metadata log's directory, each file cut at every byte, zeroed, missing or with garbage behind it: opening refuses in words of its
own, or gives what was written. The lengths of the log's segments and indexes are those of tests/log/recovery_fuzz.py too; here it is
what the quorum needs: hard state, flush marks, what was lost.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from random import Random

import pytest

from barnabas_broker.metadata.flush_marks import FLUSH_MARKS_FILE, last_mark
from barnabas_broker.metadata.metadata_log import RESERVE_FILE, MetadataLog
from barnabas_broker.metadata.metadata_log_opening import DamagedLog
from barnabas_broker.metadata.quorum_state import QUORUM_STATE_FILE, DamagedQuorumState
from barnabas_log.memory_disk import Inode, MemoryDisk
from barnabas_quorum.driver.snapshot_content import DamagedSnapshot
from barnabas_quorum.raft.damage import UNKNOWN_END
from barnabas_quorum.raft.messages import HardState
from barnabas_quorum.raft.voters import ReplicaKey, Voter, VoterSet
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId, Epoch, Uuid
from tests.broker.metadata.test_metadata_log import LOG, batches, begin

DIRECTORY = "meta"
SEGMENT_BYTES = 250
REPLICA = ReplicaKey(BrokerId(1), Uuid(b"\1" * 16))
VOTERS = VoterSet(
    [Voter(ReplicaKey(BrokerId(i), Uuid(bytes([i]) * 16)), f"n{i}", 1) for i in (1, 2, 3)], kraft_version=1
)
ALONE = VoterSet([Voter(REPLICA, "n1", 1)], kraft_version=1)
VOTED = HardState(Epoch(7), NO_BROKER, REPLICA)
WRITTEN = batches(*LOG)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


async def opened(disk: MemoryDisk, voters: VoterSet) -> MetadataLog:
    return await MetadataLog.open(
        disk=disk,
        metadata_directory=DIRECTORY,
        now_ms=1_000,
        segment_bytes=SEGMENT_BYTES,
        replica=REPLICA,
        formatted_voters=voters,
    )


async def written() -> dict[str, bytes]:
    disk = MemoryDisk()
    disk.make_directory(DIRECTORY)
    log = await opened(disk, VOTERS)
    await begin(log)
    for batch in WRITTEN:
        log.append([batch])
        await log.flush()
    await log.save_hard_state(VOTED)
    return {path: bytes(inode.content) for path, inode in disk.names.items()}


def images(files: dict[str, bytes]) -> Iterator[tuple[str, str, dict[str, bytes]]]:
    """(what, which file, files)."""
    for path, data in sorted(files.items()):
        for size in (0, 1) if path.endswith(RESERVE_FILE) else range(len(data)):
            yield f"{path} cut to {size} bytes", path, files | {path: data[:size]}
            yield f"{path} zero from byte {size} on", path, files | {path: data[:size] + bytes(len(data) - size)}
        yield f"{path} with garbage behind it", path, files | {path: data + b"\xa5" * 70}
        yield f"{path} missing", path, {each: content for each, content in files.items() if each != path}


def disk_of(files: dict[str, bytes]) -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directory(f"{DIRECTORY}/__cluster_metadata-0")
    for path, data in files.items():
        inode = disk.names[path] = Inode()
        inode.content += data
        inode.durable = data
    disk.durable_names = dict(disk.names)
    return disk


@pytest.mark.parametrize("voters", [VOTERS, ALONE], ids=["one of three", "alone"])
async def test_a_damaged_directory_is_refused_or_gives_what_was_written(voters: VoterSet) -> None:
    files = await written()
    mark = last_mark(files[f"{DIRECTORY}/__cluster_metadata-0/{FLUSH_MARKS_FILE}"])
    assert mark is not None
    marked = mark.flushed_end  # a mark goes with its flush, and tells of the one before
    assert marked > 0
    opens = refusals = 0
    for what, path, image in images(files):
        try:
            log = await opened(disk_of(image), voters)
        except DamagedQuorumState:
            assert path.endswith(QUORUM_STATE_FILE), what
            refusals += 1
            continue
        except DamagedSnapshot:
            assert path.endswith(f"{0:020d}.log") and path not in image, f"{what}: the log's beginning is there"
            refusals += 1
            continue
        except DamagedLog:
            assert voters is ALONE and path.endswith((".log", FLUSH_MARKS_FILE)), what
            refusals += 1
            continue
        opens += 1
        if path.endswith(QUORUM_STATE_FILE) and path not in image:
            unknown = UNKNOWN_END if voters is VOTERS else None
            assert log.lost_end == unknown, (
                "whether a vote was given nobody can say: it asks before it votes, unless it is alone"
            )
        else:
            assert log.hard_state == VOTED, what
        found = list(log.read(log.log_start_offset, end_offset=log.end_offset, bytes_max=1 << 20))
        assert found == WRITTEN[: len(found)], what
        if path.endswith(".log"):
            assert log.end_offset >= marked or log.lost_end is not None, f"{what}: loss is not known"
        else:
            assert log.end_offset == 7, f"{what}: the log ends at {log.end_offset}"
        await log.close()
    assert opens > 500 and refusals > 20


async def test_a_replica_that_has_caught_up_is_whole_after_a_power_cut_too() -> None:
    """A leader that has heard it in its own name makes it a voter, and the two may need its vote."""
    disk = disk_of({path: data for path, data in (await written()).items() if not path.endswith(QUORUM_STATE_FILE)})
    log = await opened(disk, VOTERS)
    assert log.lost_end == UNKNOWN_END
    await log.save_hard_state(VOTED)
    await log.note_regained()
    for seed in range(8):
        again = await opened(disk.crash(Random(seed)), VOTERS)
        assert again.lost_end is None
