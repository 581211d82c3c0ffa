"""A topic's partition as a share partition's leader reads it: batches, transactions, a high watermark, a start that moves.

May touch:  its arguments.            Must not touch: the product, clocks, chance.
Invariants: offsets of batches ascend; what is below the high watermark never changes but by the log's start; the last stable offset
            never falls.
Read next:  share_simulator.py, which fills it; share_laws.py, which asks what a record is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Batch:
    """Records from `base` to `last`, some of which may have been compacted away."""

    base: int
    last: int
    producer: int | None = None
    """Whose transaction it is part of; None outside transactions."""
    is_control: bool = False
    due: dict[int, int] = field(default_factory=dict)
    """Wall clock ms in the header of some records."""


@dataclass(slots=True)
class Transaction:
    """One producer's transaction: open, or how it ended."""

    first: int
    marker: int | None = None
    """Offset of the marker that ended it."""
    is_aborted: bool = False


class SimulatedLog:
    """One partition's log, the same on all its replicas."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.start = 0
        self.end = 0
        self.high_watermark = 0
        self._ended: list[tuple[int, Transaction]] = []
        self._open: dict[int, Transaction] = {}

    def append(
        self, count: int, *, producer: int | None = None, skip: int = 0, due: dict[int, int] | None = None
    ) -> Batch:
        """A batch of `count` offsets, after `skip` that compaction took away. due: times by place in the batch."""
        base = self.end + skip
        batch = Batch(base, base + count - 1, producer, due={base + place: at for place, at in (due or {}).items()})
        self.batches.append(batch)
        self.end = batch.last + 1
        if producer is not None and producer not in self._open:
            self._open[producer] = Transaction(base)
        return batch

    def end_transaction(self, producer: int, *, is_aborted: bool) -> None:
        """Write the marker of the producer's open transaction."""
        transaction = self._open.pop(producer)
        marker = Batch(self.end, self.end, producer, is_control=True)
        self.batches.append(marker)
        self.end += 1
        transaction.marker, transaction.is_aborted = marker.base, is_aborted
        self._ended.append((producer, transaction))

    @property
    def open_producers(self) -> list[int]:
        """Producers with an open transaction."""
        return sorted(self._open)

    @property
    def last_stable_offset(self) -> int:
        """Below it no transaction is open, as far as the high watermark says."""
        firsts = [transaction.first for transaction in self._open.values()]
        firsts += [
            each.first for _, each in self._ended if each.marker is not None and each.marker >= self.high_watermark
        ]
        return min([self.high_watermark, *firsts])

    def delete_before(self, offset: int) -> None:
        """The start moves, to the first whole batch that holds the offset at least in part; offsets before it read as gone."""
        self.start = max(self.start, min(offset, self.high_watermark))
        self.batches = [batch for batch in self.batches if batch.last >= self.start]

    def read(self, offset: int, *, end: int, batches_max: int) -> list[Batch]:
        """Whole batches below `end` from the one that holds `offset`, or the first after it."""
        found = [batch for batch in self.batches if batch.last >= offset and batch.last < end]
        return found[:batches_max]

    def batch_of(self, offset: int) -> Batch | None:
        """The batch with the offset; None where compaction or deletion took it away."""
        return next((batch for batch in self.batches if batch.base <= offset <= batch.last), None)

    def is_aborted(self, batch: Batch) -> bool:
        """Whether it holds records of an aborted transaction."""
        return any(
            each.is_aborted and producer == batch.producer and each.first <= batch.base < (each.marker or 0)
            for producer, each in self._ended
        )

    def aborted_ranges(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Ranges of aborted data batches within."""
        for batch in self.batches:
            if batch.last >= first and batch.base <= last and not batch.is_control and self.is_aborted(batch):
                yield batch.base, batch.last
