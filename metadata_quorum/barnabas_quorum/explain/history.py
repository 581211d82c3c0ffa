"""What is taken from the metadata log for one explanation, and who a record is about.

May touch:  records.                  Must not touch: asyncio, files: whoever reads the log brings the entries.
Invariants: entries stand in the order of the log; only committed ones come in; those of a transaction that was aborted do not.
Read next:  brokers.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from barnabas_quorum.controller.configs import UNCLEAN_LEADER_ELECTION
from barnabas_quorum.controller.partition_rules import MIN_INSYNC_REPLICAS
from barnabas_quorum.image.partition import PartitionRegistration
from barnabas_quorum.record_codec import head_of
from barnabas_quorum.records import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    ConfigResourceType,
    PartitionChangeRecord,
    PartitionRecord,
    QuorumRecoveryRecord,
    Record,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId, Epoch, Offset, Uuid
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumLeaderElected:
    """A controller became active: the LeaderChange record that opens an epoch."""

    leader_id: BrokerId
    epoch: Epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One committed record with its place."""

    offset: Offset
    timestamp_ms: int
    batch_offset: Offset
    """Base offset of its batch; records of one batch were decided together."""
    record: Record | QuorumLeaderElected


Filter = Callable[[Record | QuorumLeaderElected], bool]
_PARTITION_HEADS = (head_of(PartitionRecord), head_of(PartitionChangeRecord))

BrokerRecord = RegisterBrokerRecord | BrokerRegistrationChangeRecord | UnregisterBrokerRecord
ELECTION_KEYS = (MIN_INSYNC_REPLICAS, UNCLEAN_LEADER_ELECTION)


def concerns_leadership(record: Record | QuorumLeaderElected) -> bool:
    """What an explanation of the quorum's leader is made of."""
    return isinstance(record, QuorumLeaderElected | QuorumRecoveryRecord)


def concerns_broker(broker_id: BrokerId) -> Filter:
    """What an explanation of a broker is made of."""

    def concerns(record: Record | QuorumLeaderElected) -> bool:
        if isinstance(record, QuorumLeaderElected):
            return True
        return isinstance(record, BrokerRecord) and record.broker_id == broker_id

    return concerns


def concerns_partition(topic: str, topic_id: Uuid, index: int) -> Filter:
    """What an explanation of a partition is made of: its own records, all brokers' states, what rules its elections."""

    def concerns(record: Record | QuorumLeaderElected) -> bool:
        match record:
            case PartitionRecord() | PartitionChangeRecord():
                return record.topic_id == topic_id and record.partition_id == index
            case ConfigRecord():
                return (
                    record.key in ELECTION_KEYS
                    and record.resource_name in ("", topic)
                    and record.resource_type in (ConfigResourceType.TOPIC, ConfigResourceType.BROKER)
                )
            case ClearElrRecord():
                return record.topic_name in ("", topic)
            case _:
                return isinstance(record, QuorumLeaderElected | QuorumRecoveryRecord | BrokerRecord)

    return concerns


def is_of_partition(data: bytes) -> bool:
    """Whether a record's value is of a partition, by its first bytes: what a question about leadership or a broker skips."""
    return data.startswith(_PARTITION_HEADS)


def is_of_other_topic(topic_id: Uuid) -> Callable[[bytes], bool]:
    """What a question about a partition skips: records of partitions that do not name its topic."""
    name = bytes(topic_id)

    def skips(data: bytes) -> bool:
        return data.startswith(_PARTITION_HEADS) and name not in data

    return skips


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStep:
    """One change of a partition: before (None when the log begins later), after, and what else was decided with it."""

    entry: LogEntry
    before: PartitionRegistration | None
    after: PartitionRegistration | None
    """None only where the log begins later than the partition's creation and no snapshot had its state."""
    beside: tuple[LogEntry, ...]
    """The brokers' records that caused it, as far as their place says so."""


def partition_steps(history: Iterable[LogEntry], *, base: PartitionRegistration | None) -> list[PartitionStep]:
    """The partition's history, step by step. `base`: as it was where the log begins."""
    entries = list(history)
    state = base
    steps: list[PartitionStep] = []
    for position, entry in enumerate(entries):
        record = entry.record
        if isinstance(record, PartitionRecord):
            after: PartitionRegistration | None = PartitionRegistration.of(record)
        elif isinstance(record, PartitionChangeRecord):
            after = None if state is None else state.merge(record)
        elif isinstance(record, QuorumRecoveryRecord) and state is not None:
            after = state.after_recovery(record.epoch_gap)
        else:
            continue
        steps.append(PartitionStep(entry=entry, before=state, after=after, beside=_decided_with(entries, position)))
        state = after
    return steps


def _decided_with(entries: Sequence[LogEntry], position: int) -> tuple[LogEntry, ...]:
    """Records of brokers in the same batch. A fence stands behind the changes that it brings, an unfencing before them
    (controller/brokers.py); a decision too big for one batch continues in the next, at the same time."""
    entry = entries[position]
    found = [
        other
        for other in entries
        if other.batch_offset == entry.batch_offset and isinstance(other.record, BrokerRecord)
    ]
    if found:
        return tuple(found)
    behind = next((other for other in entries[position + 1 :] if isinstance(other.record, BrokerRecord)), None)
    is_continued = behind is not None and behind.timestamp_ms == entry.timestamp_ms and _takes_away(behind)
    return (behind,) if is_continued and behind is not None else ()


def _takes_away(entry: LogEntry) -> bool:
    record = entry.record
    if isinstance(record, BrokerRegistrationChangeRecord):
        return record.is_fenced is True or record.is_in_controlled_shutdown is True
    return isinstance(record, UnregisterBrokerRecord)


def leader_at(history: Iterable[LogEntry], offset: Offset) -> BrokerId:
    """The active controller at that offset; -1 when the log does not say."""
    found = NO_BROKER
    for entry in history:
        if entry.offset > offset:
            break
        if isinstance(entry.record, QuorumLeaderElected):
            found = entry.record.leader_id
    return found
