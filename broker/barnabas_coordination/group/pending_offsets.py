"""Offsets that open transactions committed, in one `__consumer_offsets` partition: they count with the marker, or never (KIP-98).

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: of a key's offsets the one written last wins, whenever its transaction ends, as compaction would have it; a key is
            unstable from the write to the moment in which the marker is below the high watermark.
Read next:  offsets.py, shard.py.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator

from barnabas_coordination.group.records import OffsetCommitRecord
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class _Entry:
    record: OffsetCommitRecord
    position: int
    """Grows with the log."""
    is_superseded: bool = False
    """A later record of the key counts already."""


class PendingOffsets:
    """The open transactions of one partition, and those whose marker is not committed yet."""

    __slots__ = ("_by_group", "_ending", "_open", "_position", "_unstable")

    def __init__(self) -> None:
        self._open: dict[int, dict[tuple[str, TopicPartition], _Entry]] = {}
        self._ending: deque[tuple[list[OffsetCommitRecord], list[tuple[str, TopicPartition]]]] = deque()
        """For each marker, oldest first: what counts by it, and every key of the transaction."""
        self._unstable: Counter[tuple[str, TopicPartition]] = Counter()
        self._by_group: Counter[str] = Counter()
        self._position = 0

    def write(self, producer_id: int, record: OffsetCommitRecord) -> None:
        """A transaction's record was appended."""
        name = _name(record)
        entries = self._open.setdefault(producer_id, {})
        if name not in entries:
            self._unstable[name] += 1
            self._by_group[record.group_id] += 1
        self._position += 1
        entries[name] = _Entry(record, self._position)

    def supersede(self, record: OffsetCommitRecord) -> None:
        """A record outside transactions was appended: those before it will not count."""
        if self._open:
            self._supersede(_name(record), self._position + 1)

    def _supersede(self, name: tuple[str, TopicPartition], position: int) -> None:
        for entries in self._open.values():
            entry = entries.get(name)
            if entry is not None and entry.position < position:
                entry.is_superseded = True

    def end(self, producer_id: int, *, is_commit: bool) -> list[OffsetCommitRecord]:
        """A marker was appended; returns the records that count from here on."""
        entries = self._open.pop(producer_id, {})
        counting = [entry for entry in entries.values() if is_commit and not entry.is_superseded]
        for entry in counting:
            self._supersede(_name(entry.record), entry.position)
        records = [entry.record for entry in counting]
        self._ending.append((records, list(entries)))
        return records

    def on_end_committed(self) -> list[OffsetCommitRecord]:
        """The oldest marker is below the high watermark; returns the records that count by it."""
        records, names = self._ending.popleft()
        for name in names:
            self._unstable[name] -= 1
            if not self._unstable[name]:
                del self._unstable[name]
            self._by_group[name[0]] -= 1
            if not self._by_group[name[0]]:
                del self._by_group[name[0]]
        return records

    def is_unstable(self, group_id: str, key: TopicPartition) -> bool:
        """Whether the key's offset may still change by a transaction."""
        return (group_id, key) in self._unstable

    def has_group(self, group_id: str) -> bool:
        """Whether any offset of the group is unstable."""
        return group_id in self._by_group

    def groups(self) -> Iterator[str]:
        """Those that have unstable offsets."""
        return iter(self._by_group)

    def keys_of(self, group_id: str) -> Iterator[TopicPartition]:
        """The group's unstable keys."""
        return (key for group, key in self._unstable if group == group_id)


def _name(record: OffsetCommitRecord) -> tuple[str, TopicPartition]:
    return record.group_id, TopicPartition(record.topic, record.partition)
