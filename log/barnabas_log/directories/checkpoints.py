"""Kafka's small text files: offsets per partition, leader epochs, topic id, clean shutdown; and one of our own, of a log that starts over.

May touch:  the Disk it is given.     Must not touch: logs, clocks.
Invariants: a checkpoint is replaced atomically and durably; a file that cannot be read whole is an error, never half used.
Read next:  manager.py, which writes the ones of a directory; leader_epochs.py, which writes its own.

Layouts (text, one line each, UTF-8):
    *-offset-checkpoint, leader-epoch-checkpoint     "0" (version) / number of entries / one line per entry:
                                                     "topic partition offset" or "epoch startOffset"
    start-over-checkpoint.deleted                    the same, its one line the offset that the log is to start at; see truncating.py
    partition.metadata                               "version: 0" / "topic_id: <22 characters of base64>"
    .kafka_cleanshutdown                             JSON {"version":0,"brokerEpoch":n}; there only between a clean stop
                                                     and the next start
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final

from barnabas_log.disk import Disk
from barnabas_log.errors import CorruptCheckpoint
from barnabas_wire.kafka.ids import Epoch, Offset, TopicPartition, Uuid
from barnabas_wire.records.crc32c import crc32c

RECOVERY_POINTS_FILE: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS_FILE: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS_FILE: Final = "replication-offset-checkpoint"
CLEAN_OFFSETS_FILE: Final = "cleaner-offset-checkpoint"
LEADER_EPOCHS_FILE: Final = "leader-epoch-checkpoint"
# The suffix makes an older version remove the record as it opens the log. Otherwise the record would stay while that version appends,
# and the next upgrade would start the log over and lose what was acknowledged in between.
START_OVER_FILE: Final = "start-over-checkpoint.deleted"
PARTITION_METADATA_FILE: Final = "partition.metadata"
CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"

_VERSION = "0"
_SEAL_BYTES = len("crc32c: 00000000\n")


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, Offset]:
    """The offsets of a checkpoint file; empty if there is none. Raises CorruptCheckpoint."""
    try:
        return decode_offsets(disk.read_file(path), path)
    except FileNotFoundError:
        return {}


def decode_offsets(content: bytes, path: str) -> dict[TopicPartition, Offset]:
    """The offsets in a checkpoint file's content. Raises CorruptCheckpoint, which names the path."""
    offsets: dict[TopicPartition, Offset] = {}
    for line in _entries(content, path):
        fields = line.split(" ")
        if len(fields) != 3:
            raise CorruptCheckpoint(f"{path}: {line!r} is not 'topic partition offset'")
        try:
            offsets[TopicPartition(fields[0], int(fields[1]))] = Offset(int(fields[2]))
        except ValueError:
            raise CorruptCheckpoint(f"{path}: {line!r} holds no numbers") from None
    return offsets


def encode_offsets(offsets: Mapping[TopicPartition, Offset]) -> bytes:
    """Content of a checkpoint file."""
    lines = (f"{tp.topic} {tp.partition} {offset}" for tp, offset in sorted(offsets.items()))
    return _encode(lines, len(offsets))


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, Offset]) -> None:
    """Replace the checkpoint file, blocking until it is durable."""
    disk.write_file_atomically(path, encode_offsets(offsets))


def read_epochs(disk: Disk, path: str) -> list[tuple[Epoch, Offset]]:
    """(epoch, start offset) in file order; empty if there is no file. Raises CorruptCheckpoint."""
    entries: list[tuple[Epoch, Offset]] = []
    for line in _read_entries(disk, path):
        try:
            epoch, start_offset = line.split(" ")
            entries.append((Epoch(int(epoch)), Offset(int(start_offset))))
        except ValueError:
            raise CorruptCheckpoint(f"{path}: {line!r} is not 'epoch startOffset'") from None
    return entries


def write_epochs(disk: Disk, path: str, entries: Iterable[tuple[Epoch, Offset]]) -> None:
    """Replace the leader epoch file, blocking until it is durable."""
    lines = [f"{epoch} {start_offset}" for epoch, start_offset in entries]
    disk.write_file_atomically(path, _encode(lines, len(lines)))


def read_start_over(disk: Disk, path: str) -> Offset | None:
    """Where the log was to start over; None if it was not. Raises CorruptCheckpoint."""
    lines = _read_entries(disk, path)
    if not lines:
        return None
    if len(lines) > 1 or not lines[0].isdecimal():
        raise CorruptCheckpoint(f"{path}: {lines} is not one offset")
    return Offset(int(lines[0]))


def write_start_over(disk: Disk, path: str, offset: Offset) -> None:
    """Write the file, blocking until it is durable."""
    disk.write_file_atomically(path, _encode([str(offset)], 1))


def encode_partition_metadata(topic_id: Uuid) -> bytes:
    """Content of partition.metadata."""
    return f"version: 0\ntopic_id: {topic_id}\n".encode()


def read_partition_metadata(disk: Disk, path: str) -> Uuid | None:
    """Topic id of a partition directory; None if the file is missing or a crash left less than a whole one."""
    try:
        lines = disk.read_file(path).decode(errors="replace").split("\n")
    except FileNotFoundError:
        return None
    if len(lines) != 3 or lines[0] != "version: 0" or not lines[1].startswith("topic_id: "):
        return None
    try:
        return Uuid.parse(lines[1].removeprefix("topic_id: "))
    except ValueError:
        return None


def read_clean_shutdown(disk: Disk, path: str) -> int | None:
    """Broker epoch of the last clean stop, -1 if it did not know one; None if there was no clean stop (KIP-966)."""
    try:
        content = json.loads(disk.read_file(path))
        return int(content["brokerEpoch"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return -1


def write_clean_shutdown(disk: Disk, path: str, *, broker_epoch: int) -> None:
    """Say durably that everything else is durable: the last write of a stop."""
    disk.write_file_atomically(path, json.dumps({"version": 0, "brokerEpoch": broker_epoch}).encode())


def seal(body: bytes, *, name: str = "") -> bytes:
    """The text with its checksum as a last line, `crc32c: <8 hexadecimal digits>`: of files that are our own.

    name: taken into the checksum, where one file's content must not pass for another's.
    """
    return body + b"crc32c: %08x\n" % crc32c(name.encode() + body)


def unseal(content: bytes, *, name: str = "") -> bytes | None:
    """The text of a sealed file; None where its checksum is missing or wrong."""
    body = content[:-_SEAL_BYTES]
    return body if content == seal(body, name=name) else None


def _encode(lines: Iterable[str], count: int) -> bytes:
    return "".join(f"{line}\n" for line in (_VERSION, str(count), *lines)).encode()


def _read_entries(disk: Disk, path: str) -> list[str]:
    try:
        content = disk.read_file(path)
    except FileNotFoundError:
        return []
    return _entries(content, path)


def _entries(content: bytes, path: str) -> list[str]:
    lines = content.decode(errors="replace").split("\n")
    if len(lines) < 3 or lines[0] != _VERSION or lines[-1] != "" or lines[1] != str(len(lines) - 3):
        raise CorruptCheckpoint(f"{path} is cut off or not a version {_VERSION} checkpoint")
    return lines[2:-1]
