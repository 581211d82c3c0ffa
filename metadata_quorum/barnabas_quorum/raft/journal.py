"""The disk as the quorum needs it: hard state and log, with the moment of durability in the caller's hand.

May touch:  its arguments.            Must not touch: asyncio, clock, files (an implementation brings them).
Invariants: save_hard_state and truncate are durable on return; append is not, until a flush begun after it returned.
Read next:  ../driver/node.py, which drives it; broker/node/metadata_log.py, which keeps it on disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from barnabas_quorum.raft.messages import EpochStart, HardState
from barnabas_wire.kafka.ids import NO_BROKER, Epoch, Offset

INITIAL_HARD_STATE = HardState(Epoch(0), NO_BROKER, None)


class StoredBatch(NamedTuple):
    """One v2 batch of the metadata log with its place."""

    base_offset: Offset
    end_offset: Offset
    epoch: Epoch
    data: bytes


class RaftLog(Protocol):
    """Hard state and log of one replica. Synchronous members touch no more than the page cache."""

    @property
    def hard_state(self) -> HardState:
        """As last saved; INITIAL_HARD_STATE on a new disk."""
        ...

    @property
    def end_offset(self) -> Offset:
        """One past the last record."""
        ...

    def epoch_starts(self) -> Sequence[EpochStart]:
        """All epochs in the log, ascending."""
        ...

    async def save_hard_state(self, state: HardState) -> None:
        """Durable on return."""
        ...

    def append(self, batches: Sequence[StoredBatch]) -> None:
        """Write batches that continue the log. Not durable yet."""
        ...

    async def truncate_to(self, offset: Offset) -> None:
        """Drop everything from offset on. Durable on return. Never called while a flush is in flight."""
        ...

    async def flush(self) -> Offset:
        """Make everything appended before this call durable; returns the end offset that now is."""
        ...

    def read(self, offset: Offset, *, end_offset: Offset, bytes_max: int) -> Sequence[StoredBatch]:
        """Whole batches from the one that holds offset, below end_offset; at least one if there is one."""
        ...

    async def close(self) -> None:
        """Flush and release the files."""
        ...


class MemoryJournal:
    """A RaftLog in memory. `crash()` forgets what was not flushed, as a power cut would."""

    def __init__(self) -> None:
        self._hard_state = INITIAL_HARD_STATE
        self._batches: list[StoredBatch] = []
        self._flushed_batches = 0

    @property
    def hard_state(self) -> HardState:
        return self._hard_state

    @property
    def end_offset(self) -> Offset:
        return self._batches[-1].end_offset if self._batches else Offset(0)

    def epoch_starts(self) -> list[EpochStart]:
        starts: list[EpochStart] = []
        for batch in self._batches:
            if not starts or starts[-1].epoch != batch.epoch:
                starts.append(EpochStart(batch.epoch, batch.base_offset))
        return starts

    async def save_hard_state(self, state: HardState) -> None:
        self._hard_state = state

    def append(self, batches: Sequence[StoredBatch]) -> None:
        for batch in batches:
            assert batch.base_offset == self.end_offset, f"gap: {batch.base_offset} after {self.end_offset}"
            self._batches.append(batch)

    async def truncate_to(self, offset: Offset) -> None:
        while self._batches and self._batches[-1].base_offset >= offset:
            self._batches.pop()
        assert self.end_offset <= offset, f"{offset} lies inside a batch"
        self._flushed_batches = len(self._batches)

    async def flush(self) -> Offset:
        self._flushed_batches = len(self._batches)
        return self.end_offset

    def read(self, offset: Offset, *, end_offset: Offset, bytes_max: int) -> list[StoredBatch]:
        found: list[StoredBatch] = []
        size = 0
        for batch in self._batches:
            if batch.end_offset <= offset:
                continue
            size += len(batch.data)
            if batch.end_offset > end_offset or (found and size > bytes_max):
                break
            found.append(batch)
        return found

    async def close(self) -> None:
        await self.flush()

    def crash(self) -> None:
        """Lose everything that no flush covered."""
        del self._batches[self._flushed_batches :]
