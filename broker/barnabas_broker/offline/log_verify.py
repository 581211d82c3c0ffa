"""`barnabas-server log verify` and `log repair --dry-run`: data logs checked from their files, and what a broker would do.

May touch:  files, to read; stdout, stderr.   Must not touch: directories' locks, a running node.
Invariants: reads what is there and changes nothing; every batch of every segment is checked, and its records are walked over; what a
            crash left unfinished behind the recovery point is no damage; exit status 1 when anything is damaged or unreadable.
Read next:  barnabas_log/recovery/scrub.py, the check itself, which brokers run in the background too;
            barnabas_wire/records/inspection.py, the walk over records, which is never done in the background.

There is no repair without the dry run: the sound bytes are on other brokers, so a broker that runs repairs its own replicas. A batch
with a right checksum whose records cannot be read is what its producer sent: every replica has it, and nothing repairs
it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from barnabas_broker.metadata.meta_properties import StorageError
from barnabas_log.config import INT64_MAX, LogConfig
from barnabas_log.directories.checkpoints import (
    CLEAN_OFFSETS_FILE,
    CLEAN_SHUTDOWN_FILE,
    HIGH_WATERMARKS_FILE,
    LEADER_EPOCHS_FILE,
    RECOVERY_POINTS_FILE,
    read_epochs,
    read_offsets,
)
from barnabas_log.directories.log_directory import parse_directory_name
from barnabas_log.disk import Disk, RealDisk
from barnabas_log.errors import CorruptCheckpoint
from barnabas_log.read.early_end import early_end
from barnabas_log.recovery.scrub import CheckFacts, DamagedRange, ReadAt, SegmentCheck
from barnabas_log.tail.segment import LOG_SUFFIX, LogSegment
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import Epoch, Offset, TopicPartition
from barnabas_wire.records.batch import HEADER_BYTES, read_header
from barnabas_wire.records.inspection import inspect_batch

EXIT_DAMAGED = 1
_SKIP = "every replica has it, nothing repairs it; `barnabas group skip` gets a group past it"
DAMAGE = "damage"
"""The bytes are not what was appended."""
RECORDS = "records"
"""They are, and no reader gets past them."""
SECTION_BYTES_MAX = 64 * 1024 * 1024
"""Largest records section that a batch may decompress to: what readers of ours open."""
_HEADINGS = ("PARTITION", "OFFSETS", "SEGMENT", "BYTES", "WHAT")


class Finding(NamedTuple):
    """One damaged range of a partition's log."""

    topic_partition: TopicPartition
    directory: str
    damage: DamagedRange
    next_step: str
    """What a broker does about it, or an operator can."""
    kind: str = DAMAGE


def add_verbs(actions: Any) -> None:
    """Put `verify` and `repair` beside `log dump`."""
    for verb, text in (
        ("verify", "check every batch of data logs"),
        ("repair", "say what a broker would repair, and how"),
    ):
        parser = actions.add_parser(verb, help=text)
        parser.add_argument(
            "paths", nargs="+", metavar="PATH", help="log directories, or partition directories in them"
        )
        if verb == "repair":
            parser.add_argument("--dry-run", action="store_true", required=True, help="change nothing")
        parser.add_argument("-o", "--output", choices=("text", "json"), default="text")


def run(options: argparse.Namespace) -> int:
    """The verb. Raises StorageError when there is nothing to read."""
    disk = RealDisk(wants_ring=False)
    try:
        directories = _partition_directories(options.paths)
        findings: list[Finding] = []
        bytes_checked = 0
        for directory in directories:
            found, size = check_directory(disk, directory)
            findings += found
            bytes_checked += size
    finally:
        disk.close()
    is_plan = options.action == "repair"
    if options.output == "json":
        for finding in findings:
            print(json.dumps(_as_json(finding), ensure_ascii=False))
    elif findings:
        print(_table(findings, is_plan=is_plan))
    damaged = sum(finding.kind == DAMAGE for finding in findings)
    unreadable = len(findings) - damaged
    counts = [
        *(["1 damaged range" if damaged == 1 else f"{damaged} damaged ranges"] if damaged else []),
        *([f"{unreadable} {'batch' if unreadable == 1 else 'batches'} that nobody can read"] if unreadable else []),
    ]
    print(
        f"{len(directories)} partitions, {bytes_checked} bytes: {' and '.join(counts) or 'all sound'}", file=sys.stderr
    )
    if unreadable and not is_plan:
        print(
            "barnabas-server: unreadable batches are as their producer sent them, on every replica; "
            "`barnabas group skip GROUP TOPIC PARTITION` gets a group past one",
            file=sys.stderr,
        )
    if damaged and not is_plan:
        print(
            "barnabas-server: a broker that runs repairs its replicas from their leaders; `log repair --dry-run` says how",
            file=sys.stderr,
        )
    return EXIT_DAMAGED if findings and not is_plan else 0


def check_directory(disk: Disk, directory: Path) -> tuple[list[Finding], int]:
    """What is damaged in one partition directory, and how many bytes were checked. Raises StorageError."""
    topic_partition = parse_directory_name(directory.name)
    assert topic_partition is not None, "chosen by its name"
    parent = directory.parent
    recovery_point = _offset_of(disk, parent / RECOVERY_POINTS_FILE, topic_partition)
    high_watermark = _offset_of(disk, parent / HIGH_WATERMARKS_FILE, topic_partition)
    is_compacted = topic_partition in _offsets(disk, parent / CLEAN_OFFSETS_FILE)
    is_clean = (parent / CLEAN_SHUTDOWN_FILE).exists()
    bases = sorted(int(path.stem) for path in directory.glob(f"*{LOG_SUFFIX}") if path.stem.isdecimal())
    epochs: tuple[tuple[Epoch, Offset], ...] = ()
    try:
        if is_clean:  # else the file may be behind the log
            epochs = tuple(read_epochs(disk, str(directory / LEADER_EPOCHS_FILE)))
    except CorruptCheckpoint as error:
        print(f"barnabas-server: {error}", file=sys.stderr)
    findings: list[Finding] = []
    bytes_checked = 0
    for number, base in enumerate(bases):
        path = directory / f"{base:020d}{LOG_SUFFIX}"
        size = path.stat().st_size
        bytes_checked += size
        is_last = number + 1 == len(bases)
        end = INT64_MAX if is_last else bases[number + 1]
        if is_compacted and not is_last:
            end = _end_of(disk, directory, base, end)
        damages, unreadable = _check(
            disk, path, CheckFacts(Offset(base), Offset(end), size, epochs, may_have_gaps=True)
        )
        findings += [Finding(topic_partition, str(directory), each, _SKIP, RECORDS) for each in unreadable]
        for damage in damages:
            if is_last and damage.end_offset == INT64_MAX:
                if damage.first_offset >= recovery_point:
                    continue  # the end of the log, or of what a crash left of it
                damage = damage._replace(end_offset=recovery_point)
            step = _next_step(damage, high_watermark)
            findings.append(Finding(topic_partition, str(directory), damage, step))
    return sorted(findings, key=lambda finding: finding.damage.first_offset), bytes_checked


def _check(disk: Disk, path: Path, facts: CheckFacts) -> tuple[list[DamagedRange], list[DamagedRange]]:
    """What is damaged, and of what is not, the batches whose records cannot be read."""
    file = disk.open(path)
    try:
        check = SegmentCheck(facts)
        while not check.is_done:
            check.step(file.read_aside)
        return check.damages, list(_unreadable(file.read_aside, facts, check.damages))
    finally:
        file.close()


def _unreadable(read: ReadAt, facts: CheckFacts, damages: Sequence[DamagedRange]) -> Iterator[DamagedRange]:
    position = 0
    for stop, following in [*((damage.position, damage.stop) for damage in damages), (facts.size_bytes, 0)]:
        while position < stop:
            header = read_header(read(position, HEADER_BYTES))
            try:
                inspect_batch(read(position, header.size_bytes), header, bytes_max=SECTION_BYTES_MAX)
            except KafkaError as error:
                yield DamagedRange(
                    header.base_offset,
                    header.next_offset,
                    facts.base_offset,
                    position,
                    position + header.size_bytes,
                    f"nobody can read its records: {error.message}",
                )
            position += header.size_bytes
        position = following


def _next_step(damage: DamagedRange, high_watermark: Offset) -> str:
    if damage.end_offset <= high_watermark:
        return f"refetched from the leader ({damage.stop - damage.position} bytes, in place)"
    return f"above the high watermark {high_watermark}: refetched once committed, else cut at {damage.first_offset}"


def _end_of(disk: Disk, directory: Path, base: int, following: int) -> int:
    """Where a sealed segment of a compacted log ends: at the next one's base, unless Kafka's cleaner left it otherwise."""
    segment = LogSegment.open(disk, str(directory), Offset(base), LogConfig(), now_ms=0)
    try:
        found = early_end(segment, following=following)
    except FileNotFoundError:  # of an index, which a broker makes again
        found = None
    finally:
        segment.close()
    return following if found is None else found


def _offset_of(disk: Disk, path: Path, topic_partition: TopicPartition) -> Offset:
    return _offsets(disk, path).get(topic_partition, Offset(0))


def _offsets(disk: Disk, path: Path) -> dict[TopicPartition, Offset]:
    try:
        return read_offsets(disk, str(path))
    except CorruptCheckpoint as error:
        raise StorageError(f"{error}; start the broker, which makes it anew") from error


def _partition_directories(paths: Sequence[str]) -> list[Path]:
    found: dict[Path, None] = {}
    for text in paths:
        path = Path(text)
        if not path.is_dir():
            raise StorageError(f"{path} is no directory; name a log directory (log.dirs) or a partition's in it")
        for each in _partitions_in(path.resolve()):
            found[each] = None
    if not found:
        raise StorageError(
            f"no partition's log is in {', '.join(paths)}; name a log directory (log.dirs) or a partition's in it"
        )
    return list(found)


def _partitions_in(path: Path) -> Iterator[Path]:
    for each in (path, *sorted(path.iterdir())):
        name = parse_directory_name(each.name)
        if name is not None and not name.topic.startswith("__cluster_metadata") and any(each.glob(f"*{LOG_SUFFIX}")):
            yield each


def _as_json(finding: Finding) -> dict[str, Any]:
    damage = finding.damage
    return {
        "api_version": "v1",
        "topic": finding.topic_partition.topic,
        "partition": finding.topic_partition.partition,
        "directory": finding.directory,
        "segment": damage.segment,
        "first_offset": damage.first_offset,
        "last_offset": damage.end_offset - 1,
        "position": damage.position,
        "size": damage.stop - damage.position,
        "kind": finding.kind,
        "reason": damage.reason,
        "next_step": finding.next_step,
    }


def _table(findings: Sequence[Finding], *, is_plan: bool) -> str:
    rows = [_HEADINGS] + [
        (
            str(finding.topic_partition),
            f"{finding.damage.first_offset}..{finding.damage.end_offset - 1}",
            f"{finding.damage.segment:020d}",
            f"{finding.damage.position}+{finding.damage.stop - finding.damage.position}",
            finding.next_step if is_plan else finding.damage.reason,
        )
        for finding in findings
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
