"""`barnabas-server log`: `dump --metadata`, segments and snapshots of the metadata log, decoded from their files.

May touch:  files, to read; stdout, stderr.   Must not touch: directories' locks, a running node.
Invariants: reads what is there and changes nothing; damage is shown with its byte and its neighbours, and reading goes on
            behind it; no secret is shown; exit status 1 when anything is damaged.
Read next:  barnabas_quorum/driver/log_entries.py; log_verify.py for data logs.

Where a length is damaged too, the next batch is looked for byte by byte: one begins where magic is 2, the offset goes on, and
the checksum is right.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from barnabas_broker.node.storage import StorageError
from barnabas_broker.offline import log_verify
from barnabas_quorum.driver.log_entries import BAD, NO_OP, LogEntry, entries_of
from barnabas_wire.records.batch import HEADER_BYTES, MAGIC, BatchHeader, CorruptBatch, crc_is_valid, read_header

SUFFIXES = (".log", ".checkpoint")
EXIT_DAMAGED = 1
IMAGE_HASH = "ImageHashRecord"
HASH_SHOWN = 12
"""Digits of each part's hash in text; JSON has all."""


class Damage(NamedTuple):
    """Bytes that are no batch."""

    position: int
    size: int
    offset: int
    """That the batch there should have, or says it has."""
    reason: str


def add_verbs(verbs: Any) -> None:
    """Put `log` into the command line of barnabas-server."""
    log = verbs.add_parser("log", help="look into log files (offline)")
    actions = log.add_subparsers(dest="action", required=True)
    dump = actions.add_parser("dump", help="print the records of metadata log segments and snapshots")
    dump.add_argument("paths", nargs="+", metavar="PATH", help="files, or directories that hold them")
    dump.add_argument("--metadata", action="store_true", required=True, help="they are of the metadata log")
    dump.add_argument("--from", dest="start", type=int, default=0, metavar="OFFSET")
    dump.add_argument("--to", dest="end", type=int, default=None, metavar="OFFSET")
    dump.add_argument("--noops", action="store_true", help="show no-op records too")
    dump.add_argument("-o", "--output", choices=("text", "json"), default="text")
    log_verify.add_verbs(actions)


def run(options: argparse.Namespace) -> int:
    """The verb. Raises StorageError when there is nothing to read."""
    if options.action != "dump":
        return log_verify.run(options)
    damaged = 0
    for path in _files(options.paths):
        damaged += _dump(path, options)
    if damaged:
        places = "1 damaged place" if damaged == 1 else f"{damaged} damaged places"
        print(
            f"barnabas-server: {places}. On one node alone: its disk; another node has the records "
            "(`barnabas quorum verify`)",
            file=sys.stderr,
        )
    return EXIT_DAMAGED if damaged else 0


def _files(paths: Sequence[str]) -> list[Path]:
    found: list[Path] = []
    for text in paths:
        path = Path(text)
        if path.is_dir():
            inside = sorted(each for each in path.rglob("*") if each.suffix in SUFFIXES and each.is_file())
            metadata = [each for each in inside if each.parent.name.startswith("__cluster_metadata")]
            found += metadata or [each for each in inside if each.parent == path]
        elif path.is_file():
            found.append(path)
        else:
            raise StorageError(f"{path} does not exist")
    if not found:
        raise StorageError(
            f"no segment (*.log) and no snapshot (*.checkpoint) of a metadata log is in {', '.join(paths)}; name the node's "
            "metadata.log.dir, or the files"
        )
    return found


def _dump(path: Path, options: argparse.Namespace) -> int:
    """Print one file; how many places of it are damaged."""
    data = path.read_bytes()
    if options.output == "text":
        print(f"# {path}  {len(data)} bytes")
    damaged = 0
    last: LogEntry | None = None
    for found in read_file(data):
        if isinstance(found, Damage):
            damaged += 1
            _print_damage(path, found, after=last, output=options.output)
            continue
        last = found
        damaged += found.kind == BAD
        is_wanted = options.start <= found.offset and (options.end is None or found.offset <= options.end)
        if is_wanted and (options.noops or found.kind != NO_OP):
            _print_entry(path, found, output=options.output)
    return damaged


def read_file(data: bytes) -> Iterator[LogEntry | Damage]:
    """The records of a segment or a snapshot in their order, and what is damaged between them."""
    position, expected = 0, -1
    while position < len(data):
        header, reason = _batch_at(data, position)
        if header is not None:
            if expected >= 0 and header.base_offset < expected:
                yield Damage(position, 0, header.base_offset, f"offset {header.base_offset} comes after {expected - 1}")
            end = position + header.size_bytes
            yield from entries_of(data[position:end], header)
            position, expected = end, header.next_offset
            continue
        following = _next_batch(data, position + 1, expected)
        end = len(data) if following is None else following
        if not any(data[position:end]):
            return  # preallocated, never written
        yield Damage(position, end - position, max(expected, 0), reason)
        position = end


def _batch_at(data: bytes, position: int) -> tuple[BatchHeader | None, str]:
    try:
        header = read_header(data, position)
    except CorruptBatch:
        return None, f"{len(data) - position} bytes are less than a batch header ({HEADER_BYTES}): an unfinished write"
    if header.magic != MAGIC or header.size_bytes < HEADER_BYTES or header.last_offset_delta < 0:
        return None, "no batch begins here"
    if position + header.size_bytes > len(data):
        return (
            None,
            f"a batch of {header.size_bytes} bytes is cut off after {len(data) - position}: an unfinished write",
        )
    if not crc_is_valid(data, position, header):
        return (
            None,
            f"the checksum of the batch at offset {header.base_offset} is wrong ({header.record_count} records)",
        )
    return header, ""


def _next_batch(data: bytes, start: int, expected: int) -> int | None:
    """Where the next whole batch begins."""
    for position in range(start, len(data) - HEADER_BYTES + 1):
        if data[position + 16] != MAGIC:
            continue
        header, _ = _batch_at(data, position)
        if header is not None and header.base_offset >= expected:
            return position
    return None


def _print_entry(path: Path, entry: LogEntry, *, output: str) -> None:
    if output == "json":
        shown = {
            "api_version": "v1",
            "file": str(path),
            "offset": entry.offset,
            "epoch": entry.epoch,
            "timestamp_ms": entry.timestamp_ms,
            "batch_offset": entry.batch_offset,
            "kind": entry.kind,
            "fields": entry.fields,
        }
        print(json.dumps(shown, ensure_ascii=False))
        return
    # this host's clock, as `barnabas quorum log` and the nodes' own logs have it; TZ=UTC for files of another host
    moment = datetime.fromtimestamp(entry.timestamp_ms / 1000).strftime("%Y-%m-%d %H:%M:%S")
    fields = entry.fields
    if entry.kind == IMAGE_HASH:
        fields = {part["part"]: part["hash"][:HASH_SHOWN] + "…" for part in fields["parts"] if part["hash"].strip("0")}
    text = " ".join(f"{name}={_short(value)}" for name, value in fields.items())
    when = f"{moment}.{entry.timestamp_ms % 1000:03d}"
    print(f"{entry.offset:>8}  {entry.epoch:>3}  {when}  {entry.kind:<30} {text}".rstrip())


def _print_damage(path: Path, damage: Damage, *, after: LogEntry | None, output: str) -> None:
    before = None if after is None else {"offset": after.offset, "kind": after.kind}
    if output == "json":
        shown = {
            "api_version": "v1",
            "file": str(path),
            "damage": damage.reason,
            "position": damage.position,
            "size": damage.size,
            "offset": damage.offset,
            "after": before,
        }
        print(json.dumps(shown, ensure_ascii=False))
        return
    where = "at the beginning" if after is None else f"after offset {after.offset} ({after.kind})"
    print(f"!!! DAMAGED {where}, byte {damage.position}, {damage.size} bytes: {damage.reason}")


def _short(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
