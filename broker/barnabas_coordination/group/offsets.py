"""Committed offsets of one group: what is committed, what is still on its way, and when an offset may go.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: a reader sees an offset only once its record is committed; writes of one key commit in the order of their replay.
Read next:  shard.py, which turns commits into records; records.py for their bytes.

Not obvious: instead of a versioned map there are two: `committed`, and per key the queue of values replayed but not yet below
the high watermark. Losing leadership drops both. Deciding what to delete looks at the newest value, reading at the committed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from barnabas_coordination.group.any_group import AnyGroup
from barnabas_coordination.group.classic import ClassicGroup
from barnabas_coordination.group.messages import OffsetCommit
from barnabas_coordination.group.protocols import CONSUMER_PROTOCOL_TYPE
from barnabas_coordination.group.records import NO_TIMESTAMP, OffsetCommitRecord, OffsetValue
from barnabas_coordination.group.states import GroupState
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import TopicPartition


class GroupOffsets:
    """The offsets of one group."""

    __slots__ = ("committed", "uncommitted")

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, OffsetValue] = {}
        self.uncommitted: dict[TopicPartition, deque[OffsetValue | None]] = {}

    def replay(self, key: TopicPartition, value: OffsetValue | None) -> None:
        """A record was appended."""
        self.uncommitted.setdefault(key, deque()).append(value)

    def on_committed(self, key: TopicPartition) -> None:
        """The oldest uncommitted record of the key is now below the high watermark."""
        queue = self.uncommitted[key]
        value = queue.popleft()
        if not queue:
            del self.uncommitted[key]
        if value is None:
            self.committed.pop(key, None)
        else:
            self.committed[key] = value

    def latest(self) -> Iterator[TopicPartition]:
        """Keys that have an offset once everything on its way is committed."""
        for key in self.committed:
            if key not in self.uncommitted:
                yield key
        for key, queue in self.uncommitted.items():
            if queue[-1] is not None:
                yield key

    @property
    def is_empty(self) -> bool:
        """Whether nothing will be left once everything on its way is committed."""
        return next(self.latest(), None) is None

    @property
    def is_settled_and_empty(self) -> bool:
        """Whether nothing is here and nothing is on its way."""
        return not self.committed and not self.uncommitted


def commit_records(
    commit: OffsetCommit, *, metadata_units_max: int, now_ms: int
) -> tuple[list[OffsetCommitRecord], tuple[ErrorCode, ...]]:
    """Records for the offsets that may be kept, and one code per offset asked for, in order."""
    expire_timestamp_ms = now_ms + commit.retention_ms if commit.retention_ms >= 0 else NO_TIMESTAMP
    records = []
    codes = []
    for item in commit.offsets:
        # Kafka compares a Java string's length, in UTF-16 units, with a key that says bytes.
        if len(item.metadata.encode("utf-16-le")) > 2 * metadata_units_max:
            codes.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            continue
        codes.append(ErrorCode.NONE)
        value = OffsetValue(item.offset, item.leader_epoch, item.metadata, now_ms, expire_timestamp_ms, item.topic_id)
        records.append(OffsetCommitRecord(commit.member.group_id, item.topic, item.partition, value))
    return records, tuple(codes)


def expired_offsets(group: AnyGroup, offsets: GroupOffsets, *, now_ms: int, retention_ms: int) -> list[TopicPartition]:
    """Keys whose time is over. A key with a commit on its way never is."""
    return [
        key
        for key, value in offsets.committed.items()
        if key not in offsets.uncommitted and _is_expired(group, key.topic, value, now_ms, retention_ms)
    ]


def _is_expired(group: AnyGroup, topic: str, value: OffsetValue, now_ms: int, retention_ms: int) -> bool:
    """KIP-211: retention counts from the moment that the offset is not used any more. Kafka forgets what was committed
    for an empty group that once had members (by an operator, a consumer without membership) by the group's emptiness
    alone."""
    if not isinstance(group, ClassicGroup):
        # By the time of the commit, as in Kafka, even where the group has just become empty.
        if group.is_subscribed_to(topic):
            return False
        since_ms = value.commit_timestamp_ms
    elif group.state is GroupState.EMPTY and group.protocol_type is not None:
        since_ms = max(group.state_timestamp_ms, value.commit_timestamp_ms)
    elif group.protocol_type is None:
        since_ms = value.commit_timestamp_ms
    elif group.state is GroupState.STABLE and group.protocol_type == CONSUMER_PROTOCOL_TYPE:
        if group.is_subscribed_to(topic):
            return False
        since_ms = value.commit_timestamp_ms
    else:
        return False
    if value.expire_timestamp_ms != NO_TIMESTAMP:
        return now_ms >= value.expire_timestamp_ms
    return now_ms - since_ms >= retention_ms
