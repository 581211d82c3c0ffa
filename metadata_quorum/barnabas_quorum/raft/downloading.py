"""A follower that the log cannot serve downloads a snapshot slice by slice, which then replaces its whole log (KIP-630).

May touch:  the Replica it is given.  Must not touch: asyncio, clock, random generators, log, network.
Invariants: only a follower installs, never below its high watermark; after a lost reply it asks again from the same byte;
            slices of two leaders are never combined; the core's state changes only when the driver has installed.
Read next:  snapshots.py, the rules; following.py, which sends.
"""

from __future__ import annotations

from barnabas_quorum.raft.epoch_history import EpochHistory
from barnabas_quorum.raft.messages import (
    FetchSnapshotReply,
    FetchSnapshotRequest,
    ReplyError,
    SnapshotId,
    SnapshotInstall,
    SnapshotPart,
)
from barnabas_quorum.raft.replica import Replica
from barnabas_quorum.raft.roles import Download, Follower
from barnabas_quorum.raft.voters import ReplicaKey

DROPPING_ERRORS = frozenset(
    {
        ReplyError.SNAPSHOT_NOT_FOUND,
        ReplyError.POSITION_OUT_OF_RANGE,
        ReplyError.FENCED_LEADER_EPOCH,
        ReplyError.UNKNOWN_LEADER_EPOCH,
        ReplyError.INVALID_REQUEST,
    }
)
"""The leader will never serve the rest: return to an ordinary fetch, whose reply says what to do instead."""


def begin(core: Replica, role: Follower, snapshot_id: SnapshotId) -> None:
    """The leader has no records for this log's end, only a snapshot."""
    assert snapshot_id.end_offset >= core.high_watermark, (
        f"ordered to load snapshot {snapshot_id}, below the high watermark {core.high_watermark}"
    )
    core.download = Download(snapshot_id)
    role.is_caught_up = False


def request(core: Replica, leader: ReplicaKey, download: Download) -> FetchSnapshotRequest:
    """The next slice; the one in flight has this correlation."""
    return FetchSnapshotRequest(
        core.fetch_correlation,
        core.fetch_key,
        leader,
        core.epoch,
        download.snapshot_id,
        download.position,
        core.timing.fetch_snapshot_bytes_max,
    )


def take_slice(core: Replica, reply: FetchSnapshotReply) -> None:
    """Write the slice; after the last one the snapshot replaces the log."""
    download = core.download
    length = len(reply.payload)
    if download is None or not is_next_slice(reply, download, length=length):
        give_up(core)  # damaged in transit, or a different file from before
        return
    core.snapshot_parts.append(SnapshotPart(download.snapshot_id, download.position, reply.payload))
    download.size = reply.size
    download.position += length
    if download.position == download.size:
        core.install = SnapshotInstall(download.snapshot_id)


def is_next_slice(reply: FetchSnapshotReply, download: Download, *, length: int) -> bool:
    """Whether a slice continues the download and belongs to the same file."""
    return (
        reply.snapshot_id == download.snapshot_id
        and reply.position == download.position
        and 0 < length <= reply.size - reply.position
        and download.size in (-1, reply.size)
    )


def give_up(core: Replica) -> None:
    """Start again after a pause, a longer one each time: the leader's own file may be damaged."""
    core.download = None
    core.fetch_due_ms = core.now_ms + core.backoff_ms()
    core.bad_downloads += 1


def finish(core: Replica, install: SnapshotInstall) -> None:
    """The driver has replaced the log with the snapshot, or found the snapshot damaged."""
    role = core.role
    assert isinstance(role, Follower), f"{role} loads a snapshot"
    if install.is_damaged:
        give_up(core)
        return
    core.download = None
    core.bad_downloads = 0
    end_offset, epoch = install.snapshot_id
    assert end_offset >= core.high_watermark, f"snapshot {install.snapshot_id} below the high watermark"
    assert core.flushed_end == core.end_offset and not core.appends, "a snapshot meets a flush in flight"
    core.log_start = core.end_offset = core.flushed_end = core.high_watermark = end_offset
    core.snapshots = [install.snapshot_id]
    core.history = EpochHistory(start_offset=end_offset, start_epoch=epoch)
    core.voter_history.restart(end_offset, install.voters)
    core.use_last_voters()
    core.note_regained()
