"""What a backup of a topic holds, and which of its records a restore writes.

May touch:  files below the directory it is given.    Must not touch: the brokers, printing.
Invariants: a backup says up to which offset it holds each partition, and its manifest is written last: without one it is none;
            records of aborted transactions are kept in the files and never restored; no link below the directory is followed.
Read next:  commands/backup.py, which fills it and plays it back.

Layout below the directory, for each topic: `<topic>/topic.json` (the manifest) and `<topic>/<partition>.log`, batches as the leader sent
them, so that `barnabas log dump` reads them.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from barnabas_admin.errors import AdminError
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.primitives import MalformedMessage
from barnabas_wire.lazy_dataclass import dataclass
from barnabas_wire.records.batch import CorruptBatch, Record, crc_is_valid, iterate_batches, iterate_records
from barnabas_wire.records.control import ControlRecordType, decode_control_key

MANIFEST = "topic.json"
FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPartition:
    """Offsets from `start` up to, and without, `end` are in the file: the point that the backup stands for."""

    partition: int
    start: int
    end: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedTopic:
    """The manifest."""

    topic: str
    exported_at_ms: int
    replication_factor: int
    configs: dict[str, str]
    partitions: tuple[SavedPartition, ...]
    groups: dict[str, dict[int, int]]
    """Group -> partition -> committed offset."""


def write_manifest(directory: Path, saved: SavedTopic) -> None:
    """Write the manifest durably, after the files that it speaks of."""
    temporary = directory / f"{MANIFEST}.tmp"
    with open(temporary, "w", encoding="utf-8", opener=follow_no_link) as file:
        json.dump({"api_version": "v1", "format": FORMAT} | asdict(saved), file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(directory / MANIFEST)


def read_manifest(directory: Path) -> SavedTopic:
    """The manifest of a topic's backup. Raises AdminError where there is none, or one of another format."""
    try:
        fields = json.loads(_own_bytes(directory / MANIFEST))
        if fields.pop("format") != FORMAT:
            raise ValueError(f"format {fields.get('format')}")
        del fields["api_version"]
        fields["partitions"] = tuple(SavedPartition(**item) for item in fields["partitions"])
        fields["groups"] = {
            group: {int(index): offset for index, offset in offsets.items()}
            for group, offsets in fields["groups"].items()
        }
        saved = SavedTopic(**fields)
        for part in saved.partitions:  # a name of a file is made of it
            if type(part.partition) is not int or part.partition < 0:
                raise ValueError(f"{part.partition!r} is no partition")
        return saved
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise AdminError(
            f"{directory} holds no whole backup of a topic: {error}",
            code=ErrorCode.RESOURCE_NOT_FOUND,
            hint="`barnabas topic export` writes one; one that was broken off has no topic.json",
        ) from None


def check_file(path: Path, saved: SavedPartition) -> None:
    """Read a partition's file as its restore does. Raises AdminError for one that is not what the manifest says."""
    for _ in restored_records(path, saved):
        pass


def restored_records(path: Path, saved: SavedPartition) -> Iterator[Record]:
    """The records of a partition's file in order: no markers, nothing of aborted transactions, nothing from the end on.

    Raises AdminError for a file that is not what the manifest says.
    """
    try:
        data = _own_bytes(path)
    except OSError as error:
        raise _damaged(path, str(error)) from None
    if len(data) != saved.size_bytes:
        raise _damaged(path, f"{len(data)} bytes where the manifest says {saved.size_bytes}")
    try:
        aborted = _aborted_batches(data)
        for position, header in iterate_batches(data):
            if not crc_is_valid(data, position, header):
                raise _damaged(path, f"the checksum of the batch at offset {header.base_offset} is wrong")
            if header.is_control or position in aborted:
                continue
            for record in iterate_records(data[position : position + header.size_bytes]):
                if saved.start <= record.offset < saved.end:
                    yield record
    except (CorruptBatch, MalformedMessage) as error:
        raise _damaged(path, str(error)) from error


def follow_no_link(path: str | Path, flags: int) -> int:
    """`opener` of files that are written: a directory that others may write to has links to the operator's own files."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


def _own_bytes(path: Path) -> bytes:
    """A file of a topic's directory. Raises OSError where it, or the directory, is a link, and for what is no file."""
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        descriptor = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    finally:
        os.close(directory)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path.name} is no file")
        return file.read()


def _aborted_batches(data: bytes) -> set[int]:
    """Positions of the batches that an abort marker ends. Every transaction below the last stable offset has its marker here."""
    aborted: set[int] = set()
    unended: dict[int, list[int]] = {}
    for position, header in iterate_batches(data):
        if header.is_control:
            record = next(iter(iterate_records(data[position : position + header.size_bytes])))
            kind = decode_control_key(record.key or b"")
            written = unended.pop(header.producer_id, [])
            if kind == ControlRecordType.ABORT:
                aborted.update(written)
        elif header.is_transactional:
            unended.setdefault(header.producer_id, []).append(position)
    return aborted


class RestoredOffsets:
    """Where groups continue in the restored partition: offsets count again there, from 0 and without gaps."""

    def __init__(self, committed: dict[str, int]) -> None:
        self._waiting = sorted(((offset, group) for group, offset in committed.items()), reverse=True)
        self._count = 0
        self.offsets: dict[str, int] = {}

    def note(self, record: Record) -> None:
        """One record more is restored."""
        self._settle(record.offset)
        self._count += 1

    def finish(self) -> dict[str, int]:
        """Group -> offset; whoever had read all continues at the end."""
        self._settle(None)
        return self.offsets

    def _settle(self, up_to: int | None) -> None:
        while self._waiting and (up_to is None or self._waiting[-1][0] <= up_to):
            self.offsets[self._waiting.pop()[1]] = self._count


def _damaged(path: Path, what: str) -> AdminError:
    return AdminError(
        f"{path} is damaged: {what}", code=ErrorCode.CORRUPT_MESSAGE, hint="`barnabas log dump` shows where"
    )
