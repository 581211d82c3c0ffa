"""Which incarnation of the quorum a node's metadata directory belongs to, on disk.

May touch:  the Disk.                 Must not touch: the log itself, but to set it aside whole.
Invariants: a directory without the file belongs to the first incarnation; a superseded voter does not start again before its
            log is set aside, nor a survivor before its recovery is complete; nothing is deleted.
Read next:  barnabas_quorum/driver/incarnation.py; ../offline/quorum_recovery.py.

File `<metadata directory>/quorum-incarnation`, written to a temporary name, synced and renamed:
    {"incarnation": "1:<22 chars>",      empty = the first
     "superseded_by": "",                of a voter: the recovered quorum that it is not part of
     "former_epoch": -1,                 this node went over to another incarnation in this epoch. While its log ends in it or
                                         before, it may hold what that incarnation lacks, and the next start begins
                                         with an empty one; a later epoch in it shows that it has been brought into line
     "is_unfinished": false,             a recovery was begun here and has not written all it must: the node does not start, or
                                         voters that hear of the new incarnation would stop for one that cannot lead
     "data_version": 1}
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Awaitable, Callable
from typing import Protocol

from barnabas_broker.metadata.meta_properties import StorageError
from barnabas_broker.metadata.metadata_log import MetadataLog
from barnabas_log.disk import Disk, RealDisk
from barnabas_quorum.driver.incarnation import FIRST, Incarnation, IncarnationGuard
from barnabas_quorum.raft.messages import LeaderAndEpoch
from barnabas_wire.kafka.ids import METADATA_TOPIC, NO_EPOCH
from barnabas_wire.lazy_dataclass import dataclass

INCARNATION_FILE = "quorum-incarnation"
DATA_VERSION = 1
WHOLE_LOG = 2**31 - 1
"""A former epoch above all: nothing in the log is of the incarnation that this node joins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredIncarnation:
    """What the file says."""

    current: Incarnation = FIRST
    superseded_by: Incarnation = FIRST
    """FIRST = by none."""
    former_epoch: int = NO_EPOCH
    """The epoch in which this node went over; -1 = it did not, or its log is of this incarnation."""
    is_unfinished: bool = False
    """A recovery was begun here and is not complete."""


def load_incarnation(disk: Disk, metadata_directory: str) -> StoredIncarnation:
    """Raises StorageError when the file cannot be read."""
    path = os.path.join(metadata_directory, INCARNATION_FILE)
    if not disk.exists(path):
        return StoredIncarnation()
    try:
        content = json.loads(disk.read_file(path))
        if content["data_version"] != DATA_VERSION:
            raise ValueError(f"data_version {content['data_version']} is not {DATA_VERSION}")
        return StoredIncarnation(
            current=Incarnation.parse(content["incarnation"]),
            superseded_by=Incarnation.parse(content["superseded_by"]),
            former_epoch=int(content["former_epoch"]),
            is_unfinished=bool(content.get("is_unfinished", False)),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise StorageError(
            f"{path} is damaged ({error}); restore it, or have this node begin anew: barnabas-server quorum rejoin "
            f"{metadata_directory}"
        ) from error


def save_incarnation(disk: Disk, metadata_directory: str, stored: StoredIncarnation) -> None:
    """Durable on return. Blocks."""
    content = {
        "incarnation": str(stored.current),
        "superseded_by": str(stored.superseded_by),
        "former_epoch": stored.former_epoch,
        "is_unfinished": stored.is_unfinished,
        "data_version": DATA_VERSION,
    }
    disk.write_file_atomically(os.path.join(metadata_directory, INCARNATION_FILE), json.dumps(content).encode())


def go_over(disk: Disk, metadata_directory: str, incarnation: Incarnation, *, former_epoch: int) -> None:
    """This node, which does not vote, follows another incarnation from now on; its log ends in `former_epoch` at most (WHOLE_LOG: in
    whichever). Durable on return. Blocks."""
    save_incarnation(disk, metadata_directory, StoredIncarnation(current=incarnation, former_epoch=former_epoch))


async def open_log(
    metadata_directory: str,
    *,
    open_it: Callable[[], Awaitable[MetadataLog]],
    open_disk: Callable[[], Disk] = RealDisk,
) -> tuple[MetadataLog, bool]:
    """Open the metadata log, an empty one where this node's is still of a former incarnation; whether that was so.

    Never so on a voter: to get its vote it had to catch up with the leader of this incarnation, whose epochs are higher.
    """
    log = await open_it()
    with contextlib.closing(open_disk()) as disk:
        stored = load_incarnation(disk, metadata_directory)
        if stored.former_epoch == NO_EPOCH:
            return log, False
        starts = log.epoch_starts()
        is_former = bool(starts) and starts[-1].epoch <= stored.former_epoch
        if is_former:
            await log.close()
            set_log_aside(disk, metadata_directory, before=stored.current)
        save_incarnation(disk, metadata_directory, StoredIncarnation(current=stored.current))
    return (await open_it() if is_former else log), is_former


def note_superseded(disk: Disk, metadata_directory: str, by: Incarnation) -> None:
    """This voter must not run again. Durable on return. Blocks."""
    stored = load_incarnation(disk, metadata_directory)
    save_incarnation(disk, metadata_directory, StoredIncarnation(current=stored.current, superseded_by=by))


def superseded(metadata_directory: str, by: Incarnation) -> StorageError:
    """Why a voter may not run any more, and how its node comes back."""
    return StorageError(
        f"the quorum was recovered without this voter, as incarnation {by}. What {metadata_directory}/{METADATA_TOPIC}-0 "
        "holds and the recovered quorum lacks is lost to the cluster; keep it if you want to look at it. To let this node "
        f"come back, set its log aside with `barnabas-server quorum rejoin {metadata_directory}`, start it, and give it its "
        "vote with `barnabas quorum add-voter`"
    )


class QuorumPlace(Protocol):
    """This node's place in the quorum."""

    @property
    def may_lead(self) -> bool:
        """A voter that was removed leads on, and may run for election, until it knows that committed, and must do
        neither in an incarnation that is not its own."""
        ...

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        """The epoch in which it is."""
        ...


def guard_incarnation(
    current: Incarnation,
    metadata_directory: str,
    *,
    place: Callable[[], QuorumPlace],
    on_adopted: Callable[[Incarnation], None],
    on_superseded: Callable[[StorageError], None],
    on_conflict: Callable[[str], None] = lambda reason: None,
    open_disk: Callable[[], Disk] = RealDisk,
) -> IncarnationGuard:
    """The guard of a node of that directory. `on_adopted` is called when the node moves to the new quorum, `on_superseded`
    ends it; both once that is durable. For `on_conflict` see IncarnationGuard."""

    def adopt(found: Incarnation) -> None:
        with contextlib.closing(open_disk()) as disk:
            # Not the epoch of its last record: a snapshot of the former leader may be about to take the log's place.
            go_over(disk, metadata_directory, found, former_epoch=place().leader_and_epoch.epoch)
        on_adopted(found)

    def end(found: Incarnation) -> None:
        with contextlib.closing(open_disk()) as disk:
            note_superseded(disk, metadata_directory, found)
        on_superseded(superseded(metadata_directory, found))

    return IncarnationGuard(
        current,
        may_lead=lambda: place().may_lead,
        on_adopted=adopt,
        on_superseded=end,
        on_conflict=on_conflict,
    )


def set_log_aside(disk: Disk, metadata_directory: str, *, before: Incarnation) -> str | None:
    """Rename the metadata log's directory, so that the next start begins with an empty one. Returns its new name, None when
    there is none. Blocks."""
    directory = os.path.join(metadata_directory, f"{METADATA_TOPIC}-0")
    if not disk.exists(directory):
        return None
    aside = os.path.join(metadata_directory, f"set-aside-metadata-log.{before.number}")
    while disk.exists(aside):
        aside += "+"
    disk.rename(directory, aside)
    disk.sync_directory(metadata_directory)
    return aside


def own_incarnation(disk: Disk, metadata_directory: str) -> Incarnation:
    """Which one this node belongs to. Raises StorageError when it is a voter that the quorum was recovered without, or one whose
    recovery was begun and is not complete."""
    stored = load_incarnation(disk, metadata_directory)
    if stored.is_unfinished:
        raise StorageError(
            f"a recovery of the quorum was begun in {metadata_directory} and did not end: look again and finish it with "
            f"`barnabas-server quorum recover {metadata_directory}`; until then this node does not start"
        )
    if stored.superseded_by != FIRST:
        raise superseded(metadata_directory, stored.superseded_by)
    return stored.current
