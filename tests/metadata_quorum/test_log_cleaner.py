"""What others download stays for a while, and not for ever; what is outdated goes at once."""

from __future__ import annotations

import dataclasses
from typing import Any

from barnabas_quorum.config import QuorumConfig
from barnabas_quorum.driver.log_cleaner import DOWNLOAD_MS_MAX, DOWNLOAD_PAUSE_MS_MAX, LogCleaner
from barnabas_quorum.driver.snapshot_content import DamagedSnapshot
from barnabas_quorum.driver.snapshots import SnapshotStats
from barnabas_quorum.raft.messages import SnapshotId
from barnabas_quorum.raft.snapshots import SnapshotFile
from barnabas_wire.kafka.ids import Epoch, Offset

FIRST, SECOND, THIRD = (SnapshotId(Offset(end), Epoch(1)) for end in (10, 20, 30))


class Replica:
    """A core and its log, which begin at the same snapshot."""

    size_bytes = 0

    def __init__(self) -> None:
        self.snapshots = [FIRST, SECOND, THIRD]
        self.dropped: list[SnapshotId] = []
        self.reported: list[int] = []
        self.rotten: list[SnapshotId] = []

    def snapshot_files(self) -> list[SnapshotFile]:
        return [SnapshotFile(found, 1000, 0) for found in self.snapshots]

    def log_start_moved(self, offset: Offset, now_ms: int) -> None:
        self.reported.append(offset)

    async def prove_snapshot(self, snapshot_id: SnapshotId) -> None:
        if snapshot_id in self.rotten:
            raise DamagedSnapshot("a bit has flipped")

    async def delete_before(self, snapshot_id: SnapshotId) -> None:
        assert self.reported[-1] == snapshot_id.end_offset, "the core knows it first"
        self.snapshots = [found for found in self.snapshots if found.end_offset >= snapshot_id.end_offset]

    async def drop_snapshot(self, snapshot_id: SnapshotId) -> None:
        self.dropped.append(snapshot_id)


def made(*, retention_bytes: int = 1500) -> tuple[LogCleaner, Replica]:
    """Its retention has room for one snapshot."""
    replica: Any = Replica()
    config = dataclasses.replace(QuorumConfig(), retention_bytes=retention_bytes, retention_ms=-1)
    cleaner = LogCleaner(
        config=config,
        core=replica,
        log=replica,
        clock_ms=lambda: 0,
        on_rotten=replica.snapshots.remove,
        stats=SnapshotStats(),
    )
    return cleaner, replica


async def test_the_log_begins_at_the_newest_snapshot_that_retention_leaves() -> None:
    cleaner, replica = made()
    assert not cleaner.is_wanted
    cleaner.want()
    assert cleaner.is_wanted
    await cleaner.clean(now_ms=0, is_loading=False)
    assert replica.snapshots == [THIRD] and not cleaner.is_wanted


async def test_nothing_goes_while_this_node_itself_loads_but_what_was_outdated() -> None:
    cleaner, replica = made()
    cleaner.want()
    cleaner.drop(FIRST)
    await cleaner.clean(now_ms=0, is_loading=True)
    assert replica.snapshots == [FIRST, SECOND, THIRD] and replica.dropped == [FIRST]
    assert cleaner.is_wanted, "it is looked at again when that is done"


async def test_a_snapshot_that_is_downloaded_stays_until_nobody_asks_for_it_any_more() -> None:
    cleaner, replica = made()
    cleaner.on_slice_served(SECOND, now_ms=1_000)
    await cleaner.clean(now_ms=2_000, is_loading=False)
    assert replica.snapshots == [SECOND, THIRD], "what is older than it goes"
    cleaner.on_slice_served(SECOND, now_ms=1_000 + DOWNLOAD_PAUSE_MS_MAX)
    await cleaner.clean(now_ms=1_000 + 2 * DOWNLOAD_PAUSE_MS_MAX, is_loading=False)
    assert replica.snapshots == [SECOND, THIRD]
    await cleaner.clean(now_ms=1_001 + 2 * DOWNLOAD_PAUSE_MS_MAX, is_loading=False)
    assert replica.snapshots == [THIRD]


async def test_a_download_that_never_ends_does_not_keep_a_snapshot_for_ever() -> None:
    cleaner, replica = made()
    for now_ms in range(0, DOWNLOAD_MS_MAX + 1, DOWNLOAD_PAUSE_MS_MAX):
        cleaner.on_slice_served(FIRST, now_ms=now_ms)
        await cleaner.clean(now_ms=now_ms, is_loading=False)
        assert replica.snapshots[0] == FIRST
    cleaner.on_slice_served(FIRST, now_ms=DOWNLOAD_MS_MAX + 1)
    await cleaner.clean(now_ms=DOWNLOAD_MS_MAX + 1, is_loading=False)
    assert replica.snapshots == [THIRD]


async def test_a_log_does_not_begin_at_a_rotten_snapshot_for_longer_than_it_must() -> None:
    cleaner, replica = made(retention_bytes=-1)
    cleaner.on_slice_served(FIRST, now_ms=0)
    cleaner.end_rotten(FIRST)
    await cleaner.clean(now_ms=1, is_loading=False)
    assert replica.snapshots == [SECOND, THIRD], "though somebody downloads it; and no other has to go"


async def test_the_log_does_not_begin_at_a_snapshot_that_the_disk_has_lost() -> None:
    """The records before it would be gone, and the snapshot that held them."""
    cleaner, replica = made()
    replica.rotten = [SECOND]
    await cleaner.clean(now_ms=0, is_loading=False)
    assert (replica.snapshots, replica.reported) == ([FIRST, THIRD], [])
    await cleaner.clean(now_ms=1, is_loading=False)
    assert (replica.snapshots, replica.reported) == ([THIRD], [30])


async def test_a_later_download_has_its_own_time() -> None:
    cleaner, replica = made()
    cleaner.on_slice_served(FIRST, now_ms=0)
    cleaner.on_slice_served(FIRST, now_ms=DOWNLOAD_MS_MAX)
    await cleaner.clean(now_ms=DOWNLOAD_MS_MAX + 1, is_loading=False)
    assert replica.snapshots[0] == FIRST
