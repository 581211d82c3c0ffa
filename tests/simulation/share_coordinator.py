"""The share coordinator of one key: the real shard, its records in a log that it is read from again, and an oracle beside it.

May touch:  the real shard of share state.     Must not touch: asyncio, the runtime, chance.
Invariants: every record goes through its bytes, as in the real log; what the shard has is compared with what was written after every
            change of hands; a log is pruned where the shard says that it may be.
Read next:  share_laws.py (StateOracle), barnabas_coordination/share_state/shard.py.

The runtime is left out: a record is committed at once or not appended. What it does with what is not committed is its own
(tests/broker/coordinator/test_runtime.py), and what its callers see of that, answers that are lost, is in share_simulator.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas_coordination.shard import CoordinatorResult, Placed
from barnabas_coordination.share_config import ShareCoordinatorConfig
from barnabas_coordination.share_state.messages import ShareKey, ShareState
from barnabas_coordination.share_state.shard import COLD, ShareShard
from barnabas_coordination.share_state.state import Change
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Epoch, Offset
from tests.simulation.share_laws import PartitionHistory, StateOracle, require


class SimulatedCoordinator:
    """Keeps one share partition's state, and loses nothing that it acknowledged."""

    def __init__(
        self, history: PartitionHistory, key: ShareKey, *, updates_per_snapshot: int, now_ms: Callable[[], int]
    ) -> None:
        """updates_per_snapshot: few, so that there are many snapshots."""
        self._history = history
        self._key = key
        self._config = ShareCoordinatorConfig(snapshot_update_records_per_snapshot=updates_per_snapshot)
        self._now_ms = now_ms
        self._records: list[tuple[Offset, tuple[bytes, bytes | None]]] = []
        self._end = Offset(0)
        self._shard = self._new_shard()
        self._oracle = StateOracle(-1)
        self.leader_known = -1
        """The highest term that has read."""

    def _new_shard(self) -> ShareShard:
        return ShareShard(self._config, has_partition=lambda topic_id, partition: True, is_current=lambda: True)

    def _perform(self, result: CoordinatorResult) -> Any:
        """Append, replay, commit; returns the outcome of the reply."""
        for record in result.records:
            key, value = self._shard.encode(record)
            placed = Placed(self._end, self._shard.decode(key, value))
            self._records.append((self._end, (key, value)))
            self._end = Offset(self._end + 1)
            self._shard.replay(placed)
            self._shard.on_committed(placed)
        return result.replies[0].outcome if result.replies else None

    def initialize(self, *, state_epoch: int, start_offset: int) -> None:
        """The group's coordinator begins the key."""
        self._perform(
            self._shard.initialize(
                self._key, "t", state_epoch=Epoch(state_epoch), start_offset=Offset(start_offset), now_ms=self._now_ms()
            )
        )
        self._oracle = StateOracle(start_offset)

    def read(self, *, leader_epoch: int) -> ShareState | None:
        """What a leader begins with; None where it is fenced."""
        try:
            state: ShareState = self._perform(
                self._shard.read(self._key, "t", leader_epoch=Epoch(leader_epoch), now_ms=self._now_ms())
            )
        except KafkaError as error:
            require(error.code is ErrorCode.FENCED_LEADER_EPOCH, "S12", f"a read of term {leader_epoch}: {error}")
            return None
        require(leader_epoch >= self.leader_known, "S11", f"term {leader_epoch} reads after {self.leader_known}")
        self.leader_known = leader_epoch
        self._oracle.check("read", state.start_offset, state.batches)
        return state

    def write(self, change: Change) -> ErrorCode:
        """A leader's change; NONE where it is kept."""
        try:
            self._perform(self._shard.write(self._key, change, "t", now_ms=self._now_ms()))
        except KafkaError as error:
            require(
                error.code in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH), "S12", f"{change}: {error}"
            )
            return error.code
        known = self._shard.states[self._key].state_epoch
        require(change.state_epoch == known, "S11", f"a write of state epoch {change.state_epoch} is kept in {known}")
        self._oracle.write(change.start_offset, change.batches)
        summary = self._shard.states[self._key].summary
        self._history.on_persisted(
            leader_epoch=change.leader_epoch,
            leader_known=self.leader_known,
            start=summary.start_offset,
            complete=summary.complete_count,
        )
        return ErrorCode.NONE

    def move(self, *, prunes: bool) -> None:
        """Another broker reads the log, of which what is redundant may be gone."""
        if prunes:
            self._perform(self._shard.on_timer(COLD, now_ms=self._now_ms()))
            needed = self._shard.first_needed
            self._records = [each for each in self._records if each[0] >= needed]
        self._shard = self._new_shard()
        for offset, (key, value) in self._records:
            placed = Placed(offset, self._shard.decode(key, value))
            self._shard.replay(placed)
            self._shard.on_committed(placed)
        self.check()

    def check(self) -> None:
        """S12: what is kept is what was written."""
        state = self._shard.states[self._key]
        self._oracle.check("kept", state.start_offset, state.batches)
        require(
            state.leader_epoch == max(self.leader_known, 0),
            "S12",
            f"{state.leader_epoch} is kept, {self.leader_known} has read",
        )
