"""What the listener of a quorum gets: every committed batch once and in order, and each new leader.

May touch:  the RaftLog, reading; the listener.      Must not touch: asyncio, files, the core's state.
Invariants: a batch is delivered once per process start, or a snapshot in its place; this replica is announced as leader only once
            all that earlier leaders committed is delivered.
Read next:  quorum_listener.py, who listens; node.py, which delivers step by step between its turns.
"""

from __future__ import annotations

import logging

from barnabas_quorum.driver.committed import open_batch
from barnabas_quorum.driver.quorum_listener import QuorumListener
from barnabas_quorum.driver.quorum_stats import Stats
from barnabas_quorum.driver.snapshots import SnapshotWriter
from barnabas_quorum.raft.core import QuorumCore
from barnabas_quorum.raft.journal import RaftLog
from barnabas_quorum.raft.messages import LeaderAndEpoch
from barnabas_quorum.raft.roles import Leader
from barnabas_wire.kafka.ids import Epoch, Offset

logger = logging.getLogger(__name__)

COMMIT_BYTES_MAX = 64 * 1024
"""Committed bytes that are opened in one go, but one batch at least; between two goes the loop serves others."""
CATCH_UP_BYTES_MAX = 1024 * 1024
"""The same of a node that has just started or was away: what changes again within one go is hashed once."""
FAR_BEHIND_RECORDS = 10_000
"""More than one decision writes."""


class Delivery:
    """To one listener."""

    def __init__(
        self, *, core: QuorumCore, log: RaftLog, listener: QuorumListener, snapshots: SnapshotWriter, stats: Stats
    ) -> None:
        """snapshots: counts what was delivered, to take the next one in time."""
        self.offset = Offset(0)
        """Everything below was delivered."""
        self.announced = LeaderAndEpoch(None, Epoch(-1))
        """The leader that the listener knows."""
        self._core = core
        self._log = log
        self._listener = listener
        self._snapshots = snapshots
        self._stats = stats

    @property
    def is_behind(self) -> bool:
        """Whether something committed waits to be delivered."""
        return self.offset < self._core.high_watermark

    def deliver(self) -> None:
        """Open the next committed batches and hand their records over."""
        end_offset = self._core.high_watermark
        bytes_max = CATCH_UP_BYTES_MAX if end_offset - self.offset > FAR_BEHIND_RECORDS else COMMIT_BYTES_MAX
        batches = self._log.read(self.offset, end_offset=end_offset, bytes_max=bytes_max)
        assert batches, f"nothing to read at {self.offset} below {end_offset}"
        committed = [opened for opened in map(open_batch, batches) if opened is not None]
        self.offset = batches[-1].end_offset
        self._snapshots.count(sum(len(batch.data) for batch in batches))
        if committed:
            self._listener.on_commit(committed)

    def announce(self, leader: LeaderAndEpoch, *, log_end_offset: Offset) -> None:
        """Report a new leader to the listener; of itself only when it has seen all that earlier leaders committed."""
        if leader == self.announced:
            return
        role = self._core.role
        if isinstance(role, Leader) and self.offset <= role.epoch_start:
            return
        if leader.leader_id is not None:
            self._stats.leader_changes += 1
            logger.info("node %d leads the metadata quorum in epoch %d", leader.leader_id, leader.epoch)
        self.announced = leader
        self._listener.on_leader_change(leader, log_end_offset)
