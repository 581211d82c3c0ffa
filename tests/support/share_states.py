"""Share states kept in memory, as share coordinators keep them: epochs fence, a beginning wipes, what is merged never falls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from barnabas_coordination.share_state.messages import (
    NO_COUNT,
    ShareKey,
    ShareState,
    ShareSummary,
    StateBatch,
)
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import NO_OFFSET, Epoch, Offset

NO_LEADER = Epoch(0)


@dataclass(slots=True)
class _Kept:
    state_epoch: Epoch
    start_offset: Offset
    leader_epoch: Epoch = NO_LEADER
    complete_count: int = NO_COUNT
    batches: tuple[StateBatch, ...] = ()


class MemoryPersister:
    """Meets Persister. `fails`: asked before each call with its name and key; an error that it returns is raised."""

    def __init__(self, fails: Callable[[str, ShareKey], KafkaError | None] = lambda call, key: None) -> None:
        self.fails = fails
        self.kept: dict[ShareKey, _Kept] = {}
        self.calls: list[tuple[str, ShareKey]] = []

    def _called(self, call: str, key: ShareKey) -> None:
        self.calls.append((call, key))
        error = self.fails(call, key)
        if error is not None:
            raise error

    def _known(self, key: ShareKey, leader_epoch: Epoch) -> _Kept:
        kept = self.kept.get(key)
        if kept is None:
            raise KafkaError.of(ErrorCode.INVALID_REQUEST, f"{key} was never begun")
        if leader_epoch < kept.leader_epoch:
            raise KafkaError.of(ErrorCode.FENCED_LEADER_EPOCH, f"{key} has leader epoch {kept.leader_epoch}")
        return kept

    async def initialize(self, key: ShareKey, *, state_epoch: Epoch, start_offset: Offset = NO_OFFSET) -> None:
        self._called("initialize", key)
        before = self.kept.get(key)
        if before is not None and state_epoch < before.state_epoch:
            raise KafkaError.of(ErrorCode.FENCED_STATE_EPOCH, f"{key} has state epoch {before.state_epoch}")
        count = NO_COUNT if start_offset == NO_OFFSET else 0
        self.kept[key] = _Kept(state_epoch, start_offset, complete_count=count)

    async def read(self, key: ShareKey, *, leader_epoch: Epoch) -> ShareState:
        self._called("read", key)
        kept = self._known(key, leader_epoch)
        kept.leader_epoch = leader_epoch
        return ShareState(kept.state_epoch, kept.start_offset, kept.batches)

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
        self._called("write", key)
        kept = self._known(key, leader_epoch)
        if state_epoch < kept.state_epoch:
            raise KafkaError.of(ErrorCode.FENCED_STATE_EPOCH, f"{key} has state epoch {kept.state_epoch}")
        kept.start_offset = max(kept.start_offset, start_offset)
        kept.complete_count = complete_count
        by_offset: dict[int, StateBatch] = {}
        for batch in sorted((*kept.batches, *batches), key=lambda each: (each.deliveries, each.state)):
            for offset in range(max(batch.first, kept.start_offset), batch.last + 1):
                by_offset[offset] = batch._replace(first=Offset(offset), last=Offset(offset))
        kept.batches = tuple(by_offset[offset] for offset in sorted(by_offset))

    async def delete(self, key: ShareKey) -> None:
        self._called("delete", key)
        self.kept.pop(key, None)

    async def summary(self, key: ShareKey) -> ShareSummary:
        self._called("summary", key)
        kept = self.kept.get(key)
        if kept is None:
            return ShareSummary()
        return ShareSummary(kept.state_epoch, kept.leader_epoch, kept.start_offset, kept.complete_count)
