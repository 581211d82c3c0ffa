"""What is kept of one partition of a share group, and the calls of those that keep it.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: a range of offsets is inclusive at both ends; ranges of a state ascend and never overlap.
Read next:  ../share (who writes it), ../group/share (who begins and ends it).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

from barnabas_wire.kafka.ids import NO_OFFSET, Epoch, Offset, Uuid

NO_COUNT = -1
"""A count of complete deliveries that is not known."""


class DeliveryState(IntEnum):
    """State of an offset, by the number that the log and the wire have for it (KIP-932, 3: KIP-1191)."""

    AVAILABLE = 0
    ACQUIRED = 1
    """In memory only: it is never written."""
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """Rejected or exhausted, and not yet among the dead letters."""
    ARCHIVED = 4


class ShareKey(NamedTuple):
    """One partition of one share group."""

    group_id: str
    topic_id: Uuid
    partition: int

    @property
    def coordinator_key(self) -> str:
        """What finds its share coordinator: group:topic id:partition."""
        return f"{self.group_id}:{self.topic_id}:{self.partition}"


class StateBatch(NamedTuple):
    """Offsets of one state."""

    first: Offset
    last: Offset
    state: DeliveryState
    deliveries: int
    """How often they were delivered so far."""
    due_ms: int = 0
    """Ours: wall clock ms before which an AVAILABLE offset is not delivered; 0: at once."""


class ShareState(NamedTuple):
    """What a leader reads when it begins to serve a share partition."""

    state_epoch: Epoch
    start_offset: Offset = NO_OFFSET
    """NO_OFFSET: where the group's share.auto.offset.reset says."""
    batches: Sequence[StateBatch] = ()


class ShareSummary(NamedTuple):
    """What describes a share partition without its batches."""

    state_epoch: Epoch = Epoch(0)
    leader_epoch: Epoch = Epoch(0)
    start_offset: Offset = NO_OFFSET
    """NO_OFFSET also where nothing is known of the key."""
    complete_count: int = NO_COUNT
    """Offsets from start_offset on whose delivery is complete."""


class Persister(Protocol):
    """Keeps the state of share partitions: finds each key's share coordinator, asks it, and asks again while that may help.

    Every call raises KafkaError with the code of the coordinator's last answer: FENCED_STATE_EPOCH, FENCED_LEADER_EPOCH,
    UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST (a key that was never initialized), COORDINATOR_NOT_AVAILABLE, GROUP_ID_NOT_FOUND.
    """

    async def initialize(self, key: ShareKey, *, state_epoch: Epoch, start_offset: Offset = NO_OFFSET) -> None:
        """Begin, or begin again: what was kept of the key is gone."""
        ...

    async def read(self, key: ShareKey, *, leader_epoch: Epoch) -> ShareState:
        """The state; from now on leaders of lower epochs are refused."""
        ...

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
        """Keep what changed. Returns once it is committed."""
        ...

    async def delete(self, key: ShareKey) -> None:
        """Forget the key; one that is not known is no error."""
        ...

    async def summary(self, key: ShareKey) -> ShareSummary:
        """How far the key is. Of one that is not known: the defaults."""
        ...
