"""Share state kept in memory, as the share coordinator keeps it: for leaders that are tried without one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from barnabas_coordination.share_state.messages import ShareKey, ShareState, ShareSummary, StateBatch
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import NO_EPOCH, NO_OFFSET, Epoch, Offset


@dataclass
class _Kept:
    state_epoch: Epoch
    start_offset: Offset
    leader_epoch: Epoch = NO_EPOCH
    complete_count: int = -1
    by_offset: dict[int, StateBatch] = field(default_factory=dict)


class MemoryPersister:
    """Meets Persister. `error` refuses the writes; `gate`, when it is closed, holds them up."""

    def __init__(self) -> None:
        self.kept: dict[ShareKey, _Kept] = {}
        self.error: ErrorCode | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.writes: list[tuple[StateBatch, ...]] = []

    async def initialize(self, key: ShareKey, *, state_epoch: Epoch, start_offset: Offset = NO_OFFSET) -> None:
        """See Persister."""
        self.kept[key] = _Kept(state_epoch, start_offset)

    async def read(self, key: ShareKey, *, leader_epoch: Epoch) -> ShareState:
        """See Persister."""
        await asyncio.sleep(0)
        kept = self._of(key, leader_epoch)
        kept.leader_epoch = leader_epoch
        batches = [kept.by_offset[offset] for offset in sorted(kept.by_offset)]
        return ShareState(kept.state_epoch, kept.start_offset, batches)

    async def write(
        self,
        key: ShareKey,
        *,
        state_epoch: Epoch,
        leader_epoch: Epoch,
        start_offset: Offset,
        complete_count: int,
        batches: Sequence[StateBatch],
    ) -> None:
        """See Persister."""
        await self.gate.wait()
        if self.error is not None:
            raise KafkaError.of(self.error, "the persister was told to refuse")
        kept = self._of(key, leader_epoch)
        if state_epoch < kept.state_epoch:
            raise KafkaError.of(ErrorCode.FENCED_STATE_EPOCH, "an older state")
        self.writes.append(tuple(batches))
        for first, last, state, count, due_ms in batches:
            for offset in range(first, last + 1):
                before = kept.by_offset.get(offset)
                if before is None or (count, state) >= (before.deliveries, before.state):
                    kept.by_offset[offset] = StateBatch(Offset(offset), Offset(offset), state, count, due_ms)
        kept.start_offset = max(kept.start_offset, start_offset)
        kept.complete_count = complete_count
        kept.by_offset = {offset: each for offset, each in kept.by_offset.items() if offset >= kept.start_offset}

    async def delete(self, key: ShareKey) -> None:
        """See Persister."""
        self.kept.pop(key, None)

    async def summary(self, key: ShareKey) -> ShareSummary:
        """See Persister."""
        kept = self.kept.get(key)
        if kept is None:
            return ShareSummary()
        return ShareSummary(kept.state_epoch, kept.leader_epoch, kept.start_offset, kept.complete_count)

    def _of(self, key: ShareKey, leader_epoch: Epoch) -> _Kept:
        kept = self.kept.get(key)
        if kept is None:
            raise KafkaError.of(ErrorCode.INVALID_REQUEST, f"{key} was never initialized")
        if leader_epoch < kept.leader_epoch:
            raise KafkaError.of(ErrorCode.FENCED_LEADER_EPOCH, "another leader has read it")
        return kept
