"""Metadata records to bytes and back. Generated protobuf types stop here.

May touch:  records, message_mapping, barnabas_wire.rpc.metadata_records_pb2.   Must not touch: image, controller, asyncio.
Invariants: decode(encode(r)) == r; equal records encode to equal bytes (no map fields, fixed field order);
            a record this code does not know is an error, never skipped; the union Record and the oneof of MetadataRecord
            have the same members.
Read next:  records.py, which declares what is mapped here; message_mapping.py, the compiler.

Layout of a value: one protobuf MetadataRecord with exactly one member of its oneof set: the one whose message has the
record's name without "Record".
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar, cast

from google.protobuf.message import DecodeError

from barnabas_quorum.message_mapping import MappingMismatch, MessageMapping, mapping_of
from barnabas_quorum.records import Record
from barnabas_wire.kafka.errors import InvariantViolated
from barnabas_wire.kafka.ids import BrokerId, Uuid
from barnabas_wire.rpc import metadata_records_pb2 as pb

T = TypeVar("T")

SHARED_MAX = 50_000
"""Different lists of brokers, or of directories, that are remembered so that equal ones share their memory."""
_BROKER_TUPLES: dict[tuple[BrokerId, ...], tuple[BrokerId, ...]] = {}
_UUID_TUPLES: dict[Any, Any] = {}


class UnknownRecord(InvariantViolated):
    """The metadata log holds a record this code cannot read: a newer node wrote it, or the log is damaged."""


class RecordType(NamedTuple):
    """One type of record, and its member of the oneof."""

    kind: type
    member: str
    mapping: MessageMapping


def encode(record: Record) -> bytes:
    """The value of one log record. Raises TypeError on what is not a metadata record."""
    found = RECORD_TYPES.get(type(record))
    if found is None:
        raise TypeError(f"{type(record).__name__} is not a metadata record")
    message = pb.MetadataRecord(**{found.member: found.mapping.write(record)})
    data: bytes = message.SerializeToString(deterministic=True)
    return data


def decode(data: bytes) -> Record:
    """Read one value. Raises UnknownRecord on a record or an enum value this code does not know."""
    message = pb.MetadataRecord()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise UnknownRecord(f"not a metadata record ({len(data)} bytes): {error}") from error
    member = message.WhichOneof("record")
    if member is None:
        raise UnknownRecord(
            f"the metadata log holds a record that this version does not know ({len(data)} bytes); "
            "run the version that wrote it"
        )
    try:
        record: Record = _BY_MEMBER[member].read(getattr(message, member))
        return record
    except ValueError as error:
        raise UnknownRecord(
            f"the metadata log holds a {member} record that this version cannot read: {error}"
        ) from error


def _brokers(ids: Iterable[int]) -> tuple[BrokerId, ...]:
    return _shared(cast(tuple[BrokerId, ...], tuple(ids)), _BROKER_TUPLES)


def _uuids(values: Iterable[bytes]) -> tuple[Uuid, ...]:
    raw = tuple(values)
    found = _UUID_TUPLES.get(raw)
    return _shared(tuple(map(Uuid, raw)), _UUID_TUPLES) if found is None else found


def _shared(value: T, known: dict[T, T]) -> T:
    """An equal value that others hold already, so that 100 000 partitions do not hold 300 000 lists of the same brokers."""
    found = known.get(value)
    if found is None:
        if len(known) >= SHARED_MAX:
            known.clear()
        found = known[value] = value
    return found


def _members(union: Any) -> list[type]:
    arguments = typing.get_args(union)
    return [kind for argument in arguments for kind in (_members(argument) or [argument])]


def _record_types() -> dict[type, RecordType]:
    fields: dict[str, Any] = {}
    for field in pb.MetadataRecord.DESCRIPTOR.fields:
        assert field.message_type is not None, f"{field.name} is no message"
        fields[field.message_type.name] = field
    kinds = {kind.__name__.removesuffix("Record"): kind for kind in _members(Record)}
    if fields.keys() != kinds.keys():
        raise MappingMismatch(f"Record and MetadataRecord differ in {sorted(fields.keys() ^ kinds.keys())}")
    readers: dict[Any, Callable[[Any], Any]] = {tuple[BrokerId, ...]: _brokers, tuple[Uuid, ...]: _uuids}
    return {
        kind: RecordType(kind, fields[name].name, mapping_of(kind, getattr(pb, name), list_readers=readers))
        for name, kind in kinds.items()
    }


RECORD_TYPES: dict[type, RecordType] = _record_types()
"""Every record that can stand in the log."""


def head_of(kind: type) -> bytes:
    """How the value of each record of that type begins, and of no other: the tag of its member, length-delimited."""
    tag = pb.MetadataRecord.DESCRIPTOR.fields_by_name[RECORD_TYPES[kind].member].number << 3 | 2
    head = bytearray()
    while tag > 0x7F:
        head.append(tag & 0x7F | 0x80)
        tag >>= 7
    return bytes((*head, tag))


_BY_MEMBER = {found.member: found.mapping for found in RECORD_TYPES.values()}
