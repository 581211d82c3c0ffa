"""A snapshot on its way into the listener: step by step, so that the node continues voting, fetching and answering.

May touch:  the RaftLog, the listener.     Must not touch: asyncio, the core.
Invariants: a newer snapshot takes the place of one that is being loaded; it counts when its last step is done; an older one
            takes the place of one that holds a bad record, and the log behind it has the rest.
Read next:  node.py, which takes a step per turn of its loop; snapshot_content.py, the bytes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from barnabas_quorum.driver.snapshots import LoadedSnapshot, SnapshotStats
from barnabas_quorum.image.bad_records import UnreplayableSnapshot
from barnabas_quorum.raft.journal import RaftLog
from barnabas_quorum.raft.messages import SnapshotId

logger = logging.getLogger(__name__)


class SnapshotLoading:
    """At most one snapshot at a time. Belongs to the node's loop."""

    def __init__(
        self,
        *,
        log: RaftLog,
        load: Callable[[LoadedSnapshot], Iterator[None]],
        on_loading: Callable[[bool], None],
        on_bad: Callable[[SnapshotId], None],
        now_ms: Callable[[], int],
        stats: SnapshotStats,
    ) -> None:
        """
        Args:
            load: the listener's (QuorumListener.on_load_snapshot).
            on_loading: called with True when it begins, False when it ends.
            on_bad: called with one that cannot be replayed; it is to go.
            now_ms: any clock that does not jump.
        """
        self._log = log
        self._load = load
        self._on_loading = on_loading
        self._on_bad = on_bad
        self._now_ms = now_ms
        self._stats = stats
        self._steps: Iterator[None] | None = None
        self._snapshot: LoadedSnapshot | None = None
        self._begun_ms = 0

    @property
    def is_under_way(self) -> bool:
        """Whether there are steps to take."""
        return self._steps is not None

    def begin(self, snapshot_id: SnapshotId) -> None:
        """Load this one, in place of any other."""
        if self._steps is None:
            self._on_loading(True)
            self._begun_ms = self._now_ms()
        is_only = snapshot_id == self._log.snapshots()[0]
        self._snapshot = LoadedSnapshot(self._log, snapshot_id, is_only=is_only)
        self._steps = self._load(self._snapshot)

    def step(self) -> LoadedSnapshot | None:
        """Take one step; the snapshot when that was the last one. Raises DamagedSnapshot, UnreplayableSnapshot where none is
        left."""
        assert self._steps is not None and self._snapshot is not None, "nothing is being loaded"
        try:
            next(self._steps)
        except StopIteration:
            self.end()
            self._stats.loaded += 1
            self._stats.loaded_ms_sum += self._now_ms() - self._begun_ms
            self._stats.last_bytes = self._snapshot.size_bytes
            self._stats.last_end_offset = self._snapshot.end_offset
            self._stats.last_timestamp_ms = self._snapshot.timestamp_ms
            return self._snapshot
        except UnreplayableSnapshot as error:
            older = [each for each in self._log.snapshots() if each < self._snapshot.id]
            if not older:
                raise
            logger.error("%s. Taking snapshot %s", error, older[-1])
            self._on_bad(self._snapshot.id)
            self.begin(older[-1])
        return None

    def end(self) -> None:
        """It is loaded, or will not be."""
        if self._steps is not None:
            self._steps = None
            self._on_loading(False)
