"""The content of the files of a data log: batches, records, indexes, snapshots, checkpoints.

May touch:  files, to read.           Must not touch: directories' locks, a running node, files of the metadata log (log_dump.py).
Invariants: reads what is there and changes nothing; damage is named with its byte, and reading continues behind it;
            every line is an entry of the file, in its order.
Read next:  log_dump.py, which calls it; barnabas_log's segment.py, sparse_index.py and checkpoints.py for the formats.

Records of `__consumer_offsets`, `__transaction_state` and `__share_group_state` are decoded: the name of the directory says which they are.
"""

from __future__ import annotations

import base64
import dataclasses
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from barnabas_broker.offline.batch_reading import Damage, batches_of
from barnabas_coordination.group import records as group_records
from barnabas_coordination.share_state import records as share_records
from barnabas_coordination.transaction import records as transaction_records
from barnabas_log.errors import CorruptCheckpoint
from barnabas_log.tail.producer_snapshots import decode_snapshot
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import SHARE_STATE_TOPIC, Offset
from barnabas_wire.kafka.primitives import MalformedMessage
from barnabas_wire.records.batch import BatchHeader, CorruptBatch, Record, header_name_bytes, iterate_records
from barnabas_wire.records.control import ControlRecordType, decode_control_key

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
TEXT_FILES = ("partition.metadata", "topic-id.witness", "meta.properties", "quorum-state", ".kafka_cleanshutdown")
VALUE_SHOWN_MAX = 200
"""Bytes of a key or value in text; JSON has all."""

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_TXN_ENTRY = struct.Struct(">hqqqq")

Entry = dict[str, Any]


def is_data_file(path: Path) -> bool:
    """Whether this module can read it, by its name."""
    return path.suffix in SUFFIXES or path.name in TEXT_FILES or path.name.endswith("checkpoint")


def entries_of(path: Path, *, with_records: bool) -> Iterator[Entry | Damage]:
    """The entries of one file. Each has a `kind`; records follow their batch."""
    data = path.read_bytes()
    match path.suffix:
        case ".log":
            yield from _log(path, data, with_records=with_records)
        case ".index":
            yield from _fixed(data, _OFFSET_ENTRY, lambda at, delta, position: _index_entry(path, delta, position))
        case ".timeindex":
            yield from _fixed(data, _TIME_ENTRY, lambda at, moment, delta: _time_entry(path, moment, delta))
        case ".txnindex":
            yield from _fixed(data, _TXN_ENTRY, _txn_entry)
        case ".snapshot":
            yield from _snapshot(path, data)
        case _:
            yield from _text(path, data)


def _log(path: Path, data: bytes, *, with_records: bool) -> Iterator[Entry | Damage]:
    for position, found in batches_of(data):
        if isinstance(found, Damage):
            yield found
            continue
        yield _batch(found, position)
        if not with_records:
            continue
        try:
            for record in iterate_records(data[position : position + found.size_bytes]):
                yield _record(path, found, record)
        except (CorruptBatch, ValueError) as error:
            yield Damage(position, found.size_bytes, found.base_offset, f"its records cannot be read: {error}")


def _batch(header: BatchHeader, position: int) -> Entry:
    try:
        codec = header.compression.name.lower()
    except CorruptBatch:
        codec = f"unknown ({header.attributes & 7})"
    return {
        "kind": "batch",
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "leader_epoch": header.partition_leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "compression": codec,
        "max_timestamp_ms": header.max_timestamp_ms,
        "delete_horizon_ms": header.delete_horizon_ms,
        "position": position,
        "size": header.size_bytes,
    }


def _record(path: Path, header: BatchHeader, record: Record) -> Entry:
    entry: Entry = {"kind": "record", "offset": record.offset, "timestamp_ms": record.timestamp_ms}
    if header.is_control:
        return entry | {"marker": _marker(record)}
    topic = path.parent.name.rpartition("-")[0]
    decoded = _decoded(topic, record)
    if decoded is not None:
        return entry | decoded
    return entry | {
        **_bytes("key", record.key),
        **_bytes("value", record.value),
        "headers": [
            {**_bytes("name", header_name_bytes(name)), **_bytes("value", value)} for name, value in record.headers
        ],
    }


def _marker(record: Record) -> str:
    try:
        return ControlRecordType(decode_control_key(record.key or b"")).name
    except (MalformedMessage, ValueError) as error:
        return f"unknown ({error})"


def _decoded(topic: str, record: Record) -> Entry | None:
    """A record of a coordinator's own topic; None for any other, or one that cannot be read, which is shown as bytes."""
    decode: Any = {
        "__consumer_offsets": group_records.decode,
        "__transaction_state": transaction_records.decode,
        SHARE_STATE_TOPIC: share_records.decode,
    }.get(topic)
    if decode is None or record.key is None:
        return None
    try:
        found = decode(record.key, record.value)
    except (KafkaError, MalformedMessage, ValueError):
        return None
    return None if found is None else {"record": type(found).__name__, "fields": _plain(found)}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if hasattr(value, "_fields"):
        return {name: _plain(getattr(value, name)) for name in value._fields}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list | set | frozenset):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _bytes(name: str, data: bytes | None) -> Entry:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def _fixed(data: bytes, entry: struct.Struct, make: Any) -> Iterator[Entry | Damage]:
    """Entries of one width. Zeros at the end are room that was never written."""
    whole = len(data) - len(data) % entry.size
    used = len(data.rstrip(b"\0"))
    for at in range(0, whole, entry.size):
        if at >= used and at:
            return
        yield make(at, *entry.unpack_from(data, at))
    if whole != len(data):
        yield Damage(whole, len(data) - whole, -1, f"{len(data) - whole} bytes are less than an entry ({entry.size})")


def _index_entry(path: Path, delta: int, position: int) -> Entry:
    return {"kind": "offset_index", "offset": _base(path) + delta, "position": position}


def _time_entry(path: Path, moment: int, delta: int) -> Entry:
    return {"kind": "time_index", "timestamp_ms": moment, "offset": _base(path) + delta}


def _txn_entry(at: int, version: int, producer_id: int, first: int, last: int, stable: int) -> Entry | Damage:
    if version:
        return Damage(at, _TXN_ENTRY.size, first, f"an entry of version {version}")
    return {
        "kind": "aborted_transaction",
        "producer_id": producer_id,
        "first_offset": first,
        "last_offset": last,
        "last_stable_offset": stable,
    }


def _base(path: Path) -> int:
    return int(path.stem) if path.stem.isdigit() else 0


def _snapshot(path: Path, data: bytes) -> Iterator[Entry | Damage]:
    try:
        state = decode_snapshot(data, Offset(_base(path)))
    except CorruptCheckpoint as error:
        yield Damage(0, len(data), _base(path), str(error))
        return
    for producer in state:
        last = producer.batches[-1] if producer.batches else None
        yield {
            "kind": "producer",
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "last_sequence": last.last_sequence if last else -1,
            "last_offset": last.last_offset if last else -1,
            "last_timestamp_ms": last.timestamp_ms if last else producer.marker_ms,
            "coordinator_epoch": producer.coordinator_epoch,
            "transaction_start": producer.transaction_start,
        }


def _text(path: Path, data: bytes) -> Iterator[Entry | Damage]:
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError as error:
        yield Damage(error.start, len(data) - error.start, -1, "not text")
        return
    if path.name.endswith("checkpoint"):
        if lines[:1] != ["0"] or len(lines) < 2 or not lines[1].isdigit() or int(lines[1]) != len(lines) - 2:
            yield Damage(0, len(data), -1, "not version 0, the number of entries, and so many lines")
        lines = lines[2:]
    for line in lines:
        yield {"kind": "line", "text": line}
