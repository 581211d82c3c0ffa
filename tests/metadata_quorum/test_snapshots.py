"""Snapshots of running nodes, with real gRPC and real files: taken, cleaned, downloaded in slices, resumed, loaded."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from barnabas_broker.metadata.metadata_log import MetadataLog
from barnabas_broker.metadata.snapshot_files import checkpoint_name
from barnabas_quorum.driver import log_cleaner
from barnabas_quorum.driver.snapshot_content import snapshot_batches
from barnabas_quorum.driver.transport import Transport
from barnabas_quorum.errors import PeerUnreachable
from barnabas_quorum.raft.messages import FetchReply, FetchSnapshotReply, FetchSnapshotRequest, ReplyError, SnapshotId
from barnabas_wire.kafka.ids import BrokerId, Epoch
from tests.metadata_quorum.quorum_cluster import FAST, Cluster, Member, until

SMALL = dataclasses.replace(
    FAST, snapshot_after_bytes=3_000, retention_bytes=6_000, fetch_snapshot_bytes_max=500, snapshot_interval_ms=0
)
RECORDS = [b"record %03d of many " % number + Random(number).randbytes(100) for number in range(120)]
"""Which compression makes no smaller."""


async def commit_all(cluster: Cluster, records: list[bytes]) -> Member:
    leader = await cluster.leader()
    for start in range(0, len(records), 4):
        await cluster.commit(leader, records[start : start + 4])
    return leader


async def test_a_follower_behind_the_log_start_downloads_and_loads_a_snapshot(tmp_path: Path) -> None:
    async with Cluster(tmp_path, voters=3, observers=1, config=SMALL, segment_bytes=2_000) as cluster:
        leader = await cluster.leader()
        await cluster.commit(leader, [b"first"])
        await until(lambda: all(member.listener.records == [b"first"] for member in cluster.members))
        late = [cluster.members[3], next(m for m in cluster.members[:3] if m is not leader)]
        for member in late:
            await member.kill()
        await commit_all(cluster, RECORDS)
        await until(lambda: leader.node.log_start_offset > 10)
        for member in late:
            await member.start()
            assert member.node.log_start_offset == 0
        await until(lambda: all(member.listener.records == [b"first", *RECORDS] for member in late))
        for member in late:
            assert member.listener.snapshots_loaded == 1
            assert member.node.log_start_offset > 10
            assert member.node.snapshot_stats.loaded == 1
        assert sum(member.node.snapshot_stats.sent for member in cluster.members) >= len(late)
        assert 1 <= leader.node.stats.elections_won <= leader.node.stats.elections_begun
        assert leader.node.snapshot_stats.last_timestamp_ms > 0
        # and all goes on, from snapshot and log, after a restart of everybody
        for member in cluster.members:
            await member.kill()
        for member in cluster.members:
            await member.start()
        leader = await cluster.leader()
        await cluster.commit(leader, [b"last"])
        await cluster.all_have([b"first", *RECORDS, b"last"])
        assert all(member.listener.snapshots_loaded == 1 for member in cluster.members), "no proof from offset 0"
        for stats in (member.node.snapshot_stats for member in cluster.members):
            assert stats.last_bytes > 0 and stats.last_end_offset > 10 and stats.last_timestamp_ms > 0
        assert all(ids == [1, 2, 3] for ids in ([key.id for key in m.node.voters.keys] for m in cluster.members))


class Broken:
    """Loses the reply of every third slice."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.asked: list[tuple[SnapshotId, int]] = []
        self.describe = inner.describe
        self.change_voters = inner.change_voters
        self.close = inner.close

    async def call(self, request: Any, voter: Any, *, timeout_s: float) -> Any:
        reply = await self.inner.call(request, voter, timeout_s=timeout_s)
        if isinstance(request, FetchSnapshotRequest):
            self.asked.append((request.snapshot_id, request.position))
            if len(self.asked) % 3 == 0:
                raise PeerUnreachable("the connection was reset")
        return reply


async def test_a_download_goes_on_where_a_lost_reply_left_it(tmp_path: Path) -> None:
    async with Cluster(tmp_path, voters=1, observers=1, config=SMALL, segment_bytes=2_000) as cluster:
        late = cluster.members[1]
        await late.kill()
        broken: list[Broken] = []

        def wrap(transport: Transport, node_id: BrokerId) -> Transport:
            if node_id != late.key.id:
                return transport
            broken.append(Broken(transport))
            return broken[-1]

        cluster.wrap = wrap
        leader = await commit_all(cluster, RECORDS)
        await until(lambda: leader.node.log_start_offset > 10)
        await late.start()
        await until(lambda: late.listener.records == RECORDS)
        # the leader may have taken a newer snapshot meanwhile and dropped the first: then that one is begun
        last_id = broken[0].asked[-1][0]
        positions = [position for snapshot_id, position in broken[0].asked if snapshot_id == last_id]
        assert len(positions) > 6
        assert positions == sorted(positions), "never back to the beginning"
        again = [position for number, position in enumerate(positions[1:]) if position == positions[number]]
        assert again, "a lost slice is asked for again, at the same byte"


def is_there(directory: Path, name: str) -> bool:
    return any(directory.rglob(name))


def rot(directory: Path, name: str) -> None:
    (path,) = directory.rglob(name)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def vanish(directory: Path, name: str) -> None:
    (path,) = directory.rglob(name)
    path.unlink()


def cut(directory: Path, name: str, *, share: float) -> None:
    (path,) = directory.rglob(name)
    os.truncate(path, int(path.stat().st_size * share))


class Forgetful(Broken):
    """Has thrown away the first snapshot that was asked for, after its first slice."""

    async def call(self, request: Any, voter: Any, *, timeout_s: float) -> Any:
        reply: Any = await self.inner.call(request, voter, timeout_s=timeout_s)
        if isinstance(request, FetchSnapshotRequest):
            self.asked.append((request.snapshot_id, request.position))
            if request.snapshot_id == self.asked[0][0] and request.position > 0:
                return dataclasses.replace(reply, error=ReplyError.SNAPSHOT_NOT_FOUND, payload=b"")
        return reply


async def test_a_download_that_was_given_up_leaves_no_file(tmp_path: Path) -> None:
    async with Cluster(tmp_path, voters=1, observers=1, config=SMALL, segment_bytes=2_000) as cluster:
        late = cluster.members[1]
        await late.kill()
        made: list[Forgetful] = []

        def wrap(transport: Transport, node_id: BrokerId) -> Transport:
            if node_id != late.key.id:
                return transport
            made.append(Forgetful(transport))
            return made[-1]

        cluster.wrap = wrap
        leader = await commit_all(cluster, RECORDS[:60])
        await until(lambda: leader.node.log_start_offset > 10)
        await late.start()
        await until(lambda: any(position > 0 for _, position in made[0].asked))
        await commit_all(cluster, RECORDS[60:])
        await until(lambda: late.listener.records == RECORDS)
        given_up = checkpoint_name(made[0].asked[0][0])
        assert not is_there(tmp_path, f"{given_up}.part"), "an open file, and its bytes"


async def test_the_download_of_a_leader_that_changed_is_not_mixed_with_another(tmp_path: Path) -> None:
    """Whatever snapshot each leader has, what is loaded is whole and right."""
    async with Cluster(tmp_path, voters=3, config=SMALL, segment_bytes=2_000) as cluster:
        leader = await cluster.leader()
        late = next(member for member in cluster.members if member is not leader)
        await late.kill()
        await commit_all(cluster, RECORDS[:80])
        await late.start()
        await asyncio.sleep(0.02)
        await leader.node.resign()
        other = await cluster.leader(other_than=leader)
        for start in range(80, 120, 4):
            await cluster.commit(other, RECORDS[start : start + 4])
        await until(lambda: all(member.listener.records == RECORDS for member in cluster.members))


class Recovered(Broken):
    """Reaches the leader until `snapshot` is there; from then on a leader of that epoch which has nothing but this snapshot."""

    snapshot: tuple[SnapshotId, bytes] | None = None

    async def call(self, request: Any, voter: Any, *, timeout_s: float) -> Any:
        if self.snapshot is None:
            return await self.inner.call(request, voter, timeout_s=timeout_s)
        snapshot_id, data = self.snapshot
        end = snapshot_id.end_offset
        reported = (request.correlation, voter.key, request.source, snapshot_id.epoch, voter.key.id, ReplyError.NONE)
        if isinstance(request, FetchSnapshotRequest):
            return FetchSnapshotReply(*reported, snapshot_id, len(data), request.position, data[request.position :])
        await asyncio.sleep(0.01)
        if request.last_epoch == snapshot_id.epoch:
            return FetchReply(*reported, end, end, end)
        return FetchReply(*reported, end, request.fetch_offset, request.fetch_offset, snapshot_id=snapshot_id)


async def test_a_snapshot_of_a_recovered_quorum_replaces_as_many_records_that_are_lost_to_it(tmp_path: Path) -> None:
    """The observer had delivered just as many: it kept an image that nobody else has."""
    async with Cluster(tmp_path, voters=1, observers=1) as cluster:
        observer = cluster.members[1]
        await observer.kill()
        made: list[Recovered] = []

        def wrap(transport: Transport, node_id: BrokerId) -> Transport:
            made.append(Recovered(transport))
            return made[-1]

        cluster.wrap = wrap
        leader = await cluster.leader()
        await observer.start()
        await cluster.commit(leader, [b"kept", b"lost"])
        await until(lambda: observer.listener.records == [b"kept", b"lost"])
        snapshot_id = SnapshotId(observer.node.log_end_offset, Epoch(1_000))
        batches = snapshot_batches([[b"kept", b"other"]], epoch=snapshot_id.epoch, timestamp_ms=0, voters=None)
        made[0].snapshot = snapshot_id, b"".join(batches)
        await until(lambda: observer.listener.records == [b"kept", b"other"])


async def test_nothing_is_taken_while_the_listener_has_nothing_to_give(tmp_path: Path) -> None:
    """Within a metadata transaction the listener gives None; the snapshot comes when it ends."""
    async with Cluster(tmp_path, voters=1, config=SMALL) as cluster:
        member = cluster.members[0]
        take = member.listener.take_snapshot
        member.node._snapshots.writer._source = lambda: None
        leader = await commit_all(cluster, RECORDS[:40])
        assert not leader.log.snapshots()
        member.node._snapshots.writer._source = take
        await until(lambda: bool(leader.log.snapshots()))


async def test_a_snapshot_is_taken_by_time_alone_when_something_was_committed(tmp_path: Path) -> None:
    config = dataclasses.replace(FAST, snapshot_interval_ms=50)
    async with Cluster(tmp_path, voters=1, config=config) as cluster:
        leader = await cluster.leader()
        await cluster.commit(leader, [b"one"])
        await until(lambda: bool(leader.log.snapshots()))
        log: MetadataLog = leader.log
        taken = list(log.snapshots())
        await asyncio.sleep(0.2)
        assert list(log.snapshots()) == taken, "nothing new was committed"


async def test_the_leader_keeps_the_snapshot_that_somebody_downloads(tmp_path: Path) -> None:
    async with Cluster(tmp_path, voters=1, observers=1, config=SMALL, segment_bytes=2_000) as cluster:
        leader = await cluster.leader()
        observer = cluster.members[1]
        await observer.kill()
        await commit_all(cluster, RECORDS[:60])
        await until(lambda: leader.node.log_start_offset > 10)
        first = leader.log.snapshots()[0]
        epoch = leader.node.leader_and_epoch.epoch
        request = FetchSnapshotRequest(0, observer.key, leader.key, epoch, first, 0, 100)
        reply = await leader.node.handle(request)
        assert isinstance(reply, FetchSnapshotReply) and len(reply.payload) == 100
        taken = leader.node.snapshot_stats.taken
        await commit_all(cluster, RECORDS[60:])
        await until(lambda: leader.node.snapshot_stats.taken >= taken + 2)
        assert leader.log.snapshots()[0] == first
        request = FetchSnapshotRequest(0, observer.key, leader.key, epoch, first, 100, 100)
        reply = await leader.node.handle(request)
        assert isinstance(reply, FetchSnapshotReply) and len(reply.payload) == 100, "and it goes on"


async def test_a_snapshot_that_rots_while_it_is_written_ends_nothing(tmp_path: Path) -> None:
    async with Cluster(tmp_path, voters=1, config=SMALL, segment_bytes=2_000) as cluster:
        leader = await cluster.leader()
        files = leader.log._snapshots
        freeze = files.freeze

        async def rot_first(snapshot_id: SnapshotId) -> Any:
            rot(tmp_path, f"{checkpoint_name(snapshot_id)}.part")
            files.freeze = freeze  # type: ignore[method-assign]
            return await freeze(snapshot_id)

        files.freeze = rot_first  # type: ignore[method-assign]
        await commit_all(cluster, RECORDS)
        await until(lambda: bool(leader.log.snapshots()))
        assert leader.node.snapshot_stats.rotten == 1


async def test_the_log_does_not_begin_at_a_snapshot_that_vanished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start would have neither it nor what lies before it."""
    async with Cluster(tmp_path, voters=1, observers=1, config=SMALL, segment_bytes=2_000) as cluster:
        leader = await commit_all(cluster, RECORDS[:60])
        await until(lambda: leader.node.log_start_offset > 10)
        first, epoch = leader.log.snapshots()[0], leader.node.leader_and_epoch.epoch
        await leader.node.handle(FetchSnapshotRequest(0, cluster.members[1].key, leader.key, epoch, first, 0, 100))
        await commit_all(cluster, RECORDS[60:])
        await until(lambda: len(leader.log.snapshots()) > 1)
        lost = leader.log.snapshots()[1]
        vanish(tmp_path / f"node-{leader.key}", checkpoint_name(lost))
        monkeypatch.setattr(log_cleaner, "DOWNLOAD_PAUSE_MS_MAX", -1)
        await cluster.commit(leader, [b"last"])
        leader.node._snapshots.cleaner.want()
        await until(lambda: leader.node.snapshot_stats.rotten >= 1 and lost not in leader.log.snapshots())
        await leader.kill()
        await leader.start()
        await until(lambda: leader.listener.records == [*RECORDS, b"last"])


@pytest.mark.parametrize("is_only", [True, False])
@pytest.mark.parametrize("damage", [rot, vanish, partial(cut, share=0), partial(cut, share=0.5)])
async def test_a_snapshot_that_rots_on_the_leader_is_noticed_and_replaced(
    tmp_path: Path, is_only: bool, damage: Callable[[Path, str], None]
) -> None:
    """Whoever is behind would ask for it for ever, while the leader has all that is in it."""
    config = SMALL if is_only else dataclasses.replace(SMALL, retention_bytes=-1)
    async with Cluster(tmp_path, voters=1, observers=1, config=config, segment_bytes=2_000) as cluster:
        late = cluster.members[1]
        await late.kill()
        leader = await commit_all(cluster, RECORDS[:60])
        log = leader.log
        leader.node._snapshots.writer.want()
        await until(lambda: log.snapshots()[-1].end_offset == log.end_offset and (len(log.snapshots()) == 1) is is_only)
        rotten = log.snapshots()[-1]
        damage(tmp_path, checkpoint_name(rotten))
        await late.start()
        await until(lambda: leader.node.snapshot_stats.rotten == 1)
        await cluster.commit(leader, [b"more"])
        await until(lambda: late.listener.records == [*RECORDS[:60], b"more"])
        assert rotten not in log.snapshots()
        await until(lambda: not is_there(tmp_path, checkpoint_name(rotten)))
        taken = leader.node.snapshot_stats.taken
        await cluster.commit(leader, [b"and more"])
        await asyncio.sleep(0.1)
        assert leader.node.snapshot_stats.taken == taken, "one was wanted"
