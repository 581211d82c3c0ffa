"""The QuorumListener of every node: between the quorum and what consumes the metadata log.

May touch:  the loader.               Must not touch: asyncio, files, what a record means.
Invariants: committed batches go to the loader and nowhere else; observers hear of leaders in their order.
Read next:  node.py, which calls it; ../image/loader.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from barnabas_quorum.driver.snapshots import LoadedSnapshot, SnapshotSource
from barnabas_quorum.image.loader import MetadataLoader
from barnabas_quorum.image.snapshot import record_groups
from barnabas_quorum.raft.messages import CommittedBatch, LeaderAndEpoch
from barnabas_wire.kafka.ids import Offset


class MetadataListener:
    """QuorumListener of every node: committed batches go to the loader, the leader's name to whoever needs it."""

    def __init__(
        self, loader: MetadataLoader, *, leader_observers: Sequence[Callable[[LeaderAndEpoch, Offset], None]]
    ) -> None:
        """`leader_observers` in the order in which they are called: ControllerDriver.on_leader_change on a controller,
        BrokerLifecycle.on_leader_change on a broker."""
        self.loader = loader
        self.leader_observers = tuple(leader_observers)

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        """See QuorumListener."""
        self.loader.on_commit(batches)

    def on_load_snapshot(self, snapshot: LoadedSnapshot) -> Iterator[None]:
        """See QuorumListener."""
        return self.loader.on_load_snapshot(snapshot)

    def take_snapshot(self) -> SnapshotSource | None:
        """See QuorumListener."""
        image = self.loader.image
        if not self.loader.may_be_written:
            return None
        return SnapshotSource(image.offset, image.epoch, image.timestamp_ms, record_groups(image))

    def on_leader_change(self, leader: LeaderAndEpoch, next_offset: Offset) -> None:
        """See QuorumListener."""
        for observer in self.leader_observers:
            observer(leader, next_offset)
