"""Which epoch wrote which part of the log: the leader-epoch cache that the consensus rules need.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: epochs and start offsets both increase strictly; an epoch that wrote nothing is not in it.
Read next:  replication.py, which compares two histories.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise

from barnabas_quorum.raft.messages import EpochStart
from barnabas_wire.kafka.ids import Epoch, Offset

RECOVERY_EPOCH_GAP = 1_000_000
"""A recovered quorum begins this far above every known epoch. A voter raises its epoch at most once per election time-out, and
with pre-votes only when it can win: lost voters cannot have reached it, so no (epoch, offset) names two records."""


def is_before_recovery(last_epoch: Epoch, *, known: Epoch) -> bool:
    """Whether a log that ends in `last_epoch` lacks the quorum recovery behind an epoch that is known elsewhere.

    Half the gap tells: the lost voters may have gone on in later epochs than the survivor knew, so a log of theirs ends less than a
    whole gap before the recovery.
    """
    return known - last_epoch >= RECOVERY_EPOCH_GAP // 2


class EpochHistory:
    """Epochs with their first offsets, ascending. Epoch 0 wrote nothing: it represents the empty log.

    Of the part before the log's start, which is in a snapshot, only the last epoch is known, and an upper bound of its end.
    """

    __slots__ = ("_epochs", "_start_epoch", "_start_offset", "_starts", "last_epoch")

    def __init__(
        self,
        starts: Iterable[EpochStart] = (),
        *,
        start_offset: Offset = Offset(0),  # noqa: B008 - an int
        start_epoch: Epoch = Epoch(0),  # noqa: B008 - an int
    ) -> None:
        """`start_epoch` is the epoch of the record before start_offset, the log's first; 0 when there is none."""
        self._epochs: list[Epoch] = []
        self._starts: list[Offset] = []
        self._start_offset = start_offset
        self._start_epoch = start_epoch
        self.last_epoch = start_epoch
        """Epoch of the last record; 0 when there never was one."""
        for epoch, offset in starts:
            self.assign(epoch, offset)
        if start_offset:
            self.forget_before(start_offset, start_epoch)

    def assign(self, epoch: Epoch, start_offset: Offset) -> None:
        """Records from start_offset on have this epoch; does nothing when the epoch is already the last."""
        if epoch == self.last_epoch and self._epochs:
            return
        assert epoch >= self.last_epoch or not self._epochs, f"epoch {epoch} after {self.last_epoch}"
        assert not self._starts or start_offset > self._starts[-1], f"epoch {epoch} starts at {start_offset}, too low"
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.last_epoch = epoch

    def end_of(self, epoch: Epoch, *, log_end: Offset) -> EpochStart:
        """The largest epoch not above `epoch` and the offset at which it *ends*; (0, 0) when there is none."""
        index = bisect_right(self._epochs, epoch)
        if index == 0:
            if epoch >= self._start_epoch:
                return EpochStart(self._start_epoch, self._start_offset)
            return EpochStart(Epoch(0), Offset(0))
        end = self._starts[index] if index < len(self._starts) else log_end
        return EpochStart(self._epochs[index - 1], end)

    def epoch_before(self, offset: Offset) -> Epoch:
        """Epoch of the record before offset, which must lie in the log or just before it; 0 when there is none."""
        index = bisect_right(self._starts, offset - 1)
        return self._epochs[index - 1] if index else self._start_epoch

    def truncate_to(self, offset: Offset) -> None:
        """Forget what started at offset or later."""
        while self._starts and self._starts[-1] >= offset:
            self._starts.pop()
            self._epochs.pop()
        self.last_epoch = self._epochs[-1] if self._epochs else self._start_epoch

    def forget_before(self, offset: Offset, epoch: Epoch) -> None:
        """The log begins at offset now, and the record before it was of this epoch."""
        first = max(0, bisect_right(self._starts, offset) - 1)
        del self._starts[:first], self._epochs[:first]
        self._start_offset, self._start_epoch = offset, epoch
        self.last_epoch = self._epochs[-1] if self._epochs else epoch

    def recovered_epoch(self) -> Epoch:
        """The epoch of the last recovery of the quorum that this log shows; 0 when it shows none."""
        epochs = [self._start_epoch, *self._epochs]
        jumps = (epoch for before, epoch in pairwise(epochs) if is_before_recovery(before, known=epoch))
        return max(jumps, default=Epoch(0))

    def starts(self) -> list[EpochStart]:
        """All entries, ascending."""
        return [EpochStart(epoch, start) for epoch, start in zip(self._epochs, self._starts, strict=True)]
