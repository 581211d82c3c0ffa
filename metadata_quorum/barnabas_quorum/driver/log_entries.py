"""Batches of the metadata log opened for whoever reads them: every record with its place, control records too.

May touch:  its arguments.            Must not touch: asyncio, files, images.
Invariants: nothing raises: what cannot be read is an entry that says why; no secret is in an entry.
Read next:  ../record_view.py; image_history.py, which makes images of these.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from barnabas_quorum.driver.control_batches import control_records, decode_kraft_version, decode_voters
from barnabas_quorum.image.quarantine import digest_of_record
from barnabas_quorum.record_codec import decode
from barnabas_quorum.record_view import fields_of, kind_of
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import Epoch, Offset
from barnabas_wire.records.batch import BatchHeader, Buffer, iterate_records
from barnabas_wire.records.control import ControlRecordType, decode_leader_change

BAD = "BAD"
"""The kind of an entry that cannot be read."""
NO_OP = "NoOpRecord"


class LogEntry(NamedTuple):
    """One record of the log."""

    offset: Offset
    epoch: Epoch
    timestamp_ms: int
    batch_offset: Offset
    kind: str
    fields: dict[str, Any]


def entries_of(batch: Buffer, header: BatchHeader) -> Iterator[LogEntry]:
    """The records of one batch whose checksum is right."""
    epoch, base = Epoch(header.partition_leader_epoch), Offset(header.base_offset)
    try:
        if header.is_control:
            for offset, control_kind, value in control_records(batch):
                kind, fields = _control(control_kind, value)
                yield LogEntry(offset, epoch, header.max_timestamp_ms, base, kind, fields)
            return
        records = list(iterate_records(batch))
    except (KafkaError, ValueError, IndexError) as error:
        yield LogEntry(base, epoch, header.max_timestamp_ms, base, BAD, {"error": str(error) or repr(error)})
        return
    for record in records:
        data = record.value or b""
        try:
            opened = decode(data)
            kind, fields = kind_of(opened), fields_of(opened)
        except Exception as error:  # a reader of damaged logs goes on behind whatever it meets
            kind = BAD
            fields = {"error": str(error), "size": len(data), "digest": digest_of_record(data).hex()}
        yield LogEntry(Offset(record.offset), epoch, record.timestamp_ms, base, kind, fields)


def _control(kind: int, value: bytes) -> tuple[str, dict[str, Any]]:
    if kind == ControlRecordType.LEADER_CHANGE:
        change = decode_leader_change(value)
        return "LeaderChange", {
            "leader_id": change.leader_id,
            "voters": [voter.voter_id for voter in change.voters],
            "granting_voters": [voter.voter_id for voter in change.granting_voters],
        }
    if kind == ControlRecordType.KRAFT_VOTERS:
        return "KRaftVoters", {"voters": str(decode_voters(value))}
    if kind == ControlRecordType.KRAFT_VERSION:
        return "KRaftVersion", {"version": decode_kraft_version(value)}
    names = {ControlRecordType.SNAPSHOT_HEADER: "SnapshotHeader", ControlRecordType.SNAPSHOT_FOOTER: "SnapshotFooter"}
    return names.get(ControlRecordType(kind), f"ControlRecord{kind}"), {}
