"""What the records of all groups have in common in which the coordinator assigns: keys, and the targets.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: the number of a record's type is the version of its key; every value is of VALUE_VERSION.
Read next:  consumer/records.py, share/records.py and streams/records.py, which have the layouts; records.py, which packs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.schema import NEVER_FLEXIBLE, Message, array, int32, int64, string, uuid
from barnabas_wire.lazy_dataclass import dataclass

VALUE_VERSION: Final = 0
JOINS: Final = 0
"""Epoch of a heartbeat by which a member joins, or joins again."""
LEAVES: Final = -1
LEAVES_FOR_A_WHILE: Final = -2
"""Epoch of a static member that will come back: what it has stays its own until its session ends."""
NO_MEMBER_EPOCH: Final = -1

Partitions = Mapping[Uuid, tuple[int, ...]]
"""Topic id -> partitions in ascending order, at least one. Never changed in place."""


class TargetValue(NamedTuple):
    """The epoch that the targets belong to."""

    epoch: int
    timestamp_ms: int = 0
    """When they were made; 0: nothing holds the next ones back."""


@dataclass(slots=True)
class GroupKey(Message):
    """The key of a record for the whole group."""

    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 3, 23, NEVER_FLEXIBLE

    group_id: str = string()


@dataclass(slots=True)
class MemberKey(Message):
    """The key of a record for one member."""

    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 5, 22, NEVER_FLEXIBLE

    group_id: str = string()
    member_id: str = string()


@dataclass(slots=True)
class TargetMessage(Message):
    """The value of a TargetValue."""

    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0)

    @property
    def value(self) -> TargetValue:
        """Without its form on the wire."""
        return TargetValue(self.assignment_epoch, self.assignment_timestamp)


@dataclass(slots=True)
class TopicPartitions:
    """Some partitions of a topic."""

    topic_id: Uuid = uuid()
    partitions: list[int] = array(int32)


@dataclass(slots=True)
class PartitionsMessage(Message):
    """The value of a member's target that is made of partitions."""

    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


def topic_messages(partitions: Partitions) -> list[TopicPartitions]:
    """Partitions as records have them."""
    return [TopicPartitions(topic_id, list(of)) for topic_id, of in partitions.items()]


def partitions_of(found: Iterable[TopicPartitions]) -> Partitions:
    """What records have, in order, without what is empty."""
    return {of.topic_id: tuple(sorted(of.partitions)) for of in found if of.partitions}


class RecordKind(NamedTuple):
    """One type of record, in its bytes and as the coordinator speaks of it. A record has the fields of its key, then the value."""

    number: int
    """The number of the record's type, which is the version of its key."""
    key: type[Message]
    record: type[Any]
    message: type[Message] | None
    """The message that the value holds. None: the value is never read, and only matters as a tombstone or not."""
    to_message: Callable[[Any], Message]
    to_value: Callable[[Any], Any]
    """The way back."""


def target_kind(number: int, record: type[Any]) -> RecordKind:
    """The type of the epoch that the targets belong to."""
    return RecordKind(
        number, GroupKey, record, TargetMessage, lambda target: TargetMessage(*target), lambda of: of.value
    )


def partitions_kind(number: int, record: type[Any]) -> RecordKind:
    """The type of a member's target that is made of partitions."""
    return RecordKind(
        number,
        MemberKey,
        record,
        PartitionsMessage,
        lambda partitions: PartitionsMessage(topic_messages(partitions)),
        lambda of: partitions_of(of.topic_partitions),
    )
