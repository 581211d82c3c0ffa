"""What the groups of one `__consumer_offsets` partition have committed, inside transactions and outside.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network, members.
Invariants: `replay` of the log from its start gives the same; a group is here iff something is committed for it, or on its way.
Read next:  offsets.py (one group), pending_offsets.py (open transactions); shard.py, which asks who may commit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from typing import Final

from barnabas_coordination.group.any_group import AnyGroup
from barnabas_coordination.group.messages import CommittedOffset
from barnabas_coordination.group.offsets import GroupOffsets, expired_offsets
from barnabas_coordination.group.pending_offsets import PendingOffsets
from barnabas_coordination.group.records import OffsetCommitRecord
from barnabas_coordination.shard import Pending, TransactionEnd
from barnabas_wire.kafka.ids import NO_EPOCH, NO_OFFSET, Offset, TopicPartition

NOTHING_COMMITTED: Final = CommittedOffset(NO_OFFSET, NO_EPOCH, "")


class CommittedOffsets:
    """The committed offsets of all groups of one partition of __consumer_offsets."""

    __slots__ = ("by_group", "pending")

    def __init__(self) -> None:
        self.by_group: dict[str, GroupOffsets] = {}
        self.pending = PendingOffsets()

    def groups(self) -> Iterator[str]:
        """Every group that has something, some of them twice."""
        return chain(self.by_group, self.pending.groups())

    # ---- reading -------------------------------------------------------------------------------------------------

    def fetch(self, group_id: str, key: TopicPartition) -> CommittedOffset:
        """What the group has committed for one partition; NOTHING_COMMITTED when nothing."""
        offsets = self.by_group.get(group_id)
        value = None if offsets is None else offsets.committed.get(key)
        if value is None:
            return NOTHING_COMMITTED
        return CommittedOffset(value.offset, value.leader_epoch, value.metadata, value.topic_id)

    def is_unstable(self, group_id: str, key: TopicPartition) -> bool:
        """Whether a transaction may still change what is committed for the partition."""
        return self.pending.is_unstable(group_id, key)

    def partitions(self, group_id: str) -> list[TopicPartition]:
        """Partitions for which the group has committed something, sorted."""
        offsets = self.by_group.get(group_id)
        return [] if offsets is None else sorted(offsets.committed)

    def all(self) -> list[tuple[str, TopicPartition, Offset]]:
        """All that is committed: group, partition, offset. Each dict is copied by one call: another thread may ask."""
        return [
            (group_id, key, value.offset)
            for group_id, offsets in list(self.by_group.items())
            for key, value in list(offsets.committed.items())
        ]

    # ---- deciding what to forget ---------------------------------------------------------------------------------

    def keys(self, group_id: str) -> set[TopicPartition]:
        """Partitions for which the group has something once all that is on its way is committed, but for open transactions."""
        offsets = self.by_group.get(group_id)
        return set() if offsets is None else set(offsets.latest())

    def is_used(self, group_id: str) -> bool:
        """Whether the group has anything, open transactions included."""
        offsets = self.by_group.get(group_id)
        return (offsets is not None and not offsets.is_empty) or self.pending.has_group(group_id)

    def tombstones_of(self, group_id: str) -> list[OffsetCommitRecord]:
        """What forgets all of a group; what open transactions wrote goes too: their markers must not bring it back."""
        return tombstones(group_id, sorted(self.keys(group_id).union(self.pending.keys_of(group_id))))

    def tombstones_of_topics(self, topics: Collection[str]) -> list[OffsetCommitRecord]:
        """What forgets topics, in every group."""
        return [
            each
            for group_id in self.by_group
            for each in tombstones(group_id, (key for key in self.keys(group_id) if key.topic in topics))
        ]

    def expired(self, group: AnyGroup, *, now_ms: int, retention_ms: int) -> list[OffsetCommitRecord]:
        """What forgets those of a group whose time is over."""
        group_id = group.group_id
        offsets = self.by_group.get(group_id)
        if offsets is None:
            return []
        found = expired_offsets(group, offsets, now_ms=now_ms, retention_ms=retention_ms)
        return tombstones(group_id, (key for key in found if not self.is_unstable(group_id, key)))

    # ---- replay --------------------------------------------------------------------------------------------------

    def replay(self, record: OffsetCommitRecord | Pending | TransactionEnd) -> list[OffsetCommitRecord]:
        """Change state by one record; returns what it says of groups: itself, what a transaction wrote, or what counts by its marker."""
        match record:
            case OffsetCommitRecord():
                self.pending.supersede(record)
                counting = [record]
            case Pending(producer_id, written):
                self.pending.write(producer_id, written)
                return [written]
            case TransactionEnd(producer_id, is_commit):
                counting = self.pending.end(producer_id, is_commit=is_commit)
        for each in counting:
            offsets = self.by_group.setdefault(each.group_id, GroupOffsets())
            offsets.replay(TopicPartition(each.topic, each.partition), each.value)
        return counting

    def on_committed(self, record: OffsetCommitRecord | TransactionEnd) -> None:
        """The record is below the high watermark: readers may see it."""
        for each in [record] if isinstance(record, OffsetCommitRecord) else self.pending.on_end_committed():
            offsets = self.by_group[each.group_id]
            offsets.on_committed(TopicPartition(each.topic, each.partition))
            if offsets.is_settled_and_empty:
                del self.by_group[each.group_id]


def tombstones(group_id: str, keys: Iterable[TopicPartition]) -> list[OffsetCommitRecord]:
    """What forgets these partitions of a group."""
    return [OffsetCommitRecord(group_id, key.topic, key.partition, None) for key in keys]
