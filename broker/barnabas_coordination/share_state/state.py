"""The rules of share state: how changes are merged, and who may begin, read and change it (KIP-932, 1226).

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: of two words about an offset the one with the higher (deliveries, state, due time) counts, in whatever order they come;
            neither a count nor the start offset falls but where the state is begun again; a snapshot is what its
            predecessor and the updates after it come to.
Read next:  records.py (the bytes), shard.py (who applies the rules).

Differences from Kafka, which no reader of the records can tell but by these: a key has one leader epoch, where Kafka has a stored one and
a greatest one seen and forgets the second when its log is pruned; the count of updates restarts with every snapshot,
where Kafka has only those start it that a write brought. Our due time takes part in the order, so that of two releases
the later time holds.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from typing import Final, NamedTuple

from barnabas_coordination.share_state.messages import (
    NO_COUNT,
    DeliveryState,
    ShareKey,
    ShareSummary,
    StateBatch,
)
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import NO_OFFSET, Epoch, Offset

NO_LEADER_EPOCH: Final = Epoch(-1)
"""What an update says that leaves the leader epoch as it is."""


class KeptState(NamedTuple):
    """What is kept of one share partition."""

    snapshot_epoch: int = 0
    """How many snapshots it had since it was begun first."""
    state_epoch: Epoch = Epoch(0)
    leader_epoch: Epoch = Epoch(0)
    start_offset: Offset = NO_OFFSET
    complete_count: int = NO_COUNT
    created_ms: int = 0
    """When its last snapshot but for cold ones was written, wall clock ms."""
    written_ms: int = 0
    """When its last snapshot was written."""
    batches: tuple[StateBatch, ...] = ()
    updates: int = 0
    """How many updates it had since its last snapshot."""

    @property
    def is_cold(self) -> bool:
        """Whether its last snapshot is one that only repeats the state."""
        return self.created_ms != self.written_ms

    @property
    def summary(self) -> ShareSummary:
        """Without its batches."""
        return ShareSummary(self.state_epoch, self.leader_epoch, self.start_offset, self.complete_count)


class ShareSnapshot(NamedTuple):
    """A record: the whole state; None: it is forgotten."""

    key: ShareKey
    state: KeptState | None


class ShareUpdate(NamedTuple):
    """A record: a change of the state."""

    key: ShareKey
    snapshot_epoch: int
    leader_epoch: Epoch
    start_offset: Offset
    """NO_OFFSET: as it was."""
    complete_count: int
    batches: tuple[StateBatch, ...] = ()


ShareRecord = ShareSnapshot | ShareUpdate


class Change(NamedTuple):
    """What a leader wants kept; see Persister.write."""

    state_epoch: Epoch
    leader_epoch: Epoch
    start_offset: Offset
    complete_count: int
    batches: Sequence[StateBatch]


# ---- merging ---------------------------------------------------------------------------------------------------------


def merge(
    batches: tuple[StateBatch, ...], changes: Iterable[StateBatch], *, start_offset: Offset
) -> tuple[StateBatch, ...]:
    """Ascending batches with changes laid over them, without what is below the start offset.

    `changes` may overlap and be in any order. Of the batches only those between the first and the last change are looked at: one
    acknowledgement in a window of thousands costs two searches and a copy.
    """
    if start_offset != NO_OFFSET:
        batches = tuple(_from(batches, start_offset))
        changes = [
            change if change.first >= start_offset else change._replace(first=start_offset)
            for change in changes
            if change.last >= start_offset
        ]
    above = _normalized(sorted(set(changes)))
    if not above:
        return batches
    begin = bisect_left(batches, Offset(above[0].first - 1), key=_last)  # with a neighbour that may become one with it
    end = bisect_right(batches, Offset(above[-1].last + 1), lo=begin, key=_first)
    return batches[:begin] + tuple(_overlaid(batches[begin:end], above)) + batches[end:]


def _from(batches: Sequence[StateBatch], start: Offset) -> Sequence[StateBatch]:
    if not batches or batches[0].first >= start:
        return batches
    left = batches[bisect_left(batches, start, key=_last) :]
    if left and left[0].first < start:
        return (left[0]._replace(first=start), *left[1:])
    return left


def _normalized(changes: Sequence[StateBatch]) -> Sequence[StateBatch]:
    """Sorted batches that may overlap, as such that do not."""
    if all(before.last < after.first for before, after in pairwise(changes)):
        return _overlaid(changes, ())
    middle = len(changes) // 2
    return _overlaid(_normalized(changes[:middle]), _normalized(changes[middle:]))


def _overlaid(one: Sequence[StateBatch], other: Sequence[StateBatch]) -> list[StateBatch]:
    """Two sequences that each ascend without overlaps, as one in which of two that cover an offset the greater counts."""
    found: list[StateBatch] = []

    def add(batch: StateBatch) -> None:
        if found and found[-1].last + 1 == batch.first and found[-1][2:] == batch[2:]:
            found[-1] = found[-1]._replace(last=batch.last)
        else:
            found.append(batch)

    lefts, rights = iter(one), iter(other)
    left, right = next(lefts, None), next(rights, None)
    while left is not None and right is not None:
        if left.first > right.first:
            left, right, lefts, rights = right, left, rights, lefts
        if left.last < right.first:
            add(left)
            left = next(lefts, None)
        elif left.first < right.first:
            add(left._replace(last=Offset(right.first - 1)))
            left = left._replace(first=right.first)
        else:
            last = min(left.last, right.last)
            add(max(left, right, key=_rank)._replace(last=last))
            left = left._replace(first=Offset(last + 1)) if left.last > last else next(lefts, None)
            right = right._replace(first=Offset(last + 1)) if right.last > last else next(rights, None)
    if left is not None:
        add(left)
    if right is not None:
        add(right)
    for batch in chain(lefts, rights):
        add(batch)
    return found


def _first(batch: StateBatch) -> Offset:
    return batch.first


def _last(batch: StateBatch) -> Offset:
    return batch.last


def _rank(batch: StateBatch) -> tuple[int, int, int]:
    return batch.deliveries, batch.state, batch.due_ms


# ---- decisions -------------------------------------------------------------------------------------------------------


def initialize(
    key: ShareKey, known: KeptState | None, *, state_epoch: Epoch, start_offset: Offset, now_ms: int
) -> ShareSnapshot:
    """The state begun, or begun again without batches. Raises FENCED_STATE_EPOCH, INVALID_REQUEST."""
    if state_epoch < 0 or start_offset < NO_OFFSET:
        raise _invalid(f"state epoch {state_epoch} and start offset {start_offset} of {key.coordinator_key}")
    if known is not None:
        _check_state_epoch(key, known, state_epoch)
    state = KeptState(
        snapshot_epoch=0 if known is None else known.snapshot_epoch + 1,
        state_epoch=state_epoch,
        leader_epoch=Epoch(0) if known is None else known.leader_epoch,
        start_offset=start_offset,
        complete_count=NO_COUNT if start_offset == NO_OFFSET else 0,
        created_ms=now_ms,
        written_ms=now_ms,
    )
    return ShareSnapshot(key, state)


def write(key: ShareKey, known: KeptState | None, change: Change, *, updates_max: int, now_ms: int) -> ShareRecord:
    """A change to be kept: an update, or after `updates_max` of them a snapshot.

    Raises INVALID_REQUEST for a key that was never initialized and for what is no change, FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH.
    """
    _check_change(key, change)
    known = _initialized(key, known)
    _check_leader_epoch(key, known, change.leader_epoch)
    _check_state_epoch(key, known, change.state_epoch)
    count = change.complete_count
    if change.start_offset == known.start_offset:
        count = max(count, known.complete_count)
    elif change.start_offset < known.start_offset:
        count = known.complete_count
    return _record(
        key,
        known,
        leader_epoch=known.leader_epoch,
        start_offset=max(change.start_offset, known.start_offset),
        complete_count=count,
        batches=change.batches,
        updates_max=updates_max,
        now_ms=now_ms,
    )


def read(
    key: ShareKey, known: KeptState | None, *, leader_epoch: Epoch, updates_max: int, now_ms: int
) -> ShareRecord | None:
    """What is to be written before a leader of that epoch gets the state; None where the epoch is known already.

    Raises INVALID_REQUEST for a key that was never initialized, FENCED_LEADER_EPOCH.
    """
    known = _initialized(key, known)
    _check_leader_epoch(key, known, leader_epoch)
    if leader_epoch == known.leader_epoch:
        return None
    return _record(
        key,
        known,
        leader_epoch=leader_epoch,
        start_offset=known.start_offset,
        complete_count=known.complete_count,
        batches=(),
        updates_max=updates_max,
        now_ms=now_ms,
    )


def repeat(key: ShareKey, known: KeptState, *, now_ms: int) -> ShareSnapshot:
    """A cold snapshot: the state again, so that what came before it may go."""
    return ShareSnapshot(key, known._replace(snapshot_epoch=known.snapshot_epoch + 1, written_ms=now_ms, updates=0))


def updated(known: KeptState | None, update: ShareUpdate) -> KeptState:
    """The state after an update. Without one before it, which is gone by force, what the update says is all there is."""
    before = known or KeptState(snapshot_epoch=update.snapshot_epoch)
    start = before.start_offset if update.start_offset == NO_OFFSET else update.start_offset
    return before._replace(
        leader_epoch=before.leader_epoch if update.leader_epoch == NO_LEADER_EPOCH else update.leader_epoch,
        start_offset=start,
        complete_count=update.complete_count,
        batches=merge(before.batches, update.batches, start_offset=start),
        updates=before.updates + 1,
    )


def _record(
    key: ShareKey,
    known: KeptState,
    *,
    leader_epoch: Epoch,
    start_offset: Offset,
    complete_count: int,
    batches: Sequence[StateBatch],
    updates_max: int,
    now_ms: int,
) -> ShareRecord:
    update = ShareUpdate(
        key,
        known.snapshot_epoch,
        leader_epoch,
        start_offset,
        complete_count,
        merge((), batches, start_offset=start_offset),
    )
    if known.updates < updates_max:
        return update
    return ShareSnapshot(
        key,
        updated(known, update)._replace(
            snapshot_epoch=known.snapshot_epoch + 1, created_ms=now_ms, written_ms=now_ms, updates=0
        ),
    )


# ---- checks ----------------------------------------------------------------------------------------------------------


def _check_change(key: ShareKey, change: Change) -> None:
    for first, last, state, deliveries, due_ms in change.batches:
        if not 0 <= first <= last or state is DeliveryState.ACQUIRED or deliveries < 0 or due_ms < 0:
            raise _invalid(f"offsets {first} to {last} of {key.coordinator_key}: {state.name}, {deliveries} deliveries")
    if change.start_offset < NO_OFFSET or change.complete_count < NO_COUNT or change.state_epoch < 0:
        raise _invalid(
            f"start offset {change.start_offset}, count {change.complete_count} and state epoch {change.state_epoch} of "
            f"{key.coordinator_key}"
        )


def _initialized(key: ShareKey, known: KeptState | None) -> KeptState:
    if known is None:
        raise KafkaError.of(
            ErrorCode.INVALID_REQUEST,
            f"{key.coordinator_key} was never initialized; its group's coordinator does that when a member subscribes",
        )
    return known


def _check_leader_epoch(key: ShareKey, known: KeptState, epoch: Epoch) -> None:
    if epoch < 0:
        raise _invalid(f"leader epoch {epoch} of {key.coordinator_key}")
    if epoch < known.leader_epoch:
        raise KafkaError.of(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"{key.coordinator_key} was read by a leader of epoch {known.leader_epoch}, this one is of {epoch}",
        )


def _check_state_epoch(key: ShareKey, known: KeptState, epoch: Epoch) -> None:
    if epoch < known.state_epoch:
        raise KafkaError.of(
            ErrorCode.FENCED_STATE_EPOCH,
            f"{key.coordinator_key} was begun anew in state epoch {known.state_epoch}, this is of {epoch}",
        )


def _invalid(what: str) -> KafkaError:
    return KafkaError.of(ErrorCode.INVALID_REQUEST, f"no share coordinator takes {what}")
