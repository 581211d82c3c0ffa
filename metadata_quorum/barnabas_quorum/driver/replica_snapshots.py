"""The snapshots of one replica: taken, loaded, downloaded, proved and removed, and what follows when one is bad.

May touch:  the core and the RaftLog, on their loop.      Must not touch: files, peers, what an image contains.
Invariants: a bad snapshot is never loaded twice nor sent again; a download that the core gave up leaves nothing.
Read next:  its parts: snapshots.py, snapshot_loading.py, log_cleaner.py; node.py, which feeds it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from barnabas_quorum.config import QuorumConfig
from barnabas_quorum.driver.log_cleaner import LogCleaner
from barnabas_quorum.driver.quorum_events import Frozen, Rotten
from barnabas_quorum.driver.quorum_listener import QuorumListener
from barnabas_quorum.driver.snapshot_content import DamagedSnapshot
from barnabas_quorum.driver.snapshot_loading import SnapshotLoading
from barnabas_quorum.driver.snapshots import SnapshotProver, SnapshotWriter
from barnabas_quorum.raft.core import QuorumCore
from barnabas_quorum.raft.journal import RaftLog
from barnabas_quorum.raft.messages import SnapshotId, SnapshotInstall
from barnabas_wire.kafka.ids import Offset

logger = logging.getLogger(__name__)


class ReplicaSnapshots:
    """The snapshots of this replica."""

    def __init__(
        self,
        *,
        config: QuorumConfig,
        core: QuorumCore,
        log: RaftLog,
        listener: QuorumListener,
        clock_ms: Callable[[], int],
        now_ms: Callable[[], int],
        post: Callable[[Frozen | Rotten], None],
        on_loading: Callable[[bool], None],
    ) -> None:
        """clock_ms: wall time; now_ms: since the start; post: into the loop's inbox; on_loading: see QuorumNode."""
        self._core = core
        self._log = log
        self.writer = SnapshotWriter(
            config=config,
            log=log,
            source=listener.take_snapshot,
            voters_before=lambda offset: core.voter_history.before(offset),
            refusal=self._refusal,
            flushed_end=lambda: core.flushed_end,
            on_frozen=lambda snapshot_id: post(Frozen(snapshot_id)),
        )
        self.stats = self.writer.stats
        self.loading = SnapshotLoading(
            log=log,
            load=listener.on_load_snapshot,
            on_loading=on_loading,
            on_bad=self._drop_bad,
            now_ms=now_ms,
            stats=self.stats,
        )
        self.prover = SnapshotProver(log=log, on_rotten=lambda snapshot_id: post(Rotten(snapshot_id)), stats=self.stats)
        self.cleaner = LogCleaner(
            config=config,
            core=core,
            log=log,
            clock_ms=clock_ms,
            on_rotten=self.replace_rotten,
            stats=self.stats,
        )
        self.downloading: SnapshotId | None = None
        """Whose part this download has written: it goes when it is installed, or when the core gives it up."""
        self._lost_end = Offset(0)
        """The end of the newest snapshot that was found bad: the voter sets that were read begin there."""

    async def install(self, install: SnapshotInstall) -> None:
        """A download is complete: it replaces the log, and its image the listener's."""
        try:
            install.voters = await self._log.install_snapshot(install.snapshot_id)
        except DamagedSnapshot as error:
            logger.error("%s; downloading it again", error)
            install.is_damaged = True
            return
        logger.info("snapshot %s has replaced the metadata log", install.snapshot_id)
        # Also where as much was delivered: after a recovery of the quorum it may have been other records.
        self.loading.begin(install.snapshot_id)

    def take_frozen(self, snapshot_id: SnapshotId, now_ms: int) -> None:
        """A snapshot of this replica's own is whole: it counts, unless the core has moved on."""
        if self._core.snapshot_taken(snapshot_id, now_ms):
            self.cleaner.want()
        elif snapshot_id not in self._core.snapshots:
            self.cleaner.drop(snapshot_id)

    def replace_rotten(self, snapshot_id: SnapshotId) -> None:
        """Others get an older snapshot from now on, or where the log begins with this one, a new one."""
        snapshots = self._core.snapshots
        if snapshot_id in snapshots[1:] and not self.loading.is_under_way:
            self._drop_bad(snapshot_id)
        elif snapshot_id in snapshots:
            self.writer.want()
            self.cleaner.end_rotten(snapshot_id)

    def _drop_bad(self, snapshot_id: SnapshotId) -> None:
        """A snapshot of this disk cannot be replayed."""
        self._core.snapshot_lost(snapshot_id)
        self.cleaner.drop(snapshot_id)
        self._lost_end = max(self._lost_end, snapshot_id.end_offset)

    def _refusal(self, snapshot_id: SnapshotId) -> str | None:
        if snapshot_id.end_offset < self._lost_end:
            return f"which voters counted before offset {self._lost_end} is not known since this start"
        return self._core.snapshot_refusal(snapshot_id)

    def drop_stale_part(self) -> None:
        """Remove what was downloaded of a snapshot that the core no longer wants."""
        download = self._core.download
        if self.downloading is not None and (download is None or download.snapshot_id != self.downloading):
            self._log.drop_snapshot_part(self.downloading)
            self.downloading = None
