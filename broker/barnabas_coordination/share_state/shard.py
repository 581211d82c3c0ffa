"""The share partitions of one `__share_group_state` partition: every request finds its key here, every record is replayed here.

May touch:  its arguments.            Must not touch: asyncio, clock, randomness, log, network.
Invariants: `replay` of the log from `first_needed` on gives the state that live steps gave; only what is committed makes older
            records redundant; state is forgotten for want of its topic only while the image is as new as this process.
Read next:  state.py (the rules), ../runtime.py (who performs the results), service.py (who prunes).

Not obvious: several records of a key count, its last snapshot and what came after. The topic is not compacted, and a load replays all.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

from barnabas_coordination.shard import CoordinatorResult, Placed, Ticket
from barnabas_coordination.share_config import ShareCoordinatorConfig
from barnabas_coordination.share_state import records as codec
from barnabas_coordination.share_state import state as rules
from barnabas_coordination.share_state.messages import ShareKey, ShareState, ShareSummary
from barnabas_coordination.share_state.state import Change, KeptState, ShareRecord, ShareSnapshot, ShareUpdate
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Epoch, Offset, Uuid

COLD: Final = "cold snapshots"
"""Key of the timer that looks for state that was not written for long."""
GONE: Final = "deleted topics"
"""Key of the timer that looks for state whose topic is gone."""
COLD_BATCHES_MAX: Final = 5_000
"""Most ranges of offsets that the snapshots of one look hold together, about 150 KB; the rest follows at once."""
GONE_RECORDS_MAX: Final = 5_000
"""Most tombstones of one look; the rest follows at once."""
CONTINUE_MS: Final = 100
GONE_DELAY_MS: Final = 1_000
"""The time between the news that a topic is deleted and the look: until then the image has it, too."""


class ShareShard:
    """State of one partition of `__share_group_state`. Meets CoordinatorShard."""

    def __init__(
        self,
        config: ShareCoordinatorConfig,
        *,
        has_partition: Callable[[Uuid, int], bool],
        is_current: Callable[[], bool],
    ) -> None:
        """has_partition: whether the image has a partition of a topic. is_current: whether the image is as new as this process's
        registration, so that what it lacks was deleted."""
        self._config = config
        self._has_partition = has_partition
        self._is_current = is_current
        self.states: dict[ShareKey, KeptState] = {}
        """As of the newest record, committed or not: replies wait until it is."""
        self._snapshots: dict[ShareKey, Offset] = {}
        """Where the last committed snapshot of each key is."""
        self._committed_end = Offset(0)

    @property
    def first_needed(self) -> Offset:
        """Every record before this offset is redundant."""
        return min(self._snapshots.values(), default=self._committed_end)

    # ---- requests ------------------------------------------------------------------------------------------------

    def initialize(
        self, key: ShareKey, ticket: Ticket, *, state_epoch: Epoch, start_offset: Offset, now_ms: int
    ) -> CoordinatorResult:
        """The reply is None. Raises as state.initialize, and UNKNOWN_TOPIC_OR_PARTITION."""
        record = rules.initialize(
            key, self.states.get(key), state_epoch=state_epoch, start_offset=start_offset, now_ms=now_ms
        )
        return self._written(key, record, ticket, None)

    def write(self, key: ShareKey, change: Change, ticket: Ticket, *, now_ms: int) -> CoordinatorResult:
        """The reply is None. Raises as state.write, and UNKNOWN_TOPIC_OR_PARTITION."""
        record = rules.write(key, self.states.get(key), change, updates_max=self._updates_max, now_ms=now_ms)
        return self._written(key, record, ticket, None)

    def read(self, key: ShareKey, ticket: Ticket, *, leader_epoch: Epoch, now_ms: int) -> CoordinatorResult:
        """The reply is a ShareState, once leaders of lower epochs are shut out for good. Raises as state.read, and
        UNKNOWN_TOPIC_OR_PARTITION."""
        known = self.states.get(key)
        record = rules.read(key, known, leader_epoch=leader_epoch, updates_max=self._updates_max, now_ms=now_ms)
        assert known is not None, "a key without state was read"
        return self._written(key, record, ticket, ShareState(known.state_epoch, known.start_offset, known.batches))

    def summary(self, key: ShareKey, ticket: Ticket) -> CoordinatorResult:
        """The reply is a ShareSummary. Kafka refuses it for a topic that is gone."""
        known = self.states.get(key)
        result = CoordinatorResult()
        result.reply(ticket, ShareSummary() if known is None else known.summary)
        return result

    def delete(self, key: ShareKey, ticket: Ticket) -> CoordinatorResult:
        """The reply is None. Kafka refuses it for a topic that is gone."""
        result = CoordinatorResult()
        if key in self.states:
            result.records.append(ShareSnapshot(key, None))
        result.reply(ticket, None)
        return result

    def look_for_deleted(self) -> CoordinatorResult:
        """A topic was deleted: its state goes soon."""
        result = CoordinatorResult()
        result.arm(GONE, GONE_DELAY_MS)
        return result

    @property
    def _updates_max(self) -> int:
        return self._config.snapshot_update_records_per_snapshot

    def _written(self, key: ShareKey, record: ShareRecord | None, ticket: Ticket, outcome: object) -> CoordinatorResult:
        if not self._has_partition(key.topic_id, key.partition):
            raise KafkaError.of(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"the share coordinator knows no partition {key.partition} of a topic {key.topic_id}",
            )
        result = CoordinatorResult()
        if record is not None:
            result.records.append(record)
        result.reply(ticket, outcome)
        return result

    # ---- time ----------------------------------------------------------------------------------------------------

    def on_loaded(self, *, now_ms: int) -> CoordinatorResult:
        """Begin to look at the clock."""
        result = CoordinatorResult()
        result.arm(COLD, self._config.cold_snapshot_interval_ms)
        result.arm(GONE, self._config.prune_interval_ms)
        return result

    def on_timer(self, key: Hashable, *, now_ms: int) -> CoordinatorResult:
        """Write cold state again, or forget that of deleted topics."""
        if key == COLD:
            return self._repeat_cold(now_ms)
        assert key == GONE, key
        return self._forget_deleted()

    def _repeat_cold(self, now_ms: int) -> CoordinatorResult:
        """All that is old, unless all was repeated already: then nothing is kept for the sake of an old snapshot."""
        result = CoordinatorResult()
        interval_ms = self._config.cold_snapshot_interval_ms
        delay_ms = interval_ms
        size = 0
        if not all(state.is_cold for state in self.states.values()):
            for key, state in self.states.items():
                if now_ms - state.written_ms < interval_ms:
                    continue
                if size >= COLD_BATCHES_MAX:
                    delay_ms = CONTINUE_MS
                    break
                result.records.append(rules.repeat(key, state, now_ms=now_ms))
                size += 10 + len(state.batches)
        result.arm(COLD, delay_ms)
        return result

    def _forget_deleted(self) -> CoordinatorResult:
        result = CoordinatorResult()
        delay_ms = self._config.prune_interval_ms
        if self._is_current():
            gone = [key for key in self.states if not self._has_partition(key.topic_id, key.partition)]
            result.records.extend(ShareSnapshot(key, None) for key in gone[:GONE_RECORDS_MAX])
            if len(gone) > GONE_RECORDS_MAX:
                delay_ms = CONTINUE_MS
        result.arm(GONE, delay_ms)
        return result

    # ---- replay --------------------------------------------------------------------------------------------------

    def encode(self, record: ShareRecord) -> tuple[bytes, bytes | None]:
        """Typed record -> key and value."""
        return codec.encode(record)

    def decode(self, key: bytes, value: bytes | None) -> ShareRecord | None:
        """Key and value -> typed record."""
        return codec.decode(key, value)

    def replay(self, placed: Placed) -> None:
        """Change state by one record."""
        record = placed.record
        if isinstance(record, ShareUpdate):
            self.states[record.key] = rules.updated(self.states.get(record.key), record)
        elif record.state is None:
            self.states.pop(record.key, None)
        else:
            self.states[record.key] = record.state

    def on_refused(self, result: CoordinatorResult, error: KafkaError) -> CoordinatorResult:
        """Records could not be appended: nothing has changed."""
        return result.refused(error)

    def on_committed(self, placed: Placed) -> None:
        """The record is below the high watermark: a snapshot makes what its key had before redundant."""
        offset, record = placed
        self._committed_end = Offset(offset + 1)
        if isinstance(record, ShareSnapshot):
            if record.state is None:
                self._snapshots.pop(record.key, None)
            else:
                self._snapshots[record.key] = offset
        else:
            self._snapshots.setdefault(record.key, offset)
