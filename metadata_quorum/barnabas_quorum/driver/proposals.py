"""What was proposed here: batches on their way into the log, and those that wait for their commit.

May touch:  the core, by propose.     Must not touch: asyncio, files, clock.
Invariants: a batch has its offset from the moment it is proposed, and gets no other; nothing is handed over in another epoch
            than it was made for; what waits is bounded by PROPOSED_BYTES_MAX.
Read next:  node.py, which hands over between flushes; ../raft/leading.py.

While a flush is in flight a proposal waits for a linger of a few ms: the next flush then takes what others propose meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from barnabas_quorum.errors import BatchTooLarge, BufferExhausted
from barnabas_quorum.raft.core import QuorumCore
from barnabas_quorum.raft.journal import StoredBatch
from barnabas_wire.kafka.ids import Offset

BATCH_BYTES_MAX = 8 * 1024 * 1024
"""Largest batch of the metadata log (KIP-595's maximum)."""
PROPOSED_BYTES_MAX = 32 * 1024 * 1024
"""Most bytes of proposals that wait to be written; beyond it proposals are refused."""


class _Proposal(NamedTuple):
    batch: StoredBatch
    proposed_s: float
    is_urgent: bool


class Proposals:
    """What one quorum member proposes. Times in seconds of its own clock."""

    def __init__(self, core: QuorumCore, *, linger_ms: float) -> None:
        self._core = core
        self._linger_ms = linger_ms
        self._waiting: list[_Proposal] = []
        self._bytes = 0
        self._uncommitted: deque[tuple[Offset, float]] = deque()

    @property
    def end_offset(self) -> Offset:
        """What the next proposal gets."""
        return self._waiting[-1].batch.end_offset if self._waiting else self._core.end_offset

    def add(self, batch: StoredBatch, *, now_s: float, is_urgent: bool) -> None:
        """Take one in, made for `end_offset`. Raises BatchTooLarge, BufferExhausted."""
        size = len(batch.data)
        if size > BATCH_BYTES_MAX:
            count = batch.end_offset - batch.base_offset
            raise BatchTooLarge(f"{count} metadata records make {size} bytes, at most {BATCH_BYTES_MAX} may be")
        if self._bytes + size > PROPOSED_BYTES_MAX:
            raise BufferExhausted(f"{self._bytes} bytes of proposals wait to be written")
        self._waiting.append(_Proposal(batch, now_s, is_urgent))
        self._bytes += size

    def delay_ms(self, *, now_s: float, is_flushing: bool) -> float:
        """How long those that wait may still wait; infinite where there are none."""
        if not self._waiting:
            return float("inf")
        if not is_flushing:
            return 0.0
        return max(0.0, self._linger_ms - (now_s - self._waiting[0].proposed_s) * 1000)

    def hand_over(self, *, now_ms: int) -> None:
        """Give all of them to the core."""
        core = self._core
        waiting, self._waiting = self._waiting, []
        self._bytes = 0
        for batch, proposed_s, is_urgent in waiting:
            if not core.is_leader or batch.epoch != core.epoch:
                continue  # leadership is gone; whoever proposed hears it from on_leader_change
            count = batch.end_offset - batch.base_offset
            offset = core.propose(batch, record_count=count, now_ms=now_ms, is_urgent=is_urgent)
            assert offset == batch.base_offset, f"promised offset {batch.base_offset}, the log ends at {offset}"
            self._uncommitted.append((batch.end_offset, proposed_s))

    def committed(self) -> Iterator[float]:
        """When each was proposed that has been committed since this was last asked."""
        while self._uncommitted and self._uncommitted[0][0] <= self._core.high_watermark:
            yield self._uncommitted.popleft()[1]

    def forget_uncommitted(self) -> None:
        """Leadership is gone: what becomes of them is another leader's."""
        self._uncommitted.clear()
