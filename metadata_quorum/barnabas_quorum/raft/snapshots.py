"""The rules of snapshots: which replica needs one, which may be taken, when the log's beginning may be deleted.

May touch:  its arguments.            Must not touch: asyncio, clock, files, network.
Invariants: a snapshot contains committed records only; once the log does not begin at 0, the oldest snapshot ends where it
            begins.
Read next:  downloading.py.

The bootstrap checkpoint 0-0 is not a snapshot in this sense: it is never listed and never sent (KIP-853).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from barnabas_quorum.raft.epoch_history import EpochHistory
from barnabas_quorum.raft.messages import EpochStart, SnapshotId
from barnabas_wire.kafka.ids import Epoch, Offset


def needed(
    snapshots: Sequence[SnapshotId], *, log_start: Offset, fetch_offset: Offset, last_epoch: Epoch
) -> SnapshotId | None:
    """The snapshot that a replica must have before it can fetch at `fetch_offset`, whose log ends in `last_epoch`.

    None when it can be served from the log. An empty replica gets a snapshot whenever there is one: it is cheaper than
    the log (KIP-630; KIP-853 for the empty replica). It gets the latest one, which leaves the least to fetch.
    """
    if not snapshots:
        return None
    oldest = snapshots[0]
    is_needed = (
        fetch_offset == 0
        or fetch_offset < log_start
        or (fetch_offset == log_start and last_epoch != oldest.epoch)
        or last_epoch < oldest.epoch
    )
    return snapshots[-1] if is_needed else None


def refusal(
    snapshot_id: SnapshotId,
    *,
    snapshots: Sequence[SnapshotId],
    history: EpochHistory,
    log_start: Offset,
    high_watermark: Offset,
) -> str | None:
    """Why this snapshot must not be taken (or, if just taken, not kept); None when it may (KIP-630)."""
    end_offset, epoch = snapshot_id
    if end_offset > high_watermark:
        return (
            f"snapshot {snapshot_id} contains records that are not committed (the high watermark is {high_watermark})"
        )
    if end_offset < log_start or end_offset == 0:
        return f"snapshot {snapshot_id} ends before the log's start {log_start}"
    if snapshot_id in snapshots:
        return f"snapshot {snapshot_id} already exists"
    if history.epoch_before(end_offset) != epoch:
        return f"snapshot {snapshot_id} names an epoch that did not write offset {end_offset - 1}"
    if epoch < (recovered := history.recovered_epoch()):
        # A replica that begins with it would have the uncertain end of the survivor's log without the gap behind it.
        return f"snapshot {snapshot_id} ends before the quorum was recovered, in epoch {recovered}"
    return None


class SnapshotFile(NamedTuple):
    """A snapshot, with what cleaning needs to know."""

    snapshot_id: SnapshotId
    size_bytes: int
    written_ms: int
    """Wall clock."""


def next_log_start(
    files: Sequence[SnapshotFile], *, log_bytes: int, now_ms: int, bytes_max: int, age_ms_max: int
) -> SnapshotId | None:
    """The snapshot at which the log may begin, so that older snapshots can be deleted; None when all may stay (KIP-630).

    One step at a time: the driver calls it again after each deletion. The newest snapshot always stays.

    Args:
        files: ascending; `log_bytes` is the size of the log beside them; `now_ms` is wall clock.
        bytes_max, age_ms_max: the retention (metadata.max.retention.bytes, .ms); negative means no limit.
    """
    if len(files) < 2:
        return None
    size_bytes = log_bytes + sum(file.size_bytes for file in files)
    is_too_big = 0 <= bytes_max < size_bytes
    is_too_old = 0 <= age_ms_max < now_ms - files[0].written_ms
    return files[1].snapshot_id if is_too_big or is_too_old else None


def restart_point(
    snapshots: Sequence[SnapshotId], *, epoch_starts: Sequence[EpochStart], log_start: Offset, end_offset: Offset
) -> SnapshotId | None:
    """The snapshot at which the log must restart empty when the disk is opened; None when log and snapshots agree.

    A crash may come between freezing a download and restarting the log. A snapshot is committed, so a log that ends before it
    or has another epoch there is stale or divergent, however high its own epochs are.

    Args:
        snapshots: frozen ones on the disk, ascending, without 0-0.
        epoch_starts, log_start, end_offset: the log's, as found.
    """
    if not snapshots:
        return None
    latest = snapshots[-1]
    if latest.end_offset > end_offset:
        return latest
    if latest.end_offset <= log_start:
        # What lay before it is not there to be compared any more; what is behind it cannot be older than it.
        is_older = end_offset > latest.end_offset and any(start.epoch < latest.epoch for start in epoch_starts)
        return latest if is_older else None
    written = [start for start in epoch_starts if start.start_offset < latest.end_offset]
    return None if written and written[-1].epoch == latest.epoch else latest
