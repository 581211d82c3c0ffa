"""Where each leader epoch of a partition starts: what truncation after a leader change is decided on (KIP-101, KIP-279).

May touch:  the checkpoint file, when asked to.   Must not touch: clocks, the log.
Invariants: epochs rise strictly and start offsets do not fall; an entry says that every record from its start offset to
            the next entry's was written by the leader of its epoch.
Read next:  unified_log.py, which assigns on append and truncates; replication's truncation.py, which asks.

Not obvious:
  - Batches bear their epoch, so the file is a cache. It is written before the recovery point moves (manager.py), not at
    each change: a thousand leader changes would otherwise be a thousand blocking flushes on the data loop.
  - An epoch that wrote nothing is forgotten by a restart. Truncation asks for the epoch of the last batch, so that is safe.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import pairwise

from barnabas_log.directories.checkpoints import read_epochs, write_epochs
from barnabas_log.disk import Disk
from barnabas_wire.kafka.ids import NO_EPOCH, NO_OFFSET, Epoch, Offset


class LeaderEpochs:
    """The (epoch, start offset) cache of one partition."""

    def __init__(self, disk: Disk, path: str, entries: Sequence[tuple[Epoch, Offset]] = ()) -> None:
        self._disk = disk
        self._path = path
        self._entries = list(entries)
        self._saving = threading.Lock()
        self.is_dirty = False
        """Whether the file is behind."""

    @classmethod
    def load(cls, disk: Disk, path: str) -> LeaderEpochs:
        """The epochs in the checkpoint file, none if there is no file. Raises CorruptCheckpoint."""
        return cls(disk, path, read_epochs(disk, path))

    def save(self) -> None:
        """Write the file if it is behind, blocking. May run in a disk thread: it takes the entries as they are at the start.

        One at a time: a checkpoint's thread would else put what it took over what a log that starts over has written since.
        """
        with self._saving:
            if self.is_dirty:
                self.is_dirty = False
                try:
                    write_epochs(self._disk, self._path, tuple(self._entries))
                except OSError:
                    self.is_dirty = True  # a full disk is tried again, and until then the file is behind
                    raise

    @property
    def entries(self) -> tuple[tuple[Epoch, Offset], ...]:
        """All of them, oldest first."""
        return tuple(self._entries)

    @property
    def latest(self) -> Epoch:
        """The newest epoch, -1 if there is none."""
        return self._entries[-1][0] if self._entries else NO_EPOCH

    def assign(self, epoch: Epoch, start_offset: Offset) -> None:
        """Say that `epoch` starts at `start_offset`; nothing happens if the epoch is not newer.

        Entries that start at or after the new one wrote nothing that is still there: they go.
        """
        if self._entries and epoch <= self._entries[-1][0]:
            return
        while self._entries and self._entries[-1][1] >= start_offset:
            self._entries.pop()
        self._entries.append((epoch, start_offset))
        self.is_dirty = True

    def learn(self, epoch: Epoch, offset: Offset) -> None:
        """A batch of `epoch` is at `offset`, in what was unreadable when the entries were made: it may begin that epoch earlier."""
        if epoch < 0 or self.epoch_at(offset) == epoch:
            return
        starts = dict(self._entries)
        starts[epoch] = min(offset, starts.get(epoch, offset))
        entries = sorted(starts.items())
        if entries[-1][0] == self.latest and all(a[1] <= b[1] for a, b in pairwise(entries)):
            self._entries = entries
            self.is_dirty = True

    def end_offset_for(self, epoch: Epoch, *, log_end_offset: Offset) -> tuple[Epoch, Offset]:
        """(largest epoch not above the asked, offset where it ends), or (-1, -1) if the asked is newer than all or -1."""
        if epoch < 0 or not self._entries or epoch > self._entries[-1][0]:
            return NO_EPOCH, NO_OFFSET
        if epoch == self._entries[-1][0]:
            return epoch, log_end_offset
        floor = epoch  # an epoch before all we know ends where the first known starts, under its own number
        for known, start_offset in self._entries:
            if known > epoch:
                return floor, start_offset
            floor = known
        raise AssertionError("the newest epoch is above the asked one, so the loop finds it")

    def epoch_at(self, offset: Offset) -> Epoch:
        """Epoch of the record at `offset`, -1 if it lies before all that is known."""
        for epoch, start_offset in reversed(self._entries):
            if start_offset <= offset:
                return epoch
        return NO_EPOCH

    def truncate_from_end(self, end_offset: Offset) -> None:
        """Forget the epochs that start at `end_offset` or later."""
        while self._entries and self._entries[-1][1] >= end_offset:
            self._entries.pop()
            self.is_dirty = True

    def truncate_from_start(self, start_offset: Offset) -> None:
        """Forget the epochs that end at or before `start_offset`; the one that covers it now starts there."""
        kept = [entry for entry in self._entries if entry[1] > start_offset]
        if len(kept) < len(self._entries):
            covering = self._entries[len(self._entries) - len(kept) - 1]
            kept.insert(0, (covering[0], start_offset))
            if kept != self._entries:
                self._entries = kept
                self.is_dirty = True

    def clear(self) -> None:
        """Forget all."""
        if self._entries:
            self._entries.clear()
            self.is_dirty = True
