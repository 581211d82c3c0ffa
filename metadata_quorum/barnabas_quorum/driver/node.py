"""One member of the metadata quorum, running: owns the core, the log, the transport and the clock.

May touch:  asyncio, the RaftLog, the Transport.      Must not touch: files, gRPC types, the controller's state.
Invariants: hard state is durable before any message that depends on it leaves; a record counts only after its flush;
            the listener gets every committed batch once per process start, in order.
Read next:  ../raft/core.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from barnabas_quorum.config import QuorumConfig
from barnabas_quorum.raft.journal import RaftLog
from barnabas_quorum.raft.messages import CommittedBatch, LeaderAndEpoch
from barnabas_quorum.raft.voters import ReplicaKey, VoterSet
from barnabas_wire.kafka.ids import BrokerId, Epoch, Offset

__all__ = [
    "CommittedBatch",
    "LeaderAndEpoch",
    "QuorumDescription",
    "QuorumListener",
    "QuorumNode",
    "ReplicaDescription",
]


class QuorumListener(Protocol):
    """Who consumes the metadata log: the loader on every node, and the controller driver on a controller."""

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        """Committed data batches in offset order; each offset once per process start. Control records are left out."""
        ...

    def on_leader_change(self, leader: LeaderAndEpoch, next_offset: Offset) -> None:
        """The known leader changed. `next_offset` is what the next proposal here would get.

        On the new leader itself this comes only after on_commit got everything below the start of its epoch.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDescription:
    """One replica as the leader sees it; -1 is unknown."""

    key: ReplicaKey
    log_end_offset: Offset
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumDescription:
    """What DescribeQuorum and `barnabas quorum status` show. Only the leader knows the replicas' progress."""

    leader_id: BrokerId
    epoch: Epoch
    high_watermark: Offset
    voters: tuple[ReplicaDescription, ...]
    observers: tuple[ReplicaDescription, ...]


class QuorumNode:
    """The quorum driver; all members are to be used on its event loop (the control lane)."""

    def __init__(
        self,
        *,
        config: QuorumConfig,
        replica: ReplicaKey,
        cluster_id: str,
        voters: VoterSet,
        log: RaftLog,
        transport: Any,
        clock_ms: Callable[[], int],
        random: Random,
        listener: QuorumListener,
    ) -> None:
        raise NotImplementedError

    async def run(self) -> None:
        """Serve until cancelled. The caller's task group owns the task."""
        raise NotImplementedError

    def propose(self, records: Sequence[bytes], *, epoch: Epoch) -> Offset:
        """Append one atomic batch; returns the offset of its last record. Commit is told by the listener.

        Raises NotController when this node does not lead in `epoch`.
        """
        raise NotImplementedError

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        """The leader this node knows."""
        raise NotImplementedError

    @property
    def high_watermark(self) -> Offset:
        """One past the last committed record known here."""
        raise NotImplementedError

    @property
    def log_end_offset(self) -> Offset:
        """One past the last record here, committed or not; includes proposals that are not written yet."""
        raise NotImplementedError

    @property
    def is_voter(self) -> bool:
        """Whether this replica is in the voter set."""
        raise NotImplementedError

    def describe(self) -> QuorumDescription:
        """The quorum as this node sees it."""
        raise NotImplementedError

    async def resign(self) -> None:
        """Give up leadership, telling the voters who should follow; returns when they know or after a short wait."""
        raise NotImplementedError
