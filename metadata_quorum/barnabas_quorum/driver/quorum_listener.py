"""The consumer of the metadata log: what the quorum calls on every node.

May touch:  nothing.                  Must not touch: everything.
Invariants: each committed offset comes once per process start, in order.
Read next:  node.py, which calls it; metadata_listener.py, which is it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from barnabas_quorum.driver.snapshots import LoadedSnapshot, SnapshotSource
from barnabas_quorum.raft.messages import CommittedBatch, LeaderAndEpoch
from barnabas_wire.kafka.ids import Offset


class QuorumListener(Protocol):
    """The consumer of the metadata log: the loader on every node, and the controller driver on a controller."""

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        """Committed data batches in offset order; each offset once per process start. Control records are left out."""
        ...

    def on_load_snapshot(self, snapshot: LoadedSnapshot) -> Iterator[None]:
        """A snapshot takes the place of everything below its end; on_commit continues from there. Done step by step: each
        `next` is a short one, and it counts when the iterator ends. May be given up for a newer one. Never on a leader
        that was announced. Raises DamagedSnapshot."""
        ...

    def take_snapshot(self) -> SnapshotSource | None:
        """What a snapshot of everything on_commit brought would hold; None when there is nothing, or when it would end
        within a metadata transaction."""
        ...

    def on_leader_change(self, leader: LeaderAndEpoch, next_offset: Offset) -> None:
        """The known leader changed. `next_offset` is what the next proposal here would get.

        On the new leader itself this comes only after on_commit got everything below the start of its epoch.
        """
        ...
