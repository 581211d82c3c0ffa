"""What is known of the metadata log's directory before and as it is opened: where it begins, what is damaged, who votes.

May touch:  the Disk, blocking; the UnifiedLog, reading only.   Must not touch: asyncio, what the open log does later.
Invariants: nothing that was flushed is cut before it is judged; a voter that is alone opens no log that lost flushed records;
            the log begins where the oldest whole snapshot ends, and at 0 where there is none.
Read next:  metadata_log.py, which calls these in order; flush_marks.py; barnabas_quorum/raft/damage.py, the rule.

Not obvious:
- A node that joins a recovered quorum may have its own snapshot that ends where the one it loads does. With both, the
  log began with the epoch of the old one and the voters of the new one.
- A crash while segments are dropped may keep an older one and lose a later one. What lies wholly below the log start is
  removed before the log is opened, or its recovery would take the gap for the end.
"""

from __future__ import annotations

import logging
from itertools import pairwise

from barnabas_broker.metadata.flush_marks import FLUSH_MARKS_FILE, Damage, keep_damaged, scan_log
from barnabas_broker.metadata.snapshot_files import SnapshotFiles
from barnabas_log.disk import Disk
from barnabas_log.recovery.recovery import starts_over_at
from barnabas_log.tail.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, segment_path
from barnabas_log.unified_log import UnifiedLog
from barnabas_quorum.driver.control_batches import voter_sets_in
from barnabas_quorum.driver.snapshot_content import DamagedSnapshot, SnapshotHead
from barnabas_quorum.raft.damage import UNKNOWN_END, FlushMark
from barnabas_quorum.raft.voters import ReplicaKey, VoterSet
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Offset
from barnabas_wire.records.batch import iterate_batches

logger = logging.getLogger("barnabas_broker.node.metadata_log_opening")  # the name that operators set a level of

SCAN_BYTES = 1024 * 1024
"""What is read of the log at a time when it is searched for voter sets on opening."""


class DamagedLog(KafkaError):
    """The log cannot be read as far as it should, and to continue would lose what no other node has, or never end."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


def choose_start(disk: Disk, directory: str, snapshots: SnapshotFiles) -> tuple[SnapshotHead | None, Offset]:
    """The head of the newest sound snapshot, and where the log begins. Snapshots that are of no use any more are forgotten.

    Raises DamagedSnapshot when the log's beginning is in no sound snapshot.
    """
    first_base = min(_segment_bases(disk, directory), default=0)
    # A crash during a drop of the log: opening ends the drop.
    first_base = max(first_base, starts_over_at(disk, directory) or 0)
    # If two end at one offset, the older is of a log that the newer has replaced (a recovered quorum): a crash left its
    # file.
    snapshots.ids = [
        each
        for each, later in pairwise([*snapshots.ids, None])
        if each is not None and each.end_offset >= first_base and (later is None or later.end_offset > each.end_offset)
    ]
    damage: DamagedSnapshot | None = None
    while snapshots.ids:
        newest = snapshots.ids[-1]
        try:
            head = snapshots.prove(newest)
        except DamagedSnapshot as error:
            logger.error("%s; using an older snapshot if there is one", error)
            damage = error
            snapshots.ids = snapshots.ids[:-1]
            continue
        return head, snapshots.ids[0].end_offset
    if first_base > 0:
        why = damage.message if damage is not None else f"{directory} begins at offset {first_base} without a snapshot"
        raise DamagedSnapshot(
            f"{why}. The records below offset {first_base} are lost here; another node has them: move {directory} away and start "
            "the node. A voter gives up its vote before that, for it forgets what it has promised: `barnabas quorum remove-voter "
            "ID`. It gets it back when it has caught up (`barnabas quorum replicas`): `barnabas quorum add-voter ID@HOST:PORT`. "
            "Without a majority of the voters: `barnabas quorum recover` from the best that is left"
        )
    return None, Offset(0)


def look_for_damage(
    disk: Disk,
    directory: str,
    mark: FlushMark | None,
    *,
    snapshots: SnapshotFiles,
    head: SnapshotHead | None,
    replica: ReplicaKey | None,
    voters: VoterSet,
) -> None:
    """Before anything is cut: is it more than an unfinished write? What is damaged is kept aside. Raises DamagedLog for a voter
    that is alone. Blocks."""
    if mark is None:
        return
    start = snapshots.ids[-1].end_offset if snapshots.ids else Offset(0)
    scan = scan_log(disk, directory, _segment_bases(disk, directory), start=start)
    is_flushed = scan.sound_end < mark.flushed_end
    sets = [voter_set for batch in scan.control_batches for _, voter_set in voter_sets_in(batch)]
    if head is not None and head.voters is not None:
        sets.insert(0, head.voters)
    last = sets[-1] if sets else voters
    lost = mark.lost if mark.lost not in (None, UNKNOWN_END) and mark.lost.end_offset > scan.sound_end else None
    if (is_flushed or lost is not None) and replica is not None and replica in last and len(last) == 1:
        raise DamagedLog(_refusal(directory, mark, scan.sound_end, scan.damage))
    if is_flushed and scan.damage is not None:
        kept = keep_damaged(disk, directory, scan.damage)
        logger.error("%s is damaged at byte %d; it is kept as %s", scan.damage.path, scan.damage.position, kept)


def _refusal(directory: str, mark: FlushMark, sound_end: Offset, damage: Damage | None) -> str:
    end = mark.begun.end_offset if mark.lost is None else max(mark.begun.end_offset, mark.lost.end_offset)
    where = "its files end there" if damage is None else f"{damage.path} is damaged at byte {damage.position}"
    return (
        f"the metadata log in {directory} was flushed up to offset {end}, but cannot be read from offset {sound_end} on: "
        f"{where}. This node is the only voter, so no other node has these records; nothing was changed. Restore the "
        f"directory from a copy; or, to give up offsets {sound_end} to {end - 1} for good, move {FLUSH_MARKS_FILE} out of it, "
        "start the node, and see what is missing: the log is then cut where the damage begins"
    )


def _segment_bases(disk: Disk, directory: str) -> list[int]:
    names = disk.list_directory(directory)
    return sorted(int(name[: -len(LOG_SUFFIX)]) for name in names if _is_segment(name))


def _is_segment(name: str) -> bool:
    return name.endswith(LOG_SUFFIX) and name[: -len(LOG_SUFFIX)].isdecimal()


def remove_segments_below(disk: Disk, directory: str, start: Offset) -> None:
    """Segments that end at or before the log start. Blocks."""
    bases = _segment_bases(disk, directory)
    gone = [base for base, next_base in pairwise(bases) if next_base <= start]
    for base in gone:
        for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            disk.remove(segment_path(directory, Offset(base), suffix))
    if gone:
        disk.sync_directory(directory)


def find_voter_sets(
    log: UnifiedLog, snapshots: SnapshotFiles, head: SnapshotHead | None
) -> list[tuple[Offset, VoterSet]]:
    """The set of the newest snapshot, and those in the log behind it."""
    found: list[tuple[Offset, VoterSet]] = []
    offset = log.log_start_offset
    if head is not None:
        offset = snapshots.ids[-1].end_offset
        if head.voters is not None:
            found.append((Offset(offset - 1), head.voters))
    while offset < log.log_end_offset:
        before = offset
        read = log.read(offset, bytes_max=SCAN_BYTES, end=log.log_end_offset, at_least_one_batch=True)
        for file, position, size in read.parts:
            data = file.read(position, size)
            file.release()
            for start, header in iterate_batches(data):
                if header.is_control and header.base_offset >= offset:
                    found += voter_sets_in(data[start : start + header.size_bytes])
                offset = header.next_offset
        if offset == before:
            # Proved a moment ago, or below a snapshot and so not proved: a file that gives nothing back must not hang us here.
            raise DamagedLog(
                f"{log.directory} says that it ends at offset {log.log_end_offset}, but gives nothing back at {before}: its "
                "disk returns fewer bytes than were written. Check the disk; then start the node again, which proves the log anew"
            )
    return found
