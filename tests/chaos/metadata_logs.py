"""The metadata logs that the controllers leave on their disks: compared byte for byte, and read as changes of topics.

May touch:  files of stopped nodes.   Must not touch: running nodes.
Invariants: reads with the wire's batches and the quorum's record codec, nothing of the node's own log code.
Read next:  tests/checker/metadata_history.py, which judges clients against the changes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from barnabas_quorum.record_codec import decode
from barnabas_quorum.records import ConfigRecord, ConfigResourceType, Record, RemoveTopicRecord, TopicRecord
from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.records.batch import crc_is_valid, iterate_batches, iterate_records
from tests.checker.metadata_history import Change

LOG_SUFFIX = ".log"
CONFIG_KEY = "retention.ms"
"""The one config that the workload sets; its values are unique."""


class StoredLog(NamedTuple):
    """One controller's log."""

    start: int
    end: int
    batches: dict[int, bytes]
    """Base offset -> the whole batch."""


class LogComparison(NamedTuple):
    """The committed part of all logs, against each other."""

    compared_to: int
    """Offset below which they were compared."""
    batches: int
    ranges: dict[int, tuple[int, int]]
    differences: list[str]
    """One line per batch that two logs have differently, or that a log lacks inside its range."""

    @property
    def is_clean(self) -> bool:
        """All agree."""
        return not self.differences

    def __str__(self) -> str:
        ranges = ", ".join(f"{node}: {start}…{end}" for node, (start, end) in sorted(self.ranges.items()))
        return f"{self.batches} batches below {self.compared_to} ({ranges}): {len(self.differences)} differences"


def read_log(directory: Path) -> StoredLog:
    """All batches of a stopped node's metadata log, up to a torn tail."""
    batches: dict[int, bytes] = {}
    end = 0
    for path in sorted(directory.glob(f"*{LOG_SUFFIX}")):
        data = path.read_bytes()
        for position, header in iterate_batches(data):
            if not crc_is_valid(data, position, header):
                break
            batches[header.base_offset] = data[position : position + header.size_bytes]
            end = header.next_offset
    return StoredLog(min(batches, default=0), end, batches)


def compare_logs(logs: Mapping[int, StoredLog], *, high_watermark: int, voters: Collection[int]) -> LogComparison:
    """Every committed batch is the same bytes in every log that reaches so far, and a majority of the voters reaches so far."""
    differences = []
    bases = sorted({base for log in logs.values() for base in log.batches if base < high_watermark})
    for base in bases:
        present = {node: log.batches.get(base) for node, log in logs.items() if log.start <= base < log.end}
        if len(set(present.values())) > 1:
            sizes = {node: None if data is None else len(data) for node, data in present.items()}
            differences.append(f"batch at {base}: sizes by node {sizes}")
    reached = [node for node, log in logs.items() if node in voters and log.end >= high_watermark]
    if 2 * len(reached) <= len(voters):
        differences.append(
            f"of the voters {sorted(voters)} only {sorted(reached)} reach the high watermark {high_watermark} that was reported"
        )
    ranges = {node: (log.start, log.end) for node, log in logs.items()}
    return LogComparison(high_watermark, len(bases), ranges, differences)


def read_changes(logs: Mapping[int, StoredLog], *, high_watermark: int) -> dict[str, list[Change]]:
    """Topic -> its committed changes, in order, read from whichever log has each batch."""
    changes: dict[str, list[Change]] = {}
    names: dict[Uuid, str] = {}
    for _, last, records in _record_batches(logs, high_watermark):
        _add_changes(changes, names, records, offset=last)
    return changes


def _record_batches(logs: Mapping[int, StoredLog], high_watermark: int) -> list[tuple[int, int, list[Record]]]:
    """(base offset, last offset, records) of every committed batch of data, in order."""
    merged: dict[int, bytes] = {}
    for log in logs.values():
        merged.update({base: data for base, data in log.batches.items() if base < high_watermark})
    found = []
    for base in sorted(merged):
        (_, header), *_ = iterate_batches(merged[base])
        if not header.is_control:
            records = [decode(bytes(record.value or b"")) for record in iterate_records(merged[base])]
            found.append((base, int(header.last_offset), records))
    return found


def _add_changes(
    changes: dict[str, list[Change]], names: dict[Uuid, str], records: list[Record], *, offset: int
) -> None:
    created: dict[str, str | None] = {}
    for record in records:
        if isinstance(record, TopicRecord):
            names[record.topic_id] = record.name
            created[record.name] = None
        elif isinstance(record, RemoveTopicRecord):
            changes.setdefault(names[record.topic_id], []).append(Change(offset, "delete", None))
        elif (
            isinstance(record, ConfigRecord)
            and record.resource_type is ConfigResourceType.TOPIC
            and record.key == CONFIG_KEY
            and record.value is not None
        ):
            verb = "create" if record.resource_name in created else "set"
            changes.setdefault(record.resource_name, []).append(Change(offset, verb, record.value))
