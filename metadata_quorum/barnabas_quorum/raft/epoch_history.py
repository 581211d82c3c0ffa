"""Which epoch wrote which part of the log: the leader-epoch cache as the consensus rules need it.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: epochs and start offsets both ascend strictly; an epoch that wrote nothing is not in it.
Read next:  replication.py, which compares two histories.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from barnabas_quorum.raft.messages import EpochStart
from barnabas_wire.kafka.ids import Epoch, Offset


class EpochHistory:
    """Epochs with their first offsets, ascending. Epoch 0 wrote nothing: it stands for the empty log."""

    __slots__ = ("_epochs", "_starts", "last_epoch")

    def __init__(self, starts: Iterable[EpochStart] = ()) -> None:
        self._epochs: list[Epoch] = []
        self._starts: list[Offset] = []
        self.last_epoch = Epoch(0)
        """Epoch of the last record; 0 when the log is empty."""
        for epoch, start_offset in starts:
            self.assign(epoch, start_offset)

    def assign(self, epoch: Epoch, start_offset: Offset) -> None:
        """Records from start_offset on are of this epoch; nothing happens when the epoch is already the last."""
        if epoch == self.last_epoch:
            return
        assert epoch > self.last_epoch, f"epoch {epoch} after {self.last_epoch}"
        assert not self._starts or start_offset > self._starts[-1], f"epoch {epoch} starts at {start_offset}, too low"
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.last_epoch = epoch

    def end_of(self, epoch: Epoch, *, log_end: Offset) -> EpochStart:
        """The largest epoch not above `epoch` and the offset at which it *ends*; (0, 0) when there is none."""
        index = bisect_right(self._epochs, epoch)
        if index == 0:
            return EpochStart(Epoch(0), Offset(0))
        end = self._starts[index] if index < len(self._starts) else log_end
        return EpochStart(self._epochs[index - 1], end)

    def truncate_to(self, offset: Offset) -> None:
        """Forget what started at offset or later."""
        while self._starts and self._starts[-1] >= offset:
            self._starts.pop()
            self._epochs.pop()
        self.last_epoch = self._epochs[-1] if self._epochs else Epoch(0)

    def starts(self) -> list[EpochStart]:
        """All entries, ascending."""
        return [EpochStart(epoch, start) for epoch, start in zip(self._epochs, self._starts, strict=True)]
