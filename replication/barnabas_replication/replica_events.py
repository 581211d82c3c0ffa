"""What the replicas of a broker want done by others: noted as they change, obeyed together a moment later.

May touch:  its arguments.                Must not touch: asyncio, logs, the controller, partitions' state.
Invariants: whoever notes something continues at once, and has changed its own state before; nothing is done within the
            call that notes it.
Read next:  manager.py `_obey`, which does it; partition.py, where most of it comes from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from barnabas_replication.controller import AlterPartitionItem
from barnabas_wire.kafka.ids import Offset

PartitionT = TypeVar("PartitionT")
"""The partition that notes: a parameter, since partition.py imports this file."""


class ReplicaEvents(Generic[PartitionT]):
    """What the partitions of a broker want done, by kind and then in the order in which they came."""

    __slots__ = ("_call_soon", "_is_called", "advanced", "failed", "lacking", "proposed", "starts", "suspected")

    def __init__(self, call_soon: Callable[[], object]) -> None:
        """call_soon: has the events obeyed later in this turn of the loop, or in the next; called for the first alone, until `taken`."""
        self._call_soon = call_soon
        self._is_called = False
        self.advanced: dict[PartitionT, None] = {}
        """Leaders whose HW moved: followers that hear nothing else shall hear of it soon. The first one calls; fetches.py takes them all
        when it pushes."""
        self.proposed: dict[PartitionT, AlterPartitionItem] = {}
        """The controller shall judge that ISR."""
        self.starts: dict[PartitionT, Offset] = {}
        """The log shall begin there, once that is saved: what a follower reports to its leader must not fall again."""
        self.suspected: dict[PartitionT, Offset] = {}
        """A follower does not take what the log holds at that offset: it may be damaged."""
        self.lacking: dict[PartitionT, None] = {}
        """They lack records, or deletions, that they had or should have: they must be refilled."""
        self.failed: dict[PartitionT, None] = {}
        """Their disk failed: they follow no leader any more."""

    def on_high_watermark_advance(self, partition: PartitionT) -> None:
        """See advanced."""
        if not self.advanced:
            self._call()
        self.advanced[partition] = None

    def propose_isr(self, partition: PartitionT, item: AlterPartitionItem) -> None:
        """See proposed; the controller's answer comes to isr_changes.on_isr_outcome."""
        self.proposed[partition] = item
        self._call()

    def raise_log_start(self, partition: PartitionT, offset: Offset) -> None:
        """See starts."""
        self.starts[partition] = offset
        self._call()

    def suspect(self, partition: PartitionT, offset: Offset) -> None:
        """See suspected."""
        self.suspected[partition] = offset
        self._call()

    def on_lacking(self, partition: PartitionT) -> None:
        """See lacking."""
        self.lacking[partition] = None
        self._call()

    def on_failed(self, partition: PartitionT) -> None:
        """See failed."""
        self.failed[partition] = None
        self._call()

    def taken(self) -> None:
        """They are obeyed now: what comes from here on asks again."""
        self._is_called = False

    def _call(self) -> None:
        if not self._is_called:
            self._is_called = True
            self._call_soon()
