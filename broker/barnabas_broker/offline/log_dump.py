"""`barnabas-server log`: `dump`, files of data logs and, with --metadata, of the metadata log, decoded.

May touch:  files, to read; stdout, stderr.   Must not touch: directories' locks, a running node.
Invariants: reads what is there and changes nothing; damage is shown with its byte and its neighbours, and reading
            continues behind it; no secret is shown; exit status 1 when anything is damaged.
Read next:  barnabas_quorum/driver/log_entries.py; data_dump.py; log_verify.py, which checks data logs; stray_logs.py, whose verbs do
            change something.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from barnabas_broker.metadata.meta_properties import StorageError
from barnabas_broker.offline import data_dump, log_verify, stray_logs
from barnabas_broker.offline.batch_reading import Damage, batches_of
from barnabas_quorum.driver.log_entries import BAD, NO_OP, LogEntry, entries_of
from barnabas_wire.moments import iso_text

SUFFIXES = (".log", ".checkpoint")
EXIT_DAMAGED = 1
IMAGE_HASH = "ImageHashRecord"
HASH_SHOWN = 12
"""Digits of each part's hash in text; JSON has all."""


def add_verbs(verbs: Any) -> None:
    """Put `log` into the command line of barnabas-server."""
    log = verbs.add_parser("log", help="look into log files (offline)")
    actions = log.add_subparsers(dest="action", required=True)
    dump = actions.add_parser("dump", help="print what stands in log files: batches, indexes, snapshots, checkpoints")
    dump.add_argument("paths", nargs="+", metavar="PATH", help="files, or directories that hold them")
    dump.add_argument("--metadata", action="store_true", help="they are of the metadata log: decode its records")
    dump.add_argument("--records", action="store_true", help="show the records of data logs too")
    dump.add_argument("--from", dest="start", type=int, default=0, metavar="OFFSET")
    dump.add_argument("--to", dest="end", type=int, default=None, metavar="OFFSET")
    dump.add_argument("--noops", action="store_true", help="show no-op records too")
    dump.add_argument("-o", "--output", choices=("text", "json"), default="text")
    log_verify.add_verbs(actions)
    stray_logs.add_verbs(actions)


def run(options: argparse.Namespace) -> int:
    """The verb. Raises StorageError when there is nothing to read."""
    if options.action in stray_logs.VERBS:
        return stray_logs.run(options)
    if options.action != "dump":
        return log_verify.run(options)
    damaged = 0
    if options.metadata:
        for path in _files(options.paths):
            damaged += _dump(path, options)
    else:
        for path in _data_files(options.paths):
            damaged += _dump_data(path, options)
    if damaged:
        places = "1 damaged place" if damaged == 1 else f"{damaged} damaged places"
        print(
            f"barnabas-server: {places}. On one node alone: its disk; another node has the records "
            "(`barnabas quorum verify`, `barnabas log verify`)",
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


def _data_files(paths: Sequence[str]) -> list[Path]:
    found: list[Path] = []
    for text in paths:
        path = Path(text)
        if path.is_dir():
            found += sorted(each for each in path.rglob("*") if each.is_file() and data_dump.is_data_file(each))
        elif not path.is_file():
            raise StorageError(f"{path} does not exist")
        elif not data_dump.is_data_file(path):
            kinds = ", ".join((*data_dump.SUFFIXES, "*checkpoint", *data_dump.TEXT_FILES))
            raise StorageError(f"{path} is none of the files of a log ({kinds})")
        else:
            found.append(path)
    if not found:
        raise StorageError(f"no file of a log is in {', '.join(paths)}; name a log directory, a partition's, or files")
    return [path for path in found if not _is_metadata(path)] or found


def _is_metadata(path: Path) -> bool:
    return path.parent.name.startswith("__cluster_metadata")


def _dump_data(path: Path, options: argparse.Namespace) -> int:
    """Print one file of a data log; how many places of it are damaged."""
    if options.output == "text":
        print(f"# {path}  {path.stat().st_size} bytes")
    damaged = 0
    before: dict[str, Any] | None = None
    for found in data_dump.entries_of(path, with_records=options.records):
        if isinstance(found, Damage):
            damaged += 1
            _print_damaged_data(path, found, options.output)
            continue
        if not _is_in_range(found, options):
            continue
        if options.output == "json":
            print(json.dumps({"api_version": "v1", "file": str(path), **found}, ensure_ascii=False))
        else:
            print(_data_line(found))
        before = found
    if before is None and not damaged and options.output == "text":
        print("(nothing)")
    return damaged


def _is_in_range(entry: dict[str, Any], options: argparse.Namespace) -> bool:
    first = entry.get("offset", entry.get("base_offset"))
    last = entry.get("offset", entry.get("last_offset"))
    return first is None or ((options.end is None or first <= options.end) and last >= options.start)


def _data_line(entry: dict[str, Any]) -> str:
    fields = {name: value for name, value in entry.items() if name != "kind" and value not in (None, False, [])}
    if entry["kind"] == "line":
        return str(entry["text"])
    indent = "    " if entry["kind"] == "record" else ""
    shown = " ".join(f"{name}={_short(value)[: data_dump.VALUE_SHOWN_MAX]}" for name, value in fields.items())
    return f"{indent}{entry['kind']}  {shown}"


def _print_damaged_data(path: Path, damage: Damage, output: str) -> None:
    if output == "json":
        shown = {"api_version": "v1", "file": str(path), "damage": damage.reason, **damage._asdict()}
        del shown["reason"]
        print(json.dumps(shown, ensure_ascii=False))
    else:
        print(f"!!! DAMAGED at byte {damage.position}, {damage.size} bytes: {damage.reason}")


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
    for position, found in batches_of(data):
        if isinstance(found, Damage):
            yield found
        else:
            yield from entries_of(data[position : position + found.size_bytes], found)


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
    when = iso_text(entry.timestamp_ms, sep=" ")
    fields = entry.fields
    if entry.kind == IMAGE_HASH:
        fields = {part["part"]: part["hash"][:HASH_SHOWN] + "…" for part in fields["parts"] if part["hash"].strip("0")}
    text = " ".join(f"{name}={_short(value)}" for name, value in fields.items())
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
