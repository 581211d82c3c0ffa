"""Cleaning of the metadata log: snapshots that nobody needs go, and the log's beginning with them.

May touch:  the RaftLog, the core.    Must not touch: asyncio, clocks, the rule (raft/snapshots.py has it).
Invariants: the core knows where the log will begin before its files go, and the snapshot there was read whole just before;
            nothing goes that this node itself is reading, nor, within bounds, what another one is downloading.
Read next:  ../raft/snapshots.py: next_log_start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from barnabas_quorum.config import QuorumConfig
from barnabas_quorum.driver.snapshot_content import DamagedSnapshot
from barnabas_quorum.driver.snapshots import SnapshotStats
from barnabas_quorum.raft.core import QuorumCore
from barnabas_quorum.raft.journal import RaftLog
from barnabas_quorum.raft.messages import SnapshotId
from barnabas_quorum.raft.snapshots import next_log_start

logger = logging.getLogger(__name__)

DOWNLOAD_PAUSE_MS_MAX = 10_000
"""A replica that asks for no slice of a snapshot for this long is not downloading it any more."""
DOWNLOAD_MS_MAX = 600_000
"""A snapshot is kept back for downloads for at most this long: one that takes longer begins again with a newer snapshot."""


class LogCleaner:
    """What is to go, and when. Belongs to the node's loop."""

    def __init__(
        self,
        *,
        config: QuorumConfig,
        core: QuorumCore,
        log: RaftLog,
        clock_ms: Callable[[], int],
        on_rotten: Callable[[SnapshotId], None],
        stats: SnapshotStats,
    ) -> None:
        """`clock_ms` is wall time: files have ages by it. `on_rotten` is called with a snapshot that is not whole."""
        self._config = config
        self._core = core
        self._log = log
        self._clock_ms = clock_ms
        self._on_rotten = on_rotten
        self._stats = stats
        self._is_due = False
        self._outdated: list[SnapshotId] = []
        self._rotten: SnapshotId | None = None
        self._downloads: dict[SnapshotId, tuple[int, int]] = {}
        """When the first and the last slice of a snapshot were asked for, on the core's clock."""

    @property
    def is_wanted(self) -> bool:
        """Whether `clean` has something to look at."""
        return self._is_due or bool(self._outdated)

    def want(self) -> None:
        """Have the retention looked at."""
        self._is_due = True

    def drop(self, snapshot_id: SnapshotId) -> None:
        """This snapshot was outdated when it was whole."""
        self._outdated.append(snapshot_id)

    def end_rotten(self, snapshot_id: SnapshotId) -> None:
        """The log begins at this snapshot, which nobody can load: it goes as soon as there is another."""
        self._rotten = snapshot_id
        self.want()

    def on_slice_served(self, snapshot_id: SnapshotId, *, now_ms: int) -> None:
        """Somebody downloads that snapshot."""
        first_ms, last_ms = self._downloads.get(snapshot_id, (now_ms, now_ms))
        is_another = now_ms - last_ms > DOWNLOAD_PAUSE_MS_MAX
        self._downloads[snapshot_id] = (now_ms if is_another else first_ms, now_ms)

    async def clean(self, *, now_ms: int, is_loading: bool) -> None:
        """Drop what nobody needs. While this node itself reads a snapshot, or others download one that would go, the log's
        beginning stays until the next look.

        Args:
            now_ms: the core's clock.
        """
        while self._outdated:
            await self._log.drop_snapshot(self._outdated.pop())
        if is_loading:
            return
        self._is_due = False
        core, log, config = self._core, self._log, self._config
        while True:
            files = [file for file in log.snapshot_files() if file.snapshot_id in core.snapshots]
            snapshot_id = next_log_start(
                files,
                log_bytes=log.size_bytes,
                now_ms=self._clock_ms(),
                bytes_max=0 if files and files[0].snapshot_id == self._rotten else config.retention_bytes,
                age_ms_max=config.retention_ms,
            )
            if snapshot_id is None or self._is_downloaded_before(snapshot_id, now_ms):
                return
            try:
                await log.prove_snapshot(snapshot_id)  # what lies before it would be lost with it
            except (DamagedSnapshot, FileNotFoundError) as error:
                logger.error(
                    "%s: the disk does not give back what was written. The log goes on beginning before it", error
                )
                self._stats.rotten += 1
                self._on_rotten(snapshot_id)
                return
            core.log_start_moved(snapshot_id.end_offset, now_ms)
            await log.delete_before(snapshot_id)
            self._stats.logs_cleaned += 1
            logger.info("the metadata log begins at snapshot %s now", snapshot_id)

    def _is_downloaded_before(self, snapshot_id: SnapshotId, now_ms: int) -> bool:
        """Whether an older snapshot is being downloaded."""
        self._downloads = {
            found: (first_ms, last_ms)
            for found, (first_ms, last_ms) in self._downloads.items()
            if now_ms - last_ms <= DOWNLOAD_PAUSE_MS_MAX and now_ms - first_ms <= DOWNLOAD_MS_MAX
        }
        return any(found.end_offset < snapshot_id.end_offset for found in self._downloads if found != self._rotten)
